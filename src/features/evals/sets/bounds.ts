import type { JsonStream } from '../../../conversation/sessions/json-stream.ts';
import { TooLargeError } from '../../../core/errors.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** Maximum cases of a set, and of a run including trials, because a report is read as one page. */
export const MAX_CASES = 1_000;
/** Maximum bytes of a case as JSON, because it is processed as one value. */
const MAX_CASE_BYTES = 4_194_304;
const MAX_TURNS = 1_000;
/** Maximum bytes of a run's metrics and simulated user, because lists of runs and results repeat them. */
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

/** Members with base64 data, which cannot be truncated because a half is unreadable. */
const BYTES = new Set(['data', 'thoughtSignature']);
const LENGTHS = [16_384, 1_024, 256];
export const MAX_SCORES = 1_048_576;

/**
 * Truncates texts step by step until the JSON has at most `maxLength` characters; each truncated text says so. The
 * result may still be longer.
 */
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

/** Maximum rows of a batch, and maximum bytes; a first row may be larger. */
const PART_ROWS = 200;
const PART_BYTES = 4_194_304;

/** Divides rows with estimated sizes into batches to read at once. */
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

/**
 * Streams pages of elements between a head and a tail. The tail is built at the end; each page is read when the client
 * has consumed the previous one.
 */
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
