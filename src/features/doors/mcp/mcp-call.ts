import { CLIENT_CAPABILITIES_META_KEY, type ServerContext } from '@modelcontextprotocol/server';
import type { JsonObject } from '../../../core/content.ts';
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

/** The members of a value that came from outside; none where it is no object. */
export const toObject = (value: unknown): JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : {};

/** Returns what a client of 2026 says that it can, with each of its messages. */
export const getCapabilities = (envelope: ServerContext['mcpReq']['envelope']): JsonObject =>
  toObject(toObject(envelope)[CLIENT_CAPABILITIES_META_KEY]);
