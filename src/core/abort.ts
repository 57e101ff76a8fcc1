import { AgentError } from './errors.ts';

/**
 * Returns the result of `work`. When the signal is aborted, rejects with its reason at once, even if `work` goes on.
 */
export function orAborted<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(abortError(signal));
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/**
 * Returns the reason of an aborted signal as an error. A reason that is not an `AgentError` becomes an `AgentError`
 * with the code `interrupted`.
 */
export function abortError(signal: AbortSignal): AgentError {
  if (signal.reason instanceof AgentError) return signal.reason;
  return new AgentError('interrupted', 'The invocation was interrupted.', { cause: signal.reason });
}

/** Maximum delay of a timer in milliseconds. Node fires a timer with a longer delay at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls `work` at `time`, a Unix time in milliseconds; never if `time` is `undefined`. @returns a function that cancels
 * the call
 */
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
