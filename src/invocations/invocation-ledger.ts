import type {
  CallLedger,
  CallRecord,
  EarlierCall,
  EarlierCalls,
  KeptResult,
  LedgerAnswer,
  OpenWait,
  Transact,
} from '../agent/loop/call-ledger.ts';
import { toFirstVersion } from '../conversation/artifacts/artifacts.ts';
import type { ContentStore } from '../conversation/artifacts/artifact.ts';
import { AgentError, AppError, isPassingFailure, LeaseLostError, sizeRefusal } from '../core/errors.ts';
import { sqlState } from '../platform/db/client.ts';
import type { Database } from '../platform/db/database.ts';
import { escapeList, unescapeJson } from '../platform/json-escape.ts';
import { callFunction } from '../platform/db/statement.ts';
import type { ToolDatabase } from '../platform/db/tool-database.ts';
import type { Metrics } from '../platform/metrics.ts';
import type { InvocationContext } from './context.ts';
import type { InvocationOutcome } from './finish-store.ts';
import type { Lease } from './lock-store.ts';
import { persist } from './persist.ts';
import { parseExactJson } from '../core/exact-json.ts';
import { and, desc, eq, or, sql } from 'drizzle-orm';
import { isSession } from '../conversation/sessions/session-row.ts';
import type { JsonObject, Part } from '../core/content.ts';
import type { SessionKey } from '../core/session.ts';
import { invocations, toolCalls } from '../platform/db/schema/schema.ts';
import { newestFirst } from '../platform/db/sql.ts';
import type { Listed, ListPlace } from '../platform/http/operation/cursor.ts';
import { isInvocation } from './invocation-store.ts';

/** Milliseconds of retrying to prepare a large response while the database or the object store is not available. */
const KEEP_PATIENCE_MS = 2_000;

/** Writes the tool-call ledger of a running invocation. */
export class InvocationLedger implements CallLedger {
  #failure: unknown;
  readonly #db: Database;
  readonly #lease: Lease;
  readonly #metrics: Metrics | undefined;
  readonly #tools: ToolDatabase | undefined;
  readonly #contentStore: ContentStore;
  readonly #waits: OpenWait[] = [];
  readonly #waiting = new Map<string | undefined, CallRecord[]>();

  constructor(db: Database, lease: Lease, context: Pick<InvocationContext, 'metrics' | 'tools' | 'contentStore'>) {
    const { metrics, tools, contentStore } = context;
    this.#db = db;
    this.#lease = lease;
    this.#metrics = metrics;
    this.#tools = tools;
    this.#contentStore = contentStore;
  }

  writeWith(eventId: string | undefined, calls: CallRecord[]): void {
    if (calls.length > 0) this.#waiting.set(eventId, [...(this.#waiting.get(eventId) ?? []), ...calls]);
  }

  waitFor(call: OpenWait): void {
    this.#waits.push(call);
  }

