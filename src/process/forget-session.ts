import type { Database } from '../platform/db/database.ts';
import type { SessionKey } from '../core/session.ts';
import { deleteSessionCases } from '../features/evals/erase-store.ts';
import { forgetAnswers } from '../conversation/idempotency/key-store.ts';
import { deleteMemories } from '../conversation/memory/memory-store.ts';
import { deleteSession } from '../conversation/sessions/session-store.ts';
import { deleteSessionSpans } from '../observability/traces/span-store.ts';
import type { Tracing } from '../observability/traces/tracing.ts';
import { deleteSessionDeliveries } from '../invocations/webhooks/delivery-store.ts';

/** Deletes the data of other features about deleted sessions, in the transaction that deleted the sessions. */
export type ForgetSessions = (
  tx: Database,
  keys: readonly SessionKey[],
  options: { copiesToo: boolean },
) => Promise<void>;

/**
 * Deletes data that quotes sessions but is not part of them: stored responses, traces, webhook deliveries. With `copiesToo` also deliberate copies: memories, and evaluation cases with the sessions of their runs.
 */
export function createForgetSessions(tracing: Tracing | undefined): ForgetSessions {
  return async (tx, keys, { copiesToo }) => {
    // Traces that are still in this process's memory would otherwise be stored after the deletion.
    await tracing?.flush();
    await forgetAnswers(tx, keys);
    await deleteSessionSpans(tx, keys);
    await deleteSessionDeliveries(tx, keys);
    if (!copiesToo) return;
    for (const key of keys) {
      await deleteMemories(tx, key);
      const repeated = await deleteSessionCases(tx, key);
      for (const copy of repeated) await deleteSession(tx, copy);
      await deleteSessionSpans(tx, repeated);
    }
  };
}
