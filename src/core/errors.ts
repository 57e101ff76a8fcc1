import type { ErrorCode } from './error-codes.ts';
import type { SessionKey } from './session.ts';

/** Maximum length of an error message, in characters. */
const MAX_ERROR_TEXT = 1_000;

/** Shortens an error message, because it may quote long input of a user, a model or a server. */
export const toErrorText = (text: string): string =>
  text.length > MAX_ERROR_TEXT ? `${text.slice(0, MAX_ERROR_TEXT - 1).toWellFormed()}…` : text;

/**
 * An error for the caller. Clients compare `code`, so it never changes. Only `http/error-handler.ts` sets the status.
 */
export abstract class AppError extends Error {
  abstract readonly code: string;
  constructor(message = '', options?: ErrorOptions) {
    super(toErrorText(message), options);
  }
}

/** The object does not exist or belongs to another user: the same response, so that it reveals nothing. */
export class NotFoundError extends AppError {
  readonly code = 'not_found';
}

/** The request is well-formed, but its content is not acceptable. */
export class InvalidError extends AppError {
  readonly code = 'invalid';
}

/** The object to create already exists, or another request is changing the object. */
export class ConflictError extends AppError {
  readonly code = 'conflict';
}

export class SessionExistsError extends ConflictError {
  constructor(sessionId: string) {
    super(`Session already exists: ${sessionId}`);
  }
}

/** `If-Match` does not name the session's current version. `etag` is the current version's ETag. */
export class PreconditionFailedError extends AppError {
  readonly code = 'precondition_failed';
  readonly etag: string | undefined;
  constructor(etag: string | undefined) {
    super(
      etag === undefined
        ? 'If-Match: there is no such session.'
        : `If-Match: it has changed, its ETag is ${etag} now. Read it again and decide anew.`,
    );
    this.etag = etag;
  }
}

/** The session runs another invocation. */
export class BusyError extends AppError {
  readonly code = 'busy';
  readonly retryAfterSeconds: number;
  /** `rejected`: the request did not want to wait (HTTP 409); `full`: the queue was full or the wait too long (429). */
  readonly reason: 'full' | 'rejected';
  constructor(message: string, retryAfterSeconds: number, reason: 'full' | 'rejected' = 'full') {
    super(message);
    this.retryAfterSeconds = retryAfterSeconds;
    this.reason = reason;
  }
}

