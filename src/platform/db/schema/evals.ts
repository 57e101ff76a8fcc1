import { sql } from 'drizzle-orm';
import { check, foreignKey, index, primaryKey, unique } from 'drizzle-orm/pg-core';
import {
  anyText,
  currentUser,
  identifier,
  json,
  ofSession,
  ofUserPolicy,
  secondsOfChange,
  time,
  timeOfChange,
} from './columns.ts';
import { sessionKey } from './conversation.ts';
import { table } from './table.ts';

const appName = () => identifier('app_name').notNull();
/** Owner of the set, or the user who requested the run; null for an API key. */
const ownerId = () => identifier('owner_id');

export const evalSets = table(
  'eval_sets',
  'Named sets of evaluation cases of an application.',
  (c) => ({
    appName: appName().comment('Application.'),
    id: identifier('id').notNull().comment('Evaluation set identifier.'),
    ownerId: identifier('owner_id').comment(
      'User who created the set; other users cannot see it. Null if created by an API key or without authentication; those callers see all sets.',
    ),
    name: anyText('name').comment('Name for people.'),
    description: anyText('description').comment('Description for people.'),
    modelExecutionMode: c
      .text('model_execution_mode', { enum: ['live', 'replay', 'stored'] })
      .comment('Default for runs, as sent; null: live.'),
    toolExecutionMode: c
      .text('tool_execution_mode', { enum: ['live', 'replay', 'stored'] })
      .comment('Default for runs, as sent; null: live.'),
    createTime: timeOfChange('create_time').comment('When the set was created.'),
  }),
  (t) => [
    primaryKey({ name: 'eval_sets_pkey', columns: [t.appName, t.id] }),
    index('eval_sets_owner_idx').on(t.appName, t.ownerId, t.id),
    ofUserPolicy(sql`owner_id = ${currentUser}`),
  ],
);

export const evalCaseVersions = table(
  'eval_case_versions',
  'Versions of evaluation cases. A run refers to versions, so they outlive changes and deletion of the case.',
  (c) => ({
    appName: appName().comment('Application.'),
    evalSetId: identifier('eval_set_id').notNull().comment('Set that the case belongs to.'),
    evalId: identifier('eval_id').notNull().comment('Case.'),
    version: c.integer('version').notNull().comment('From 1; increases with each write.'),
    hash: c.text('hash').notNull().comment('SHA-256 of the payload without its creation time, hexadecimal.'),
    payload: json('payload').notNull().comment("The case in the API's format."),
    ownerId: ownerId().comment('Owner of the set; null if it has none.'),
    createTime: timeOfChange('create_time').comment('When it was written.'),
  }),
  (t) => [
    primaryKey({ name: 'eval_case_versions_pkey', columns: [t.appName, t.evalSetId, t.evalId, t.version] }),
    check('eval_case_versions_version_check', sql`version > 0`),
    index('eval_case_versions_owner_idx').on(t.appName, t.ownerId),
    // A hash index, because an imported set may contain a name of any length.
    index('eval_case_versions_quoted_idx').using('hash', sql`(payload #>> '{sessionInput,userId}')`),
    ofUserPolicy(sql`owner_id = ${currentUser} or payload #>> '{sessionInput,userId}' = ${currentUser}`),
  ],
);

const each = evalCaseVersions;

