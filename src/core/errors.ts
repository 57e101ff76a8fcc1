import type { ErrorCode } from './error-codes.ts';
import type { SessionKey } from './session.ts';

/** Characters. */
const MAX_ERROR_TEXT = 1_000;

/** Shortens a text that repeats what a user, a model or a server sent. */
export const toErrorText = (text: string): string =>
  text.length > MAX_ERROR_TEXT ? `${text.slice(0, MAX_ERROR_TEXT - 1).toWellFormed()}…` : text;

/** An error that a caller can act on. `code` is stable; `http/error-handler.ts` alone decides on the status. */
export abstract class AppError extends Error {
  abstract readonly code: string;
  constructor(message = '', options?: ErrorOptions) {
    super(toErrorText(message), options);
  }
}

/** The requested object does not exist, or belongs to another user: both look alike on the wire. */
export class NotFoundError extends AppError {
  readonly code = 'not_found';
}

/** The request is well formed and its content cannot be accepted. */
export class InvalidError extends AppError {
  readonly code = 'invalid';
}

/** The object to create exists already, or another request is changing it. */
export class ConflictError extends AppError {
  readonly code = 'conflict';
}

export class SessionExistsError extends ConflictError {
  constructor(sessionId: string) {
    super(`Session already exists: ${sessionId}`);
  }
}

/** `If-Match` names another version than the current one, whose tag is `etag`. */
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

/** The session runs another invocation, and the request does not wait, waited too long or found the queue full. */
export class BusyError extends AppError {
  readonly code = 'busy';
  readonly retryAfterSeconds: number;
  /** `rejected`: the request asked not to wait (409); otherwise the runtime has no room for it now (429). */
  readonly reason: 'full' | 'rejected';
  constructor(message: string, retryAfterSeconds: number, reason: 'full' | 'rejected' = 'full') {
    super(message);
    this.retryAfterSeconds = retryAfterSeconds;
    this.reason = reason;
  }
}

/** A caller has used its share; `limit` names the setting or the budget. */
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

/** The invocation was cancelled or interrupted while it waited for its session: it never began. */
export class StoppedError extends AppError {
  readonly code: 'cancelled' | 'interrupted';
  constructor(code: 'cancelled' | 'interrupted', message: string) {
    super(message);
    this.code = code;
  }
}

/** An invocation with the same idempotency key exists: its row has its state. */
export class RepeatedInvocationError extends AppError {
  readonly code = 'repeated_invocation';
}

/** The idempotency key was used for another request. */
export class KeyReusedError extends AppError {
  readonly code = 'key_reused';
}

/** The database or another part is away for now. */
export class UnavailableError extends AppError {
  readonly code = 'unavailable';
}

/** Reasons why this process cannot answer for an invocation that it began: beginnings of a sentence. */
const LEFT_BECAUSE = {
  stopping: 'The service is stopping',
  lost: 'This process was held up for too long',
  unavailable: 'This process cannot reach the database',
};

/** Another process continues the invocation and has its answer. */
export class HandedOverError extends UnavailableError {
  readonly invocationId: string;
  /** True if a retry with the same idempotency key waits for the answer. Without a key it would repeat the prompt. */
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

/** Missing or wrong credential; the text never says which of its parts was wrong. */
export class UnauthenticatedError extends AppError {
  readonly code = 'unauthenticated';
}

/** A credential was sent and is not valid: malformed, wrong, expired or revoked. */
export class InvalidTokenError extends UnauthenticatedError {}

/** The credential is known and does not allow this; the text names what it lacks. */
export class ForbiddenError extends AppError {
  readonly code = 'forbidden';
  /** The missing scope, if that is the reason. */
  readonly scope: string | undefined;
  constructor(message: string, scope?: string, options?: ErrorOptions) {
    super(message, options);
    this.scope = scope;
  }
}

export class TooLargeError extends AppError {
  readonly code = 'too_large';
}

/** This writer lost its lease to another process; nothing was written. */
export class LeaseLostError extends AppError {
  readonly code = 'lease_lost';
}

/** The process cannot start with this configuration; the message names the variable, its value and what is allowed. */
export class ConfigError extends AppError {
  readonly code = 'config';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    // Not shortened, because it quotes the operator and names each fault.
    this.message = message;
  }
}

