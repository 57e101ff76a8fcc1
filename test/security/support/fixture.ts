import { createHash, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, escapeIdentifier } from 'pg';
import { vi } from 'vitest';
import { toHandle } from '../../../src/features/doors/handle.ts';
import type { TestApp } from '../../support/app.ts';
import type { Names } from './requests.ts';
import { MINUTE } from '../../support/patience.ts';

const APP = 'harness_agent';

/** Names of things that are not there. */
export const ABSENT: Omit<Names, 'userId'> = {
  appName: APP,
  sessionId: 'no-session',
  artifactName: 'no-artifact.txt',
  versionId: '999',
  version: 'no-version',
  eventId: 'no-event',
  invocationId: 'no-invocation',
  jobId: 'no-job',
  cronjobRunId: 'no-cronjob-run',
  taskId: 'no-task',
  signalName: 'no-signal',
  token: 'no-token',
  webhookId: 'no-webhook',
  deliveryId: 'no-delivery',
  callId: 'no-call',
  evalRunId: 'no-eval-run',
  evalSetId: 'no_set',
  evalId: 'no-case',
  evalResultId: 'no-result',
  ruleId: 'no-rule',
};

/** The members of answers that the fixture reads. */
type Made = { id: string; invocationId: string }[] & {
  items: { version: string }[];
  jobId: string;
  runId: string;
  webhookId: string;
  status: string;
};

/** The names of what `insertOthers` puts into a child session, of an agent that the session of the user called. */
export const childOf = (names: Names): Names => ({
  ...names,
  sessionId: `child-of-${names.userId}`,
  invocationId: `e-child-of-${names.userId}`,
  eventId: `event-of-child-of-${names.userId}`,
  callId: `call-of-child-of-${names.userId}`,
  taskId: `task-of-child-of-${names.userId}`,
});

/** Makes one thing of every kind for a user, through the service. @returns their names */
export async function makeOneOfEach(app: Pick<TestApp, 'send'>, userId: string, headers: Record<string, string>) {
  const ask = async (method: string, path: string, body?: object): Promise<Made> => {
    const answer = await app.send(method, path, body, headers);
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.body as Made;
  };
  const sessionId = `session-of-${userId}`;
  const session = `/apps/${APP}/users/${userId}/sessions/${sessionId}`;
  const evalSetId = `set_of_${userId}`;
  const set = `/dev/apps/${APP}/eval-sets/${evalSetId}`;
  await ask('POST', session, { state: {} });
  const newMessage = { role: 'user', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] };
  const ids = { userId, sessionId };
  const events = await ask('POST', '/run', {
    appName: APP,
    ...ids,
    newMessage,
  });
  const artifactName = `artifact-of-${userId}.txt`;
  await ask('POST', `${session}/artifacts`, { filename: artifactName, artifact: { text: 'a secret' } });
  await ask('PATCH', `/apps/${APP}/users/${userId}/memory`, { sessionId });
  const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
  const job = await ask('POST', '/harness/cronjobs', { ownerId: userId, name: 'Sums', prompt: 'Hello', schedule });
  const run = await ask('POST', `/harness/cronjobs/${job.jobId}/run`, {});
  const runPath = `/harness/cronjobs/${job.jobId}/runs/${run.runId}`;
  await vi.waitUntil(async () => (await ask('GET', runPath)).status === 'success', { timeout: MINUTE });
  const webhook = await ask('POST', '/harness/webhooks', { ownerId: userId, url: 'https://example.com/own' });
  await ask('POST', `/dev/apps/${APP}/eval_sets/${evalSetId}`);
  const evalId = `case-of-${userId}`;
  await ask('POST', `${set}/add-session`, { evalId, ...ids });
  const metrics = [{ metricName: 'tool_trajectory_avg_score', threshold: 1 }];
  const evalRun = await ask('POST', `/dev/apps/${APP}/eval-runs`, { evalSetId, evalMetrics: metrics });
  await ask('GET', `/dev/apps/${APP}/eval-runs/${evalRun.runId}/stream`);
  const results = await ask('GET', `/dev/apps/${APP}/eval_results`);
  const versions = await ask('GET', `/apps/${APP}/versions`);
  await ask('POST', `/dev/apps/${APP}/session-scores`, { evalMetrics: metrics, users: [userId] });
  // What the process has not stored yet of the trace is waited for.
  await ask('GET', `/dev/apps/${APP}/debug/trace/session/${sessionId}`);
  return {
    appName: APP,
    ...ids,
    artifactName,
    versionId: '0',
    version: versions.items[0]?.version ?? '',
    eventId: events.at(-1)?.id ?? '',
    invocationId: events.at(-1)?.invocationId ?? '',
    jobId: job.jobId,
    cronjobRunId: run.runId,
    taskId: `task-of-${userId}`,
    signalName: `signal-of-${userId}`,
    token: `token-of-${userId}`,
    webhookId: webhook.webhookId,
    deliveryId: `delivery-of-${userId}`,
    callId: `call-of-${userId}`,
    evalRunId: evalRun.runId,
    evalSetId,
    evalId,
    evalResultId: (results as unknown as string[])[0] ?? '',
    ruleId: `rule_of_${userId}`,
  } satisfies Names;
}

