import { setTimeout as sleep } from 'node:timers/promises';
import { runAsSystem } from '../platform/context.ts';
import { isPassingFailure } from '../core/errors.ts';
import type { SessionKey } from '../core/session.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import { listInvocationStates } from './invocation-store.ts';

/** Time between two looks at all watched invocations. */
const LOOK_MS = 1_000;

/** Who waits for the end of an invocation. */
interface Watcher {
  key: SessionKey;
  invocationId: string;
  wake: () => void;
  /** As the last look found it; `undefined` before the first one, which therefore wakes. */
  state?: string;
}

/** Those who watch in a process, and whether somebody looks for them. */
interface Watchers {
  all: Set<Watcher>;
  isLooking: boolean;
}

/** The watchers of this process; two runtimes in one process, each with its database, have their own. */
const watching = new WeakMap<DatabasePool, Watchers>();

/**
 * Calls `wake` when the status of an invocation has changed, its process has died, or it may have been missed that they
 * did: what no notification tells. One statement a second looks for all who watch.
 * @returns what ends it.
 */
export function watchInvocation(
  database: DatabasePool,
  key: SessionKey,
  invocationId: string,
  wake: () => void,
): () => void {
  const watchers = watching.get(database) ?? { all: new Set(), isLooking: false };
  watching.set(database, watchers);
  const watcher: Watcher = { key, invocationId, wake };
  watchers.all.add(watcher);
  void lookWhileWatched(database, watchers);
  return () => void watchers.all.delete(watcher);
}

async function lookWhileWatched(database: DatabasePool, watchers: Watchers): Promise<void> {
  if (watchers.isLooking) return;
  watchers.isLooking = true;
  while (watchers.all.size > 0) {
    await sleep(LOOK_MS, undefined, { ref: false });
    // Begun within the request of one user, this looks for all.
    if (watchers.all.size > 0) await runAsSystem(() => look(database, [...watchers.all]));
  }
  watchers.isLooking = false;
}

async function look(database: DatabasePool, watchers: Watcher[]): Promise<void> {
  try {
    const states = await listInvocationStates(database.reads, watchers);
    for (const [position, watcher] of watchers.entries()) {
      const state = states[position] ?? 'gone';
      if (state !== watcher.state) watcher.wake();
      watcher.state = state;
    }
  } catch (error) {
    // A database that is away is looked at the next time; any other error is for those who read.
    if (!isPassingFailure(error)) for (const { wake } of watchers) wake();
  }
}
