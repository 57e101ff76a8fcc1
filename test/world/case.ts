import type { ProviderName } from '../../src/agent/providers/index.ts';
import type { JsonObject } from '../../src/core/content.ts';

/**
 * One oddity. What comes and goes over a wire is text, since its spelling is what matters: digits, nulls, doubled
 * members.
 */
export type Case = McpCase | ProviderCase;

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

/** An answer of a provider is read. */
export interface ProviderCase extends Told {
  protocol: ProviderName;
  /** What the provider answers in turn, the last one from then on; by default a stream of events with status 200. */
  answers: { status?: number; contentType?: string; headers?: Record<string, string>; body: string }[];
  /** The agent's answers have this form. */
  outputSchema?: JsonObject;
  /** Each member that stands here is compared. */
  holds: {
    /** Texts of the answer and of its thoughts. */
    text?: string;
    thought?: string;
    /** Text that was streamed. */
    partial?: string;
    /** `args` and `invalid` are texts; without an id any that was made. */
    calls?: { id?: string; name: string; args: string; invalid?: string }[];
    /** What goes back to the provider: of the first part that has something, of all. */
    signature?: JsonObject;
    signatures?: JsonObject[];
    finishReason?: string;
    modelVersion?: string;
    usage?: JsonObject | null;
    /** Number of parts that were passed over. */
    passedOver?: number;
    /** Text of the value of an answer with a form. */
    output?: string;
    errorCode?: string;
    error?: string;
    /** Number of requests; a failure that passes is tried twice. */
    requests?: number;
  };
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
