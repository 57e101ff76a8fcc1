import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';

/** Sessions of production as cases and with scores; metrics and the mask of an application; sets as files. */

const METRIC = `export const metric = {
  description: 'Short answers.',
  score: async ({ answer, question }) => {
    if (question.includes('vanish')) await globalThis.whileScoring();
    if (question.includes('explode')) throw new Error('boom');
    return question.includes('strange') ? 7 : answer.length < 40 ? 1 : 0;
  },
};`;
const MASK = `export const mask = async (evalCase) => {
  await globalThis.whileMasking?.();
  return JSON.parse(JSON.stringify(evalCase).replaceAll(/\\b\\d{4}-\\d{4}\\b/g, '<number>'));
};`;

let app: TestApp;
let agentsDir = '';
beforeAll(async () => {
  agentsDir = mkdtempSync(join(tmpdir(), 'agents-'));
  mkdirSync(join(agentsDir, 'shop', 'evals'), { recursive: true });
  writeFileSync(
    join(agentsDir, 'shop', 'agent.ts'),
    `export const agent = { description: 'Sells.', tools: ['calculator'], maxLlmCalls: 2 };`,
  );
  writeFileSync(join(agentsDir, 'shop', 'evals', 'short_answer.ts'), METRIC);
  writeFileSync(join(agentsDir, 'shop', 'evals', 'mask.ts'), MASK);
  app = await startApp({ AGENTS_DIR: agentsDir });
  await say('u1', 's1', 'What is 1 + 1? Use the calculator.');
  await say('u2', 's2', 'Call me at 5555-1234');
  await say('u2', 's3', 'Use calculator {"expression": "1 + 1"} and calculator {"expression": "2 + 2"}');
});
afterAll(async () => {
  await app.close();
  rmSync(agentsDir, { recursive: true });
});

const D = '/dev/apps/shop';
const say = async (userId: string, sessionId: string, text: string) => {
  await app.post(`/apps/shop/users/${userId}/sessions/${sessionId}`);
  const newMessage = { role: 'user', parts: [{ text }] };
  expect((await app.post('/run', { appName: 'shop', userId, sessionId, newMessage })).status).toBe(200);
};
const SHORT = { metricName: 'short_answer', threshold: 0.5 };
const reason = ({ metricName }: { metricName: string }, rationale: string) => ({
  rubricScores: [{ rubricId: metricName, rationale }],
});
const TRAJECTORY = { metricName: 'tool_trajectory_avg_score', threshold: 1 };
interface Score {
  sessionId: string;
  lastSequence: number;
  overallEvalMetricResults: object[];
}
const score = async (body: object) => {
  const { body: scores } = await app.post(`${D}/session-scores`, { evalMetrics: [SHORT], ...body });
  return (scores as Score[]).map(({ sessionId, lastSequence }) => [sessionId, lastSequence]);
};
const copy = (id: string, body: object) => app.post(`${D}/eval-sets/${id}/add-sessions`, body);

test('sessions are chosen by user, tool and keys, and become masked cases', async () => {
  expect((await copy('by_tool', { tool: 'calculator' })).body).toEqual({ evalIds: ['s3', 's1'] });
  expect((await copy('by_user', { users: ['u2'], limit: 1 })).body).toEqual({ evalIds: ['s3'] });
  expect((await copy('by_error', { hasError: true })).body).toEqual({ evalIds: [] });
  expect((await copy('by_time', { updatedBefore: 1 })).body).toEqual({ evalIds: [] });
  const keys = [
    { userId: 'u2', sessionId: 's2' },
    { userId: 'u1', sessionId: 's2' },
  ];
  expect((await copy('by_keys', { sessions: keys })).body).toEqual({ evalIds: ['s2'] });
  const { body } = await app.get(`${D}/eval-sets/by_keys/eval-cases/s2`);
  expect(body).toMatchObject({
    conversation: [{ userContent: { parts: [{ text: 'Call me at <number>' }] } }],
    sessionInput: { appName: 'shop', userId: 'u2' },
  });
  expect(JSON.stringify(body)).not.toContain('5555');
  // All of them or none.
  expect((await copy('by_keys', {})).status).toBe(409);
  expect((await app.get(`${D}/eval_sets/by_keys/evals`)).body).toEqual(['s2']);
});

