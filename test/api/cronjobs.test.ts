import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { SignJWT } from 'jose';
import { describe, expect, test } from 'vitest';
import { type Answer, startApp, type TestApp, testApp } from '../support/app.ts';
import { gatedAgents, hostScript } from '../support/agents.ts';
import { signingKey, startIssuer } from '../support/issuer.ts';
import { AgentError } from '../../src/core/errors.ts';
import { HOSTILE_SCHEDULES } from '../data/cronjobs/hostile-schedules.ts';

const JOBS = '/harness/cronjobs';
const HOOKS = '/harness/webhooks';
const DAILY = { type: 'daily', time: '08:00', timezone: 'Europe/Berlin' };
const FAR = { type: 'once', onceAt: '2900-01-01T00:00:00Z' };
const ISO = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/) as unknown;
const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/) as unknown;

interface Run {
  runId: string;
  status: string;
  sessionId: string;
  invocationId: string;
}

const newOwner = () => `owner-${randomUUID()}`;
const jobOf = ({ status, body }: Answer): { jobId: string; ownerId: string; revision: number } => {
  expect([status, body]).toEqual([201, expect.anything()]);
  return body as never;
};
type Caller = Pick<TestApp, 'get' | 'post' | 'send'>;
const create = async (app: Caller, more: object = {}) =>
  jobOf(await app.post(JOBS, { ownerId: newOwner(), name: 'n', prompt: 'hello', schedule: FAR, ...more }));
/** Waits for a run to end: the interface says when it has. */
const ended = async (app: Caller, jobId: string, runId: string): Promise<Run> => {
  for (;;) {
    const { body } = await app.get(`${JOBS}/${jobId}/runs/${runId}`);
    const run = body as Run;
    if (!['queued', 'running', 'retrying'].includes(run.status)) return run;
    await sleep(20);
  }
};
const runNow = async (app: Caller, jobId: string): Promise<Run> => {
  const { status, body } = await app.post(`${JOBS}/${jobId}/run`);
  expect([status, body]).toEqual([202, expect.anything()]);
  return body as Run;
};

