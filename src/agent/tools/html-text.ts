import { Tokenizer } from 'htmlparser2';

/** Elements whose content is not part of the text. */
const HIDDEN = new Set('iframe noscript object script select style svg template title'.split(' '));
/** Elements that stand on lines of their own. */
const BLOCKS = new Set(
  (
    'address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 ' +
    'header hr li main nav ol p pre section table tbody td th thead tr ul'
  ).split(' '),
);
const ignore = () => {};
/** Handlers for tokens that are not text. */
const IGNORED = {
  onopentagend: ignore,
  onattribname: ignore,
  onattribdata: ignore,
  onattribentity: ignore,
  onattribend: ignore,
  oncdata: ignore,
  oncomment: ignore,
  ondeclaration: ignore,
  onprocessinginstruction: ignore,
  onend: ignore,
};

/**
 * Returns the text of a page as a person would read it, and its first title, in time linear in its length. It reads
 * tokens: the parser of the same package looks through all open elements at each end tag.
 */
export function htmlToText(html: string): { title: string; text: string } {
  const text: string[] = [];
  const title: string[] = [];
  let titles = 0;
  /** The hidden element that is open, and how many of its name are nested. */
  let hidden = { name: '', depth: 0 };
  const open = (name: string) => {
    if (name === hidden.name) hidden.depth += 1;
    if (hidden.depth > 0) return;
    if (HIDDEN.has(name)) hidden = { name, depth: 1 };
    if (name === 'title') titles += 1;
    if (BLOCKS.has(name)) text.push('\n');
  };
  const close = (name: string) => {
    if (name === hidden.name) hidden.depth -= 1;
    if (hidden.depth > 0) return;
    hidden = { name: '', depth: 0 };
    if (BLOCKS.has(name)) text.push('\n');
  };
  const add = (piece: string) => {
    if (hidden.depth === 0) text.push(piece);
    else if (hidden.name === 'title' && titles === 1) title.push(piece);
  };
  let last = '';
  const nameAt = (start: number, end: number) => html.slice(start, end).toLowerCase();
  const tokenizer = new Tokenizer(
    { decodeEntities: true },
    {
      ...IGNORED,
      ontext: (start, end) => add(html.slice(start, end)),
      ontextentity: (codePoint) => add(String.fromCodePoint(codePoint)),
      onopentagname: (start, end) => open((last = nameAt(start, end))),
      onclosetag: (start, end) => close(nameAt(start, end)),
      // HTML knows `<x/>` in SVG only; elsewhere the slash means nothing.
      onselfclosingtag: () => void (last === 'svg' && close('svg')),
    },
  );
  tokenizer.write(html);
  tokenizer.end();
  return { title: tidy(title.join('')), text: tidy(text.join('')) };
}

/** One line per block, blanks collapsed, empty lines left out. */
const tidy = (text: string) =>
  text
    .split('\n')
    .map((line) => line.replaceAll(/\s+/g, ' ').trim())
    .filter(Boolean)
    .join('\n');
