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
