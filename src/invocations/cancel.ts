import type { SessionKey } from '../core/session.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import type { InvocationContext } from './context.ts';
import { requestCancel } from './fence.ts';
import type { SessionFeeds } from './session-feed.ts';

/** Time that the answer to a request to cancel waits for the end. */
const CANCEL_MS = 5_000;

/**
 * Asks an invocation to end as cancelled, on whatever process, and waits a moment for its end: a client reads the
 * status in the answer. @returns false where there is no such invocation
 */
export async function cancel(
  context: Pick<InvocationContext, 'database' | 'notifications' | 'feeds' | 'draining'>,
  key: SessionKey,
  invocationId: string,
): Promise<boolean> {
  if (!(await requestCancel(context, key, invocationId))) return false;
  const signal = AbortSignal.any([AbortSignal.timeout(CANCEL_MS), context.draining]);
  await waitForEnd(context.feeds, key, invocationId, signal);
  return true;
}

async function waitForEnd(feeds: SessionFeeds, key: SessionKey, id: string, signal: AbortSignal): Promise<void> {
  const wakeup = new Wakeup();
  const { wake } = wakeup;
  const feed = feeds.follow(key, wake);
  const unwatch = feeds.watch(key, id, wake);
  signal.addEventListener('abort', wake);
  try {
    while (!signal.aborted) {
      wakeup.reset();
      const found = await feeds.readInvocation(key, id);
      if (found?.status !== 'running' && found?.status !== 'queued') return;
      await wakeup.wait();
    }
  } finally {
    signal.removeEventListener('abort', wake);
    unwatch();
    feed.end();
  }
}
