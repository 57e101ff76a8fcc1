import { setTimeout as sleep } from 'node:timers/promises';
import { type Part, type Task, TaskState, taskStateToJSON } from '@a2a-js/sdk';
import { UnsupportedOperationError } from '@a2a-js/sdk/errors';
import { z } from 'zod';
import { abortError } from '../../core/abort.ts';
import { type JsonObject, toMembers } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import { createEgress, type EgressPolicy } from '../../platform/net/egress.ts';
import type { AgentDefinition, RemoteAgent } from '../definition/agent.ts';
import { type Tool, type ToolContext, toParameters } from '../definition/tool.ts';
import { requestConfirmation } from '../mcp/mcp-question.ts';
import { A2aConnection, isWaiting, MAX_SAID, POLL_MS, toNext } from './connection.ts';
import { CALLS, callsSchema, CHAIN, chainSchema, CHAIN_STATE, MAX_CHAIN } from './wire.ts';

/** Most characters of an answer that the model is given. */
const MAX_TEXT = 100_000;
/** Most characters of the id of a task, or of a message. */
const MAX_ID = 4_096;
/** The part of a call that asked a person which the next attempt needs. */
const keptSchema = z.looseObject({ taskId: z.string(), asked: z.string(), calls: z.array(z.looseObject({})) });

const RUNNING = new Set<TaskState | undefined>([TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING]);

const listData = (parts: readonly Part[]): unknown[] =>
  parts.flatMap(({ content }) => (content?.$case === 'data' ? [content.value] : []));
const joinText = (parts: readonly Part[]): string =>
  parts.map(({ content }) => (content?.$case === 'text' ? content.value : '')).join('');

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
    try {
      const to = new A2aConnection(name, remote, egress, context.signal);
      return await new RemoteCall(to, context).ask(String(args['request']));
    } finally {
      await egress.close();
    }
  },
});

/** One call of a remote agent. */
class RemoteCall {
  readonly #context: ToolContext;
  readonly #to: A2aConnection;

  constructor(to: A2aConnection, context: ToolContext) {
    this.#to = to;
    this.#context = context;
  }

  /** Asks, or goes on with what an earlier attempt began. @returns the response of the call */
  async ask(request: string): Promise<JsonObject> {
    const { confirmation, kept, operationId } = this.#context;
    await this.#to.open();
    const asked = keptSchema.safeParse(confirmation?.kept).data;
    if (asked) await this.#answer(asked);
    const known = asked?.taskId ?? kept?.['taskId'];
    const first = { messageId: operationId, parts: [{ text: request }] };
    const sent = typeof known === 'string' ? known : await this.#send(first);
    return typeof sent === 'string' ? this.#follow(sent) : sent;
  }

  /** Sends a message. @returns the id of its task, or the answer where there is none */
  async #send(message: JsonObject): Promise<string | JsonObject> {
    const { state, modelCalls } = this.#context;
    if (modelCalls.left < 1) throw this.#to.failed('no model call is left to this invocation');
    const chain = chainSchema.safeParse(state[CHAIN_STATE]).data ?? [];
    if (chain.includes(this.#to.remote.url) || chain.length >= MAX_CHAIN)
      throw this.#to.failed('it is one of the agents that wait for this answer, or there are too many of them');
    const metadata = { [CHAIN]: [...chain, this.#to.remote.url], [CALLS]: modelCalls.left };
    const answer = await this.#to.send({ role: 'ROLE_USER', ...message, metadata });
    if ('messageId' in answer) return { result: joinText(answer.parts).slice(0, MAX_TEXT) };
    if (!answer.id || answer.id.length > MAX_ID) throw this.#to.failed('its task has no id of a usual length');
    await this.#context.keep({ taskId: answer.id });
    return answer.id;
  }

  /** Brings the answer of a person to a task; one that has it already goes on. */
  async #answer({ taskId, asked, calls }: z.output<typeof keptSchema>): Promise<void> {
    const { confirmed = false, payload } = this.#context.confirmation ?? {};
    const answer = typeof payload?.['answer'] === 'string' ? payload['answer'] : '';
    const declined = { error: 'The person declined to answer.' };
    const toResponse = ({ kind }: JsonObject) =>
      kind === 'confirmation' ? { confirmed, ...payload } : confirmed ? { result: answer } : declined;
    const text = !confirmed ? declined.error : answer || 'yes';
    const parts = calls.map((call) => ({ data: { callId: call['callId'], response: toResponse(call) } }));
    const messageId = `${this.#context.operationId}/${asked}`;
    await this.#send({ taskId, messageId, parts: parts.length ? parts : [{ text }] }).catch((error: unknown) => {
      if (!(error instanceof AgentError && error.cause instanceof UnsupportedOperationError)) throw error;
    });
  }

  /** Follows a task to its end, or to what it asks; where the invocation ends for good, it is cancelled. */
  async #follow(taskId: string): Promise<JsonObject> {
    const { signal } = this.#context;
    try {
      for (let pauseMs = POLL_MS.least; ; pauseMs = toNext(pauseMs)) {
        const task = await this.#to.getTask(taskId);
        if (!RUNNING.has(task.status?.state)) return this.#toResponse(task);
        await this.#to.listen(taskId);
        await sleep(pauseMs, undefined, { signal });
      }
    } finally {
      // Where this process ends, another one goes on.
      if (signal.aborted && abortError(signal).code !== 'interrupted') await this.#to.cancel(taskId);
    }
  }

  #toResponse(task: Task): JsonObject {
    const { status, artifacts, metadata } = task;
    const said = joinText(status?.message?.parts ?? []);
    if (isWaiting(task)) return this.#askPerson(task, said);
    this.#context.modelCalls.add(callsSchema.safeParse(metadata?.[CALLS]).data ?? 0);
    if (status?.state !== TaskState.TASK_STATE_COMPLETED) {
      const why = said || taskStateToJSON(status?.state ?? TaskState.TASK_STATE_UNSPECIFIED);
      throw new AgentError(
        'remote_failed',
        `The agent \`${this.#to.name}\` did not succeed: ${why.slice(0, MAX_SAID)}`,
      );
    }
    const texts = artifacts.map(({ parts }) => joinText(parts)).filter(Boolean);
    const values = artifacts.flatMap(({ parts }) => listData(parts));
    const isFine = values.length > 0 && JSON.stringify(values).length <= MAX_TEXT;
    return { result: (texts.join('\n') || said).slice(0, MAX_TEXT), ...(isFine && { data: values }) };
  }

  /** Puts the question of the other agent to the person of the session, as its words. */
  #askPerson({ id: taskId, status }: Task, said: string): JsonObject {
    const { parts = [], messageId = '' } = status?.message ?? {};
    const values = listData(parts).map(toMembers);
    const calls = values.flatMap(({ callId, kind }) => (callId ? [{ callId, kind }] : []));
    const links = parts.flatMap(({ content }) => (content?.$case === 'url' ? [content.value] : []));
    const needsAnswer = calls.length === 0 || calls.some(({ kind }) => kind !== 'confirmation');
    const hint = [`The agent \`${this.#to.name}\` asks: ${said.slice(0, MAX_SAID)}`, ...links].join('\n');
    const schema = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] };
    const kept = { taskId, asked: messageId.slice(0, MAX_ID), calls };
    return requestConfirmation(this.#context, { hint, kept, ...(needsAnswer && { payload: { answer: '' }, schema }) });
  }
}
