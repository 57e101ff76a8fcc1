import { type IncomingMessage, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { ErrorRequestHandler, Response } from 'express';
import {
  AgentError,
  answerRefusal,
  AppError,
  BusyError,
  ConflictError,
  DATABASE_AWAY,
  ForbiddenError,
  HandedOverError,
  causes,
  InvalidError,
  InvalidTokenError,
  isPassingFailure,
  KeyReusedError,
  LimitError,
  LeaseLostError,
  NotFoundError,
  PreconditionFailedError,
  sizeRefusal,
  stateRefusal,
  StoppedError,
  TooLargeError,
  UnauthenticatedError,
  UnavailableError,
  userDataRefusal,
} from '../../core/errors.ts';
import { toLogFields } from '../log.ts';
import type { Noted, ToRefusal } from './operation/operation.ts';
import {
  type ErrorStatus,
  type ValidationDetail,
  type RefusalReason,
  RequestRefusedError,
  ValidationFailedError,
  valueError,
} from './operation/request-errors.ts';

/** The log for facts about a request that no client may see. */
export interface EdgeLog {
  error(fields: Record<string, unknown>, message: string): void;
  warn(fields: Record<string, unknown>, message: string): void;
  /** Absent: nothing is logged at level `info`. */
  info?(fields: Record<string, unknown>, message: string): void;
  isLevelEnabled?(level: string): boolean;
}

interface Failure {
  status: ErrorStatus;
  detail: string | ValidationDetail[];
  headers?: Record<string, string>;
  /** Name of the limit that refused the request. */
  limit?: string;
  /** True if the cause is only in the log. */
  isUnexpected?: boolean;
}

/** `Retry-After` in seconds while a part of the service is unavailable. */
const RETRY_AFTER_SECONDS = 1;

/** Turns every error into an HTTP response; nothing else does. A response contains no SQL, stack, secret or prompt. */
export function errorHandler(options: {
  log: EdgeLog;
  maxBodyBytes: number;
  hasIssuer?: boolean;
}): ErrorRequestHandler {
  return (error: unknown, request, response, _next) => {
    const failure = toFailure(error, options.maxBodyBytes);
    const { metadataUrl, toRefusal, route = 'unknown', requestId } = response.locals as Noted;
    if (options.hasIssuer && metadataUrl !== undefined) addChallenge(failure, error, metadataUrl);
    if (failure.isUnexpected || response.headersSent) {
      options.log.error({ requestId, method: request.method, route, ...toLogFields(error) }, 'request failed');
    }
    if (response.headersSent) response.destroy();
    else if (toRefusal) sendRefusal(response, failure, toRefusal(failure, error, request));
    else sendFailure(response, failure, request.headers.accept === 'text/event-stream');
  };
}

/** A client that requests a stream gets a 413 as a frame, because the Web UI shows only frames. */
function sendFailure(response: Response, { status, detail, headers, limit }: Failure, wantsStream: boolean): void {
  response.removeHeader('etag');
  for (const [name, value] of Object.entries(headers ?? {})) response.setHeader(name, value);
  const isFrame = wantsStream && status === 413;
  const body = Buffer.from(
    isFrame ? `data: ${JSON.stringify({ error: detail })}\n\n` : JSON.stringify({ detail, limit }),
  );
  const type = isFrame ? 'text/event-stream' : 'application/json';
  response.writeHead(status, { 'content-type': type, 'content-length': body.length }).end(body);
}

function sendRefusal(response: Response, failure: Failure, { status, body, headers }: ReturnType<ToRefusal>): void {
  response.removeHeader('etag');
  for (const [name, value] of Object.entries({ ...failure.headers, ...headers })) response.setHeader(name, value);
  response.status(status).json(body);
}

/** Adds the address of the OAuth resource metadata and the missing scope (RFC 9728 §5.1, RFC 6750 §3). */
function addChallenge(failure: Failure, error: unknown, metadataUrl: string): void {
  const scope = error instanceof ForbiddenError ? error.scope : undefined;
  const missing = scope === undefined ? undefined : `Bearer error="insufficient_scope", scope="${scope}"`;
  const challenge = failure.headers?.['www-authenticate'] ?? missing;
  if (challenge === undefined) return;
  const metadata = `${challenge === 'Bearer' ? ' ' : ', '}resource_metadata="${metadataUrl}"`;
  failure.headers = { ...failure.headers, 'www-authenticate': challenge + metadata };
}

/** Error code of Node's HTTP parser, which fails before a request exists → status and message. */
const PARSER_STATUS: Record<string, [ErrorStatus, string]> = {
  HPE_HEADER_OVERFLOW: [431, 'The request headers are too large.'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'The request took too long to arrive.'],
};

/** Listener for `clientError` of an HTTP server, because Node's own response to a malformed request has no body. */
export function answerClientError(error: Error & { code?: string }, socket: Duplex): void {
  const [status, detail] = PARSER_STATUS[error.code ?? ''] ?? [400, 'The request is not valid HTTP.'];
  endWith(socket, status, detail);
}

/** Methods that do no more if they are sent twice. */
const SAFE_TWICE = ['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS'];

/**
 * Answers a request whose grace is over, and ends its connection. Nothing of a response may have been sent. It may have
 * begun an invocation, so without a key it is not told to come back: its prompt would run twice.
 */
export function answerStopped(socket: Duplex, { method = '', headers }: IncomingMessage): void {
  const isRepeatable = SAFE_TWICE.includes(method) || headers['idempotency-key'] !== undefined;
  const detail = isRepeatable
    ? 'The service is stopping. Try again.'
    : 'The service is stopping. What was asked may have begun: look before you send it again.';
  endWith(socket, 503, detail, isRepeatable ? [`retry-after: ${RETRY_AFTER_SECONDS}`] : []);
}

/** Writes a response beside Node's HTTP server, and ends the connection. */
function endWith(socket: Duplex, status: number, detail: string, headers: string[] = []): void {
  if (!socket.writable) return;
  const body = JSON.stringify({ detail });
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'content-type: application/json',
    'connection: close',
    ...headers,
  ];
  // A half-closed socket would stay open, with its request in memory, as long as the client likes.
  socket.end([...head, `content-length: ${Buffer.byteLength(body)}`, '', body].join('\r\n'), () => socket.destroy());
}

