import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { abortError } from '../../core/abort.ts';
import type { JsonObject } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';
import { createEgress, type EgressPolicy } from '../../platform/net/egress.ts';
import type { AgentDefinition, RemoteAgent } from '../definition/agent.ts';
import { type Tool, type ToolContext, toParameters } from '../definition/tool.ts';
import { requestConfirmation } from '../mcp/mcp-question.ts';
import { A2aConnection, MAX_SAID, POLL_MS, RefusedError, toNext } from './connection.ts';
import { type A2aTask, CALLS, callsSchema, CHAIN, chainSchema, CHAIN_STATE, MAX_CHAIN } from './wire.ts';
import { isRunning, isWaiting, joinText, toMembers } from './wire.ts';

/** Most characters of an answer that the model is given. */
const MAX_TEXT = 100_000;
/** A2A's code for what cannot be done with a task as it stands. */
const UNSUPPORTED = -32_004;
/** The part of a call that asked a person which the next attempt needs. */
const keptSchema = z.looseObject({ taskId: z.string(), asked: z.string(), calls: z.array(z.looseObject({})) });

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
      return await new RemoteCall(name, remote, to, context).ask(String(args['request']));
    } finally {
      await egress.close();
    }
  },
});

/** One call of a remote agent. */
class RemoteCall {
  readonly #name: string;
  readonly #remote: RemoteAgent;
  readonly #context: ToolContext;
  readonly #to: A2aConnection;

  constructor(name: string, remote: RemoteAgent, to: A2aConnection, context: ToolContext) {
    this.#name = name;
    this.#remote = remote;
    this.#to = to;
    this.#context = context;
  }

  /** Asks, or goes on with what an earlier attempt began. @returns the response of the call */
  async ask(request: string): Promise<JsonObject> {
    const { confirmation, kept, operationId } = this.#context;
    await this.#to.open();
    const asked = keptSchema.safeParse(confirmation?.kept).data;
    const known = asked?.taskId ?? kept?.['taskId'];
    const sent = asked
      ? await this.#answer(asked)
      : typeof known === 'string'
        ? known
        : await this.#send({ messageId: operationId, parts: [{ text: request }] });
    return typeof sent === 'string' ? this.#follow(sent) : sent;
  }

  /** Sends a message. @returns the id of its task, or the answer where there is none */
  async #send(message: JsonObject): Promise<string | JsonObject> {
    const { state, modelCalls } = this.#context;
    if (modelCalls.left < 1) throw this.#to.failed('no model call is left to this invocation');
    const chain = chainSchema.safeParse(state[CHAIN_STATE]).data ?? [];
    if (chain.includes(this.#remote.url) || chain.length >= MAX_CHAIN)
      throw this.#to.failed('it is one of the agents that wait for this answer, or there are too many of them');
    const sent = {
      role: 'ROLE_USER',
      ...message,
      metadata: { [CHAIN]: [...chain, this.#remote.url], [CALLS]: modelCalls.left },
    };
    const { task, message: said } = await this.#to.send(sent);
    if (said) return { result: joinText(said.parts).slice(0, MAX_TEXT) };
    if (!task) throw this.#to.failed('it answered neither with a task nor with a message');
    await this.#context.keep({ taskId: task.id });
    return task.id;
  }

  /** Brings the answer of a person to a task; one that has it already goes on. */
  async #answer({ taskId, asked, calls }: z.output<typeof keptSchema>): Promise<string> {
    const { confirmed = false, payload } = this.#context.confirmation ?? {};
    const answer = typeof payload?.['answer'] === 'string' ? payload['answer'] : '';
    const declined = { error: 'The person declined to answer.' };
    const toResponse = ({ kind }: JsonObject) =>
      kind === 'confirmation' ? { confirmed, ...payload } : confirmed ? { result: answer } : declined;
    const text = !confirmed ? declined.error : answer || 'yes';
    const parts = calls.map((call) => ({ data: { callId: call['callId'], response: toResponse(call) } }));
    const message = {
      taskId,
      messageId: `${this.#context.operationId}/${asked}`,
      parts: parts.length ? parts : [{ text }],
    };
    await this.#send(message).catch((error: unknown) => {
      if (!(error instanceof RefusedError) || error.a2aCode !== UNSUPPORTED) throw error;
    });
    return taskId;
  }

  /** Follows a task to its end, or to what it asks; where the invocation ends for good, it is cancelled. */
  async #follow(taskId: string): Promise<JsonObject> {
    const { signal } = this.#context;
    try {
      for (let pauseMs = POLL_MS.least; ; pauseMs = toNext(pauseMs)) {
        const task = await this.#to.getTask(taskId);
        if (!isRunning(task)) return this.#toResponse(task);
        await this.#to.listen(taskId);
        await sleep(pauseMs, undefined, { signal });
      }
    } finally {
      // Where this process ends, another one goes on.
      if (signal.aborted && abortError(signal).code !== 'interrupted') await this.#to.cancel(taskId);
    }
  }

  #toResponse(task: A2aTask): JsonObject {
    const said = joinText(task.status.message?.parts ?? []);
    if (isWaiting(task)) return this.#askPerson(task, said);
    const { data: calls = 0 } = callsSchema.safeParse(task.metadata?.[CALLS]);
    this.#context.modelCalls.add(calls);
    const artifacts = task.artifacts ?? [];
    const text =
      artifacts
        .map(({ parts }) => joinText(parts))
        .filter(Boolean)
        .join('\n') || said;
    if (task.status.state !== 'TASK_STATE_COMPLETED')
      throw new AgentError(
        'remote_failed',
        `The agent \`${this.#name}\` did not succeed: ${(said || task.status.state).slice(0, MAX_SAID)}`,
      );
    const values = artifacts.flatMap(({ parts }) => parts.flatMap(({ data }) => (data == null ? [] : [data])));
    const isFine = values.length > 0 && JSON.stringify(values).length <= MAX_TEXT;
    return { result: text.slice(0, MAX_TEXT), ...(isFine ? { data: values } : {}) };
  }

  /** Puts the question of the other agent to the person of the session, as its words. */
  #askPerson({ id: taskId, status: { message } }: A2aTask, said: string): JsonObject {
    const parts = message?.parts ?? [];
    const calls = parts.flatMap(({ data }) => (toMembers(data)['callId'] ? [toMembers(data)] : []));
    const links = parts.flatMap(({ url }) => url ?? []);
    const needsAnswer = calls.length === 0 || calls.some(({ kind }) => kind !== 'confirmation');
    const hint = [`The agent \`${this.#name}\` asks: ${said.slice(0, MAX_SAID)}`, ...links].join('\n');
    const schema = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] };
    const kept = {
      taskId,
      asked: message?.messageId ?? '',
      calls: calls.map(({ callId, kind }) => ({ callId, kind })),
    };
    return requestConfirmation(this.#context, { hint, kept, ...(needsAnswer && { payload: { answer: '' }, schema }) });
  }
}
