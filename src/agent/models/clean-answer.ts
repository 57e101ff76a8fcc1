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
 * The answers of providers, read leniently. The packages end an answer for one member or event that their schemas do
 * not know, so each event is written anew before they read it, with what they know of it. In order: an error is a
 * failure; a reason to finish, or the end mark behind something of the answer, ends it; without either it has broken
 * off; what else is not understood is passed over and counted.
 */
export interface Cleaner {
  /** Returns the events that the package gets in place of one; `undefined` for one that is not understood. */
  read(event: JsonObject): object[] | undefined;
  /** Returns further events at the end, of the stream or, with `isMarked`, at a mark that says so. */
  end(isMarked: boolean): object[];
  /** Returns the events of an answer that came as one JSON value; `undefined` for none. */
  readWhole(answer: JsonObject): object[] | undefined;
}

/** What is heard of one answer beside its stream. */
export interface Listener {
  /** Called with each piece of the body: it lives. */
  touch(): void;
  /** Called when the first of a call has come, which the package tells at its end. */
  begin(): void;
  /** Called with each part of the stream that is not understood. */
  passOver(what: string): void;
  /** Called with what ends the answer: an error of a stream would drop what came before it. */
  fail(failure: ModelFailure): void;
}

const listeners = new AsyncLocalStorage<Listener>();

/** Runs a request whose answer is listened to. */
export const listenWith = <Value>(listener: Listener, run: () => Value): Value => listeners.run(listener, run);

const CLEANERS: Record<ProviderName, new (listener: Listener) => Cleaner> = {
  'openai-compatible': ChatCleaner,
  openai: ResponsesCleaner,
  anthropic: AnthropicCleaner,
  google: GoogleCleaner,
};

/** Returns the answer as the provider's package takes it. */
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
  // No line of a stream of events begins so: a server that knows no streams, or Google's list of chunks.
  if (/^\s*[[{]/.test(start)) yield* cleanWhole(start, pieces, cleaner, listener);
  else yield* cleanStream(start, pieces, cleaner, listener);
}

/** Not a generator's own loop: it is read in two places, and a loop that ends closes what it reads. */
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

/** Returns what is read; `undefined` after a failure, which is told. */
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
  let isKnown = false;
  let isOther = false;
  const write = (events: object[]) => events.map((event) => JSON.stringify(event));
  const read = (data: string): string[] => {
    if (data.trim() === '[DONE]') return write(cleaner.end(true));
    const event = toObject(parse(data));
    if (event) readError(event);
    const events = event && cleaner.read(event);
    if (events) {
      isKnown = true;
      return write(events);
    }
    isOther = true;
    listener.passOver(typeof event?.['type'] === 'string' ? event['type'] : data);
    return [];
  };
  const atEnd = () => {
    // Where nothing is understood this is no such provider.
    if (isOther && !isKnown) throw new ModelFailure('model_bad_response');
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

/** @throws {ModelFailure} for an error, wherever the provider has put it */
function readError(event: JsonObject): void {
  const { error, object, type, response } = event;
  const isFlat = object === 'error' || object === 'Error' || type === 'error';
  if (error !== undefined && error !== null && error !== false) throw fromStreamError(error);
  if (isFlat) throw fromStreamError(event);
  if (type === 'response.failed') throw fromStreamError(toObject(response)?.['error'] ?? {});
}
