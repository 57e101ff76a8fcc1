import { isUtf8 } from 'node:buffer';
import { countMembers, findInexact } from './exact-json.ts';
import { JsonScan } from './json-scan.ts';
import type { JsonLimits } from './limits.ts';

const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);
/** Bytes from which a text waits for its turn to be parsed. */
export const LARGE_BYTES = 65_536;

/** A JSON text that is not taken; the message goes on behind what it is, as in "The body is not UTF-8". */
export class JsonRefusedError extends Error {
  readonly kind: 'encoding' | 'depth' | 'values' | 'syntax' | 'inexact';
  /** Keys that lead to an inexact value. */
  readonly path: (string | number)[];
  constructor(kind: JsonRefusedError['kind'], message: string, path: JsonRefusedError['path'] = []) {
    super(message);
    this.kind = kind;
    this.path = path;
  }
}

/**
 * Parses JSON that came from outside. Refuses, in this order: bytes that are not UTF-8, too many levels or values
 * before anything is parsed, text that is not JSON and, where it is to be `exact`, what would not come back as sent.
 * @throws {JsonRefusedError}
 */
export function parseJson(sent: Buffer, limits: JsonLimits, { exact }: { exact: boolean }): unknown {
  if (!isUtf8(sent)) throw new JsonRefusedError('encoding', 'is not UTF-8');
  const bytes = sent.subarray(0, 3).equals(BYTE_ORDER_MARK) ? sent.subarray(3) : sent;
  const scan = new JsonScan(limits).add(bytes);
  if (scan.excess === 'depth') throw new JsonRefusedError('depth', `has more than ${limits.depth} levels of nesting`);
  if (scan.excess) throw new JsonRefusedError('values', `has more than ${limits.values} values`);
  const text = bytes.toString();
  const value = parse(text);
  // Only where something shows that there may be an inexact value is every character examined for its place.
  const mayBeInexact = exact && (scan.mayOverflow || countMembers(value) !== scan.members);
  const inexact = mayBeInexact ? findInexact(text) : undefined;
  if (inexact) throw new JsonRefusedError('inexact', inexact.reason, inexact.path);
  return value;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new JsonRefusedError('syntax', 'is not valid JSON');
  }
}
