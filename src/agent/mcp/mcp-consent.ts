import { randomBytes } from 'node:crypto';
import {
  auth,
  type AuthProvider,
  computeScopeUnion,
  extractWWWAuthenticateParams,
  type FetchLike,
  InsufficientScopeError,
  isHttpsUrl,
  OAuthError,
  type OAuthClientProvider,
  type OAuthDiscoveryState,
  refreshAuthorization,
  type StoredOAuthClientInformation,
  type StoredOAuthTokens,
} from '@modelcontextprotocol/client';
import type { JsonObject } from '../../core/content.ts';
import { AgentError, causes } from '../../core/errors.ts';
import { type McpServer, toAddress } from '../definition/agent.ts';
import type { UserCredentials } from '../definition/credentials.ts';
import { type Tool, toParameters } from '../definition/tool.ts';
import { requestConfirmation } from './mcp-question.ts';

/** A consent on its way, and the access that came of it. */
interface Grant {
  serverUrl: string;
  redirectUrl: string;
  /** The operator's issuer: no other is asked. */
  issuer?: string | undefined;
  scope?: string | undefined;
  client?: StoredOAuthClientInformation | undefined;
  discovery?: OAuthDiscoveryState;
  codeVerifier?: string | undefined;
  tokens?: StoredOAuthTokens | undefined;
}

const toJson = (grant: Grant) => grant as unknown as JsonObject;
const fromJson = (kept: JsonObject | undefined) => kept as unknown as Grant | undefined;

/** A server that its user has given no access to, or not enough. */
class ConsentMissing extends AgentError {
  constructor() {
    super('mcp_failed', 'Its user has given no access to it.');
  }
}

/** Fills in a grant while the SDK does the steps to it. */
function toProvider(grant: Grant, isRegistered: boolean): OAuthClientProvider {
  const { redirectUrl, scope } = grant;
  return {
    redirectUrl,
    clientMetadata: { client_name: 'agent-runtime', redirect_uris: [redirectUrl], ...(scope && { scope }) },
    clientInformation: () => grant.client,
    // A client of the operator is never replaced by one that is registered on the way.
    ...(!isRegistered && { saveClientInformation: (client) => void (grant.client = client) }),
    tokens: () => undefined,
    saveTokens: (tokens) => void (grant.tokens = tokens),
    codeVerifier: () => grant.codeVerifier ?? '',
    saveCodeVerifier: (verifier) => void (grant.codeVerifier = verifier),
    discoveryState: () => grant.discovery,
    saveDiscoveryState(found) {
      const issuer = found.authorizationServerMetadata?.issuer ?? found.authorizationServerUrl;
      if (grant.issuer !== undefined && issuer !== grant.issuer)
        throw new AgentError('mcp_failed', 'It names another issuer than its entry.');
      grant.discovery = found;
    },
    redirectToAuthorization() {},
  };
}

/** Redeems what the browser brought back, at the issuer that the consent began with. @returns the grant to keep */
export async function finishConsent(
  kept: JsonObject,
  { code, iss }: { code: string; iss?: string | undefined },
  fetchFn: FetchLike,
): Promise<JsonObject> {
  const grant = { ...(kept as unknown as Grant) };
  const answer = { authorizationCode: code, ...(iss !== undefined && { iss }) };
  await auth(toProvider(grant, true), { serverUrl: grant.serverUrl, ...answer, fetchFn });
  const { codeVerifier: _used, ...granted } = grant;
  return toJson(granted);
}

/** Revokes a grant at its issuer, where that has an address for it (RFC 7009). */
export async function revokeGrant(kept: JsonObject, fetchFn: FetchLike): Promise<void> {
  const { discovery, client, tokens } = kept as unknown as Grant;
  const { revocation_endpoint: endpoint } = (discovery?.authorizationServerMetadata ?? {}) as {
    revocation_endpoint?: string;
  };
  const token = tokens?.refresh_token ?? tokens?.access_token;
  if (endpoint === undefined || token === undefined || !client) return;
  const { client_id, client_secret } = client as { client_id: string; client_secret?: string };
  const basic = `${encodeURIComponent(client_id)}:${encodeURIComponent(client_secret ?? '')}`;
  const headers = client_secret ? { authorization: `Basic ${Buffer.from(basic).toString('base64')}` } : undefined;
  const body = new URLSearchParams({ token, ...(client_secret ? {} : { client_id }) });
  await fetchFn(endpoint, { method: 'POST', body, ...(headers && { headers }) });
}

/** The access of one user to one server, which the user grants in a browser. */
export class UserToken {
  readonly #server: McpServer & { url: string };
  readonly #credentials: UserCredentials;
  #granted: Grant | undefined;
  /** The server's last challenge. */
  #wanted: { resourceMetadataUrl?: URL | undefined; scope?: string | undefined } = {};
  #fetch: FetchLike | undefined;
  readonly #discovery: OAuthDiscoveryState | undefined;

  /** @param discovery - what is known of the server's issuer [it is asked] */
  constructor(server: McpServer, credentials: UserCredentials, discovery?: OAuthDiscoveryState) {
    this.#server = { ...server, url: toAddress(server) };
    this.#credentials = credentials;
    this.#discovery = discovery;
  }

