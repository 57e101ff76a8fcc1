import type { DatabasePool } from '../db/database.ts';
import { deleteMemories } from '../memory/memory-store.ts';
import type { SessionKey } from '../core/session.ts';
import { deleteSession } from './session-store.ts';

/** Deletes a session and what its user's memory holds of it, together; also where the session is gone already. */
export const forgetSession = (database: DatabasePool, key: SessionKey): Promise<void> =>
  database.transaction(async (tx) => {
    // The session first: an addition to the memory locks it, and so comes before or finds nothing to add.
    await deleteSession(tx, key);
    await deleteMemories(tx, key);
  });
