import { isDeepStrictEqual } from 'node:util';
import { functionCallsOf, functionResponsesOf, partsOf } from '../core/content.ts';
import type { Event } from '../core/event.ts';

/** Where two courses of events part. */
export interface Difference {
  /** Place of the event in its session, from 0. */
  event: number;
  /** Where in the event, as a JSON pointer (RFC 6901); '' for an event that only one of them has. */
  path: string;
  before: unknown;
  after: unknown;
}

/** The first difference of what was said and done; ids, times and what a provider counts are left out. */
export function firstDifference(before: Event[], after: Event[]): Difference | undefined {
  const length = Math.max(before.length, after.length);
  for (let event = 0; event < length; event += 1) {
    const [one, other] = [toDeed(before[event]), toDeed(after[event])];
    const found = differenceOf(one, other, '');
    if (found) return { event, ...found };
  }
  return undefined;
}

/** What an event says and does. */
const toDeed = (event: Event | undefined) =>
  event && {
    author: event.author ?? 'agent',
    texts: partsOf(event.content).flatMap(({ text }) => (text ? [text] : [])),
    calls: functionCallsOf(event.content).map(({ name, args }) => ({ name, args })),
    responses: functionResponsesOf(event.content).map(({ name, response }) => ({ name, response })),
    ...(event.errorCode == null ? {} : { errorCode: event.errorCode }),
  };

function differenceOf(before: unknown, after: unknown, path: string): Omit<Difference, 'event'> | undefined {
  if (isDeepStrictEqual(before, after)) return undefined;
  if (!isContainer(before) || !isContainer(after) || Array.isArray(before) !== Array.isArray(after)) {
    return { path, before: before ?? null, after: after ?? null };
  }
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const pointer = `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    const found = differenceOf(before[name], after[name], pointer);
    if (found) return found;
  }
  return undefined;
}

const isContainer = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null;
