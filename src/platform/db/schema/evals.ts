import { sql } from 'drizzle-orm';
import {
  boolean,
  check,
  foreignKey,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  unique,
  uuid,
} from 'drizzle-orm/pg-core';
import { identifier, ofSession, time } from './columns.ts';
import { sessions } from './conversation.ts';

const appName = () => identifier('app_name').notNull();
/** Owner of the set, or the user who requested the run; null where a key did. */
const ownerId = () => identifier('owner_id');
const createTime = () => time('create_time').notNull().default(sql`clock_timestamp()`);

/** Evaluation sets. */
export const evalSets = pgTable(
  'eval_sets',
  {
    appName: appName(),
    id: identifier('id').notNull(),
    ownerId: identifier('owner_id'),
    name: text('name'),
    description: text('description'),
    modelExecutionMode: text('model_execution_mode', { enum: ['live', 'replay', 'stored'] }),
    toolExecutionMode: text('tool_execution_mode', { enum: ['live', 'replay', 'stored'] }),
    createTime: createTime(),
  },
  (t) => [primaryKey({ name: 'eval_sets_pkey', columns: [t.appName, t.id] })],
);

/** Versions of a case; they outlive the case, since runs refer to them. */
export const evalCaseVersions = pgTable(
  'eval_case_versions',
  {
    appName: appName(),
    evalSetId: identifier('eval_set_id').notNull(),
    evalId: identifier('eval_id').notNull(),
    version: integer('version').notNull(),
    hash: text('hash').notNull(),
    payload: jsonb('payload').notNull(),
    ownerId: ownerId(),
    createTime: createTime(),
  },
  (t) => [
    primaryKey({ name: 'eval_case_versions_pkey', columns: [t.appName, t.evalSetId, t.evalId, t.version] }),
    check('eval_case_versions_version_check', sql`version > 0`),
  ],
);

/** Cases of evaluation sets; each shows its newest version. */
export const evalCases = pgTable(
  'eval_cases',
  {
    appName: appName(),
    evalSetId: identifier('eval_set_id').notNull(),
    id: identifier('id').notNull(),
    version: integer('version').notNull(),
    sourceUserId: identifier('source_user_id'),
    sourceSessionId: identifier('source_session_id'),
    ownerId: ownerId(),
    createTime: createTime(),
  },
  (t) => [
    primaryKey({ name: 'eval_cases_pkey', columns: [t.appName, t.evalSetId, t.id] }),
    foreignKey({
      name: 'eval_cases_set_fkey',
      columns: [t.appName, t.evalSetId],
      foreignColumns: [evalSets.appName, evalSets.id],
    }).onDelete('cascade'),
    foreignKey({
      name: 'eval_cases_version_fkey',
      columns: [t.appName, t.evalSetId, t.id, t.version],
      foreignColumns: [
        evalCaseVersions.appName,
        evalCaseVersions.evalSetId,
        evalCaseVersions.evalId,
        evalCaseVersions.version,
      ],
    }),
  ],
);

/** Runs of evaluation sets: what is to be done, and what it was done with. */
export const evalRuns = pgTable(
  'eval_runs',
  {
    appName: appName(),
    id: uuid('id').notNull(),
    evalSetId: identifier('eval_set_id').notNull(),
    requestedBy: identifier('requested_by'),
    judgedRunId: uuid('judged_run_id'),
    status: text('status', { enum: ['queued', 'running', 'done', 'cancelled'] })
      .notNull()
      .default('queued'),
    metrics: jsonb('metrics').notNull(),
    userSimulator: jsonb('user_simulator'),
    modelExecutionMode: text('model_execution_mode', { enum: ['live', 'stored'] })
      .notNull()
      .default('live'),
    toolExecutionMode: text('tool_execution_mode', { enum: ['live', 'stored'] })
      .notNull()
      .default('live'),
    trials: integer('trials').notNull(),
    parallelism: integer('parallelism').notNull(),
    agentHash: text('agent_hash').notNull(),
    modelName: text('model_name').notNull(),
    resultTime: time('result_time').notNull(),
    summary: jsonb('summary'),
    createTime: createTime(),
    endTime: time('end_time'),
  },
  (t) => [
    primaryKey({ name: 'eval_runs_pkey', columns: [t.appName, t.id] }),
    unique('eval_runs_result_time_key').on(t.appName, t.resultTime),
    check('eval_runs_status_check', sql`status in ('queued', 'running', 'done', 'cancelled')`),
    check('eval_runs_end_check', sql`(status in ('queued', 'running')) = (end_time is null)`),
    check(
      'eval_runs_modes_check',
      sql`model_execution_mode in ('live', 'stored') and tool_execution_mode in ('live', 'stored')`,
    ),
    check('eval_runs_trials_check', sql`trials > 0 and parallelism > 0`),
    index('eval_runs_open_idx').on(t.createTime).where(sql`status in ('queued', 'running')`),
  ],
);

