import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { abortError } from '../../core/abort.ts';
import type { JsonObject } from '../../core/content.ts';
import { AgentError, UnknownOutcomeError } from '../../core/errors.ts';
import { currentContext } from '../../platform/context.ts';
import { createEgress, type Egress, type EgressPolicy } from '../../platform/net/egress.ts';
import type { AgentDefinition, RemoteAgent } from '../definition/agent.ts';
import { type Tool, type ToolContext, toParameters } from '../definition/tool.ts';
import { requestConfirmation } from '../mcp/mcp-question.ts';
import { fromOldResult, OLD_METHODS, toOldMessage } from './old-wire.ts';
import {
  type A2aTask,
  CALLS,
  callsSchema,
  CHAIN,
  chainSchema,
  CHAIN_STATE,
  isRunning,
  isWaiting,
  joinText,
  MAX_CHAIN,
  OLD_VERSION,
  replySchema,
  toMembers,
  VERSION,
} from './wire.ts';

const CARD = '.well-known/agent-card.json';
/** Time limit of one request, a stream left out. */
const REQUEST_MS = 30_000;
/** Pause between two requests about a task, and how often one is sent that is not answered: for about 20 s. */
const POLL_MS = { least: 100, most: 5_000 };
const toNext = (pauseMs: number) => Math.min(2 * pauseMs, POLL_MS.most);
const MAX_TRIES = 10;
/** A state of a task that waits, as a stream tells it, and the most characters of it. */
const WAITS = /"state": ?"(?:TASK_STATE_)?(?:INPUT|AUTH)[_-]REQUIRED"/i;
const MAX_STATE = 40;
/** Statuses of a service that starts or stops. */
const AWAY = new Set([502, 503, 504]);
/** Most characters of an answer that the model is given, and of what is asked. */
const MAX_TEXT = 100_000;
const MAX_QUESTION = 4_000;
/** A2A's code for what cannot be done with a task as it stands. */
const UNSUPPORTED = -32_004;

const address = z.looseObject({ url: z.url(), protocolBinding: z.string(), protocolVersion: z.string() });
const cardSchema = z.looseObject({
  supportedInterfaces: z.array(address).optional(),
  capabilities: z.looseObject({ streaming: z.boolean().optional() }).optional(),
  url: z.url().optional(),
  preferredTransport: z.string().optional(),
  protocolVersion: z.string().optional(),
});
const answerSchema = z.looseObject({
  result: z.unknown().optional(),
  error: z.looseObject({ code: z.number(), message: z.string() }).optional(),
});
/** The part of a call that asked a person which the next attempt needs. */
const keptSchema = z.looseObject({ taskId: z.string(), asked: z.string(), calls: z.array(z.looseObject({})) });

/** An error that the other agent answered. */
class RefusedError extends AgentError {
  readonly a2aCode: number;

  constructor(name: string, { code, message }: { code: number; message: string }) {
    super('remote_failed', `The agent \`${name}\` refused: ${message.slice(0, MAX_QUESTION)}`);
    this.a2aCode = code;
  }
}

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
      return await new RemoteCall(name, remote, egress, context).ask(String(args['request']));
    } finally {
      await egress.close();
    }
  },
});

/** One call of a remote agent. */
class RemoteCall {
  readonly #name: string;
  readonly #remote: RemoteAgent;
  readonly #egress: Egress;
  readonly #context: ToolContext;
  #to: { url: string; isOld: boolean; streams: boolean } = { url: '', isOld: false, streams: false };

  constructor(name: string, remote: RemoteAgent, egress: Egress, context: ToolContext) {
    this.#name = name;
    this.#remote = remote;
    this.#egress = egress;
    this.#context = context;
  }

