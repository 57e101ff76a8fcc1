import { createEgress, type EgressPolicy } from '../../platform/net/egress.ts';
import { type Tool, toParameters } from '../definition/tool.ts';
import { Tokenizer } from 'htmlparser2';
import { newPauses } from '../../platform/work/loop-turns.ts';

/** Maximum length of a page's text that the model receives, in characters. */
const MAX_TEXT = 50_000;
const TIMEOUT_MS = 20_000;
const READABLE = /^(?:text\/|application\/(?:[\w.+-]*\+)?(?:json|xml|xhtml\+xml|javascript)\b)/i;

/** Reads a page of at most 4 MiB within 20 seconds, at an address that the egress policy allows. */
export const webFetch = (policy: EgressPolicy): Tool => ({
  name: 'web_fetch',
  description:
    'Fetches a web page and gives its readable text. Use it for an address that the user names or that you know.',
  parameters: toParameters(
    { url: { type: 'string', maxLength: 2_000, description: 'Absolute address, https://…' } },
    'url',
  ),
  needsConfirmation: false,
  effect: 'none',
  async run(args, { signal, session }) {
    const url = URL.parse(String(args['url']));
    if (!url) throw new Error('This is not an absolute address.');
    const egress = createEgress(policy, session.userId);
    try {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
      const response = await egress.fetch(url, {
        signal: limit,
        headers: { accept: 'text/html, text/plain, */*;q=0.1' },
      });
      return await toPage(url, response);
    } catch (error) {
      if (error instanceof Error && error.name === 'TimeoutError')
        throw new Error(`${url.host} took too long.`, { cause: error });
      if (error instanceof TypeError) throw new Error(`${url.host} could not be reached.`, { cause: error });
      throw error;
    } finally {
      await egress.close();
    }
  },
});

async function toPage(url: URL, response: Response) {
  const type = response.headers.get('content-type') ?? 'text/plain';
  if (!response.ok) throw new Error(`${url.host} answered HTTP ${response.status}.`);
  if (!READABLE.test(type)) throw new Error(`${url.host} answered with ${type.split(';')[0]}, which is not text.`);
  const body = decode(await response.arrayBuffer(), type);
  const plain = { title: '', text: body.slice(0, MAX_TEXT), isCut: body.length > MAX_TEXT };
  const { title, text, isCut } = /html/i.test(type) ? await readHtml(body) : plain;
  return {
    url: url.href,
    ...(title === '' ? {} : { title }),
    text,
    ...(isCut ? { note: `The first ${MAX_TEXT} characters; the page has more.` } : {}),
  };
}

async function readHtml(html: string) {
  // The HTML parser is loaded with the first HTML page.
  const { htmlToText } = await import('./web-fetch.ts');
  return htmlToText(html, MAX_TEXT);
}

function decode(bytes: ArrayBuffer, type: string): string {
  const charset = /charset="?([\w-]+)/i.exec(type)?.[1] ?? 'utf-8';
  try {
    return new TextDecoder(charset).decode(bytes);
  } catch {
    return new TextDecoder().decode(bytes);
  }
}

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
