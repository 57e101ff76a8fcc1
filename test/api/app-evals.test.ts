import { createHash } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, inject, test } from 'vitest';
import { appEvalOperations, evalOperations } from '../../src/features/evals/feature.ts';
import { client, startApp } from '../support/app.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { staged } from '../support/staged.ts';

/** Evaluation where people log in: below `/apps`, without the development UI, each with their own. */

const EVALS = '/apps/harness_agent/eval-sets';
const tokens = staged(() => startTokenIssuer());
const app = staged(() => startApp({ DEV_UI: 'false', EVALS: 'true', ...tokens.environment }));

const scopes = ['read', 'write', 'invoke', 'develop'];
const as = (user: string, of = scopes) => tokens.headersOf(user, { scopes: of.join(' ') });
const evalCase = {
  evalId: 'one',
  conversation: [
    {
      userContent: { role: 'user', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] },
      finalResponse: { role: 'model', parts: [{ text: 'The tool `calculator` answered: 391' }] },
    },
  ],
};

test('a set is made, run by a worker, and read, by a user with the scope `develop`', async () => {
  const ann = await as('ann');
  const made = await app.post(EVALS, { evalSet: { eval_set_id: 'sums', eval_cases: [evalCase] } }, ann);
  expect(made.status).toBe(200);
  expect((await app.get(EVALS, ann)).body).toEqual({ evalSetIds: ['sums'] });
  const evalMetrics = [{ metricName: 'response_match_score', threshold: 0.8 }];
  const run = await app.post(`${EVALS}/sums/run`, { evalMetrics }, ann);
  expect(run.body).toMatchObject({ runEvalResults: [{ evalId: 'one', finalEvalStatus: 1 }] });
  const runs = (await app.get('/apps/harness_agent/eval-runs', ann)).body as { runId: string }[];
  expect(runs).toMatchObject([{ evalSetId: 'sums', status: 'done' }]);
  expect((await app.get(`${EVALS}/sums/trend`, ann)).status).toBe(200);
  expect((await app.get(`/apps/harness_agent/eval-runs/${runs[0]?.runId}/verdicts`, ann)).status).toBe(200);
});

test('another user sees none of it, and a reader changes nothing', async () => {
  const bob = await as('bob');
  expect((await app.get(EVALS, bob)).body).toEqual({ evalSetIds: [] });
  expect((await app.get(`${EVALS}/sums`, bob)).status).toBe(404);
  expect((await app.get('/apps/harness_agent/eval-runs', bob)).body).toEqual([]);
  const reader = await as('ann', ['read']);
  expect((await app.get(`${EVALS}/sums`, reader)).status).toBe(200);
  expect((await app.send('DELETE', `${EVALS}/sums`, undefined, reader)).status).toBe(403);
  expect((await app.post(`${EVALS}/sums/run`, { evalMetrics: [] }, reader)).status).toBe(403);
  expect((await app.get(EVALS)).status).toBe(401);
});

test('rules are for keys that act for all, verdicts for the owner of a session, lists for readers', async () => {
  const keys = join(tmpdir(), `score-keys-${process.pid}.json`);
  const digestOf = (key: string) => createHash('sha256').update(key).digest('hex');
  const key = (id: string, more: object = {}) => ({
    id,
    digest: digestOf(id),
    scopes: ['read', 'write', 'develop'],
    ...more,
  });
  writeFileSync(
    keys,
    JSON.stringify([
      key('all'),
      key('reader', { scopes: ['read'] }),
      key('writer', { scopes: ['read', 'write'] }),
      key('ofAnn', { users: ['ann'] }),
      key('elsewhere', { apps: ['other'] }),
    ]),
  );
  const service = await startApp({ DEV_UI: 'false', EVALS: 'true', RUNTIME_API_KEYS_FILE: keys });
  const by = (id: string) => ({ authorization: `Bearer ${id}` });
  for (const user of ['ann', 'bob'])
    await service.post(`/apps/harness_agent/users/${user}/sessions/s`, undefined, by('all'));
  const rule = '/apps/harness_agent/score-rules/r';
  const body = { evalMetrics: [{ metricName: 'response_match_score', threshold: 0.8 }] };
  const statuses = async (id: string) => {
    const verdict = (user: string) =>
      service.send('PUT', `/apps/harness_agent/users/${user}/sessions/s/verdict`, { passed: true }, by(id));
    const answers = [
      await service.send('PUT', rule, body, by(id)),
      await service.get('/apps/harness_agent/score-rules', by(id)),
      await service.send('DELETE', rule, undefined, by(id)),
      await verdict('ann'),
      await verdict('bob'),
    ];
    return answers.map(({ status }) => status);
  };
  // A cluster has no rules: one is refused as a conflict, and there is none to delete.
  const ofRules = inject('workerUrls').length > 0 ? [409, 200, 404] : [200, 200, 200];
  expect(await statuses('all')).toEqual([...ofRules, 200, 200]);
  expect(await statuses('reader')).toEqual([403, 403, 403, 403, 403]);
  expect(await statuses('writer')).toEqual([403, 403, 403, 200, 200]);
  expect(await statuses('ofAnn')).toEqual([403, 403, 403, 200, 404]);
  expect(await statuses('elsewhere')).toEqual([404, 404, 404, 404, 404]);
  const list = (id: string) => service.get('/apps/harness_agent/session-verdicts', by(id));
  expect((await list('reader')).body).toMatchObject({ items: Array.from({ length: 5 }, () => ({ passed: true })) });
  expect([(await list('ofAnn')).status, (await list('elsewhere')).status]).toEqual([403, 404]);
  await service.close();
  rmSync(keys);
  // Tokens: a user says what they think of their own sessions, and makes no rule.
  const [ann, bob] = [await as('ann'), await as('bob')];
  await app.post('/apps/harness_agent/users/ann/sessions/mine', undefined, ann);
  const mine = '/apps/harness_agent/users/ann/sessions/mine/verdict';
  expect((await app.send('PUT', mine, { label: 'good' }, ann)).status).toBe(200);
  expect((await app.send('PUT', mine, { label: 'bad' }, bob)).status).toBe(404);
  expect((await app.send('PUT', rule, body, ann)).status).toBe(403);
  const items = async (headers: Record<string, string>) =>
    ((await app.get('/apps/harness_agent/session-verdicts', headers)).body as { items: object[] }).items;
  expect(await items(ann)).toMatchObject([{ userId: 'ann', author: 'ann', label: 'good' }]);
  expect(await items(bob)).toEqual([]);
});

test('the paths of the development server stay its own', async () => {
  expect((await app.get(`/dev${EVALS}`, await as('ann'))).status).toBe(404);
  const local = await startApp({ DEV_UI: 'true' });
  expect((await client(local.url).get(`/dev${EVALS}`)).status).toBe(200);
  expect((await client(local.url).get(EVALS)).status).toBe(404);
  await local.close();
});

test('each operation but those of older spellings is at both', () => {
  const isOld = /_(?!\w*\})/;
  const paths = evalOperations.filter(({ path }) => !isOld.test(path)).map(({ method, path }) => `${method} ${path}`);
  const both = appEvalOperations.filter(({ isCopy }) => isCopy);
  expect(both.map(({ method, path }) => `${method} /dev${path}`)).toEqual(paths);
  expect(paths.length).toBeGreaterThan(20);
});
