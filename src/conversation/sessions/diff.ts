import { z } from 'zod';
import { listEventsAfter } from './event-store.ts';
import { session } from './session-context.ts';
import { findSession } from './session-store.ts';
import { getParts, type JsonObject } from '../../core/content.ts';
import { NotFoundError } from '../../core/errors.ts';
import type { Event } from '../../core/event.ts';
import { parseExactJson } from '../../core/exact-json.ts';
import { jsonDifference, listJsonDifferences } from '../../core/json-difference.ts';
import { looseObject } from '../../core/members.ts';
import { type SessionKey, sessionNotFound, storedIdentifierSchema } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { INT32_MAX, pageSize } from '../../platform/http/operation/parameters.ts';
import { collect } from '../../platform/json-stream.ts';
import { newPauses } from '../../platform/work/loop-turns.ts';

/** Maximum length of a value's JSON in a difference, in characters; longer values are cut and shown as text. */
const MAX_SHOWN = 2_000;
/** Maximum total length of the listed differences' JSON, in characters; the first difference may exceed it. */
const MAX_LISTED = 524_288;

/** Maximum number of further values of an event that are named. */
const MAX_FURTHER = 20;

/** Two values, null where one is missing, which `missing` tells from a value that is null. */
interface Sides {
  value: unknown;
  other: unknown;
  missing?: 'value' | 'other';
}

/** The first value that differs between the two sessions' events with the same sequence. */
interface EventDifference extends Sides {
  sequence: number;
  /** JSON pointer into the event (RFC 6901); '' if only one of the sessions has the event. */
  path: string;
  /** JSON pointers to the further values that differ. */
  further?: string[];
}

/** A state key whose values differ. */
interface StateDifference extends Sides {
  key: string;
}

interface EventsDiff {
  /** Number of leading events that are equal in both sessions. */
  same: number;
  differing: number;
  /** The first differences, in the order of the events. */
  differences: EventDifference[];
}

/** Compares sessions' events pairwise, ignoring ids, times and token counts; one pair is in memory. */
async function diffEvents(
  events: AsyncIterable<Event>,
  others: AsyncIterable<Event>,
  limit: number,
): Promise<EventsDiff> {
  const diff: EventsDiff = { same: 0, differing: 0, differences: [] };
  const [left, right] = [events[Symbol.asyncIterator](), others[Symbol.asyncIterator]()];
  const [name, nameOther] = [namer(), namer()];
  const [list, pause] = [lister(diff.differences, limit), newPauses()];
  for (let sequence = 1; ; sequence++) {
    const [one, other] = [await left.next(), await right.next()];
    await pause();
    if (one.done && other.done) return diff;
    const value = one.done ? undefined : toComparable(one.value, name);
    const another = other.done ? undefined : toComparable(other.value, nameOther);
    const all = listJsonDifferences(value, another);
    const difference = all.next().value;
    if (!difference && diff.differing === 0) diff.same = sequence;
    if (!difference) continue;
    diff.differing += 1;
    const { path, before, after } = difference;
    list(() => {
      const further: string[] = [];
      for (const each of all) if (further.push(each.path) === MAX_FURTHER) break;
      return {
        sequence,
        path,
        ...toSides(before, after, [isThere(value, path), isThere(another, path)]),
        ...toFurther(further),
      };
    });
  }
}

/** Lists the state keys whose values differ, sorted by name: at most `limit`, with their total number. */
async function diffStates(
  state: JsonObject,
  other: JsonObject,
  limit: number,
): Promise<{ differing: number; differences: StateDifference[] }> {
  const getValue = (of: JsonObject, key: string) => (Object.hasOwn(of, key) ? of[key] : undefined);
  const diff = { differing: 0, differences: [] as StateDifference[] };
  const [list, pause] = [lister(diff.differences, limit), newPauses()];
  for (const key of [...new Set([...Object.keys(state), ...Object.keys(other)])].toSorted()) {
    await pause();
    const [value, another] = [getValue(state, key), getValue(other, key)];
    if (!jsonDifference(value, another)) continue;
    diff.differing += 1;
    list(() => ({ key, ...toSides(value, another, [value !== undefined, another !== undefined]) }));
  }
  return diff;
}

const toFurther = (further: string[]) => (further.length > 0 ? { further } : {});

function toSides(value: unknown, other: unknown, [isHere, isThereToo]: [boolean, boolean]): Sides {
  const missing = isHere ? (isThereToo ? undefined : 'other') : 'value';
  return { value: toShown(value), other: toShown(other), ...(missing && { missing }) };
}

/** True if a value has something at a JSON pointer, `null` included. */
function isThere(value: unknown, path: string): boolean {
  let place: unknown = value;
  for (const name of path.split('/').slice(1)) {
    const key = name.replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof place !== 'object' || place === null || !Object.hasOwn(place, key)) return false;
    place = (place as JsonObject)[key];
  }
  return place !== undefined;
}

/** Returns a function that adds items to a list until the list has `limit` items or `MAX_LISTED` characters of JSON. */
function lister<Item>(list: Item[], limit: number): (make: () => Item) => void {
  let characters = 0;
  let isFull = false;
  return (make) => {
    if (isFull || list.length >= limit) return;
    const item = make();
    characters += JSON.stringify(item).length;
    isFull = characters > MAX_LISTED && list.length > 0;
    if (!isFull) list.push(item);
  };
}

export function toShown(value: unknown): unknown {
  const text = JSON.stringify(value) ?? 'null';
  if (text.length <= MAX_SHOWN) return value ?? null;
  return `${text.slice(0, MAX_SHOWN)}…`;
}

/**
 * Returns a function that replaces the ids of tool calls by numbers, because providers generate new ids in every run.
 */
