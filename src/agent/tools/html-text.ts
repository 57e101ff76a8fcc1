import { Tokenizer } from 'htmlparser2';
import { newPauses } from '../../platform/work/loop-turns.ts';

/** Number of characters that are parsed without a pause for other work of the process. */
const SLICE = 16_384;
const MAX_TITLE = 1_000;

/** HTML elements whose content is skipped, because it is no text of the page. */
const HIDDEN = new Set('iframe noscript object script select style svg template title'.split(' '));
/** HTML elements that begin and end a line of text. */
const BLOCKS = new Set(
  (
    'address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 ' +
    'header hr li main nav ol p pre section table tbody td th thead tr ul'
  ).split(' '),
);
const ignore = () => {};
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
 * Takes linear time: only the tokenizer of the HTML package is used, because its parser searches all open elements at
 * each end tag. `isCut` is true if the text is longer than `maxLength`; the rest of the page is not parsed then.
 */
export async function htmlToText(
  html: string,
  maxLength: number,
): Promise<{ title: string; text: string; isCut: boolean }> {
  let text = '';
  let fresh = '';
  let title = '';
  let titles = 0;
  /** The open element whose content is skipped, and how deeply elements of its name are nested. */
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
      // `<x/>` closes an element in SVG only; elsewhere HTML ignores the slash.
      onselfclosingtag: () => void (last === 'svg' && close('svg')),
    },
  );
  const tidy = () => {
    title = squeeze(title).trimStart().slice(0, MAX_TITLE);
    // Of the earlier text only the last character is joined with the new text before squeezing: it may be a blank.
    text = (text.slice(0, -1) + squeeze(text.slice(-1) + fresh)).trimStart();
    fresh = '';
  };
  const pause = newPauses();
  // One more character than the maximum is read, because the last one may be a blank that is removed.
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

/** Replaces each run of whitespace by one blank, or by one line break if it contains any, so that no line is empty. */
const squeeze = (text: string) => text.replaceAll(/\s+/g, (blanks) => (blanks.includes('\n') ? '\n' : ' '));
