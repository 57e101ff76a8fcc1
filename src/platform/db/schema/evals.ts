import { sql } from 'drizzle-orm';
import { check, foreignKey, index, pgTable, primaryKey, unique } from 'drizzle-orm/pg-core';
import { identifier, ofSession, time, timeOfChange } from './columns.ts';
import { sessionKey } from './conversation.ts';

const appName = () => identifier('app_name').notNull();
/** Owner of the set, or the user who requested the run; null for an API key. */
const ownerId = () => identifier('owner_id');

export const evalSets = pgTable(
  'eval_sets',
  (c) => ({
    appName: appName(),
    id: identifier('id').notNull(),
    ownerId: identifier('owner_id'),
    name: c.text('name'),
    description: c.text('description'),
    modelExecutionMode: c.text('model_execution_mode', { enum: ['live', 'replay', 'stored'] }),
    toolExecutionMode: c.text('tool_execution_mode', { enum: ['live', 'replay', 'stored'] }),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'eval_sets_pkey', columns: [t.appName, t.id] }),
    index('eval_sets_owner_idx').on(t.appName, t.ownerId, t.id),
  ],
);

/** Versions of an evaluation case, which outlive it, because runs refer to them. */
export const evalCaseVersions = pgTable(
  'eval_case_versions',
  (c) => ({
    appName: appName(),
    evalSetId: identifier('eval_set_id').notNull(),
    evalId: identifier('eval_id').notNull(),
    version: c.integer('version').notNull(),
    hash: c.text('hash').notNull(),
    payload: c.jsonb('payload').notNull(),
    ownerId: ownerId(),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'eval_case_versions_pkey', columns: [t.appName, t.evalSetId, t.evalId, t.version] }),
    check('eval_case_versions_version_check', sql`version > 0`),
    index('eval_case_versions_owner_idx').on(t.appName, t.ownerId),
    // A hash index, because an imported set may contain a name of any length.
    index('eval_case_versions_quoted_idx').using('hash', sql`(payload #>> '{sessionInput,userId}')`),
  ],
);

const each = evalCaseVersions;

/** Cases of evaluation sets, each with its current version. */
export const evalCases = pgTable(
  'eval_cases',
  (c) => ({
    appName: appName(),
    evalSetId: identifier('eval_set_id').notNull(),
    id: identifier('id').notNull(),
    version: c.integer('version').notNull(),
    sourceUserId: identifier('source_user_id'),
    sourceSessionId: identifier('source_session_id'),
    ownerId: ownerId(),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'eval_cases_pkey', columns: [t.appName, t.evalSetId, t.id] }),
    index('eval_cases_owner_idx').on(t.appName, t.ownerId),
    index('eval_cases_source_idx').on(t.appName, t.sourceUserId, t.sourceSessionId),
    foreignKey({
      name: 'eval_cases_set_fkey',
      columns: [t.appName, t.evalSetId],
      foreignColumns: [evalSets.appName, evalSets.id],
    }).onDelete('cascade'),
    foreignKey({
      name: 'eval_cases_version_fkey',
      columns: [t.appName, t.evalSetId, t.id, t.version],
      foreignColumns: [each.appName, each.evalSetId, each.evalId, each.version],
    }),
  ],
);

/** Runs of evaluation sets: their parameters, and the agent and model used. */
export const evalRuns = pgTable(
  'eval_runs',
  (c) => ({
    appName: appName(),
    id: c.uuid('id').notNull(),
    evalSetId: identifier('eval_set_id').notNull(),
    requestedBy: identifier('requested_by'),
    judgedRunId: c.uuid('judged_run_id'),
    status: c
      .text('status', { enum: ['queued', 'running', 'done', 'cancelled'] })
      .notNull()
      .default('queued'),
    metrics: c.jsonb('metrics').notNull(),
    userSimulator: c.jsonb('user_simulator'),
    modelExecutionMode: c
      .text('model_execution_mode', { enum: ['live', 'stored'] })
      .notNull()
      .default('live'),
    toolExecutionMode: c
      .text('tool_execution_mode', { enum: ['live', 'stored'] })
      .notNull()
      .default('live'),
    trials: c.integer('trials').notNull(),
    parallelism: c.integer('parallelism').notNull(),
    maxJudgeTokens: c.bigint('max_judge_tokens', { mode: 'number' }).notNull().default(10_000_000),
    judgeTokens: c.bigint('judge_tokens', { mode: 'number' }).notNull().default(0),
    agentHash: c.text('agent_hash').notNull(),
    modelName: c.text('model_name').notNull(),
    resultTime: time('result_time').notNull(),
    summary: c.jsonb('summary'),
    createTime: timeOfChange('create_time'),
    endTime: time('end_time'),
  }),
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
    index('eval_runs_list_idx').on(t.appName, t.requestedBy, t.resultTime),
    index('eval_runs_set_idx').on(t.appName, t.evalSetId, t.resultTime),
    index('eval_runs_open_idx').on(t.createTime).where(sql`status in ('queued', 'running')`),
  ],
);

