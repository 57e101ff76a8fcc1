import {
  auth,
  type AuthProvider,
  ClientCredentialsProvider,
  extractWWWAuthenticateParams,
} from '@modelcontextprotocol/client';
import { AgentError, causes } from '../../core/errors.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { McpServer } from '../definition/agent.ts';

/**
 * A token for one server, obtained with the operator's credentials and kept in memory for all invocations of the
 * process until the server rejects it. The credentials go only to the operator's issuer, whichever the server names.
 * The token's audience is the server.
 */
export class OperatorToken {
  readonly #provider: ClientCredentialsProvider;
  #refreshing: Promise<unknown> | undefined;

  constructor({ clientId, clientSecret, issuer, scope }: NonNullable<McpServer['oauth']>) {
    const more = scope === undefined ? {} : { scope };
    this.#provider = new ClientCredentialsProvider({ clientId, clientSecret, expectedIssuer: issuer, ...more });
  }

  /**
   * Returns the provider for a transport. Requests to the issuer use `fetch`, which lacks the headers meant for the
   * server.
   */
  toAuthProvider(fetch: Egress['fetch']): AuthProvider {
    return {
      token: async () => this.#provider.tokens()?.access_token,
      onUnauthorized: async ({ response, serverUrl }) => {
        const rejected = this.#provider.tokens();
        // Another invocation may be refreshing; if that fails, this one tries too.
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
