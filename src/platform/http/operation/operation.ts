import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { NotFoundError } from '../../../core/errors.ts';
import type { JsonStream } from '../../json-stream.ts';
import type { Demand } from './demands.ts';
import type { Principal, Scope } from './principal.ts';

/** The nine areas of the interface specification, in its order, with their descriptions. */
export const AREAS = {
  'Service and applications': 'Whether the service is well, and which applications it hosts.',
  Sessions: 'Conversations: their state, their ordered events.',
  'Agent execution': 'Runs the agent: at once, as a stream, in the background.',
  Artifacts: 'Files of a session or a user, in versions.',
  Memory: 'What a user said in earlier sessions.',
  'Evaluation (development server)': 'Conversations as cases, in sets. Development UI mode only.',
  'Debugging (development server)': 'Traces and graphs. Development UI mode only.',
  'Compatibility endpoints': 'Further spellings, for the clients that use them.',
  'Harness cronjobs': 'Prompts that are sent by the clock.',
} as const;

export type Area = keyof typeof AREAS;

/** A validated, authorised request as a handler receives it. */
export interface Call<Path, Query, Headers, Body> {
  /** Path parameters by camelCase name, percent-decoded. */
  path: Path;
  query: Query;
  /** The declared headers by lower-case name. */
  headers: Headers;
  /** The body as sent, including members unknown to the schema; only aliases of member names are replaced. */
  body: Body;
  principal: Principal;
  /** Makes the 404 for the resource in the path, byte for byte the response for another user's resource. */
  notFound: () => NotFoundError;
  /**
   * Counts one more action of an open stream, such as a turn of a live session, or a request that turned out to be
   * large.
   * @param load rate limit class; default: the operation's
   * @throws {LimitError} if the caller has reached the class's limit for this minute
   */
  countAgain: (load?: Load) => Promise<void>;
  request: Request;
  response: Response;
}

/**
 * A handler's response. `json` is serialised text; `stream` is such a text in pieces, which may be read while they are
 * sent; `sent` means that the handler wrote the response itself.
 */
export type Answer =
  | { kind: 'json'; status?: number; text: string }
  | { kind: 'stream'; text: JsonStream }
  | { kind: 'value'; status?: number; value: unknown }
  | { kind: 'sent' };

/**
 * The resource's owner, which the router enforces before the handler runs. `open`: no credential is required.
 * `service`: the resource belongs to no user. `path`: the user in the path. `caller`: the handler returns only the
 * caller's own data. Otherwise `user` and `app` read the owner from the validated request; `absent` is the text of the
 * 404 for others.
 */
type Owner<Sent = SentUser<never, never, never, never>> =
  | 'open'
  | 'service'
  | 'path'
  | 'caller'
  | { user: (sent: Sent) => string; app?: (sent: Sent) => string; absent: (sent: Sent) => string };

/** The validated request from which an owner is read, for example from an id in the path that contains the user. */
interface SentUser<Path, Query, Headers, Body> {
  path: Path;
  query: Query;
  headers: Headers;
  body: Body;
}

/** The JSON body of an operation. `aliases` maps additional names of top-level members to the schema's names. */
export interface OperationBody<Schema extends z.ZodType = z.ZodType> {
  schema: Schema;
  required: boolean;
  /** A valid example; published in the OpenAPI document. */
  example: NoInfer<z.input<Schema>>;
  aliases?: Record<string, string>;
  /** True: the body is text of any media type; the schema is a string. */
  isText?: boolean;
  /** Schema and example of the JSON in a text body; published in the OpenAPI document. */
  json?: { schema: object; example: unknown };
}

/** The response of a successful request. Defaults: status 200, media type `application/json`. */
export interface Success<Schema extends z.ZodType = z.ZodType> {
  schema: Schema;
  description: string;
  status?: 101 | 200 | 201 | 202;
  /** An example of the response body; published in the OpenAPI document. */
  example: NoInfer<z.input<Schema>>;
  mediaType?: string;
  /** For an operation that streams: the JSON response to a request that does not wait; published. */
  json?: { schema: object; example: unknown };
  /** Optional response headers: name → description. */
  headers?: Record<string, string>;
}

