import { runAsSystem } from '../../platform/context.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { callFunction } from '../../platform/db/statement.ts';
import type { Log } from '../../platform/log.ts';
import type { Labels, Metrics } from '../../platform/metrics.ts';
import { runPollLoop } from '../../platform/work/poll-loop.ts';

interface ServiceState {
  replicas: object[];
  queues: {
    name: NonNullable<Labels<'agent_runtime_queue_waiting'>['queue']>;
    waiting: number;
    more: boolean;
    running: number;
    oldestSeconds: number | null;
  }[];
  stranded: number;
}

/** Reads what all processes share. Its cost is bounded: the function counts no more than it says. */
export const readServiceState = (db: Database): Promise<ServiceState> =>
  runAsSystem(() => callFunction<ServiceState>(db, 'service_state', {}));

/** Maximum pause between two reads in milliseconds: most collectors ask every 15 to 60 s. */
const MAX_PAUSE_MS = 15_000;
/** Age in milliseconds from which a read is not reported any more, because the database may be away since. */
const MAX_AGE_MS = 60_000;

export interface StateContext {
  database: DatabasePool;
  metrics?: Metrics | undefined;
  log: Log;
  draining: AbortSignal;
  /** How often the process looks for what other processes left, in milliseconds. */
  sweepIntervalMs: number;
}

/**
 * Measures the queues that all processes share, in every process with metrics: so they are reported whichever process
 * ends. A collector never waits for the database: it gets the last read, and nothing if that is too old.
 */
export function measureQueues({ database, metrics, log, draining, sweepIntervalMs }: StateContext) {
  if (!metrics) return undefined;
  let last: { state: ServiceState; at: number } | undefined;
  const find = () => (last && performance.now() - last.at < MAX_AGE_MS ? last.state : undefined);
  const queues = () => find()?.queues ?? [];
  metrics.observe('agent_runtime_queue_waiting', () => queues().map(({ name, waiting }) => [waiting, { queue: name }]));
  metrics.observe('agent_runtime_queue_oldest_seconds', () =>
    queues().map(({ name, oldestSeconds }) => [oldestSeconds ?? 0, { queue: name }]),
  );
  metrics.observe('agent_runtime_invocations_stranded', () => {
    const state = find();
    return state ? [[state.stranded, {}]] : [];
  });
  return runPollLoop({
    poll: async () => {
      last = { state: await readServiceState(database.reads), at: performance.now() };
      return Math.min(MAX_PAUSE_MS, sweepIntervalMs);
    },
    signal: draining,
    onError: (error) => log.warn({ err: error }, 'the queues could not be measured'),
  });
}
