import { STORE_MARK } from '../../core/session.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/**
 * jsonb refuses U+0000 and lone surrogates, which JSON allows. The escape works on JSON *text*, so that reads stay
 * unparsed: a refused code unit, and the mark itself, becomes the mark and four hex digits.
 */

/** A private-use character that no keyboard types; where it does occur in data it is escaped like the others. */
const MARK = STORE_MARK;
const MARK_CODE = 'e000';
/** One JSON string escape. A lone surrogate always comes as an escape from JSON.stringify (well-formed, ES2019). */
const REFUSED_ESCAPE = /\\(?:u(0000|d[89a-f][0-9a-f]{2})|[^])/g;
const MARKED = new RegExp(`${MARK}([0-9a-f]{4})`, 'g');

/** JSON text as PostgreSQL accepts it. `json` must come from JSON.stringify (lower-case escapes). */
export function escapeJson(value: unknown): string {
  const json = JSON.stringify(value);
  const unmarked = json.includes(MARK) ? json.replaceAll(MARK, MARK + MARK_CODE) : json;
  if (!unmarked.includes('\\u0000') && !unmarked.includes('\\ud')) return unmarked;
  return unmarked.replace(REFUSED_ESCAPE, (escape, code: string | undefined) => (code ? MARK + code : escape));
}

/** The text of a jsonb value as JSON text again: the inverse of {@link escapeJson}, without parsing. */
export function unescapeJson(text: string): string {
  if (!text.includes(MARK)) return text;
  return text.replace(MARKED, (_, code: string) => (code === MARK_CODE ? MARK : `\\u${code}`));
}

/** The value that was stored as jsonb, from what the driver parsed of it. */
export const unescapeValue = (stored: unknown): unknown => parseExactJson(unescapeJson(JSON.stringify(stored)));

/** A plain string for a text column, which refuses the same code units; undone by {@link unescapeText}. */
export function escapeText(value: string): string {
  return JSON.parse(escapeJson(value)) as string;
}

/** The inverse of {@link escapeText}. */
export const unescapeText = (stored: string): string => unescapeValue(stored) as string;
