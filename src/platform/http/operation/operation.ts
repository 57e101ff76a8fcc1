import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { NotFoundError } from '../../../core/errors.ts';
import type { Demand } from './demands.ts';
import type { Principal, Scope } from './principal.ts';

/** The nine areas of the specification, in its order, and what each is for. */
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

/** One request as a handler sees it: validated, with a caller who may do what is requested. */
export interface Call<Path, Query, Headers, Body> {
  /** Path parameters, percent-decoded, by their names in camelCase. */
  path: Path;
  query: Query;
  /** The declared headers, by their names in lower case. */
  headers: Headers;
  /** The body exactly as it was sent, members unknown to the schema included; only alias spellings are renamed. */
  body: Body;
  principal: Principal;
  /** The 404 of what the path names: the bytes that a caller gets for what belongs to another user. */
  notFound: () => NotFoundError;
  /**
   * Counts what an open stream does once more, such as a turn of a live session, or what a request turns out to be.
   * @param load its class [that of the operation]
   * @throws {LimitError} where the caller has done so often enough in this minute
   */
  countAgain: (load?: Load) => Promise<void>;
  request: Request;
  response: Response;
}

/** An answer of a handler. `json` is text already serialised; `sent` means that the handler wrote the response. */
export type Answer =
  | { kind: 'json'; status?: number; text: string }
  | { kind: 'value'; status?: number; value: unknown }
  | { kind: 'sent' };

/**
 * The owner of what a request asks for; the router enforces it before the handler. `open`: no caller is asked for
 * a credential. `service`: a credential is needed, nothing belongs to a user. `path`: the user that the path names.
 * `caller`: the handler shows a caller what is the caller's. Otherwise `user` and `app` say whose it is of a validated
 * request, and `absent` is the text of the 404 for all others.
 */
type Owner<Sent = SentUser<never, never, never, never>> =
  | 'open'
  | 'service'
  | 'path'
  | 'caller'
  | { user: (sent: Sent) => string; app?: (sent: Sent) => string; absent: (sent: Sent) => string };

/** Where a request that names its user may do so: in its path within the id of something. */
interface SentUser<Path, Query, Headers, Body> {
  path: Path;
  query: Query;
  headers: Headers;
  body: Body;
}

/** The JSON body of an operation. `aliases` are further top-level spellings: sent name → the schema's name. */
export interface OperationBody<Schema extends z.ZodType = z.ZodType> {
  schema: Schema;
  required: boolean;
  /** A body that can be sent as it is; published. */
  example: NoInfer<z.input<Schema>>;
  aliases?: Record<string, string>;
  /** True: the body is text of any media type, and the schema a string. */
  isText?: boolean;
  /** The part of a text that is published as JSON. */
  json?: { schema: object; example: unknown };
}

/** The answer of a success. `status` is 200 and `mediaType` is `application/json` unless given. */
export interface Success<Schema extends z.ZodType = z.ZodType> {
  schema: Schema;
  description: string;
  status?: 101 | 200 | 201 | 202;
  /** A body as it is answered; published. */
  example: NoInfer<z.input<Schema>>;
  mediaType?: string;
  /** The answer of a stream that is JSON where the request does not wait; published. */
  json?: { schema: object; example: unknown };
  /** Headers that it may have, by name, with their meaning. */
  headers?: Record<string, string>;
}

/** Classes of operations, each with its own rate: `heavy` reads as much as there is, `invoke` runs the agent. */
export type Load = 'read' | 'write' | 'heavy' | 'invoke';

/** The class of an operation: as it says, else by its scope and method. */
export const loadFor = ({ load, scope, method }: Pick<OperationBase, 'load' | 'scope' | 'method'>): Load =>
  load ?? (scope === 'invoke' ? 'invoke' : method === 'get' ? 'read' : 'write');

/** The header of an answer to a change; sent back with a read, it keeps that from a replica that has not got so far. */
export const READ_POSITION = 'X-Read-Position';

/** The header of an answer that names what the request said in vain, with commas. */
export const IGNORED_MEMBERS = 'X-Ignored-Members';

/** True of a plain read, which a replica may answer: not of a stream, nor of what costs as much as an invocation. */
export const isPlainRead = (read: Pick<OperationBase, 'load' | 'scope' | 'method' | 'isStream'>): boolean =>
  read.method === 'get' && read.isStream !== true && loadFor(read) !== 'invoke';

/** A failure as the wire has it. */
interface Refusal {
  status: number;
  detail: string | { loc: (string | number)[]; msg: string }[];
  /** Name of the limit that refused the request. */
  limit?: string;
}

/** Returns the body of a refusal in the words of another protocol, and headers beside those that it has. */
export type ToRefusal = (
  refusal: Refusal,
  error: unknown,
  request: Pick<Request, 'method' | 'path'> & Partial<Pick<Request, 'headers' | 'query'>>,
) => { status: number; body: object; headers?: Record<string, string> };