/** Returns status and message of an error. Front ends for other protocols put the message into their own formats. */
export function toFailure(error: unknown, maxBodyBytes: number): Failure {
  if (error instanceof ValidationFailedError) return { status: 422, detail: error.details };
  if (error instanceof RequestRefusedError)
    return { status: REFUSAL_STATUS[error.reason], detail: error.message, headers: error.headers };
  if (error instanceof AppError) return appFailure(error);
  return bodyFailure(error, maxBodyBytes) ?? databaseFailure(error) ?? unexpected();
}

const REFUSAL_STATUS: Record<RefusalReason, ErrorStatus> = {
  malformed_path: 400,
  malformed_text: 400,
  malformed_headers: 400,
  forbidden_origin: 403,
  unknown_path: 404,
  method_not_allowed: 405,
  unsupported_media_type: 415,
  not_deliberate: 415,
  upgrade_required: 426,
};

const unexpected = (): Failure => ({ status: 500, detail: 'Internal Server Error', isUnexpected: true });

function unavailable(detail: string): Failure {
  return { status: 503, detail, headers: { 'retry-after': String(RETRY_AFTER_SECONDS) } };
}

function appFailure(error: AppError): Failure {
  const detail = error.message;
  if (error instanceof NotFoundError) return { status: 404, detail };
  if (error instanceof InvalidError) return { status: 400, detail };
  if (error instanceof ConflictError || error instanceof LeaseLostError || error instanceof StoppedError)
    return { status: 409, detail };
  if (error instanceof PreconditionFailedError)
    return { status: 412, detail, headers: error.etag === undefined ? {} : { etag: error.etag } };
  if (error instanceof TooLargeError) return { status: 413, detail };
  if (error instanceof UnauthenticatedError) {
    // RFC 6750 §3.1: with `invalid_token` a client renews its token; without an error code it requests a first token.
    const challenge = error instanceof InvalidTokenError ? 'Bearer error="invalid_token"' : 'Bearer';
    return { status: 401, detail, headers: { 'www-authenticate': challenge } };
  }
  if (error instanceof ForbiddenError) return { status: 403, detail };
  if (error instanceof HandedOverError) {
    // No `retry-after` if a retry would send the prompt a second time.
    const again = error.isRepeatable ? unavailable(detail).headers : {};
    return { status: 503, detail, headers: { ...again, 'x-invocation-id': error.invocationId } };
  }
  if (error instanceof UnavailableError) return unavailable(detail);
  if (error instanceof KeyReusedError)
    return { status: 422, detail: [valueError(['header', 'idempotency-key'], detail, null)] };
  if (error instanceof LimitError) {
    const { limit } = error;
    return { status: 429, detail, limit, headers: { ...retryAfter(error), 'x-limit': limit } };
  }
  if (error instanceof BusyError) {
    const headers = retryAfter(error);
    return { status: error.reason === 'rejected' ? 409 : 429, detail, headers };
  }
  // The agent's message may quote a provider. The invocation's row and last event show it to callers who may read them.
  if (error instanceof AgentError) return { ...unexpected(), detail: 'The agent could not complete the invocation.' };
  return unexpected();
}

