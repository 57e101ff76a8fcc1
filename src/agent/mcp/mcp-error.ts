import { ProtocolError, SdkHttpError, SseError } from '@modelcontextprotocol/client';
import { AgentError, causes } from '../../core/errors.ts';
import { abortError } from '../../core/abort.ts';
import type { McpServer } from '../definition/agent.ts';

/** Codes of connections that were not made. */
const UNSENT = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH)$/;

/** Runs work under a time limit of its own; the limit's signal is aborted by the invocation's signal too. */
export async function within<Result>(
  timeoutMs: number,
  signal: AbortSignal,
  work: (limit: AbortSignal) => Promise<Result>,
) {
  const timer = new AbortController();
  const handle = setTimeout(() => timer.abort(new TimedOut()), timeoutMs);
  const limit = AbortSignal.any([signal, timer.signal]);
  try {
    limit.throwIfAborted();
    return await work(limit);
  } catch (error) {
    if (timer.signal.aborted && !signal.aborted) throw timer.signal.reason;
    throw error;
  } finally {
    clearTimeout(handle);
  }
}

class TimedOut extends Error {}

/** Returns the error of a server that gives more than it may. */
export const tooMuch = (what: string) => new AgentError('mcp_failed', `It has ${what}.`);

/** HTTP status in an error of the SDK's transports. */
export function getStatus(error: unknown): number | undefined {
  for (let each = error; each instanceof Error; each = each.cause) {
    if (each instanceof SdkHttpError) return each.status;
    if (each instanceof SseError) return each.code;
  }
  return undefined;
}

/**
 * Says which server and why, without what the server wrote: that may be anything. `Unsure` is the error where no answer
 * came to what may have been sent.
 */
export function toMcpError(
  server: McpServer,
  what: string,
  error: unknown,
  signal: AbortSignal,
  Unsure = AgentError,
): AgentError {
  if (signal.aborted) return abortError(signal);
  const denial = findDenial(error);
  const status = getStatus(error);
  const protocolCode = error instanceof ProtocolError ? error.code : undefined;
  const reason = denial
    ? denial.message
    : error instanceof TimedOut
      ? 'It took too long.'
      : status !== undefined
        ? `It answered HTTP ${status}.`
        : protocolCode !== undefined && protocolCode < -1
          ? `It answered with error ${protocolCode}.`
          : 'The connection failed.';
  const isAnswered = denial || (status !== undefined ? status < 500 : protocolCode !== undefined && protocolCode < -1);
  const isUnsent = [...causes(error)].some(({ code: name }) => UNSENT.test(String(name)));
  const Failure = isAnswered || isUnsent ? AgentError : Unsure;
  return new Failure('mcp_failed', `MCP server \`${server.name}\` ${what}. ${reason}`, { cause: error });
}

/** The egress policy's refusal, where there is one among the causes. */
function findDenial(error: unknown): AgentError | undefined {
  for (let each = error; each instanceof Error; each = each.cause) if (each instanceof AgentError) return each;
  return undefined;
}
