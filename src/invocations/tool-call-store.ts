import { and, desc, eq, or, sql } from 'drizzle-orm';
import type { LedgerAnswer } from '../agent/loop/call-ledger.ts';
import { isSession } from '../conversation/sessions/session-key.ts';
import type { JsonObject } from '../core/content.ts';
import type { SessionKey } from '../core/session.ts';
import type { Database } from '../platform/db/database.ts';
import { invocations, toolCalls } from '../platform/db/schema/schema.ts';
import { newestFirst } from '../platform/db/sql.ts';
import type { Listed, ListPlace } from '../platform/http/operation/cursor.ts';
import { isInvocation } from './invocation-store.ts';

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