/** Cases of an evaluation run, one row per trial. */
export const evalRunCases = pgTable(
  'eval_run_cases',
  (c) => ({
    appName: appName(),
    runId: c.uuid('run_id').notNull(),
    place: c.integer('place').notNull(),
    trial: c.integer('trial').notNull(),
    evalSetId: identifier('eval_set_id').notNull(),
    evalId: identifier('eval_id').notNull(),
    caseVersion: c.integer('case_version').notNull(),
    status: c
      .text('status', { enum: ['waiting', 'running', 'done', 'error', 'cancelled'] })
      .notNull()
      .default('waiting'),
    sessionUserId: identifier('session_user_id').notNull(),
    ownerId: ownerId(),
    sessionId: identifier('session_id'),
    sessionCount: c.integer('session_count').notNull().default(0),
    lastSequence: c.integer('last_sequence'),
    failedTurn: c.integer('failed_turn'),
    error: c.text('error'),
    result: c.jsonb('result'),
    startTime: time('start_time'),
    endTime: time('end_time'),
  }),
  (t) => [
    primaryKey({ name: 'eval_run_cases_pkey', columns: [t.appName, t.runId, t.place, t.trial] }),
    check('eval_run_cases_status_check', sql`status in ('waiting', 'running', 'done', 'error', 'cancelled')`),
    check('eval_run_cases_end_check', sql`(status in ('waiting', 'running')) = (end_time is null)`),
    check('eval_run_cases_error_check', sql`(status = 'error') = (error is not null)`),
    index('eval_run_cases_open_idx')
      .on(t.appName, t.runId, t.place, t.trial)
      .where(sql`status in ('waiting', 'running')`),
    index('eval_run_cases_user_idx').on(t.appName, t.sessionUserId),
    index('eval_run_cases_owner_idx').on(t.appName, t.ownerId),
    index('eval_run_cases_version_idx').on(t.appName, t.evalSetId, t.evalId, t.caseVersion),
    foreignKey({
      name: 'eval_run_cases_run_fkey',
      columns: [t.appName, t.runId],
      foreignColumns: [evalRuns.appName, evalRuns.id],
    }).onDelete('cascade'),
    foreignKey({
      name: 'eval_run_cases_version_fkey',
      columns: [t.appName, t.evalSetId, t.evalId, t.caseVersion],
      foreignColumns: [each.appName, each.evalSetId, each.evalId, each.version],
    }),
  ],
);

/** People's verdicts on turns, unique by person, turn and metric. */
export const evalVerdicts = pgTable(
  'eval_verdicts',
  (c) => ({
    ...ofSession(),
    turn: c.integer('turn').notNull(),
    metricName: identifier('metric_name').notNull(),
    author: identifier('author').notNull(),
    passed: c.boolean('passed').notNull(),
    comment: c.text('comment'),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({
      name: 'eval_verdicts_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.turn, t.metricName, t.author],
    }),
    check('eval_verdicts_turn_check', sql`turn >= 0`),
    sessionKey('eval_verdicts_session_fkey', t),
  ],
);

/** Scores of sessions outside of evaluation runs, each for the events up to one sequence. */
export const evalSessionScores = pgTable(
  'eval_session_scores',
  (c) => ({
    ...ofSession(),
    lastSequence: c.integer('last_sequence').notNull(),
    metricsHash: c.text('metrics_hash').notNull(),
    ruleId: identifier('rule_id'),
    invocationId: identifier('invocation_id'),
    result: c.jsonb('result').notNull(),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({
      name: 'eval_session_scores_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.lastSequence, t.metricsHash],
    }),
    index('eval_session_scores_list_idx').on(t.appName, t.createTime),
    sessionKey('eval_session_scores_session_fkey', t),
  ],
);

/** Rules for scoring users' sessions. The definition is stored as requested; other columns are read by a trigger. */
export const scoreRules = pgTable(
  'score_rules',
  (c) => ({
    appName: appName(),
    id: identifier('id').notNull(),
    share: c.doublePrecision('share').notNull(),
    quietMinutes: c.integer('quiet_minutes'),
    definition: c.jsonb('definition').notNull(),
    day: c.date('day'),
    scored: c.integer('scored').notNull().default(0),
    skipped: c.bigint('skipped', { mode: 'number' }).notNull().default(0),
    updateTime: timeOfChange('update_time'),
  }),
  (t) => [
    primaryKey({ name: 'score_rules_pkey', columns: [t.appName, t.id] }),
    check('score_rules_share_check', sql`share between 0 and 1`),
  ],
);

/** People's verdicts on sessions and events, one per person. */
export const sessionVerdicts = pgTable(
  'session_verdicts',
  (c) => ({
    ...ofSession(),
    eventId: identifier('event_id').notNull(),
    author: identifier('author').notNull(),
    passed: c.boolean('passed'),
    label: identifier('label'),
    comment: c.text('comment'),
    createTime: timeOfChange('create_time'),
  }),
  (t) => [
    primaryKey({ name: 'session_verdicts_pkey', columns: [t.appName, t.userId, t.sessionId, t.eventId, t.author] }),
    index('session_verdicts_list_idx').on(t.appName, t.createTime),
    sessionKey('session_verdicts_session_fkey', t),
  ],
);
