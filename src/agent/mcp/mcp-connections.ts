import type { PriorDiscovery } from '@modelcontextprotocol/client';
import { AgentError } from '../../core/errors.ts';
import type { Sockets } from '../../platform/net/egress.ts';
import { BoundedCache } from '../../platform/work/bounded-cache.ts';
import { CallerCounts } from '../../platform/work/fair-semaphore.ts';
import { type McpServer, toAddress } from '../definition/agent.ts';
import type { OperatorToken } from './mcp-oauth.ts';

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