test('sessions are chosen by their labels', async () => {
  await app.send('PATCH', '/apps/shop/users/u1/sessions/s1/labels', { env: 'prod', team: 'a' });
  await app.send('PATCH', '/apps/shop/users/u2/sessions/s2/labels', { env: 'test' });
  expect((await copy('by_value', { labels: ['env=prod'] })).body).toEqual({ evalIds: ['s1'] });
  expect((await copy('by_name', { labels: ['env'], users: ['u2'] })).body).toEqual({ evalIds: ['s2'] });
  expect((await copy('by_both', { labels: ['env', 'team=a'] })).body).toEqual({ evalIds: ['s1'] });
  expect((await copy('by_none', { labels: ['env=other'] })).body).toEqual({ evalIds: [] });
  expect((await copy('by_bad', { labels: ['=x'] })).status).toBe(422);
});

test('a session that is deleted between its choice and its copy is left out', async () => {
  for (const id of ['goes', 'stays', 'goes_too']) await say('u4', id, 'Say hello');
  // The first mask, of the session last updated, runs before the second is read and before any case is inserted.
  const removeBoth = async () => {
    for (const id of ['goes', 'goes_too']) await app.send('DELETE', `/apps/shop/users/u4/sessions/${id}`);
  };
  Object.assign(globalThis, { whileMasking: removeBoth });
  const copied = await copy('deleted', { users: ['u4'] });
  Object.assign(globalThis, { whileMasking: undefined });
  expect([copied.status, copied.body]).toEqual([200, { evalIds: ['stays'] }]);
  expect((await app.get(`${D}/eval_sets/deleted/evals`)).body).toEqual(['stays']);
});

test('a session is scored once as it is, and again when it goes on; sets are chosen by scores', async () => {
  expect(await score({ users: ['u1'] })).toEqual([['s1', 4]]);
  expect(await score({ users: ['u1'] })).toEqual([]);
  await say('u1', 's1', 'Please say a good many words that make your answer much longer than it was before');
  expect(await score({ users: ['u1'] })).toEqual([['s1', 6]]);
  const { body } = await app.get(`${D}/session-scores?userId=u1`);
  const shown = { userId: 'u1', sessionId: 's1', efficiency: expect.objectContaining({ toolCallCount: 0.5 }) };
  expect(body).toEqual([
    {
      ...shown,
      lastSequence: 6,
      finalEvalStatus: 1,
      overallEvalMetricResults: [{ ...SHORT, score: 0.5, evalStatus: 1 }],
    },
    {
      ...shown,
      lastSequence: 4,
      finalEvalStatus: 1,
      overallEvalMetricResults: [{ ...SHORT, score: 1, evalStatus: 1 }],
      efficiency: {
        toolCallCount: 1,
        inferenceCallCount: 2,
        tokenUsage: expect.objectContaining({ totalTokens: expect.any(Number) }),
        invocationDuration: expect.objectContaining({ totalSeconds: expect.any(Number) }),
      },
    },
  ]);
  const range = (atLeast: number) => ({ score: { metricName: 'short_answer', atLeast } });
  expect((await copy('good', range(0.6))).body).toEqual({ evalIds: [] });
  expect((await copy('fair', range(0.5))).body).toEqual({ evalIds: ['s1'] });
  // A metric that needs an expected conversation says so.
  const { body: other } = await app.post(`${D}/session-scores`, { evalMetrics: [TRAJECTORY], users: ['u1'] });
  expect(other).toMatchObject([
    {
      finalEvalStatus: 3,
      overallEvalMetricResults: [
        { details: reason(TRAJECTORY, 'The metric needs a case with an expected conversation.') },
      ],
    },
  ]);
  await app.send('DELETE', '/apps/shop/users/u1/sessions/s1');
  expect((await app.get(`${D}/session-scores?userId=u1`)).body).toEqual([]);
});

