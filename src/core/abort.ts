import { AgentError } from './errors.ts';

/** Waits for `work`, but rejects as soon as the signal is aborted, even if `work` goes on. */
export function orAborted<Result>(work: Promise<Result>, signal: AbortSignal): Promise<Result> {
  const waits = waitsUntil(signal);
  return waits.wait(work).finally(waits.end);
}

/**
 * Waits like {@link orAborted} for one piece of work after another. All have one listener, because adding one for each
 * takes three times as long as the wait itself.
 */
export function waitsUntil(signal: AbortSignal) {
  let refuse: ((error: AgentError) => void) | undefined;
  const onAbort = () => refuse?.(abortError(signal));
  signal.addEventListener('abort', onAbort, { once: true });
  return {
    wait: <Result>(work: Promise<Result>) =>
      new Promise<Result>((resolve, reject) => {
        refuse = reject;
        if (signal.aborted) onAbort();
        work.then(resolve, reject);
      }),
    end: () => signal.removeEventListener('abort', onAbort),
  };
}

/** Returns the reason of an aborted signal; a reason that is not an `AgentError` is wrapped in one (`interrupted`). */
export function abortError(signal: AbortSignal): AgentError {
  if (signal.reason instanceof AgentError) return signal.reason;
  return new AgentError('interrupted', 'The invocation was interrupted.', { cause: signal.reason });
}

/** Maximum delay of a timer in milliseconds. Node fires a timer with a longer delay at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls `work` at a Unix time in milliseconds, or never if it is undefined.
 * @returns a function that cancels the call
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
