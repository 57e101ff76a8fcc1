import { type SQL, and, eq, ne, or, sql } from 'drizzle-orm';
import { alias } from 'drizzle-orm/pg-core';
import { z } from 'zod';
import { jsonObject } from '../../core/content.ts';
import { eventSchema } from '../../core/event.ts';
import { identifierSchema, MAX_CHILD_DEPTH } from '../../core/session.ts';
import type { Database } from '../../platform/db/database.ts';
import { appStates, eventDeltas, events, sessions, userStates } from '../../platform/db/schema/schema.ts';
import { names } from '../../platform/db/sql.ts';
import type { User, UserTable } from '../../platform/feature/feature.ts';
import { keyAliases } from '../../platform/http/validation/key-aliases.ts';
import { newLabelsSchema } from './labels.ts';

const eventKeys = keyAliases(eventSchema);

/** The tables of sessions. An import sets counters and leases itself, because others could continue work or forge sizes. */
export const userTables: readonly UserTable[] = [
  {
    table: sessions,
    cascades: true,
    exportedParts: Array.from({ length: MAX_CHILD_DEPTH + 1 }, (_, depth) => sql`${sessions.depth} = ${depth}`),
    imported: {
      id: identifierSchema,
      state: jsonObject,
      initial_state: jsonObject,
      labels: newLabelsSchema,
      parent_session_id: identifierSchema.nullable(),
      parent_invocation_id: identifierSchema.nullable(),
      root_session_id: identifierSchema.nullable(),
      depth: z.int().min(0).max(MAX_CHILD_DEPTH),
    },
    setByRuntime: {
      last_sequence: '0',
      event_bytes: '0',
      events_version: '0',
      lease_token: 'null',
      is_steered: 'false',
    },
  },
  {
    table: events,
    imported: { payload: eventSchema.refine((event) => eventKeys.toSchema(event) === event) },
    setByRuntime: {
      id: `r.payload ->> 'id'`,
      invocation_id: `r.payload ->> 'invocationId'`,
      author: `r.payload ->> 'author'`,
      is_from_runtime: 'false',
      bytes: 'octet_length(r.payload::text)',
    },
  },
  { table: eventDeltas, exported: 'no' },
  { table: userStates, imported: { state: jsonObject } },
];

/** SQL: the keys of the application's shared state that were last written by agents in this user's sessions. */
const getKeys = (userId: string): SQL => sql`array(
  select key from jsonb_each(${appStates.writers}) where value = to_jsonb(${userId}::text))`;

export async function countAppStateKeys(db: Database, { appName, userId }: User): Promise<number> {
  const [row] = await db
    .select({ keys: sql<number>`cardinality(${getKeys(userId)})::int` })
    .from(appStates)
    .where(eq(appStates.appName, appName));
  return row?.keys ?? 0;
}

/**
 * Removes the keys of the application's shared state that agents last wrote in this user's sessions.
 * @returns their number
 */
export async function deleteAppStateKeys(tx: Database, user: User): Promise<number> {
  const { appName, userId } = user;
  const keys = await countAppStateKeys(tx, user);
  if (keys === 0) return 0;
  await tx
    .update(appStates)
    .set({
      state: sql`${appStates.state} - ${getKeys(userId)}`,
      writers: sql`${appStates.writers} - ${getKeys(userId)}`,
      updateTime: sql`statement_timestamp()`,
    })
    .where(eq(appStates.appName, appName));
  return keys;
}

/** True if each child session of a user is one below its parent. So none is above itself, and the tree is not too deep. */
export async function hasTrees(tx: Database, { appName, userId }: User): Promise<boolean> {
  const parent = alias(sessions, 'parent');
  const [wrong] = await tx
    .select({ id: sessions.id })
    .from(sessions)
    .innerJoin(
      parent,
      and(eq(parent.appName, appName), eq(parent.userId, userId), eq(parent.id, sessions.parentSessionId)),
    )
    .where(
      and(
        eq(sessions.appName, appName),
        eq(sessions.userId, userId),
        or(
          ne(sessions.depth, sql`${parent.depth} + 1`),
          ne(sessions.rootSessionId, sql`coalesce(${parent.rootSessionId}, ${parent.id})`),
        ),
      ),
    )
    .limit(1);
  return wrong === undefined;
}

/** Recomputes sessions' last sequence and size after an import of events, so that appends continue after them. */
export async function countEvents(tx: Database, user: User, sessionIds: string[]): Promise<void> {
  const { appName, userId, id, lastSequence, eventBytes } = sessions;
  await tx.execute(sql`
    update ${sessions} set
      ${names(lastSequence)} = greatest(${lastSequence}, newest.sequence), ${names(eventBytes)} = newest.bytes
    from (
      select ${events.sessionId} as id, max(${events.sequence}) as sequence, sum(${events.bytes}) as bytes
      from ${events}
      where ${events.appName} = ${user.appName} and ${events.userId} = ${user.userId}
        and ${events.sessionId} = any(${sql.param(sessionIds)}::text[]) group by 1) newest
    where ${appName} = ${user.appName} and ${userId} = ${user.userId} and ${id} = newest.id`);
}
