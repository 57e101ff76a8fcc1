import { AsyncLocalStorage } from 'node:async_hooks';
import type { JsonObject } from '../../core/content.ts';
import { parseExactJson } from '../../core/exact-json.ts';
import { mapEvents, withBody } from '../../platform/net/event-stream.ts';
import { AnthropicCleaner } from './clean-anthropic.ts';
import { toObject, toObjects } from './clean-members.ts';
import { ChatCleaner } from './clean-chat.ts';
import { GoogleCleaner } from './clean-google.ts';
import { ResponsesCleaner } from './clean-responses.ts';
import { fromStreamError, ModelFailure } from './model-error.ts';
import type { ProviderName } from './provider.ts';

/**
 * Reads providers' answers leniently. The AI SDK packages abort an answer for one member or event that their schemas do
 * not know, so each event is rewritten with known members before they read it. Rules, in order: an error fails the
 * call; a finish reason, or the end mark after some of the answer, completes it; without either the answer was cut off;
 * anything else unknown is skipped and counted.
 */
export interface Cleaner {
  /** Returns the events that replace this one for the package; `undefined` if the event is unknown. */
  read(event: JsonObject): object[] | undefined;
  /** Returns further events at the end of the stream or, with `isMarked`, at the stream's end mark. */
  end(isMarked: boolean): object[];
  /** Returns the events of an answer that came as one JSON value; `undefined` if it is not an answer. */
  readWhole(answer: JsonObject): object[] | undefined;
}

/** Receives what happens to one answer outside its stream of events. */
export interface Listener {
  /** Called with each piece of the body, to reset the idle timeout. */
  touch(): void;
  /** Called when a call's first piece arrives, because the package reports a call only at its end. */
  begin(): void;
  /** Called with each unknown part of the stream. */
  passOver(what: string): void;
  /**
   * Called with the failure that ends the answer, because an error inside the stream would discard what came before.
   */
  fail(failure: ModelFailure): void;
}

const listeners = new AsyncLocalStorage<Listener>();

export const listenWith = <Value>(listener: Listener, run: () => Value): Value => listeners.run(listener, run);

const CLEANERS: Record<ProviderName, new (listener: Listener) => Cleaner> = {
  'openai-compatible': ChatCleaner,
  openai: ResponsesCleaner,
  anthropic: AnthropicCleaner,
  google: GoogleCleaner,
};

/** Returns the response with a body rewritten for the provider's package. */
export function cleanAnswer(response: Response, provider: ProviderName): Response {
  const listener = listeners.getStore();
  if (!response.body || !listener) return response;
  const text: AsyncIterable<string> = response.body.pipeThrough(new TextDecoderStream());
  return withBody(response, clean(text, new CLEANERS[provider](listener), listener));
}

async function* clean(text: AsyncIterable<string>, cleaner: Cleaner, listener: Listener): AsyncGenerator<string> {
  const pieces = touching(text, listener);
  let start = '';
  for await (const piece of pieces) {
    start += piece;
    if (start.trim() !== '') break;
  }
  // No event stream begins with a bracket: a server without streaming, or Google's list of chunks.
  if (/^\s*[[{]/.test(start)) yield* cleanWhole(start, pieces, cleaner, listener);
  else yield* cleanStream(start, pieces, cleaner, listener);
}

/** Not a generator, because two loops read it in turn and a loop that ends would close a generator. */
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

/** Returns the result; `undefined` after a failure, which goes to the listener. */
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
    // If no event was known, this is not such a provider.
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

/** @throws {ModelFailure} for an error, wherever the provider put it */
function readError(event: JsonObject): void {
  const { error, object, type, response } = event;
  const isFlat = object === 'error' || object === 'Error' || type === 'error';
  if (error !== undefined && error !== null && error !== false) throw fromStreamError(error);
  if (isFlat) throw fromStreamError(event);
  if (type === 'response.failed') throw fromStreamError(toObject(response)?.['error'] ?? {});
}
