import { AsyncLocalStorage } from 'node:async_hooks';

/** A read that a replica may answer. */
interface ReplicaRead {
  /** Place in the primary's log of changes that the replica must have reached: `16/B374D848`. */
  position: string;
  /** True once the primary has answered a statement: a replica may lack what that one saw, so the rest go there. */
  isAtPrimary: boolean;
}

/** The request that code works for, also where it goes on in the background. */
export interface RequestContext {
  /** The caller that places, turns and rates are counted for; `undefined` for the process itself. */
  caller?: string | undefined;
  /** The user whose rows alone statements see and write, by row-level security; `undefined` for the rows of all. */
  userId?: string | undefined;
  /** Groups of that user: tasks that are assigned to one of them are seen too. */
  groups?: readonly string[] | undefined;
  /** Set where plain reads may go to a replica; otherwise they ask the primary. */
  read?: ReplicaRead | undefined;
  /** Aborted when the credential of a request that may wait is not valid any more; its reason says so. */
  ended?: AbortSignal | undefined;
  /** Says that an answer has sent all that there is, and waits for more. */
  hasRead?: (() => void) | undefined;
  /** Id of the key that the request came with; `undefined` for any other credential. */
  keyId?: string | undefined;
  requestId?: string | undefined;
  sessionId?: string | undefined;
  invocationId?: string | undefined;
  /** Name of the tool that is running. */
  tool?: string | undefined;
  /** The trace context (W3C `traceparent`) that the request came with. */
  callerTrace?: string | undefined;
  /** The trace context of the current step, which models and tool servers are sent. */
  traceparent?: string | undefined;
}

const storage = new AsyncLocalStorage<RequestContext>();
const NONE: RequestContext = {};

/** Returns the context of the running work. */
export const currentContext = (): RequestContext => storage.getStore() ?? NONE;

/** Does work in the current context, changed by what is given. */
export const runWith = <T>(more: RequestContext, work: () => T): T =>
  storage.run({ ...storage.getStore(), ...more }, work);

/** Does work on the rows of one user only, and awaits it within: a statement of drizzle begins when it is awaited. */
export const runAsUser = <T>(userId: string, work: () => PromiseLike<T>): Promise<T> =>
  runWith({ userId, groups: undefined }, async () => await work());

/** Does work that sees the rows of all users, for instance a batch that the request of one user has started. */
export const runAsSystem = <T>(work: () => PromiseLike<T>): Promise<T> =>
  runWith({ userId: undefined }, async () => await work());

/** Returns a function that sees the rows that the current work sees, whatever work calls it. */
export function bindUser(wake: () => void): () => void {
  const { userId } = currentContext();
  return () => runWith({ userId }, wake);
}

/** Does the work of a step; without a trace context it stays in that of the current one. */
export const runInTrace = <T>(traceparent: string | undefined, work: () => T): T =>
  traceparent === undefined ? work() : runWith({ traceparent }, work);

/** Returns the ids of the running work for a line of the log; none of them says anything about its content. */
export function logFields(): Record<string, string> {
  const { requestId, sessionId, invocationId, tool } = currentContext();
  const fields = Object.entries({ requestId, sessionId, invocationId, tool });
  return Object.fromEntries(fields.filter((field): field is [string, string] => field[1] !== undefined));
}