/** The agent cannot run as asked: an unknown tool or skill, a failed MCP server or model, or a limit. */
export class AgentError extends AppError {
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** A call got no answer, so that it may have acted. */
export class UnknownOutcomeError extends AgentError {}

/** SQLSTATEs after which a retry can succeed: connection, shutdown, resources, read-only, locks, password. */
const PASSING_SQLSTATE = /^(?:08...|28P01|57P0[1-5]|53...|25006|25P0[34]|40001|40P01|55P03|57014)$/;
const PASSING_NETWORK_CODES = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN']);
/** Errors of pg and its pool that carry no code (pg 8.23, pg-pool). */
const PASSING_MESSAGES = new RegExp(
  `^(?:${[
    'timeout exceeded when trying to connect',
    'Connection terminated',
    'Client has encountered a connection error',
    'Query read timeout',
  ].join('|')})`,
);

/** An error as Node, pg and drizzle shape it. */
export interface CausedError {
  code?: unknown;
  cause?: unknown;
  query?: unknown;
  constraint?: unknown;
}

/** Yields the error and its causes, at most five because causes may form a circle. */
export function* causes(error: unknown): Generator<CausedError> {
  let current = error;
  for (let depth = 0; depth < 5 && typeof current === 'object' && current !== null; depth++) {
    const cause: CausedError = current;
    yield cause;
    current = cause.cause;
  }
}

/** True for a transient failure of the database: a retry can succeed, but this attempt may have succeeded already. */
export function isPassingFailure(error: unknown): boolean {
  // An error of ours is no failure of the database, even if its cause looks like one (a refused MCP connection).
  if (error instanceof AppError) return false;
  for (const cause of causes(error)) {
    const code = typeof cause.code === 'string' ? cause.code : '';
    const message = cause instanceof Error ? cause.message : '';
    if (PASSING_SQLSTATE.test(code) || PASSING_NETWORK_CODES.has(code) || PASSING_MESSAGES.test(message)) return true;
  }
  return false;
}

/** SQLSTATE classes whose messages quote no statement and no value, because they concern server and connection. */
const CONNECTION_SQLSTATE = /^(?:08|28|3D|53|57)\w{3}$/;

/** Returns why the database cannot be used, in words that are safe to log; `undefined` for any other error. */
export function connectionReason(error: unknown): string | undefined {
  for (const cause of causes(error)) {
    const code = typeof cause.code === 'string' ? cause.code : '';
    const message = cause instanceof Error ? cause.message : '';
    const isKnown = CONNECTION_SQLSTATE.test(code) || PASSING_NETWORK_CODES.has(code);
    if (isKnown || PASSING_MESSAGES.test(message)) return message || code;
  }
  return undefined;
}

/** Sentences by the SQLSTATE that our SQL functions raise for a state beyond a limit. */
const STATE_REFUSALS: Record<string, string> = {
  AR413: 'The state would be larger than MAX_STATE_BYTES.',
  AR415: 'The state would have more than 10000 keys.',
  AR416: 'Agents have written as much `app:` state for this user as they may for one: 65536 bytes.',
};

/** Refusals by the SQLSTATE that our SQL functions raise for a write beyond a size. */
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
/** Reads an error of `assert_state_size` or `assert_writer_share` (migrations). */
export const stateRefusal = (error: unknown): string | undefined =>
  Object.entries(STATE_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];
/** Reads an error of `assert_session_size` or `assert_user_storage` (migrations). */
export const sizeRefusal = (error: unknown) =>
  Object.entries(SIZE_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];

/** Reads an error of `answer_calls` or `change_task` (migrations), whose message may be shown. */
export function answerRefusal(error: unknown): ConflictError | ForbiddenError | undefined {
  for (const cause of causes(error)) {
    const message = cause instanceof Error ? cause.message : '';
    if (cause.code === 'AR410') return new ConflictError(message, { cause: error });
    if (cause.code === 'AR403') return new ForbiddenError(message, undefined, { cause: error });
  }
  return undefined;
}

/** Throws the refusal of an answer, which every door can word, or else the error itself. */
export function throwRefusal(error: unknown): never {
  throw answerRefusal(error) ?? error;
}

/** Sentences by the SQLSTATE that a trigger (migrations) raises for a write against a hold or an erasure. */
const USER_DATA_REFUSALS: Record<string, string> = {
  AR423: 'The data is on legal hold: nothing of it is deleted until an operator removes the hold.',
  AR409: 'The data of this user is being erased: nothing new is taken until that is done.',
};

/** Returns why a hold or an erasure forbids the write; `undefined` for any other error. */
export const userDataRefusal = (error: unknown): string | undefined =>
  Object.entries(USER_DATA_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];
