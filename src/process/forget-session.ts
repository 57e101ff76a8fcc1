import { forgetRunOutputs } from '../features/cronjobs/run-store.ts';
import type { Database } from '../platform/db/database.ts';
import type { SessionKey } from '../core/session.ts';
import { deleteSessionCases } from '../features/evals/erase-store.ts';
import { forgetKeptAnswers } from '../conversation/idempotency/key-store.ts';
import { deleteMemories } from '../conversation/memory/memory-store.ts';
import { deleteSession } from '../conversation/sessions/session-store.ts';
import { deleteSessionSpans } from '../observability/traces/span-store.ts';
import type { Tracing } from '../observability/traces/tracing.ts';
import { deleteSessionDeliveries } from '../invocations/webhooks/delivery-store.ts';

/** Deletes what other features hold of a session, in the transaction that has deleted it. */
export type ForgetSession = (tx: Database, key: SessionKey, options: { copiesToo: boolean }) => Promise<void>;

/**
 * Deletes data that quotes a session without being part of it: kept answers, traces, outputs of cronjob runs,
 * deliveries; with `copiesToo` also deliberate copies: memories, and evaluation cases with the sessions of their runs.
 */
export function createForgetSession(tracing: Tracing | undefined): ForgetSession {
  return async (tx, key, { copiesToo }) => {
    // What this process has not stored yet would come after the deletion.
    await tracing?.flush();
    await forgetKeptAnswers(tx, key);
    await deleteSessionSpans(tx, key);
    await forgetRunOutputs(tx, key);
    await deleteSessionDeliveries(tx, key);
    if (!copiesToo) return;
    await deleteMemories(tx, key);
    for (const repeated of await deleteSessionCases(tx, key)) {
      await deleteSession(tx, repeated);
      await deleteSessionSpans(tx, repeated);
    }
  };
}
