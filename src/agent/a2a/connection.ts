import { setTimeout as sleep } from 'node:timers/promises';
import { AgentCard, canonicalizeAgentCard } from '@a2a-js/sdk';
import { DefaultAgentCardResolver, JsonRpcTransportFactory, type Transport } from '@a2a-js/sdk/client';
import { A2AError } from '@a2a-js/sdk/errors';
import type { AuthProvider } from '@modelcontextprotocol/client';
import { createLocalJWKSet, flattenedVerify, type JSONWebKeySet } from 'jose';
import { AgentError, UnknownOutcomeError } from '../../core/errors.ts';
import { currentContext } from '../../platform/context.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { RemoteAgent } from '../definition/agent.ts';
import { OLD_VERSION, VERSION } from './wire.ts';
import { markText, unmarkText } from '../../core/exact-json.ts';
import { mapEvents, withBody } from '../../platform/net/event-stream.ts';

const CARD = '.well-known/agent-card.json';
/** Time limit of one HTTP request, in milliseconds; a streamed response has no limit. */
const REQUEST_MS = 30_000;
/** Minimum and maximum pause between two polls of a task or two attempts of a request, in milliseconds. */
export const POLL_MS = { least: 100, most: 5_000 };
export const toNext = (pauseMs: number): number => Math.min(2 * pauseMs, POLL_MS.most);
/** Maximum number of attempts of a request without a response; with the pauses they take about 20 s. */
const MAX_TRIES = 10;
/** HTTP statuses of a service that is temporarily unavailable, because it starts or stops; the request is retried. */
const AWAY = new Set([502, 503, 504]);
/** Maximum number of signatures of an agent card that are verified. */
const MAX_SIGNATURES = 10;
/** Maximum number of characters that are quoted from an error message of the other agent. */
export const MAX_MESSAGE = 4_000;

/** An agent of another service, and what is needed to call it. */
export interface Peer {
  name: string;
  remote: RemoteAgent;
  egress: Egress;
  signal: AbortSignal;
  /** The user's OAuth access to the agent. Default: requests carry no access token. */
  access?: AuthProvider | undefined;
}

export const toFailure = ({ name }: Peer, why: string, options?: ErrorOptions): AgentError =>
  new AgentError('remote_failed', `The agent \`${name}\` cannot be asked: ${why}.`, options);

/** @throws {AgentError} that names the other agent; its `cause` is the agent's own error if the agent refused */
export async function awaitAnswer<Answer>(peer: Peer, answer: Promise<Answer>): Promise<Answer> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof AgentError || !(error instanceof Error) || peer.signal.aborted) throw error;
    const message = error.message.slice(0, MAX_MESSAGE).replace(/\.$/, '');
    if (!(error instanceof A2AError)) throw toFailure(peer, message, { cause: error });
    throw new AgentError('remote_failed', `The agent \`${peer.name}\` refused: ${message}.`, { cause: error });
  }
}

/**
 * Reads the agent card and connects to the JSON-RPC endpoint in it. The endpoint must have the same origin as the card,
 * because headers and access tokens are sent to it.
 */
export async function connect(peer: Peer): Promise<{ transport: Transport; streams: boolean }> {
  const { url, keys } = peer.remote;
  const at = url.endsWith('.json') ? url : new URL(CARD, url.endsWith('/') ? url : `${url}/`).href;
  const legacyCompat = { enabled: true };
  const resolver = new DefaultAgentCardResolver({ fetchImpl: toFetch(peer), legacyCompat });
  // If signatures are checked, the card is read without the A2A package's resolver, which would convert a card of
  // version 0.3 to 1.0; the signature does not cover the converted card.
  const fetchSigned = () => toFetch(peer)(at, { headers: { 'a2a-version': VERSION } }).then((answer) => answer.json());
  const rawCard = ((await awaitAnswer(peer, keys ? fetchSigned() : resolver.resolve(at, ''))) ?? {}) as AgentCard;
  const card = AgentCard.fromJSON(rawCard);
  if (keys) await checkSignature(peer, keys, rawCard, card);
  const all = card.supportedInterfaces.filter(({ protocolBinding }) => protocolBinding === 'JSONRPC');
  const speaks = (version: string) => all.find((each) => each.protocolVersion.startsWith(version));
  const endpoint = speaks(VERSION) ?? speaks(OLD_VERSION);
  if (!endpoint) throw toFailure(peer, `its card names no JSON-RPC of A2A ${VERSION} or ${OLD_VERSION}`);
  if (URL.parse(endpoint.url)?.origin !== new URL(at).origin) throw toFailure(peer, 'its card leads to another host');
  const version = endpoint.protocolVersion.startsWith(VERSION) ? VERSION : OLD_VERSION;
  const factory = new JsonRpcTransportFactory({ fetchImpl: toFetch(peer, version), legacyCompat });
  const transport = await factory.create(endpoint.url, { ...card, supportedInterfaces: [endpoint] });
  return { transport, streams: card.capabilities?.streaming === true };
}

