/** How much an answer may have; each is counted as it comes. */
export interface AnswerBounds {
  bytes: number;
  /** Members, elements, arrays and objects of one message. */
  values: number;
  /** Nesting of arrays and objects in one message. */
  levels: number;
  /** Messages of one stream of server-sent events. */
  messages: number;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
/** `[` and `{` differ in this bit only, and so do `]` and `}`. */
const CASE_BIT = 0x20;
const OPENING = 0x7b;
const CLOSING = 0x7d;

/**
 * The same response, whose body (JSON or server-sent events of it) fails once it has more than it may, with what
 * `toError` makes of a text like `more than 10 bytes`: 400,000 members keep a parser with a schema busy for a second.
 */
export function boundedResponse(response: Response, bounds: AnswerBounds, toError: (excess: string) => Error) {
  if (!response.body) return response;
  const { status, statusText, headers } = response;
  const counter = new AnswerCounter(headers.get('content-type')?.includes('text/event-stream') === true);
  const counted = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      const excess = counter.add(chunk, bounds);
      if (excess === undefined) controller.enqueue(chunk);
      else controller.error(toError(excess));
    },
  });
  return new Response(response.body.pipeThrough(counted), { status, statusText, headers });
}

/** Counts what an answer has, byte by byte, without parsing it. */
class AnswerCounter {
  readonly #isStream: boolean;
  #isInText = false;
  #isEscaped = false;
  #lineLength = 0;
  #last = 0;
  #bytes = 0;
  #values = 0;
  #levels = 0;
  #messages = 0;

  /** @param isStream true for server-sent events, whose messages end with an empty line */
  constructor(isStream: boolean) {
    this.#isStream = isStream;
  }

  /** @returns what there is too much of, `undefined` where nothing is */
  add(chunk: Uint8Array, bounds: AnswerBounds): string | undefined {
    this.#bytes += chunk.length;
    if (this.#bytes > bounds.bytes) return `more than ${bounds.bytes} bytes`;
    for (const byte of chunk) {
      if (this.#isStream && (byte === LINE_FEED || byte === CARRIAGE_RETURN)) this.#endLine(byte);
      else this.#count(byte);
      this.#last = byte;
      if (this.#values > bounds.values) return `a message with more than ${bounds.values} values`;
      if (this.#levels > bounds.levels) return `a message with more than ${bounds.levels} levels`;
      if (this.#messages > bounds.messages) return `more than ${bounds.messages} messages`;
    }
    return undefined;
  }

  #count(byte: number): void {
    this.#lineLength += 1;
    if (this.#isInText) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (byte === BACKSLASH) this.#isEscaped = true;
      else if (byte === QUOTE) this.#isInText = false;
    } else if (byte === QUOTE) this.#isInText = true;
    else if (byte === COMMA) this.#values += 1;
    else if ((byte | CASE_BIT) === OPENING) {
      this.#values += 1;
      this.#levels += 1;
    } else if ((byte | CASE_BIT) === CLOSING) this.#levels -= 1;
  }

  /** No text of JSON goes on in the next line; an empty line, whichever way lines end, ends the message. */
  #endLine(byte: number): void {
    const isSecondHalf = byte === LINE_FEED && this.#last === CARRIAGE_RETURN;
    if (this.#lineLength === 0 && !isSecondHalf) {
      this.#messages += 1;
      this.#values = 0;
      this.#levels = 0;
    }
    if (!isSecondHalf) this.#lineLength = 0;
    this.#isInText = false;
    this.#isEscaped = false;
  }
}
