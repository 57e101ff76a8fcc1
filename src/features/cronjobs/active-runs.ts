import { AgentError, isPassingFailure } from '../../core/errors.ts';
import type { InvocationContext } from '../../invocations/context.ts';
import { stoppedMessage } from '../../invocations/invocation.ts';
import { type ClaimedRun, renewRuns } from './claim-store.ts';
import { executeRun } from './execute-run.ts';
import { CANCEL_TOPIC } from './topics.ts';

/** The runs that a process is busy with. */
export interface ActiveRuns {
  /** Their ids. */
  ids(): string[];
  /** Runs a claimed run to its end; `onEnd` is called then, however it ended. */
  start(claimed: ClaimedRun, onEnd: () => void): void;
  /** Settles when none is left, and stops renewing their leases. */
  close(): Promise<void>;
}

interface ActiveRun {
  claimed: ClaimedRun;
  ending: AbortController;
  ended: Promise<void>;
}

/** Holds the runs of a process: renews their leases, all in one statement, and ends those that somebody cancels. */
export function createActiveRuns(context: InvocationContext): ActiveRuns {
  const { database, notifications, leaseTimes, log } = context;
  const active = new Map<string, ActiveRun>();
  const renew = async (): Promise<void> => {
    if (active.size === 0) return;
    const runs = [...active.values()].map(({ claimed }) => claimed.run);
    for (const { id, isCancelled } of await renewRuns(database.db, runs, leaseTimes.durationMs)) {
      if (isCancelled) active.get(id)?.ending.abort(new AgentError('cancelled', stoppedMessage('cancelled')));
    }
  };
  const renewNow = () => {
    renew().catch((error: unknown) => {
      if (!isPassingFailure(error)) log.error({ err: error }, 'the leases of cronjob runs were not renewed');
    });
  };
  const timer = setInterval(renewNow, leaseTimes.renewalMs);
  const unsubscribe = notifications.subscribe(CANCEL_TOPIC, renewNow);
  return {
    ids: () => [...active.keys()],
    start(claimed, onEnd) {
      const { id } = claimed.run;
      const ending = new AbortController();
      const ended = executeRun(context, claimed, ending.signal)
        .catch((error: unknown) => {
          // Its lease runs out, and whoever takes it over finds how it ended.
          if (!isPassingFailure(error)) log.error({ err: error, runId: id }, 'a cronjob run failed');
        })
        .finally(() => {
          active.delete(id);
          onEnd();
        });
      active.set(id, { claimed, ending, ended });
    },
    async close() {
      while (active.size > 0) await Promise.all([...active.values()].map(({ ended }) => ended));
      unsubscribe();
      clearInterval(timer);
    },
  };
}
