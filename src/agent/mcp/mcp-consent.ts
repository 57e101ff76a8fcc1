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
import type { UserCredentials } from '../definition/services.ts';
import { type Tool, toParameters } from '../definition/tool.ts';
import { requestConfirmation } from './mcp-question.ts';

/** A user's OAuth consent that is in progress, or the tokens that came from it. */
type Grant = {
  serverUrl: string;
  redirectUrl: string;
  /** The OAuth issuer that the operator configured. If set, no other issuer is accepted. */
  issuer?: string | undefined;
  scope?: string | undefined;
  client?: StoredOAuthClientInformation | undefined;
  discovery?: OAuthDiscoveryState;
  codeVerifier?: string | undefined;
  tokens?: StoredOAuthTokens | undefined;
};

/** The user has not granted OAuth access to the server, or not with all required scopes. */
class ConsentMissing extends AgentError {
  constructor() {
    super('mcp_failed', 'Its user has given no access to it.');
  }
}

/**
 * Lets the MCP SDK's OAuth functions read and fill a grant. A client that the operator configured is never replaced by
 * a dynamically registered one.
 */
function toProvider(grant: Grant): OAuthClientProvider {
  const { redirectUrl, scope, client: configured } = grant;
  return {
    redirectUrl,
    clientMetadata: { client_name: 'agent-runtime', redirect_uris: [redirectUrl], ...(scope && { scope }) },
    clientInformation: () => grant.client,
    ...(!configured && { saveClientInformation: (client) => void (grant.client = client) }),
    tokens: () => undefined,
    saveTokens: (tokens) => void (grant.tokens = tokens),
    codeVerifier: () => grant.codeVerifier ?? '',
    saveCodeVerifier: (verifier) => void (grant.codeVerifier = verifier),
    discoveryState: () => grant.discovery,
    saveDiscoveryState(discovery) {
      const issuer = discovery.authorizationServerMetadata?.issuer ?? discovery.authorizationServerUrl;
      if (grant.issuer !== undefined && issuer !== grant.issuer)
        throw new AgentError('mcp_failed', 'It names another issuer than its entry.');
      grant.discovery = discovery;
    },
    redirectToAuthorization() {},
  };
}

/** Exchanges the authorization code for tokens, at the issuer where the consent began; returns the grant to store. */
export async function finishConsent(
  kept: JsonObject,
  { code, iss }: { code: string; iss?: string | undefined },
  fetchFn: FetchLike,
): Promise<JsonObject> {
  const grant = { ...(kept as Grant) };
  const answer = { authorizationCode: code, ...(iss !== undefined && { iss }) };
  await auth(toProvider(grant), { serverUrl: grant.serverUrl, ...answer, fetchFn });
  delete grant.codeVerifier;
  return grant;
}

/** Revokes an OAuth grant at its issuer, if the issuer has a revocation endpoint (RFC 7009). */
export async function revokeGrant(kept: JsonObject, fetchFn: FetchLike): Promise<void> {
  const { discovery, client, tokens } = kept as Grant;
  const { revocation_endpoint: endpoint } = (discovery?.authorizationServerMetadata ?? {}) as JsonObject;
  const token = tokens?.refresh_token ?? tokens?.access_token;
  if (typeof endpoint !== 'string' || token === undefined || !client) return;
  const { client_id, client_secret } = client as { client_id: string; client_secret?: string };
  const body = new URLSearchParams({ token, ...(!client_secret && { client_id }) });
  const basic = Buffer.from([client_id, client_secret ?? ''].map(encodeURIComponent).join(':')).toString('base64');
  const headers: Record<string, string> = client_secret ? { authorization: `Basic ${basic}` } : {};
  await fetchFn(endpoint, { method: 'POST', body, headers });
}

/** @throws {AgentError} if this process has no store for OAuth grants */
export function openUserToken(
  server: { name: string; url: string; userOauth: NonNullable<McpServer['userOauth']> & { issuer: string } },
  openCredentials: ((userId: string) => UserCredentials | undefined) | undefined,
  userId: string,
): UserToken {
  const credentials = openCredentials?.(userId);
  if (!credentials)
    throw new AgentError('mcp_failed', `\`${server.name}\` needs what its user grants: set RUNTIME_SECRET_KEY.`);
  return new UserToken(server, credentials, { authorizationServerUrl: server.userOauth.issuer });
}

/** OAuth access of one user to one server. The user grants it in a browser. */
export class UserToken {
  readonly #server: McpServer & { url: string };
  readonly #credentials: UserCredentials;
  /** The operator's OAuth client. Default: one registered dynamically, or described by a metadata document. */
  readonly #client: StoredOAuthClientInformation | undefined;
  #grant: Grant | undefined;
  /** Parameters of the server's last `WWW-Authenticate` header, such as the required scope. */
  #challenge: ReturnType<typeof extractWWWAuthenticateParams> = {};
  #fetch: FetchLike | undefined;
  readonly #discovery: OAuthDiscoveryState | undefined;

