import type { SessionKey } from '../core/session.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import type { InvocationContext } from './context.ts';
import { requestCancel } from './fence.ts';
import type { SessionFeeds } from './session-feed.ts';

/** Maximum time in milliseconds that the HTTP response to a cancellation waits for the end of the invocation. */
const CANCEL_MS = 5_000;

/** A cancellation waits briefly for the end, so that its response shows the final status. @returns false without one */
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
      const invocation = await feeds.readInvocation(key, id);
      if (invocation?.status !== 'running' && invocation?.status !== 'queued') return;
      await wakeup.wait();
    }
  } finally {
    signal.removeEventListener('abort', wake);
    unwatch();
    feed.end();
  }
}
