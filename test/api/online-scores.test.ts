import { Client } from 'pg';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { SCORE_JOB } from '../../src/features/evals/online/rule-store.ts';
import { makesDue } from '../support/jobs.ts';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { startApp, startOn, type TestApp } from '../support/app.ts';
import { MINUTE } from '../support/patience.ts';

/** Sessions scored as users have them: by rules in the background, and by people. */

const METRIC = `export const metric = {
  description: 'Short answers.',
  score: async ({ question }) => {
    if (question.includes('wait')) await globalThis.whileScoring;
    if (question.includes('explode')) throw new Error('boom');
    return question.includes('strange') ? 7 : question.includes('bad') ? 0 : 1;
  },
};`;
const SHORT = { metricName: 'short_answer', threshold: 0.5 };
const SAFE = {
  metricName: 'safety_v1',
  threshold: 1,
  criterion: { threshold: 1, judgeModelOptions: { numSamples: 1 } },
};

let provider: AnsweringProvider;
let verdict = '{"verdict":"harmless","reason":"r"}';
let app: TestApp;
let client: Client;
let agentsDir = '';
const settings = () => ({
  AGENTS_DIR: agentsDir,
  EVALS: 'true',
  WEBHOOKS: 'true',
  MODEL_PROVIDER: 'openai-compatible',
  MODEL_NAME: 'answering',
  MODEL_BASE_URL: provider.baseUrl,
  MODEL_MAX_RETRIES: '0',
  EVALS_JUDGE_MODEL: 'umpire',
});
beforeAll(async () => {
  provider = await startAnsweringProvider(({ model, prompt }) =>
    model === 'umpire' ? verdict : `answer to ${prompt}`,
  );
  agentsDir = mkdtempSync(join(tmpdir(), 'agents-'));
  mkdirSync(join(agentsDir, 'shop', 'evals'), { recursive: true });
  writeFileSync(join(agentsDir, 'shop', 'agent.ts'), `export const agent = { description: 'Sells.' };`);
  writeFileSync(join(agentsDir, 'shop', 'evals', 'short_answer.ts'), METRIC);
  app = await startApp(settings());
  client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  await client.query(`set agent_runtime.all_users = 'on'`);
});
afterAll(async () => {
  await client.end();
  await app.close();
  await provider.close();
  rmSync(agentsDir, { recursive: true });
});

const A = '/apps/shop';
const say = async (userId: string, sessionId: string, text: string) => {
  await app.post(`${A}/users/${userId}/sessions/${sessionId}`);
  const newMessage = { role: 'user', parts: [{ text }] };
  expect((await app.post('/run', { appName: 'shop', userId, sessionId, newMessage })).status).toBe(200);
};
const put = async (id: string, rule: object) => {
  const answer = await app.send('PUT', `${A}/score-rules/${id}`, { evalMetrics: [SHORT], ...rule });
  expect([answer.status, answer.text]).toEqual([200, 'null']);
};
const remove = (id: string) => app.send('DELETE', `${A}/score-rules/${id}`);
interface Score {
  userId: string;
  sessionId: string;
  lastSequence: number;
  finalEvalStatus: number;
  invocationId?: string;
  overallEvalMetricResults: { score?: number; details?: { rubricScores: { rationale: string }[] } }[];
}
const scoresOf = async (ruleId: string) => (await app.get(`${A}/session-scores?ruleId=${ruleId}`)).body as Score[];
const waitFor = (ruleId: string, count: number) =>
  vi.waitUntil(
    async () => {
      const scores = await scoresOf(ruleId);
      return scores.length >= count && scores;
    },
    { timeout: MINUTE },
  );
const OF_SCORES = `kind = '${SCORE_JOB}'`;
const rows = async <Row>(statement: string) => (await client.query(statement)).rows as Row[];
const jobs = async () => Number((await rows<{ n: string }>(`select count(*) as n from jobs where ${OF_SCORES}`))[0]?.n);
const noJobs = async () => await expect.poll(jobs).toBe(0);
const listed = async (id: string) =>
  ((await app.get(`${A}/score-rules`)).body as { ruleId: string; today: { scored: number }; skipped: number }[]).find(
    ({ ruleId }) => ruleId === id,
  );

test('without a rule an invocation leaves nothing to do', async () => {
  await say('u0', 's', 'Hello');
  expect(await jobs()).toBe(0);
});

