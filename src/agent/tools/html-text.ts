/** Elements whose content is not read. */
const HIDDEN = new Set(['script', 'style', 'noscript', 'template', 'svg', 'iframe', 'object', 'select']);
/** Elements that stand on lines of their own. */
const BLOCKS = new Set(
  (
    'address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li ' +
    'main nav ol p pre section table tbody td th thead tr ul'
  ).split(' '),
);
const ENTITIES: Record<string, string> = {
  amp: '&',
  apos: "'",
  copy: '©',
  gt: '>',
  hellip: '…',
  laquo: '«',
  ldquo: '“',
  lsquo: '‘',
  lt: '<',
  mdash: '—',
  nbsp: ' ',
  ndash: '–',
  quot: '"',
  raquo: '»',
  rdquo: '”',
  rsquo: '’',
};

/**
 * The text of a page as a person would read it, and its title; linear in the length of the page, whatever it contains.
 */
export function htmlToText(html: string): { title: string; text: string } {
  const lower = html.toLowerCase();
  const pieces: string[] = [];
  let title = '';
  let place = 0;
  while (place < html.length) {
    const open = html.indexOf('<', place);
    pieces.push(html.slice(place, open < 0 ? html.length : open));
    if (open < 0) break;
    const tag = readTag(lower, open);
    if (tag.name === '') pieces.push('<');
    if (tag.name === 'title' && title === '') title = html.slice(tag.end, closing(lower, 'title', tag.end));
    if (HIDDEN.has(tag.name) || tag.name === 'title') place = closing(lower, tag.name, tag.end);
    else place = tag.end;
    if (BLOCKS.has(tag.name.replace('/', ''))) pieces.push('\n');
  }
  return { title: tidy(title), text: tidy(pieces.join('')) };
}

/**
 * Name (with a `/` for a closing tag) and end of the tag that starts at `open`; a lone `<` ends right behind itself.
 */
function readTag(lower: string, open: number): { name: string; end: number } {
  if (lower.startsWith('<!--', open)) return { name: '!', end: after(lower, '-->', open + 4) };
  const name = /^<(\/?[a-z][a-z0-9]*|[!?])/.exec(lower.slice(open, open + 40))?.[1];
  return name === undefined ? { name: '', end: open + 1 } : { name, end: after(lower, '>', open) };
}

function after(text: string, mark: string, from: number): number {
  const place = text.indexOf(mark, from);
  return place < 0 ? text.length : place + mark.length;
}

/** Where the closing tag of an element starts; the end of the page where there is none. */
function closing(lower: string, name: string, from: number): number {
  const place = lower.indexOf(`</${name}`, from);
  return place < 0 ? lower.length : place;
}

const tidy = (text: string) =>
  text
    .replaceAll(/&(?:#x([0-9a-f]{1,6})|#(\d{1,7})|([a-z]{2,8}));/gi, decodeEntity)
    .split('\n')
    .map((line) => line.replaceAll(/\s+/g, ' ').trim())
    .filter(Boolean)
    .join('\n');

function decodeEntity(whole: string, hex?: string, decimal?: string, name?: string): string {
  if (name !== undefined) return ENTITIES[name.toLowerCase()] ?? whole;
  const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
  return code > 0 && code <= 0x10_ff_ff && (code < 0xd8_00 || code > 0xdf_ff) ? String.fromCodePoint(code) : '';
}
