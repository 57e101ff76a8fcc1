import { type SQL, and, eq, inArray, lt, sql } from 'drizzle-orm';
import type { SessionKey } from '../core/session.ts';
import { inBatches, isInBatch } from '../platform/db/batches.ts';
import type { Database } from '../platform/db/database.ts';
import { escapeJson, unescapeJson } from '../platform/db/json-escape.ts';
import { agentPrompts, invocationTapes } from '../platform/db/schema/schema.ts';
import { excluded, insertSelect, names } from '../platform/db/sql.ts';
import { isSession } from '../conversation/sessions/session-key.ts';
import type { AgentPrompt, Tape, TapePayload } from './tape.ts';

/** Maximum size of a prompt that is kept, characters of JSON; of a larger one only its hash is known. */
const MAX_PROMPT = 262_144;
/** How long a process takes a prompt for kept without a look: far shorter than any time that they are kept for. */
const KNOWN_MS = 3_600_000;
/** Maximum of prompts that a process remembers. */
const MAX_KNOWN = 1_000;

/** When this process last kept a prompt, by application and hash: most invocations have nothing new to keep. */
const known = new WeakMap<Database, Map<string, number>>();
const nameOf = ({ appName }: SessionKey, hash: string) => JSON.stringify([appName, hash]);

/** The prompts of a tape that this process has not kept lately, in the order in which their rows are locked. */
function unknownPrompts(db: Database, key: SessionKey, { prompts }: Tape): { hash: string; payload: AgentPrompt }[] {
  const kept = known.get(db);
  const isKnown = (hash: string) => (kept?.get(nameOf(key, hash)) ?? -Infinity) > performance.now() - KNOWN_MS;
  return [...prompts]
    .filter(([hash, payload]) => !isKnown(hash) && JSON.stringify(payload).length <= MAX_PROMPT)
    .map(([hash, payload]) => ({ hash, payload }))
    .toSorted((one, other) => (one.hash < other.hash ? -1 : 1));
}

/** Remembers that the prompts of a tape are kept: to call once the statement with {@link tapeCtes} is done. */
export function markKept(db: Database, key: SessionKey, tape: Tape | undefined): void {
  if (!tape) return;
  const kept = known.get(db) ?? new Map<string, number>();
  known.set(db, kept);
  for (const { hash } of unknownPrompts(db, key, tape)) {
    const [oldest] = kept.keys();
    if (kept.size >= MAX_KNOWN && oldest !== undefined) kept.delete(oldest);
    kept.set(nameOf(key, hash), performance.now());
  }
}

/** A tape as a statement takes it: JSON of what it says, and of its prompts that may not be kept yet. */
export interface TapeRow {
  start: number;
  payload: string;
  prompts: string | undefined;
}

/** A tape on its way into a statement. */
export function toTapeRow(db: Database, key: SessionKey, tape: Tape): TapeRow {
  const prompts = unknownPrompts(db, key, tape);
  const { start, payload } = tape;
  return { start, payload: escapeJson(payload), prompts: prompts.length > 0 ? escapeJson(prompts) : undefined };
}

/** The CTEs that follow one named `advanced` and keep a tape where that has a row; nothing without a tape. */
export function tapeCtes(
  { key, invocationId }: { key: SessionKey; invocationId: string },
  tape: TapeRow | undefined,
): SQL {
  if (!tape) return sql``;
  const { appName, userId, sessionId } = key;
  const payload = sql`${tape.payload}::jsonb`;
  const row = { appName, userId, sessionId, invocationId, start: tape.start, payload };
  const recorded = sql`, recorded as (${insertSelect(invocationTapes, row)} from advanced on conflict do nothing)`;
  if (tape.prompts === undefined) return recorded;
  const prompt = { appName, hash: sql`p.hash`, payload: sql`p.payload` };
  const { useTime } = agentPrompts;
  return sql`${recorded}, prompted as (
    ${insertSelect(agentPrompts, prompt)} from advanced,
    jsonb_to_recordset(${tape.prompts}::jsonb) as p(hash text, payload jsonb)
    on conflict (${names(agentPrompts.appName, agentPrompts.hash)}) do update
      set ${names(useTime)} = ${excluded(useTime)} where ${useTime} < ${excluded(useTime)} - interval '1 day')`;
}

/** The tapes of an invocation by their starts, each with those of its prompts that are still kept. Two statements. */
export async function listTapes(db: Database, key: SessionKey, invocationId: string): Promise<Tape[]> {
  const rows = await db
    .select({ start: invocationTapes.start, text: sql<string>`${invocationTapes.payload}::text` })
    .from(invocationTapes)
    .where(and(isSession(key, invocationTapes), eq(invocationTapes.invocationId, invocationId)))
    .orderBy(invocationTapes.start);
  const tapes = rows.map(({ start, text }) => ({ start, payload: JSON.parse(unescapeJson(text)) as TapePayload }));
  const hashes = [...new Set(tapes.flatMap(({ payload }) => payload.prompts.map(([, hash]) => hash)))];
  const kept = await db
    .select({ hash: agentPrompts.hash, text: sql<string>`${agentPrompts.payload}::text` })
    .from(agentPrompts)
    .where(and(eq(agentPrompts.appName, key.appName), inArray(agentPrompts.hash, hashes)));
  const prompts = new Map(kept.map(({ hash, text }) => [hash, JSON.parse(unescapeJson(text)) as AgentPrompt]));
  return tapes.map((tape) => ({ ...tape, prompts }));
}

/** Deletes the prompts that nothing used for so many days, in short statements. @returns how many there were. */
export function deleteOldPrompts(db: Database, days: number): Promise<number> {
  const isOld = lt(agentPrompts.useTime, sql`clock_timestamp() - ${days} * interval '1 day'`);
  return inBatches(() => db.delete(agentPrompts).where(isInBatch(agentPrompts, isOld, agentPrompts.useTime)));
}
