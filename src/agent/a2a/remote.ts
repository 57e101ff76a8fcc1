import { setTimeout as sleep } from 'node:timers/promises';
import { type Part, SendMessageRequest, type Task, TaskState, taskStateToJSON } from '@a2a-js/sdk';
import type { Transport } from '@a2a-js/sdk/client';
import { UnsupportedOperationError } from '@a2a-js/sdk/errors';
import { z } from 'zod';
import { abortError } from '../../core/abort.ts';
import { type JsonObject, toMembers } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import { createEgress, type EgressPolicy } from '../../platform/net/egress.ts';
import type { AgentDefinition, RemoteAgent } from '../definition/agent.ts';
import { type Tool, type ToolContext, toParameters } from '../definition/tool.ts';
import { requestConfirmation } from '../mcp/mcp-question.ts';
import { awaitAnswer, connect, MAX_SAID, type Peer, POLL_MS, toFailure, toNext } from './connection.ts';
import { CALLS, callsSchema, CHAIN, chainSchema, CHAIN_STATE, MAX_CHAIN, TIME } from './wire.ts';

/** Most characters of an answer that the model is given. */
const MAX_TEXT = 100_000;
/** Most characters of the id of a task, or of a message. */
const MAX_ID = 4_096;
/** The part of a call that asked a person which the next attempt needs. */
const keptSchema = z.looseObject({ taskId: z.string(), asked: z.string(), calls: z.array(z.looseObject({})) });

const getState = ({ status }: Pick<Task, 'status'>) => status?.state ?? TaskState.UNRECOGNIZED;
const RUNNING = [TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING];
const WAITING = [TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED];

const joinText = (parts: readonly Part[]): string =>
  parts.map(({ content }) => (content?.$case === 'text' ? content.value : '')).join('');
const listData = (parts: readonly Part[]): unknown[] =>
  parts.flatMap(({ content }) => (content?.$case === 'data' ? [content.value] : []));

/** Returns an agent of another service, which speaks A2A, as a tool of an agent here. */
export const remoteTool = (
  { name, description }: Pick<AgentDefinition, 'name' | 'description'>,
  remote: RemoteAgent,
  policy: EgressPolicy,
): Tool => ({
  name,
  description: description || `Asks the agent ${name}.`,
  parameters: toParameters({ request: { type: 'string', minLength: 1, maxLength: MAX_TEXT } }, 'request'),
  needsConfirmation: false,
  // The message has the id of the operation: sent again it is the same task, and that is found again.
  effect: 'idempotent',
  calls: 'server',
  async run(args, context) {
    const egress = createEgress(policy, context.session.userId);
    const peer = { name, remote, egress, signal: context.signal };
    try {
      return await ask({ ...peer, context, ...(await connect(peer)) }, String(args['request']));
    } finally {
      await egress.close();
    }
  },
});

/** One call of a remote agent, and the way to it. */
interface RemoteCall extends Peer {
  context: ToolContext;
  transport: Transport;
  streams: boolean;
}

/** Asks, or goes on with what an earlier attempt began. @returns the response of the call */
async function ask(call: RemoteCall, request: string): Promise<JsonObject> {
  const { confirmation, kept, operationId } = call.context;
  const asked = keptSchema.safeParse(confirmation?.kept).data;
  if (asked) await bringAnswer(call, asked);
  const known = asked?.taskId ?? kept?.['taskId'];
  const first = { messageId: operationId, parts: [{ text: request }] };
  const sent = typeof known === 'string' ? known : await send(call, first);
  return typeof sent === 'string' ? follow(call, sent) : sent;
}

/** Sends a message, and does not wait for its task. @returns the task's id, or the answer where there is none */
async function send(call: RemoteCall, said: JsonObject): Promise<string | JsonObject> {
  const { state, modelCalls, endTime } = call.context;
  if (modelCalls.left < 1) throw toFailure(call, 'no model call is left to this invocation');
  const chain = chainSchema.safeParse(state[CHAIN_STATE]).data ?? [];
  const { url } = call.remote;
  if (chain.includes(url) || chain.length >= MAX_CHAIN)
    throw toFailure(call, 'it is one of the agents that wait for this answer, or there are too many of them');
  const timeMs = Math.max(1, Math.floor((endTime ?? Infinity) - performance.now()));
  const metadata = { [CHAIN]: [...chain, url], [CALLS]: modelCalls.left, ...(endTime && { [TIME]: timeMs }) };
  const message = { role: 'ROLE_USER', ...said, metadata };
  const request = SendMessageRequest.fromJSON({ message, configuration: { returnImmediately: true } });
  const answer = await awaitAnswer(call, call.transport.sendMessage(request));
  if ('messageId' in answer) return { result: joinText(answer.parts).slice(0, MAX_TEXT) };
  if (!answer.id || answer.id.length > MAX_ID) throw toFailure(call, 'its task has no id of a usual length');
  await call.context.keep({ taskId: answer.id });
  return answer.id;
}

