import { SignJWT } from 'jose';
import { Client } from 'pg';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { tool } from '../support/agent-fixtures.ts';
import { hostScript } from '../support/agents.ts';
import { startApp, startOn, client, type TestApp } from '../support/app.ts';
import { createTestDatabase } from '../support/database.ts';
import { type FakeAnswer, startFakeProvider } from '../support/fake-provider.ts';
import { startHeldProvider } from '../support/held-provider.ts';
import { signingKey, startIssuer } from '../support/issuer.ts';
import { callPart } from '../support/scripted-model.ts';

/** How runs end that do not go well, and whose they are. */

const closing: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const close of closing.toReversed()) await close();
});

const D = '/dev/apps/harness_agent';
const text = (said: string, role = 'user') => ({ role, parts: [{ text: said }] });
const turn = (said: string, answer: string) => ({ userContent: text(said), finalResponse: text(answer, 'model') });
const MATCH = { metricName: 'response_match_score', threshold: 0.7 };
const set = (app: Pick<TestApp, 'post'>, id: string, cases: object[], headers = {}) =>
  app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: id, eval_cases: cases } }, headers);

/** A process that has lost a run notices that when it renews its lease. */
const SOON = { durationMs: 120_000, renewalMs: 500, waitMs: 120_000 };

async function withModel(script: FakeAnswer[], more: Record<string, string> = {}) {
  const provider = await startFakeProvider('openai-compatible', script);
  closing.push(() => provider.close());
  const settings = {
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'fake',
    MODEL_BASE_URL: provider.baseUrl,
    MODEL_MAX_RETRIES: '0',
    ...more,
  };
  const app = await startApp(settings, { sweepIntervalMs: 50, leaseTimes: SOON });
  closing.push(() => app.close());
  return { app, provider };
}

interface Failed {
  error: string;
  failedTurn: number;
  evalMetricResultPerInvocation: { actualInvocation: { finalResponse: unknown }; evalMetricResults: unknown[] }[];
}

test('a model that fails in the second turn: the reason, the turns so far, and the other case goes on', async () => {
  const { app } = await withModel([{ text: ['one'] }, { status: 500 }, { text: ['one'] }]);
  await set(app, 's', [
    { evalId: 'fails', conversation: [turn('a', 'one'), turn('b', 'two'), turn('c', 'three')] },
    { evalId: 'works', conversation: [turn('a', 'one')] },
  ]);
  const { status, body } = await app.post(`${D}/eval-sets/s/run`, { evalMetrics: [MATCH], parallelism: 1 });
  const [failed, works] = (body as { runEvalResults: [Failed, unknown] }).runEvalResults;
  const { error } = failed;
  expect([status, error]).toEqual([
    200,
    expect.stringMatching(/^The model `fake` of openai-compatible is not available/),
  ]);
  const inference = {
    metricName: 'inference',
    evalStatus: 2,
    details: { rubricScores: [{ rubricId: 'inference', rationale: error }] },
  };
  expect(failed).toMatchObject({
    evalId: 'fails',
    finalEvalStatus: 2,
    overallEvalMetricResults: [inference],
    failedTurn: 1,
  });
  const shown = failed.evalMetricResultPerInvocation.map(({ actualInvocation, evalMetricResults }) => [
    actualInvocation.finalResponse,
    evalMetricResults,
  ]);
  expect(shown).toEqual([
    [text('one', 'model'), []],
    [text('', 'model'), [inference]],
  ]);
  expect(works).toMatchObject({ evalId: 'works', finalEvalStatus: 1 });
  const [run] = (await app.get(`${D}/eval-runs`)).body as { counts: object }[];
  expect(run?.counts).toMatchObject({ total: 2, passed: 1, failed: 0, errors: 1 });
});

test('a cancelled run ends the model call that is under way, and whoever waits for it is told', async () => {
  const { app, provider } = await withModel([{ stop: 'silent' }]);
  await set(app, 's', [
    { evalId: 'a', conversation: [turn('a', 'one')] },
    { evalId: 'b', conversation: [turn('b', 'two')] },
  ]);
  const waiting = app.post(`${D}/eval-sets/s/run`, { evalMetrics: [MATCH], parallelism: 1 });
  await provider.requested;
  const [run] = (await app.get(`${D}/eval-runs`)).body as { runId: string; counts: object }[];
  expect(run?.counts).toMatchObject({ waiting: 1, running: 1 });
  const cancelled = await app.send('DELETE', `${D}/eval-runs/${run?.runId}`);
  const end = { status: 'cancelled', counts: { total: 2, waiting: 0, running: 0, cancelled: 2, errors: 0 } };
  expect(cancelled.body).toMatchObject(end);
  const { status, body } = await waiting;
  expect([status, body]).toEqual([409, { detail: `The evaluation run ${run?.runId} was cancelled.` }]);
  await provider.dropped;
  expect((await app.get(`${D}/eval-runs/${run?.runId}`)).body).toMatchObject(end);
  expect((await app.get(`${D}/eval_results`)).body).toEqual([]);
});

