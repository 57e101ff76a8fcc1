import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { startReceiver } from '../support/webhook-receiver.ts';
import { insertDue, insertHook } from './support/cronjobs.ts';
import { APP, eventually, report, stage } from './support/faults.ts';
import { answerFor, promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

/** A job that ended two processes is not begun a third time; a holder that was only frozen did not die. */

const here = stage();
const LEASE_MS = paced(600);
const WITHIN_MS = 2 * MINUTE;
const D = `/dev/apps/${APP}`;
const GIVEN_UP = 'Given up after two processes ended while they ran it.';
const settings = () =>
  here.environment({
    SESSION_LEASE_MS: String(LEASE_MS),
    CRONJOBS: 'true',
    WEBHOOKS: 'true',
    REQUEST_TIMEOUT_MS: '1000',
  });
const text = (said: string, role: string) => ({ role, parts: [{ text: said }] });
const evalCase = (id: string) => ({
  evalId: id,
  conversation: [{ userContent: text(promptFor({ id }), 'user'), finalResponse: text(answerFor(id), 'model') }],
});
const startRun = async (server: ServerProcess, evalSetId: string, metricName: string) => {
  await server.post(`${D}/eval-sets`, { evalSet: { eval_set_id: evalSetId, eval_cases: [evalCase(evalSetId)] } });
  const evalMetrics = [{ metricName, threshold: 1 }];
  const { body } = await server.post(`${D}/eval-runs`, { evalSetId, evalMetrics });
  return (body as { runId: string }).runId;
};
const findCase = async (runId: string) => {
  const { rows } = await here.sql.query<{ status: string; error: string | null }>(
    'select status, error from eval_run_cases where run_id = $1',
    [runId],
  );
  return rows[0];
};
const findJob = async (runId: string) => {
  const { rows } = await here.sql.query<{ losses: number; holder: string | null }>(
    `select losses, lease_token as holder from jobs where kind = 'evaluation' and starts_with(id, $1)`,
    [runId],
  );
  return rows[0];
};

test('a metric that ends its process is begun twice, then its case is given up', async () => {
  const agents = mkdtempSync(join(tmpdir(), 'agent-runtime-lost-'));
  const begun = join(agents, 'begun');
  mkdirSync(join(agents, APP, 'evals'), { recursive: true });
  const metric = `{ description: 'Ends the process.', score: () => {
    appendFileSync(${JSON.stringify(begun)}, 'x'); process.kill(process.pid, 'SIGKILL'); return null; } }`;
  const source = `import { appendFileSync } from 'node:fs';\nexport const metric = ${metric};\n`;
  writeFileSync(join(agents, APP, 'evals', 'deadly.ts'), source);
  const environment = { ...settings(), AGENTS_DIR: agents };
  const first = await startServer(here.databaseUrl, environment);
  const runId = await startRun(first, 'deadly', 'deadly').catch(() => undefined);
  await first.exited;
  const { rows } = await here.sql.query<{ id: string }>('select id from eval_runs');
  const second = await startServer(here.databaseUrl, environment);
  await second.exited;
  const third = await startServer(here.databaseUrl, environment);
  const id = runId ?? rows[0]?.id ?? '';
  await eventually('the case has ended', WITHIN_MS, async () => (await findCase(id))?.status === 'error');
  expect(await findCase(id)).toMatchObject({ error: GIVEN_UP });
  expect(readFileSync(begun, 'utf8')).toBe('xx');
  await eventually('the run has ended', WITHIN_MS, async () => {
    const { body } = await third.get(`${D}/eval-runs/${id}`);
    return (body as { status: string }).status === 'done';
  });
  await third.kill();
});

test('processes that freeze in turn while they judge a case: none has died, and the case passes', async () => {
  const two = await Promise.all([1, 2].map(() => startServer(here.databaseUrl, settings())));
  const judged = await startRun(two[0] as ServerProcess, 'frozen', 'response_match_score');
  await eventually('the case has run', WITHIN_MS, async () => (await findCase(judged))?.status === 'done');
  const release = here.model.hold();
  const evalMetrics = [{ metricName: 'final_response_match_v2', threshold: 1 }];
  const { body } = await (two[0] as ServerProcess).post(`${D}/eval-runs/${judged}/judge`, { evalMetrics });
  const { runId } = body as { runId: string };
  await eventually('the case is judged', WITHIN_MS, async () => typeof (await findJob(runId))?.holder === 'string');
  const holders = new Set<string | null | undefined>();
  const FREEZES = 2;
  for (let freeze = 0; freeze < FREEZES; freeze += 1) {
    // Whichever has it: it goes to the other one, since the one that is frozen renews nothing.
    for (const frozen of two) {
      frozen.signal('SIGSTOP');
      await sleep(2 * LEASE_MS);
      await here.sql.query(`select pg_notify('agent_runtime', '["evaluation"]')`);
      await sleep(LEASE_MS);
      frozen.signal('SIGCONT');
      await eventually('no loss is left', WITHIN_MS, async () => (await findJob(runId))?.losses === 0);
      holders.add((await findJob(runId))?.holder);
    }
  }
  release();
  expect(holders.size).toBeGreaterThan(1);
  await eventually('the case has ended', WITHIN_MS, async () => (await findCase(runId))?.status !== 'running');
  expect(await findCase(runId)).toMatchObject({ status: 'done', error: null });
  report('evaluation runs', `${FREEZES} rounds of freezes of both processes: the case passed`);
  await Promise.all(two.map((server) => server.kill()));
});

test('a receiver whose answer ends the process is sent to twice, then the delivery has failed', async () => {
  const receiver = await startReceiver();
  const hook = await insertHook(here.sql, 'deadly', receiver);
  const environment = { ...settings(), WEBHOOKS_ALLOWED_HOSTS: receiver.origin };
  let server: ServerProcess | undefined;
  receiver.reply('/deadly', () => {
    server?.signal('SIGKILL');
    return 204;
  });
  const find = async () => {
    const { rows } = await here.sql.query<{ status: string; answers: { error?: string }[] }>(
      `select status, answers from webhook_deliveries where user_id = 'deadly'`,
    );
    return rows[0];
  };
  server = await startServer(here.databaseUrl, environment);
  await insertDue(here.sql, 'deadly', 1, 0, hook.url);
  for (let start = 1; start <= 2; start += 1) {
    await receiver.until('/deadly', start);
    await server.exited;
    await here.sql.query(`update jobs set lease_expire_time = now() where user_id = 'deadly'`);
    server = await startServer(here.databaseUrl, environment);
  }
  await eventually('the delivery has ended', WITHIN_MS, async () => (await find())?.status === 'failed');
  expect((await find())?.answers.at(-1)?.error).toBe(GIVEN_UP);
  expect(receiver.at('/deadly')).toHaveLength(2);
  await server.kill();
  await receiver.close();
});

test('a run of a cronjob whose processes died has the end of its invocation, and counts as failed', async () => {
  await insertDue(here.sql, 'lost', 1, 86_400_000);
  await here.sql.query(`
    with session as (
      insert into sessions (app_name, user_id, id, lease_token)
      select app_name, user_id, 'run', gen_random_uuid() from cronjobs where user_id = 'lost' returning *)
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request, attempt,
                             start_time, cronjob_id, run_id, due_time, is_manual, try)
    select s.app_name, s.user_id, s.id, 'e-run', 'running', s.lease_token, now(), '{"version": 1}', 3, now(), c.id, 'run',
           date_trunc('milliseconds', now()), true, 1
    from session s join cronjobs c using (app_name, user_id)`);
  const server = await startServer(here.databaseUrl, settings());
  const find = async () =>
    (
      await here.sql.query(`
        select r.status, r.error_code, c.failure_count from cronjob_runs r join cronjobs c on c.id = r.cronjob_id
        where r.user_id = 'lost'`)
    ).rows[0] as object;
  await expect
    .poll(find, { timeout: WITHIN_MS })
    .toEqual({ status: 'failed', error_code: 'interrupted', failure_count: 1 });
  await server.kill();
});
