import {
  auth,
  type AuthProvider,
  ClientCredentialsProvider,
  extractWWWAuthenticateParams,
} from '@modelcontextprotocol/client';
import { AgentError, causes } from '../../core/errors.ts';
import type { Egress } from '../../platform/net/egress.ts';
import type { McpServer } from '../definition/agent.ts';

/** The time before its end at which a token is no longer sent. */
const EARLY_MS = 10_000;

/**
 * A token that the operator's credentials get for one server, kept in memory for all invocations of the process. The
 * credentials go to the operator's issuer alone, whichever the server names, and the token names the server.
 */
export class OperatorToken {
  readonly #provider: ClientCredentialsProvider;
  #expireTime = 0;
  #refreshing: Promise<unknown> | undefined;

  constructor({ clientId, clientSecret, issuer, scope }: NonNullable<McpServer['oauth']>) {
    const more = scope === undefined ? {} : { scope };
    this.#provider = new ClientCredentialsProvider({ clientId, clientSecret, expectedIssuer: issuer, ...more });
  }

  /** Gives it to a transport, whose requests to the issuer go through `fetch`: without the headers for the server. */
  toAuthProvider(fetch: Egress['fetch']): AuthProvider {
    return {
      token: async () => this.#read(),
      onUnauthorized: async ({ response, serverUrl }) => {
        const sent = this.#read();
        // Another invocation gets one; where it fails, this one tries too.
        await this.#refreshing?.catch(() => {});
        if (this.#read() !== sent && this.#read() !== undefined) return;
        const given = extractWWWAuthenticateParams(response);
        const refresh = auth(this.#provider, { serverUrl, ...given, fetchFn: fetch }).then(() => this.#note());
        this.#refreshing = refresh;
        await refresh.catch((error: unknown) => {
          const denial = [...causes(error)].find((cause) => cause instanceof AgentError);
          throw denial ?? new AgentError('mcp_failed', 'Its authorization failed.', { cause: error });
        });
      },
    };
  }

  #read(): string | undefined {
    return performance.now() < this.#expireTime ? this.#provider.tokens()?.access_token : undefined;
  }

  #note(): void {
    const seconds = this.#provider.tokens()?.expires_in;
    const early = Math.min(EARLY_MS, (seconds ?? 0) * 500);
    this.#expireTime = seconds === undefined ? Infinity : performance.now() + seconds * 1_000 - early;
  }
}