test('a turn that another process has taken over does not end its case: it is waited for', async () => {
  const provider = await startHeldProvider();
  closing.push(() => provider.close());
  const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'fake', MODEL_BASE_URL: provider.baseUrl };
  const app = await startApp(model, { sweepIntervalMs: 50 });
  closing.push(() => app.close());
  await set(app, 's', [{ evalId: 'a', conversation: [turn('a', 'At last.')] }]);
  const { body } = await app.post(`${D}/eval-runs`, { evalSetId: 's', evalMetrics: [MATCH] });
  await provider.requested;
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  closing.push(() => sql.end());
  await sql.query(`update invocations set lease_expire_time = now() - interval '1 second'`);
  await expect.poll(async () => (await sql.query('select attempt from invocations')).rows).toEqual([{ attempt: 2 }]);
  provider.release();
  const path = `${D}/eval-runs/${(body as { runId: string }).runId}`;
  const ended = { status: 'done', counts: { total: 1, passed: 1, errors: 0 } };
  await expect.poll(async () => (await app.get(path)).body).toMatchObject(ended);
});

test('a turn that is cancelled begins its case again, in a new session; one whose session is deleted ends it', async () => {
  const { app, provider } = await withModel([{ stop: 'silent' }, { text: ['one'] }, { stop: 'silent' }]);
  await set(app, 's', [{ evalId: 'a', conversation: [turn('a', 'one')] }]);
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  closing.push(() => sql.end());
  const start = async () => {
    const { body } = await app.post(`${D}/eval-runs`, { evalSetId: 's', evalMetrics: [MATCH] });
    return `${D}/eval-runs/${(body as { runId: string }).runId}`;
  };
  const findTurn = async (requests: number) => {
    await expect.poll(() => provider.requests.length).toBe(requests);
    const { rows } = await sql.query<{ session: string; id: string }>(
      `select '/apps/harness_agent/users/' || user_id || '/sessions/' || session_id as session, id
       from invocations where status = 'running'`,
    );
    return rows[0];
  };
  const first = await start();
  const cancelled = await findTurn(1);
  await app.post(`${cancelled?.session}/invocations/${cancelled?.id}/cancel`, {});
  await expect.poll(async () => (await app.get(first)).body).toMatchObject({ status: 'done', counts: { passed: 1 } });
  const second = await start();
  await app.send('DELETE', (await findTurn(3))?.session ?? '');
  await expect.poll(async () => (await app.get(second)).body).toMatchObject({ status: 'done', counts: { errors: 1 } });
  const { rows } = await sql.query('select status, session_count, error from eval_run_cases order by start_time');
  expect(rows).toEqual([
    { status: 'done', session_count: 2, error: null },
    { status: 'error', session_count: 1, error: expect.stringContaining('Session not found') as string },
  ]);
});

test('a turn that crashed as many processes as may begin it ends its case, in no further session', async () => {
  const { app, provider } = await withModel([{ stop: 'silent' }], { INVOCATION_ATTEMPTS: '2' });
  await set(app, 's', [{ evalId: 'a', conversation: [turn('a', 'one')] }]);
  const { body } = await app.post(`${D}/eval-runs`, { evalSetId: 's', evalMetrics: [MATCH] });
  await provider.requested;
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  closing.push(() => sql.end());
  const expire = () =>
    sql.query(`update invocations set attempt = 2, lease_expire_time = now() - interval '1 second'
               where job is not null and status = 'running'`);
  await expire();
  // Whoever wants the session takes it over from the process that counts as dead.
  const { rows: sessions } = await sql.query<{ path: string }>(
    `select '/apps/harness_agent/users/' || user_id || '/sessions/' || session_id as path from invocations`,
  );
  await app.post(`${sessions[0]?.path}/invocations`, { newMessage: text('mine') });
  const path = `${D}/eval-runs/${(body as { runId: string }).runId}`;
  // Again, because its process may have renewed the lease.
  const findRun = async () => (await expire(), (await app.get(path)).body);
  await expect.poll(findRun).toMatchObject({ status: 'done', counts: { errors: 1 } });
  const { rows } = await sql.query('select session_count, failed_turn, error from eval_run_cases');
  expect(rows).toEqual([
    { session_count: 1, failed_turn: 0, error: expect.stringContaining('which happened 2 times') as string },
  ]);
});

