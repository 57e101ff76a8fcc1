import { sql } from 'drizzle-orm';
import type { SessionKey } from '../core/session.ts';
import type { Database } from '../db/database.ts';
import { events, sessions } from '../db/schema.ts';
import { names } from '../db/sql.ts';

/** Lets sessions go on behind their last events, where rows of the two were imported that are of different moments. */
export async function repairLastSequences(
  tx: Database,
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  sessionIds: string[],
): Promise<void> {
  await tx.execute(sql`
    update ${sessions} set ${names(sessions.lastSequence)} = newest.sequence
    from (select ${events.sessionId} as id, max(${events.sequence}) as sequence from ${events}
          where ${events.appName} = ${appName} and ${events.userId} = ${userId}
            and ${events.sessionId} = any(${sql.param(sessionIds)}::text[]) group by 1) newest
    where ${sessions.appName} = ${appName} and ${sessions.userId} = ${userId} and ${sessions.id} = newest.id
      and ${sessions.lastSequence} < newest.sequence`);
}
