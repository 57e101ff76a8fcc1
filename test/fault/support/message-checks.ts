import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { getFunctionCalls, getFunctionResponses } from '../../../src/core/content.ts';
import type { Event } from '../../../src/core/event.ts';
import { type AskedMessages, idsIn, type ModelServer, prefixOf, signatureOf } from './model-server.ts';

/** Where a message of a user is stored: an event of the run that it began, or of the one that took it. */
export interface Place {
  session: string;
  sequence: number;
  eventId: string;
  invocationId: string;
  /** When the model had first answered the request that made the step before it; absent where it began its run. */
  stepAnsweredAt?: number | undefined;
  /** Of each step before it that another step of its run follows: when the model had first answered what made it. */
  followedAt: number[];
}

/** The row of what a request began. */
export interface MessageRow {
  id: string;
  status: string;
  reason: string | null;
  /** Its own words. */
  error: string | null;
  key: string | null;
  /** The run that took it. */
  taker: string | null;
  /** True: it has not begun, because a budget has nothing left for it. */
  waitsForBudget: boolean;
}

interface EventRow {
  session: string;
  sequence: number;
  id: string;
  invocation: string;
  payload: Event;
}

/** Messages of users, once nothing runs any more, and what is wrong with them. */
export interface Messages {
  /** Sentences; empty: all holds. */
  violations: string[];
  /** By the text of the message. */
  places: ReadonlyMap<string, Place>;
  rows: ReadonlyMap<string, MessageRow>;
  taken: number;
}

/** The texts of clients. */
export const SAID = `
  select payload -> 'content' -> 'parts' -> 0 ->> 'text' as text, invocation_id, sequence
  from events where author = 'user'`;

/**
 * Checks what steering promises, for the messages of the model server's prompts. Each stands once, in the run that it
 * began or in the one that took it, as its row says. Each step of a run was made by a request that had all messages
 * before the step, in their order, and no others; so a message is in the first request that could have it, and in all
 * behind. No request, whatever became of it, had a message that stands elsewhere.
 */
export async function checkMessages(sql: Pool, asked: ModelServer['asked']): Promise<Messages> {
  const { rows: events } = await sql.query<EventRow>(
    `select user_id || '/' || session_id as session, sequence, id, invocation_id as invocation, payload
     from events order by user_id, session_id, sequence`,
  );
  const { rows } = await sql.query<MessageRow>(
    `select id, status, error_code as reason, error_message as error, idempotency_key as key,
       steered_invocation_id as taker, status = 'paused' and exists (
         select from tasks t
         where (t.app_name, t.user_id, t.session_id, t.invocation_id) = (i.app_name, i.user_id, i.session_id, i.id)
           and t.kind = 'budget' and t.state = 'open') as "waitsForBudget"
     from invocations i`,
  );
  const bySession = Map.groupBy(events, ({ session }) => session);
  const sessions = [...bySession].map(([session, own]) => readSession(session, own, asked));
  const places = new Map(sessions.flatMap((session) => [...session.places]));
  const known = new Set(sessions.flatMap(({ prefixes }) => prefixes));
  const strays = [...asked.values()].filter(({ prefix }) => !known.has(prefix));
  return {
    violations: [
      ...sessions.flatMap(({ violations }) => violations),
      ...strays.map((stray) => `the model was asked with ${describe(stray)}, which no session has in this order`),
      ...rowViolations(rows, events),
      ...(await doubledViolations(sql)),
    ],
    places,
    rows: new Map(rows.map((row) => [row.id, row])),
    taken: rows.filter(({ taker }) => taker !== null).length,
  };
}

/**
 * Watches the messages that wait, from now on. @returns by text: when it was seen that the message was stored, by
 * `performance.now()`. The watch ends with the pool.
 */
export function watchWaiting(sql: Pool): ReadonlyMap<string, number> {
  const seen = new Map<string, number>();
  void (async () => {
    while (!sql.ending) {
      const { rows } = await sql.query<{ text: string }>(WAITING);
      const now = performance.now();
      for (const { text } of rows) if (!seen.has(text)) seen.set(text, now);
      await sleep(WATCH_MS);
    }
  })();
  return seen;
}

