import { ProtocolError, SdkHttpError, SseError } from '@modelcontextprotocol/client';
import { AgentError, causes } from '../../core/errors.ts';
import { abortError } from '../../core/abort.ts';
import type { McpServer } from '../definition/agent.ts';

/** Codes of connections that were not made. */
const UNSENT = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH)$/;

/** Code of the error of a request whose stream ended: the SDK's own codes are below -32000 and HTTP's above 0. */
export const STREAM_ENDED = -1;

/** Runs work under a time limit of its own; the limit's signal is aborted by the invocation's signal too. */
export async function within<Result>(
  timeoutMs: number,
  signal: AbortSignal,
  work: (limit: AbortSignal) => Promise<Result>,
) {
  const late = AbortSignal.timeout(timeoutMs);
  const limit = AbortSignal.any([signal, late]);
  try {
    limit.throwIfAborted();
    return await work(limit);
  } catch (error) {
    throw late.aborted && !signal.aborted ? late.reason : error;
  }
}

/** Returns the error of a server that gives more than it may. */
export const tooMuch = (what: string) => new AgentError('mcp_failed', `It has ${what}.`);

/** HTTP status in an error of the SDK's transports. */
export function getStatus(error: unknown): number | undefined {
  const found = [...causes(error)].find((each) => each instanceof SdkHttpError || each instanceof SseError);
  return found instanceof SdkHttpError ? found.status : found?.code;
}

/**
 * Says which server and why, without what the server wrote: that may be anything. `Unsure` is the error where no answer
 * came to what may have been sent.
 */
export function toMcpError(
  { name }: McpServer,
  what: string,
  error: unknown,
  signal: AbortSignal,
  Unsure = AgentError,
): AgentError {
  if (signal.aborted) return abortError(signal);
  // The refusal of the egress policy, or a bound of ours.
  const denial = [...causes(error)].find((each) => each instanceof AgentError);
  const status = getStatus(error);
  const code = error instanceof ProtocolError && error.code < STREAM_ENDED ? error.code : undefined;
  const isLate = error instanceof DOMException && error.name === 'TimeoutError';
  const other = isLate ? 'It took too long.' : 'The connection failed.';
  const answer = status === undefined ? code && `with error ${code}` : `HTTP ${status}`;
  const reason = denial?.message ?? (answer === undefined ? other : `It answered ${answer}.`);
  const isAnswered = denial ?? (status === undefined ? code !== undefined : status < 500);
  const isUnsent = [...causes(error)].some((cause) => UNSENT.test(String(cause.code)));
  const Failure = isAnswered || isUnsent ? AgentError : Unsure;
  return new Failure('mcp_failed', `MCP server \`${name}\` ${what}. ${reason}`, { cause: error });
}

/** Reasons of a program that cannot be started: no later try will. */
const UNSTARTABLE = /^(?:ENOENT|EACCES|ENOEXEC)$/;

/** Tells whether a server gave no answer, or one of 5xx: it may be there later, and nothing needs to be mended here. */
export function isUnreachable(error: unknown): boolean {
  const all = [...causes(error)];
  const status = getStatus(error);
  if (status !== undefined) return status >= 500;
  // A refusal of the egress policy, a bound of ours, or an answer of its own.
  const isRefusal = all.slice(1).some((cause) => cause instanceof AgentError || cause instanceof ProtocolError);
  return !isRefusal && !all.some((cause) => UNSTARTABLE.test(String((cause as { code?: unknown }).code)));
}
