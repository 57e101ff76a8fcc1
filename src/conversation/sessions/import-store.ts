import { sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { sessions } from '../../platform/db/schema/schema.ts';
import { names } from '../../platform/db/sql.ts';
import { newestSequences } from './event-newest.ts';

/** Lets sessions go on behind their last events, where rows of the two were imported that are of different moments. */
export async function repairLastSequences(
  tx: Database,
  user: Pick<SessionKey, 'appName' | 'userId'>,
  sessionIds: string[],
): Promise<void> {
  const { appName, userId, id, lastSequence } = sessions;
  await tx.execute(sql`
    update ${sessions} set ${names(lastSequence)} = newest.sequence from (${newestSequences(user, sessionIds)}) newest
    where ${appName} = ${user.appName} and ${userId} = ${user.userId} and ${id} = newest.id
      and ${lastSequence} < newest.sequence`);
}
