import { memo, type ReactElement, useDeferredValue } from 'react';
import ReactMarkdown, { type Components, type Options } from 'react-markdown';
import rehypeSanitize from 'rehype-sanitize';
import remarkGfm from 'remark-gfm';

/** What Markdown reads without showing all of it. HTML would be left out, as would an address or a note nothing names. */
const HIDING = ['htmlFlow', 'htmlText', 'definition', 'gfmFootnoteDefinition', 'gfmFootnoteCall'];

/** A plugin: all that was said is shown, so HTML stays text. */
const showAll: NonNullable<Options['remarkPlugins']>[number] = function showAll() {
  const data = this.data() as { micromarkExtensions?: object[] };
  (data.micromarkExtensions ??= []).push({ disable: { null: HIDING } });
};

/** A picture is named and not loaded, a link is followed by a click only. */
const components: Components = {
  img: ({ alt, src }) => (
    <span className="hint">
      [picture{alt ? `: ${alt}` : ''}: {src}]
    </span>
  ),
  a: ({ href, title, children }) => (
    <a href={href} title={[title, href].filter(Boolean).join(' · ')} target="_blank" rel="noopener noreferrer nofollow">
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
  const options = { remarkPlugins: [remarkGfm, showAll], rehypePlugins: [rehypeSanitize], components, children: text };
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