/** The cases of a run, each trial by itself; the row is the claim to work on it. */
export const evalRunCases = pgTable(
  'eval_run_cases',
  {
    appName: appName(),
    runId: uuid('run_id').notNull(),
    place: integer('place').notNull(),
    trial: integer('trial').notNull(),
    evalSetId: identifier('eval_set_id').notNull(),
    evalId: identifier('eval_id').notNull(),
    caseVersion: integer('case_version').notNull(),
    status: text('status', { enum: ['waiting', 'running', 'done', 'error', 'cancelled'] })
      .notNull()
      .default('waiting'),
    sessionUserId: identifier('session_user_id').notNull(),
    ownerId: ownerId(),
    sessionId: identifier('session_id'),
    sessionCount: integer('session_count').notNull().default(0),
    leaseToken: uuid('lease_token'),
    leaseExpireTime: time('lease_expire_time'),
    lastSequence: integer('last_sequence'),
    failedTurn: integer('failed_turn'),
    error: text('error'),
    result: jsonb('result'),
    startTime: time('start_time'),
    endTime: time('end_time'),
  },
  (t) => [
    primaryKey({ name: 'eval_run_cases_pkey', columns: [t.appName, t.runId, t.place, t.trial] }),
    check('eval_run_cases_status_check', sql`status in ('waiting', 'running', 'done', 'error', 'cancelled')`),
    check(
      'eval_run_cases_lease_check',
      sql`(status = 'running') = (lease_token is not null) and (status = 'running') = (lease_expire_time is not null)`,
    ),
    check('eval_run_cases_end_check', sql`(status in ('waiting', 'running')) = (end_time is null)`),
    check('eval_run_cases_error_check', sql`(status = 'error') = (error is not null)`),
    index('eval_run_cases_open_idx')
      .on(t.appName, t.runId, t.place, t.trial)
      .where(sql`status in ('waiting', 'running')`),
    index('eval_run_cases_version_idx').on(t.appName, t.evalSetId, t.evalId, t.caseVersion),
    foreignKey({
      name: 'eval_run_cases_run_fkey',
      columns: [t.appName, t.runId],
      foreignColumns: [evalRuns.appName, evalRuns.id],
    }).onDelete('cascade'),
    foreignKey({
      name: 'eval_run_cases_version_fkey',
      columns: [t.appName, t.evalSetId, t.evalId, t.caseVersion],
      foreignColumns: [
        evalCaseVersions.appName,
        evalCaseVersions.evalSetId,
        evalCaseVersions.evalId,
        evalCaseVersions.version,
      ],
    }),
  ],
);

/** Verdicts of people on turns, one per person, turn and metric. */
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
    foreignKey({
      name: 'eval_verdicts_session_fkey',
      columns: [t.appName, t.userId, t.sessionId],
      foreignColumns: [sessions.appName, sessions.userId, sessions.id],
    }).onDelete('cascade'),
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
    foreignKey({
      name: 'eval_session_scores_session_fkey',
      columns: [t.appName, t.userId, t.sessionId],
      foreignColumns: [sessions.appName, sessions.userId, sessions.id],
    }).onDelete('cascade'),
  ],
);
