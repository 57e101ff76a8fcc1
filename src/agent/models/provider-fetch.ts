import { AsyncLocalStorage } from 'node:async_hooks';
import type { JsonObject } from '../../core/content.ts';
import { parseExactJson } from '../../core/exact-json.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { boundedResponse } from '../../platform/net/bounded-response.ts';
import { mapEvents, withBody } from '../../platform/net/event-stream.ts';
import { type Cleaner, type Listener, toObject, toObjects } from '../providers/cleaner.ts';
import { fromStreamError, ModelFailure } from '../providers/model-error.ts';
import type { Provider } from '../providers/provider.ts';

const listeners = new AsyncLocalStorage<Listener>();

export const listenWith = <Value>(listener: Listener, run: () => Value): Value => listeners.run(listener, run);

/** Matches a lone UTF-16 surrogate, which JSON.stringify writes as an escape sequence and providers reject. */
const HALF = /(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g;

function withWholeText(init: RequestInit | undefined): RequestInit | undefined {
  const body = init?.body;
  if (typeof body !== 'string' || !body.includes('\\ud')) return init;
  return { ...init, body: body.replaceAll(HALF, '$1\\ufffd') };
}

/** Limits and rewrites HTTP responses: endless lines or nesting then fail the model call and not the process. */
export const fetchFrom =
  (provider: Provider): typeof fetch =>
  async (input, init) => {
    const response = await fetch(input, withWholeText(init));
    // The AI SDK packages read every HTTP response as a stream, whatever its media type, except errors and embeddings.
    const isStream = response.ok && !/(?:\/embeddings|mbedContents?)$/.test(response.url);
    const toError = (excess: string) => new ModelFailure('model_bad_response', { detail: excess });
    const bounded = boundedResponse(response, isStream, INPUT_LIMITS.modelAnswer, toError);
    return isStream ? cleanAnswer(bounded, provider) : bounded;
  };

/** Rewrites the body of a provider's response into a form that the provider's AI SDK package can read. */
function cleanAnswer(response: Response, { Cleaner }: Provider): Response {
  const listener = listeners.getStore();
  if (!response.body || !listener) return response;
  const text: AsyncIterable<string> = response.body.pipeThrough(new TextDecoderStream());
  return withBody(response, clean(text, new Cleaner(listener), listener));
}

async function* clean(text: AsyncIterable<string>, cleaner: Cleaner, listener: Listener): AsyncGenerator<string> {
  const pieces = touching(text, listener);
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
 * An iterator that two loops read in turn. It is no generator, because the first loop's end would close a generator.
 */
function touching(text: AsyncIterable<string>, listener: Listener): AsyncIterable<string> {
  const pieces = text[Symbol.asyncIterator]();
  const next = async () => {
    const piece = await pieces.next();
    listener.touch();
    return piece;
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
  for await (const piece of pieces) all.push(piece);
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
