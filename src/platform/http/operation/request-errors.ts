import { z } from 'zod';
import type { ErrorAdvice } from '../../../core/error-codes.ts';
import { looseObject } from '../../../core/members.ts';

/** The statuses of error responses, described for `docs/errors.md`. */
export const ERROR_STATUSES = {
  400: {
    meaning: 'The request cannot be what was meant: its content contradicts itself, or what is stored.',
    retry: 'no',
    remedy: 'Read `detail` and change the request.',
  },
  401: {
    meaning: 'The credential is missing, wrong, expired or revoked.',
    retry: 'no',
    remedy:
      'Renew the token if `WWW-Authenticate` says `invalid_token`; otherwise send `Authorization: Bearer <credential>`.',
  },
  403: {
    meaning: 'The credential is right and does not allow the operation, or the `Origin` or `Host` is not allowed.',
    retry: 'no',
    remedy: 'Use a credential with the scope that `detail` names; for a browser an operator sets ALLOWED_ORIGINS.',
  },
  404: {
    meaning: 'There is no such path or object, or it belongs to another user.',
    retry: 'no',
    remedy: 'Check the names in the path. Where a setting switches an operation off, `detail` may name it.',
  },
  405: {
    meaning: 'The path has no operation of this method.',
    retry: 'no',
    remedy: 'Use a method of the header `Allow`.',
  },
  406: {
    meaning: 'The client asks an MCP server for a stream that it does not have.',
    retry: 'no',
    remedy: 'Leave the stream out; clients of MCP do so by themselves.',
  },
  408: {
    meaning: 'The request took too long to arrive.',
    retry: 'again',
    remedy: 'If it comes back, check the network, or send less at once.',
  },
  409: {
    meaning: 'The object exists already, is in another state, or another request works on it.',
    retry: 'no',
    remedy:
      'Read the object again and decide anew. One with `Retry-After` may be sent again, because the session was only busy.',
  },
  412: {
    meaning: '`If-Match` does not name the present version of the session.',
    retry: 'no',
    remedy: 'Read the session again: the header `ETag` has its present version.',
  },
  413: {
    meaning: 'The body, or what would be stored, is larger than a limit.',
    retry: 'no',
    remedy: 'Send less, delete what is not needed, or raise the setting that `detail` names.',
  },
  415: {
    meaning: 'The body has no type that the operation takes, or a form of a foreign page could have sent the request.',
    retry: 'no',
    remedy: 'Send `Content-Type: application/json`; for a POST without a body, too.',
  },
  422: {
    meaning: 'The request does not match the OpenAPI document: `detail` lists each wrong place.',
    retry: 'no',
    remedy: 'Change what `loc` names as `msg` says.',
  },
  426: {
    meaning: 'The operation is a WebSocket, and the request asks for none.',
    retry: 'no',
    remedy: 'Connect with a client for WebSockets.',
  },
  429: {
    meaning: 'A limit of the caller is reached, or too many requests wait for the session.',
    retry: 'later',
    remedy:
      'Wait for `Retry-After` seconds. `limit` and `X-Limit` name the setting or the budget that an operator may raise.',
  },
  431: {
    meaning: 'The headers of the request are too large.',
    retry: 'no',
    remedy: 'Send fewer or shorter headers, such as cookies.',
  },
  500: {
    meaning: 'The runtime itself failed.',
    retry: 'later',
    remedy: 'If it comes back, an operator finds the log line with the `X-Request-Id` of the answer, and reports it.',
  },
  503: {
    meaning: 'The database is away, the process stops, or the service has no room.',
    retry: 'later',
    remedy:
      'Wait for `Retry-After` seconds. Without it do not send a prompt again, because it may have begun; ' +
      'with `X-Invocation-Id` another process goes on with it, and `detail` says where its end can be read.',
  },
} as const satisfies Record<number, ErrorAdvice>;

export type ErrorStatus = keyof typeof ERROR_STATUSES;

/** Values of `type` in a 422, as pydantic has them, described for the OpenAPI document and `docs/errors.md`. */
export const VALIDATION_TYPES = {
  missing: 'A required member or parameter is missing.',
  extra_forbidden: 'The member or parameter is not known here, or came twice; `msg` may name the one that was meant.',
  value_error: 'A rule of the runtime is broken; `msg` says which.',
  json_invalid: 'The body is not JSON; `ctx.error` says why.',
  literal_error: 'The value is not the only one that is allowed.',
  enum: 'The value is none of those that are allowed.',
  union_tag_invalid: 'The member that tells the forms of an object apart names none of them.',
  string_type: 'The value is not a text.',
  string_too_short: 'The text is too short.',
  string_too_long: 'The text is too long.',
  string_pattern_mismatch: 'The text has other characters, or another form.',
  bytes_invalid_encoding: 'The text is not base64.',
  int_type: 'The value is not a whole number.',
  int_from_float: 'The value is a number with a fraction instead of a whole one.',
  int_parsing: 'The text is not a whole number.',
  int_parsing_size: 'The text is a whole number with too many digits.',
  float_type: 'The value is not a number.',
  float_parsing: 'The text is not a number.',
  bool_type: 'The value is neither true nor false.',
  bool_parsing: 'The text is neither `true` nor `false`.',
  greater_than: 'The number is too small, or equal to its limit.',
  greater_than_equal: 'The number is too small.',
  less_than: 'The number is too large, or equal to its limit.',
  less_than_equal: 'The number is too large.',
  list_type: 'The value is not a list.',
  too_short: 'The list has too few elements.',
  too_long: 'The list has too many elements.',
  dict_type: 'The value is not an object.',
  model_attributes_type: 'The value is not an object.',
  none_required: 'The value is not null.',
} as const;

export type ValidationType = keyof typeof VALIDATION_TYPES;

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
  type: z.string().describe(
    `Name of the broken rule as pydantic has it.\n${Object.entries(VALIDATION_TYPES)
      .map(([type, meaning]) => `- \`${type}\`: ${meaning}`)
      .join('\n')}`,
  ),
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
  type: ValidationType;
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
