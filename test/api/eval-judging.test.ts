import { Client } from 'pg';
import { expect, test } from 'vitest';
import { startAnsweringProvider } from '../support/answering-provider.ts';
import { startApp } from '../support/app.ts';
import { staged } from '../support/staged.ts';

/** Runs that are judged again, people beside judges, the trend of a set, and the views that show them. */

let strict = false;

const provider = staged(() =>
  startAnsweringProvider(({ prompt }) =>
    prompt.includes('"verdict"')
      ? JSON.stringify({ reason: 'r', verdict: strict || prompt.includes('wrong') ? 'invalid' : 'valid' })
      : `answer to ${prompt}`,
  ),
);
const app = staged(() =>
  startApp({
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'answering',
    MODEL_BASE_URL: provider.baseUrl,
    MODEL_MAX_RETRIES: '0',
    EVALS_JUDGE_MODEL: 'umpire',
  }),
);

const D = '/dev/apps/harness_agent';
const text = (said: string, role = 'user') => ({ role, parts: [{ text: said }] });
const evalCase = (evalId: string, expected: string) => ({
  evalId,
  conversation: [{ userContent: text('hello'), finalResponse: text(expected, 'model') }],
});
const MATCH = { metricName: 'response_match_score', threshold: 0.7 };
const JUDGE = { metricName: 'final_response_match_v2', threshold: 0.5 };

interface Run {
  runId: string;
  status: string;
  judgedRunId?: string;
  evalSetResultId: string;
  counts: Record<string, number>;
}
const ended = async ({ runId }: Run): Promise<Run> => {
  const frames = (await app.get(`${D}/eval-runs/${runId}/stream`)).text.trim().split('\n\n');
  return JSON.parse(frames.at(-1)?.replace('data: ', '') ?? '') as Run;
};
const judge = async (run: Run, evalMetrics: object[]) => {
  const answer = await app.post(`${D}/eval-runs/${run.runId}/judge`, { evalMetrics });
  expect(answer.status).toBe(202);
  return ended(answer.body as Run);
};
const say = (run: Run, evalId: string, passed: boolean, more: object = {}) =>
  app.send('PUT', `${D}/eval-runs/${run.runId}/verdicts`, {
    evalId,
    turn: 0,
    metricName: JUDGE.metricName,
    passed,
    ...more,
  });

test('stored turns are judged again without the agent, and people stand beside the judges', async () => {
  const eval_cases = [evalCase('right', 'answer to hello'), evalCase('wrong', 'wrong')];
  await app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: 's', eval_cases } });
  const first = await ended((await app.post(`${D}/eval-runs`, { evalSetId: 's', evalMetrics: [MATCH] })).body as Run);
  expect(first.counts).toMatchObject({ total: 2, passed: 1, failed: 1 });

  provider.asked.length = 0;
  const second = await judge(first, [JUDGE]);
  expect(second).toMatchObject({
    judgedRunId: first.runId,
    status: 'done',
    counts: { total: 2, passed: 1, failed: 1 },
  });
  expect(first).not.toHaveProperty('judgedRunId');
  // Five samples a turn, by the judge that the operator names; the agent said nothing more.
  expect(provider.asked.map(({ model }) => model)).toEqual(Array.from({ length: 10 }, () => 'umpire'));
  const sessionsOf = async ({ evalSetResultId }: Run) => {
    const { body } = await app.get(`${D}/eval-results/${evalSetResultId}`);
    return (body as { evalCaseResults: { sessionId: string; evalMetricResultPerInvocation: unknown[] }[] })
      .evalCaseResults;
  };
  const [before, after] = [await sessionsOf(first), await sessionsOf(second)];
  expect(after.map(({ sessionId }) => sessionId)).toEqual(before.map(({ sessionId }) => sessionId));
  expect(after[0]?.evalMetricResultPerInvocation).toHaveLength(1);

  strict = true;
  const third = await judge(first, [JUDGE]);
  expect(third.counts).toMatchObject({ passed: 0, failed: 2 });

  expect((await say(second, 'right', false)).status).toBe(200);
  expect((await say(second, 'right', true, { comment: 'It is.' })).status).toBe(200);
  expect((await say(second, 'wrong', false)).status).toBe(200);
  const verdict = { trial: 1, turn: 0, metricName: JUDGE.metricName, author: 'local' };
  const said = [
    { evalId: 'right', ...verdict, passed: true, comment: 'It is.' },
    { evalId: 'wrong', ...verdict, passed: false },
  ];
  // They are about the turns: every run that judged them shows them.
  for (const run of [first, second, third]) {
    expect((await app.get(`${D}/eval-runs/${run.runId}/verdicts`)).body).toEqual(said);
  }
  const counts = { bothPass: 1, onlyJudgePasses: 0, onlyHumanPasses: 1, bothFail: 2 };
  expect((await app.get(`${D}/eval-sets/s/judges`)).body).toEqual([
    {
      metricName: JUDGE.metricName,
      judgeModel: 'umpire',
      promptVersion: expect.stringMatching(/^[0-9a-f]{12}$/),
      ...counts,
      agreement: 0.75,
      kappa: 0.5,
    },
  ]);
  const absent = await say(second, 'right', true, { turn: 1 });
  expect([absent.status, absent.body]).toEqual([
    404,
    { detail: 'The evaluation run has no turn 1 of trial 1 of eval case `right`.' },
  ]);
});

