import { and, desc, eq, or, sql } from 'drizzle-orm';
import type { LedgerAnswer } from '../agent/loop/call-ledger.ts';
import { isSession } from '../conversation/sessions/session-key.ts';
import type { JsonObject } from '../core/content.ts';
import type { SessionKey } from '../core/session.ts';
import type { Database } from '../platform/db/database.ts';
import { escapeJson, escapeText, unescapeJson, unescapeText } from '../platform/db/json-escape.ts';
import { invocations, toolCalls } from '../platform/db/schema/schema.ts';
import { exactTime, isAfterPlace } from '../platform/db/sql.ts';
import type { Listed, ListPlace } from '../platform/http/operation/cursor.ts';
import { isInvocation } from './invocation-store.ts';
import { parseExactJson } from '../core/exact-json.ts';

const seconds = (column: typeof toolCalls.createTime | typeof toolCalls.updateTime) =>
  sql<number>`extract(epoch from ${column})::float8`;

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
  createTime: seconds(toolCalls.createTime),
  updateTime: seconds(toolCalls.updateTime),
};

export type ToolCallRow = Pick<
  typeof toolCalls.$inferSelect,
  'operationId' | 'callId' | 'sessionId' | 'invocationId' | 'tool' | 'effect' | 'state' | 'attempt'
> & { createTime: number; updateTime: number };

/** Unescapes tool names, which models choose and which may therefore be any text. */
const toRow = <Row extends ToolCallRow>(row: Row): Row => ({
  ...row,
  callId: unescapeText(row.callId),
  tool: unescapeText(row.tool),
});

/** Returns a page of the user's tool calls with an unknown outcome after a position, the newest first. */
export async function listUnknownCalls(
  db: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  limit: number,
  after: ListPlace | undefined,
): Promise<Listed<ToolCallRow>[]> {
  const { createTime, callId } = toolCalls;
  const rows = await db
    .select({ ...columns, place: { time: exactTime(createTime), id: callId } })
    .from(toolCalls)
    .where(
      and(
        eq(toolCalls.appName, appName),
        eq(toolCalls.userId, userId),
        sql`${toolCalls.state} = 'unknown'`,
        isAfterPlace({ time: createTime, id: callId }, after),
      ),
    )
    .orderBy(desc(createTime), desc(callId))
    .limit(limit);
  return rows.map(toRow);
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
      and(
        isSession(key, toolCalls),
        or(eq(toolCalls.callId, escapeText(callId)), eq(sql`${toolCalls.operationId}::text`, callId)),
      ),
    )
    .orderBy(desc(toolCalls.createTime))
    .limit(1)
    .for('update');
  if (!row) return undefined;
  const [invocation] = await tx
    .select({ status: invocations.status })
    .from(invocations)
    .where(isInvocation({ key, invocationId: row.invocationId }));
  return invocation && { ...toRow(row), ...invocation };
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
      response: answer ? sql`${escapeJson(answer)}::jsonb` : null,
      updateTime: sql`statement_timestamp()`,
    })
    .where(and(isOf(key, invocationId), eq(toolCalls.callId, escapeText(callId))));
}

/** Lists the tool responses of an invocation that no event contains yet, by call id. */
export async function listKeptResponses(
  db: Database,
  key: SessionKey,
  invocationId: string,
): Promise<ReadonlyMap<string, JsonObject>> {
  const rows = await db
    .select({ callId: toolCalls.callId, text: sql<string>`${toolCalls.response}::text` })
    .from(toolCalls)
    .where(and(isOf(key, invocationId), sql`${toolCalls.response} -> 'response' is not null`));
  return new Map(
    rows.map(({ callId, text }) => {
      const { response } = parseExactJson(unescapeJson(text)) as { response: JsonObject };
      return [unescapeText(callId), response];
    }),
  );
}
