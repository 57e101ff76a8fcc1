import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { hostAgent } from '../support/agents.ts';
import { client, startOn, type TestApp } from '../support/app.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { readMetrics, valuesOf } from '../support/metrics.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import { MINUTE } from '../support/patience.ts';

/** Invocations whose turn has come and that cannot begin, more than one look finds: they hold up nobody else. */

const USERS = 110;
const APP = 'harness_agent';
const LEASE_MS = 3_000;
/** Two turns of no use in each of so many seconds are too many. */
const QUIET_SECONDS = 6;

const naps = [...builtInTools().values()].filter(({ name }) => name === 'sleep_for');
/** Sleeps where the message asks for it; else it says `done`. */
const model: Model = {
  provider: 'scripted',
  // eslint-disable-next-line require-yield
  async *generate({ contents }) {
    const isAsked = contents.at(-1)?.parts?.some(({ text }) => text === 'nap') === true;
    const call = { functionCall: { name: 'sleep_for', args: { seconds: 2 } } };
    return { content: { role: 'model', parts: [isAsked ? call : { text: 'done' }] } };
  },
};
const agents = hostAgent(model, naps);

let database: TestDatabase;
let sql: Client;
let replicas: Runtime[];
let app: Pick<TestApp, 'get' | 'post' | 'send'>;
beforeEach(async () => {
  database = await createTestDatabase();
  sql = new Client({ connectionString: database.url });
  await sql.connect();
  await sql.query(`alter database ${new URL(database.url).pathname.slice(1)} set track_functions = 'pl'`);
  const settings = { SESSION_LEASE_MS: String(LEASE_MS), MAX_OPEN_TASKS: '1000', METRICS_PORT: '0' };
  replicas = [await startOn(database.url, settings, { agents }), await startOn(database.url, settings, { agents })];
  app = client(replicas[0]?.url ?? '');
});
afterEach(async () => {
  await Promise.all(replicas.map((replica) => replica.close()));
  await sql.end();
  await database.drop();
});

const REQUEST = { version: 1, overrides: {}, streaming: false, content: { role: 'user', parts: [{ text: 'Go.' }] } };

/** Puts a waiting invocation of each user into the database, older than all others; in busy sessions where `isBusy`. */
async function fill({ appName = APP, isBusy = false, request = {}, columns = '', values = '' }) {
  await sql.query(
    `with waiting as (
       select 'head-' || n as user_id, 'e-' || n as id, gen_random_uuid() as token from generate_series(1, ${USERS}) n),
     made as (
       insert into sessions (app_name, user_id, id, lease_token)
       select $1, user_id, 's', case when $2 then token end from waiting),
     running as (
       insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time)
       select $1, user_id, 's', 'running', 'running', token, now() + interval '1 hour', now() from waiting where $2)
     insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, create_time,
                              request ${columns})
     select $1, user_id, 's', id, 'queued', gen_random_uuid(), now(), now() - interval '1 hour', $3 ${values}
     from waiting`,
    [appName, isBusy, { ...REQUEST, ...request }],
  );
}

const states = async (of: string) =>
  (
    await sql.query<{ status: string; code: string | null; n: number }>(
      `select status, error_code as code, count(*)::int as n from invocations
       where user_id like $1 and id <> 'running' group by 1, 2 order by 1`,
      [`${of}%`],
    )
  ).rows;

/** What others do meanwhile: five that sleep, and a run of a process that died. */
async function othersGoOn() {
  await sql.query(
    `with one as (select gen_random_uuid() as token),
     made as (insert into sessions (app_name, user_id, id, lease_token) select '${APP}', 'other-0', 's', token from one)
     insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time, request)
     select '${APP}', 'other-0', 's', 'e-killed', 'running', token, now(), now(), $1 from one`,
    [{ ...REQUEST, began: { at: Date.now() / 1000, spentMs: 0, sequence: 0, llmCalls: 0, toolCalls: 0 } }],
  );
  for (const userId of ['other-1', 'other-2', 'other-3', 'other-4', 'other-5']) {
    const path = `/apps/${APP}/users/${userId}/sessions`;
    await app.post(path, { sessionId: 's' });
    const newMessage = { role: 'user', parts: [{ text: 'nap' }] };
    expect((await app.post(`${path}/s/invocations`, { newMessage })).status).toBe(200);
  }
  await expect.poll(() => states('other-')).toEqual([{ status: 'succeeded', code: null, n: 6 }]);
}

const claims = async () =>
  Number(
    (await sql.query<{ calls: string }>(`select calls from pg_stat_user_functions where funcname = 'claim_session'`))
      .rows[0]?.calls ?? 0,
  );

/**
 * Waits for some seconds in which next to nothing is claimed. An idle connection reports its calls after 10 s
 * (`PGSTAT_IDLE_INTERVAL`), so that earlier claims may still be added to the first counts.
 */
async function expectQuiet() {
  const claimedMeanwhile = async () => {
    const before = await claims();
    await sleep(QUIET_SECONDS * 1_000);
    return (await claims()) - before;
  };
  await expect.poll(claimedMeanwhile, { timeout: MINUTE, interval: 1 }).toBeLessThan(QUIET_SECONDS);
}

const USED_UP = `
  insert into budget_uses (app_name, user_id, day, shard, invocations, prompt_tokens, output_tokens, cost)
  select '${APP}', 'head-' || n, (now() at time zone 'utc')::date, 0, 2, 500000000, 500000000, 0 from generate_series(1, ${USERS}) n`;
