/**
 * One oddity. What comes and goes over a wire is text, since its spelling is what matters: digits, nulls, doubled
 * members.
 */
export type Case = McpCase;

/** What came of a case, and what must hold. */
export interface Played {
  found: unknown;
  holds: unknown;
}

interface Told {
  /** What is odd, and what must hold. */
  about: string;
  /** Where it was seen, or what says that it may come. */
  source: string;
}

/** A tool of somebody's MCP server is listed and called. */
export interface McpCase extends Told {
  protocol: 'mcp';
  /** Texts of the results of `tools/list`, page by page. */
  lists: string[];
  /** The call that the model makes, with the text of its arguments. */
  call?: { name: string; args: string };
  /** Texts of what the server answers to `tools/call` in turn, the last one from then on: a result, or a status. */
  answers?: (string | { status: number })[];
  /** The server waits so long before it answers `initialize`, milliseconds. */
  initializeMs?: number;
  holds: {
    /** Names of the tools that the model is offered. */
    offered: string[];
    /** Text of the arguments that the server got; null if it got no call. */
    sent?: string | null;
    /** Text of what the model reads as the response. */
    response?: string;
    /** Parts of the lines of the log about what was left out. */
    warned?: string[];
  };
}