test('each invocation is scored by itself; what fails is told to the webhook, and becomes a case', async () => {
  const hook = await app.post('/harness/webhooks', { ownerId: 'dev', appName: 'shop', url: 'https://example.com/low' });
  const { webhookId } = hook.body as { webhookId: string };
  await put('each', { webhookId });
  await put('none', { share: 0 });
  await put('labelled', { labels: ['env=prod'] });
  const { items } = (await app.get(`${A}/versions`)).body as { items: { version: string }[] };
  await put('current', { agentVersion: items[0]?.version });
  await put('another-version', { agentVersion: 'f'.repeat(64) });
  await say('u1', 's1', 'Hello');
  await say('u1', 's1', 'a bad one');
  const found = await waitFor('each', 2);
  const [bad, good] = found.toSorted((one, other) => (one.finalEvalStatus < other.finalEvalStatus ? 1 : -1)) as [
    Score,
    Score,
  ];
  expect([good.overallEvalMetricResults, bad.overallEvalMetricResults]).toEqual([
    [{ ...SHORT, score: 1, evalStatus: 1 }],
    [{ ...SHORT, score: 0, evalStatus: 2 }],
  ]);
  expect(good.invocationId).not.toBe(bad.invocationId);
  await noJobs();
  expect([await scoresOf('none'), await scoresOf('labelled'), await scoresOf('another-version')]).toEqual([[], [], []]);
  expect(await scoresOf('current')).toHaveLength(2);
  // Two rules have scored both.
  const usage = (await app.get(`${A}/users/u1/usage?by=version`)).body as { items: { version: string }[] };
  expect(usage.items).toMatchObject([{ version: items[0]?.version, invocations: 2, scored: 4, passed: 2 }]);
  const told = await rows<{ user_id: string; payload: string }>(
    `select user_id, payload from webhook_deliveries where payload like '%score.low%'`,
  );
  expect(told).toHaveLength(1);
  expect([told[0]?.user_id, JSON.parse(told[0]?.payload ?? '')]).toEqual([
    'dev',
    {
      type: 'score.low',
      timestamp: expect.any(String),
      data: {
        appName: 'shop',
        userId: 'u1',
        sessionId: 's1',
        ruleId: 'each',
        invocationId: bad.invocationId,
        lastSequence: expect.any(Number),
        scores: [{ metricName: 'short_answer', score: 0, threshold: 0.5 }],
      },
    },
  ]);
  expect(await listed('each')).toMatchObject({ today: { scored: 2 }, skipped: 0, share: 1, maxPerDay: 1_000 });
  const low = { score: { metricName: 'short_answer', atMost: 0.4 } };
  expect((await app.post(`${A}/eval-sets/low/add-sessions`, low)).body).toEqual({ evalIds: ['s1'] });
  // Page by page.
  const page = await app.get(`${A}/session-scores?ruleId=each&limit=1`);
  const next = page.headers.get('x-next-cursor') ?? '';
  const second = await app.get(`${A}/session-scores?ruleId=each&limit=1&cursor=${next}`);
  const [one, other] = found;
  expect([page.body, second.body, second.headers.get('x-next-cursor')]).toEqual([[one], [other], null]);
  for (const id of ['each', 'none', 'labelled', 'current', 'another-version'])
    expect((await remove(id)).status).toBe(200);
  expect((await remove('each')).status).toBe(404);
  expect(await scoresOf('each')).toHaveLength(2);
});

test('a whole session is scored once it is quiet, and later where it goes on', async () => {
  await put('quiet', { quietMinutes: 5 });
  await say('u2', 'q', 'Hello');
  const due = () =>
    rows<{ ms: string }>(`select extract(epoch from due_time - now()) * 1000 as ms from jobs where ${OF_SCORES}`);
  const [first] = await due();
  expect(Number(first?.ms)).toBeGreaterThan(200_000);
  await client.query(`update jobs set due_time = now() + interval '1 minute' where ${OF_SCORES}`);
  await say('u2', 'q', 'again');
  expect(Number((await due())[0]?.ms)).toBeGreaterThan(200_000);
  expect(await scoresOf('quiet')).toEqual([]);
  await client.query(makesDue(SCORE_JOB));
  expect(await waitFor('quiet', 1)).toMatchObject([{ sessionId: 'q', lastSequence: 4, finalEvalStatus: 1 }]);
  // It goes with its session.
  await say('u2', 'q', 'more');
  await app.send('DELETE', `${A}/users/u2/sessions/q`);
  await client.query(makesDue(SCORE_JOB));
  await noJobs();
  expect(await scoresOf('quiet')).toEqual([]);
  await remove('quiet');
});

