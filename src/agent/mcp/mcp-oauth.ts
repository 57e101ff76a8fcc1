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
 * A token that the operator's credentials get for one server, kept in memory for all invocations of the process until
 * the server refuses it. The credentials go to the operator's issuer alone, whichever the server names, and the token
 * names the server.
 */
export class OperatorToken {
  readonly #provider: ClientCredentialsProvider;
  #refreshing: Promise<unknown> | undefined;

  constructor({ clientId, clientSecret, issuer, scope }: NonNullable<McpServer['oauth']>) {
    const more = scope === undefined ? {} : { scope };
    this.#provider = new ClientCredentialsProvider({ clientId, clientSecret, expectedIssuer: issuer, ...more });
  }

  /** Gives it to a transport, whose requests to the issuer go through `fetch`: without the headers for the server. */
  toAuthProvider(fetch: Egress['fetch']): AuthProvider {
    return {
      token: async () => this.#provider.tokens()?.access_token,
      onUnauthorized: async ({ response, serverUrl }) => {
        const sent = this.#provider.tokens();
        // Another invocation gets one; where it fails, this one tries too.
        await this.#refreshing?.catch(() => {});
        if (this.#provider.tokens() !== sent) return;
        const given = extractWWWAuthenticateParams(response);
        this.#refreshing = auth(this.#provider, { serverUrl, ...given, fetchFn: fetch });
        await this.#refreshing.catch((error: unknown) => {
          const denial = [...causes(error)].find((cause) => cause instanceof AgentError);
          throw denial ?? new AgentError('mcp_failed', 'Its authorization failed.', { cause: error });
        });
      },
    };
  }
}