  async keepResult(artifactName: string, part: Part, metadata: JsonObject): Promise<KeptResult> {
    const key = { ...this.#lease.key, artifactName };
    try {
      return await persist(() => toFirstVersion(this.#db, this.#contentStore, key, part, metadata), KEEP_PATIENCE_MS);
    } catch (error) {
      if (error instanceof AppError) throw error;
      const full = sizeRefusal(error);
      if (full) throw new AgentError(full.code, full.message, { cause: error });
      this.#failure = error;
      throw error;
    }
  }

  /** Removes and returns the records of tool calls that must be stored in the statement that stores these events. */
  take(eventIds: (string | undefined)[]): CallRecord[] {
    const calls: CallRecord[] = [];
    for (const id of eventIds) {
      calls.push(...(this.#waiting.get(id) ?? []));
      this.#waiting.delete(id);
    }
    const unknown = calls.filter(({ state }) => state === 'unknown');
    this.#metrics?.count('agent_runtime_tool_calls_unknown_total', {}, unknown.length);
    return calls;
  }

  /** Removes and returns the records of tool calls that must be stored in the statement that stores the last events. */
  end(events: { id: string }[]): Pick<InvocationOutcome, 'calls' | 'waits' | 'metrics'> {
    const calls = this.take([...events.map(({ id }) => id), undefined]);
    // Whoever else is to be asked is asked when the step that waits for a child is made again.
    const waits = this.waitsForChild ? this.#waits.filter(({ wait }) => wait.kind === 'child') : this.#waits;
    return { calls, waits, metrics: this.#metrics };
  }

  /** True if the invocation pauses until an agent of its calls has ended in a session of its own. */
  get waitsForChild(): boolean {
    return this.#waits.some(({ wait }) => wait.kind === 'child');
  }

  /** Makes an error the failure of a write, which ends the invocation. @returns the error */
  fail(error: unknown): unknown {
    this.#failure = error;
    return error;
  }

  isFailure = (error: unknown) => error !== undefined && this.#failure === error;

  /** Lists the tool responses in the ledger that no event contains yet, by call id. */
  listKept = () => listKeptResponses(this.#db, this.#lease.key, this.#lease.invocationId);

  async write(calls: CallRecord[]): Promise<EarlierCalls> {
    try {
      return await persist(() => keepCalls(this.#db, this.#lease, calls), this.#lease.durationMs);
    } catch (error) {
      this.#failure = error;
      throw error;
    }
  }

  /**
   * Writes a tool's response in the tool's own transaction. @throws errors safe for the model: no SQL text, no token
   */
  async #keep(tx: Database, record: CallRecord): Promise<void> {
    try {
      await keepCalls(tx, this.#lease, [record], this.#tools?.keepFunction);
    } catch (error) {
      if (error instanceof LeaseLostError) throw error;
      throw new Error(sizeRefusal(error)?.message || 'The answer could not be kept.', { cause: error });
    }
  }

  transact: Transact = async (work, signal, record) => {
    if (!this.#tools) throw new Error('This service has no database for transactional tools.');
    try {
      const keep = async (tx: Database, { result, ...response }: LedgerAnswer) =>
        record && this.#keep(tx, { ...record, response, ...(result && { result }) });
      return await this.#tools.transact(this.#lease.key.userId, signal, work, keep);
    } catch (error) {
      if (error instanceof LeaseLostError) this.#failure = error;
      if (!isPassingFailure(error)) throw error;
      // If the commit's confirmation was lost, the ledger row tells, after the transaction, whether it succeeded.
      const { state: _, ...entry } = record ?? { id: '' };
      const ledgerCall = record && (await this.write([entry as CallRecord])).get(record.id);
      if (ledgerCall?.state === 'done' && ledgerCall.response) return ledgerCall.response as LedgerAnswer;
      if (sqlState(error)) throw error;
      throw new Error('The database was away: nothing of this call was kept.', { cause: error });
    }
  };
}

/** Writes calls whose event is stored. @throws {LeaseLostError} if the session is held under another lease token */
async function keepCalls(db: Database, lease: Lease, calls: CallRecord[], name = 'keep_calls'): Promise<EarlierCalls> {
  const { key, invocationId, token } = lease;
  const { held, earlier } = await callFunction<{ held: boolean; earlier: string | null }>(db, name, {
    p_app: key.appName,
    p_user: key.userId,
    p_session: key.sessionId,
    p_invocation: invocationId,
    p_token: token,
    p_calls: escapeList(calls),
    p_max_user_bytes: db.limits.maxUserBytes,
  });
  if (!held) throw new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
  const rows = parseExactJson(unescapeJson(earlier ?? '[]')) as (EarlierCall & { id: string })[];
  return new Map(rows.map((row) => [row.id, row]));
}

const isOf = (key: SessionKey, invocationId: string) =>
  and(isSession(key, toolCalls), eq(toolCalls.invocationId, invocationId));

const columns = {
  operationId: toolCalls.operationId,
  callId: toolCalls.callId,
  sessionId: toolCalls.sessionId,
  invocationId: toolCalls.invocationId,
  tool: toolCalls.tool,
  effect: toolCalls.effect,
  state: toolCalls.state,
  attempt: toolCalls.attempt,
  createTime: toolCalls.createTime,
  updateTime: toolCalls.updateTime,
};

export type ToolCallRow = Pick<typeof toolCalls.$inferSelect, keyof typeof columns>;

/** Returns a page of the user's tool calls with an unknown outcome after a position, the newest first. */
export async function listUnknownCalls(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  limit: number,
  after: ListPlace | undefined,
): Promise<Listed<ToolCallRow>[]> {
  const { place, order, isAfter } = newestFirst(toolCalls.createTime, toolCalls.callId);
  return db
    .select({ ...columns, place })
    .from(toolCalls)
    .where(
      and(
        eq(toolCalls.appName, appName),
        eq(toolCalls.userId, userId),
        sql`${toolCalls.state} = 'unknown'`,
        isAfter(after),
      ),
    )
    .orderBy(order)
    .limit(limit);
}

/** Locks the newest tool call with this call id or operation id, and reads the status of its invocation. */
export async function lockCall(
  tx: Database,
  key: SessionKey,
  callId: string,
): Promise<(ToolCallRow & { status: (typeof invocations.$inferSelect)['status'] }) | undefined> {
  const [row] = await tx
    .select(columns)
    .from(toolCalls)
    .where(
      and(isSession(key, toolCalls), or(eq(toolCalls.callId, callId), eq(sql`${toolCalls.operationId}::text`, callId))),
    )
    .orderBy(desc(toolCalls.createTime))
    .limit(1)
    .for('update');
  if (!row) return undefined;
  const [invocation] = await tx
    .select({ status: invocations.status })
    .from(invocations)
    .where(isInvocation({ key, invocationId: row.invocationId }));
  return invocation && { ...row, ...invocation };
}

/** A person's decision: the response of the call, or, without a response, that the call is to be repeated. */
export async function settleCall(
  tx: Database,
  key: SessionKey,
  { invocationId, callId }: Pick<ToolCallRow, 'invocationId' | 'callId'>,
  response: JsonObject | undefined,
): Promise<void> {
  const answer: Pick<LedgerAnswer, 'response'> | undefined = response && { response };
  await tx
    .update(toolCalls)
    .set({
      state: 'settled',
      response: answer ?? null,
      updateTime: sql`statement_timestamp()`,
    })
    .where(and(isOf(key, invocationId), eq(toolCalls.callId, callId)));
}

/** Lists the tool responses of an invocation that no event contains yet, by call id. */
export async function listKeptResponses(
  db: Database,
  key: SessionKey,
  invocationId: string,
): Promise<ReadonlyMap<string, JsonObject>> {
  const rows = await db
    .select({ callId: toolCalls.callId, answer: toolCalls.response })
    .from(toolCalls)
    .where(and(isOf(key, invocationId), sql`${toolCalls.response} -> 'response' is not null`));
  return new Map(rows.map(({ callId, answer }) => [callId, (answer as { response: JsonObject }).response]));
}