  /** Asks, or goes on with what an earlier attempt began. @returns the response of the call */
  async ask(request: string): Promise<JsonObject> {
    const { confirmation, kept, operationId } = this.#context;
    this.#to = await this.#findInterface();
    const asked = keptSchema.safeParse(confirmation?.kept).data;
    const known = asked?.taskId ?? kept?.['taskId'];
    const sent = asked
      ? await this.#answer(asked)
      : typeof known === 'string'
        ? known
        : await this.#send({ messageId: operationId, parts: [{ text: request }] });
    return typeof sent === 'string' ? this.#follow(sent) : sent;
  }

  /** Finds where the agent is spoken to, in its card; it may name no other origin. */
  async #findInterface(): Promise<{ url: string; isOld: boolean; streams: boolean }> {
    const { url } = this.#remote;
    const at = url.endsWith('.json') ? url : new URL(CARD, url.endsWith('/') ? url : `${url}/`).href;
    const headers = { accept: 'application/json', 'a2a-version': VERSION };
    const { status, body } = await this.#ask(at, { headers });
    if (status !== 200) throw this.#failed(`its card is answered with HTTP ${status}`);
    const card = cardSchema.safeParse(body).data;
    const { supportedInterfaces = [], url: oldUrl, preferredTransport = 'JSONRPC', protocolVersion = '' } = card ?? {};
    const old = oldUrl ? [{ url: oldUrl, protocolBinding: preferredTransport, protocolVersion }] : [];
    const all = [...supportedInterfaces, ...old].filter(({ protocolBinding }) => protocolBinding === 'JSONRPC');
    const speaks = (version: string) => all.find((each) => each.protocolVersion.startsWith(version));
    const found = speaks(VERSION) ?? speaks(OLD_VERSION);
    if (!found) throw this.#failed(`its card names no JSON-RPC of A2A ${VERSION} or ${OLD_VERSION}`);
    if (new URL(found.url).origin !== new URL(at).origin) throw this.#failed('its card leads to another host');
    const isOld = !found.protocolVersion.startsWith(VERSION);
    return { url: found.url, isOld, streams: card?.capabilities?.streaming === true };
  }

  #failed(why: string): AgentError {
    return new AgentError('remote_failed', `The agent \`${this.#name}\` cannot be asked: ${why}.`);
  }

  #fetch(url: string, init: RequestInit, signal: AbortSignal): Promise<Response> {
    const { traceparent } = currentContext();
    const headers = { ...this.#remote.headers, ...(traceparent && { traceparent }), ...(init.headers as object) };
    return this.#egress.fetch(url, { ...init, redirect: 'manual', signal, headers });
  }

  /**
   * Sends a request until it is answered: a message that comes twice is the same task there.
   * @throws {UnknownOutcomeError} where it is not known what came of it
   */
  async #ask(url: string, init: RequestInit): Promise<{ status: number; body: unknown }> {
    const { signal } = this.#context;
    for (let pauseMs = POLL_MS.least, tries = 1; ; pauseMs = toNext(pauseMs), tries += 1) {
      const limited = AbortSignal.any([signal, AbortSignal.timeout(REQUEST_MS)]);
      const [answer, cause] = await this.#fetch(url, init, limited)
        .then(async (response) => [{ status: response.status, text: await response.text() }] as const)
        .catch((error: unknown) => [undefined, error] as const);
      if (answer && !AWAY.has(answer.status))
        return { status: answer.status, body: await new Response(answer.text).json().catch(() => undefined) };
      if (cause instanceof AgentError) throw cause;
      if (signal.aborted || tries >= MAX_TRIES)
        throw new UnknownOutcomeError('remote_failed', `The agent \`${this.#name}\` did not answer.`, { cause });
      await sleep(pauseMs, undefined, { signal });
    }
  }

  #toRequest(method: string, params: JsonObject, accept = 'application/json'): RequestInit {
    const { isOld } = this.#to;
    const body = { jsonrpc: '2.0', id: 1, method: isOld ? OLD_METHODS[method] : method, params };
    const headers = { 'content-type': 'application/json', accept, 'a2a-version': isOld ? OLD_VERSION : VERSION };
    return { method: 'POST', headers, body: JSON.stringify(body) };
  }

  /** Calls a method. @throws {RefusedError} */
  async #call(method: string, params: JsonObject): Promise<JsonObject> {
    const { status, body } = await this.#ask(this.#to.url, this.#toRequest(method, params));
    const answer = answerSchema.safeParse(body).data;
    if (answer?.error) throw new RefusedError(this.#name, answer.error);
    if (status !== 200 || !answer) throw this.#failed(`it answered HTTP ${status}`);
    return toMembers(answer.result);
  }

  /** Sends a message. @returns the id of its task, or the answer where there is none */
  async #send(message: JsonObject): Promise<string | JsonObject> {
    const { state, modelCalls } = this.#context;
    if (modelCalls.left < 1) throw this.#failed('no model call is left to this invocation');
    const chain = chainSchema.safeParse(state[CHAIN_STATE]).data ?? [];
    if (chain.includes(this.#remote.url) || chain.length >= MAX_CHAIN)
      throw this.#failed('it is one of the agents that wait for this answer, or there are too many of them');
    const sent = {
      role: 'ROLE_USER',
      ...message,
      metadata: { [CHAIN]: [...chain, this.#remote.url], [CALLS]: modelCalls.left },
    };
    const result = this.#to.isOld
      ? await this.#call('SendMessage', { message: toOldMessage(sent), configuration: { blocking: false } })
      : await this.#call('SendMessage', { message: sent, configuration: { returnImmediately: true } });
    const { task, message: said } = this.#read(result);
    if (said) return { result: joinText(said.parts).slice(0, MAX_TEXT) };
    if (!task) throw this.#failed('it answered neither with a task nor with a message');
    await this.#context.keep({ taskId: task.id });
    return task.id;
  }

  #read(result: JsonObject) {
    const parsed = replySchema.safeParse(this.#to.isOld ? fromOldResult(result) : result);
    if (!parsed.success) throw this.#failed('what it answered is not of the protocol');
    return parsed.data;
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
        const found = await this.#call('GetTask', { id: taskId });
        const { task } = this.#read(this.#to.isOld ? found : { task: found });
        if (!task) throw this.#failed('it knows no such task');
        if (!isRunning(task)) return this.#toResponse(task);
        if (this.#to.streams) await this.#listen(taskId);
        await sleep(pauseMs, undefined, { signal });
      }
    } finally {
      // Where this process ends, another one goes on.
      if (signal.aborted && abortError(signal).code !== 'interrupted')
        await this.#fetch(
          this.#to.url,
          this.#toRequest('CancelTask', { id: taskId }),
          AbortSignal.timeout(POLL_MS.most),
        ).catch(() => undefined);
    }
  }

  /** Waits while a stream lasts, or until its task waits for us: what it is about is read of the task. */
  async #listen(taskId: string): Promise<void> {
    try {
      const { signal } = this.#context;
      const request = this.#toRequest('SubscribeToTask', { id: taskId }, 'text/event-stream');
      const response = await this.#fetch(this.#to.url, request, signal);
      let said = '';
      for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
        said += piece;
        if (WAITS.test(said)) return;
        said = said.slice(-MAX_STATE);
      }
    } catch (error) {
      // A stream that breaks, or says more than is let in, is no end of the task.
      if (this.#context.signal.aborted) throw error;
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
        `The agent \`${this.#name}\` did not succeed: ${(said || task.status.state).slice(0, MAX_QUESTION)}`,
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
    const hint = [`The agent \`${this.#name}\` asks: ${said.slice(0, MAX_QUESTION)}`, ...links].join('\n');
    const schema = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] };
    const kept = {
      taskId,
      asked: message?.messageId ?? '',
      calls: calls.map(({ callId, kind }) => ({ callId, kind })),
    };
    return requestConfirmation(this.#context, { hint, kept, ...(needsAnswer && { payload: { answer: '' }, schema }) });
  }
}
