import type { JsonStream } from '../../../platform/json-stream.ts';
import { TooLargeError } from '../../../core/errors.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** Maximum cases of a set, and of a run, where each trial counts, because a report shows them on one page. */
export const MAX_CASES = 1_000;
/** Maximum size of a case's JSON in bytes. The size is limited, because a case is processed in memory as a whole. */
const MAX_CASE_BYTES = 4_194_304;
const MAX_TURNS = 1_000;
/** Maximum bytes of a run's metrics and simulated user, because lists of runs and results repeat both. */
const MAX_METRICS_BYTES = 65_536;

const byteLength = (value: unknown) => Buffer.byteLength(JSON.stringify(value) ?? '');

/** @throws {TooLargeError} if the case is too large */
export function checkCase(evalCase: { evalId: string; conversation?: unknown[] | null | undefined }): void {
  const { evalId, conversation } = evalCase;
  if ((conversation?.length ?? 0) > MAX_TURNS)
    throw new TooLargeError(`Eval case \`${evalId}\` has more than ${MAX_TURNS} turns.`);
  if (byteLength(evalCase) > MAX_CASE_BYTES)
    throw new TooLargeError(`Eval case \`${evalId}\` is larger than ${MAX_CASE_BYTES} bytes.`);
}

/** @throws {TooLargeError} if the values are too large together */
export function checkMetricsSize(...values: unknown[]): void {
  if (byteLength(values) <= MAX_METRICS_BYTES) return;
  throw new TooLargeError(`The metrics and the simulated user have more than ${MAX_METRICS_BYTES} bytes.`);
}

/** Names of properties with base64 data, which are never truncated, because truncated data are unreadable. */
const BYTES = new Set(['data', 'thoughtSignature']);
const LENGTHS = [16_384, 1_024, 256];
export const MAX_SCORES = 1_048_576;

/** Cuts texts step by step until the JSON has at most `maxLength` characters, each with a note. May stay longer. */
export function withShortTexts<Value>(value: Value, maxLength: number): Value {
  let text = JSON.stringify(value);
  if (text.length <= maxLength) return value;
  for (const length of LENGTHS) {
    if (text.length <= maxLength) break;
    text = JSON.stringify(value, (name, member: unknown) => {
      if (typeof member !== 'string' || member.length <= length) return member;
      return BYTES.has(name) ? '' : `${member.slice(0, length).toWellFormed()}… (${member.length} characters)`;
    });
  }
  return parseExactJson(text) as Value;
}

/** Maximum number of rows of a batch, and maximum size of a batch in bytes. A larger row is a batch by itself. */
export const PART_ROWS = 200;
export const PART_BYTES = 4_194_304;

/**
 * Divides rows, by their estimated sizes, into batches that are each read by a statement. Pages by position would each
 * sort the whole set, because no index has the order of its cases.
 */
export function inParts<Row extends { bytes: number }>(rows: Row[]): Row[][] {
  const parts: Row[][] = [];
  let bytes = 0;
  for (const row of rows) {
    const part = parts.at(-1);
    bytes += row.bytes;
    if (part && part.length < PART_ROWS && bytes <= PART_BYTES) part.push(row);
    else {
      parts.push([row]);
      bytes = row.bytes;
    }
  }
  return parts;
}

/** Streams JSON: a head, pages of elements, each read when the client has consumed the previous one, and a tail. */
export async function streamList(
  pages: AsyncGenerator<string[]>,
  head = '[',
  tail: string | (() => string) = ']',
): Promise<JsonStream> {
  const end = () => (typeof tail === 'string' ? tail : tail());
  const { value: page = [] } = (await pages.next()) as { value?: string[] };
  const further = await pages.next();
  const first = [head, page.join(',')];
  if (further.done) return { first: [...first, end()] };
  const rest = async function* () {
    let isEmpty = page.length === 0;
    let texts = further.value;
    for (;;) {
      if (texts.length > 0) yield [isEmpty ? '' : ',', texts.join(',')];
      isEmpty &&= texts.length === 0;
      const next = await pages.next();
      if (next.done) break;
      texts = next.value;
    }
    yield [end()];
  };
  return { first, rest: rest() };
}