/**
 * Inserts what only others make: the delivery that `names` has, as one that was sent, since the tests have nobody who
 * would receive one, the tool call, as one that may have acted, the task, as one of that call, a rule of scores, a
 * verdict, and a child session, as a copy of the session with its rows.
 */
export async function insertOthers(url: string, names: Names): Promise<void> {
  const { appName, userId, sessionId, invocationId, callId, taskId, token, deliveryId, webhookId } = names;
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(
    `insert into webhook_deliveries (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time, end_time)
     values ($1, $2, $3, $4, 'example.com', '{"type":"invocation.ended","data":{}}', 'delivered', now(), now())`,
    [appName, userId, deliveryId, webhookId],
  );
  const taskHandle = toHandle({ key: names, invocationId });
  const push = {
    sessionId,
    invocationId,
    shown: { id: `config-of-${userId}`, taskId: taskHandle },
    headers: {},
  };
  await client.query(
    `insert into webhooks (app_name, user_id, id, url, host, includes_output, secret, push)
     values ($1, $2, $3, 'https://example.com/push', 'example.com', false, 'whsec_c2VjcmV0', $4)`,
    [appName, userId, `push-of-${userId}`, push],
  );
  await client.query(
    `insert into tool_calls
       (app_name, user_id, session_id, invocation_id, call_id, operation_id, tool, effect, state)
     values ($1, $2, $3, $4, $5, gen_random_uuid(), 'pay', 'once', 'unknown')`,
    [appName, userId, sessionId, invocationId, callId],
  );
  await client.query(
    `insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form)
     values ($1, $2, $3, $4, $5, $6, 'pay', 'call', '{"tool":"pay"}')`,
    [appName, userId, sessionId, taskId, invocationId, callId],
  );
  await client.query(
    `insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form, signal_name,
                        token_hash, token_expire_time)
     values ($1, $2, $3, 'by-token', $4, 'by-token', 'wait_for_signal', 'signal', '{"tool":"wait_for_signal"}', 'token',
             $5, now() + interval '1 day')`,
    [appName, userId, sessionId, invocationId, createHash('sha256').update(token).digest('base64url')],
  );
  const definition = { evalMetrics: [{ metricName: 'response_match_score', threshold: 1 }] };
  await client.query('insert into score_rules (app_name, id, share, definition) values ($1, $2, 0, $3)', [
    appName,
    names.ruleId,
    definition,
  ]);
  await client.query(
    `insert into session_verdicts (app_name, user_id, session_id, event_id, author, passed)
     values ($1, $2, $3, '', $2, true)`,
    [appName, userId, sessionId],
  );
  const child = childOf(names);
  const parent = {
    parent_session_id: sessionId,
    parent_invocation_id: invocationId,
    parent_call_id: callId,
    root_session_id: sessionId,
    depth: 1,
  };
  const inChild = { session_id: child.sessionId };
  const ofChild = { ...inChild, invocation_id: child.invocationId };
  const ofCall = { ...ofChild, call_id: child.callId };
  const copies: [table: string, which: string, changed: object][] = [
    ['sessions', `id = '${sessionId}'`, { id: child.sessionId, ...parent }],
    ['events', `invocation_id = '${invocationId}' and id <> '${names.eventId}'`, ofChild],
    ['events', `id = '${names.eventId}'`, { ...ofChild, id: child.eventId }],
    ['invocations', `id = '${invocationId}'`, { ...inChild, id: child.invocationId }],
    ['artifacts', 'true', inChild],
    ['artifact_versions', 'true', inChild],
    ['tool_calls', `call_id = '${callId}'`, { ...ofCall, operation_id: randomUUID() }],
    ['tasks', `id = '${taskId}'`, { ...ofCall, id: child.taskId }],
    ['session_verdicts', 'true', inChild],
  ];
  for (const [table, which, changed] of copies)
    await client.query(
      `insert into ${table} select (jsonb_populate_record(t, $4)).* from ${table} t
       where app_name = $1 and user_id = $2 and ${table === 'sessions' ? 'id' : 'session_id'} = $3 and ${which}`,
      [appName, userId, sessionId, changed],
    );
  await client.query(
    `update events set payload = payload || jsonb_build_object('id', id, 'invocationId', invocation_id)
     where app_name = $1 and user_id = $2 and session_id = $3`,
    [appName, userId, child.sessionId],
  );
  await client.end();
}

