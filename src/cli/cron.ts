import { type GlobalOptions, listPages, withApi } from './api.ts';
import { print, printList } from './output.ts';

interface CronjobBody {
  jobId: string;
  ownerId: string;
  name: string;
  enabled: boolean;
  nextRunAt: string | null;
  latestRun: { status: string } | null;
}

/** These commands start no service, because cronjobs need a service that keeps running. */
const RUNNING = { running: true };

/** Prints the cronjobs of `--user`, or with `--all` those of all users. */
export const listCronjobs = (options: GlobalOptions & { all?: boolean }): Promise<void> =>
  withApi(
    options,
    async (api) => {
      const path = options.all ? '/cronjobs?' : `/harness/cronjobs?ownerId=${encodeURIComponent(options.user)}&`;
      printList(await listPages<CronjobBody>(api, `${path}limit=1000`), {
        ...options,
        head: ['cronjob', 'user', 'enabled', 'next', 'latest', 'name'],
        toRow: ({ jobId, ownerId, enabled, nextRunAt, latestRun, name }) => [
          jobId,
          ownerId,
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
