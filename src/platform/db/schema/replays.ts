import { sql } from 'drizzle-orm';
import { foreignKey, index, integer, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { identifier, ofSession, time } from './columns.ts';
import { invocations } from './schema.ts';

/** What agents give their models beside the conversation, each once per application. */
export const agentPrompts = pgTable(
  'agent_prompts',
  {
    appName: identifier('app_name').notNull(),
    hash: text('hash').notNull(),
    payload: jsonb('payload').notNull(),
    useTime: time('use_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ name: 'agent_prompts_pkey', columns: [t.appName, t.hash] }),
    index('agent_prompts_age_idx').on(t.useTime),
  ],
);

/** What a replay needs to know of an invocation beside its events, one row for each time that it ran. */
export const invocationTapes = pgTable(
  'invocation_tapes',
  {
    ...ofSession(),
    invocationId: identifier('invocation_id').notNull(),
    start: integer('start').notNull(),
    payload: jsonb('payload').notNull(),
  },
  (t) => [
    primaryKey({
      name: 'invocation_tapes_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.invocationId, t.start],
    }),
    foreignKey({
      name: 'invocation_tapes_invocation_fkey',
      columns: [t.appName, t.userId, t.sessionId, t.invocationId],
      foreignColumns: [invocations.appName, invocations.userId, invocations.sessionId, invocations.id],
    }).onDelete('cascade'),
  ],
);
