import { JsonScan } from '../../core/json-scan.ts';
import type { JsonLimits } from '../../core/limits.ts';

/** Limits on an HTTP response, checked while it arrives. */
export interface AnswerBounds extends JsonLimits {
  bytes: number;
  /** Maximum number of elements if the response body is a JSON array. Default: no limit. */
  elements?: number;
  /** Counts a message, or a line of the stream without data. @returns the limit that is exceeded, if any */
  note?: (kind: 'message' | 'other line') => string | undefined;
  /** Awaited before each larger portion is passed on, so that parsing it does not block the event loop for long. */
  turn?: () => Promise<void>;
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const DATA = Buffer.from('data:');
/** Bytes after which `turn` is awaited. Each message counts as `MESSAGE_BYTES` more. */
const TURN_BYTES = 65_536;
const MESSAGE_BYTES = 2_048;

/**
 * Limits a response of JSON, or of server-sent events with JSON: 400,000 members, for example, would keep a schema
 * parser busy for a second. The body fails when it exceeds a limit.
 * @param isStream - true for server-sent events
 * @param toError - makes the error from a text like `more than 10 bytes`
 */
export function boundedResponse(
  response: Response,
  isStream: boolean,
  bounds: AnswerBounds,
  toError: (excess: string) => Error,
): Response {
  if (!response.body) return response;
  const { status, statusText, headers } = response;
  const body = boundedBody(response.body, isStream, bounds, toError);
  return new Response(ReadableStream.from(body), { status, statusText, headers });
}

/** Limits a body as {@link boundedResponse} does. */
export const boundedBody = (
  body: AsyncIterable<Uint8Array>,
  isStream: boolean,
  bounds: AnswerBounds,
  toError: (excess: string) => Error,
): AsyncGenerator<Uint8Array, void, void> => counted(body, new AnswerCounter(isStream, bounds, toError), bounds.turn);

export const isEventStream = ({ headers }: Response): boolean =>
  headers.get('content-type')?.split(';')[0]?.trim().toLowerCase() === 'text/event-stream';

async function* counted(body: AsyncIterable<Uint8Array>, counter: AnswerCounter, turn: AnswerBounds['turn']) {
  for await (const chunk of body) {
    let from = 0;
    for (const end of counter.add(chunk)) {
      await turn?.();
      yield chunk.subarray(from, end);
      from = end;
    }
    if (from < chunk.length) yield chunk.subarray(from);
  }
  if (counter.isLarge) await turn?.();
}

/** Counts a response's bytes and JSON structure without parsing it. */
class AnswerCounter {
  readonly #isStream: boolean;
  readonly #bounds: AnswerBounds;
  readonly #toError: (excess: string) => Error;
  #scan: JsonScan;
  /**
   * Matched bytes of the `data:` prefix; initially all, so that a byte order mark before the first line counts as data.
   */
  #matched = DATA.length;
  #lineLength = 0;
  #last = 0;
  #bytes = 0;
  #untilTurn = TURN_BYTES;

  constructor(isStream: boolean, bounds: AnswerBounds, toError: (excess: string) => Error) {
    this.#isStream = isStream;
    this.#bounds = bounds;
    this.#toError = toError;
    this.#scan = new JsonScan(bounds);
  }

  /** True for a large response that is no stream, which is parsed only at its end. */
  get isLarge(): boolean {
    return !this.#isStream && this.#bytes > TURN_BYTES;
  }

  /** Counts a chunk. @returns the offsets of message ends at which `turn` must be awaited */
  add(piece: Uint8Array): number[] {
    const { bytes, elements = Infinity } = this.#bounds;
    this.#bytes += piece.length;
    if (this.#bytes > bytes) throw this.#toError(`more than ${bytes} bytes`);
    if (this.#isStream) return this.#addLines(piece);
    this.#scanOn(piece);
    if (this.#scan.elements > elements) throw this.#toError(`more than ${elements} messages in one answer`);
    return [];
  }

  #addLines(piece: Uint8Array): number[] {
    const ends: number[] = [];
    let start = 0;
    for (let at = 0; at < piece.length; at++) {
      const byte = piece[at] as number;
      if (byte !== LINE_FEED && byte !== CARRIAGE_RETURN) continue;
      this.#addToLine(piece.subarray(start, at));
      this.#endLine(byte);
      start = at + 1;
      if (this.#untilTurn > 0) continue;
      this.#untilTurn = TURN_BYTES;
      ends.push(start);
    }
    this.#addToLine(piece.subarray(start));
    return ends;
  }

  /** Counts a part of a line; comments and fields other than `data` contain no JSON. */
  #addToLine(piece: Uint8Array): void {
    let at = 0;
    while (this.#matched === this.#lineLength + at && at < piece.length && piece[at] === DATA[at + this.#lineLength]) {
      at = ++this.#matched - this.#lineLength;
    }
    this.#lineLength += piece.length;
    if (this.#matched >= DATA.length) this.#scanOn(piece.subarray(at));
  }

  /** Ends a line; an empty line, whatever its line ending, ends the message. */
  #endLine(byte: number): void {
    const isSecondHalf = byte === LINE_FEED && this.#last === CARRIAGE_RETURN && this.#lineLength === 0;
    this.#last = byte;
    if (isSecondHalf) return;
    const isEmpty = this.#lineLength === 0;
    const isOther = !isEmpty && this.#matched < DATA.length;
    const excess = (isEmpty || isOther) && this.#bounds.note?.(isEmpty ? 'message' : 'other line');
    if (excess) throw this.#toError(excess);
    this.#untilTurn -= isEmpty ? MESSAGE_BYTES : this.#lineLength;
    if (isEmpty) this.#scan = new JsonScan(this.#bounds);
    else this.#scan.endLine();
    this.#lineLength = 0;
    this.#matched = 0;
  }

  #scanOn(piece: Uint8Array): void {
    const { excess } = this.#scan.add(piece);
    const { depth, values } = this.#bounds;
    if (excess)
      throw this.#toError(`a message with more than ${excess === 'depth' ? `${depth} levels` : `${values} values`}`);
  }
}
