import { getFunctionCalls, getFunctionResponses, getParts } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { type JsonDifference, jsonDifference } from '../../../core/json-difference.ts';

/** Where two courses of events part. */
export interface Difference extends JsonDifference {
  /** Place of the event in its session, from 0; the path is '' for an event that only one of them has. */
  event: number;
}

/** The first difference of what was said and done; ids, times and what a provider counts are left out. */
export function firstDifference(before: Event[], after: Event[]): Difference | undefined {
  const length = Math.max(before.length, after.length);
  for (let event = 0; event < length; event += 1) {
    const [one, other] = [toDeed(before[event]), toDeed(after[event])];
    const found = jsonDifference(one, other);
    if (found) return { event, ...found };
  }
  return undefined;
}

/** What an event says and does. */
const toDeed = (event: Event | undefined) =>
  event && {
    author: event.author ?? 'agent',
    texts: getParts(event.content).flatMap(({ text }) => (text ? [text] : [])),
    calls: getFunctionCalls(event.content).map(({ name, args }) => ({ name, args })),
    responses: getFunctionResponses(event.content).map(({ name, response }) => ({ name, response })),
    ...(event.errorCode == null ? {} : { errorCode: event.errorCode }),
  };