/** Rate limit classes of operations. `heavy`: reads unlimited amounts of data. `invoke`: runs the agent. */
export type Load = 'read' | 'write' | 'heavy' | 'invoke';

/** Returns an operation's rate limit class: its own, otherwise by scope and method. */
export const loadFor = ({ load, scope, method }: Pick<OperationBase, 'load' | 'scope' | 'method'>): Load =>
  load ?? (scope === 'invoke' ? 'invoke' : method === 'get' ? 'read' : 'write');

/** Response header that lists the unknown names in the request, comma-separated. */
export const IGNORED_MEMBERS = 'X-Ignored-Members';

/** An error response before it is written. */
interface Refusal {
  status: number;
  detail: string | { loc: (string | number)[]; msg: string }[];
  /** Name of the limit that refused the request. */
  limit?: string;
}

/** Returns the body of an error response in another protocol's format, with additional headers. */
export type ToRefusal = (
  refusal: Refusal,
  error: unknown,
  request: Pick<Request, 'method' | 'path'> & Partial<Pick<Request, 'headers' | 'query'>>,
) => { status: number; body: object; headers?: Record<string, string> };

/** Facts that the steps of a request leave in `response.locals` for later steps. */
export interface Noted {
  requestId: string;
  /** The client's IPv4 address, or the /64 network of its IPv6 address. */
  network: string;
  /** The path's template. It and `params` are copied, because Express removes them before an error handler runs. */
  route?: string;
  operationId?: string;
  params?: Request['params'];
  principal?: Principal;
  /** The name under which limits count the caller. */
  caller?: string;
  /** True for a 404 about another user's or application's resource; the audit stores it. */
  isForeign?: boolean;
  /** Whose object the request is about, if its content or the object says it; a refusal from then on is audited with it. */
  about?: { appName?: string | undefined; userId?: string | undefined };
  /** How the operation's protocol formats an error. */
  toRefusal?: ToRefusal | undefined;
  /** Address of the OAuth resource metadata (RFC 9728). */
  metadataUrl?: string;
}

/**
 * Third-party protocols. Their operations accept unknown names and list them in a response header, because clients may
 * send members of later versions. `probes`: health checks of load balancers. `OAuth`: redirects from issuers.
 */
export type Wire =
  | 'ADK'
  | 'AgentKit'
  | 'A2A'
  | 'AG-UI'
  | 'AI SDK'
  | 'Durable Streams'
  | 'MCP'
  | 'OAuth'
  | 'OpenAI'
  | 'probes';

/** Members of an operation that do not depend on its schemas' types. */
export interface OperationBase {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** OpenAPI path template, e.g. `/apps/{app_name}/users/{user_id}/sessions`. */
  path: string;
  operationId: string;
  /** Heading in the OpenAPI document. Default: that of the feature (`area.ts`). */
  area?: Area;
  summary: string;
  description?: string;
  /**
   * The third-party protocol of the operation. Default: the runtime's own interface, which answers 422 to unknown
   * members and parameters.
   */
  wire?: Wire | undefined;
  /** The scope that a credential must have; `none` if no credential is required. */
  scope: Scope | 'none';
  /** True: tokens of users are refused whatever their scopes; the operation is for the operator's API keys. */
  isForKeys?: true;
  /**
   * True: although the path names no user, the handler keeps to the users and applications that a key is bound to
   * ({@link boundsOf}). Without it such a key is refused where the operation is about the data of more than one user.
   */
  servesBoundKeys?: true;
  /** True: the operation does not exist for tokens of users, nor where no keys are taken. */
  isAbsentForTokens?: true;
  /** Rate limit class. Default: derived from method and scope, see {@link loadFor}. */
  load?: Load;
  /** True: a POST or PATCH accepts an `Idempotency-Key` and then runs at most once, in one transaction. */
  isIdempotent?: true;
  /** True: the change is also allowed within an application that is no longer hosted, see {@link needsHostedApp}. */
  isForFormerApps?: true;
  /** Path of the OAuth resource metadata (RFC 9728) by which clients find the issuer of their tokens. */
  resourceMetadata?: string;
  /** True: the response stays open and counts as a stream. */
  isStream?: true;
  /** Additional statuses with an `ApiError` body: status → reason. 422 is implied. */
  errors?: Record<number, string>;
  /** Schema of error bodies in another protocol's format; published. Default: `ApiError`. */
  refusal?: object;
  /** Converts errors into another protocol's format; an invalid request then gets 400. Default: `ApiError`. */
  toRefusal?: ToRefusal;
  /** Statuses of responses without a body: status → reason. */
  bare?: Record<number, string>;
}