describe('with CRONJOBS=true', () => {
  const app = testApp({ CRONJOBS: 'true' });

  test('a cronjob is created with its defaults and its next time, and read again', async () => {
    const ownerId = newOwner();
    const { status, body } = await app.post(JOBS, { ownerId, name: ' Sums ', prompt: 'hello', schedule: DAILY });
    const job = {
      jobId: UUID,
      ownerId,
      appName: 'harness_agent',
      name: 'Sums',
      prompt: 'hello',
      schedule: DAILY,
      enabled: true,
      sessionPolicy: 'new',
      missedRuns: 'once',
      overlap: 'skip',
      maxAttempts: 3,
      retryPauseSeconds: 30,
      maxRetryPauseSeconds: 600,
      maxFailures: 10,
      nextRunAt: ISO,
      runCount: 0,
      failureCount: 0,
      revision: 1,
      createdAt: ISO,
      updatedAt: ISO,
    };
    expect([status, body]).toEqual([201, job]);
    const { jobId } = body as { jobId: string };
    expect(await app.get(`${JOBS}/${jobId}`)).toMatchObject({ status: 200, body });
  });

  test('texts that PostgreSQL refuses come back as they were sent', async () => {
    const [name, prompt] = ['a\u0000b', `\ue000 \u0000 x`];
    const harness = { system_prompt: 'be \u0000 brief' };
    const { jobId } = await create(app, { name, prompt, harness });
    expect((await app.get(`${JOBS}/${jobId}`)).body).toMatchObject({ name, prompt, harness });
  });

  test('the owner may be called userId, and must be named', async () => {
    const body = { name: 'n', prompt: 'p', schedule: FAR };
    expect((await app.post(JOBS, { ...body, userId: 'u9' })).body).toMatchObject({ ownerId: 'u9' });
    expect(await app.post(JOBS, body)).toMatchObject({
      status: 422,
      body: { detail: [{ type: 'missing', loc: ['body', 'ownerId'], msg: 'Field required', input: null }] },
    });
    expect(await app.get(JOBS)).toMatchObject({
      status: 422,
      body: { detail: [{ type: 'missing', loc: ['query', 'ownerId'], msg: 'Field required', input: null }] },
    });
  });

  test.each([
    [{ name: '  ' }, ['name'], 'Value error, this must not be blank'],
    [{ prompt: '' }, ['prompt'], 'Value error, this must not be blank'],
    [{ maxAttempts: 11 }, ['maxAttempts'], 'Input should be less than or equal to 10'],
    [{ overlap: 'wait' }, ['overlap'], "Input should be 'queue', 'skip' or 'replace'"],
    [{ runtimeId: 'r' }, ['runtimeId'], 'Extra inputs are not permitted'],
    [{ sessionId: 's' }, ['sessionId'], 'Value error, only the sessionPolicy fixed has a session of its own'],
  ])('%j is refused', async (wrong, loc, msg) => {
    const { status, body } = await app.post(JOBS, { ownerId: 'u', name: 'n', prompt: 'p', schedule: FAR, ...wrong });
    const { detail } = body as { detail: { loc: unknown; msg: string }[] };
    expect([status, detail.map((each) => [each.loc, each.msg])]).toEqual([422, [[['body', ...loc], msg]]]);
  });

  test('sixty hostile schedules are refused where they are wrong, when created and when previewed', async () => {
    for (const { schedule, until, at, says } of HOSTILE_SCHEDULES) {
      const given = { schedule, ...(until === undefined ? {} : { until }) };
      const answers = [
        await app.post(`${JOBS}/preview`, given),
        await app.post(JOBS, { ownerId: 'hostile', name: 'n', prompt: 'p', ...given }),
      ];
      for (const { status, body } of answers) {
        const [first] = (body as { detail: { loc: unknown; msg: string }[] }).detail;
        expect([JSON.stringify(schedule)?.slice(0, 80), status, first]).toEqual([
          JSON.stringify(schedule)?.slice(0, 80),
          422,
          expect.objectContaining({ loc: ['body', 'schedule', ...at], msg: expect.stringMatching(says) as unknown }),
        ]);
      }
    }
    expect((await app.get(`${JOBS}?ownerId=hostile`)).body).toEqual({ items: [] });
  });

  test('a preview shows the next ten times, before an end', async () => {
    const { body } = await app.post(`${JOBS}/preview`, { schedule: { ...DAILY, timezone: 'UTC' } });
    const { times } = body as { times: string[] };
    expect(times).toHaveLength(10);
    for (const time of times) expect(time).toMatch(/T08:00:00\.000Z$/);
    const until = (times[2] ?? '').slice(0, -5);
    const short = await app.post(`${JOBS}/preview`, { schedule: { ...DAILY, timezone: 'UTC' }, until });
    expect(short.body).toEqual({ times: times.slice(0, 2) });
  });

  test('a change raises the revision; a stale one is refused, an empty one too', async () => {
    const { jobId } = await create(app, { until: '2999-01-01T00:00:00Z', maxRuns: 3 });
    const change = (body: object) => app.send('PATCH', `${JOBS}/${jobId}`, body);
    expect(await change({ name: 'b', expectedRevision: 1 })).toMatchObject({ status: 200, body: { revision: 2 } });
    expect(await change({ name: 'c', expectedRevision: 1 })).toMatchObject({
      status: 409,
      body: { detail: 'The cronjob has revision 2 by now, not 1.' },
    });
    const { status, body } = await change({ schedule: DAILY, until: null, maxRuns: null, sessionPolicy: 'fixed' });
    expect([status, body]).toEqual([
      200,
      expect.objectContaining({ name: 'b', schedule: DAILY, revision: 3, sessionId: `cronjob-${jobId}` }),
    ]);
    expect(Object.keys(body as object)).not.toContain('until');
    expect(Object.keys(body as object)).not.toContain('maxRuns');
    for (const empty of [{}, { expectedRevision: 3 }]) {
      expect(await change(empty)).toMatchObject({ status: 422, body: { detail: [{ loc: ['body'] }] } });
    }
  });

  test('disabled it has no next time and does not run; enabled it has one again; twice is once', async () => {
    const { jobId } = await create(app);
    for (let n = 0; n < 2; n++) {
      const { body } = await app.post(`${JOBS}/${jobId}/disable`);
      expect(body).toMatchObject({ enabled: false, revision: 2 });
      expect(body).not.toHaveProperty('nextRunAt');
    }
    expect(await app.post(`${JOBS}/${jobId}/run`)).toMatchObject({
      status: 409,
      body: { detail: 'Enable this cronjob before running it.' },
    });
    for (let n = 0; n < 2; n++) {
      const { body } = await app.post(`${JOBS}/${jobId}/enable`);
      expect(body).toMatchObject({ enabled: true, revision: 3, nextRunAt: '2900-01-01T00:00:00.000Z' });
    }
  });

  test('a run is an invocation in a session of its own, and stands in the list', async () => {
    const { jobId, ownerId } = await create(app, { prompt: 'What is 17 * 23? Use the calculator.' });
    const queued = await runNow(app, jobId);
    expect(queued).toEqual({
      runId: UUID,
      jobId,
      ownerId,
      status: 'queued',
      scheduledAt: ISO,
      manual: true,
      attempt: 0,
      createdAt: ISO,
      nextAttemptAt: ISO,
    });
    const run = await ended(app, jobId, queued.runId);
    expect(run).toEqual({
      runId: queued.runId,
      jobId,
      ownerId,
      status: 'success',
      scheduledAt: ISO,
      manual: true,
      attempt: 1,
      createdAt: ISO,
      startedAt: ISO,
      finishedAt: ISO,
      sessionId: queued.runId,
      invocationId: expect.stringMatching(/^e-/) as unknown,
      output: expect.stringContaining('391') as unknown,
    });
    const session = `/apps/harness_agent/users/${ownerId}/sessions/${run.sessionId}`;
    expect((await app.get(`${session}/invocations`)).body).toMatchObject([
      { id: run.invocationId, status: 'succeeded', toolCalls: 1 },
    ]);
    expect((await app.get(`${JOBS}/${jobId}/runs`)).body).toEqual({ items: [run] });
    expect((await app.get(`${JOBS}/${jobId}`)).body).toMatchObject({ latestRun: run, runCount: 0, revision: 1 });
  });

  test('with a fixed session the runs grow one session; pages of runs hold each once', async () => {
    const { jobId, ownerId } = await create(app, { sessionPolicy: 'fixed', sessionId: 'diary' });
    const runs: string[] = [];
    for (let n = 0; n < 3; n++) {
      const { runId } = await runNow(app, jobId);
      expect((await ended(app, jobId, runId)).sessionId).toBe('diary');
      runs.unshift(runId);
    }
    const { body } = await app.get(`/apps/harness_agent/users/${ownerId}/sessions/diary`);
    expect((body as { events: { author: string }[] }).events.filter(({ author }) => author === 'user')).toHaveLength(3);
    const first = (await app.get(`${JOBS}/${jobId}/runs?limit=2`)).body as { items: Run[]; nextCursor: string };
    const second = (await app.get(`${JOBS}/${jobId}/runs?limit=2&cursor=${first.nextCursor}`)).body as typeof first;
    expect([...first.items, ...second.items].map(({ runId }) => runId)).toEqual(runs);
    expect(second).not.toHaveProperty('nextCursor');
  });

  test('a key makes a POST once: the same answer, one cronjob, one run', async () => {
    const key = { 'idempotency-key': randomUUID() };
    const ownerId = newOwner();
    const body = { ownerId, name: 'n', prompt: 'hello', schedule: FAR };
    const [first, again] = [await app.post(JOBS, body, key), await app.post(JOBS, body, key)];
    expect([first.status, again.status, again.text]).toEqual([201, 201, first.text]);
    const { jobId } = jobOf(first);
    const run = () => app.post(`${JOBS}/${jobId}/run`, undefined, key);
    const [begun, repeated] = [await run(), await run()];
    expect([begun.status, repeated.status, repeated.text]).toEqual([202, 202, begun.text]);
    await ended(app, jobId, (begun.body as Run).runId);
    expect((await app.get(`${JOBS}/${jobId}/runs`)).body).toMatchObject({ items: [{ status: 'success' }] });
    expect((await app.get(`${JOBS}?ownerId=${ownerId}`)).body).toMatchObject({ items: [{ jobId }] });
  });

  test('overrides of the cronjob hold for its runs; what fails says why', async () => {
    const { jobId } = await create(app, { harness: { tools: ['no_such_tool'] }, maxFailures: 1 });
    const run = await ended(app, jobId, (await runNow(app, jobId)).runId);
    expect(run).toMatchObject({ status: 'failed', error: { code: 'unknown_tool' } });
    expect((await app.get(`${JOBS}/${jobId}`)).body).toMatchObject({
      enabled: false,
      failureCount: 1,
      disabledReason: expect.stringMatching(/^It failed 1 times in a row; the last time: .*no_such_tool/) as unknown,
    });
  });

  test('deleted with its runs; their sessions stay', async () => {
    const { jobId, ownerId } = await create(app);
    const { sessionId } = await ended(app, jobId, (await runNow(app, jobId)).runId);
    const { status, text } = await app.send('DELETE', `${JOBS}/${jobId}`);
    expect([status, text]).toEqual([200, 'null']);
    expect((await app.get(`${JOBS}/${jobId}`)).status).toBe(404);
    expect((await app.get(`/apps/harness_agent/users/${ownerId}/sessions/${sessionId}`)).status).toBe(200);
  });

  test('the clock of a cronjob fires it: a time that has just come is run for, and the once is over', async () => {
    const onceAt = new Date(Date.now() + 4_000).toISOString();
    const { jobId } = await create(app, { schedule: { type: 'once', onceAt } });
    let items: Run[] = [];
    while (items.length === 0) {
      await sleep(50);
      ({ items } = (await app.get(`${JOBS}/${jobId}/runs`)).body as { items: Run[] });
    }
    const run = await ended(app, jobId, items[0]?.runId ?? '');
    expect(run).toMatchObject({ status: 'success', scheduledAt: onceAt, manual: false });
    expect((await app.get(`${JOBS}/${jobId}`)).body).toMatchObject({
      enabled: false,
      disabledReason: 'Its schedule has come to its end.',
      runCount: 1,
    });
  });
});

