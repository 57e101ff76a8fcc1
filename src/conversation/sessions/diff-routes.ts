import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { NotFoundError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound, storedIdentifierSchema } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { INT32_MAX, pageSize } from '../../platform/http/operation/parameters.ts';
import { diffEvents, diffStates, MAX_SHOWN } from './diff.ts';
import { listEventsAfter } from './event-store.ts';
import { collect } from '../../platform/json-stream.ts';
import { session } from './session-context.ts';
import { findSession } from './session-store.ts';
import { looseObject } from '../../core/members.ts';
import { parseExactJson } from '../../core/exact-json.ts';

const DEFAULT_LIMIT = 100;
/** Maximum number of events of each session that are read at once; fewer if events are large. */
const PAGE = 200;

const side = (whose: string) => ({
  value: z.unknown().describe(`What ${whose} has; null for nothing.`),
  other: z.unknown().describe('What the other one has; null for nothing.'),
});
const eventDifferenceSchema = looseObject('Where two events part first.', {
  sequence: z.int().describe('The place of the event, from 1.'),
  path: z.string().describe('JSON pointer into the event; empty where only one of them has an event there.'),
  ...side('the session'),
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
const difference = { sequence: 4, path: '/content/parts/0/text', value: '17 * 23 = 391', other: 'It is 391.' };

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
      state: [{ key: 'topic', value: 'arithmetic', other: null }],
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
