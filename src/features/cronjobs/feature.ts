import type { Config } from '../../config/config.ts';
import { ConfigError } from '../../core/errors.ts';
import { identifierSchema } from '../../core/session.ts';
import { REFUSED_ON_CLUSTER } from '../../platform/db/cluster.ts';
import { cronjobs, skippedRuns } from '../../platform/db/schema/schema.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { cronjobPath } from '../../platform/http/operation/parameters.ts';
import { cronjobRunSchema, cronjobSchema } from './cronjob.ts';
import type { CronjobContext } from './cronjob-view.ts';
import { cronjobOperations } from './routes.ts';
import { forgetRuns } from './run-store.ts';
import { scheduleSchema } from './schedule.ts';
import { runCronjobs, type SchedulerContext } from './fire.ts';
import { CRONJOB_SETTINGS } from './settings.ts';

/** Maximum number of stored ended runs of a cronjob. */
const MAX_KEPT = 1_000;

export interface Context extends CronjobContext, SchedulerContext {
  notifications: SchedulerContext['notifications'];
  config: CronjobContext['config'] & Pick<Config, 'RUN_RETENTION_DAYS'>;
  limits: { runs: number; runsPerUser: number };
}

export const cronjobFeature = {
  name: 'cronjobs',
  settings: { Cronjobs: CRONJOB_SETTINGS },
  servedWith: { setting: 'CRONJOBS=true', isSet: ({ CRONJOBS }) => CRONJOBS },
  operations: cronjobOperations,
  schemas: { Cronjob: cronjobSchema, CronjobRun: cronjobRunSchema, CronjobSchedule: scheduleSchema },
  parameters: { CronjobId: cronjobPath.shape.jobId },
  limits: ({ CRONJOBS, CRONJOBS_MAX_RUNS, CRONJOBS_MAX_RUNS_PER_USER }) => ({
    runs: CRONJOBS ? CRONJOBS_MAX_RUNS : 0,
    runsPerUser: CRONJOBS_MAX_RUNS_PER_USER,
  }),
  open: async ({ config, database }) => {
    if (config.CRONJOBS && database.db.isOnCluster) throw new ConfigError(REFUSED_ON_CLUSTER.cronjobs);
  },
  workers: [(context) => (context.config.CRONJOBS ? runCronjobs(context) : undefined)],
  sweeps: [
    {
      group: 'retention',
      name: 'forgetting old cronjob runs',
      run: ({ database, config }) => forgetRuns(database.db, config.RUN_RETENTION_DAYS, MAX_KEPT),
    },
  ],
  userTables: [
    {
      table: cronjobs,
      cascades: true,
      imported: { id: identifierSchema },
      setByRuntime: {
        enabled: 'false',
        next_run_time: 'null',
        disabled_reason: `coalesce(r.disabled_reason, 'imported')`,
      },
      needsOverride: { column: 'harness', what: 'a cronjob that changes the deployed agent' },
    },
    { table: skippedRuns },
  ],
} satisfies Feature<Context>;