/** The caller has reached a limit. `limit` is the name of its setting or budget. */
export class LimitError extends AppError {
  readonly code = 'limit';
  readonly limit: string;
  readonly retryAfterSeconds: number;
  constructor(limit: string, message: string, retryAfterSeconds = 1) {
    super(message);
    this.limit = limit;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The invocation was cancelled or interrupted while it waited for its session, so it never began. */
export class StoppedError extends AppError {
  readonly code: 'cancelled' | 'interrupted';
  constructor(code: 'cancelled' | 'interrupted', message: string) {
    super(message);
    this.code = code;
  }
}

/** An invocation with the same idempotency key exists. The invocation's row has the status and the response. */
export class RepeatedInvocationError extends AppError {
  readonly code = 'repeated_invocation';
}

/** The idempotency key was already used for a different request. */
export class KeyReusedError extends AppError {
  readonly code = 'key_reused';
}

/** The database or another service that the runtime needs is unavailable for the moment. */
export class UnavailableError extends AppError {
  readonly code = 'unavailable';
}

/** How the message begins: why this process cannot return the result of an invocation that it began. */
const LEFT_BECAUSE = {
  stopping: 'The service is stopping',
  lost: 'This process was held up for too long',
  unavailable: 'This process cannot reach the database',
};

/** Another process continues the invocation and will have its result. */
export class HandedOverError extends UnavailableError {
  readonly invocationId: string;
  /**
   * True if the request had an idempotency key: a retry with it waits for the result and does not run the prompt again.
   */
  readonly isRepeatable: boolean;

  constructor(
    { key, invocationId }: { key: SessionKey; invocationId: string },
    isRepeatable: boolean,
    because: keyof typeof LEFT_BECAUSE = 'stopping',
  ) {
    const names = [key.appName, key.userId, key.sessionId, invocationId].map(encodeURIComponent);
    const path = ['apps', 'users', 'sessions', 'invocations'].map((part, place) => `/${part}/${names[place]}`).join('');
    super(
      `${LEFT_BECAUSE[because]}, and another process goes on with invocation ${invocationId}. ` +
        (isRepeatable
          ? 'The same request with its Idempotency-Key waits for the answer.'
          : `Do not send the prompt again: GET ${path} says how it ends, and its session has the answer.`),
    );
    this.invocationId = invocationId;
    this.isRepeatable = isRepeatable;
  }
}

/** A message waits in the queue for the invocation that runs in its session, which takes it, or for its own turn. */
export class QueuedError extends HandedOverError {
  readonly key: SessionKey;

  constructor(start: { key: SessionKey; invocationId: string }, isRepeatable: boolean) {
    super(start, isRepeatable);
    this.key = start.key;
  }
}

/** The credential is missing or wrong. The message never says which part of it is wrong. */
export class UnauthenticatedError extends AppError {
  readonly code = 'unauthenticated';
}

/** The credential is malformed, wrong, expired or revoked. */
export class InvalidTokenError extends UnauthenticatedError {}

/** The credential is valid, but does not permit the operation. The message names the missing permission. */
export class ForbiddenError extends AppError {
  readonly code = 'forbidden';
  readonly scope: string | undefined;
  constructor(message: string, scope?: string, options?: ErrorOptions) {
    super(message, options);
    this.scope = scope;
  }
}

export class TooLargeError extends AppError {
  readonly code = 'too_large';
}

/** Another process has taken over the session's lease from this process. Nothing was written. */
export class LeaseLostError extends AppError {
  readonly code = 'lease_lost';
}

/** The process cannot start with this configuration. The message names variable, value and allowed values. */
export class ConfigError extends AppError {
  readonly code = 'config';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    // The message is not shortened, because it quotes the operator's own settings and must name each fault.
    this.message = message;
  }
}

/** The agent cannot run: a tool or skill is unknown, an MCP server or model failed, or a limit was reached. */
export class AgentError extends AppError {
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The agent that a tool call runs waits in a session of its own. The invocation pauses until that has ended. */
export class ChildWaitsError extends Error {}

/** A tool call whose response was lost, so that it may or may not have had its effect. */
export class UnknownOutcomeError extends AgentError {}

/**
 * SQLSTATEs of transient failures: lost connection, shutdown, lack of resources, read-only, locks, changed password.
 */
const PASSING_SQLSTATE = /^(?:08...|28P01|57P0[1-5]|53...|25006|25P0[34]|40001|40P01|55P03|57014)$/;
const PASSING_NETWORK_CODES = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN']);
/** Messages of transient errors that pg and its pool throw without a code (pg 8.23, pg-pool). */
const PASSING_MESSAGES = new RegExp(
  `^(?:${[
    'timeout exceeded when trying to connect',
    'Connection terminated',
    'Client has encountered a connection error',
    'Query read timeout',
  ].join('|')})`,
);

/** The members of errors of Node, pg and drizzle that are read here. */
export interface CausedError {
  code?: unknown;
  cause?: unknown;
  query?: unknown;
  constraint?: unknown;
}

/** Yields the error and its causes. Stops after five, because causes may form a circle. */
export function* causes(error: unknown): Generator<CausedError> {
  let current = error;
  for (let depth = 0; depth < 5 && typeof current === 'object' && current !== null; depth++) {
    const cause: CausedError = current;
    yield cause;
    current = cause.cause;
  }
}

/** Node's codes for connections that were never established. */
const UNCONNECTED = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH)$/;

/** True if no connection came about, so that no request was sent. */
export const isUnconnected = (error: unknown): boolean =>
  [...causes(error)].some(({ code }) => UNCONNECTED.test(String(code)));

/** True for a transient failure of the database. The failed attempt may have been committed nevertheless. */
export function isPassingFailure(error: unknown): boolean {
  // An `AppError` is no failure of the database, even if its cause looks like one (an MCP server refused a connection).
  if (error instanceof AppError) return false;
  for (const cause of causes(error)) {
    const code = typeof cause.code === 'string' ? cause.code : '';
    const message = cause instanceof Error ? cause.message : '';
    if (PASSING_SQLSTATE.test(code) || PASSING_NETWORK_CODES.has(code) || PASSING_MESSAGES.test(message)) return true;
  }
  return false;
}

/** Tells a client that gets no status any more why its request failed. @param unexpected - where the reason is in the log */
export const toClientText = (error: unknown, unexpected: string): string =>
  error instanceof AppError ? error.message : isPassingFailure(error) ? DATABASE_AWAY : unexpected;

export const DATABASE_AWAY = 'The database is not available for now.';

/** Classes of SQLSTATEs about the server or the connection, whose messages contain no statement and no value. */
const CONNECTION_SQLSTATE = /^(?:08|28|3D|53|57)\w{3}$/;

/** Returns why the database cannot be used, without user data, for the log; `undefined` for any other error. */
export function connectionReason(error: unknown): string | undefined {
  for (const cause of causes(error)) {
    const code = typeof cause.code === 'string' ? cause.code : '';
    const message = cause instanceof Error ? cause.message : '';
    const isKnown = CONNECTION_SQLSTATE.test(code) || PASSING_NETWORK_CODES.has(code);
    if (isKnown || PASSING_MESSAGES.test(message)) return message || code;
  }
  return undefined;
}

/** Messages for a state that exceeds a limit, by the SQLSTATE that `migrations/repeatable/functions/limits.sql` raises. */
const STATE_REFUSALS: Record<string, string> = {
  AR413: 'The state would be larger than MAX_STATE_BYTES.',
  AR415: 'The state would have more than 10000 keys.',
  AR416: 'Agents have written as much `app:` state for this user as they may for one: 65536 bytes.',
};

/** Refusals of a write that exceeds a limit on sizes, by the SQLSTATE that the runtime's SQL functions raise. */
const SIZE_REFUSALS: Record<string, { code: ErrorCode; message: string; limit?: string }> = {
  AR414: {
    code: 'session_too_large',
    message: 'The events of the session would be more than MAX_SESSION_BYTES. Go on in a new session.',
  },
  AR417: {
    code: 'storage_full',
    limit: 'MAX_USER_BYTES',
    message: 'What is kept of the user would be more than MAX_USER_BYTES. Delete sessions, artifacts or memories.',
  },
  AR418: {
    code: 'too_many_tasks',
    limit: 'MAX_OPEN_TASKS',
    message: 'The user would have more open tasks than MAX_OPEN_TASKS. Answer or cancel some.',
  },
};

const hasCode = (error: unknown, sqlState: string) => [...causes(error)].some(({ code }) => code === sqlState);
/** Returns the message for an error of `assert_state_size` or `assert_writer_share` (SQL); else `undefined`. */
export const stateRefusal = (error: unknown): string | undefined =>
  Object.entries(STATE_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];
/** Returns the refusal for an error of SQL functions such as `assert_session_size`; else `undefined`. */
export const sizeRefusal = (error: unknown) =>
  Object.entries(SIZE_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];

/** Converts an error of the SQL functions `answer_calls` and `change_task`, whose messages a client may see. */
export function answerRefusal(error: unknown): ConflictError | ForbiddenError | undefined {
  for (const cause of causes(error)) {
    const message = cause instanceof Error ? cause.message : '';
    if (cause.code === 'AR410') return new ConflictError(message, { cause: error });
    if (cause.code === 'AR403') return new ForbiddenError(message, undefined, { cause: error });
  }
  return undefined;
}

/**
 * Rethrows an error. A refused answer to a task, and a job that was lost, becomes an `AppError`, which every HTTP front
 * end can report.
 */
export function throwRefusal(error: unknown): never {
  if (hasCode(error, 'AR419')) throw new LeaseLostError('Another process has the job.', { cause: error });
  throw answerRefusal(error) ?? error;
}

/** Messages by the SQLSTATE that a trigger raises for a write to a user's data during a legal hold or an erasure. */
const USER_DATA_REFUSALS: Record<string, string> = {
  AR423: 'The data is on legal hold: nothing of it is deleted until an operator removes the hold.',
  AR409: 'The data of this user is being erased: nothing new is taken until that is done.',
};

/** Returns why a legal hold or an erasure forbids the write; `undefined` for any other error. */
export const userDataRefusal = (error: unknown): string | undefined =>
  Object.entries(USER_DATA_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];
