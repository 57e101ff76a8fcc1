import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';
import { startProcess } from '../support/service-process.ts';

/** A metric that does not exist, or cannot be used as it is written, is refused where it is written. */

const app = testApp({ EVALS: 'true' });
const D = '/dev/apps/harness_agent';
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-metrics-'));
const MATCH = { metricName: 'response_match_score', threshold: 0.01 };
const turn = {
  userContent: { role: 'user', parts: [{ text: 'Hello' }] },
  finalResponse: { role: 'model', parts: [{ text: 'You said: Hello' }] },
};
const makeSet = (id: string, more: object = {}, cases: object[] = [{ evalId: 'one', conversation: [turn], ...more }]) =>
  app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: id, eval_cases: cases } });

beforeAll(async () => {
  await makeSet('smoke');
  const message = { prompt: 'Hello', harness_name: 'h', run_agent_request: { user_id: 'u1', session_id: 's1' } };
  await app.post('/harness/invoke', message);
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Run {
  runId: string;
  endTime?: number;
}
interface Detail {
  type: string;
  loc: (string | number)[];
  msg: string;
  input: unknown;
}
const detailsOf = ({ body }: { body: unknown }) => (body as { detail: Detail[] }).detail;
async function ended({ runId }: Run): Promise<Run> {
  for (;;) {
    const run = (await app.get(`${D}/eval-runs/${runId}`)).body as Run;
    if (run.endTime !== undefined) return run;
  }
}
const runOf = async (body: object) => await ended((await app.post(`${D}/eval-runs`, body)).body as Run);

const PLACES: [string, (evalMetrics: object[]) => ReturnType<typeof app.post>][] = [
  ['a run', (evalMetrics) => app.post(`${D}/eval-runs`, { evalSetId: 'smoke', evalMetrics })],
  ['a run that the client waits for', (evalMetrics) => app.post(`${D}/eval-sets/smoke/run`, { evalMetrics })],
  ['`run_eval` of ADK', (evalMetrics) => app.post(`${D}/eval_sets/smoke/run_eval`, { evalMetrics })],
  ['stored sessions', (evalMetrics) => app.post(`${D}/session-scores`, { evalMetrics })],
  ['a rule of scores', (evalMetrics) => app.send('PUT', '/apps/harness_agent/score-rules/r', { evalMetrics })],
  [
    'stored turns',
    async (evalMetrics) => {
      const { runId } = await runOf({ evalSetId: 'smoke', evalMetrics: [MATCH] });
      return await app.post(`${D}/eval-runs/${runId}/judge`, { evalMetrics });
    },
  ],
];

describe.each(PLACES)('metrics of %s', (_, send) => {
  test('that do not exist are 422, with the list of known ones and the nearest', async () => {
    const refused = await send([
      MATCH,
      { metricName: 'response_match', threshold: 0.8 },
      { metricName: 'safty', threshold: 1 },
    ]);
    expect(refused.status).toBe(422);
    expect(detailsOf(refused)).toEqual([
      expect.objectContaining({
        type: 'value_error',
        loc: ['body', 'evalMetrics', 1, 'metricName'],
        msg: expect.stringMatching(
          /no metric `response_match`; there are tool_trajectory_avg_score, .*Did you mean `response_match_score`\?/,
        ),
      }),
      expect.objectContaining({
        loc: ['body', 'evalMetrics', 2, 'metricName'],
        msg: expect.stringMatching(/no metric `safty`.* safety_v1, .*Did you mean `safety_v1`\?/),
      }),
    ]);
  });

  test.each([
    ['have no threshold', { metricName: 'response_match_score' }, /response_match_score needs a threshold/],
    [
      'have a criterion that does not hold',
      { metricName: 'tool_trajectory_avg_score', criterion: { threshold: 1, matchType: 'EXAKT' } },
      /The criterion of tool_trajectory_avg_score cannot be used: matchType: is no match type/,
    ],
    [
      'name something of a judge that there is not',
      { metricName: 'safety_v1', criterion: { threshold: 1, judgeModelOptions: { judgeModle: 'x' } } },
      /The criterion of safety_v1 cannot be used: judgeModelOptions/,
    ],
    ['only inform', { metricName: 'token_usage_v1', threshold: 1 }, /token_usage_v1 informs and takes no threshold/],
  ])('that %s are 422', async (__, metric, message) => {
    const refused = await send([MATCH, metric]);
    expect([refused.status, detailsOf(refused)[0]?.loc]).toEqual([422, ['body', 'evalMetrics', 1]]);
    expect(detailsOf(refused)[0]?.msg).toMatch(message);
  });
});

test('what was refused left no rule and no run', async () => {
  await app.send('PUT', '/apps/harness_agent/score-rules/none', {
    evalMetrics: [{ metricName: 'safty', threshold: 1 }],
  });
  expect((await app.get('/apps/harness_agent/score-rules')).body).toEqual([]);
});

test('a filter by the scores of an unknown metric, and a verdict beside one, are 422', async () => {
  const score = { metricName: 'safety', atMost: 0.5 };
  for (const answer of [
    await app.post(`${D}/eval-sets/smoke/add-sessions`, { score }),
    await app.post(`${D}/session-scores`, { evalMetrics: [MATCH], score }),
  ]) {
    expect([answer.status, detailsOf(answer)[0]?.loc]).toEqual([422, ['body', 'score', 'metricName']]);
    expect(detailsOf(answer)[0]?.msg).toContain('Did you mean `safety_v1`?');
  }
  const { runId } = await runOf({ evalSetId: 'smoke', evalMetrics: [MATCH] });
  const verdict = (metricName: string) =>
    app.send('PUT', `${D}/eval-runs/${runId}/verdicts`, { evalId: 'one', turn: 0, metricName, passed: true });
  expect((await verdict('response_match')).status).toBe(422);
  expect((await verdict('response_match_score')).status).toBe(200);
});

test('a rubric of a type that no metric reads is refused in a case, a set and a file', async () => {
  const rubrics = [{ rubricId: 'r', rubricContent: { textProperty: 'Short.' }, type: 'FINAL_RESPONSE_QUALTY' }];
  const known = [{ ...rubrics[0], type: 'FINAL_RESPONSE_QUALITY' }];
  const evalCase = (some: object[]) => ({ evalId: 'one', conversation: [turn], rubrics: some });
  const set = await makeSet('rubrics', { rubrics });
  expect([set.status, detailsOf(set)[0]?.msg]).toEqual([
    422,
    expect.stringMatching(
      /FINAL_RESPONSE_QUALITY, TOOL_USE_QUALITY, TRAJECTORY_QUALITY.*Did you mean FINAL_RESPONSE_QUALITY\?/,
    ),
  ]);
  const put = (some: object[]) => app.send('PUT', `${D}/eval-sets/smoke/eval-cases/one`, evalCase(some));
  expect([(await put(rubrics)).status, (await put(known)).status, (await put([])).status]).toEqual([422, 200, 200]);
  const file = (some: object[]) =>
    app.post(`${D}/eval-set-files?evalSetId=file`, {
      eval_set_id: 'file',
      eval_cases: [{ eval_id: 'one', conversation: [{ user_content: turn.userContent }], rubrics: some }],
    });
  const refused = await file(rubrics);
  expect([refused.status, (refused.body as { detail: string }).detail]).toEqual([
    400,
    expect.stringContaining('Did you mean FINAL_RESPONSE_QUALITY?'),
  ]);
  expect((await file(known)).status).toBe(200);
});

test('a metric that could not be computed does not let a case pass', async () => {
  // ADK's clients may name a function of theirs, which is not called here.
  const theirs = { metricName: 'my_metric', threshold: 0.5, customFunctionPath: 'os.getcwd' };
  const judged = { metricName: 'safety_v1', threshold: 1 };
  for (const metric of [theirs, judged]) {
    const { status, body } = await app.post(`${D}/eval-sets/smoke/run`, { evalMetrics: [MATCH, metric] });
    const [result] = (body as { runEvalResults: { finalEvalStatus: number; notEvaluated: string[] }[] }).runEvalResults;
    expect([status, result?.finalEvalStatus, result?.notEvaluated]).toEqual([200, 3, [metric.metricName]]);
  }
  expect((await app.post(`${D}/eval-runs`, { evalSetId: 'smoke', evalMetrics: [theirs] })).status).toBe(422);
});

const cli = (...args: string[]) => startProcess(process.execPath, [MAIN, '--url', app.url, 'eval', ...args], {}).end;
const config = (name: string, criteria: object) => {
  writeFileSync(join(folder, name), JSON.stringify({ criteria }));
  return join(folder, name);
};

test('the command ends with 2 for a metric that does not exist, and with 1 for one that said nothing', async () => {
  const wrong = await cli('run', 'smoke', '--config', config('wrong.json', { short: 1, response_match: 0.8 }));
  expect([wrong.code, wrong.out]).toEqual([2, '']);
  expect(wrong.error).toMatch(/no metric `short`[^]*Did you mean `response_match_score`\?/);
  const silent = await cli(
    'run',
    'smoke',
    '--config',
    config('silent.json', { response_match_score: 0.01, safety_v1: 1 }),
  );
  expect([silent.code, silent.out]).toEqual([1, expect.stringMatching(/NO {2}one[^]*safety_v1 was not evaluated/)]);
  expect((await cli('run', 'smoke', '--trials', 'many')).code).toBe(2);
});

test('a comparison passes on nothing that it did not compare', async () => {
  await makeSet(
    'two',
    {},
    ['a', 'b'].map((evalId) => ({ evalId, conversation: [turn] })),
  );
  const all = await runOf({ evalSetId: 'two', evalMetrics: [MATCH] });
  const other = await runOf({ evalSetId: 'smoke', evalMetrics: [MATCH] });
  const one = await runOf({ evalSetId: 'two', evalCaseIds: ['a'], evalMetrics: [MATCH] });
  const less = await runOf({
    evalSetId: 'two',
    evalMetrics: [{ metricName: 'tool_trajectory_avg_score', threshold: 1 }],
  });
  const compare = async (run: Run, baseline: Run) => {
    const path = `${D}/eval-runs/${run.runId}/summary?baseline=${baseline.runId}`;
    const { comparison } = (await app.get(path)).body as { comparison: object };
    return { comparison, ...(await cli('compare', run.runId, baseline.runId)) };
  };
  expect(await compare(all, all)).toMatchObject({ code: 0, comparison: { compared: 2, missing: [], added: [] } });
  expect(await compare(all, one)).toMatchObject({ code: 0, comparison: { compared: 1, missing: [], added: ['b'] } });
  expect(await compare(one, all)).toMatchObject({
    code: 3,
    comparison: { compared: 1, missing: ['b'] },
    out: expect.stringContaining('Not compared, as they have no verdict now: b.'),
  });
  expect(await compare(other, all)).toMatchObject({
    code: 3,
    comparison: { compared: 0, missing: ['a', 'b'], added: ['one'] },
    out: expect.stringContaining('Nothing was compared'),
  });
  expect(await compare(less, all)).toMatchObject({ code: 3, comparison: { missingMetrics: ['response_match_score'] } });
  const chosen = config('match.json', { response_match_score: 0.01 });
  expect((await cli('run', 'two:a', '--config', chosen, '--baseline', all.runId)).code).toBe(0);
  expect((await cli('run', 'smoke', '--config', chosen, '--baseline', all.runId)).code).toBe(3);
});
