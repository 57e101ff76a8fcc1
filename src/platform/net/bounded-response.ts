import { JsonScan } from '../../core/json-scan.ts';
import type { JsonLimits } from '../../core/limits.ts';

/** How much an answer may have; each is counted as it comes. */
export interface AnswerBounds extends JsonLimits {
  bytes: number;
  /** Messages in one array of JSON [without a limit]. */
  elements?: number;
  /** Counts a message, or a line of a stream that is no data. @returns what there is too much of */
  note?: (kind: 'message' | 'other line') => string | undefined;
  /** Awaited before so many bytes and messages are handed on, so that their reader does not hold the event loop. */
  turn?: () => Promise<void>;
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const DATA = Buffer.from('data:');
/** Bytes between two turns, and what a message costs beside its own. */
const TURN_BYTES = 65_536;
const MESSAGE_BYTES = 2_048;

/**
 * The same response, whose body (JSON or server-sent events of it) fails once it has more than it may, with what
 * `toError` makes of a text like `more than 10 bytes`: 400,000 members keep a parser with a schema busy for a second.
 * @param isStream true where the body is read as server-sent events
 */
export function boundedResponse(
  response: Response,
  isStream: boolean,
  bounds: AnswerBounds,
  toError: (excess: string) => Error,
): Response {
  if (!response.body) return response;
  const { status, statusText, headers } = response;
  const body = counted(response.body, new AnswerCounter(isStream, bounds, toError), bounds.turn);
  return new Response(ReadableStream.from(body), { status, statusText, headers });
}

/** True for a response whose media type is that of server-sent events. */
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

/** Counts what an answer has, byte by byte, without parsing it. */
class AnswerCounter {
  readonly #isStream: boolean;
  readonly #bounds: AnswerBounds;
  readonly #toError: (excess: string) => Error;
  #scan: JsonScan;
  /** Bytes of `data:` that the line begins with so far; a mark may stand before the first, which counts as data. */
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

  /** True for a large text, which is not parsed before its end. */
  get isLarge(): boolean {
    return !this.#isStream && this.#bytes > TURN_BYTES;
  }

  /** Counts a piece. @returns the ends of messages in it that are to wait for a turn */
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

  /** Comments and the other fields of a stream are no JSON. */
  #addToLine(piece: Uint8Array): void {
    let at = 0;
    while (this.#matched === this.#lineLength + at && at < piece.length && piece[at] === DATA[at + this.#lineLength]) {
      at = ++this.#matched - this.#lineLength;
    }
    this.#lineLength += piece.length;
    if (this.#matched >= DATA.length) this.#scanOn(piece.subarray(at));
  }

  /** An empty line, whichever way lines end, ends the message. */
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