/**
 * True for a change that is refused in an application that is not hosted. What a formerly hosted application left can
 * still be read, exported, held, stopped and deleted.
 */
export const needsHostedApp = ({ method, isForFormerApps }: OperationBase): boolean =>
  method !== 'get' && method !== 'delete' && isForFormerApps !== true;

/**
 * An operation's handler, and all that OpenAPI document, router and authorisation need. `Context` is the part of the
 * process that the handler uses.
 */
export interface Operation<Context = never> extends OperationBase {
  /** Additional path templates with the same parameters, see `withAliases`. They are not published. */
  aliases?: string[];
  /** True: repeats another operation at a different path with other access rules; only the other one is published. */
  isCopy?: true;
  owner: Owner;
  /** Additional scopes that a validated request requires because of its content. */
  demands?: (sent: SentUser<never, never, never, never>) => Demand[];
  /** Path parameters by camelCase name (`{app_name}` is `appName`), query parameters, headers by lower-case name. */
  parameters?: { path?: z.ZodObject; query?: z.ZodObject; headers?: z.ZodObject };
  body?: OperationBody;
  /** `undefined`: the response is 200 with the JSON value `null`, and the handler returns nothing. */
  success?: Success;
  absent?: (path: never) => string;
  handler: (context: Context, call: Call<never, never, never, never>) => Promise<Answer | void>;
}

/** An operation as a feature declares it; the schemas determine the types of the handler's parameters. */
export interface Definition<
  Context,
  Path extends z.ZodObject,
  Query extends z.ZodObject,
  Headers extends z.ZodObject,
  Body extends z.ZodType,
  Result extends z.ZodType,
> extends OperationBase {
  /** Owner of the resource. Default: `path`, which the check at start-up refuses if the path contains no user. */
  owner?: Owner<SentUser<z.output<Path>, z.output<Query>, z.output<Headers>, z.input<Body>>>;
  demands?: (sent: SentUser<z.output<Path>, z.output<Query>, z.output<Headers>, z.input<Body>>) => Demand[];
  parameters?: { path?: Path; query?: Query; headers?: Headers };
  body?: OperationBody<Body>;
  success?: Success<Result>;
  /** Makes the text of the 404 for the resource in the path, from the path's parameters as sent. */
  absent?: (path: { [Name in keyof z.output<Path>]: string }) => string;
  handler: (
    context: Context,
    call: Call<z.output<Path>, z.output<Query>, z.output<Headers>, z.input<Body>>,
  ) => Promise<Answer> | Promise<void>;
}

/**
 * Declares an operation. `Context` is inferred from the handler's first parameter, the call's types from the schemas.
 */
export function operation<
  Context,
  Path extends z.ZodObject = z.ZodObject<Record<string, never>>,
  Query extends z.ZodObject = z.ZodObject<Record<string, never>>,
  Headers extends z.ZodObject = z.ZodObject<Record<string, never>>,
  Body extends z.ZodType = z.ZodUndefined,
  Result extends z.ZodType = z.ZodNull,
>(definition: Definition<Context, Path, Query, Headers, Body, Result>): Operation<Context> {
  return { owner: 'path', ...definition };
}

/**
 * Returns a function that imports a module with its first call and keeps it: `import()` of a loaded one takes 50 µs.
 */
export function loadOnce<Module>(load: () => Promise<Module>): () => Promise<Module> {
  let loading: Promise<Module> | undefined;
  return () => (loading ??= load());
}

/** Marks operations as part of a third-party protocol. All but ADK's are published as compatibility endpoints. */
export const onWire = <Context>(wire: Wire, operations: readonly Operation<Context>[]): Operation<Context>[] =>
  operations.map((each) => ({ area: 'Compatibility endpoints', ...each, wire }));