describe('limits', () => {
  const ALLOWED = 'CRONJOBS_MIN_INTERVAL_SECONDS allows 3600 s and more';
  const app = testApp({ CRONJOBS: 'true', CRONJOBS_MAX_PER_USER: '1', CRONJOBS_MIN_INTERVAL_SECONDS: '3600' });
  test('refusals name the setting', async () => {
    const { ownerId } = await create(app);
    expect(await app.post(JOBS, { ownerId, name: 'n', prompt: 'p', schedule: FAR })).toMatchObject({
      status: 409,
      body: { detail: 'The user has 1 cronjobs; CRONJOBS_MAX_PER_USER allows 1. Delete one first.' },
    });
    for (const schedule of [
      { type: 'interval', intervalSeconds: 60 },
      { type: 'cron', cron: '*/1 * * * *' },
      { type: 'cron', cron: '0,1 8 * * *' },
    ]) {
      expect(await app.post(`${JOBS}/preview`, { schedule })).toMatchObject({
        status: 422,
        body: {
          detail: [
            {
              loc: ['body', 'schedule'],
              msg: `Value error, The schedule fires 60 s after a run; ${ALLOWED}.`,
            },
          ],
        },
      });
    }
  });
});

test('in mode jwt a user sees and runs only their own cronjobs, and names no other owner, of webhooks neither', async () => {
  const key = await signingKey('ES256', 'one');
  const issuer = await startIssuer([key.jwk]);
  const signedIn = { JWT_ISSUER: issuer.url, JWT_AUDIENCE: 'runtime', DEV_UI: 'false' };
  const app = await startApp({ CRONJOBS: 'true', WEBHOOKS: 'true', ...signedIn });
  const tokenOf = async (user: string) => {
    const claims = new SignJWT({ sub: user }).setProtectedHeader({ alg: 'ES256', kid: 'one' }).setIssuer(issuer.url);
    const token = await claims.setAudience('runtime').setExpirationTime('2h').sign(key.privateKey);
    return { authorization: `Bearer ${token}` };
  };
  const [alice, bob] = [await tokenOf('alice'), await tokenOf('bob')];
  const body = { name: 'n', prompt: 'hello', schedule: FAR };
  const { jobId, ownerId } = jobOf(await app.post(JOBS, body, alice));
  expect(ownerId).toBe('alice');
  const foreign = { status: 404, text: '{"detail":"User not found: alice"}' };
  expect(await app.post(JOBS, { ...body, ownerId: 'alice' }, bob)).toMatchObject(foreign);
  expect(await app.get(`${JOBS}?ownerId=alice`, bob)).toMatchObject(foreign);
  expect(await app.post(HOOKS, { ownerId: 'alice', url: 'https://example.com/' }, bob)).toMatchObject(foreign);
  expect(await app.get(`${HOOKS}?ownerId=alice`, bob)).toMatchObject(foreign);
  expect((await app.get(JOBS, bob)).body).toEqual({ items: [] });
  expect((await app.get(JOBS, alice)).body).toMatchObject({ items: [{ jobId }] });
  const { runId } = (await app.post(`${JOBS}/${jobId}/run`, undefined, alice)).body as Run;
  const asAlice: Caller = {
    get: (path) => app.get(path, alice),
    post: (path, sent) => app.post(path, sent, alice),
    send: (method, path, sent) => app.send(method, path, sent, alice),
  };
  expect((await ended(asAlice, jobId, runId)).status).toBe('success');
  await app.close();
  await issuer.close();
});