/** Brings the answer of a person to a task; one that has it already goes on. */
async function bringAnswer(call: RemoteCall, { taskId, asked, calls }: z.output<typeof keptSchema>): Promise<void> {
  const { operationId, confirmation } = call.context;
  const { confirmed = false, payload } = confirmation ?? {};
  const result = typeof payload?.['answer'] === 'string' ? payload['answer'] : '';
  const declined = { error: 'The person declined to answer.' };
  const toResponse = ({ kind }: JsonObject) =>
    kind === 'confirmation' ? { confirmed, ...payload } : confirmed ? { result } : declined;
  const text = !confirmed ? declined.error : result || 'yes';
  const parts = calls.map((each) => ({ data: { callId: each['callId'], response: toResponse(each) } }));
  const messageId = `${operationId}/${asked}`;
  await send(call, { taskId, messageId, parts: parts.length ? parts : [{ text }] }).catch((error: unknown) => {
    if (!(error instanceof AgentError && error.cause instanceof UnsupportedOperationError)) throw error;
  });
}

/** Follows a task to its end, or to what it asks; where the invocation ends for good, it is cancelled. */
async function follow(call: RemoteCall, id: string): Promise<JsonObject> {
  const { transport, streams, signal } = call;
  const task = { tenant: '', id };
  try {
    for (let pauseMs = POLL_MS.least; ; pauseMs = toNext(pauseMs)) {
      const found = await awaitAnswer(call, transport.getTask(task));
      if (!RUNNING.includes(getState(found))) return toResult(call, found);
      // A stream that breaks, or says more than is let in, is no end of the task.
      if (streams) await listen(transport, id).catch(() => undefined);
      await sleep(pauseMs, undefined, { signal });
    }
  } finally {
    // Where this process ends, another one goes on.
    if (signal.aborted && abortError(signal).code !== 'interrupted') {
      const limit = { signal: AbortSignal.timeout(POLL_MS.most) };
      await transport.cancelTask({ ...task, metadata: undefined }, limit).catch(() => undefined);
    }
  }
}

/** Waits while a stream lasts, or until its task waits for us: what it is about is read of the task. */
async function listen(transport: Transport, id: string): Promise<void> {
  for await (const { payload } of transport.resubscribeTask({ tenant: '', id }))
    if ((payload?.$case === 'task' || payload?.$case === 'statusUpdate') && WAITING.includes(getState(payload.value)))
      return;
}

function toResult(call: RemoteCall, task: Task): JsonObject {
  const { status, artifacts, metadata } = task;
  const said = joinText(status?.message?.parts ?? []);
  if (WAITING.includes(getState(task))) return askPerson(call, task);
  call.context.modelCalls.add(callsSchema.safeParse(metadata?.[CALLS]).data ?? 0);
  if (getState(task) !== TaskState.TASK_STATE_COMPLETED) {
    const why = (said || taskStateToJSON(getState(task))).slice(0, MAX_SAID);
    throw new AgentError('remote_failed', `The agent \`${call.name}\` did not succeed: ${why}`);
  }
  const texts = artifacts.map(({ parts }) => joinText(parts)).filter(Boolean);
  const values = artifacts.flatMap(({ parts }) => listData(parts));
  const isFine = values.length > 0 && JSON.stringify(values).length <= MAX_TEXT;
  return { result: (texts.join('\n') || said).slice(0, MAX_TEXT), ...(isFine && { data: values }) };
}

/** Puts the question of the other agent to the person of the session, as its words. */
function askPerson({ name, context }: RemoteCall, { id: taskId, status }: Task): JsonObject {
  const { parts = [], messageId = '' } = status?.message ?? {};
  const values = listData(parts).map(toMembers);
  const calls = values.flatMap(({ callId, kind }) => (callId ? [{ callId, kind }] : []));
  const links = parts.flatMap(({ content }) => (content?.$case === 'url' ? [content.value] : []));
  const needsAnswer = calls.length === 0 || calls.some(({ kind }) => kind !== 'confirmation');
  const hint = [`The agent \`${name}\` asks: ${joinText(parts).slice(0, MAX_SAID)}`, ...links].join('\n');
  const schema = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] };
  const kept = { taskId, asked: messageId.slice(0, MAX_ID), calls };
  return requestConfirmation(context, { hint, kept, ...(needsAnswer && { payload: { answer: '' }, schema }) });
}
