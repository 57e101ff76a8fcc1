import {
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { toFailure } from '../../../platform/http/error-handler.ts';
import { toLogFields } from '../../../platform/log.ts';
import type { DoorCall } from '../door.ts';

export interface McpCall extends DoorCall {
  userId: string;
  appNames: string[];
  /** True for clients of protocol version 2026-07-28. */
  isModern: boolean;
  version: string;
}

/** Converts an error to a status and a message, as for `/run`. Unexpected errors are logged. */
export function toSentence({ context }: McpCall, error: unknown): { status: number; sentence: string } {
  const { status, detail, isUnexpected } = toFailure(error, Infinity);
  if (isUnexpected) context.log.error(toLogFields(error), 'a message of an MCP client failed');
  return { status, sentence: typeof detail === 'string' ? detail : detail.map(({ msg }) => msg).join(' ') };
}

/** Returns the capabilities that a modern client sends with each message; the SDK has validated them. */
export const getCapabilities = ({ envelope = {} }: ServerContext['mcpReq']): ClientCapabilities =>
  (envelope as Record<string, ClientCapabilities>)[CLIENT_CAPABILITIES_META_KEY] ?? {};
