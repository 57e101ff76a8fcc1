import { z } from 'zod';
import { isActive } from '../invocation.ts';
import { getConfirmedId, listConfirmationRequests } from '../../agent/loop/script.ts';
import { toResponse } from '../../agent/loop/tool-answer.ts';
import { type JsonObject, jsonObject } from '../../core/content.ts';
import { ConflictError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import { listInvocationEvents } from '../../conversation/sessions/event-store.ts';
import type { Database } from '../../platform/db/database.ts';
import { pageQuery, readPage } from '../../platform/http/operation/cursor.ts';
import { area } from '../../platform/http/operation/area.ts';
import { toolCallPath, userPath } from '../../platform/http/operation/parameters.ts';
import type { InvocationContext } from '../context.ts';
import { listUnknownCalls, lockCall, settleCall, type ToolCallRow } from '../invocation-ledger.ts';
import { toPerson } from '../waits/task-routes.ts';
import { changeTask, findTaskOfCall, TASKS_TOPIC } from '../waits/task-store.ts';
import { EFFECTS } from '../../agent/definition/tool.ts';

export const toolCallSchema = z
  .looseObject({
    operationId: z.string().describe('Names the call to who carries it out; every attempt has the same.'),
    callId: z.string().describe('Id of the function call in its event.'),
    sessionId: z.string().describe('The session.'),
    invocationId: z.string().describe('The invocation.'),
    tool: z.string().describe('Name of the tool.'),
    effect: z
      .enum([...EFFECTS, 'transactional'])
      .describe('What a second run would do: nothing, nothing more, all of it again; `transactional`: there is none.'),
    state: z
      .enum(['started', 'done', 'unknown', 'settled'])
      .describe('`unknown`: it may have acted. `settled`: a check or a person has said what became of it.'),
    attempt: z.int().describe('How often it was begun.'),
    createTime: z.number().describe('When it was begun, Unix seconds.'),
    updateTime: z.number().describe('Last change, Unix seconds.'),
  })
  .describe('A call of a tool, as the ledger has it.');

const TOOL_CALL_EXAMPLE = {
  operationId: '5d0c1f3a-6f7e-8b21-8c44-9a3f0e1d2b6c',
  callId: 'call-1',
  sessionId: 's1',
  invocationId: 'e-0c2f',
  tool: 'charge',
  effect: 'once',
  state: 'unknown',
  attempt: 1,
  createTime: 1_767_225_600.25,
  updateTime: 1_767_225_615.5,
} satisfies z.input<typeof toolCallSchema>;

const room = area<InvocationContext>('Agent execution', { read: 'read', write: 'invoke', owner: 'path' });

const listToolCalls = room.operation({
  method: 'get',
  path: '/apps/{app_name}/users/{user_id}/tool-calls',
  operationId: 'listToolCalls',
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
  handler: async ({ database }, { path, query }) => {
    const page = readPage(query, (limit, after) => listUnknownCalls(database.reads, path, limit, after));
    return { kind: 'value', value: await page };
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
  by: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe('Who has looked, where a key or an anonymous caller says it for a person [the user of the session].'),
});

const settleToolCall = room.operation({
  method: 'post',
  path: '/apps/{app_name}/users/{user_id}/sessions/{session_id}/tool-calls/{call_id}/settle',
  operationId: 'settleToolCall',
  summary: 'Settle a tool call that may have acted',
  description:
    'A person has looked what became of it. Where the invocation waits for that, it answers the task, as far as its ' +
    'rules let one person, and goes on in the background once all that it waits for is answered.',
  parameters: { path: toolCallPath },
  body: { schema: settleSchema, required: true, example: { outcome: 'done', response: { charged: 3 } } },
  success: { schema: toolCallSchema, description: 'The call.', example: { ...TOOL_CALL_EXAMPLE, state: 'settled' } },
  errors: {
    403: 'Others have to answer the task about it.',
    404: 'No such call.',
    409: 'It is not unknown, its task was answered before, or nothing waits that could run it again.',
  },
  absent: ({ callId }) => `Tool call not found: ${callId}`,
  handler: async (context, { path, body, principal, notFound }) => {
    const { callId, ...key } = path;
    const call = await context.database.transaction(async (tx) => {
      const row = await lockCall(tx, key, callId);
      if (!row) throw notFound();
      const { status, state } = row;
      if (state !== 'unknown') throw new ConflictError(`The call is ${state}.`);
      if (isActive({ status })) throw new ConflictError('Its invocation has not ended.');
      const questionId = status === 'paused' ? await findQuestion(tx, key, row) : undefined;
      const task = questionId === undefined ? undefined : await findTaskOfCall(tx, key, row.invocationId, questionId);
      if (task?.shown.kind === 'effect') {
        // Only a person who may answer the task may settle its call. Otherwise this throws and nothing is written.
        const answer = { response: { confirmed: true }, via: 'tasks' };
        await changeTask(tx, task, toPerson(principal, body.by, key), undefined, 'settle', answer);
      } else if (body.outcome === 'run_again') throw new ConflictError('Nothing waits that could run it again.');
      await settleCall(tx, key, row, toSettled(body));
      return { ...row, state: 'settled' as const };
    });
    context.notifications.publish(TASKS_TOPIC);
    const { status: _, ...wire } = call;
    return { kind: 'value', value: wire };
  },
});

/** Returns the response that the model receives; `undefined` if the call is to be repeated. */
function toSettled({ outcome, response }: z.output<typeof settleSchema>): JsonObject | undefined {
  if (outcome === 'run_again') return undefined;
  if (outcome === 'not_done') return { error: 'This call did not take effect: a person has looked.' };
  return toResponse(response ?? 'done');
}

/** @returns the call id of the confirmation request that asks about the call, or `undefined` */
async function findQuestion(
  tx: Database,
  key: SessionKey,
  { invocationId, callId }: ToolCallRow,
): Promise<string | undefined> {
  const events = await listInvocationEvents(tx, key, invocationId);
  const questions = events.flatMap((event) => listConfirmationRequests(event));
  return questions.findLast((question) => getConfirmedId(question) === callId)?.id ?? undefined;
}

export const toolCallOperations = [listToolCalls, settleToolCall];