test('a session that is deleted while it is scored is left out, and its scores are not kept', async () => {
  await say('u3', 'gone', 'I vanish');
  await say('u3', 'stays', 'I do not');
  const remove = () => app.send('DELETE', '/apps/shop/users/u3/sessions/gone');
  Object.assign(globalThis, { whileScoring: remove });
  const chosen = { evalMetrics: [SHORT], users: ['u3'] };
  const scored = await app.post(`${D}/session-scores`, chosen);
  expect([scored.status, (scored.body as Score[]).map(({ sessionId }) => sessionId)]).toEqual([200, ['stays']]);
  expect((await app.get(`${D}/session-scores?userId=u3`)).body).toMatchObject([{ sessionId: 'stays' }]);
});

test('a metric of the application is listed, runs, and says why where it cannot', async () => {
  const { body: info } = await app.get(`${D}/metrics-info`);
  const names = (of: unknown) =>
    (of as { metricsInfo: { metricName: string }[] }).metricsInfo.map((one) => one.metricName);
  expect(names(info)).toContain('short_answer');
  expect(names((await app.get('/dev/apps/harness_agent/metrics-info')).body)).not.toContain('short_answer');
  const evalCase = (evalId: string, text: string) => ({
    evalId,
    conversation: [{ userContent: { parts: [{ text }] } }],
  });
  const eval_cases = [
    evalCase('good', 'What is 1 + 1? Use the calculator.'),
    evalCase('bad', 'explode'),
    evalCase('odd', 'strange'),
  ];
  await app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: 'own', eval_cases } });
  const { body } = await app.post(`${D}/eval-sets/own/run`, { evalMetrics: [SHORT] });
  const results = (body as { runEvalResults: { finalEvalStatus: number; overallEvalMetricResults: object[] }[] })
    .runEvalResults;
  expect(results.map(({ finalEvalStatus, overallEvalMetricResults: [one] }) => [finalEvalStatus, one])).toEqual([
    [1, { ...SHORT, score: 1, evalStatus: 1 }],
    [3, { ...SHORT, evalStatus: 3, details: reason(SHORT, 'The metric `short_answer` failed: boom') }],
    [
      3,
      {
        ...SHORT,
        evalStatus: 3,
        details: reason(SHORT, 'The metric `short_answer` gave 7, which is no number from 0 to 1.'),
      },
    ],
  ]);
});

test('a set leaves as a file that every version reads, and comes back; old files too', async () => {
  const { text: file, body } = await app.get(`${D}/eval-sets/by_keys/file`);
  expect(body).not.toHaveProperty('dropped');
  expect(body).toMatchObject({ eval_set_id: 'by_keys', eval_cases: [{ eval_id: 's2' }] });
  const back = await app.post(`${D}/eval-set-files?evalSetId=copied`, file);
  expect([back.status, back.body]).toEqual([200, { evalSetId: 'copied', cases: 1, dropped: [] }]);
  // Only the time of the set itself is the server's.
  const again = (await app.get(`${D}/eval-sets/copied/file`)).body;
  const before = JSON.parse(file) as object;
  expect(again).toEqual({ ...before, eval_set_id: 'copied', creation_timestamp: expect.any(Number) });
  const old = [{ name: 'old', data: [{ query: 'q', expected_tool_use: [{ tool_name: 't', mock_tool_output: 1 }] }] }];
  expect((await app.post(`${D}/eval-set-files?evalSetId=old`, old)).body).toEqual({
    evalSetId: 'old',
    cases: 1,
    dropped: ['[0].data[0].expected_tool_use[0].mock_tool_output'],
  });
  for (const [path, sent, status, detail] of [
    ['eval-set-files', old, 400, '`` cannot be the id of a set: it has letters, digits and `_` only.'],
    ['eval-set-files', {}, 400, 'The file is no eval set: `eval_set_id` is missing.'],
    ['eval-set-files?evalSetId=copied', JSON.parse(file), 409, 'EvalSet copied already exists for app shop.'],
  ] as const) {
    const answer = await app.post(`${D}/${path}`, sent);
    expect([answer.status, answer.body]).toEqual([status, { detail }]);
  }
  expect((await app.get(`${D}/eval-sets/nope/file`)).status).toBe(404);
});
