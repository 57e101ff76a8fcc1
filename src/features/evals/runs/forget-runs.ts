import type { Database } from '../../../platform/db/database.ts';
import { deleteSession } from '../../../conversation/sessions/session-store.ts';
import { deleteOldRuns, type RunRetention } from './trend-store.ts';

/** Deletes the runs that are not kept any more, with the sessions that their cases ran in. */
export async function forgetOldRuns(db: Database, retention: RunRetention): Promise<void> {
  for (const key of await deleteOldRuns(db, retention)) await deleteSession(db, key);
}