  /** @param discovery - metadata of the server's issuer, if known; fetched by default */
  constructor(server: McpServer, credentials: UserCredentials, discovery?: OAuthDiscoveryState) {
    this.#server = { ...server, url: toAddress(server) };
    this.#credentials = credentials;
    this.#discovery = discovery;
    const { clientId: client_id, clientSecret: client_secret, issuer } = server.userOauth ?? {};
    if (client_id === undefined || isHttpsUrl(client_id)) return;
    this.#client = {
      client_id,
      ...(client_secret !== undefined && { client_secret }),
      ...(issuer !== undefined && { issuer }),
    };
  }

  /** `fetch` sends the requests to the issuer. It does not add the headers that are meant for the server. */
  toAuthProvider(fetch: FetchLike): AuthProvider {
    this.#fetch = fetch;
    const { url } = this.#server;
    return {
      token: async () => {
        this.#grant ??= (await this.#credentials.read(url)) as Grant | undefined;
        return this.#grant?.tokens?.access_token;
      },
      onUnauthorized: async ({ response }) => {
        this.#challenge = extractWWWAuthenticateParams(response);
        const expired = this.#grant;
        const fresh = expired && (await this.#credentials.renew(url, expired, () => this.#refresh(expired)));
        this.#grant = fresh as Grant | undefined;
        if (!fresh) throw new ConsentMissing();
      },
    };
  }

  /** Refreshes the access token. Returns `undefined` if the issuer says that the grant is no longer valid. */
  async #refresh({ tokens, discovery, ...grant }: Grant): Promise<JsonObject | undefined> {
    const client = this.#client ?? grant.client;
    if (!tokens?.refresh_token || !discovery || !client) return undefined;
    try {
      const fresh = await refreshAuthorization(discovery.authorizationServerUrl, {
        ...(discovery.authorizationServerMetadata && { metadata: discovery.authorizationServerMetadata }),
        clientInformation: client,
        refreshToken: tokens.refresh_token,
        resource: discovery.resourceMetadata?.resource ?? grant.serverUrl,
        ...(this.#fetch && { fetchFn: this.#fetch }),
      });
      return { ...grant, client, discovery, tokens: { ...tokens, ...fresh } };
    } catch (error) {
      if (error instanceof OAuthError && error.code !== 'server_error') return undefined;
      throw new AgentError('mcp_failed', 'Its access could not be renewed.', { cause: error });
    }
  }

  /** True for an error after which the user must be asked for OAuth access. */
  isMissing(error: unknown): boolean {
    for (const cause of causes(error)) {
      if (cause instanceof ConsentMissing) return true;
      if (!(cause instanceof InsufficientScopeError)) continue;
      const scope = computeScopeUnion(this.#grant?.tokens?.scope, this.#challenge.scope, cause.requiredScope);
      const { resourceMetadataUrl } = cause;
      Object.assign(this.#challenge, scope && { scope }, resourceMetadataUrl && { resourceMetadataUrl });
      return true;
    }
    return false;
  }

  /** Returns a tool that asks the user for OAuth consent: the server's only tool until the user has granted access. */
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

  /** If OAuth access is missing, a call of the tool pauses until the user has consented, and is then repeated. */
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
          const consent = await this.requestConsent(context.session.sessionId);
          return requestConfirmation(context, { ...consent, kept: { consent: this.#server.url } });
        }
      },
    };
  }

  /** Begins an OAuth consent; returns the URL for the user's browser, and a message with the URL. */
  async requestConsent(sessionId: string): Promise<{ hint: string; url: string }> {
    const { name, url: serverUrl, userOauth = {} } = this.#server;
    const { clientId, issuer, scope } = userOauth;
    const { redirectUrl } = this.#credentials;
    const grant: Grant = { serverUrl, redirectUrl, issuer, scope, client: this.#client };
    if (this.#discovery) grant.discovery = this.#discovery;
    const state = randomBytes(32).toString('base64url');
    let page: URL | undefined;
    const provider = {
      ...toProvider(grant),
      ...(clientId !== undefined && isHttpsUrl(clientId) && { clientMetadataUrl: clientId }),
      state: () => state,
      redirectToAuthorization: (url: URL) => void (page = url),
    };
    await auth(provider, { serverUrl, ...this.#challenge, ...(this.#fetch && { fetchFn: this.#fetch }) });
    await this.#credentials.begin({ resource: serverUrl, sessionId, state, kept: grant });
    const url = String(page);
    const hint = `\`${name}\` needs your permission. Open ${url}, and confirm when you have given it.`;
    return { hint, url };
  }
}
