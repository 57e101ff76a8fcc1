import { AsyncLocalStorage } from 'node:async_hooks';
import type { JsonObject } from '../../core/content.ts';
import { parseExactJson } from '../../core/exact-json.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { boundedBody, boundedResponse, isEventStream } from '../../platform/net/bounded-response.ts';
import { mapEvents, withBody } from '../../platform/net/event-stream.ts';
import { type Cleaner, type Listener, toObject, toObjects } from '../providers/cleaner.ts';
import { fromStreamError, ModelFailure } from '../providers/model-error.ts';
import type { Provider } from '../providers/provider.ts';

const listeners = new AsyncLocalStorage<Listener>();

export const listenWith = <Value>(listener: Listener, run: () => Value): Value => listeners.run(listener, run);

/** Matches a lone UTF-16 surrogate, which JSON.stringify writes as an escape sequence and providers reject. */
const HALF = /(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g;

/** Members of a request body that ask for a stream. The AI SDK packages write them last. */
const STREAM = /,"stream":true(?:,"stream_options":\{[^{}]*\})?\}$/;

function toBody(body: string, asWhole: boolean): string {
  const text = body.includes('\\ud') ? body.replaceAll(HALF, '$1\\ufffd') : body;
  return asWhole ? text.replace(STREAM, '}') : text;
}

/**
 * Rewrites the requests and responses of an AI SDK package, which always asks for a stream: a request may ask for the
 * whole answer, and an answer, in either form, becomes the stream of events that the package can read. Endless lines or
 * nesting fail the model call and not the process.
 */
export const fetchFrom =
  (provider: Provider): typeof fetch =>
  async (input, init) => {
    const listener = listeners.getStore();
    const asWhole = listener?.asWhole === true;
    const body = init?.body;
    const response = await fetch(
      asWhole && typeof input === 'string' ? (provider.toWholeUrl?.(input) ?? input) : input,
      typeof body === 'string' ? { ...init, body: toBody(body, asWhole) } : init,
    );
    const toError = (excess: string) => new ModelFailure('model_bad_response', { detail: excess });
    // Embeddings have no listener.
    if (!response.ok || !response.body || !listener)
      return boundedResponse(response, false, INPUT_LIMITS.modelAnswer, toError);
    const isStream = !asWhole || isEventStream(response);
    const bytes = boundedBody(response.body, isStream, INPUT_LIMITS.modelAnswer, toError);
    return withBody(response, clean(toTexts(bytes, listener), new provider.Cleaner(listener), listener));
  };

async function* clean(pieces: AsyncIterable<string>, cleaner: Cleaner, listener: Listener): AsyncGenerator<string> {
  let start = '';
  for await (const piece of pieces) {
    start += piece;
    if (piece.trim() !== '') break;
  }
  // A body that begins with a bracket is no event stream: the server does not stream, or it is Google's list of chunks.
  if (/^\s*[[{]/.test(start)) yield* cleanWhole(start, pieces, cleaner, listener);
  else yield* cleanStream(start, pieces, cleaner, listener);
}

/**
 * Decodes a body. The iterator is read by two loops in turn, so it is no generator, which the first loop's end would
 * close.
 */
function toTexts(bytes: AsyncIterable<Uint8Array>, listener: Listener): AsyncIterable<string> {
  const pieces = bytes[Symbol.asyncIterator]();
  const decoder = new TextDecoder();
  const next = async (): Promise<IteratorResult<string, void>> => {
    const { done, value } = await pieces.next();
    listener.touch();
    return done ? { done, value: undefined } : { value: decoder.decode(value, { stream: true }) };
  };
  return { [Symbol.asyncIterator]: () => ({ next }) };
}

async function* cleanWhole(
  start: string,
  pieces: AsyncIterable<string>,
  cleaner: Cleaner,
  listener: Listener,
): AsyncGenerator<string> {
  const all = [start];
  try {
    for await (const piece of pieces) all.push(piece);
  } catch (error) {
    // Nobody has seen a part of the answer, so it may be asked for again.
    const cut = new ModelFailure('model_stream_cut', { retryAfterMs: 0, cause: error });
    listener.fail(error instanceof ModelFailure ? error : cut);
    return;
  }
  const whole = parse(all.join(''));
  const answers = toObjects(whole);
  const events = orFailed(listener, () => {
    for (const answer of answers) readError(answer);
    const read = answers.map((answer) => cleaner.readWhole(answer));
    if (read.every((each) => each === undefined)) throw new ModelFailure('model_bad_response');
    return [...read.flatMap((each) => each ?? []), ...cleaner.end(false)];
  });
  if (events) yield toText(events);
}

/** Calls `read`. A failure is reported to the listener, and the result is `undefined`. */
function orFailed<Value>(listener: Listener, read: () => Value): Value | undefined {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof ModelFailure)) throw error;
    listener.fail(error);
    return undefined;
  }
}

const toText = (events: object[]) => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');

async function* cleanStream(
  start: string,
  pieces: AsyncIterable<string>,
  cleaner: Cleaner,
  listener: Listener,
): AsyncGenerator<string> {
  let hasKnown = false;
  let hasUnknown = false;
  const write = (events: object[]) => events.map((event) => JSON.stringify(event));
  const read = (data: string): string[] => {
    if (data.trim() === '[DONE]') return write(cleaner.end(true));
    const event = toObject(parse(data));
    if (event) readError(event);
    const events = event && cleaner.read(event);
    if (events) {
      hasKnown = true;
      return write(events);
    }
    hasUnknown = true;
    listener.passOver(typeof event?.['type'] === 'string' ? event['type'] : data);
    return [];
  };
  const atEnd = () => {
    // The response had unknown events only, so the base URL is probably that of another kind of provider.
    if (hasUnknown && !hasKnown) throw new ModelFailure('model_bad_response');
    return write(cleaner.end(false));
  };
  const toData = (data: string) => orFailed(listener, () => read(data));
  yield* mapEvents(joined(start, pieces), toData, () => orFailed(listener, atEnd) ?? []);
}

async function* joined(start: string, pieces: AsyncIterable<string>): AsyncGenerator<string> {
  yield start;
  yield* pieces;
}

function parse(text: string): unknown {
  try {
    return parseExactJson(text);
  } catch {
    return undefined;
  }
}

/** @throws {ModelFailure} if the event has an error, in any of the places where providers put one */
function readError(event: JsonObject): void {
  const { error, object, type, response } = event;
  const isFlat = object === 'error' || object === 'Error' || type === 'error';
  if (error !== undefined && error !== null && error !== false) throw fromStreamError(error);
  if (isFlat) throw fromStreamError(event);
  if (type === 'response.failed') throw fromStreamError(toObject(response)?.['error'] ?? {});
}
