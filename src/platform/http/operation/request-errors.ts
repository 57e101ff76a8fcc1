import type { ValidationDetail } from './error-bodies.ts';

/** A request whose path, query or body breaks its schema; becomes FastAPI's 422 body. */
export class ValidationFailedError extends Error {
  readonly details: ValidationDetail[];
  constructor(details: ValidationDetail[]) {
    super('the request does not match its schema');
    this.details = details;
  }
}

/** Why the edge refuses a request before any handler sees it; `error-handler.ts` gives each its status. */
export type RefusalReason =
  | 'malformed_path'
  | 'malformed_text'
  | 'malformed_headers'
  | 'unsupported_media_type'
  | 'not_deliberate'
  | 'upgrade_required'
  | 'forbidden_origin'
  | 'method_not_allowed'
  | 'unknown_path';

/** A request that the edge refuses as a whole; `headers` go out with the refusal. */
export class RequestRefusedError extends Error {
  readonly reason: RefusalReason;
  readonly headers: Record<string, string>;
  constructor(reason: RefusalReason, message: string, headers: Record<string, string> = {}) {
    super(message);
    this.reason = reason;
    this.headers = headers;
  }
}

/** A rule of ours that pydantic has no name for, in the shape of its custom validators. */
export function valueError(loc: (string | number)[], text: string, input?: unknown): ValidationDetail {
  return { type: 'value_error', loc, msg: `Value error, ${text}`, input, ctx: { error: {} } };
}
