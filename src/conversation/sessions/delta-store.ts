import { not, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import type { SessionKey } from '../../core/session.ts';
import { inBatches, isInBatch } from '../../platform/db/batches.ts';
import type { Database } from '../../platform/db/database.ts';
import { eventDeltas, sessions } from '../../platform/db/schema/schema.ts';
import { isUnsent, sqlState } from '../../platform/db/client.ts';
import { callFunction, statement, value } from '../../platform/db/statement.ts';
import { type SessionEnd, sessionEnd } from './event-store.ts';
import { holdsSession, isSession, KEY } from './session-row.ts';
import { s } from './session-text.ts';

/** A chunk of streamed text, stored before its event is complete; `text` is a partial event as JSON. */
export interface Delta {
  /** Position among the session's chunks. Numbers are never reused. */
  number: number;
  text: string;
  /** Id that the complete event will have. */
  eventId: string;
}

/** Chunks of streamed text of one session, to be stored under a lease. */
export interface DeltaWrite {
  key: SessionKey;
  token: string;
  /** Number of the last stored chunk; `undefined` if there is none. */
  after: number | undefined;
  pieces: readonly Pick<Delta, 'eventId' | 'text'>[];
}

/**
 * The session's last sequence and the new last chunk number. `locked`: nothing was stored, because another transaction
 * has the session's row; a later attempt may succeed. `undefined`: the session has another lease, or other chunks were
 * stored meanwhile; then the chunks are deleted, and no more chunks of this text may be stored.
 */
export type AppendedDeltas = { sequence: number; last: number } | 'locked' | undefined;

interface AppendedRow {
  last: string | null;
  sequence: number;
  is_locked: boolean | null;
}

const toAppended = ({ last, sequence, is_locked }: AppendedRow): AppendedDeltas =>
  last === null ? (is_locked ? 'locked' : undefined) : { last: Number(last), sequence };

/** Appends chunks of one session. The commit does not wait for the disk, because lost chunks do not affect events. */
export async function appendDeltas(db: Database, { key, token, after, pieces }: DeltaWrite): Promise<AppendedDeltas> {
  const row = await callFunction<AppendedRow>(db, 'append_deltas', {
    p_app: key.appName,
    p_user: key.userId,
    p_session: key.sessionId,
    p_lease: token,
    p_after: after,
    p_event_ids: pieces.map(({ eventId }) => eventId),
    p_payloads: pieces.map(({ text }) => text),
  });
  return toAppended(row);
}

/**
 * Appends chunks of several sessions in one statement. If the server refuses it, each session gets a statement of its
 * own, so that chunks which cannot be stored do not affect other sessions.
 * @returns a result for each session
 */
export function appendDeltasOfAll(db: Database, writes: readonly DeltaWrite[]): Promise<AppendedDeltas>[] {
  // A cluster routes only whole calls to the user's node.
  if (writes.length === 1 || db.isOnCluster) return writes.map((write) => appendDeltas(db, write));
  const rows = insertDeltas(db, { writes: JSON.stringify(writes) });
  return writes.map(async (write, place) => {
    try {
      return toAppended((await rows)[place] as AppendedRow);
    } catch (error) {
      if (isUnsent(error) || sqlState(error) === undefined) throw error;
      return appendDeltas(db, write);
    }
  });
}

const insertDeltas = statement<AppendedRow>(
  () => sql`
    select appended.*
    from rows from (json_to_recordset(${value('writes')}::json) as (key json, token uuid, after bigint, pieces json))
      with ordinality write
    cross join lateral (
      select array_agg(piece ->> 'eventId') as event_ids, array_agg(piece ->> 'text') as texts
      from json_array_elements(write.pieces) piece) given
    cross join lateral append_deltas(
      write.key ->> 'appName', write.key ->> 'userId', write.key ->> 'sessionId', write.token, write.after,
      given.event_ids, given.texts) appended
    order by write.ordinality`,
);

/** The streamed text of a session's incomplete events, with the session's last sequence at the same moment. */
export interface SessionText extends SessionEnd {
  deltas: readonly Delta[];
}

/** Lists a session's chunks of streamed text; only the new ones if those that the caller has cached are unchanged. */
export async function listDeltas(
  db: Database,
  key: SessionKey,
  cached: readonly Delta[],
): Promise<SessionText | undefined> {
  const rows = await selectDeltas(db, { ...key, last: cached.at(-1)?.number ?? 0, count: cached.length });
  const newer = rows.flatMap(({ number, text, eventId }) =>
    number === null ? [] : [{ number: Number(number), text, eventId }],
  );
  const [first] = rows;
  return first && { ...first, deltas: first.isSame ? [...cached, ...newer] : newer };
}

type DeltaRow = Omit<Delta, 'number'> & { number: string | null; isSame: boolean } & SessionEnd;

const d = alias(eventDeltas, 'd');
const k = alias(eventDeltas, 'k');
const LAST = sql`${value('last')}::bigint`;

const selectDeltas = statement<DeltaRow>(
  () => sql`
    select ${d.number} as number, ${d.payload} as text, ${d.eventId} as "eventId", ${sessionEnd},
           known.is_same as "isSame"
    from ${sessions} ${s}
    cross join lateral (
      select count(*) = ${value('count')}::int as is_same from ${eventDeltas} ${k}
      where ${isSession(KEY, k)} and ${k.leaseToken} = ${s.leaseToken} and ${k.number} <= ${LAST}) known
    left join ${eventDeltas} ${d}
      on ${isSession(KEY, d)} and ${d.leaseToken} = ${s.leaseToken}
        and ${d.number} > case when known.is_same then ${LAST} else 0 end
    where ${isSession(KEY, s)} order by ${d.number}`,
);

/**
 * Deletes chunks of streamed text that a process with a lost session lease left behind, in batches.
 * @returns their number
 */
export function deleteLostDeltas(db: Database, signal?: AbortSignal): Promise<number> {
  const isNext = isInBatch(eventDeltas, not(holdsSession(eventDeltas)), eventDeltas.number);
  return inBatches(() => db.delete(eventDeltas).where(isNext), signal);
}
