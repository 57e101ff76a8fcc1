import { FairSemaphore } from './fair-semaphore.ts';

const turns = new FairSemaphore(1);
/** Maximum time that work may block the event loop without a pause, in milliseconds. */
const SLICE_MS = 10;

/** Waits for an exclusive turn of the event loop before large synchronous work; callers take turns. */
export async function ownTurn(caller: string): Promise<void> {
  const release = await turns.acquire(caller);
  setImmediate(release);
}

/** Returns a function for long work to await between its steps. It yields to the event loop every {@link SLICE_MS}. */
export function newPauses(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < SLICE_MS) return;
    await new Promise(setImmediate);
    since = performance.now();
  };
}
