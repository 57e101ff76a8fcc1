import { memo, type ReactElement, useDeferredValue } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import rehypeSanitize from 'rehype-sanitize';
import remarkGfm from 'remark-gfm';

/** HTML in the text stays text. A picture is named and not loaded, a link is followed by a click only. */
const components: Components = {
  img: ({ alt, src }) => (
    <span className="hint">
      [picture{alt ? `: ${alt}` : ''}: {src}]
    </span>
  ),
  a: ({ href, children }) => (
    <a href={href} title={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  input: ({ checked }) => <>{checked ? '☑' : '☐'}</>,
};

/** Texts that were read already: scrolling back reads none again. */
const kept = new Map<string, ReactElement>();
const MAX_KEPT = 500;

function toElements(text: string): ReactElement {
  const known = kept.get(text);
  if (known) return known;
  const options = { remarkPlugins: [remarkGfm], rehypePlugins: [rehypeSanitize], components, children: text };
  const made = ReactMarkdown(options);
  if (kept.size >= MAX_KEPT) kept.clear();
  kept.set(text, made);
  return made;
}

/** Text of a model: Markdown through a sanitizer. It is plain at first, so that scrolling waits for nothing. */
export const Markdown = memo(({ text }: { text: string }) => {
  const isTime = useDeferredValue(true, kept.has(text));
  return <div className="markdown">{isTime ? toElements(text) : <p className="said">{text}</p>}</div>;
});
