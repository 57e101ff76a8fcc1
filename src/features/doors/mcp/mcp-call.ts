import {
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  type ServerContext,
} from '@modelcontextprotocol/server';
import type { InvocationContext } from '../../../invocations/context.ts';
import { toFailure } from '../../../platform/http/error-handler.ts';
import { toLogFields } from '../../../platform/log.ts';
import type { TurnCall } from '../start-turn.ts';

/** One message of a client, whose it is, and how it came. */
export interface McpCall extends TurnCall {
  context: InvocationContext;
  userId: string;
  /** The applications that it may be about. */
  appNames: string[];
  /** True in the era of 2026-07-28. */
  isModern: boolean;
  /** Version of the runtime. */
  version: string;
  /** Aborted when its client leaves before the answer. */
  left: AbortSignal;
  /** Aborted when its answer will not be read any more, or this process stops. */
  signal: AbortSignal;
}

/** Returns a failure as `/run` would word it. */
export function toSentence({ context }: McpCall, error: unknown): { status: number; sentence: string } {
  const { status, detail, isUnexpected } = toFailure(error, Infinity);
  if (isUnexpected) context.log.error(toLogFields(error), 'a message of an MCP client failed');
  return { status, sentence: typeof detail === 'string' ? detail : detail.map(({ msg }) => msg).join(' ') };
}

/** Returns what a client of 2026 says that it can, with each of its messages; the SDK has checked it. */
export const getCapabilities = ({ envelope = {} }: ServerContext['mcpReq']): ClientCapabilities =>
  (envelope as Record<string, ClientCapabilities>)[CLIENT_CAPABILITIES_META_KEY] ?? {};