/** A database whose content can be compared and put back. */
export interface Snapshots {
  /** One text for all rows of these tables. Default: all. */
  content(of?: readonly string[]): Promise<string>;
  take(): Promise<void>;
  /** Puts all tables back as they were when the snapshot was taken. */
  restore(): Promise<void>;
  close(): Promise<void>;
}

/** The table that triggers of others fill. */
const COUNTED = 'user_storage';

/** Snapshots of all tables of the schema `public`. */
export async function openSnapshots(url: string): Promise<Snapshots> {
  const client = new Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query<{ name: string; parents: string[] }>(`
    select c.relname as name,
           array(select p.confrelid::regclass::text from pg_constraint p
                 where p.conrelid = c.oid and p.contype = 'f' and p.confrelid <> c.oid) as parents
    from pg_class c
    where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and c.relname not in ('rate_limits', 'audit_log')
    order by 1`);
  const tables = parentsFirst(rows);
  const { rows: columns } = await client.query<{ table: string; names: string }>(`
    select table_name as table, string_agg(quote_ident(column_name), ', ') as names from information_schema.columns
    where table_schema = 'public' and is_generated = 'NEVER' group by 1`);
  const toKnownNames = new Map(columns.map(({ table, names }) => [table, names]));
  // Last: while the others are put back, triggers count in a row by the number of this connection.
  const countedLast = [...tables.filter((name) => name !== COUNTED), COUNTED];
  const back = countedLast.map((name) => {
    const names = toKnownNames.get(name);
    const table = escapeIdentifier(name);
    const first = name === COUNTED ? `delete from ${COUNTED}; ` : '';
    return `${first}insert into ${table} (${names}) select ${names} from snapshot.${table}`;
  });
  // A legal hold would refuse the others.
  const erase = ['legal_holds', ...tables.toReversed()].map((name) => `delete from ${escapeIdentifier(name)}`);
  const hash = (name: string) =>
    `select '${name}' as name, md5(string_agg(t::text, chr(10) order by t::text)) from ${escapeIdentifier(name)} t`;
  return {
    content: async (of = tables) =>
      JSON.stringify((await client.query(`${of.map(hash).join(' union all ')} order by name`)).rows),
    take: async () => {
      const copies = tables.map(
        (name) => `create table snapshot.${escapeIdentifier(name)} as table ${escapeIdentifier(name)}`,
      );
      await client.query(['create schema snapshot', ...copies].join(';'));
      // A function keeps the plans of its statements, which take as long as the rest.
      const statements = [...erase, ...back].join(';');
      await client.query(
        `create function snapshot.restore() returns void language plpgsql as $$begin ${statements}; end$$`,
      );
    },
    restore: () => repeated(() => client.query('select snapshot.restore()')),
    close: () => client.end(),
  };
}

/** Work in the background may write while tables are put back: then it is done again, when that work has gone on. */
async function repeated(work: () => Promise<unknown>, tries = 30): Promise<void> {
  await work().catch(async (error: { code?: string }) => {
    if (tries === 0 || !['40P01', '23503', '23505'].includes(error.code ?? '')) throw error;
    await sleep(20);
    return repeated(work, tries - 1);
  });
}

function parentsFirst(tables: { name: string; parents: string[] }[]): string[] {
  const sorted: string[] = [];
  while (sorted.length < tables.length) {
    const next = tables.find(
      ({ name, parents }) => !sorted.includes(name) && parents.every((each) => sorted.includes(each)),
    );
    if (!next) throw new Error('the foreign keys form a circle');
    sorted.push(next.name);
  }
  return sorted;
}
