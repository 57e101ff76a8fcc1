import { sql } from 'drizzle-orm';
import { boolean, check, integer, jsonb, pgTable, primaryKey, text } from 'drizzle-orm/pg-core';
import { identifier, ofSession, time } from './columns.ts';

/** What people say of turns, beside the judges: of one turn in one metric each person once. */
export const evalVerdicts = pgTable(
  'eval_verdicts',
  {
    ...ofSession(),
    turn: integer('turn').notNull(),
    metricName: identifier('metric_name').notNull(),
    author: identifier('author').notNull(),
    passed: boolean('passed').notNull(),
    comment: text('comment'),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({
      name: 'eval_verdicts_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.turn, t.metricName, t.author],
    }),
    check('eval_verdicts_turn_check', sql`turn >= 0`),
  ],
);

/** Scores of sessions that no run made, each as the session was at one of its events. */
export const evalSessionScores = pgTable(
  'eval_session_scores',
  {
    ...ofSession(),
    lastSequence: integer('last_sequence').notNull(),
    metricsHash: text('metrics_hash').notNull(),
    result: jsonb('result').notNull(),
    createTime: time('create_time').notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    primaryKey({
      name: 'eval_session_scores_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.lastSequence, t.metricsHash],
    }),
  ],
);
