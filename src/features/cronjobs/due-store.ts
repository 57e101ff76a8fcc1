import { sql } from 'drizzle-orm';
import type { Database } from '../../platform/db/database.ts';
import { cronjobs } from '../../platform/db/schema/schema.ts';
import type { CronjobRow } from './cronjob-store.ts';

const { appName, userId, id, schedule, missedRuns, overlap, until, maxRuns, runCount, nextRunTime, revision } =
  cronjobs;
/** The columns of a cronjob that decide when it fires; its prompt may be long. */
const COLUMNS = { appName, userId, id, schedule, missedRuns, overlap, until, maxRuns, runCount, nextRunTime, revision };
const now = sql`statement_timestamp()`;

export interface NextCronjob {
  cronjob: Pick<CronjobRow, keyof typeof COLUMNS>;
  /** The time by the database's clock. */
  now: Date;
  /** Milliseconds until the cronjob is due; not positive if it is due. */
  dueMs: number;
}

/** Lists the cronjobs that are due first, from the start of an index. */
export function listNextCronjobs(db: Database, limit: number): Promise<NextCronjob[]> {
  const dueMs = sql`ceil(extract(epoch from ${nextRunTime} - ${now}) * 1000)`;
  return db
    .select({ cronjob: COLUMNS, now: sql`${now}`.mapWith(nextRunTime), dueMs: dueMs.mapWith(Number) })
    .from(cronjobs)
    .where(sql`${cronjobs.enabled}`)
    .orderBy(nextRunTime)
    .limit(limit);
}

export interface PlannedRun {
  id: string;
  due: Date;
  /** Why the run is left out. Without it the run is queued, unless `overlap` leaves it out. */
  skipped?: string;
}

/** What a due cronjob does. */
export interface Firing {
  runs: PlannedRun[];
  /** Next due time. `undefined`: the cronjob never fires again and is disabled; `reason` says why. */
  next: Date | undefined;
  reason?: string;
}

/**
 * Queues the runs of due cronjobs and stores their next due times, by compare-and-set on what was read.
 * @returns the ids of the cronjobs that this call has fired
 */
export async function fireCronjobs(
  db: Database,
  firings: { cronjob: NextCronjob['cronjob']; firing: Firing }[],
): Promise<ReadonlySet<string>> {
  const parameter = firings.map(({ cronjob, firing }) => ({
    app: cronjob.appName,
    owner: cronjob.userId,
    id: cronjob.id,
    due: cronjob.nextRunTime,
    revision: cronjob.revision,
    ...firing,
  }));
  const { rows } = await db.execute<{ fired: string[] }>(
    sql`select fire_cronjobs(${JSON.stringify(parameter)}::jsonb) as fired`,
  );
  return new Set(rows[0]?.fired);
}