  /** Gives it to a transport, whose requests to the issuer go through `fetch`: without the headers for the server. */
  toAuthProvider(fetch: FetchLike): AuthProvider {
    this.#fetch = fetch;
    const { url } = this.#server;
    return {
      token: async () => {
        this.#granted ??= fromJson(await this.#credentials.read(url));
        return this.#granted?.tokens?.access_token;
      },
      onUnauthorized: async ({ response }) => {
        this.#wanted = extractWWWAuthenticateParams(response);
        const expired = this.#granted;
        this.#granted =
          expired && fromJson(await this.#credentials.renew(url, toJson(expired), () => this.#refresh(expired)));
        if (!this.#granted) throw new ConsentMissing();
      },
    };
  }

  /** Asks the issuer of the grant alone. @returns `undefined` where the issuer says that it is over */
  async #refresh({ tokens, discovery, ...grant }: Grant): Promise<JsonObject | undefined> {
    const client = this.#getClient() ?? grant.client;
    if (!tokens?.refresh_token || !discovery || !client) return undefined;
    try {
      const fresh = await refreshAuthorization(discovery.authorizationServerUrl, {
        ...(discovery.authorizationServerMetadata && { metadata: discovery.authorizationServerMetadata }),
        clientInformation: client,
        refreshToken: tokens.refresh_token,
        resource: discovery.resourceMetadata?.resource ?? grant.serverUrl,
        ...(this.#fetch && { fetchFn: this.#fetch }),
      });
      return toJson({ ...grant, client, discovery, tokens: { ...tokens, ...fresh } });
    } catch (error) {
      if (error instanceof OAuthError && error.code !== 'server_error') return undefined;
      throw new AgentError('mcp_failed', 'Its access could not be renewed.', { cause: error });
    }
  }

  #getClient(): StoredOAuthClientInformation | undefined {
    const { clientId, clientSecret, issuer } = this.#server.userOauth ?? {};
    if (clientId === undefined || isHttpsUrl(clientId)) return undefined;
    return {
      client_id: clientId,
      ...(clientSecret !== undefined && { client_secret: clientSecret }),
      ...(issuer !== undefined && { issuer }),
    };
  }

  /** True for an error because of which the user is to be asked. */
  isMissing(error: unknown): boolean {
    for (const cause of causes(error)) {
      if (cause instanceof ConsentMissing) return true;
      if (!(cause instanceof InsufficientScopeError)) continue;
      const scope = computeScopeUnion(this.#granted?.tokens?.scope, this.#wanted.scope, cause.requiredScope);
      this.#wanted = { resourceMetadataUrl: cause.resourceMetadataUrl ?? this.#wanted.resourceMetadataUrl, scope };
      return true;
    }
    return false;
  }

  /** Returns a tool that asks the user: the only one of a server as long as there is no access to it. */
  toTool(isConnected: boolean): Tool {
    const { name } = this.#server;
    const description = `Asks the user for access to \`${name}\`, whose tools are there once it is given.`;
    const tool: Tool = {
      name: `connect_${name}`,
      description: isConnected ? `Not needed: there is access to \`${name}\`.` : description,
      parameters: toParameters({}),
      needsConfirmation: false,
      effect: 'idempotent',
      calls: 'server',
      run: async () => {
        if (!isConnected) throw new ConsentMissing();
        return { result: 'There is access, and the tools can be called.' };
      },
    };
    return this.guard(tool);
  }

  /** Returns a tool that asks the user where access is missing: the call pauses and is made again. */
  guard<Guarded extends Pick<Tool, 'run'>>(tool: Guarded): Guarded {
    return {
      ...tool,
      run: async (args, context) => {
        const { confirmation } = context;
        const isAnswer = confirmation?.kept['consent'] === this.#server.url;
        if (isAnswer && !confirmation.confirmed) return { error: 'The user gave no access.' };
        try {
          return await tool.run(args, context);
        } catch (error) {
          if (!this.isMissing(error)) throw error;
          if (isAnswer) return { error: 'The user was asked, and access is still missing or not enough.' };
          return this.#ask(context);
        }
      },
    };
  }

  async #ask(context: Parameters<Tool['run']>[1]): Promise<JsonObject> {
    const { name, url: serverUrl, userOauth = {} } = this.#server;
    const { clientId, issuer, scope } = userOauth;
    const { redirectUrl } = this.#credentials;
    const client = this.#getClient();
    const grant: Grant = { serverUrl, redirectUrl, issuer, scope, client };
    if (this.#discovery) grant.discovery = this.#discovery;
    const state = randomBytes(32).toString('base64url');
    let page: URL | undefined;
    const provider = {
      ...toProvider(grant, client !== undefined),
      ...(clientId !== undefined && isHttpsUrl(clientId) && { clientMetadataUrl: clientId }),
      state: () => state,
      redirectToAuthorization: (url: URL) => void (page = url),
    };
    const { resourceMetadataUrl, scope: wanted } = this.#wanted;
    await auth(provider, {
      serverUrl,
      ...(resourceMetadataUrl && { resourceMetadataUrl }),
      ...(wanted !== undefined && { scope: wanted }),
      ...(this.#fetch && { fetchFn: this.#fetch }),
    });
    const { sessionId } = context.session;
    await this.#credentials.begin({ resource: serverUrl, sessionId, state, kept: toJson(grant) });
    const url = String(page);
    const hint = `\`${name}\` needs your permission. Open ${url}, and confirm when you have given it.`;
    return requestConfirmation(context, { hint, url, kept: { consent: serverUrl } });
  }
}
