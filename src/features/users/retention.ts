import type { SQL } from 'drizzle-orm';
import type { ContentStore } from '../../conversation/artifacts/content-store.ts';
import { countOldVersions, deleteOldVersions, rangesOfVersions } from '../../conversation/artifacts/retention-store.ts';
import type { Config } from '../../config/config.ts';
import type { Log } from '../../platform/log.ts';
import type { SessionKey } from '../../core/session.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import {
  countOldSessions,
  deleteOldSession,
  listOldSessions,
  rangesOfSessions,
  type SessionRetention,
} from '../../conversation/sessions/retention-store.ts';

/** The data of users that is kept; 0 means all. */
export interface Retention {
  sessions: SessionRetention;
  /** The newest versions of each artifact. */
  artifactVersions: number;
}

/** The retention that the settings name. */
export const toRetention = (config: Config): Retention => ({
  sessions: { days: config.SESSION_RETENTION_DAYS, count: config.SESSION_RETENTION_COUNT },
  artifactVersions: config.ARTIFACT_RETENTION_COUNT,
});

/** The parts of the process that retention uses. */
export interface RetentionContext {
  database: DatabasePool;
  contentStore: ContentStore;
  log: Log;
  /** Deletes what other features hold of a session, in the transaction that has deleted it. */
  forgetSession: (tx: Database, key: SessionKey, options: { copiesToo: boolean }) => Promise<void>;
}

/** The numbers of expired sessions and versions of artifacts. */
export type RetentionCounts = Record<'sessions' | 'artifactVersions', number>;

/** Sessions of one query; each is deleted by itself. */
const SESSIONS = 100;

const isOn = ({ days, count }: SessionRetention) => days > 0 || count > 0;

/** Counts what {@link applyRetention} would delete. Changes nothing. */
export async function countExpired(
  { database }: Pick<RetentionContext, 'database'>,
  { sessions, artifactVersions }: Retention,
): Promise<RetentionCounts> {
  const db = database.reads;
  const counts = { sessions: 0, artifactVersions: 0 };
  if (isOn(sessions))
    for await (const range of rangesOfSessions(db)) counts.sessions += await countOldSessions(db, sessions, range);
  if (artifactVersions > 0)
    for await (const range of rangesOfVersions(db))
      counts.artifactVersions += await countOldVersions(db, artifactVersions, range);
  return counts;
}

/** Deletes what has expired in short transactions, never what runs or is on hold. @returns the counts */
export async function applyRetention(context: RetentionContext, retention: Retention): Promise<RetentionCounts> {
  const { db } = context.database;
  const counts = { sessions: 0, artifactVersions: 0 };
  const { sessions, artifactVersions } = retention;
  const add = (what: keyof RetentionCounts, deleted: number) => {
    counts[what] += deleted;
    if (deleted > 0) context.log.info({ ...counts }, 'retention deletes');
    return deleted > 0;
  };
  if (isOn(sessions))
    for await (const range of rangesOfSessions(db)) while (add('sessions', await deleteSome(context, sessions, range)));
  if (artifactVersions > 0)
    for await (const range of rangesOfVersions(db))
      for (let isMore = true; isMore; ) {
        const { rows, objectKeys } = await deleteOldVersions(db, artifactVersions, range);
        await context.contentStore.remove(objectKeys);
        isMore = add('artifactVersions', rows);
      }
  return counts;
}

/** Deletes sessions of a range of users, each in a transaction of its own. @returns how many */
async function deleteSome(
  { database, forgetSession }: RetentionContext,
  retention: SessionRetention,
  range: SQL,
): Promise<number> {
  let deleted = 0;
  for (const key of await listOldSessions(database.db, retention, range, SESSIONS)) {
    const isGone = await database.transaction(async (tx) => {
      if (!(await deleteOldSession(tx, key))) return false;
      await forgetSession(tx, key, { copiesToo: false });
      return true;
    });
    if (isGone) deleted += 1;
  }
  return deleted;
}
