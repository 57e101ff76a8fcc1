import { AgentError } from '../../core/errors.ts';
import type { McpServer } from '../definition/agent.ts';

/** Counts the connections that each user has open to each MCP server, within this process. */
export class McpConnections {
  readonly #maximum: number;
  readonly #open = new Map<string, number>();

  /** @param maximum of connections of one user to one server */
  constructor(maximum: number) {
    this.#maximum = maximum;
  }

  /**
   * Takes a place. @returns what gives it back, once.
   * @throws {AgentError} `mcp_failed` where the user has none left at this server.
   */
  take(userId: string, server: McpServer): () => void {
    const key = JSON.stringify([userId, URL.parse(server.url)?.origin ?? server.url]);
    const open = this.#open.get(key) ?? 0;
    if (open >= this.#maximum) {
      const what = `has ${open} connections of this user, the maximum of MCP_CONNECTIONS_PER_USER`;
      throw new AgentError('mcp_failed', `MCP server \`${server.name}\` ${what}. Try again when others have ended.`);
    }
    this.#open.set(key, open + 1);
    let isBack = false;
    return () => {
      if (isBack) return;
      isBack = true;
      const left = (this.#open.get(key) ?? 1) - 1;
      if (left > 0) this.#open.set(key, left);
      else this.#open.delete(key);
    };
  }
}
