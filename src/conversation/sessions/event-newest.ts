import { type SQL, sql } from 'drizzle-orm';
import type { SessionKey } from '../../core/session.ts';
import { events } from '../../platform/db/schema/schema.ts';

/** Rows `(id, sequence)`: the last sequence of the events of each of a user's sessions that has any. */
export const newestSequences = (
  { appName, userId }: Pick<SessionKey, 'appName' | 'userId'>,
  sessionIds: string[],
): SQL => sql`
  select ${events.sessionId} as id, max(${events.sequence}) as sequence from ${events}
  where ${events.appName} = ${appName} and ${events.userId} = ${userId}
    and ${events.sessionId} = any(${sql.param(sessionIds)}::text[]) group by 1`;