const retryAfter = ({ retryAfterSeconds }: BusyError | LimitError) => ({
  'retry-after': String(Math.max(1, Math.ceil(retryAfterSeconds))),
});

/** Error codes of node:zlib for a body that does not match its content encoding. */
const INFLATE_CODES = /^(?:Z_|ERR__|ERR_BROTLI|ERR_ZSTD)/;

/** Errors of body-parser and raw-body: https://github.com/expressjs/body-parser#errors */
function bodyFailure(error: unknown, maxBodyBytes: number): Failure | undefined {
  switch ((error as { type?: unknown } | undefined)?.type) {
    case 'entity.too.large':
      return { status: 413, detail: `The body is larger than ${maxBodyBytes} bytes.` };
    case 'encoding.unsupported':
      return {
        status: 415,
        detail: 'The content encoding is not supported: send the body plain, or as gzip or deflate.',
      };
    case 'request.aborted':
    case 'request.size.invalid':
      return { status: 400, detail: 'The body ended before its announced length.' };
    default:
      return INFLATE_CODES.test(String((error as { code?: string } | undefined)?.code))
        ? { status: 400, detail: 'The body cannot be decompressed.' }
        : undefined;
  }
}

/** SQLSTATE for text that PostgreSQL cannot store: NUL and invalid Unicode. */
const UNSTORABLE_SQLSTATE = /^(?:22P05|22021)$/;

function databaseFailure(error: unknown): Failure | undefined {
  if (isPassingFailure(error)) return { ...unavailable(DATABASE_AWAY), isUnexpected: true };
  const refusal = stateRefusal(error);
  if (refusal !== undefined) return { status: 413, detail: refusal };
  const kept = userDataRefusal(error);
  if (kept !== undefined) return { status: 409, detail: kept };
  const answered = answerRefusal(error);
  if (answered) return appFailure(answered);
  const full = sizeRefusal(error);
  if (full) return { status: 413, detail: full.message, ...(full.limit === undefined ? {} : { limit: full.limit }) };
  for (const { code } of causes(error)) {
    if (typeof code === 'string' && UNSTORABLE_SQLSTATE.test(code))
      return { status: 422, detail: [valueError(['body'], 'the text holds a character that cannot be stored', null)] };
  }
  return undefined;
}