/**
 * The protocols of others that operations speak. Their clients send more than this runtime knows, of later versions for
 * instance: that is served and named in a header. `probes` are of load balancers, `OAuth` of issuers.
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

/** The members of all operations, whatever their types. */
export interface OperationBase {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** OpenAPI template, e.g. `/apps/{app_name}/users/{user_id}/sessions`. */
  path: string;
  operationId: string;
  /** [that of its room, see `area.ts`] */
  area?: Area;
  summary: string;
  description?: string;
  /** Whose protocol it is [this runtime's own: a parameter or member that it does not know is 422]. */
  wire?: Wire | undefined;
  /** The scope that a credential must have; `none` where no credential is asked for. */
  scope: Scope | 'none';
  /** True where tokens of users are refused, whatever their scopes: it is for the operator's own keys. */
  isForKeys?: true;
  /** Its cost, where method and scope do not say it: see {@link loadFor}. */
  load?: Load;
  /** True: a POST or PATCH takes an `Idempotency-Key`, with which it is done once, in one transaction. */
  isIdempotent?: true;
  /** True of a change that takes place within an application that is hosted no more: see {@link needsHostedApp}. */
  isForFormerApps?: true;
  /** Path of the metadata (RFC 9728) by which its clients find the issuer of their tokens. */
  resourceMetadata?: string;
  /** True where its answer lasts: it counts as a stream. */
  isStream?: true;
  /** Statuses of `ApiError` answers beside 422, with their reason. */
  errors?: Record<number, string>;
  /** Schema of refusals, where they are also in the words of another protocol; published [`ApiError`]. */
  refusal?: object;
  /** Puts a refusal into the words of another protocol, with 400 for a request that does not match [`ApiError`]. */
  toRefusal?: ToRefusal;
  /** Statuses of answers without a body, with their reason. */
  bare?: Record<number, string>;
}

/**
 * True of a change that is refused within an application that is not hosted. Everything that is left of a former one
 * can be read, exported, held, stopped and deleted.
 */
export const needsHostedApp = ({ method, isForFormerApps }: OperationBase): boolean =>
  method !== 'get' && method !== 'delete' && isForFormerApps !== true;

/**
 * One operation: all that the document, the router and the authorisation need, beside its handler. `Context` is what
 * the handler uses of the process.
 */
export interface Operation<Context = never> extends OperationBase {
  /** Further templates that it is served at, with the same parameters: see `withAliases`. They are not published. */
  aliases?: string[];
  /** True of an operation that stands a second time, at another path with other rights: the document has the first. */
  isCopy?: true;
  owner: Owner;
  /** Further scopes that a validated request needs, by what it says. */
  demands?: (sent: SentUser<never, never, never, never>) => Demand[];
  /** Path parameters by camelCase name (`{app_name}` is `appName`), query parameters, headers by lower-case name. */
  parameters?: { path?: z.ZodObject; query?: z.ZodObject; headers?: z.ZodObject };
  body?: OperationBody;
  /** `undefined`: 200 carries the JSON value `null`, and the handler returns nothing. */
  success?: Success;
  absent?: (path: never) => string;
  handler: (context: Context, call: Call<never, never, never, never>) => Promise<Answer | void>;
}

/** An operation as a feature declares it: the handler's parameters are typed by the schemas. */
export interface Definition<
  Context,
  Path extends z.ZodObject,
  Query extends z.ZodObject,
  Headers extends z.ZodObject,
  Body extends z.ZodType,
  Result extends z.ZodType,
> extends OperationBase {
  /** [`path`], which the check at the start refuses where the path names no user. */
  owner?: Owner<SentUser<z.output<Path>, z.output<Query>, z.output<Headers>, z.input<Body>>>;
  demands?: (sent: SentUser<z.output<Path>, z.output<Query>, z.output<Headers>, z.input<Body>>) => Demand[];
  parameters?: { path?: Path; query?: Query; headers?: Headers };
  body?: OperationBody<Body>;
  success?: Success<Result>;
  /** Text of the 404 of what the path names, from the path's parameters as they were sent. */
  absent?: (path: { [Name in keyof z.output<Path>]: string }) => string;
  handler: (
    context: Context,
    call: Call<z.output<Path>, z.output<Query>, z.output<Headers>, z.input<Body>>,
  ) => Promise<Answer> | Promise<void>;
}

/**
 * Declares an operation. `Context` is taken from the annotation of the handler's first parameter, the types of the
 * call from the schemas; nothing of the process is needed before a request comes.
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

/** Returns what loads a module with the first request for it: `import()` of a loaded one costs 50 µs each time. */
export function loadOnce<Module>(load: () => Promise<Module>): () => Promise<Module> {
  let loading: Promise<Module> | undefined;
  return () => (loading ??= load());
}

/** Says of operations whose protocol they are. Except for ADK's they are listed as compatibility endpoints. */
export const onWire = <Context>(wire: Wire, operations: Operation<Context>[]): Operation<Context>[] =>
  operations.map((each) => ({ area: 'Compatibility endpoints', ...each, wire }));