function namer(): (id: string) => string {
  const names = new Map<string, string>();
  return (id) => {
    const name = names.get(id) ?? `call ${names.size + 1}`;
    names.set(id, name);
    return name;
  };
}

function toComparable(event: Event, name: (id: string) => string): unknown {
  const { id: _id, invocationId: _invocation, timestamp: _time, usageMetadata: _tokens, ...deed } = event;
  const withName = <Call extends { id?: string | null | undefined } | null | undefined>(call: Call): Call =>
    call?.id ? { ...call, id: name(call.id) } : call;
  if (!event.content) return deed;
  const parts = getParts(event.content).map((part) => ({
    ...part,
    ...(part.functionCall && { functionCall: withName(part.functionCall) }),
    ...(part.functionResponse && { functionResponse: withName(part.functionResponse) }),
  }));
  const waiting = event.longRunningToolIds?.map(name);
  return {
    ...deed,
    content: { ...event.content, ...(event.content.parts && { parts }) },
    ...(waiting && { longRunningToolIds: waiting }),
  };
}

const DEFAULT_LIMIT = 100;
/** Maximum number of events of each session that are read at once; fewer if events are large. */
const PAGE = 200;

const side = (whose: string) => ({
  value: z.unknown().describe(`What ${whose} has; null for nothing.`),
  other: z.unknown().describe('What the other one has; null for nothing.'),
  missing: z.enum(['value', 'other']).optional().describe('The one that has nothing, not even null.'),
});
const eventDifferenceSchema = looseObject('Where two events part first.', {
  sequence: z.int().describe('The place of the event, from 1.'),
  path: z.string().describe('JSON pointer into the event; empty where only one of them has an event there.'),
  ...side('the session'),
  further: z
    .array(z.string())
    .optional()
    .describe(`JSON pointers to what else differs in the event, ${MAX_FURTHER} at most; absent for nothing.`),
});
const sessionDiffSchema = looseObject('How two sessions differ.', {
  sameEvents: z.int().describe('Number of events from the start on that are the same.'),
  differingEvents: z.int().describe('Number of places at which the events differ.'),
  events: z.array(eventDifferenceSchema).describe('The first of them, by sequence.'),
  firstDifference: eventDifferenceSchema.nullable().describe('The first of the first; null for none.'),
  differingKeys: z.int().describe('Number of keys of the state that differ.'),
  state: z
    .array(
      z.looseObject({ key: z.string().describe('Its name, with the prefix of its scope.'), ...side('the session') }),
    )
    .describe('The first of them, by name.'),
});
const difference = {
  sequence: 4,
  path: '/content/parts/0/text',
  value: '17 * 23 = 391',
  other: 'It is 391.',
  further: ['/modelVersion'],
};

const sequence = z.int().min(0).max(INT32_MAX).optional();

export const diffSessions = session.action('diff')({
  method: 'get',
  operationId: 'diffSessions',
  load: 'heavy',
  summary: 'Compare two sessions',
  description:
    'Of one user of one application, event by event and key by key. What names events (ids, invocation, time) and ' +
    'the tokens that were counted do not matter; ids of function calls count by their order. A value whose JSON is ' +
    `longer than ${MAX_SHOWN} characters is shown as the beginning of that, as text; the lists are shorter where ` +
    'much differs: 512 Ki characters of JSON each.',
  query: z.object({
    other: storedIdentifierSchema.describe('The other session.'),
    atSequence: sequence.describe('The session as it was after this event.'),
    otherAtSequence: sequence.describe('The other one as it was after this event.'),
    limit: pageSize('Maximum number of events, and of keys, that are listed.').default(DEFAULT_LIMIT),
  }),
  success: {
    schema: sessionDiffSchema,
    description: 'The differences.',
    example: {
      sameEvents: 3,
      differingEvents: 1,
      events: [difference],
      firstDifference: difference,
      differingKeys: 1,
      state: [{ key: 'topic', value: 'arithmetic', other: null, missing: 'other' as const }],
    },
  },
  errors: { 400: 'A session has not reached the sequence.', 404: 'One of the sessions is not there.' },
  run: async ({ database }, { path, query }) => {
    const { reads } = database;
    const { other, atSequence, otherAtSequence, limit } = query;
    const one = await openSession(reads, path, atSequence);
    const another = await openSession(reads, { ...path, sessionId: other }, otherAtSequence);
    const events = await diffEvents(one.events, another.events, limit);
    const state = await diffStates(one.state, another.state, limit);
    return {
      sameEvents: events.same,
      differingEvents: events.differing,
      events: events.differences,
      firstDifference: events.differences[0] ?? null,
      differingKeys: state.differing,
      state: state.differences,
    };
  },
});

/** Returns the session's state at a sequence, and its events up to there, which are read lazily by page. */
async function openSession(
  db: Database,
  key: SessionKey,
  atSequence: number | undefined,
): Promise<{ state: JsonObject; events: AsyncIterable<Event> }> {
  const text = await findSession(db, key, { atSequence, numRecentEvents: 0, withDetails: true });
  if (!text) throw new NotFoundError(sessionNotFound(key.sessionId));
  const { state, lastSequence } = parseExactJson(await collect(text)) as { state: JsonObject; lastSequence: number };
  return { state, events: readEvents(db, key, lastSequence) };
}

async function* readEvents(db: Database, key: SessionKey, last: number): AsyncGenerator<Event> {
  for (let after = 0; after < last; ) {
    const page = await listEventsAfter(db, key, after, Math.min(PAGE, last - after));
    if (!page) throw new NotFoundError(sessionNotFound(key.sessionId));
    for (const { text } of page.events) yield parseExactJson(text) as Event;
    after += page.events.length;
    if (page.events.length === 0) return;
  }
}