test('cases of more runs than a process has places for leave room for a user, and all come to an end', async () => {
  const PLACES = 16;
  const provider = await startHeldProvider();
  closing.push(() => provider.close());
  const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'fake', MODEL_BASE_URL: provider.baseUrl };
  const app = await startApp(model);
  closing.push(() => app.close());
  const cases = Array.from({ length: PLACES }, (_, n) => ({ evalId: `c${n}`, conversation: [turn('a', 'At last.')] }));
  await set(app, 's', cases);
  const start = () => app.post(`${D}/eval-runs`, { evalSetId: 's', evalMetrics: [MATCH], parallelism: PLACES });
  const runs = [await start(), await start()].map(({ body }) => (body as { runId: string }).runId);
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  closing.push(() => sql.end());
  const counts = async () => {
    const { rows } = await sql.query<{ turns: number; waiting: number; others: number }>(`
      select waiting, turns, others
      from (select count(*)::int as waiting from jobs where kind = 'evaluation' and lease_token is null) queued,
           (select count(*) filter (where job is not null)::int as turns,
                   count(*) filter (where job is null)::int as others
            from invocations where status = 'running') running`);
    return rows[0];
  };
  await expect.poll(counts).toEqual({ turns: PLACES, waiting: PLACES, others: 0 });
  await app.post('/apps/harness_agent/users/u/sessions', { sessionId: 'hers' });
  await app.post('/apps/harness_agent/users/u/sessions/hers/invocations', { newMessage: text('a') });
  await expect.poll(counts).toEqual({ turns: PLACES, waiting: PLACES, others: 1 });
  provider.release();
  for (const runId of runs) {
    const frames = (await app.get(`${D}/eval-runs/${runId}/stream`)).text.trim().split('\n\n');
    const end = JSON.parse(frames.at(-1)?.replace('data: ', '') ?? '') as object;
    expect(end).toMatchObject({ status: 'done', counts: { total: PLACES, passed: PLACES } });
  }
});

test('a case that has held its place for a minute gives it to another one between two turns, and goes on', async () => {
  const provider = await startHeldProvider();
  closing.push(() => provider.close());
  const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'fake', MODEL_BASE_URL: provider.baseUrl };
  const app = await startApp(model);
  closing.push(() => app.close());
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  closing.push(() => sql.end());
  await sql.query(`
    create table taken (id text, token uuid);
    create function note_taken() returns trigger language plpgsql security definer as $$
      begin insert into taken values (new.id, new.lease_token); return null; end $$;
    create trigger taken after update of lease_token on jobs for each row
      when (new.lease_token is not null and new.kind = 'evaluation') execute function note_taken()`);
  await set(app, 's', [{ evalId: 'a', conversation: [turn('a', 'At last.'), turn('b', 'At last.')] }]);
  const { body } = await app.post(`${D}/eval-runs`, { evalSetId: 's', evalMetrics: [MATCH] });
  await provider.requested;
  const now = performance.now.bind(performance);
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + 61_000);
  try {
    provider.release();
    const path = `${D}/eval-runs/${(body as { runId: string }).runId}`;
    const ended = { status: 'done', counts: { total: 1, passed: 1 } };
    await expect.poll(async () => (await app.get(path)).body).toMatchObject(ended);
  } finally {
    clock.mockRestore();
  }
  const { rows } = await sql.query('select count(distinct token)::int as n from taken');
  expect(rows).toEqual([{ n: 2 }]);
});

test('a process that stops gives its case back; the next one goes on with its turn', async () => {
  const provider = await startFakeProvider('openai-compatible', [
    { text: ['one'] },
    { stop: 'silent' },
    { text: ['two'] },
  ]);
  closing.push(() => provider.close());
  const database = await createTestDatabase();
  closing.push(() => database.drop());
  const settings = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'fake', MODEL_BASE_URL: provider.baseUrl };
  // The hand-over needs a tenth of it.
  const first = await startOn(database.url, { ...settings, SHUTDOWN_GRACE_MS: '10000' });
  const before = client(first.url);
  await set(before, 's', [{ evalId: 'a', conversation: [turn('a', 'one'), turn('b', 'two')] }]);
  const { body } = await before.post(`${D}/eval-runs`, { evalSetId: 's', evalMetrics: [MATCH] });
  const path = `${D}/eval-runs/${(body as { runId: string }).runId}`;
  await expect.poll(() => provider.requests.length).toBe(2);
  await first.close();
  const second = await startOn(database.url, settings);
  closing.push(() => second.close());
  const after = client(second.url);
  const frames = (await after.get(`${path}/stream`)).text.trim().split('\n\n');
  const end = JSON.parse(frames.at(-1)?.replace('data: ', '') ?? '') as { evalSetResultId: string };
  expect(end).toMatchObject({ status: 'done', counts: { total: 1, passed: 1, errors: 0 } });
  const result = (await after.get(`${D}/eval-results/${end.evalSetResultId}`)).body as { evalCaseResults: Failed[] };
  expect(
    result.evalCaseResults.map((one) =>
      one.evalMetricResultPerInvocation.map(({ actualInvocation }) => actualInvocation.finalResponse),
    ),
  ).toEqual([[text('one', 'model'), text('two', 'model')]]);
  expect(provider.requests).toHaveLength(3);
});

