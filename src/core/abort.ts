import { AgentError } from './errors.ts';

/** Returns the work's result, or rejects with the signal's reason when it is aborted, even if the work ignores it. */
export function orAborted<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(abortError(signal));
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/** Returns the reason of an aborted signal as an error; one that is no `AgentError` becomes `interrupted`. */
export function abortError(signal: AbortSignal): AgentError {
  if (signal.reason instanceof AgentError) return signal.reason;
  return new AgentError('interrupted', 'The invocation was interrupted.', { cause: signal.reason });
}

/** Timers of Node wrap around beyond this many milliseconds. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Calls `work` at a Unix time in milliseconds, never for `undefined`. @returns a function that cancels it */
export function atTime(time: number | undefined, work: () => void): () => void {
  if (time === undefined) return () => undefined;
  let timer: NodeJS.Timeout;
  const wait = () => {
    const left = time - Date.now();
    timer = setTimeout(left > MAX_TIMER_MS ? wait : work, Math.min(Math.max(left, 0), MAX_TIMER_MS));
  };
  wait();
  return () => clearTimeout(timer);
}
