import {
  type PriorDiscovery,
  auth,
  type AuthProvider,
  ClientCredentialsProvider,
  extractWWWAuthenticateParams,
} from '@modelcontextprotocol/client';
import { AgentError, causes } from '../../core/errors.ts';
import type { Sockets, Egress } from '../../platform/net/egress.ts';
import { BoundedCache } from '../../platform/work/bounded-cache.ts';
import { CallerCounts } from '../../platform/work/fair-semaphore.ts';
import { type McpServer, toAddress } from '../definition/agent.ts';

export interface McpTimeouts {
  /** Time to connect. Default: 15,000, because a server that is started on demand needs seconds. */
  connectMs: number;
  /** Time limit for all pages of the tool list. Default: 15,000. */
  listMs: number;
  /** Time limit of one tool call. Default: 60,000. */
  callMs: number;
}

/** Limits open connections per user and MCP server in this process, and caches what is known about servers. */
export class McpConnections {
  readonly #open: CallerCounts;
  /** Protocol version of servers, by address or principal (user, server, credentials). `until`: when it expires. */
  readonly eras = new BoundedCache<{ prior: PriorDiscovery; until: number }>();
  /** Sockets to servers without MCP sessions, by principal (user, server and credentials). */
  readonly sockets = new BoundedCache<Sockets>();
  /** Access tokens of the operator, by server address and credentials. */
  readonly tokens = new BoundedCache<OperatorToken>();

  /** @param maximum - maximum number of connections of one user to one server */
  constructor(maximum: number) {
    this.#open = new CallerCounts(maximum);
  }

  /**
   * Counts a new connection; returns an idempotent function that releases it.
   * @throws {AgentError} `mcp_failed` if the user already has the maximum number of connections to this server
   */
  take(userId: string, server: McpServer): () => void {
    const address = toAddress(server);
    const key = JSON.stringify([userId, server.command === undefined ? URL.parse(address)?.origin : address]);
    const give = this.#open.take(key);
    if (give) return give;
    const what = `has ${this.#open.maximum} connections of this user, the maximum`;
    throw new AgentError('mcp_failed', `MCP server \`${server.name}\` ${what}. Try again when others have ended.`);
  }
}

/**
 * An access token for one server, obtained with the operator's OAuth client credentials. It is kept in memory for all
 * invocations of the process, until the server rejects it. The credentials are sent only to the issuer that the
 * operator configured, even if the server names another. The audience of the token is the server.
 */
export class OperatorToken {
  readonly #provider: ClientCredentialsProvider;
  #refreshing: Promise<unknown> | undefined;

  constructor({ clientId, clientSecret, issuer, scope }: NonNullable<McpServer['oauth']>) {
    const more = scope === undefined ? {} : { scope };
    this.#provider = new ClientCredentialsProvider({ clientId, clientSecret, expectedIssuer: issuer, ...more });
  }

  /** `fetch` sends the requests to the issuer. It does not add the headers that are meant for the server. */
  toAuthProvider(fetch: Egress['fetch']): AuthProvider {
    return {
      token: async () => this.#provider.tokens()?.access_token,
      onUnauthorized: async ({ response, serverUrl }) => {
        const rejected = this.#provider.tokens();
        // If another invocation is getting a token, waits for it; if that fails, this invocation tries too.
        await this.#refreshing?.catch(() => {});
        if (this.#provider.tokens() !== rejected) return;
        const challenge = extractWWWAuthenticateParams(response);
        this.#refreshing = auth(this.#provider, { serverUrl, ...challenge, fetchFn: fetch });
        await this.#refreshing.catch((error: unknown) => {
          const denial = [...causes(error)].find((cause) => cause instanceof AgentError);
          throw denial ?? new AgentError('mcp_failed', 'Its authorization failed.', { cause: error });
        });
      },
    };
  }
}
