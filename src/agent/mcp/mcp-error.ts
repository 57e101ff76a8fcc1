import { ProtocolError, SdkHttpError, SseError } from '@modelcontextprotocol/client';
import { AgentError, causes } from '../../core/errors.ts';
import { abortError } from '../../core/abort.ts';
import type { McpServer } from '../definition/agent.ts';

/** Error codes of connections that were never established. */
const UNSENT = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH)$/;

/** Error code of a request whose stream ended; the SDK's own codes are below -32000, HTTP's above 0. */
export const STREAM_ENDED = -1;

/** Runs work under its own time limit; `limit` also aborts with the invocation. */
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

export const tooMuch = (what: string) => new AgentError('mcp_failed', `It has ${what}.`);

/** Returns the HTTP status in an error of the SDK's transports. */
export function getStatus(error: unknown): number | undefined {
  const failure = [...causes(error)].find((each) => each instanceof SdkHttpError || each instanceof SseError);
  return failure instanceof SdkHttpError ? failure.status : failure?.code;
}

/**
 * Names server and reason without quoting the server, because its text may be anything. `Unsure` is the error class if
 * a request may have been sent and was not answered.
 */
export function toMcpError(
  { name }: McpServer,
  what: string,
  error: unknown,
  signal: AbortSignal,
  Unsure = AgentError,
): AgentError {
  if (signal.aborted) return abortError(signal);
  // A denial by the egress policy, or one of our limits.
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

/** Error codes of a program that can never start. */
const UNSTARTABLE = /^(?:ENOENT|EACCES|ENOEXEC)$/;

/** True if a server gave no answer or a 5xx: it may recover, and nothing here is misconfigured. */
export function isUnreachable(error: unknown): boolean {
  const all = [...causes(error)];
  const status = getStatus(error);
  if (status !== undefined) return status >= 500;
  // A denial by the egress policy, one of our limits, or an answer of the server.
  const isRefusal = all.slice(1).some((cause) => cause instanceof AgentError || cause instanceof ProtocolError);
  return !isRefusal && !all.some((cause) => UNSTARTABLE.test(String((cause as { code?: unknown }).code)));
}
