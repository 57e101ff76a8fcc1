import { type SQL, sql } from 'drizzle-orm';
import { type SettingValues, whole } from '../../config/setting-schemas.ts';
import type { ContentStore } from '../../conversation/artifacts/artifact.ts';
import { countOldVersions, deleteOldVersions, rangesOfVersions } from '../../conversation/artifacts/artifact-store.ts';
import {
  countOldSessions,
  deleteOldSessions,
  rangesOfSessions,
  type SessionRetention,
} from '../../conversation/sessions/retention-store.ts';
import type { SessionKey } from '../../core/session.ts';
import { hasOpenWork } from '../../invocations/invocation-store.ts';
import { hasYetToWake } from '../../invocations/waits/task-store.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import type { Log } from '../../platform/log.ts';

/** SQL condition: the session will go on by itself, so that it is not old. */
const goesOn = (session: Record<keyof SessionKey, SQL>): SQL =>
  sql`(${hasYetToWake(session)} or ${hasOpenWork(session)})`;

/** Limits after which user data are deleted. 0 means no limit. */
export interface Retention {
  sessions: SessionRetention;
  /** Number of newest versions to keep per artifact. */
  artifactVersions: number;
}

export const RETENTION_SETTINGS = {
  SESSION_RETENTION_DAYS: whole(
    0,
    [0, 36_500],
    'Days after its last change after which a session is deleted; 0: never.',
  ),
  SESSION_RETENTION_COUNT: whole(0, [0, 1_000_000], 'Newest sessions of a user that an application keeps; 0: all.'),
  ARTIFACT_RETENTION_COUNT: whole(0, [0, 1_000_000], 'Newest versions of an artifact that are kept; 0: all.'),
};

export type RetentionSettings = SettingValues<typeof RETENTION_SETTINGS>;

export const toRetention = (config: RetentionSettings): Retention => ({
  sessions: { days: config.SESSION_RETENTION_DAYS, count: config.SESSION_RETENTION_COUNT },
  artifactVersions: config.ARTIFACT_RETENTION_COUNT,
});

export interface RetentionContext {
  database: DatabasePool;
  contentStore: ContentStore;
  log: Log;
  /** Deletes what other features store about deleted sessions, in the same transaction. */
  forgetSessions: (tx: Database, keys: readonly SessionKey[], options: { copiesToo: boolean }) => Promise<void>;
}

export type RetentionCounts = Record<'sessions' | 'artifactVersions', number>;

const isOn = ({ days, count }: SessionRetention) => days > 0 || count > 0;

export async function countExpired(
  { database }: Pick<RetentionContext, 'database'>,
  { sessions, artifactVersions }: Retention,
): Promise<RetentionCounts> {
  const db = database.reads;
  const counts = { sessions: 0, artifactVersions: 0 };
  if (isOn(sessions))
    for await (const range of rangesOfSessions(db))
      counts.sessions += await countOldSessions(db, sessions, range, goesOn);
  if (artifactVersions > 0)
    for await (const range of rangesOfVersions(db))
      counts.artifactVersions += await countOldVersions(db, artifactVersions, range);
  return counts;
}

/**
 * Deletes expired data in short transactions until `signal` aborts. Sessions that run, and data on legal hold, stay.
 */
export async function applyRetention(
  context: RetentionContext,
  retention: Retention,
  signal?: AbortSignal,
): Promise<RetentionCounts> {
  const { database, forgetSessions } = context;
  const { db } = database;
  const counts = { sessions: 0, artifactVersions: 0 };
  const { sessions, artifactVersions } = retention;
  const add = (what: keyof RetentionCounts, deleted: number) => {
    counts[what] += deleted;
    if (deleted > 0) context.log.info({ ...counts }, 'retention deletes');
    return deleted > 0 && !signal?.aborted;
  };
  if (isOn(sessions))
    for await (const range of rangesOfSessions(db, signal)) {
      const deleteSome = async (tx: Database) => {
        const keys = await deleteOldSessions(tx, sessions, range, goesOn);
        if (keys.length > 0) await forgetSessions(tx, keys, { copiesToo: false });
        return keys.length;
      };
      while (add('sessions', await database.transaction(deleteSome)));
    }
  if (artifactVersions > 0)
    for await (const range of rangesOfVersions(db, signal))
      for (let isMore = true; isMore; ) {
        const { rows, objectKeys } = await deleteOldVersions(db, artifactVersions, range);
        await context.contentStore.remove(objectKeys);
        isMore = add('artifactVersions', rows);
      }
  return counts;
}
