import { ProtocolError, SdkHttpError, SseError } from '@modelcontextprotocol/client';
import { AgentError, causes, isUnconnected } from '../../core/errors.ts';
import { abortError } from '../../core/abort.ts';
import type { McpServer } from '../definition/agent.ts';

/** Error code: the response stream ended without a response. SDK codes are below -32000, HTTP statuses above 0. */
export const STREAM_ENDED = -1;

/** Runs `work` with a time limit. The signal `limit` aborts at the time limit or with the invocation. */
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

/** Returns the HTTP status that an error of the MCP SDK's transports contains. */
export function getStatus(error: unknown): number | undefined {
  const failure = [...causes(error)].find((each) => each instanceof SdkHttpError || each instanceof SseError);
  return failure instanceof SdkHttpError ? failure.status : failure?.code;
}

/**
 * Returns an error that names the server and the reason. It does not quote the server, because its text is untrusted.
 * `Unsure` is the class of the error if a request that may have been sent got no response.
 */
export function toMcpError(
  { name }: McpServer,
  what: string,
  error: unknown,
  signal: AbortSignal,
  Unsure = AgentError,
): AgentError {
  if (signal.aborted) return abortError(signal);
  // The egress policy denied the request, or it exceeded a limit of this runtime.
  const denial = [...causes(error)].find((each) => each instanceof AgentError);
  const status = getStatus(error);
  const code = error instanceof ProtocolError && error.code < STREAM_ENDED ? error.code : undefined;
  const isLate = error instanceof DOMException && error.name === 'TimeoutError';
  const other = isLate ? 'It took too long.' : 'The connection failed.';
  const answer = status === undefined ? code && `with error ${code}` : `HTTP ${status}`;
  const reason = denial?.message ?? (answer === undefined ? other : `It answered ${answer}.`);
  const isAnswered = denial ?? (status === undefined ? code !== undefined : status < 500);
  const isUnsent = isUnconnected(error);
  const Failure = isAnswered || isUnsent ? AgentError : Unsure;
  return new Failure('mcp_failed', `MCP server \`${name}\` ${what}. ${reason}`, { cause: error });
}

/** Node's error codes for a program that cannot be started, also not by a retry. */
const UNSTARTABLE = /^(?:ENOENT|EACCES|ENOEXEC)$/;

/** True if the server did not respond or responded with a 5xx status: the configuration is probably right. */
export function isUnreachable(error: unknown): boolean {
  const all = [...causes(error)];
  const status = getStatus(error);
  if (status !== undefined) return status >= 500;
  // True if the egress policy denied the request, a limit was exceeded, or the server responded with an error.
  const isRefusal = all.slice(1).some((cause) => cause instanceof AgentError || cause instanceof ProtocolError);
  return !isRefusal && !all.some((cause) => UNSTARTABLE.test(String((cause as { code?: unknown }).code)));
}