test('the judges of a run use no more tokens than it may, whichever of its cases asks', async () => {
  const eval_cases = ['one', 'two', 'three'].map((id) => evalCase(id, 'answer to hello'));
  await app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: 'dear', eval_cases } });
  const judgeModelOptions = { numSamples: 1, judgeModelConfig: { maxOutputTokens: 100 } };
  const evalMetrics = [{ ...JUDGE, criterion: { threshold: 0.5, judgeModelOptions } }];
  const run = async (maxJudgeTokens: number) =>
    ended((await app.post(`${D}/eval-runs`, { evalSetId: 'dear', evalMetrics, maxJudgeTokens })).body as Run);
  const asked = () => provider.asked.filter(({ model }) => model === 'umpire').length;
  // A call may use some 1,700 tokens, and uses 15.
  expect(await run(100_000)).toMatchObject({ maxJudgeTokens: 100_000, judgeTokens: 45, counts: { errors: 0 } });
  provider.asked.length = 0;
  const short = await run(1_000);
  expect([short, asked()]).toMatchObject([{ judgeTokens: 0, counts: { errors: 3 } }, 0]);
  const { cases } = (await app.get(`${D}/eval-runs/${short.runId}/summary`)).body as { cases: { reason: string }[] };
  expect(cases[0]?.reason).toMatch(/^A judge may use \d+ tokens, and fewer of the run are left: maxJudgeTokens\.$/);
  const again = await app.post(`${D}/eval-runs/${short.runId}/judge`, { evalMetrics, maxJudgeTokens: 2_000_000_000 });
  expect(again.status).toBe(422);
});

test('the trend of a set, and the views of runs, cases, trends and judges', async () => {
  const { body } = await app.get(`${D}/eval-sets/s/trend`);
  const point = { modelName: 'answering', total: 2, notEvaluated: 0, errors: 0 };
  const known = { runId: expect.any(String), createTime: expect.any(Number), agentHash: expect.any(String) };
  expect(body).toEqual([
    { ...point, ...known, passed: 1, failed: 1, scores: { response_match_score: 0.5 } },
    { ...point, ...known, passed: 1, failed: 1, scores: { final_response_match_v2: 0.5 } },
    { ...point, ...known, passed: 0, failed: 2, scores: { final_response_match_v2: 0 } },
  ]);
  expect((await app.get(`${D}/eval-sets/s/trend?limit=1`)).body).toHaveLength(1);
  expect((await app.get(`${D}/eval-sets/nope/trend`)).status).toBe(404);

  const client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  const rowsOf = async (query: string) => (await client.query<Record<string, unknown>>(query)).rows;
  expect(
    await rowsOf(`select status, judged_run_id is not null as judging, total::int, passed::int, failed::int, errors::int
                  from inspect.eval_runs where app_name = 'harness_agent' and eval_set_id = 's' order by create_time`),
  ).toEqual([
    { status: 'done', judging: false, total: 2, passed: 1, failed: 1, errors: 0 },
    { status: 'done', judging: true, total: 2, passed: 1, failed: 1, errors: 0 },
    { status: 'done', judging: true, total: 2, passed: 0, failed: 2, errors: 0 },
  ]);
  expect(
    await rowsOf(`select eval_id, case_version, trial, status, verdict, user_id, tokens_per_turn from inspect.eval_cases
                  order by end_time, eval_id limit 2`),
  ).toEqual(
    expect.arrayContaining([
      {
        eval_id: 'right',
        case_version: 1,
        trial: 1,
        status: 'done',
        verdict: 'PASSED',
        user_id: 'test_user_id',
        tokens_per_turn: 15,
      },
    ]),
  );
  expect(
    await rowsOf(`select metric_name, mean_score, passed::int, failed::int, not_evaluated::int
                  from inspect.eval_trends where eval_set_id = 's' order by create_time`),
  ).toEqual([
    { metric_name: 'response_match_score', mean_score: 0.5, passed: 1, failed: 1, not_evaluated: 0 },
    { metric_name: 'final_response_match_v2', mean_score: 0.5, passed: 1, failed: 1, not_evaluated: 0 },
    { metric_name: 'final_response_match_v2', mean_score: 0, passed: 0, failed: 2, not_evaluated: 0 },
  ]);
  expect(
    await rowsOf(`select metric_name, judge_model, both_pass::int, only_judge_passes::int, only_person_passes::int,
                         both_fail::int from inspect.eval_judges`),
  ).toEqual([
    {
      metric_name: 'final_response_match_v2',
      judge_model: 'umpire',
      both_pass: 1,
      only_judge_passes: 0,
      only_person_passes: 1,
      both_fail: 2,
    },
  ]);
  await client.end();
});

test('what cannot be judged is refused with the reason', async () => {
  const nothing = await ended(
    (await app.post(`${D}/eval-runs`, { evalSetId: 's', evalCaseIds: ['right'], evalMetrics: [] })).body as Run,
  );
  expect((await app.post(`${D}/eval-runs/${nothing.runId}/judge`, { evalMetrics: [] })).status).toBe(422);
  const result = (await app.get(`${D}/eval-results/${nothing.evalSetResultId}`)).body as {
    evalCaseResults: { sessionId: string }[];
  };
  await app.send(
    'DELETE',
    `/apps/harness_agent/users/test_user_id/sessions/${result.evalCaseResults[0]?.sessionId ?? ''}`,
  );
  const gone = await judge(nothing, [MATCH]);
  expect(gone.counts).toMatchObject({ total: 1, errors: 1 });
});
