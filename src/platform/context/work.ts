import { AsyncLocalStorage } from 'node:async_hooks';

/** What the work at hand belongs to: for the log, and for traces that cross processes. */
interface Work {
  requestId?: string | undefined;
  sessionId?: string | undefined;
  invocationId?: string | undefined;
  /** The trace context (W3C `traceparent`) that the request came with. */
  callerTrace?: string | undefined;
  /** The trace context of the step at hand, for those who are asked to do some of it. */
  traceparent?: string | undefined;
}

const current = new AsyncLocalStorage<Work>();

/** Does work that belongs to what is given, beside what it belongs to already. */
export const workingOn = <T>(more: Work, work: () => T): T => current.run({ ...current.getStore(), ...more }, work);

/** What the work at hand belongs to. */
export const currentWork = (): Work => current.getStore() ?? {};

/** Does the work of a step; without a trace context as it is. */
export const inTrace = <T>(traceparent: string | undefined, work: () => T): T =>
  traceparent === undefined ? work() : workingOn({ traceparent }, work);

/** The ids of the work at hand, for a line of the log; none of them says anything about its content. */
export function workFields(): Record<string, string> {
  const { requestId, sessionId, invocationId } = currentWork();
  const fields = Object.entries({ requestId, sessionId, invocationId });
  return Object.fromEntries(fields.filter((field): field is [string, string] => field[1] !== undefined));
}
