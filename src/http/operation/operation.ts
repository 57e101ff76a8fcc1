import type { Request, Response } from 'express';
import type { z } from 'zod';

/** The nine areas of the specification, in its order. */
export const AREAS = [
  'Service and applications',
  'Sessions',
  'Agent execution',
  'Artifacts',
  'Memory',
  'Evaluation (development server)',
  'Debugging (development server)',
  'Compatibility endpoints',
  'Harness cronjobs',
] as const;

/** Who calls: nobody known (local mode without a credential), a holder of a runtime key, or one user of a user pool. */
export type Principal = { kind: 'anonymous' } | { kind: 'key' } | { kind: 'user'; userId: string };

/** One request as a handler sees it: validated, with the caller known. */
export interface Call<Body> {
  /** Path parameters, percent-decoded. */
  path: Record<string, string>;
  /**
   * Integer path parameters as numbers; `undefined` for an integer that does not fit PostgreSQL's `integer` (a well-formed
   * 20-digit number is valid and names nothing: answer as for what does not exist).
   */
  integers: Record<string, number | undefined>;
  /** Query parameters, coerced by the document's types. */
  query: Record<string, unknown>;
  /** The body exactly as it was sent, members unknown to the schema included; only alias spellings are renamed. */
  body: Body;
  principal: Principal;
  request: Request;
  response: Response;
}

/** What a handler answers. `json` is text already serialised (PostgreSQL's own where it can be); `sent` means the handler wrote the response. */
export type Answer =
  | { kind: 'json'; status?: number; text: string }
  | { kind: 'value'; status?: number; value: unknown }
  | { kind: 'sent' };

/** A query parameter of an operation. */
export interface QueryParameter {
  name: string;
  schema: { type: 'integer' | 'string' | 'boolean' | 'number'; minimum?: number; maximum?: number };
  description: string;
}

/** A header that an operation reads; always optional. */
export interface HeaderParameter {
  name: string;
  schema: { type: 'string'; maxLength?: number; enum?: readonly string[] };
  description: string;
}

/** The JSON body of an operation. `aliases` are further top-level spellings: what a client sends → the schema's name. */
export interface OperationBody<Schema extends z.ZodType = z.ZodType> {
  schema: Schema;
  required: boolean;
  aliases?: Record<string, string>;
  /** True: the body is text of any media type, and the schema a string. */
  isText?: boolean;
}

/** One operation: all that the document, the router and the authorisation need, beside its handler. */
export interface Operation {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** OpenAPI template, e.g. `/apps/{app_name}/users/{user_id}/sessions`. */
  path: string;
  operationId: string;
  area: (typeof AREAS)[number];
  summary: string;
  description?: string;
  /** `open`: never asks for a credential (health, documents). */
  access?: 'open';
  /** Path parameters that are integers; all others are identifiers (strings). */
  integerPath?: string[];
  query?: QueryParameter[];
  headers?: HeaderParameter[];
  body?: OperationBody;
  /** What 200 carries; `undefined` means the JSON value `null`. `mediaType` is `application/json` unless given. */
  success?: { schema: z.ZodType | { type: string; items?: object }; description: string; mediaType?: string };
  /** Statuses of `ApiError` answers beside 422, with their reason. */
  errors?: Record<number, string>;
  /** Text of the 404 for a caller who is not the path's user: the same bytes as for what does not exist. */
  absent?: (path: Record<string, string>) => string;
  handler: (call: Call<never>) => Promise<Answer>;
}

/** Ties a handler's body type to the schema of its operation. */
export function operation<Schema extends z.ZodType>(
  definition: Omit<Operation, 'handler' | 'body'> & {
    body?: OperationBody<Schema>;
    handler: (call: Call<z.infer<Schema>>) => Promise<Answer>;
  },
): Operation {
  return definition;
}