/** @throws {AgentError} if the agent card is signed with none of the keys that the operator trusts */
async function checkSignature(peer: Peer, keys: string, rawCard: AgentCard, card: AgentCard): Promise<void> {
  if (card.signatures.length === 0) throw toFailure(peer, 'its card is not signed');
  // Neither the agent's headers nor the user's access token are sent to the server of the JWK set (`keys`).
  const fetchKeys = toFetch({ ...peer, remote: { url: keys }, access: undefined }, VERSION);
  const keySet = await fetchKeys(keys)
    .then(async (answer) => {
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      return createLocalJWKSet((await answer.json()) as JSONWebKeySet);
    })
    .catch((cause: unknown) => {
      if (peer.signal.aborted) throw cause;
      const why = cause instanceof UnknownOutcomeError ? 'no answer' : (cause as Error).message.replace(/\.$/, '');
      throw toFailure(peer, `the keys for its card cannot be fetched: ${why}`, { cause });
    });
  // The signature covers the card as it was sent. The card that the A2A package has parsed lacks the security schemes.
  const payload = Buffer.from(canonicalizeAgentCard(rawCard)).toString('base64url');
  const checks = card.signatures
    .slice(0, MAX_SIGNATURES)
    // A JWK set has public keys only, so a signature with the algorithm `none` or an HMAC matches no key.
    .map(({ protected: header, signature }) => flattenedVerify({ protected: header, signature, payload }, keySet));
  await Promise.any(checks).catch((cause: unknown) => {
    throw toFailure(peer, 'its card is signed by none of the keys for it', { cause });
  });
}

/**
 * Converts integers in the data of stream events to strings, because the A2A package would round those beyond 53 bits;
 * `remote.ts` converts them back.
 */
function markEvents(response: Response): Response {
  if (!response.body) return response;
  return withBody(
    response,
    mapEvents(response.body.pipeThrough(new TextDecoderStream()), (data) => [markText(data)]),
  );
}

/**
 * Repeats a request until there is a response, except the request for a stream. Repeating is safe, because the other
 * agent makes one task of a message that arrives twice.
 * @throws {UnknownOutcomeError} if it is unknown whether the request took effect
 */
const toFetch =
  (peer: Peer, version?: string): typeof fetch =>
  async (input, init = {}) => {
    const signal = init.signal ?? peer.signal;
    const { traceparent } = currentContext();
    const headers = new Headers({ ...peer.remote.headers, ...(init.headers as Record<string, string>) });
    if (version) headers.set('a2a-version', version);
    if (traceparent) headers.set('traceparent', traceparent);
    const isStream = headers.get('accept') === 'text/event-stream';
    const access = version ? peer.access : undefined;
    let isRenewed = false;
    for (let pauseMs = POLL_MS.least, tries = 1; ; pauseMs = toNext(pauseMs), tries += 1) {
      const token = await access?.token();
      if (token !== undefined) headers.set('authorization', `Bearer ${token}`);
      const limited = isStream ? signal : AbortSignal.any([signal, AbortSignal.timeout(REQUEST_MS)]);
      const body = typeof init.body === 'string' ? unmarkText(init.body) : (init.body ?? null);
      const options = { ...init, body, headers, redirect: 'manual', signal: limited } as const;
      const [answer, cause] = await peer.egress
        .fetch(input as string | URL, options)
        .then(
          async (response) =>
            [
              isStream ? markEvents(response) : new Response(markText(await response.text()) || null, response),
            ] as const,
        )
        .catch((error: unknown) => [undefined, error] as const);
      if (answer && !AWAY.has(answer.status)) {
        if (answer.status === 401 && access && !isRenewed) {
          const { fetch: fetchFn } = peer.egress;
          await access.onUnauthorized?.({ response: answer, serverUrl: new URL(peer.remote.url), fetchFn });
          isRenewed = true;
          continue;
        }
        if (!version && !answer.ok) throw toFailure(peer, `its card is answered with HTTP ${answer.status}`);
        return answer;
      }
      if (cause instanceof AgentError) throw cause;
      if (isStream || signal.aborted || tries >= MAX_TRIES)
        throw new UnknownOutcomeError('remote_failed', `The agent \`${peer.name}\` did not answer.`, { cause });
      await sleep(pauseMs, undefined, { signal });
    }
  };
