import { sql } from 'drizzle-orm';
import { index, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { emptyObject, ofSession, ofUser, time } from './columns.ts';

/** What must not be deleted, whoever wants it: of a user all, or a session. Triggers refuse it (migrations). */
export const legalHolds = pgTable(
  'legal_holds',
  {
    ...ofSession(),
    reason: text('reason').notNull(),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [primaryKey({ name: 'legal_holds_pkey', columns: [t.appName, t.userId, t.sessionId] })],
);

/** Users that are being erased: the row goes with the last of their data. Triggers refuse new data meanwhile. */
export const userErasures = pgTable(
  'user_erasures',
  {
    ...ofUser(),
    counts: jsonb('counts').notNull().default(emptyObject),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
    updateTime: time('update_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({ name: 'user_erasures_pkey', columns: [t.appName, t.userId] }),
    index('user_erasures_age_idx').on(t.updateTime),
  ],
);
