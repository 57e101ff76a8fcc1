import { FairSemaphore } from './fair-semaphore.ts';

const turns = new FairSemaphore(1);

/** Waits for a turn of the event loop that no other large work of this process has; callers have theirs in turn. */
export async function ownTurn(caller: string): Promise<void> {
  const release = await turns.acquire(caller);
  setImmediate(release);
}
