/** An error that a caller can act on. `code` is stable; the status it becomes is decided in `http/error-handler.ts` only. */
export abstract class AppError extends Error {
  abstract readonly code: string;
}

/** What was asked for is not there, or is not the caller's: both look alike on the wire. */
export class NotFoundError extends AppError {
  readonly code = 'not_found';
}

/** The request is well formed and its content cannot be accepted. */
export class InvalidError extends AppError {
  readonly code = 'invalid';
}

/** What was to be created exists, or is being changed by someone else. */
export class ConflictError extends AppError {
  readonly code = 'conflict';
}

/** The session runs another invocation and the wait for it was longer than allowed. */
export class BusyError extends AppError {
  readonly code = 'busy';
  /** Seconds after which a retry makes sense. */
  readonly retryAfterSeconds: number;
  constructor(message: string, retryAfterSeconds: number) {
    super(message);
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The database or another part is away for now. */
export class UnavailableError extends AppError {
  readonly code = 'unavailable';
}

/** Missing or wrong credential; the text never says which of its parts was wrong. */
export class UnauthenticatedError extends AppError {
  readonly code = 'unauthenticated';
}

/** A value is larger than its limit. */
export class TooLargeError extends AppError {
  readonly code = 'too_large';
}

/** This writer's lease is gone: another process runs the session now, and nothing was written. */
export class LeaseLostError extends AppError {
  readonly code = 'lease_lost';
}

/** The process cannot start with this configuration; the message names the variable, what was found and what is allowed. */
export class ConfigError extends AppError {
  readonly code = 'config';
}

/** The agent cannot run as asked: unknown tool or skill, an MCP server that does not answer, a model that fails, a limit. */
export class AgentError extends AppError {
  readonly code: string;
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
