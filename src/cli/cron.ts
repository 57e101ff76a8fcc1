import { type GlobalOptions, withApi } from './api.ts';
import { print, printList } from './output.ts';

/** The members of a cronjob that are shown. */
interface CronjobBody {
  jobId: string;
  name: string;
  enabled: boolean;
  nextRunAt: string | null;
  latestRun: { status: string } | null;
}

/** Only a service that stays fires cronjobs. */
const RUNNING = { running: true };

/** Prints the cronjobs. */
export const listCronjobs = (options: GlobalOptions): Promise<void> =>
  withApi(
    options,
    async (api) => {
      const { items } = await api.send<{ items: CronjobBody[] }>('GET', '/harness/cronjobs?limit=100');
      printList(items, {
        ...options,
        head: ['cronjob', 'enabled', 'next', 'latest', 'name'],
        toRow: ({ jobId, enabled, nextRunAt, latestRun, name }) => [
          jobId,
          enabled ? 'yes' : 'no',
          nextRunAt ?? '–',
          latestRun?.status ?? '–',
          name,
        ],
        empty: 'There are no cronjobs.',
      });
    },
    RUNNING,
  );

/** Fires a cronjob now and prints its run. */
export const runCronjob = (id: string, options: GlobalOptions): Promise<void> =>
  withApi(
    options,
    async (api) => {
      const run = await api.send<{ runId: string; status: string }>(
        'POST',
        `/harness/cronjobs/${encodeURIComponent(id)}/run`,
      );
      print(options.json ? JSON.stringify(run) : `run ${run.runId}: ${run.status}`);
    },
    RUNNING,
  );
