import { STORE_MARK } from '../core/session.ts';
import { parseExactJson } from '../core/exact-json.ts';

/**
 * Escapes what jsonb refuses although JSON allows it: U+0000 and lone surrogates. These, and the mark character itself,
 * are stored as the mark and four hex digits. The escape works on JSON *text*, so that reads need no parsing.
 */

const MARK = STORE_MARK;
const MARK_CODE = 'e000';
/** Matches a JSON string escape. JSON.stringify always escapes lone surrogates (ES2019). */
const REFUSED_ESCAPE = /\\(?:u(0000|d[89a-f][0-9a-f]{2})|[^])/g;
const MARKED = new RegExp(`${MARK}([0-9a-f]{4})`, 'g');

export function escapeJson(value: unknown): string {
  const json = JSON.stringify(value);
  const unmarked = json.includes(MARK) ? json.replaceAll(MARK, MARK + MARK_CODE) : json;
  if (!unmarked.includes('\\u0000') && !unmarked.includes('\\ud')) return unmarked;
  return unmarked.replace(REFUSED_ESCAPE, (escape, code: string | undefined) => (code ? MARK + code : escape));
}

/** Returns a list as the JSON parameter of a SQL function; null for an empty list. */
export const escapeList = (list: readonly unknown[] = []): string | null => (list.length > 0 ? escapeJson(list) : null);

export function unescapeJson(text: string): string {
  if (!text.includes(MARK)) return text;
  return text.replace(MARKED, (_, code: string) => (code === MARK_CODE ? MARK : `\\u${code}`));
}

/** Unescapes JSON texts and adds a comma between them. It does not join them, because joining would copy all of them. */
export const unescapeList = (texts: string[]): string[] =>
  texts.flatMap((text, place) => (place === 0 ? [unescapeJson(text)] : [',', unescapeJson(text)]));

/** Parses JSON text as it is stored. */
export const parseStored = (text: string): unknown => parseExactJson(unescapeJson(text));

/** Escapes a string for a text column, which refuses U+0000 and lone surrogates too; undone by {@link unescapeText}. */
export function escapeText(value: string): string {
  if (!value.includes(MARK) && !value.includes('\0') && value.isWellFormed()) return value;
  return JSON.parse(escapeJson(value)) as string;
}

export const unescapeText = (stored: string): string =>
  stored.includes(MARK) ? (parseStored(JSON.stringify(stored)) as string) : stored;
