import { sql } from 'drizzle-orm';
import { check, foreignKey, index, primaryKey, uniqueIndex } from 'drizzle-orm/pg-core';
import {
  anyIdentifier,
  anyText,
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

export const invocations = table(
  'invocations',
  'Invocations: one prompt up to its final answer.',
  (c) => ({
    ...ofSession(),
    id: identifier('id').notNull().comment('Invocation id; its events refer to it.'),
    status: c
      .text('status', {
        enum: ['queued', 'running', 'paused', 'succeeded', 'failed', 'interrupted', 'cancelled'],
      })
      .notNull()
      .comment('queued, running, paused (waits for an answer), succeeded, failed, interrupted or cancelled.'),
    leaseToken: c
      .uuid('lease_token')
      .notNull()
      .comment('Lease token of the process that runs it; equals sessions.lease_token while running.'),
    leaseExpireTime: time('lease_expire_time')
      .notNull()
      .comment('When the lease expires; then a running invocation is dead and may be taken over.'),
    idempotencyKey: identifier('idempotency_key').comment('Idempotency-Key of the request, if any.'),
    requestHash: c
      .text('request_hash')
      .comment('SHA-256 of the request; distinguishes a retry from another request with the same key.'),
    request: json('request').comment(
      'JSON that lets another process start or resume it; null if none can, and after the end.',
    ),
    job: json('job').comment(
      'Job of which it is a step: kind, userId and id, and the number of the step. Its end adds the job again. Null for none.',
    ),
    agentVersion: c
      .text('agent_version')
      .comment(
        'Digest of the application version that ran it (the last one if resumed), with +overrides if the request changed the agent. Null until it starts.',
      ),
    agent: c
      .text('agent')
      .comment(
        'Agent that made its last event: that which answered, or was at work when it failed. Null until it ends.',
      ),
    firstText: anyText('first_text').comment('Start of the text of its prompt; null if there is none.'),
    attempt: c
      .smallint('attempt')
      .notNull()
      .default(1)
      .comment(
        'Number of processes in a row that died with it, plus one; begins anew after a process that stored two answers of models.',
      ),
    webhookUrl: c
      .text('webhook_url')
      .comment('Address of the webhook for the result; empty if only A2A push clients are notified, null for none.'),
    tapes: json('tapes').comment(
      'Replay inputs that are not in the events, an array with one of each run that has ended, until it takes 256 KiB: start (number of events in the session at the start of the run, including the prompt) and payload (agent overrides of the request, state values used in instructions, and per model call its prompt and digests of its input).',
    ),
    responseBody: anyText('response_body').comment('The response as sent; a retry receives the same bytes.'),
    errorCode: c.text('error_code').comment('Stable error code.'),
    errorMessage: anyText('error_message').comment('Why it failed, a sentence.'),
    stopRequestedAs: c
      .text('stop_requested_as', { enum: ['cancelled', 'interrupted'] })
      .comment('Requested stop, and the status to end with: cancelled or interrupted.'),
    toolCalls: c.integer('tool_calls').notNull().default(0).comment('Tool calls made.'),
    failedCalls: c
      .integer('failed_calls')
      .notNull()
      .default(0)
      .comment(
        'Tool calls whose response has an error: of the tool, of the arguments, or because a person rejected the call.',
      ),
    workMs: c
      .integer('work_ms')
      .notNull()
      .default(0)
      .comment('Milliseconds for which a process ran it, until its last end or pause; without what it waited.'),
    modelTokens: json('model_tokens').comment(
      'Prompt tokens and answer tokens of its stored model answers, an array of both by the name of the model; null for none.',
    ),
    llmCalls: c.integer('llm_calls').notNull().default(0).comment('Model calls made.'),
    promptTokens: c.integer('prompt_tokens').notNull().default(0).comment('Prompt tokens of all model calls.'),
    outputTokens: c
      .integer('output_tokens')
      .notNull()
      .default(0)
      .comment('Answer and thought tokens of all model calls.'),
    createTime: timeOfChange('create_time').comment('When it was requested; the order of the queue.'),
    startTime: time('start_time').comment('When it started running.'),
    endTime: time('end_time').comment('When it ended.'),
    countTime: time('count_time').comment(
      'When it was counted in budget_uses: at its claim if the user had a budget, when a budget was set while it ran, else at its first end or pause.',
    ),
    stopRequestTime: time('stop_request_time').comment('When a stop was requested first.'),
    notBefore: time('not_before').comment(
      'Of a run of a cronjob that has not begun: it begins at this time at the earliest. Null for all others.',
    ),
    cronjobId: identifier('cronjob_id').comment(
      'Cronjob whose run it is; null for all others, and once the run is older than runs are kept.',
    ),
    runId: identifier('run_id').comment('Run of the cronjob; the tries of a run share it.'),
    dueTime: time('due_time').comment('When the run was due; of a manual run, when it was requested.'),
    isManual: c
      .boolean('is_manual')
      .comment('True for a run that was requested, false for one that the schedule fired.'),
    try: c
      .smallint('try')
      .comment(
        'Number of the try of the run, from 1: a try that failed for a transient reason is followed by another.',
      ),
    waitsForTasks: c
      .boolean('waits_for_tasks')
      .comment(
        'Of a paused one: whether its last pause opened tasks, whose answers resume it. Otherwise the client alone answers.',
      ),
    isRetried: c
      .boolean('is_retried')
      .notNull()
      .default(false)
      .comment('True for a try of a run that failed and was followed by another one.'),
    steeredInvocationId: identifier('steered_invocation_id').comment(
      'Of a message that another, running invocation took: that invocation. Its event has the id of this row. Null for all others.',
    ),
    children: c
      .smallint('children')
      .notNull()
      .default(0)
      .comment('Number of child sessions that it has started. Its end, or its stop, looks for them if there are any.'),
    firstEndTime: time('first_end_time').comment(
      'When the run ended or paused first. Only this end counts for its cronjob.',
    ),
  }),
  (t) => [
    primaryKey({ name: 'invocations_pkey', columns: [t.appName, t.userId, t.sessionId, t.id] }),
    // Arrays as literals, because PostgreSQL parses the stored form of each check in each statement, and that of a list is
    // twice as long.
    check(
      'invocations_status_check',
      sql`status = any('{queued,running,paused,succeeded,failed,interrupted,cancelled}')`,
    ),
    check('invocations_counts_check', sql`least(tool_calls, llm_calls, prompt_tokens, output_tokens) >= 0`),
    check('invocations_stop_requested_as_check', sql`stop_requested_as = any('{cancelled,interrupted}')`),
    // The index is partial, because most invocations have no key: fewer index writes at claim and finish, and the
    // planner cannot misuse it to find one invocation of a user who has thousands.
    uniqueIndex('invocations_idempotency_key')
      .on(t.appName, t.userId, t.idempotencyKey)
      .where(sql`idempotency_key is not null`),
    index('invocations_lease_idx').on(t.leaseExpireTime).where(sql`status = 'running'`),
    index('invocations_waiters_idx').on(t.leaseExpireTime).where(sql`status = 'queued' and request is null`),
    // Indexes of lists and reports by time: of an application, of a user, and of what did not succeed. They are partial,
    // although the first two have all rows: a database without statistics would use them for key look-ups, and scan all
    // of the application or user. Only a statement with the condition in its text may use them, and each has one.
    index('invocations_app_time_idx').on(t.appName, t.createTime, t.id).where(sql`create_time > '-infinity'`),
    index('invocations_user_time_idx').on(t.appName, t.userId, t.createTime, t.id).where(sql`create_time < 'infinity'`),
    index('invocations_failed_idx')
      .on(t.appName, t.createTime, t.id)
      .where(sql`status in ('failed', 'interrupted', 'cancelled')`),
    index('invocations_failed_calls_idx').on(t.appName, t.createTime, t.id).where(sql`failed_calls > 0`),
    // Index for the sweeper that deletes keys after a day.
    index('invocations_key_age_idx').on(t.createTime).where(sql`idempotency_key is not null`),
    index('invocations_background_idx').on(t.createTime).where(sql`status = 'queued' and request is not null`),
    // Index of invocations to resume, which are few and served before all waiting ones.
    index('invocations_left_idx')
      .on(t.leaseExpireTime)
      .where(sql`status = 'queued' and request is not null and start_time is not null`),
    // Index of paused invocations that their tasks resume, the last pause last: to find those that nothing will resume.
    index('invocations_paused_idx')
      .on(sql`coalesce(end_time, create_time)`)
      .where(sql`status = 'paused' and waits_for_tasks`),
    // The same of an application, in the order of its list.
    index('invocations_stranded_idx')
      .on(t.appName, t.createTime, t.id)
      .where(sql`status = 'paused' and waits_for_tasks`),
    index('invocations_queue_idx').on(t.appName, t.userId, t.sessionId, t.createTime).where(sql`status = 'queued'`),
    check(
      'invocations_run_check',
      sql`cronjob_id is null or num_nulls(run_id, due_time, is_manual, try) = 0 and try > 0`,
    ),
    uniqueIndex('invocations_run_key')
      .on(t.appName, t.userId, t.cronjobId, t.dueTime, t.try)
      .where(sql`cronjob_id is not null`),
    // Index of the runs of cronjobs that go on, which are few: those of a user, and those of one cronjob.
    index('invocations_open_runs_idx')
      .on(t.userId, t.appName, t.cronjobId)
      .where(sql`cronjob_id is not null and first_end_time is null and status in ('queued', 'running')`),
    // Those of them that have begun, which the limit per user counts at each claim, however many wait.
    index('invocations_begun_runs_idx')
      .on(t.userId, t.appName, t.cronjobId)
      .where(
        sql`cronjob_id is not null and first_end_time is null and status in ('queued', 'running') and not_before is null`,
      ),
    sessionKey('invocations_session_fkey', t),
    ofUserPolicy(),
  ],
);

export const toolCalls = table(
  'tool_calls',
  'Ledger of tool calls: one row per call that has started, or may have. Calls inside an agent used as a tool are in the ledger of its child session.',
  (c) => ({
    ...ofSession(),
    invocationId: identifier('invocation_id').notNull().comment('The invocation.'),
    callId: anyIdentifier('call_id').notNull().comment('Id of the function call in the events.'),
    operationId: c
      .uuid('operation_id')
      .notNull()
      .comment('Id of the operation for the tool; the same for every attempt, so that it can be idempotent.'),
    tool: anyText('tool').notNull().comment('Name of the tool.'),
    effect: c
      .text('effect', { enum: ['none', 'idempotent', 'once', 'transactional'] })
      .notNull()
      .comment(
        'Effect of a call: none, idempotent, once (must not be repeated), or transactional (committed with its response, or not at all).',
      ),
    state: c
      .text('state', { enum: ['started', 'done', 'unknown', 'settled'] })
      .notNull()
      .comment(
        'started; done; unknown (interrupted, may have had effects); settled (a check or a person determined the outcome).',
      ),
    attempt: c.smallint('attempt').notNull().default(1).comment('Number of attempts started.'),
    response: json('response').comment(
      "Response with actions and attachments, until the step's event contains it; null otherwise.",
    ),
    createTime: secondsOfChange('create_time').comment('When it started.'),
    updateTime: secondsOfChange('update_time').comment('Last change.'),
  }),
  (t) => [
    primaryKey({ name: 'tool_calls_pkey', columns: [t.appName, t.userId, t.sessionId, t.invocationId, t.callId] }),
    check('tool_calls_effect_check', sql`effect in ('none', 'idempotent', 'once', 'transactional')`),
    check('tool_calls_state_check', sql`state in ('started', 'done', 'unknown', 'settled')`),
    index('tool_calls_unknown_idx').on(t.appName, t.userId, t.createTime, t.callId).where(sql`state = 'unknown'`),
    foreignKey({
      name: 'tool_calls_invocation_fkey',
      columns: [t.appName, t.userId, t.sessionId, t.invocationId],
      foreignColumns: [invocations.appName, invocations.userId, invocations.sessionId, invocations.id],
    }).onDelete('cascade'),
    ofUserPolicy(),
  ],
);

export const agentPrompts = table(
  'agent_prompts',
  'Prompts of agents: everything that models receive besides the conversation, each stored once per application. Replays report what changed since. Deleted after 90 days without use.',
  (c) => ({
    appName: identifier('app_name').notNull().comment('Application.'),
    hash: c.text('hash').notNull().comment('SHA-256 of the whole prompt, hexadecimal; invocations.tapes refers to it.'),
    payload: json('payload')
      .notNull()
      .comment(
        'Agent, instruction template, declared tools, model and sampling. The instruction is absent if a request overrode it; then it is in invocations.tapes.',
      ),
    useTime: timeOfChange('use_time').comment('Day of the last use.'),
  }),
  (t) => [
    primaryKey({ name: 'agent_prompts_pkey', columns: [t.appName, t.hash] }),
    index('agent_prompts_age_idx').on(t.useTime),
  ],
);

export const agentVersions = table(
  'agent_versions',
  'Deployed versions of applications, each once; the newest 1,000 per application are kept.',
  (c) => ({
    appName: identifier('app_name').notNull().comment('Application.'),
    digest: c.text('digest').notNull().comment('SHA-256 of the definition as canonical JSON, hexadecimal.'),
    definition: json('definition')
      .notNull()
      .comment('Runtime, models, agents with their instructions and tools, by name; no secrets.'),
    createTime: secondsOfChange('create_time').comment('First deployment.'),
  }),
  (t) => [primaryKey({ name: 'agent_versions_pkey', columns: [t.appName, t.digest] })],
);

export const spans = table(
  'spans',
  'Traces of invocations for the development UI; deleted after some time.',
  (c) => ({
    ...ofSession(),
    traceId: identifier('trace_id').notNull().comment('Trace; one per invocation.'),
    id: identifier('id').notNull().comment('Span identifier.'),
    parentId: identifier('parent_id').comment('Parent span.'),
    eventId: identifier('event_id').comment('Event that the step produced.'),
    name: anyText('name').notNull().comment('invocation, invoke_agent, call_llm or execute_tool, with a name.'),
    startNs: c.bigint('start_ns', { mode: 'bigint' }).notNull().comment('Start, Unix time in nanoseconds.'),
    endNs: c.bigint('end_ns', { mode: 'bigint' }).notNull().comment('End, Unix time in nanoseconds.'),
    attributes: json('attributes').notNull().comment("Attributes in the API's format."),
    links: json('links').comment('The runs that the invocation goes on from, each with why; null for none.'),
    createTime: timeOfChange('create_time').comment('When the span was stored.'),
  }),
  (t) => [
    primaryKey({ name: 'spans_pkey', columns: [t.appName, t.userId, t.sessionId, t.traceId, t.id] }),
    index('spans_session_idx').on(t.appName, t.sessionId, t.startNs),
    index('spans_event_idx').on(t.appName, t.eventId),
    index('spans_age_idx').on(t.createTime),
    ofUserPolicy(),
  ],
);
