import { setTimeout as sleep } from 'node:timers/promises';
import { type AgentCard, type Message, SendMessageRequest, type Task, TaskState } from '@a2a-js/sdk';
import { DefaultAgentCardResolver, JsonRpcTransportFactory, type Transport } from '@a2a-js/sdk/client';
import { A2AError } from '@a2a-js/sdk/errors';
import { z } from 'zod';
import type { JsonObject } from '../../core/content.ts';
import { AgentError, UnknownOutcomeError } from '../../core/errors.ts';
import { currentContext } from '../../platform/context.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { RemoteAgent } from '../definition/agent.ts';
import { OLD_VERSION, VERSION } from './wire.ts';

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
/** Most characters of what the other agent says of itself. */
export const MAX_SAID = 4_000;

const cardSchema = z.looseObject({
  supportedInterfaces: z.array(
    z.looseObject({ url: z.url(), protocolBinding: z.string(), protocolVersion: z.string() }),
  ),
  capabilities: z.looseObject({ streaming: z.boolean().optional() }).optional(),
});

/** Returns true for a task that waits for its client. */
export const isWaiting = ({ status }: Pick<Task, 'status'>): boolean =>
  status?.state === TaskState.TASK_STATE_INPUT_REQUIRED || status?.state === TaskState.TASK_STATE_AUTH_REQUIRED;

/** A connection to an agent of another service, by JSON-RPC of either version. */
export class A2aConnection {
  readonly name: string;
  readonly remote: RemoteAgent;
  readonly #egress: Egress;
  readonly #signal: AbortSignal;
  #to: Transport | undefined;
  #streams = false;

  constructor(name: string, remote: RemoteAgent, egress: Egress, signal: AbortSignal) {
    this.name = name;
    this.remote = remote;
    this.#egress = egress;
    this.#signal = signal;
  }

  /** Finds where the agent is spoken to, in its card; it may name no other origin. */
  async open(): Promise<void> {
    const { url } = this.remote;
    const at = url.endsWith('.json') ? url : new URL(CARD, url.endsWith('/') ? url : `${url}/`).href;
    const options = { fetchImpl: this.#fetch, legacyCompat: { enabled: true } };
    const read = await this.#ask(() => new DefaultAgentCardResolver(options).resolve(at, ''));
    const { supportedInterfaces = [], capabilities } = cardSchema.safeParse(read).data ?? {};
    const all = supportedInterfaces.filter(({ protocolBinding }) => protocolBinding === 'JSONRPC');
    const speaks = (version: string) => all.find((each) => each.protocolVersion.startsWith(version));
    const found = speaks(VERSION) ?? speaks(OLD_VERSION);
    if (!found) throw this.failed(`its card names no JSON-RPC of A2A ${VERSION} or ${OLD_VERSION}`);
    if (new URL(found.url).origin !== new URL(at).origin) throw this.failed('its card leads to another host');
    const card = { supportedInterfaces: [found] } as unknown as AgentCard;
    this.#to = await new JsonRpcTransportFactory(options).create(found.url, card);
    this.#streams = capabilities?.streaming === true;
  }

  /** Returns the error of a call that does not come about. */
  failed(why: string, options?: ErrorOptions): AgentError {
    return new AgentError('remote_failed', `The agent \`${this.name}\` cannot be asked: ${why}.`, options);
  }

  /** Sends a message, and does not wait for its task. @throws {AgentError} with the refusal as its cause */
  send(message: JsonObject): Promise<Message | Task> {
    const request = SendMessageRequest.fromJSON({ message, configuration: { returnImmediately: true } });
    return this.#ask((to) => to.sendMessage(request));
  }

  /** Returns a task as it stands. @throws {AgentError} with the refusal as its cause */
  getTask(id: string): Promise<Task> {
    return this.#ask((to) => to.getTask({ tenant: '', id }));
  }

  /** Waits while a stream lasts, or until its task waits for us: what it is about is read of the task. */
  async listen(id: string): Promise<void> {
    if (!this.#streams) return;
    try {
      for await (const { payload } of this.#transport.resubscribeTask({ tenant: '', id }))
        if ((payload?.$case === 'task' || payload?.$case === 'statusUpdate') && isWaiting(payload.value)) return;
    } catch (error) {
      // A stream that breaks, or says more than is let in, is no end of the task.
      if (this.#signal.aborted) throw error;
    }
  }

  /** Cancels a task, if the agent can be reached. */
  async cancel(id: string): Promise<void> {
    const signal = AbortSignal.timeout(POLL_MS.most);
    const request = { tenant: '', id, metadata: undefined };
    await this.#transport.cancelTask(request, { signal }).catch(() => undefined);
  }

  get #transport(): Transport {
    return this.#to as Transport;
  }

  /** Names the agent in what goes wrong. */
  async #ask<Answer>(run: (to: Transport) => Promise<Answer>): Promise<Answer> {
    try {
      return await run(this.#transport);
    } catch (error) {
      if (error instanceof AgentError || !(error instanceof Error) || this.#signal.aborted) throw error;
      const said = error.message.slice(0, MAX_SAID).replace(/\.$/, '');
      if (!(error instanceof A2AError)) throw this.failed(said, { cause: error });
      throw new AgentError('remote_failed', `The agent \`${this.name}\` refused: ${said}.`, { cause: error });
    }
  }

  /**
   * Sends a request until it is answered, a stream but once: a message that comes twice is the same task there.
   * @throws {UnknownOutcomeError} where it is not known what came of it
   */
  readonly #fetch: typeof fetch = async (input, init = {}) => {
    const signal = init.signal ?? this.#signal;
    const { traceparent } = currentContext();
    const headers = new Headers({ ...this.remote.headers, ...(init.headers as Record<string, string>) });
    headers.set('a2a-version', this.#to?.protocolVersion ?? VERSION);
    if (traceparent) headers.set('traceparent', traceparent);
    const isStream = headers.get('accept') === 'text/event-stream';
    for (let pauseMs = POLL_MS.least, tries = 1; ; pauseMs = toNext(pauseMs), tries += 1) {
      const limited = isStream ? signal : AbortSignal.any([signal, AbortSignal.timeout(REQUEST_MS)]);
      const sent = { ...init, headers, redirect: 'manual', signal: limited } as const;
      const [answer, cause] = await this.#egress
        .fetch(input as string | URL, sent)
        .then(async (came) => [isStream ? came : new Response((await came.text()) || null, came)] as const)
        .catch((error: unknown) => [undefined, error] as const);
      if (answer && !AWAY.has(answer.status)) {
        if (!this.#to && !answer.ok) throw this.failed(`its card is answered with HTTP ${answer.status}`);
        return answer;
      }
      if (cause instanceof AgentError) throw cause;
      if (isStream || signal.aborted || tries >= MAX_TRIES)
        throw new UnknownOutcomeError('remote_failed', `The agent \`${this.name}\` did not answer.`, { cause });
      await sleep(pauseMs, undefined, { signal });
    }
  };
}
