import { AsyncLocalStorage } from 'node:async_hooks';

/** The context of the current request and of background work that it starts. */
export interface RequestContext {
  /** Name by which slots, queue turns and rates are counted; `undefined` for the process itself. */
  caller?: string | undefined;
  /** Row-level security: the only user whose rows are visible; `undefined` for all users. */
  userId?: string | undefined;
  /** The user's groups. The user also sees tasks assigned to one of them. */
  groups?: readonly string[] | undefined;
  /** Aborted when the credential of a long request expires or is revoked; the abort reason says which. */
  ended?: AbortSignal | undefined;
  /** Called when a stream has sent everything available and waits for more. */
  hasRead?: (() => void) | undefined;
  /** Id of the API key; `undefined` for other credentials. */
  keyId?: string | undefined;
  requestId?: string | undefined;
  /** Application and user of the session in which an invocation runs; they restrict nothing. */
  of?: { appName: string; userId: string } | undefined;
  sessionId?: string | undefined;
  invocationId?: string | undefined;
  tool?: string | undefined;
  /** The `traceparent` header (W3C Trace Context) that the caller sent. */
  callerTrace?: string | undefined;
  /** `traceparent` of the current step, as sent to models and tool servers. */
  traceparent?: string | undefined;
}

const storage = new AsyncLocalStorage<RequestContext>();
const NONE: RequestContext = {};

export const currentContext = (): RequestContext => storage.getStore() ?? NONE;

export const runWith = <T>(more: RequestContext, work: () => T): T =>
  storage.run({ ...storage.getStore(), ...more }, work);

/** Runs work of the process, outside of the request that happens to start it. */
export const runOutside = <T>(work: () => T): T => storage.run(NONE, work);

/** Restricts work to one user's rows. Awaits inside, because drizzle sends a statement only when it is awaited. */
export const runAsUser = <T>(userId: string, work: () => PromiseLike<T>): Promise<T> =>
  runWith({ userId, groups: undefined }, async () => await work());

/** Runs work on the rows of all users, e.g. a batch that happens to start within one user's request. */
export const runAsSystem = <T>(work: () => PromiseLike<T>): Promise<T> =>
  runWith({ userId: undefined }, async () => await work());

/** Binds a callback to the current user, so that it does not run under the user of whoever calls it later. */
export function bindUser(wake: () => void): () => void {
  const { userId } = currentContext();
  return () => runWith({ userId }, wake);
}

export const runInTrace = <T>(traceparent: string | undefined, work: () => T): T =>
  traceparent === undefined ? work() : runWith({ traceparent }, work);

/** The ids of the current request and its work, as fields of log lines; no content. */
export function logFields(): Record<string, string> {
  const { requestId, of: { appName, userId } = {}, sessionId, invocationId, tool } = currentContext();
  const fields = Object.entries({ requestId, appName, userId, sessionId, invocationId, tool });
  return Object.fromEntries(fields.filter((field): field is [string, string] => field[1] !== undefined));
}
