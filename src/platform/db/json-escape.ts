import { STORE_MARK } from '../../core/session.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/**
 * jsonb refuses U+0000 and lone surrogates, which JSON allows. They, and the mark itself, are stored as the mark and
 * four hex digits. The escape works on JSON *text*, so that reads need no parsing.
 */

/** A private-use character; escaped itself if it occurs in data. */
const MARK = STORE_MARK;
const MARK_CODE = 'e000';
/** One JSON string escape. JSON.stringify always escapes lone surrogates (ES2019). */
const REFUSED_ESCAPE = /\\(?:u(0000|d[89a-f][0-9a-f]{2})|[^])/g;
const MARKED = new RegExp(`${MARK}([0-9a-f]{4})`, 'g');

/** JSON text that PostgreSQL accepts, without U+0000 and lone surrogates. */
export function escapeJson(value: unknown): string {
  const json = JSON.stringify(value);
  const unmarked = json.includes(MARK) ? json.replaceAll(MARK, MARK + MARK_CODE) : json;
  if (!unmarked.includes('\\u0000') && !unmarked.includes('\\ud')) return unmarked;
  return unmarked.replace(REFUSED_ESCAPE, (escape, code: string | undefined) => (code ? MARK + code : escape));
}

/** The inverse of {@link escapeJson}, on text. */
export function unescapeJson(text: string): string {
  if (!text.includes(MARK)) return text;
  return text.replace(MARKED, (_, code: string) => (code === MARK_CODE ? MARK : `\\u${code}`));
}

/** Restores a jsonb value that the driver has already parsed. */
export const unescapeValue = (stored: unknown): unknown => parseExactJson(unescapeJson(JSON.stringify(stored)));

/** Escapes a string for a text column, which refuses the same code units; undone by {@link unescapeText}. */
export function escapeText(value: string): string {
  return JSON.parse(escapeJson(value)) as string;
}

export const unescapeText = (stored: string): string => unescapeValue(stored) as string;
