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
/** Most signatures of a card that are looked at. */
const MAX_SIGNATURES = 10;
/** Most characters of what the other agent says of itself. */
export const MAX_SAID = 4_000;

/** An agent of another service, and the way to it. */
export interface Peer {
  name: string;
  remote: RemoteAgent;
  egress: Egress;
  signal: AbortSignal;
  /** The user's own access to it [none]. */
  access?: AuthProvider | undefined;
}

/** Returns the error of a call that does not come about. */
export const toFailure = ({ name }: Peer, why: string, options?: ErrorOptions): AgentError =>
  new AgentError('remote_failed', `The agent \`${name}\` cannot be asked: ${why}.`, options);

/** Waits for an answer, and names the agent in what goes wrong. @throws {AgentError} with a refusal as its cause */
export async function awaitAnswer<Answer>(peer: Peer, asked: Promise<Answer>): Promise<Answer> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof AgentError || !(error instanceof Error) || peer.signal.aborted) throw error;
    const said = error.message.slice(0, MAX_SAID).replace(/\.$/, '');
    if (!(error instanceof A2AError)) throw toFailure(peer, said, { cause: error });
    throw new AgentError('remote_failed', `The agent \`${peer.name}\` refused: ${said}.`, { cause: error });
  }
}

/** Finds in its card where an agent is spoken to, by JSON-RPC of either version; it may name no other origin. */
export async function connect(peer: Peer): Promise<{ transport: Transport; streams: boolean }> {
  const { url, keys } = peer.remote;
  const at = url.endsWith('.json') ? url : new URL(CARD, url.endsWith('/') ? url : `${url}/`).href;
  const legacyCompat = { enabled: true };
  const resolver = new DefaultAgentCardResolver({ fetchImpl: toFetch(peer), legacyCompat });
  // With keys nothing is read that a signature cannot cover: a card of 0.3 as 1.0, which the resolver makes.
  const fetchSigned = () => toFetch(peer)(at, { headers: { 'a2a-version': VERSION } }).then((answer) => answer.json());
  const said = ((await awaitAnswer(peer, keys ? fetchSigned() : resolver.resolve(at, ''))) ?? {}) as AgentCard;
  const card = AgentCard.fromJSON(said);
  if (keys) await checkSignature(peer, keys, said, card);
  const all = card.supportedInterfaces.filter(({ protocolBinding }) => protocolBinding === 'JSONRPC');
  const speaks = (version: string) => all.find((each) => each.protocolVersion.startsWith(version));
  const found = speaks(VERSION) ?? speaks(OLD_VERSION);
  if (!found) throw toFailure(peer, `its card names no JSON-RPC of A2A ${VERSION} or ${OLD_VERSION}`);
  if (URL.parse(found.url)?.origin !== new URL(at).origin) throw toFailure(peer, 'its card leads to another host');
  const version = found.protocolVersion.startsWith(VERSION) ? VERSION : OLD_VERSION;
  const factory = new JsonRpcTransportFactory({ fetchImpl: toFetch(peer, version), legacyCompat });
  const transport = await factory.create(found.url, { ...card, supportedInterfaces: [found] });
  return { transport, streams: card.capabilities?.streaming === true };
}

/** Verifies that a card is signed by a key that the operator trusts. @throws {AgentError} */
async function checkSignature(peer: Peer, keys: string, said: AgentCard, card: AgentCard): Promise<void> {
  if (card.signatures.length === 0) throw toFailure(peer, 'its card is not signed');
  // Headers and access are for the agent alone.
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
  // As it was sent: of a card that it has parsed the package leaves the security schemes out.
  const payload = Buffer.from(canonicalizeAgentCard(said)).toString('base64url');
  const checks = card.signatures
    .slice(0, MAX_SIGNATURES)
    // A set has public keys only: neither `none` nor HS fits one.
    .map(({ protected: header, signature }) => flattenedVerify({ protected: header, signature, payload }, keySet));
  await Promise.any(checks).catch((cause: unknown) => {
    throw toFailure(peer, 'its card is signed by none of the keys for it', { cause });
  });
}

/** The package rounds integers of data; so they are texts for it, which `remote.ts` reads. */
function markEvents(came: Response): Response {
  if (!came.body) return came;
  return withBody(
    came,
    mapEvents(came.body.pipeThrough(new TextDecoderStream()), (data) => [markText(data)]),
  );
}

/**
 * Returns a `fetch` that sends a request until it is answered, a stream but once: a message that comes twice is the
 * same task there. @throws {UnknownOutcomeError} where it is not known what came of it
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
      const sent = { ...init, body, headers, redirect: 'manual', signal: limited } as const;
      const [answer, cause] = await peer.egress
        .fetch(input as string | URL, sent)
        .then(
          async (came) =>
            [isStream ? markEvents(came) : new Response(markText(await came.text()) || null, came)] as const,
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
