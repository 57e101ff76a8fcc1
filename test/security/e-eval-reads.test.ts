import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startWatched, type WatchedService } from '../support/watched-service.ts';

/** What one read of evaluation costs the process: no answer is larger than its bound, or is made as a whole. */

const D = '/dev/apps/harness_agent';
const MEGABYTE = 1_048_576;
const said = (text: string, role = 'user') => ({ role, parts: [{ text }] });
const evalCase = (evalId: string, text: string) => ({
  evalId,
  conversation: [{ userContent: said(text), finalResponse: said('ok', 'model') }],
});

let service: WatchedService;
const database = async (sql: string): Promise<void> => {
  const client = new Client({ connectionString: service.databaseUrl });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
};
/** Reads an answer to its end without keeping it. */
const measure = async (path: string) => {
  const response = await fetch(service.url + path);
  let bytes = 0;
  let end = '';
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    end = new TextDecoder().decode(chunk.slice(-20));
  }
  return { status: response.status, bytes, end };
};
const insertSet = (id: string, cases: object[]) =>
  service.post(`${D}/eval-sets`, { evalSet: { eval_set_id: id, eval_cases: cases } });
/** Copies rows of a table, with other members, so many times. */
const copy = (table: string, where: string, times: number, members: string) =>
  database(`insert into ${table} select (jsonb_populate_record(t, jsonb_build_object(${members}))).*
            from ${table} t, generate_series(2, ${times}) n where ${where}`);

beforeAll(async () => {
  service = await startWatched({ DEV_UI: 'true', MAX_BODY_BYTES: '20000000' });
});
afterAll(() => service.close());

test('a set of 180 MB is read and exported some cases at a time', async () => {
  await insertSet('large', [evalCase('c1', 'x'.repeat(3_000_000))]);
  const isLarge = `eval_set_id = 'large'`;
  await copy('eval_case_versions', isLarge, 60, `'eval_id', 'c' || n`);
  await copy('eval_cases', isLarge, 60, `'id', 'c' || n`);
  for (const path of [`${D}/eval-sets/large`, `${D}/eval-sets/large/file`]) {
    const { status, bytes, end } = await measure(path);
    expect([path, status, end.trimEnd().endsWith('}')]).toEqual([path, 200, true]);
    expect(bytes).toBeGreaterThan(180_000_000);
    expect((await service.report()).heapMb).toBeLessThan(300);
  }
});

test('a result of long sessions has at most a megabyte of each case, and its summary no texts', async () => {
  await insertSet('long', [evalCase('c1', 'y'.repeat(900_000))]);
  const metrics = { evalMetrics: [{ metricName: 'response_match_score', threshold: 0.5 }] };
  expect((await service.post(`${D}/eval-sets/long/run`, metrics)).status).toBe(200);
  await copy('eval_run_cases', `eval_set_id = 'long'`, 100, `'trial', n`);
  const ids = ((await service.get(`${D}/eval-results`)).body as { evalResultIds: string[] }).evalResultIds;
  const result = await measure(`${D}/eval-results/${ids[0]}`);
  expect([result.status, result.end.endsWith(']}')]).toEqual([200, true]);
  expect(result.bytes).toBeLessThan(100 * MEGABYTE);
  const { body } = await service.get(`${D}/eval-results/${ids[0]}`);
  expect((body as { evalCaseResults: object[] }).evalCaseResults).toHaveLength(100);
  const [{ runId } = { runId: '' }] = (await service.get(`${D}/eval-runs`)).body as { runId: string }[];
  const summary = await service.get(`${D}/eval-runs/${runId}/summary?baseline=${runId}`);
  expect(summary.body).toMatchObject({ cases: [{ evalId: 'c1', trials: 100 }], comparison: { differences: [] } });
  expect(summary.text.length).toBeLessThan(10_000);
  expect((await service.report()).heapMb).toBeLessThan(300);
});

