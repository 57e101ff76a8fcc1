import type { Pool } from 'pg';
import type { JsonObject } from '../../../src/core/content.ts';
import type { History, Read, Target, Told } from './history.ts';
import { type CheckOptions, findViolations } from './invariants.ts';
import { checkMessages, type Messages, SAID } from './message-checks.ts';
import { idsIn, type ModelServer } from './model-server.ts';
import type { FollowedStream } from './stream-follower.ts';

/** `user/session`. */
export const nameOf = ({ userId, sessionId }: Target) => `${userId}/${sessionId}`;

/**
 * Every contradiction between what clients know and what is stored, as a sentence, once nothing runs any more: what was
 * acknowledged is there once, what was refused is not, what is unsure may be, once; a message that was accepted is
 * where its answer says, or has ended with a reason; a key got one answer; every read is the beginning of every later one, and of what
 * every stream sent.
 */
export async function historyViolations(
  sql: Pool,
  history: History,
  streams: ReadonlyMap<Target, FollowedStream>,
  asked: ModelServer['asked'],
  options: CheckOptions = {},
): Promise<string[]> {
  const messages = await checkMessages(sql, asked);
  const final = await finalOrder(sql);
  return [
    ...history.wrong,
    ...messages.violations,
    ...toldViolations(history.told, messages),
    ...(await findViolations(sql, { ...options, acked: history.acked })),
    ...(await refusedViolations(sql, history.failed)),
    ...(await sharedKeyViolations(sql, history.keys)),
    ...history.keyed.flatMap(({ request, answers }) =>
      new Set(answers).size <= 1 ? [] : [`${request.door}: one key, ${[...new Set(answers)].join(' and ')}`],
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
 * What an answer said of a message is so. Accepted means kept: it stands in the session, has ended with a reason before
 * it began, or waits for a budget. The invocation that an answer names is that of the message, or the one that took it,
 * and the answers of the model in it are those of that run, to this message or to one behind it.
 */
export function toldViolations(told: Told[], { places, rows }: Messages): string[] {
  const idPlaces = new Map([...places].flatMap(([text, place]) => idsIn(text).map((id) => [id, place])));
  return told.flatMap((each) => {
    const place = places.get(each.said);
    const row = rows.get(each.namesRun ? '' : (each.invocationId ?? ''));
    const wrong = (what: string) => [`${nameOf(each)}: ${each.door}: ${each.said}: ${what}`];
    if (!place) {
      const isEnded = ['failed', 'interrupted', 'cancelled'].includes(row?.status ?? '') && row?.reason != null;
      return isEnded || row?.waitsForBudget === true
        ? []
        : wrong(`accepted as ${each.invocationId}, and lost: ${row?.status}, ${row?.reason}`);
    }
    const own = rows.get(place.eventId)?.id ?? place.invocationId;
    const right = each.namesRun ? place.invocationId : own;
    if (each.invocationId !== undefined && each.invocationId !== right)
      return wrong(`the answer names ${each.invocationId}, not ${right}`);
    const taker = rows.get(own)?.taker ?? undefined;
    if (each.steeredInto !== undefined && each.steeredInto !== taker)
      return wrong(`said to be taken by ${each.steeredInto}, not by ${taker}`);
    const others = each.answers.filter((id) => {
      const asked = idPlaces.get(id);
      return asked?.invocationId !== place.invocationId || asked.sequence < place.sequence;
    });
    return others.length === 0 ? [] : wrong(`the answer is that to ${others.join(', ')}`);
  });
}

/** What was refused has left no trace. */
export async function refusedViolations(sql: Pool, failed: string[]): Promise<string[]> {
  const { rows } = await sql.query<{ text: string }>(`select text from (${SAID}) said where text = any($1)`, [failed]);
  return rows.map(({ text }) => `refused, and stored: ${text}`);
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
