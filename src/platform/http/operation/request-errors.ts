import { z } from 'zod';
import { looseObject } from '../../../core/members.ts';

/** Body of every refusal that is not a validation error (specification, "Errors"). */
export const apiErrorSchema = looseObject('Why a request was not served.', {
  detail: z.string().describe('What went wrong, in one sentence.'),
  limit: z
    .string()
    .optional()
    .describe('Of a 429: the limit of the caller that was reached, a setting or a budget; `X-Limit` has it too.'),
});

/** One place of a request that cannot be accepted; the member order is FastAPI's and is part of the body's bytes. */
export const validationErrorSchema = looseObject('One invalid place of a request.', {
  type: z.string().describe('Name of the broken rule as pydantic has it, for example `missing`.'),
  loc: z.array(z.union([z.string(), z.int()])).describe('Where: `path`, `query` or `body`, then keys and indexes.'),
  msg: z.string().describe('What is expected there.'),
  input: z.unknown().optional().describe('What was sent there.'),
  ctx: z.record(z.string(), z.unknown()).optional().describe('Figures that `msg` mentions.'),
});

/** Body of status 422. */
export const httpValidationErrorSchema = looseObject(
  'All that is invalid in a request: path first, then query, then body.',
  { detail: z.array(validationErrorSchema).describe('One entry for each invalid place.') },
);

/** One entry of a 422 body; `input: undefined` leaves the member out. */
export interface ValidationDetail {
  type: string;
  loc: (string | number)[];
  msg: string;
  input?: unknown;
  ctx?: Record<string, unknown>;
}

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
