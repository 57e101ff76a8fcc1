import { hash } from 'node:crypto';
import type { AgentCard } from '@a2a-js/sdk';
import type { Request } from 'express';
import { OLD_VERSION, VERSION } from '../../../agent/a2a/wire.ts';
import type { JsonObject } from '../../../core/content.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { toBase } from '../../../platform/http/operation/public-base.ts';
import { BoundedCache } from '../../../platform/work/bounded-cache.ts';
import { A2aError } from './errors.ts';
import type { A2aContext } from './methods.ts';

const MODES = ['text/plain', 'application/json'];

/** The A2A version that a request names; `undefined` for clients older than the version header. @throws {A2aError} */
export function readVersion({ headers, query }: Request): string | undefined {
  const value = headers['a2a-version'] ?? query['A2A-Version'];
  if (value === undefined || value === '') return undefined;
  const version = typeof value === 'string' ? /^(\d+\.\d+)(?:\.\d+)?$/.exec(value)?.[1] : undefined;
  if (version === VERSION || version === OLD_VERSION) return version;
  throw new A2aError('VERSION_NOT_SUPPORTED', `Versions ${VERSION} and ${OLD_VERSION} are spoken here.`);
}

/**
 * Builds an application's agent card. Unless the client asks for version 1.0, the card also has the properties of
 * version 0.3, which the card's signature does not cover.
 * @param isExtended - true: include the agent's skills, for authenticated clients
 */
export async function toCard(
  { agents, config, version }: A2aContext,
  appName: string,
  request: Request,
  isExtended: boolean,
): Promise<JsonObject> {
  const isPlain = readVersion(request) === VERSION;
  const agent = agents.get(appName);
  const { name = appName, description = '' } = agent?.describe() ?? {};
  const summary = description || `The agent ${appName}.`;
  const url = `${toBase(config, request)}/a2a/${encodeURIComponent(appName)}`;
  const isOpen = config.auth.mode === 'local';
  const bearer = {
    httpAuthSecurityScheme: { scheme: 'Bearer' },
    ...(isPlain ? {} : { type: 'http', scheme: 'bearer' }),
  };
  const skills = isExtended ? ((await agent?.listSkills?.()) ?? []) : [];
  const card = {
    name,
    description: summary,
    version,
    supportedInterfaces: [
      { url, protocolBinding: 'JSONRPC', protocolVersion: VERSION },
      { url, protocolBinding: 'HTTP+JSON', protocolVersion: VERSION },
      { url, protocolBinding: 'JSONRPC', protocolVersion: OLD_VERSION },
    ],
    capabilities: { streaming: true, pushNotifications: config.WEBHOOKS === true, extendedAgentCard: true },
    defaultInputModes: [...MODES, 'image/*', 'audio/*', 'video/*', 'application/pdf'],
    defaultOutputModes: MODES,
    skills: [
      { id: 'ask', name, description: summary, tags: ['agent'] },
      ...skills.map((skill) => ({ id: skill.name, name: skill.name, description: skill.description, tags: ['skill'] })),
    ],
    ...(isOpen ? {} : { securitySchemes: { bearer }, securityRequirements: [{ schemes: { bearer: { list: [] } } }] }),
  };
  const legacyMembers = {
    url,
    preferredTransport: 'JSONRPC',
    additionalInterfaces: [{ url, transport: 'JSONRPC' }],
    protocolVersion: '0.3.0',
    supportsAuthenticatedExtendedCard: true,
  };
  const security = isOpen ? {} : { security: [{ bearer: [] }] };
  const fullCard = isPlain ? card : { ...card, ...legacyMembers, ...security };
  return config.A2A_CARD_KEY ? sign(config.A2A_CARD_KEY, fullCard) : fullCard;
}

type Signer = NonNullable<A2aContext['config']['A2A_CARD_KEY']>;

/**
 * Cache of signed cards by signing key and content. Without the cache unauthenticated callers could make this process
 * sign with every request, and signing takes most of the time of such a request.
 */
const signedCards = new WeakMap<Signer, Map<string, Promise<JsonObject>>>();

function sign(signer: Signer, card: JsonObject): Promise<JsonObject> {
  const cache = signedCards.get(signer) ?? new BoundedCache<Promise<JsonObject>>();
  signedCards.set(signer, cache);
  const text = JSON.stringify(card);
  const signed = cache.get(text) ?? signAnew(signer, card);
  cache.set(text, signed);
  signed.catch(() => cache.delete(text));
  return signed;
}

async function signAnew({ key, header }: Signer, card: JsonObject): Promise<JsonObject> {
  const { generateAgentCardSignature } = await import('@a2a-js/sdk');
  // Signs the JSON that is sent, because for a parsed card the A2A package would leave the security schemes unsigned.
  return { ...(await generateAgentCardSignature(key, header)(card as object as AgentCard)) };
}

/** @throws {NotFoundError} */
export async function serveCard(
  context: A2aContext,
  appName: string,
  { request, response, notFound }: Pick<Call<never, never, never, never>, 'request' | 'response' | 'notFound'>,
): Promise<Answer> {
  if (!context.agents.has(appName)) throw notFound();
  const card = await toCard(context, appName, request, false);
  // The ETag is computed without the signature, because the signature may differ between processes.
  const same = JSON.stringify(card, (name, value: unknown) => (name === 'signature' ? undefined : value));
  const etag = `W/"${hash('sha256', same).slice(0, 32)}"`;
  response.setHeader('etag', etag).vary('A2A-Version');
  // `Vary`: shared caches store a card per host, because without PUBLIC_URL the card contains the request's host.
  if (context.config.PUBLIC_URL === undefined) response.vary('Host, X-Forwarded-Host, X-Forwarded-Proto');
  else response.setHeader('cache-control', 'public, max-age=300');
  if (request.headers['if-none-match'] !== etag) return { kind: 'json', text: JSON.stringify(card) };
  response.status(304).end();
  return { kind: 'sent' };
}
