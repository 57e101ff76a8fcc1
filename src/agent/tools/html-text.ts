import { Tokenizer } from 'htmlparser2';
import { newPauses } from '../../platform/work/loop-turns.ts';

/** Characters of a page that are read in one piece. */
const SLICE = 16_384;
/** Maximum length of a title. */
const MAX_TITLE = 1_000;

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
 * Returns the text of a page as a person would read it, and its first title, in time linear in its length; `isCut` says
 * that the text has more than `maxLength` characters, and then the page is not read on. It reads tokens: the parser of
 * the same package looks through all open elements at each end tag.
 */
export async function htmlToText(
  html: string,
  maxLength: number,
): Promise<{ title: string; text: string; isCut: boolean }> {
  let text = '';
  let fresh = '';
  let title = '';
  let titles = 0;
  /** The hidden element that is open, and how many of its name are nested. */
  let hidden = { name: '', depth: 0 };
  const open = (name: string) => {
    if (name === hidden.name) hidden.depth += 1;
    if (hidden.depth > 0) return;
    if (HIDDEN.has(name)) hidden = { name, depth: 1 };
    if (name === 'title') titles += 1;
    if (BLOCKS.has(name)) fresh += '\n';
  };
  const close = (name: string) => {
    if (name === hidden.name) hidden.depth -= 1;
    if (hidden.depth > 0) return;
    hidden = { name: '', depth: 0 };
    if (BLOCKS.has(name)) fresh += '\n';
  };
  const add = (piece: string) => {
    if (hidden.depth === 0) fresh += piece;
    else if (hidden.name === 'title' && titles === 1) title += piece;
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
  const tidy = () => {
    title = squeeze(title).trimStart().slice(0, MAX_TITLE);
    // What is tidy already is not looked at again, but for a blank at its end.
    text = (text.slice(0, -1) + squeeze(text.slice(-1) + fresh)).trimStart();
    fresh = '';
  };
  const pause = newPauses();
  // One character more is a blank at the end.
  for (let place = 0; place < html.length && text.length <= maxLength + 1; place += SLICE) {
    await pause();
    tokenizer.write(html.slice(place, place + SLICE));
    tidy();
  }
  if (text.length <= maxLength + 1) tokenizer.end();
  tidy();
  text = text.trimEnd();
  return { title: title.trimEnd(), text: text.slice(0, maxLength), isCut: text.length > maxLength };
}

/** Collapses blanks; those with a line end among them to that: one line per block, empty lines left out. */
const squeeze = (text: string) => text.replaceAll(/\s+/g, (blanks) => (blanks.includes('\n') ? '\n' : ' '));