describe('while a run goes on', () => {
  const withGate = async (work: (app: TestApp, gate: ReturnType<typeof gatedAgents>) => Promise<void>) => {
    const gate = gatedAgents();
    const app = await startApp({ CRONJOBS: 'true' }, { agents: gate.agents });
    await work(app, gate);
    await app.close();
  };
  const getRun = async (app: TestApp, jobId: string, { runId }: Run) =>
    (await app.get(`${JOBS}/${jobId}/runs/${runId}`)).body as Run;

  test('its cronjob cannot be deleted, another run waits, and each can be cancelled', () =>
    withGate(async (app, gate) => {
      const { jobId } = await create(app);
      const first = await runNow(app, jobId);
      await gate.entered(1);
      expect(await app.send('DELETE', `${JOBS}/${jobId}`)).toMatchObject({
        status: 409,
        body: { detail: 'Stop the active run before deleting this cronjob.' },
      });
      const [second, third] = [await runNow(app, jobId), await runNow(app, jobId)];
      const cancel = async ({ runId }: Run) => (await app.post(`${JOBS}/${jobId}/runs/${runId}/cancel`)).body;
      expect(await cancel(third)).toMatchObject({ status: 'cancelled', cancellationRequestedAt: ISO, attempt: 0 });
      expect((await getRun(app, jobId, second)).status).toBe('queued');
      expect(await cancel(first)).toMatchObject({ status: 'running', cancellationRequestedAt: ISO });
      expect(await ended(app, jobId, first.runId)).toMatchObject({
        status: 'cancelled',
        error: { code: 'cancelled', message: 'The invocation was cancelled.' },
      });
      await gate.entered(2);
      gate.open(); // of the cancelled one, which nobody awaits any more
      gate.open();
      expect(await ended(app, jobId, second.runId)).toMatchObject({ status: 'success', output: 'answer 2' });
      expect(await cancel(second)).toMatchObject({ status: 'success' });
      expect((await app.get(`${JOBS}/${jobId}`)).body).toMatchObject({ failureCount: 0 });
    }));

  test('over its time it ends as failed', () =>
    withGate(async (app, gate) => {
      const { jobId } = await create(app, { timeoutSeconds: 1 });
      const { runId } = await runNow(app, jobId);
      await gate.entered(1);
      expect(await ended(app, jobId, runId)).toMatchObject({
        status: 'failed',
        attempt: 1,
        error: { code: 'time_limit', message: 'The run took longer than its limit of 1 s.' },
      });
    }));
});

test('a failure that passes is tried again after a pause, in a session of its own', async () => {
  const agents = hostScript([new AgentError('model_unavailable', 'The model is away.'), [{ text: 'back' }]]);
  const app = await startApp({ CRONJOBS: 'true' }, { agents });
  const { jobId } = await create(app, { retryPauseSeconds: 1 });
  const { runId } = await runNow(app, jobId);
  const run = await ended(app, jobId, runId);
  expect(run).toMatchObject({ status: 'success', attempt: 2, sessionId: `${runId}-2`, output: 'back' });
  expect(run).not.toHaveProperty('error');
  await app.close();
});