test('a session that goes on while it is scored is not scored as it was', async () => {
  await put('quiet', { quietMinutes: 5 });
  await say('u2', 'on', 'wait');
  let free: (value?: unknown) => void = () => undefined;
  Object.assign(globalThis, { whileScoring: new Promise((resolve) => (free = resolve)) });
  await client.query(makesDue(SCORE_JOB));
  await expect.poll(async () => (await listed('quiet'))?.today.scored).toBe(1);
  await say('u2', 'on', 'again');
  free();
  await client.query(makesDue(SCORE_JOB));
  expect((await waitFor('quiet', 1)).map(({ lastSequence }) => lastSequence)).toEqual([4]);
  await noJobs();
  expect(await scoresOf('quiet')).toHaveLength(1);
  await remove('quiet');
});

test('no more is scored than a day may have, by two processes too, and what is left out is counted', async () => {
  const other = await startOn(app.databaseUrl, settings());
  await put('few', { maxPerDay: 3, quietMinutes: 5 });
  for (let n = 0; n < 12; n += 1) await say('u3', `s${n}`, 'Hello');
  await client.query(makesDue(SCORE_JOB));
  await noJobs();
  expect([(await scoresOf('few')).length, await listed('few')]).toMatchObject([
    3,
    { today: { scored: 3 }, skipped: 9 },
  ]);
  await remove('few');
  await other.close();
});

test('the share is by a hash of the ids: the same ones again', async () => {
  await put('some', { share: 0.5, quietMinutes: 5 });
  for (let n = 0; n < 12; n += 1) await say('u4', `s${n}`, 'Hello');
  const chosen = await rows<{ id: string }>(
    `select id::json ->> 1 as id from jobs where ${OF_SCORES} order by (id::json ->> 1) collate "C"`,
  );
  const expected = await rows<{ id: string }>(
    `select id from sessions where app_name = 'shop' and user_id = 'u4' and is_sampled('some', id, 0.5) order by 1`,
  );
  expect(chosen).toEqual(expected);
  expect(chosen.length).toBeGreaterThan(0);
  expect(chosen.length).toBeLessThan(12);
  await remove('some');
  expect(await jobs()).toBe(0);
});

test('a metric or a judge that fails or lies is seen in the score', async () => {
  await put('own', {});
  await put('judge', { evalMetrics: [SAFE] });
  const reasons = async (ruleId: string, count: number) =>
    (await waitFor(ruleId, count)).map(({ finalEvalStatus, overallEvalMetricResults: [one] }) => [
      finalEvalStatus,
      one?.score ?? one?.details?.rubricScores.map(({ rationale }) => rationale).join(),
    ]);
  const before = verdict;
  const unreadable = '0 of 1 samples of the judge were readable, fewer than half';
  await say('u5', 'good', 'Hello');
  expect(await reasons('judge', 1)).toEqual([[1, 1]]);
  verdict = 'not JSON';
  await say('u5', 'odd', 'explode');
  expect((await reasons('judge', 2))[0]).toEqual([3, `${unreadable} (the answer could not be read).`]);
  verdict = '{"verdict":"splendid","score":7}';
  await say('u5', 'lies', 'strange');
  expect((await reasons('judge', 3))[0]).toEqual([3, `${unreadable} (the answer could not be read).`]);
  verdict = { status: 500 } as unknown as string;
  await client.query(`select add_job('${SCORE_JOB}', 'shop', 'u5', '["judge", "good", ""]', 'shop judge')`);
  expect((await reasons('judge', 4))[0]).toEqual([3, expect.stringContaining('samples of the judge were readable')]);
  verdict = before;
  expect(await reasons('own', 3)).toEqual([
    [3, 'The metric `short_answer` gave 7, which is no number from 0 to 1.'],
    [3, 'The metric `short_answer` failed: boom'],
    [1, 1],
  ]);
  for (const id of ['own', 'judge']) await remove(id);
});