test('names of sets and results, and verdicts, come page by page, each once and in order', async () => {
  await insertSet('s', [evalCase('c', 'hi')]);
  const run = await service.post(`${D}/eval-sets/s/run`, { evalMetrics: [] });
  expect(run.status).toBe(200);
  const [{ runId } = { runId: '' }] = (await service.get(`${D}/eval-runs?evalSetId=s`)).body as { runId: string }[];
  const verdict = { evalId: 'c', turn: 0, metricName: 'response_match_score', passed: true, comment: 'w' };
  expect((await service.send('PUT', `${D}/eval-runs/${runId}/verdicts`, verdict)).status).toBe(200);
  await copy(
    'eval_verdicts',
    `metric_name = 'response_match_score'`,
    2_500,
    `'metric_name', 's' || n, 'comment', repeat('w', 9000)`,
  );
  await copy('eval_sets', `id = 's'`, 2_500, `'id', 's' || n`);
  const later = `t.result_time + n * interval '1.000001 second'`;
  await copy(
    'eval_runs',
    `eval_set_id = 's'`,
    2_500,
    `'id', gen_random_uuid(), 'eval_set_id', 's' || n, 'result_time', ${later}`,
  );
  const verdicts = (await service.get(`${D}/eval-runs/${runId}/verdicts`)).body as { metricName: string }[];
  const names = verdicts.map(({ metricName }) => metricName);
  expect([verdicts[0], names]).toEqual([{ ...verdict, trial: 1, author: 'local' }, names.toSorted()]);
  expect(new Set(names).size).toBe(2_500);
  // The clients of ADK name no page: they get the first 300 sets, and the last 100 results.
  const list = async (path: string) => {
    const pages: string[][] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const page = await service.get(`${D}/${path}${cursor && `?cursor=${cursor}`}`);
      pages.push(page.body as string[]);
      cursor = page.headers.get('x-next-cursor');
    }
    return pages;
  };
  const sizes = (pages: string[][]) => pages.map(({ length }) => length);
  const pagesOfSets = await list('eval_sets');
  const sets = pagesOfSets.flat();
  expect(sizes(pagesOfSets)).toEqual([...Array.from({ length: 8 }, () => 300), 102]);
  expect([new Set(sets).size, sets]).toEqual([2_502, sets.toSorted()]);
  expect((await service.get(`${D}/eval-sets`)).body).toEqual({ evalSetIds: sets.slice(0, 300) });
  const pagesOfResults = await list('eval_results');
  const results = pagesOfResults.toReversed().flat();
  expect(sizes(pagesOfResults)).toEqual([...Array.from({ length: 25 }, () => 100), 1]);
  const timeOf = (id: string) => Number(id.split('_').at(-1));
  expect([new Set(results).size, results]).toEqual([
    2_501,
    results.toSorted((one, other) => timeOf(one) - timeOf(other)),
  ]);
  expect((await service.get(`${D}/eval-results`)).body).toEqual({ evalResultIds: results.slice(-100) });
  expect((await service.get(`${D}/eval-results?cursor=yesterday`)).status).toBe(422);
});

test('what is too large, or too much, is refused with 413 where it is written', async () => {
  const huge = evalCase('huge', 'z'.repeat(5_000_000));
  expect(await insertSet('huge', [huge])).toMatchObject({ status: 413 });
  expect(
    await insertSet(
      'many',
      Array.from({ length: 1_001 }, (_, n) => evalCase(`c${n}`, 'q')),
    ),
  ).toMatchObject({
    status: 413,
    body: { detail: 'An eval set has at most 1000 cases.' },
  });
  await insertSet('full', [evalCase('huge', 'q')]);
  const replaced = await service.send('PUT', `${D}/eval-sets/full/eval-cases/huge`, huge);
  expect([replaced.status, replaced.body]).toEqual([413, { detail: 'Eval case `huge` is larger than 4194304 bytes.' }]);
  const turns = Array.from({ length: 1_001 }, () => ({ userContent: said('q') }));
  expect(await insertSet('endless', [{ evalId: 'e', conversation: turns }])).toMatchObject({ status: 413 });
  await copy('eval_case_versions', `eval_set_id = 'full'`, 1_000, `'eval_id', 'c' || n`);
  await copy('eval_cases', `eval_set_id = 'full'`, 1_000, `'id', 'c' || n`);
  await service.post('/apps/harness_agent/users/u/sessions', { sessionId: 's' });
  const added = { evalId: 'more', sessionId: 's', userId: 'u' };
  const refused = await service.post(`${D}/eval-sets/full/add-session`, added);
  expect([refused.status, refused.body]).toEqual([
    413,
    { detail: 'The eval set `full` has 1000 cases, and may have no more.' },
  ]);
  const rubrics = [{ rubricId: 'r', rubricContent: { textProperty: 'p'.repeat(70_000) } }];
  const evalMetrics = [{ metricName: 'rubric_based_tool_use_quality_v1', criterion: { threshold: 1, rubrics } }];
  for (const path of ['eval-sets/full/run', 'eval_sets/full/run_eval', 'eval-runs']) {
    const answer = await service.post(`${D}/${path}`, { evalSetId: 'full', evalMetrics });
    expect([path, answer.status]).toEqual([path, 413]);
  }
});
