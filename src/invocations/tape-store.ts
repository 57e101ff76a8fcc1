import { and, eq, exists, inArray, lt, notInArray, sql } from 'drizzle-orm';
import { EVAL_SESSION_ID_PREFIXES, type SessionKey } from '../core/session.ts';
import { inBatches, isInBatch } from '../platform/db/batches.ts';
import type { Database } from '../platform/db/database.ts';
import { agentPrompts, invocations, invocationTapes } from '../platform/db/schema/schema.ts';
import { isSession } from '../conversation/sessions/session-key.ts';
import type { AgentPrompt, Tape, TapePayload } from './tape.ts';

/** Maximum size of a stored prompt, in characters of JSON. Of a larger prompt only the hash is stored. */
const MAX_PROMPT = 262_144;
/** Milliseconds for which a prompt counts as still stored: far shorter than any retention time. */
const KNOWN_MS = 3_600_000;
const MAX_KNOWN = 1_000;

/** When this process last stored each prompt, by application and hash: saves writes, because prompts rarely change. */
const storedTimes = new WeakMap<Database, Map<string, number>>();
const toName = ({ appName }: SessionKey, hash: string) => JSON.stringify([appName, hash]);

/** A prompt of a tape, to be stored with the tape. */
interface NewPrompt {
  hash: string;
  payload: AgentPrompt;
}

/** Returns the prompts of a tape that this process has not stored lately, in an order that prevents deadlocks. */
export function listNewPrompts(db: Database, key: SessionKey, tape: Tape | undefined): NewPrompt[] {
  const times = storedTimes.get(db);
  const since = performance.now() - KNOWN_MS;
  return [...(tape?.prompts ?? [])]
    .filter(([hash]) => (times?.get(toName(key, hash)) ?? -Infinity) <= since)
    .filter(([, payload]) => JSON.stringify(payload).length <= MAX_PROMPT)
    .map(([hash, payload]) => ({ hash, payload }))
    .toSorted((one, other) => (one.hash < other.hash ? -1 : 1));
}

/** Remembers that these prompts are stored now. */
export function markStored(db: Database, key: SessionKey, prompts: NewPrompt[]): void {
  const times = storedTimes.get(db) ?? new Map<string, number>();
  storedTimes.set(db, times);
  for (const { hash } of prompts) {
    const [oldest] = times.keys();
    if (times.size >= MAX_KNOWN && oldest !== undefined) times.delete(oldest);
    times.set(toName(key, hash), performance.now());
  }
}

/** An invocation's tapes by start, each with those of its prompts that are still stored. Two statements. */
export async function listTapes(db: Database, key: SessionKey, invocationId: string): Promise<Tape[]> {
  const rows = await db
    .select({ start: invocationTapes.start, payload: invocationTapes.payload })
    .from(invocationTapes)
    .where(and(isSession(key, invocationTapes), eq(invocationTapes.invocationId, invocationId)))
    .orderBy(invocationTapes.start);
  const tapes = rows.map(({ start, payload }) => ({ start, payload: payload as TapePayload }));
  const hashes = [...new Set(tapes.flatMap(({ payload }) => payload.prompts.map(([, hash]) => hash)))];
  const promptRows = await db
    .select({ hash: agentPrompts.hash, payload: agentPrompts.payload })
    .from(agentPrompts)
    .where(and(eq(agentPrompts.appName, key.appName), inArray(agentPrompts.hash, hashes)));
  const prompts = new Map(promptRows.map(({ hash, payload }) => [hash, payload as AgentPrompt]));
  return tapes.map((tape) => ({ ...tape, prompts }));
}

/** A sample of invocations that ended lately and have a tape. The order by digest is random but repeatable. */
export const sampleTapes = (db: Database, appName: string, minutes: number, limit: number) => {
  const { userId, sessionId, id, agentVersion } = invocations;
  const tape = db
    .select()
    .from(invocationTapes)
    .where(
      and(
        isSession({ appName: invocations.appName, userId, sessionId }, invocationTapes),
        eq(invocationTapes.invocationId, id),
      ),
    );
  return db
    .select({ userId, sessionId, id, agentVersion })
    .from(invocations)
    .where(
      and(
        eq(invocations.appName, appName),
        sql`${invocations.createTime} >= statement_timestamp() - ${minutes} * interval '1 minute'`,
        notInArray(invocations.status, ['queued', 'running']),
        exists(tape),
        ...EVAL_SESSION_ID_PREFIXES.map((prefix) => sql`not starts_with(${sessionId}, ${prefix})`),
      ),
    )
    .orderBy(sql`md5(${id})`, userId, sessionId)
    .limit(limit);
};

/** Deletes prompts not used for `days`, in small batches. @returns the number of deleted prompts */
export function deleteOldPrompts(db: Database, days: number, signal?: AbortSignal): Promise<number> {
  const isOld = lt(agentPrompts.useTime, sql`statement_timestamp() - ${days} * interval '1 day'`);
  const isNext = isInBatch(agentPrompts, isOld, agentPrompts.useTime);
  return inBatches(() => db.delete(agentPrompts).where(isNext), signal);
}