describe('users of tokens', () => {
  test('a run is the one who requested it only, and speaks as nobody else', async () => {
    const key = await signingKey('ES256', 'one');
    const issuer = await startIssuer([key.jwk]);
    closing.push(() => issuer.close());
    const tokenOf = async (user: string) => {
      const claims = new SignJWT({ sub: user, scope: 'invoke read write develop' }).setProtectedHeader({
        alg: 'ES256',
        kid: 'one',
      });
      const made = claims.setIssuer(issuer.url).setAudience('runtime').setExpirationTime('2h');
      return { authorization: `Bearer ${await made.sign(key.privateKey)}` };
    };
    const [alice, bob] = [await tokenOf('alice'), await tokenOf('bob')];
    const app = await startApp({ JWT_ISSUER: issuer.url, JWT_AUDIENCE: 'runtime', JWT_SCOPE_CLAIM: 'scope' });
    closing.push(() => app.close());
    const sessionInput = { appName: 'harness_agent', userId: 'alice', state: {} };
    const cases = [
      { evalId: 'anybody', conversation: [turn('a', 'b')] },
      { evalId: 'hers', conversation: [turn('a', 'b')], sessionInput },
    ];
    await set(app, 's', cases, alice);
    await set(app, 'his', cases, bob);
    const run = async (evalSetId: string, evalIds: string[], who: Record<string, string>) =>
      app.post(`${D}/eval_sets/${evalSetId}/run_eval`, { evalIds, evalMetrics: [] }, who);
    const absent = await run('s', [], bob);
    expect([absent.status, absent.body]).toEqual([404, { detail: 'Eval set `s` not found.' }]);
    const asBob = await run('his', ['hers'], bob);
    expect([asBob.status, asBob.body]).toEqual([404, { detail: 'Eval case `hers` not found in eval set `his`.' }]);
    expect((await run('his', ['anybody'], bob)).body).toMatchObject([{ evalId: 'anybody', userId: 'bob' }]);
    const asAlice = (await run('s', [], alice)).body;
    expect(asAlice).toMatchObject([
      { evalId: 'anybody', userId: 'alice' },
      { evalId: 'hers', userId: 'alice' },
    ]);
    const [hers] = (await app.get(`${D}/eval-runs`, alice)).body as { runId: string; evalSetResultId: string }[];
    const paths = [
      `eval-runs/${hers?.runId}`,
      `eval-runs/${hers?.runId}/stream`,
      `eval-results/${hers?.evalSetResultId}`,
    ];
    for (const path of paths) {
      expect([path, (await app.get(`${D}/${path}`, bob)).status]).toEqual([path, 404]);
      expect([path, (await app.get(`${D}/${path}`, alice)).status]).toEqual([path, 200]);
    }
    expect((await app.send('DELETE', `${D}/eval-runs/${hers?.runId}`, undefined, bob)).status).toBe(404);
    expect((await app.get(`${D}/eval_results`, bob)).body).toHaveLength(1);
    expect((await app.get(`${D}/eval-runs`, bob)).body).toHaveLength(1);
  });
});

test('a request for a confirmation is no call of the trajectory, and leaves no open task', async () => {
  const lend = tool('lend', async () => ({ lent: true }), { needsConfirmation: true });
  const app = await startApp({}, { agents: hostScript([[callPart('lend')]], [lend]), sweepIntervalMs: 50 });
  closing.push(() => app.close());
  const expected = { userContent: text('Lend.'), intermediateData: { toolUses: [{ name: 'lend', args: {} }] } };
  await set(app, 'lending', [{ evalId: 'a', conversation: [expected] }]);
  const metrics = [{ metricName: 'tool_trajectory_avg_score', threshold: 1 }];
  const { body } = await app.post(`${D}/eval-sets/lending/run`, { evalMetrics: metrics });
  const [result] = (body as { runEvalResults: { sessionId: string; finalEvalStatus: number }[] }).runEvalResults;
  expect(result?.finalEvalStatus).toBe(1);
  const [run] = (await app.get(`${D}/eval-runs?evalSetId=lending`)).body as { runId: string }[];
  const summary = await app.get(`${D}/eval-runs/${run?.runId}/summary`);
  expect(summary.body).toMatchObject({ cases: [{ scores: { tool_trajectory_avg_score: 1 } }] });
  expect(summary.text).not.toContain('"reason"');
  await expect.poll(async () => (await app.get('/tasks')).body).toMatchObject({ items: [] });
  const invocations = async () => (await app.get('/apps/harness_agent/invocations')).text;
  await expect.poll(invocations).toContain('"cancelled"');
});
