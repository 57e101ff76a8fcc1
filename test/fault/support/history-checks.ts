import type { Pool } from 'pg';
import type { JsonObject } from '../../../src/core/content.ts';
import type { Accepted, History, Read, Target } from './history.ts';
import { type CheckOptions, findViolations } from './invariants.ts';
import type { FollowedStream } from './stream-follower.ts';

/** `user/session`. */
export const nameOf = ({ userId, sessionId }: Target) => `${userId}/${sessionId}`;

/**
 * Every contradiction between what clients know and what is stored, as a sentence, once nothing runs any more: what was
 * acknowledged is there once, what was refused is not, what is unsure may be, once; a background invocation that was
 * accepted has ended with a status; a key got one answer; every read is the beginning of every later one, and of what
 * every stream sent.
 */
export async function historyViolations(
  sql: Pool,
  history: History,
  streams: ReadonlyMap<Target, FollowedStream>,
  options: CheckOptions = {},
): Promise<string[]> {
  const { accepted, violations } = await acceptedViolations(sql, history.accepted);
  const final = await finalOrder(sql);
  return [
    ...history.wrong,
    ...violations,
    ...(await findViolations(sql, { ...options, acked: [...history.acked, ...accepted] })),
    ...(await refusedViolations(sql, history.failed)),
    ...(await doubledViolations(sql)),
    ...(await sharedKeyViolations(sql, history.keys)),
    ...history.keyed.flatMap(({ request, answers }) =>
      new Set(answers).size <= 1 ? [] : [`${request.kind}: one key, ${[...new Set(answers)].join(' and ')}`],
    ),
    ...[...history.reads].flatMap(([name, reads]) => readViolations(name, reads, final.get(name) ?? [])),
    ...[...streams].flatMap(([target, { ids, violations: found }]) => [
      ...found,
      ...(ids.join() === final.get(nameOf(target))?.join() ? [] : [`${nameOf(target)}: a stream missed events`]),
    ]),
  ];
}

/** The ids of the events of each session, in their order, by `user/session`. */
export async function finalOrder(sql: Pool): Promise<Map<string, string[]>> {
  const { rows } = await sql.query<{ name: string; ids: string[] }>(
    `select user_id || '/' || session_id as name, array_agg(id order by sequence) as ids from events group by 1`,
  );
  return new Map(rows.map(({ name, ids }) => [name, ids]));
}

/**
 * Accepted means kept: each has ended with a status, and with a reason where it did not succeed. Those that succeeded
 * are to be checked like any other answer.
 */
async function acceptedViolations(
  sql: Pool,
  accepted: Accepted[],
): Promise<{ accepted: Accepted[]; violations: string[] }> {
  const { rows } = await sql.query<{ id: string; status: string; reason: string | null }>(
    'select id, status, error_code as reason from invocations where id = any($1)',
    [accepted.map(({ invocationId }) => invocationId)],
  );
  const found = new Map(rows.map((row) => [row.id, row]));
  const violations = accepted.flatMap((each) => {
    const { status, reason } = found.get(each.invocationId) ?? { status: 'gone', reason: null };
    const isKept =
      status === 'succeeded' || (['failed', 'interrupted', 'cancelled'].includes(status) && reason !== null);
    return isKept ? [] : [`${nameOf(each)}: the accepted ${each.invocationId} is ${status}, reason ${reason}`];
  });
  return { accepted: accepted.filter((each) => found.get(each.invocationId)?.status === 'succeeded'), violations };
}

/** What was refused has left no trace. */
async function refusedViolations(sql: Pool, failed: string[]): Promise<string[]> {
  const { rows } = await sql.query<{ text: string }>(`select text from (${SAID}) said where text = any($1)`, [failed]);
  return rows.map(({ text }) => `refused, and stored: ${text}`);
}

const SAID = `
  select payload -> 'content' -> 'parts' -> 0 ->> 'text' as text, invocation_id, sequence
  from events where author = 'user'`;

/** Every text of a client is its own, so none stands in two events: nothing was done twice, with a key or without. */
async function doubledViolations(sql: Pool): Promise<string[]> {
  const { rows } = await sql.query<{ text: string; places: string }>(
    `select text, string_agg(invocation_id || ' at ' || sequence, ', ' order by sequence) as places
     from (${SAID}) said where text is not null group by text having count(*) > 1`,
  );
  return rows.map(({ text, places }) => `done twice: ${text} (${places})`);
}

/** Shared keys that were acknowledged are there. */
async function sharedKeyViolations(sql: Pool, keys: History['keys']): Promise<string[]> {
  const { rows } = await sql.query<{ user_id: string | null; state: JsonObject }>(
    'select user_id, state from user_states union all select null, state from app_states',
  );
  const states = new Map(rows.map((row) => [row.user_id, row.state]));
  return keys
    .filter(({ userId, key }) => !Object.hasOwn(states.get(key.startsWith('user:') ? userId : null) ?? {}, key))
    .map(({ key }) => `lost: ${key}`);
}

/** I7: a read that was sent after another was answered begins with all that the other saw. */
function readViolations(name: string, reads: Read[], final: string[]): string[] {
  const violations: string[] = [];
  const ordered = reads.toSorted((a, b) => a.answeredAt - b.answeredAt);
  const isPrefix = (short: string[], long: string[]) => short.every((id, position) => long[position] === id);
  for (const [position, earlier] of ordered.entries()) {
    if (!isPrefix(earlier.ids, final)) violations.push(`${name}: a read is no beginning of what is stored`);
    const later = ordered.slice(position + 1).find(({ sentAt }) => sentAt >= earlier.answeredAt);
    if (!later) continue;
    if (!isPrefix(earlier.ids, later.ids)) violations.push(`${name}: a later read lacks what an earlier one saw`);
    if (later.lastUpdateTime < earlier.lastUpdateTime) violations.push(`${name}: I7: lastUpdateTime went back`);
  }
  return violations;
}
