import { expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const D = '/dev/apps/harness_agent';

test('of 32 sessions that are added to one set at once none is lost and none is there twice', async () => {
  const ids = Array.from({ length: 32 }, (_, n) => `case-${String(n).padStart(2, '0')}`);
  await app.post('/apps/harness_agent/users/u/sessions/s', {
    events: [{ author: 'user', invocationId: 'i', content: { role: 'user', parts: [{ text: 'Hello' }] } }],
  });
  const add = (evalId: string) => app.post(`${D}/eval-sets/many/add-session`, { evalId, sessionId: 's', userId: 'u' });
  const answers = await Promise.all(ids.map(add));
  expect(answers.map(({ status, text }) => [status, text])).toEqual(ids.map(() => [200, 'null']));
  expect((await app.get(`${D}/eval_sets/many/evals`)).body).toEqual(ids);
  // The same case 32 times: one is added.
  const same = await Promise.all(ids.map(() => add('same')));
  expect(same.filter(({ status }) => status === 200)).toHaveLength(1);
  expect((await app.get(`${D}/eval_sets/many/evals`)).body).toEqual([...ids, 'same']);
});

test('50 runs of a set at once have 50 ids, and 50 results', async () => {
  const turn = { userContent: { role: 'user', parts: [{ text: 'Hello' }] } };
  await app.post(`${D}/eval-sets`, {
    evalSet: { eval_set_id: 'at_once', eval_cases: [{ evalId: 'one', conversation: [turn] }] },
  });
  const runs = Array.from({ length: 50 }, () => app.post(`${D}/eval-sets/at_once/run`, { evalMetrics: [] }));
  expect((await Promise.all(runs)).filter(({ status }) => status !== 200)).toEqual([]);
  const { evalResultIds } = (await app.get(`${D}/eval-results`)).body as { evalResultIds: string[] };
  expect(evalResultIds).toHaveLength(50);
  expect(new Set(evalResultIds).size).toBe(50);
  const listed = (await app.get(`${D}/eval-runs`)).body as { runId: string; status: string }[];
  expect(new Set(listed.map(({ runId }) => runId)).size).toBe(50);
  expect(listed.filter(({ status }) => status !== 'done')).toEqual([]);
});