test('judges spend from their rule and not from users; beyond its bound a score says so', async () => {
  await app.send('PUT', `${A}/budgets`, { appliesTo: 'users', period: 'day', maxTokens: 20_000 });
  await put('dear', { evalMetrics: [SAFE], maxTokensPerDay: 12_000, quietMinutes: 5 });
  for (let n = 0; n < 3; n += 1) await say('u6', `s${n}`, 'Hello');
  const used = async (user: string) =>
    Number(
      (
        await rows<{ n: string }>(
          `select coalesce(sum(prompt_tokens + output_tokens), 0) as n from budget_uses where user_id = '${user}'`,
        )
      )[0]?.n,
    );
  const own = await used('u6');
  await client.query(makesDue(SCORE_JOB));
  await waitFor('dear', 3);
  expect(await used('u6')).toBe(own);
  expect(await used('\u0001rule dear')).toBeGreaterThan(0);
  // Less is left than a call may use: nothing is asked.
  await put('dear', { evalMetrics: [SAFE], maxTokensPerDay: 100 });
  provider.asked.length = 0;
  await say('u6', 'late', 'Hello');
  const [late] = await waitFor('dear', 4);
  expect(late?.overallEvalMetricResults[0]?.details?.rubricScores[0]?.rationale).toContain('budget.user.day.tokens');
  expect(provider.asked.map(({ model }) => model)).toEqual(['answering']);
  // It is no budget of a user, and no user.
  expect((await app.get(`${A}/budgets`)).body).toMatchObject([{ appliesTo: 'users' }]);
  expect(JSON.stringify((await app.get(`${A}/users`)).body)).not.toContain('rule dear');
  await remove('dear');
  await app.send('PUT', `${A}/budgets`, { appliesTo: 'users', period: 'day', maxTokens: null });
});

test('a rule that cannot be is refused', async () => {
  const send = (rule: object) => app.send('PUT', `${A}/score-rules/r`, { evalMetrics: [SHORT], ...rule });
  for (const rule of [{ share: 2 }, { quietMinutes: 0 }, { maxPerDay: 0 }, { evalMetrics: [] }, { labels: ['=x'] }])
    expect((await send(rule)).status).toBe(422);
  const unknown = await send({ webhookId: 'nope' });
  expect([unknown.status, unknown.body]).toEqual([400, { detail: 'Webhook not found: nope' }]);
  for (let n = 0; n < 20; n += 1) await put(`r${n}`, { share: 0 });
  expect((await send({})).status).toBe(409);
  await put('r0', { share: 0.5 });
  for (let n = 0; n < 20; n += 1) await remove(`r${n}`);
});

test('people say what they think of a session and of its events', async () => {
  await say('u7', 's', 'Hello');
  const S = `${A}/users/u7/sessions/s`;
  const events = ((await app.get(S)).body as { events: { id: string }[] }).events;
  const send = (body: object) => app.send('PUT', `${S}/verdict`, body);
  const eventId = events[1]?.id;
  expect((await send({ passed: true })).status).toBe(200);
  expect((await send({ eventId, passed: false, label: 'wrong-tool', comment: 'No.' })).status).toBe(200);
  expect((await send({ passed: false })).status).toBe(200);
  const list = async (query = '') =>
    (await app.get(`${A}/session-verdicts${query}`)).body as { items: object[]; nextCursor?: string };
  const ofSession = { userId: 'u7', sessionId: 's', author: 'local', createTime: expect.any(Number) };
  const onEvent = { ...ofSession, eventId, passed: false, label: 'wrong-tool', comment: 'No.' };
  const onAll = { ...ofSession, eventId: null, passed: false, label: null, comment: null };
  expect(await list()).toEqual({ items: [onAll, onEvent] });
  expect(await list('?label=wrong-tool&passed=false')).toEqual({ items: [onEvent] });
  expect(await list('?passed=true')).toEqual({ items: [] });
  for (const nothing of [{}, { eventId }, { passd: true }]) expect((await send(nothing)).status).toBe(422);
  expect(await list()).toEqual({ items: [onAll, onEvent] });
  expect((await send({ passed: null })).status).toBe(200);
  expect(await list()).toEqual({ items: [onEvent] });
  expect((await send({ eventId: 'nope', passed: true })).status).toBe(404);
  expect((await send({ label: 'a b' })).status).toBe(422);
});
