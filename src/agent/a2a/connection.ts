import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { AgentError, UnknownOutcomeError } from '../../core/errors.ts';
import { currentContext } from '../../platform/context.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { RemoteAgent } from '../definition/agent.ts';
import { fromOldResult, OLD_METHODS, toOldMessage } from './old-wire.ts';
import { type A2aTask, OLD_VERSION, replySchema, toMembers, VERSION } from './wire.ts';

const CARD = '.well-known/agent-card.json';
/** Time limit of one request, a stream left out. */
const REQUEST_MS = 30_000;
/** Pauses between two requests about a task. */
export const POLL_MS = { least: 100, most: 5_000 };
/** Returns the pause after a pause. */
export const toNext = (pauseMs: number): number => Math.min(2 * pauseMs, POLL_MS.most);
/** Number of times that a request without an answer is sent: for about 20 s. */
const MAX_TRIES = 10;
/** Statuses of a service that starts or stops. */
const AWAY = new Set([502, 503, 504]);
/** A state of a task that waits, as a stream tells it, and the most characters of it. */
const WAITS = /"state": ?"(?:TASK_STATE_)?(?:INPUT|AUTH)[_-]REQUIRED"/i;
const MAX_STATE = 40;
/** Most characters of what the other agent says of itself. */
export const MAX_SAID = 4_000;

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

/** An error that the other agent answered. */
export class RefusedError extends AgentError {
  readonly a2aCode: number;

  constructor(name: string, { code, message }: { code: number; message: string }) {
    super('remote_failed', `The agent \`${name}\` refused: ${message.slice(0, MAX_SAID)}`);
    this.a2aCode = code;
  }
}

/** A connection to an agent of another service, by JSON-RPC of either version; what it answers is that of 1.0. */
export class A2aConnection {
  readonly #name: string;
  readonly #remote: RemoteAgent;
  readonly #egress: Egress;
  readonly #signal: AbortSignal;
  #to = { url: '', isOld: false, streams: false };

  constructor(name: string, remote: RemoteAgent, egress: Egress, signal: AbortSignal) {
    this.#name = name;
    this.#remote = remote;
    this.#egress = egress;
    this.#signal = signal;
  }

  /** Finds where the agent is spoken to, in its card; it may name no other origin. */
  async open(): Promise<void> {
    const { url } = this.#remote;
    const at = url.endsWith('.json') ? url : new URL(CARD, url.endsWith('/') ? url : `${url}/`).href;
    const headers = { accept: 'application/json', 'a2a-version': VERSION };
    const { status, body } = await this.#ask(at, { headers });
    if (status !== 200) throw this.failed(`its card is answered with HTTP ${status}`);
    const card = cardSchema.safeParse(body).data;
    const { supportedInterfaces = [], url: oldUrl, preferredTransport = 'JSONRPC', protocolVersion = '' } = card ?? {};
    const old = oldUrl ? [{ url: oldUrl, protocolBinding: preferredTransport, protocolVersion }] : [];
    const all = [...supportedInterfaces, ...old].filter(({ protocolBinding }) => protocolBinding === 'JSONRPC');
    const speaks = (version: string) => all.find((each) => each.protocolVersion.startsWith(version));
    const found = speaks(VERSION) ?? speaks(OLD_VERSION);
    if (!found) throw this.failed(`its card names no JSON-RPC of A2A ${VERSION} or ${OLD_VERSION}`);
    if (new URL(found.url).origin !== new URL(at).origin) throw this.failed('its card leads to another host');
    const isOld = !found.protocolVersion.startsWith(VERSION);
    this.#to = { url: found.url, isOld, streams: card?.capabilities?.streaming === true };
  }

  /** Returns the error of a call that does not come about. */
  failed(why: string): AgentError {
    return new AgentError('remote_failed', `The agent \`${this.#name}\` cannot be asked: ${why}.`);
  }

  /** Sends a message, and does not wait for its task. @throws {RefusedError} */
  async send(message: JsonObject): Promise<z.output<typeof replySchema>> {
    const result = this.#to.isOld
      ? await this.#call('SendMessage', { message: toOldMessage(message), configuration: { blocking: false } })
      : await this.#call('SendMessage', { message, configuration: { returnImmediately: true } });
    return this.#read(result);
  }

  /** Returns a task as it stands. @throws {RefusedError} */
  async getTask(id: string): Promise<A2aTask> {
    const found = await this.#call('GetTask', { id });
    const { task } = this.#read(this.#to.isOld ? found : { task: found });
    if (!task) throw this.failed('it knows no such task');
    return task;
  }

  /** Waits while a stream lasts, or until its task waits for us: what it is about is read of the task. */
  async listen(id: string): Promise<void> {
    if (!this.#to.streams) return;
    try {
      const request = this.#toRequest('SubscribeToTask', { id }, 'text/event-stream');
      const response = await this.#fetch(this.#to.url, request, this.#signal);
      let said = '';
      for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
        said += piece;
        if (WAITS.test(said)) return;
        said = said.slice(-MAX_STATE);
      }
    } catch (error) {
      // A stream that breaks, or says more than is let in, is no end of the task.
      if (this.#signal.aborted) throw error;
    }
  }

  /** Cancels a task, if the agent can be reached. */
  async cancel(id: string): Promise<void> {
    const limit = AbortSignal.timeout(POLL_MS.most);
    await this.#fetch(this.#to.url, this.#toRequest('CancelTask', { id }), limit).catch(() => undefined);
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
    const signal = this.#signal;
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

  async #call(method: string, params: JsonObject): Promise<JsonObject> {
    const { status, body } = await this.#ask(this.#to.url, this.#toRequest(method, params));
    const answer = answerSchema.safeParse(body).data;
    if (answer?.error) throw new RefusedError(this.#name, answer.error);
    if (status !== 200 || !answer) throw this.failed(`it answered HTTP ${status}`);
    return toMembers(answer.result);
  }

  #read(result: JsonObject): z.output<typeof replySchema> {
    const { data } = replySchema.safeParse(this.#to.isOld ? fromOldResult(result) : result);
    if (!data) throw this.failed('what it answered is not of the protocol');
    return data;
  }
}