const WATCH_MS = 10;
const WAITING = `
  select request -> 'content' -> 'parts' -> 0 ->> 'text' as text from invocations
  where status = 'queued' and start_time is null and request ? 'steer' and webhook_url is null`;

/** Those that waited when the model answered, and are not between that step and the next one of the same run. */
export const findLate = ({ places }: Messages, seen: ReadonlyMap<string, number>, texts: string[]): string[] =>
  texts.filter((text) => places.get(text)?.followedAt.some((answeredAt) => answeredAt > (seen.get(text) ?? Infinity)));

const describe = (asked: AskedMessages | undefined) =>
  asked ? `messages up to ${asked.last.join(', ')} (${asked.prefix})` : 'what nobody was asked';

/** The events of one session beside what the model was asked. */
function readSession(session: string, events: EventRow[], asked: ModelServer['asked']) {
  const violations: string[] = [];
  const places = new Map<string, Place>();
  const prefixes = [prefixOf([])];
  /** By run: the request that made its last step. */
  const made = new Map<string, string>();
  const followedAt: number[] = [];
  const ids: string[] = [];
  let results = 0;
  for (const { sequence, id: eventId, invocation, payload } of events) {
    const { author, content, errorCode, modelVersion } = payload;
    const responses = getFunctionResponses(content).length;
    const text = content?.parts?.[0]?.text ?? '';
    const said = author === 'user' ? idsIn(text) : [];
    results += responses;
    if (said.length > 0) {
      const stepAnsweredAt = asked.get(made.get(invocation) ?? '')?.answeredAt;
      places.set(text, {
        session,
        sequence,
        eventId,
        invocationId: invocation,
        stepAnsweredAt,
        followedAt: [...followedAt],
      });
      ids.push(...said);
      prefixes.push(prefixOf(ids));
      results = 0;
    } else if (author !== 'user' && responses === 0 && errorCode == null && content?.parts?.length) {
      const right = signatureOf(prefixOf(ids), results);
      const before = made.get(invocation);
      if (before !== undefined) followedAt.push(asked.get(before)?.answeredAt ?? 0);
      made.set(invocation, right);
      if (modelVersion === right) continue;
      const behind = `behind ${ids.length} messages up to ${ids.at(-1)} and ${results} results`;
      const why = `was made by ${modelVersion}: ${describe(asked.get(modelVersion ?? ''))}`;
      violations.push(`${session}: the event at ${sequence}, ${behind}, ${why}`);
    }
  }
  return { violations, places, prefixes };
}

/** Each row that succeeded is one message: an event of the run that it names, or the beginning of its own. */
function rowViolations(rows: MessageRow[], events: EventRow[]): string[] {
  const byRun = Map.groupBy(events, ({ invocation }) => invocation);
  const byId = Map.groupBy(events, ({ id }) => id);
  return rows.flatMap(({ id, status, taker }) => {
    const own = byRun.get(id) ?? [];
    const inRuns = (byId.get(id) ?? []).map(({ invocation }) => invocation);
    const said = `${id} is ${status}, taken by ${taker}, stands in [${inRuns.join()}]`;
    if (taker !== null || inRuns.length > 0) {
      const isOnce = taker !== null && inRuns.join() === taker && own.length === 0 && status === 'succeeded';
      return isOnce ? [] : [`${said}, and has ${own.length} events of its own`];
    }
    if (status !== 'succeeded') return [];
    const [first, last] = [own[0]?.payload, own.at(-1)?.payload];
    const isWhole = first?.author === 'user' && last?.author !== 'user' && getFunctionCalls(last?.content).length === 0;
    return isWhole ? [] : [`${said}, and its own events do not go from a message to an answer`];
  });
}

/** Every text of a client is its own, so none stands in two events: nothing was done twice, with a key or without. */
async function doubledViolations(sql: Pool): Promise<string[]> {
  const { rows } = await sql.query<{ text: string; places: string }>(
    `select text, string_agg(invocation_id || ' at ' || sequence, ', ' order by sequence) as places
     from (${SAID}) said where text is not null group by text having count(*) > 1`,
  );
  return rows.map(({ text, places }) => `done twice: ${text} (${places})`);
}