export const evalCases = table(
  'eval_cases',
  'Evaluation cases: conversations to evaluate an application with.',
  (c) => ({
    appName: appName().comment('Application.'),
    evalSetId: identifier('eval_set_id').notNull().comment('Set that the case belongs to.'),
    id: identifier('id').notNull().comment('Case identifier, unique within its set.'),
    version: c.integer('version').notNull().comment('Its newest version.'),
    sourceUserId: identifier('source_user_id').comment('User of the session that the case was made from.'),
    sourceSessionId: identifier('source_session_id').comment('Session that the case was made from.'),
    ownerId: ownerId().comment('Owner of the set; null if it has none.'),
    createTime: timeOfChange('create_time').comment('When the case was created.'),
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
    ofUserPolicy(sql`owner_id = ${currentUser} or source_user_id = ${currentUser}`),
  ],
);

export const evalRuns = table(
  'eval_runs',
  'Runs of evaluation sets.',
  (c) => ({
    appName: appName().comment('Application.'),
    id: c.uuid('id').notNull().comment('Run.'),
    evalSetId: identifier('eval_set_id').notNull().comment('Evaluation set; may be deleted by now.'),
    requestedBy: identifier('requested_by').comment(
      'User of the token that requested it; null for keys and local callers.',
    ),
    judgedRunId: c
      .uuid('judged_run_id')
      .comment('Run whose stored turns are judged again without calling the agent; null for an ordinary run.'),
    status: c
      .text('status', { enum: ['queued', 'running', 'done', 'cancelled'] })
      .notNull()
      .default('queued')
      .comment('queued, running, done or cancelled.'),
    metrics: json('metrics').notNull().comment('Metrics for scoring turns, as requested.'),
    userSimulator: json('user_simulator').comment('Configuration of the simulated user, as requested.'),
    modelExecutionMode: c
      .text('model_execution_mode', { enum: ['live', 'stored'] })
      .notNull()
      .default('live')
      .comment('stored: model answers are taken from the cases; live: models are called.'),
    toolExecutionMode: c
      .text('tool_execution_mode', { enum: ['live', 'stored'] })
      .notNull()
      .default('live')
      .comment('stored: tool answers are taken from the cases; live: tools are run.'),
    trials: c.integer('trials').notNull().comment('Trials per case.'),
    parallelism: c.integer('parallelism').notNull().comment('Maximum concurrent cases, over all processes.'),
    maxJudgeTokens: c
      .bigint('max_judge_tokens', { mode: 'number' })
      .notNull()
      .default(10_000_000)
      .comment('Token limit for judges and simulated users.'),
    judgeTokens: c
      .bigint('judge_tokens', { mode: 'number' })
      .notNull()
      .default(0)
      .comment('Tokens used by judges and simulated users, including the maximum of running calls.'),
    agentHash: c
      .text('agent_hash')
      .notNull()
      .comment('SHA-256 of the description of the agent that was deployed when it was requested, hexadecimal.'),
    modelName: c.text('model_name').notNull().comment('Model of that agent.'),
    resultTime: time('result_time')
      .notNull()
      .comment('Identifies the result: unique within the application, never a whole second.'),
    summary: json('summary').comment('Case counts and mean scores at the end; null for cancelled and open runs.'),
    createTime: timeOfChange('create_time').comment('When it was requested.'),
    endTime: time('end_time').comment('When its last case ended, or when it was cancelled.'),
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
    ofUserPolicy(sql`requested_by = ${currentUser}`),
  ],
);

export const evalRunCases = table(
  'eval_run_cases',
  'Cases of evaluation runs, one row per trial.',
  (c) => ({
    appName: appName().comment('Application.'),
    runId: c.uuid('run_id').notNull().comment('Run.'),
    place: c.integer('place').notNull().comment('Place of the case in the run, from 1.'),
    trial: c.integer('trial').notNull().comment('Trial of the case, from 1.'),
    evalSetId: identifier('eval_set_id').notNull().comment('Set of the case.'),
    evalId: identifier('eval_id').notNull().comment('Case.'),
    caseVersion: c.integer('case_version').notNull().comment('Version of the case that is run.'),
    status: c
      .text('status', { enum: ['waiting', 'running', 'done', 'error', 'cancelled'] })
      .notNull()
      .default('waiting')
      .comment('waiting, running, done, error (could not be completed) or cancelled.'),
    sessionUserId: identifier('session_user_id').notNull().comment('User of its session.'),
    ownerId: ownerId().comment('User who requested the run; null for an API key or without authentication.'),
    sessionId: identifier('session_id').comment('Session that it runs in; null until it starts.'),
    sessionCount: c
      .integer('session_count')
      .notNull()
      .default(0)
      .comment('Number of sessions used; after an interrupted turn it starts again in a new one.'),
    lastSequence: c.integer('last_sequence').comment('Last event of its session that belongs to the case.'),
    failedTurn: c.integer('failed_turn').comment('Turn that failed, from 0.'),
    error: anyText('error').comment('Why it could not be completed, a sentence.'),
    result: json('result').comment(
      'Scores of the case and of its turns; the turns themselves are the events of the session.',
    ),
    startTime: time('start_time').comment('When it started.'),
    endTime: time('end_time').comment('When it ended.'),
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
    ofUserPolicy(sql`owner_id = ${currentUser} or session_user_id = ${currentUser} or exists (
      select from eval_case_versions v where v.app_name = eval_run_cases.app_name
        and v.eval_set_id = eval_run_cases.eval_set_id and v.eval_id = eval_run_cases.eval_id
        and v.version = eval_run_cases.case_version and v.payload #>> '{sessionInput,userId}' = ${currentUser})`),
  ],
);

export const evalVerdicts = table(
  'eval_verdicts',
  "People's verdicts on turns, in addition to the judges'.",
  (c) => ({
    ...ofSession('Session of the case.'),
    turn: c.integer('turn').notNull().comment('Turn of the session, from 0.'),
    metricName: identifier('metric_name').notNull().comment('Metric that the verdict is compared with.'),
    author: identifier('author').notNull().comment('Author: user of a token, id of a key, or local.'),
    passed: c.boolean('passed').notNull().comment('Whether the turn is good.'),
    comment: anyText('comment').comment('Why, in words.'),
    createTime: timeOfChange('create_time').comment('When it was given.'),
  }),
  (t) => [
    primaryKey({
      name: 'eval_verdicts_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.turn, t.metricName, t.author],
    }),
    check('eval_verdicts_turn_check', sql`turn >= 0`),
    sessionKey('eval_verdicts_session_fkey', t),
    ofUserPolicy(),
  ],
);

export const evalSessionScores = table(
  'eval_session_scores',
  'Scores of sessions outside of runs, as of one of their events.',
  (c) => ({
    ...ofSession(),
    lastSequence: c.integer('last_sequence').notNull().comment('Last event that was scored.'),
    metricsHash: c.text('metrics_hash').notNull().comment('SHA-256 of the metrics as requested, hexadecimal.'),
    ruleId: identifier('rule_id').comment('Score rule that caused it; null if requested directly.'),
    invocationId: identifier('invocation_id').comment('Scored invocation; null for the whole session.'),
    result: json('result').notNull().comment('Scores of the session and of its turns, with tokens and times.'),
    createTime: timeOfChange('create_time').comment('When it was scored.'),
  }),
  (t) => [
    primaryKey({
      name: 'eval_session_scores_pkey',
      columns: [t.appName, t.userId, t.sessionId, t.lastSequence, t.metricsHash],
    }),
    index('eval_session_scores_list_idx').on(t.appName, t.createTime),
    sessionKey('eval_session_scores_session_fkey', t),
    ofUserPolicy(),
  ],
);

/** The definition is stored as requested; the other columns are read by a trigger. */
export const scoreRules = table(
  'score_rules',
  "Rules for scoring users' sessions.",
  (c) => ({
    appName: appName().comment('Application.'),
    id: identifier('id').notNull().comment('Rule, unique within the application.'),
    share: c
      .doublePrecision('share')
      .notNull()
      .comment('Share of invocations or sessions to score, sampled by a hash of their ids; 0 pauses the rule.'),
    quietMinutes: c
      .integer('quiet_minutes')
      .comment(
        'A session is scored when no invocation has ended for this many minutes; null: each invocation is scored.',
      ),
    definition: json('definition').notNull().comment('The rule as requested: metrics, filter, daily limits, webhook.'),
    day: c.date('day').comment('UTC day of the counter scored.'),
    scored: c.integer('scored').notNull().default(0).comment('Scores started on that day.'),
    skipped: c
      .bigint('skipped', { mode: 'number' })
      .notNull()
      .default(0)
      .comment('Scores skipped because the daily limit was reached.'),
    updateTime: timeOfChange('update_time').comment('When it was saved.'),
  }),
  (t) => [
    primaryKey({ name: 'score_rules_pkey', columns: [t.appName, t.id] }),
    check('score_rules_share_check', sql`share between 0 and 1`),
  ],
);

export const sessionVerdicts = table(
  'session_verdicts',
  "People's verdicts on sessions and events.",
  (c) => ({
    ...ofSession(),
    eventId: identifier('event_id').notNull().comment('The event; empty for the session.'),
    author: identifier('author').notNull().comment('Author: user of a token, id of a key, or local.'),
    passed: c.boolean('passed').comment('Thumbs up or down; null for neither.'),
    label: identifier('label').comment('Label for filtering.'),
    comment: anyText('comment').comment('Comment.'),
    createTime: secondsOfChange('create_time').comment('When it was given.'),
  }),
  (t) => [
    primaryKey({ name: 'session_verdicts_pkey', columns: [t.appName, t.userId, t.sessionId, t.eventId, t.author] }),
    index('session_verdicts_list_idx').on(t.appName, t.createTime),
    sessionKey('session_verdicts_session_fkey', t),
    ofUserPolicy(),
  ],
);
