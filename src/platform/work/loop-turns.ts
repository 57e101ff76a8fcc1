import { FairSemaphore } from './fair-semaphore.ts';

const turns = new FairSemaphore(1);
/** Milliseconds for which work may hold the event loop in one piece. */
const SLICE_MS = 10;

/** Waits for a turn of the event loop that no other large work of this process has; callers have theirs in turn. */
export async function ownTurn(caller: string): Promise<void> {
  const release = await turns.acquire(caller);
  setImmediate(release);
}

/** Returns a function for long work to await between its steps: it lets others have a turn where they waited long. */
export function newPauses(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < SLICE_MS) return;
    await new Promise(setImmediate);
    since = performance.now();
  };
}
