import type { JsonObject } from '../../core/content.ts';
import type { ModelFailure } from './model-error.ts';
import { isExactInteger } from '../../core/exact-json.ts';

/**
 * Makes the reading of providers' HTTP responses lenient. The AI SDK packages fail for a single member or stream event
 * that their schemas do not know, so each event is first rewritten with known members only. Rules, in order: an error
 * fails the model call. A finish reason, or the stream's end mark after some output, completes it. A stream that ends
 * without either was cut off. Anything else that is unknown is skipped and counted.
 */
export interface Cleaner {
  /** Returns the events to pass to the AI SDK package instead of this one; `undefined` if the event is unknown. */
  read(event: JsonObject): object[] | undefined;
  /** Returns events to add at the end of the stream; with `isMarked`, at the stream's end mark. */
  end(isMarked: boolean): object[];
  /** Events for a response that is one JSON value and not a stream; `undefined` if it is no model response. */
  readWhole(answer: JsonObject): object[] | undefined;
}

/** The model call of one HTTP request. Is told what happens in the response, except the stream events. */
export interface Listener {
  /** True: the request asks for the whole answer and not for a stream. */
  asWhole: boolean;
  /** Called with each piece of the response body; resets the idle timeout. */
  touch(): void;
  /** Called with the first piece of a tool call, because the AI SDK package reports only complete tool calls. */
  begin(): void;
  /** Called with each unknown part of the response, which is skipped. */
  passOver(what: string): void;
  /** Fails the model call. An error in the stream itself would make the AI SDK package discard the earlier output. */
  fail(failure: ModelFailure): void;
}

/** Functions that read a member of a provider's response; the member may be missing, null or of another type. */

export const toObject = (value: unknown): JsonObject | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value)
    ? (value as JsonObject)
    : undefined;

/** Returns the objects of a list, or a single object as a list. */
export function toObjects(value: unknown): JsonObject[] {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.map(toObject).filter((each) => each !== undefined);
}

/** Returns a string that is not empty. */
export const toWord = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined;

/** Returns a number, which may be written as a string. */
export function toNumber(value: unknown): number | undefined {
  const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : undefined;
}

/** Returns an object with only the members that are numbers, at any depth. */
export function toNumbers(value: unknown): JsonObject | undefined {
  const object = toObject(value);
  if (!object) return undefined;
  const members = Object.entries(object).flatMap(([name, each]): [string, unknown][] => {
    const number = toNumber(each) ?? toNumbers(each);
    return number === undefined ? [] : [[name, number]];
  });
  return Object.fromEntries(members);
}

export function toArgumentsText(value: unknown): string {
  if (typeof value === 'string') return value.trim() === 'null' ? '' : value;
  return value === undefined || value === null ? '' : JSON.stringify(value);
}
