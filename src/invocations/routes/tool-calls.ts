import { z } from 'zod';
import { CONFIRMATION_CALL, isConfirmationRequest } from '../../agent/loop/confirmation.ts';
import { toResponse } from '../../agent/loop/tool-answer.ts';
import { getFunctionCalls, getFunctionResponses, type JsonObject, jsonObject } from '../../core/content.ts';
import { ConflictError } from '../../core/errors.ts';
import type { Event } from '../../core/event.ts';
import type { SessionKey } from '../../core/session.ts';
import { listInvocationEvents } from '../../conversation/sessions/event-store.ts';
import { getBodyBytes } from '../../platform/http/limits/request-limits.ts';
import { pageQuery, toPage, toPlace } from '../../platform/http/operation/cursor.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { toolCallPath, userPath } from '../../platform/http/operation/parameters.ts';
import { startInBackground } from '../background.ts';
import type { InvocationContext } from '../context.ts';
import { BUSY_ERRORS } from '../request.ts';
import { toolCallSchema, TOOL_CALL_EXAMPLE } from '../tool-call.ts';
import { listSettled, listUnknownCalls, lockCall, settleCall, type ToolCallRow } from '../tool-call-store.ts';

const listToolCalls = operation({
  method: 'get',
  path: '/apps/{app_name}/users/{user_id}/tool-calls',
  operationId: 'listToolCalls',
  scope: 'read',
  summary: 'List tool calls that may have acted',
  description: 'Of all sessions of a user, newest first: their process stopped, or they were cut off.',
  parameters: {
    path: userPath,
    query: pageQuery('calls').extend({
      state: z.enum(['unknown']).default('unknown').describe('The state of the calls; there is a list of this one.'),
    }),
  },
  success: {
    schema: z.object({
      items: z.array(toolCallSchema).describe('The calls.'),
      nextCursor: z.string().optional().describe('The `cursor` of the next page; absent on the last one.'),
    }),
    description: 'A page of them.',
    example: { items: [TOOL_CALL_EXAMPLE] },
  },
  handler: async ({ database }: InvocationContext, { path, query }) => {
    const found = await listUnknownCalls(database.reads, path, query.limit + 1, toPlace(query.cursor));
    return { kind: 'value', value: toPage(found, query.limit, ({ place: _place, ...call }) => call) };
  },
});

const settleSchema = z.object({
  outcome: z
    .enum(['done', 'not_done', 'run_again'])
    .describe(
      '`done`: it took effect. `not_done`: it did not, and the model is told. `run_again`: it did not, and runs.',
    ),
  response: jsonObject
    .optional()
    .describe('What the tool would have answered; with `done` only [`{"result": "done"}`].'),
});

const settleToolCall = operation({
  method: 'post',
  path: '/apps/{app_name}/users/{user_id}/sessions/{session_id}/tool-calls/{call_id}/settle',
  operationId: 'settleToolCall',
  scope: 'invoke',
  summary: 'Settle a tool call that may have acted',
  description:
    'A person has looked what became of it. Where the invocation waits for that, it goes on in the background once ' +
    'all calls that it waits for are settled.',
  parameters: { path: toolCallPath },
  body: { schema: settleSchema, required: true, example: { outcome: 'done', response: { charged: 3 } } },
  success: { schema: toolCallSchema, description: 'The call.', example: { ...TOOL_CALL_EXAMPLE, state: 'settled' } },
  errors: { 404: 'No such call.', ...BUSY_ERRORS, 409: 'It is not unknown, or nothing waits that could run it again.' },
  absent: ({ callId }) => `Tool call not found: ${callId}`,
  handler: async (context: InvocationContext, { path, body, request, notFound }) => {
    const { callId, ...key } = path;
    const call = await context.database.transaction(async (tx) => {
      const found = await lockCall(tx, key, callId);
      if (!found) throw notFound();
      const { status, state } = found;
      const waits = status === 'paused';
      // A repeat finds it settled, where the process stopped before the invocation went on.
      if (state !== 'unknown' && !(state === 'settled' && waits)) throw new ConflictError(`The call is ${state}.`);
      if (status === 'running' || status === 'queued') throw new ConflictError('Its invocation has not ended.');
      if (body.outcome === 'run_again' && !waits) throw new ConflictError('Its invocation has ended.');
      await settleCall(tx, key, found, toSettled(body));
      return { ...found, state: 'settled' as const };
    });
    const { status, ...wire } = call;
    if (status === 'paused') await goOn(context, key, call, getBodyBytes(request));
    return { kind: 'value', value: wire };
  },
});

/** Returns the response that the model reads; none where the call runs again. */
function toSettled({ outcome, response }: z.output<typeof settleSchema>): JsonObject | undefined {
  if (outcome === 'run_again') return undefined;
  if (outcome === 'not_done') return { error: 'This call did not take effect: a person has looked.' };
  return toResponse(response ?? 'done');
}

/** Goes on with an invocation, as the answer to its questions would, once all of them are settled. */
async function goOn(
  context: InvocationContext,
  key: SessionKey,
  { invocationId }: ToolCallRow,
  bytes: number,
): Promise<void> {
  const { db } = context.database;
  const asked = listQuestions(await listInvocationEvents(db, key, invocationId));
  const settled = await listSettled(db, key, invocationId, [...asked.keys()]);
  if (asked.size === 0 || settled.size < asked.size) return;
  const parts = [...asked.values()].map((id) => ({
    functionResponse: { id, name: CONFIRMATION_CALL, response: { confirmed: true } },
  }));
  const content = { role: 'user', parts };
  const request = { key, invocationId, resumes: true, content, overrides: {}, createSession: false, streaming: false };
  await startInBackground(context, request, bytes);
}

/** Returns the ids of the open questions of an invocation, by the call that each is about. */
function listQuestions(events: Event[]): Map<string, string> {
  const answered = new Set(events.flatMap(({ content }) => getFunctionResponses(content).map(({ id }) => id)));
  const questions = events.filter(isConfirmationRequest).flatMap(({ content }) => getFunctionCalls(content));
  return new Map(
    questions.flatMap(({ id, args }) => {
      const about = (args?.['originalFunctionCall'] as { id?: string } | undefined)?.id;
      return id && about && !answered.has(id) ? [[about, id] as const] : [];
    }),
  );
}

/** Tool calls: list those that may have acted, settle one. */
export const toolCallOperations = [listToolCalls, settleToolCall];
