import { z } from 'zod';
import { looseObject } from '../../../core/members.ts';

/** Body of every error response that is not a validation error (interface specification, "Errors"). */
export const apiErrorSchema = looseObject('Why a request was not served.', {
  detail: z.string().describe('What went wrong, in one sentence.'),
  limit: z
    .string()
    .optional()
    .describe('Of a 429: the limit of the caller that was reached, a setting or a budget; `X-Limit` has it too.'),
});

/** One invalid value in a request. Members are in FastAPI's order, because clients may compare bytes. */
export const validationErrorSchema = looseObject('One invalid place of a request.', {
  type: z.string().describe('Name of the broken rule as pydantic has it, for example `missing`.'),
  loc: z.array(z.union([z.string(), z.int()])).describe('Where: `path`, `query` or `body`, then keys and indexes.'),
  msg: z.string().describe('What is expected there.'),
  input: z.unknown().optional().describe('What was sent there.'),
  ctx: z.record(z.string(), z.unknown()).optional().describe('Figures that `msg` mentions.'),
});

export const httpValidationErrorSchema = looseObject(
  'All that is invalid in a request: path first, then query, then body.',
  { detail: z.array(validationErrorSchema).describe('One entry for each invalid place.') },
);

/** A validation error in a 422 body; `input: undefined` omits the member. */
export interface ValidationDetail {
  type: string;
  loc: (string | number)[];
  msg: string;
  input?: unknown;
  ctx?: Record<string, unknown>;
}

/** The error for a request whose path, query or body violates its schema; it becomes FastAPI's 422 body. */
export class ValidationFailedError extends Error {
  readonly details: ValidationDetail[];
  constructor(details: ValidationDetail[]) {
    super('the request does not match its schema');
    this.details = details;
  }
}

/** Why a request is refused before any handler runs; `error-handler.ts` maps each reason to a status. */
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

/** The error for a request that is refused before any handler runs; `headers` are sent with the response. */
export class RequestRefusedError extends Error {
  readonly reason: RefusalReason;
  readonly headers: Record<string, string>;
  constructor(reason: RefusalReason, message: string, headers: Record<string, string> = {}) {
    super(message);
    this.reason = reason;
    this.headers = headers;
  }

  /** True if no operation has the path and method of the request. */
  get isUnmatched(): boolean {
    return this.reason === 'unknown_path' || this.reason === 'method_not_allowed';
  }
}

/** A violation of a rule of the runtime itself, in the JSON format that pydantic uses for custom validators. */
export function valueError(loc: (string | number)[], text: string, input?: unknown): ValidationDetail {
  return { type: 'value_error', loc, msg: `Value error, ${text}`, input, ctx: { error: {} } };
}
