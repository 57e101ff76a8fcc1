import { hash } from 'node:crypto';
import type { Request } from 'express';
import { OLD_VERSION, VERSION } from '../../../agent/a2a/wire.ts';
import type { JsonObject } from '../../../core/content.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { A2aError } from './errors.ts';
import type { A2aContext } from './methods.ts';

const MODES = ['text/plain', 'application/json'];

/** Returns the version that a client asks for; none is named by clients of before versions had names. */
export function readVersion({ headers, query }: Request): string | undefined {
  const named = headers['a2a-version'] ?? query['A2A-Version'];
  if (named === undefined || named === '') return undefined;
  const version = typeof named === 'string' ? /^(\d+\.\d+)(?:\.\d+)?$/.exec(named)?.[1] : undefined;
  if (version === VERSION || version === OLD_VERSION) return version;
  throw new A2aError('VERSION_NOT_SUPPORTED', `Versions ${VERSION} and ${OLD_VERSION} are spoken here.`);
}

/** Returns the address of the service, as a client named it. */
export const toBase = ({ protocol, host }: Request): string => `${protocol}://${host}`;

/**
 * Returns the card of an application: what it is called, and where and how it is spoken to. Clients that do not name
 * version 1.0 find the members of 0.3 in it too.
 * @param isExtended - with its skills, for who has a credential
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
  const said = description || `The agent ${appName}.`;
  const url = `${toBase(request)}/a2a/${encodeURIComponent(appName)}`;
  const isOpen = config.auth.mode === 'local';
  const bearer = {
    httpAuthSecurityScheme: { scheme: 'Bearer' },
    ...(isPlain ? {} : { type: 'http', scheme: 'bearer' }),
  };
  const skills = isExtended ? ((await agent?.listSkills?.()) ?? []) : [];
  const card = {
    name,
    description: said,
    version,
    supportedInterfaces: [
      { url, protocolBinding: 'JSONRPC', protocolVersion: VERSION },
      { url, protocolBinding: 'HTTP+JSON', protocolVersion: VERSION },
      { url, protocolBinding: 'JSONRPC', protocolVersion: OLD_VERSION },
      { url, protocolBinding: 'HTTP+JSON', protocolVersion: OLD_VERSION },
    ],
    capabilities: { streaming: true, pushNotifications: config.WEBHOOKS, extendedAgentCard: true },
    defaultInputModes: [...MODES, 'image/*', 'audio/*', 'video/*', 'application/pdf'],
    defaultOutputModes: MODES,
    skills: [
      { id: 'ask', name, description: said, tags: ['agent'] },
      ...skills.map((skill) => ({ id: skill.name, name: skill.name, description: skill.description, tags: ['skill'] })),
    ],
    ...(isOpen ? {} : { securitySchemes: { bearer }, securityRequirements: [{ schemes: { bearer: { list: [] } } }] }),
  };
  if (isPlain) return card;
  const additionalInterfaces = ['JSONRPC', 'HTTP+JSON'].map((transport) => ({ url, transport }));
  const old = { url, preferredTransport: 'JSONRPC', protocolVersion: '0.3.0', supportsAuthenticatedExtendedCard: true };
  return { ...card, ...old, additionalInterfaces, ...(isOpen ? {} : { security: [{ bearer: [] }] }) };
}

/** Sends the card of an application. @throws {NotFoundError} */
export async function serveCard(
  context: A2aContext,
  appName: string,
  { request, response, notFound }: Pick<Call<never, never, never, never>, 'request' | 'response' | 'notFound'>,
): Promise<Answer> {
  if (!context.agents.has(appName)) throw notFound();
  const text = JSON.stringify(await toCard(context, appName, request, false));
  const etag = `"${hash('sha256', text).slice(0, 32)}"`;
  response.setHeader('cache-control', 'public, max-age=300').setHeader('etag', etag).vary('A2A-Version');
  if (request.headers['if-none-match'] !== etag) return { kind: 'json', text };
  response.status(304).end();
  return { kind: 'sent' };
}
