import type { CallLedger, CallRecord, EarlierCall, EarlierCalls } from '../agent/loop/call-ledger.ts';
import { toCallsParameter } from '../conversation/sessions/append-store.ts';
import { LeaseLostError } from '../core/errors.ts';
import type { Database } from '../platform/db/database.ts';
import { unescapeJson } from '../platform/db/json-escape.ts';
import { callFunction } from '../platform/db/statement.ts';
import type { Metrics } from '../platform/metrics.ts';
import type { InvocationOutcome } from './finish-store.ts';
import type { Lease } from './lock-store.ts';
import { persist } from './persist.ts';
import { listKeptResponses } from './tool-call-store.ts';

/** The ledger of an invocation that runs here. */
export class InvocationLedger implements CallLedger {
  failure: unknown;
  readonly #db: Database;
  readonly #lease: Lease;
  readonly #metrics: Metrics | undefined;
  readonly #waiting = new Map<string | undefined, CallRecord[]>();

  constructor(db: Database, lease: Lease, metrics: Metrics | undefined) {
    this.#db = db;
    this.#lease = lease;
    this.#metrics = metrics;
  }

  writeWith(eventId: string | undefined, calls: CallRecord[]): void {
    if (calls.length > 0) this.#waiting.set(eventId, [...(this.#waiting.get(eventId) ?? []), ...calls]);
  }

  /** Takes what is to be written with these events, once. */
  take(eventIds: (string | undefined)[]): CallRecord[] {
    const calls = eventIds.flatMap((id) => this.#waiting.get(id) ?? []);
    for (const id of eventIds) this.#waiting.delete(id);
    this.#metrics?.unknownCalls(calls.filter(({ state }) => state === 'unknown').length);
    return calls;
  }

  /** Takes what is to be written at the end, with these events. */
  end(events: { id: string }[]): Pick<InvocationOutcome, 'calls' | 'metrics'> {
    return { calls: this.take([...events.map(({ id }) => id), undefined]), metrics: this.#metrics };
  }

  /** Lists what tools answered and no event has yet, by the ids of their calls. */
  listKept = () => listKeptResponses(this.#db, this.#lease.key, this.#lease.invocationId);

  async write(calls: CallRecord[]): Promise<EarlierCalls> {
    try {
      return await persist(() => keepCalls(this.#db, this.#lease, calls), this.#lease.durationMs);
    } catch (error) {
      this.failure = error;
      throw error;
    }
  }
}

/** Writes calls whose event is stored. @throws {LeaseLostError} when the session is another's: nothing was written */
async function keepCalls(db: Database, lease: Lease, calls: CallRecord[]): Promise<EarlierCalls> {
  const { key, invocationId, token } = lease;
  const { held, earlier } = await callFunction<{ held: boolean; earlier: string | null }>(db, 'keep_calls', {
    p_app: key.appName,
    p_user: key.userId,
    p_session: key.sessionId,
    p_invocation: invocationId,
    p_token: token,
    p_calls: toCallsParameter(calls),
    p_max_user_bytes: db.limits.maxUserBytes,
  });
  if (!held) throw new LeaseLostError(`The invocation no longer holds session ${key.sessionId}.`);
  const rows = JSON.parse(unescapeJson(earlier ?? '[]')) as (EarlierCall & { id: string })[];
  return new Map(rows.map((row) => [row.id, row]));
}
