import { OLD_VERSION, VERSION } from '../../../agent/a2a/wire.ts';
import type { Config } from '../../../config/config.ts';
import type { JsonObject } from '../../../core/content.ts';
import type { InvocationContext } from '../../../invocations/context.ts';

/** The sources of a card. */
export interface CardContext extends Pick<InvocationContext, 'agents'> {
  config: Pick<Config, 'auth' | 'WEBHOOKS'>;
  version: string;
}

const MODES = ['text/plain', 'application/json'];

/**
 * Returns the card of an application: what it is called, and where and how it is spoken to.
 * @param isExtended - with its skills, for who has a credential
 * @param isPlain - without what clients of 0.3 read
 */
export async function toCard(
  { agents, config, version }: CardContext,
  appName: string,
  base: string,
  { isExtended, isPlain }: { isExtended: boolean; isPlain: boolean },
): Promise<JsonObject> {
  const agent = agents.get(appName);
  const described = agent?.describe();
  const description = described?.description || `The agent ${appName}.`;
  const url = `${base}/a2a/${encodeURIComponent(appName)}`;
  const isOpen = config.auth.mode === 'local';
  const bearer = {
    httpAuthSecurityScheme: { scheme: 'Bearer' },
    ...(isPlain ? {} : { type: 'http', scheme: 'bearer' }),
  };
  const skills = isExtended ? ((await agent?.listSkills?.()) ?? []) : [];
  const card = {
    name: described?.name ?? appName,
    description,
    version,
    supportedInterfaces: [
      { url, protocolBinding: 'JSONRPC', protocolVersion: VERSION },
      { url, protocolBinding: 'HTTP+JSON', protocolVersion: VERSION },
      { url, protocolBinding: 'JSONRPC', protocolVersion: OLD_VERSION },
    ],
    capabilities: { streaming: true, pushNotifications: false, extendedAgentCard: true },
    defaultInputModes: [...MODES, 'image/*', 'audio/*', 'video/*', 'application/pdf'],
    defaultOutputModes: MODES,
    skills: [
      { id: 'ask', name: described?.name ?? appName, description, tags: ['agent'] },
      ...skills.map((skill) => ({ id: skill.name, name: skill.name, description: skill.description, tags: ['skill'] })),
    ],
    ...(isOpen ? {} : { securitySchemes: { bearer }, securityRequirements: [{ schemes: { bearer: { list: [] } } }] }),
  };
  if (isPlain) return card;
  const old = { url, preferredTransport: 'JSONRPC', protocolVersion: '0.3.0', supportsAuthenticatedExtendedCard: true };
  return { ...card, ...old, ...(isOpen ? {} : { security: [{ bearer: [] }] }) };
}
