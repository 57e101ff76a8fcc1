/** Maximum waits for an MCP server in milliseconds. */
export interface McpTimeouts {
  /** [3,000] */
  connectMs: number;
  /** [10,000] all pages of the list */
  listMs: number;
  /** [60,000] */
  callMs: number;
}

/** The waits that hold where the settings name none. */
export const DEFAULT_MCP_TIMEOUTS: McpTimeouts = { connectMs: 3_000, listMs: 10_000, callMs: 60_000 };

/** Maximum number of tools of one server, and of all servers of one agent. */
export const MAX_TOOLS = 256;
