import type { ErrorCode } from './error-codes.ts';
import type { SessionKey } from './session.ts';

/** Maximum length of the text of an error, in characters. */
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

/** The session is there already, and had to be new. */
export class SessionExistsError extends ConflictError {
  constructor(sessionId: string) {
    super(`Session already exists: ${sessionId}`);
  }
}

/** A change was to be made to another version than there is by now; `etag` is that one's. */
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

/** The session runs another invocation: the wait was in vain, too many wait already, or the request would not wait. */
export class BusyError extends AppError {
  readonly code = 'busy';
  /** Seconds after which a retry makes sense. */
  readonly retryAfterSeconds: number;
  /** `rejected`: the request asked not to wait (409); otherwise the runtime has no room for it now (429). */
  readonly reason: 'full' | 'rejected';
  constructor(message: string, retryAfterSeconds: number, reason: 'full' | 'rejected' = 'full') {
    super(message);
    this.retryAfterSeconds = retryAfterSeconds;
    this.reason = reason;
  }
}

/** A caller has all that one may have of what all share; `limit` names the setting or the budget. */
export class LimitError extends AppError {
  readonly code = 'limit';
  readonly limit: string;
  /** Seconds after which a retry makes sense. */
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

/** The invocation was asked for before, with the same idempotency key: its row says how it stands. */
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

/** Why this process has no answer of an invocation that it has begun: the beginning of a sentence. */
const LEFT_BECAUSE = {
  stopping: 'The service is stopping',
  lost: 'This process was held up for too long',
  unavailable: 'This process cannot reach the database',
};

/** Another process goes on with an invocation that has begun: its answer is had there. */
export class HandedOverError extends UnavailableError {
  readonly invocationId: string;
  /** True where the same request, with its key, waits for the answer; any other would say its prompt once more. */
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
  /** The scope that is missing, where that is the reason. */
  readonly scope: string | undefined;
  constructor(message: string, scope?: string, options?: ErrorOptions) {
    super(message, options);
    this.scope = scope;
  }
}

/** A value is larger than its limit. */
export class TooLargeError extends AppError {
  readonly code = 'too_large';
}

/** This writer's lease is gone: another process runs the session now, and nothing was written. */
export class LeaseLostError extends AppError {
  readonly code = 'lease_lost';
}

/** The process cannot start with this configuration; the message names the variable, its value and what is allowed. */
export class ConfigError extends AppError {
  readonly code = 'config';
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    // It repeats the operator's own words, and names all that is wrong.
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

/** The failure of a call to which no answer came: it may have acted. */
export class UnknownOutcomeError extends AgentError {}

/** SQLSTATE after which the same request can work: connection, shutdown, resources, read-only, locks, password. */
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

/** The error and what caused it, at most five deep (a cause may lead back to itself). */
export function* causes(error: unknown): Generator<CausedError> {
  let current = error;
  for (let depth = 0; depth < 5 && typeof current === 'object' && current !== null; depth++) {
    const cause: CausedError = current;
    yield cause;
    current = cause.cause;
  }
}

/** True for a passing failure of the database: a retry can succeed, and whether this attempt did is not known. */
export function isPassingFailure(error: unknown): boolean {
  // What has a name of its own is no trouble of the database, whatever caused it (an MCP server that refuses, say).
  if (error instanceof AppError) return false;
  for (const cause of causes(error)) {
    const code = typeof cause.code === 'string' ? cause.code : '';
    const message = cause instanceof Error ? cause.message : '';
    if (PASSING_SQLSTATE.test(code) || PASSING_NETWORK_CODES.has(code) || PASSING_MESSAGES.test(message)) return true;
  }
  return false;
}

/** SQLSTATE classes whose messages are about the server and the connection: they quote no statement and no value. */
const CONNECTION_SQLSTATE = /^(?:08|28|3D|53|57)\w{3}$/;

/** Why a database could not be used, in words that are safe to log; `undefined` for any other error. */
export function connectionReason(error: unknown): string | undefined {
  for (const cause of causes(error)) {
    const code = typeof cause.code === 'string' ? cause.code : '';
    const message = cause instanceof Error ? cause.message : '';
    const isKnown = CONNECTION_SQLSTATE.test(code) || PASSING_NETWORK_CODES.has(code);
    if (isKnown || PASSING_MESSAGES.test(message)) return message || code;
  }
  return undefined;
}

/** The sentence for a state that would exceed a limit, by the SQLSTATE that our SQL functions raise. */
const STATE_REFUSALS: Record<string, string> = {
  AR413: 'The state would be larger than MAX_STATE_BYTES.',
  AR415: 'The state would have more than 10000 keys.',
  AR416: 'Agents have written as much `app:` state for this user as they may for one: 65536 bytes.',
};

/** The refusal of a write that would exceed a size, by the SQLSTATE that our SQL functions raise. */
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
/** Why a state may not be written, by an error of `assert_state_size` or `assert_writer_share` (migrations). */
export const stateRefusal = (error: unknown): string | undefined =>
  Object.entries(STATE_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];
/** Why a session or its user may not grow, by an error of `assert_session_size` or `assert_user_storage`. */
export const sizeRefusal = (error: unknown) =>
  Object.entries(SIZE_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];

/** Why an answer is refused, by an error of `answer_calls` or `change_task` (migrations), whose message is shown. */
export function answerRefusal(error: unknown): ConflictError | ForbiddenError | undefined {
  for (const cause of causes(error)) {
    const message = cause instanceof Error ? cause.message : '';
    if (cause.code === 'AR410') return new ConflictError(message, { cause: error });
    if (cause.code === 'AR403') return new ForbiddenError(message, undefined, { cause: error });
  }
  return undefined;
}

/** Throws an error of the database again: as the refusal of an answer, where it is one, which every door can say. */
export function throwRefusal(error: unknown): never {
  throw answerRefusal(error) ?? error;
}

/** The sentence for a write that a trigger (migrations) refuses because of a hold or an erasure, by its SQLSTATE. */
const USER_DATA_REFUSALS: Record<string, string> = {
  AR423: 'The data is on legal hold: nothing of it is deleted until an operator removes the hold.',
  AR409: 'The data of this user is being erased: nothing new is taken until that is done.',
};

/** Why the data of a user may not be deleted, or not grow, by an error of a trigger; `undefined` for any other. */
export const userDataRefusal = (error: unknown): string | undefined =>
  Object.entries(USER_DATA_REFUSALS).find(([sqlState]) => hasCode(error, sqlState))?.[1];