const setBudget = async (budget: object) => {
  await sql.query(USED_UP);
  const wanted = { appliesTo: 'users', period: 'day', ...budget };
  expect((await app.send('PUT', `/apps/${APP}/budgets`, wanted)).status).toBeLessThan(300);
};
const refusals = async (reason: string) => {
  const all = await Promise.all(replicas.map(({ metrics }) => readMetrics(metrics)));
  const counts = all.map((samples) => valuesOf(samples, 'agent_runtime_queue_refusals_total')[`reason=${reason}`] ?? 0);
  return counts.reduce((sum, count) => sum + count, 0);
};

test(`${USERS} of busy sessions`, async () => {
  await fill({ isBusy: true });
  await othersGoOn();
  expect(await states('head-')).toEqual([{ status: 'queued', code: null, n: USERS }]);
  await expectQuiet();
  // Each has its turn once its session is free.
  await sql.query(`update invocations set lease_expire_time = now() where id = 'running'`);
  await expect.poll(() => states('head-')).toEqual([{ status: 'succeeded', code: null, n: USERS }]);
});

test(`${USERS} that a budget of invocations refuses: they wait for it, seen, and begin when it opens`, async () => {
  await setBudget({ maxInvocations: 2 });
  await fill({ request: { waitsForBudget: true } });
  await othersGoOn();
  await expect.poll(() => states('head-')).toEqual([{ status: 'paused', code: null, n: USERS }]);
  await expectQuiet();
  const { body } = await app.get('/tasks?ownerId=head-7&kind=budget');
  expect(body).toMatchObject({ items: [{ kind: 'budget', state: 'open', invocationId: 'e-7' }] });
  expect(await refusals('budget')).toBe(USERS);
  await setBudgetOpen();
  await expect.poll(() => states('head-')).toEqual([{ status: 'succeeded', code: null, n: USERS }]);
  // Each counts once.
  const { rows } = await sql.query(`select distinct invocations::int from (
    select user_id, sum(invocations) as invocations from budget_uses where user_id like 'head-%' group by 1) each`);
  expect(rows).toEqual([{ invocations: 3 }]);
});

const setBudgetOpen = async () => {
  await app.send('PUT', `/apps/${APP}/budgets`, { appliesTo: 'users', period: 'day', maxInvocations: 1_000 });
  await sql.query(`update tasks set expire_time = now(), due_time = now() where kind = 'budget'`);
  await sql.query(`select pg_notify('agent_runtime', '["tasks"]')`);
};

test(`${USERS} sleepers that wake beyond a budget of tokens, and that nobody may let go on, end with a sentence`, async () => {
  await setBudget({ maxTokens: 1_000_000_000 });
  await fill({ columns: ', end_time', values: `, now() - interval '1 minute'` });
  await othersGoOn();
  await expect.poll(() => states('head-')).toEqual([{ status: 'failed', code: 'budget_exceeded', n: USERS }]);
  await expectQuiet();
  const { text } = await app.get(`/apps/${APP}/users/head-7/sessions/s`);
  expect(text).toContain('budget.users.day.tokens');
});

test(`${USERS} of an application that is not served any more`, async () => {
  await fill({ appName: 'gone' });
  await othersGoOn();
  expect(await states('head-')).toEqual([{ status: 'queued', code: null, n: USERS }]);
  await expectQuiet();
});

/** Has a replica start, which sweeps; a later job of the same sweep says when that is done. */
async function sweep() {
  await sql.query(`insert into idempotency_keys (app_name, user_id, scope, key, request_hash, response_body, create_time)
    values ('${APP}', 'old', 'spend', gen_random_uuid()::text, '', '', now() - interval '2 days')`);
  const started = await startOn(database.url, {}, { agents });
  const left = async () => (await sql.query(`select from idempotency_keys where user_id = 'old'`)).rowCount;
  await expect.poll(left).toBe(0);
  await started.close();
}

test('what no process has served for a week ends with a sentence, unless something of its application runs', async () => {
  await fill({ appName: 'gone' });
  await sql.query(`update invocations set start_time = now(), request = request || '{"began": {"at": 1, "spentMs": 0,
    "sequence": 0, "llmCalls": 0, "toolCalls": 0}}' where id = 'e-2'`);
  await sql.query(`
    with one as (insert into sessions (app_name, user_id, id, lease_token) values ('gone', 'runs', 's', gen_random_uuid())
                 returning lease_token)
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time)
    select 'gone', 'runs', 's', 'e-runs', 'running', lease_token, now() + interval '1 hour', now() from one`);
  await sql.query(
    `update invocations set lease_expire_time = now() - interval '8 days' where id in ('e-1', 'e-2', 'e-3')`,
  );
  await sql.query(`update sessions set update_time = now() - interval '8 days' where user_id in ('head-1', 'head-2')`);
  await sweep();
  expect(await states('head-')).toEqual([{ status: 'queued', code: null, n: USERS }]);
  await sql.query(`update invocations set status = 'succeeded' where id = 'e-runs'`);
  // Another process of this file may have swept the key, after it had looked for what is not served.
  const swept = async () => {
    await sweep();
    return states('head-');
  };
  await expect.poll(swept, { timeout: MINUTE }).toEqual([
    { status: 'interrupted', code: 'interrupted', n: 2 },
    { status: 'queued', code: null, n: USERS - 2 },
  ]);
  const { rows } = await sql.query(
    `select distinct error_message as why from invocations where status = 'interrupted'`,
  );
  expect(rows).toEqual([{ why: 'No process has served the application gone for 7 days.' }]);
});
