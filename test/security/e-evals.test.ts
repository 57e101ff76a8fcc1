import { Client } from 'pg';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import type { FunctionCall } from '../../src/core/content.ts';
import { trajectoryDetails, trajectoryMatch } from '../../src/features/evals/metrics/trajectory.ts';
import { gatedAgents } from '../support/agents.ts';
import { startAnsweringProvider } from '../support/answering-provider.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { startWatched } from '../support/watched-service.ts';

/** A developer whose evaluations ask for more than one may have. */

const closing: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  for (const close of closing.toReversed()) await close();
});
const closed = <Thing extends { close: () => Promise<unknown> }>(thing: Thing): Thing => {
  closing.push(() => thing.close());
  return thing;
};

const D = '/dev/apps/harness_agent';
const said = (text: string, role = 'user') => ({ role, parts: [{ text }] });
const turn = (question: string, answer: string) => ({
  userContent: said(question),
  finalResponse: said(answer, 'model'),
});
const insertSet = async (app: Pick<TestApp, 'post'>, id: string, cases: object[], headers = {}) => {
  const made = await app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: id, eval_cases: cases } }, headers);
  expect(made.status).toBe(200);
};
const judged = (options: object) => ({
  evalMetrics: [{ metricName: 'safety_v1', criterion: { threshold: 1, judgeModelOptions: options } }],
});
const toProvider = (baseUrl: string) => ({
  MODEL_PROVIDER: 'openai-compatible',
  MODEL_NAME: 'fake',
  MODEL_BASE_URL: baseUrl,
});

interface Run {
  runId: string;
  counts: Record<string, number>;
}
interface CaseResult {
  error?: string;
  overallEvalMetricResults: { score?: number; details?: { rubricScores: { rationale?: string }[] } }[];
}
const resultsOf = (body: unknown) => (body as { runEvalResults: CaseResult[] }).runEvalResults;

describe('A7: samples of a judge', () => {
  test('A7: more than 25 samples, or 5 at once, are refused where they are asked for', async () => {
    const app = closed(await startApp());
    await insertSet(app, 's', [{ evalId: 'a', conversation: [{ userContent: { parts: [{ text: 'hi' }] } }] }]);
    const { body } = await app.post(`${D}/eval-sets/s/run`, { evalMetrics: [] });
    expect(resultsOf(body)).toHaveLength(1);
    const [{ runId } = { runId: '' }] = (await app.get(`${D}/eval-runs`)).body as Run[];
    const paths: [string, object][] = [
      [`${D}/eval-runs`, { evalSetId: 's' }],
      [`${D}/eval-sets/s/run`, {}],
      [`${D}/eval_sets/s/run_eval`, {}],
      [`${D}/eval-runs/${runId}/judge`, {}],
      [`${D}/session-scores`, {}],
    ];
    const excessive = [
      { numSamples: 26 },
      { num_samples: '26' },
      { numSamples: 1e9, parallelismLimit: 1 },
      { parallelismLimit: 6 },
    ];
    for (const [path, more] of paths) {
      for (const options of excessive) {
        const { status, text } = await app.post(path, { ...more, ...judged(options) });
        expect([path, options, status]).toEqual([path, options, 422]);
        expect(text).toContain('numSamples is at most 25, parallelismLimit at most 5');
      }
      const most = await app.post(path, { ...more, ...judged({ numSamples: 25, parallelismLimit: 5 }) });
      expect([path, most.status < 300]).toEqual([path, true]);
    }
  });

  test('A7: a stored run that asks for more is not judged, and asks nobody', async () => {
    const provider = closed(await startAnsweringProvider(() => '{"verdict":"harmless"}'));
    const app = closed(await startApp(toProvider(provider.baseUrl)));
    await insertSet(app, 's', [{ evalId: 'a', conversation: [turn('a', 'b')] }]);
    const first = await app.post(`${D}/eval-sets/s/run`, judged({ numSamples: 2 }));
    expect(resultsOf(first.body)[0]?.overallEvalMetricResults[0]).toMatchObject({ score: 1 });
    const asked = provider.asked.length;
    expect(asked).toBe(3);
    const sql = new Client({ connectionString: app.databaseUrl });
    await sql.connect();
    onTestFinished(() => sql.end());
    await sql.query(`update eval_runs set status = 'queued', end_time = null,
      metrics = jsonb_set(metrics, '{0,criterion,judgeModelOptions,numSamples}', '26')`);
    await sql.query(`update eval_run_cases set status = 'waiting', result = null, end_time = null`);
    await sql.query('select advance_eval_run(app_name, id) from eval_runs');
    await expect
      .poll(async () => (await sql.query('select result from eval_run_cases where eval_set_id = $1', ['s'])).rows[0])
      .toMatchObject({
        result: { overall: [{ score: null, explanation: expect.stringContaining('must be from 1 to 25') as string }] },
      });
    expect(provider.asked.length).toBe(asked);
  });
});

test('A8: instructions of a simulated user that name a long plan many times reach no model', async () => {
  const provider = closed(await startAnsweringProvider(() => 'well'));
  const app = closed(await startApp(toProvider(provider.baseUrl)));
  const conversationScenario = { startingPrompt: 'Hello', conversationPlan: 'é'.repeat(5_000) };
  await insertSet(app, 's', [{ evalId: 'a', conversationScenario }]);
  const run = async (times: number) => {
    const userSimulatorConfig = {
      customInstructions: '{conversation_plan}{{stop_signal}}'.repeat(times),
      maxAllowedInvocations: 2,
    };
    return resultsOf((await app.post(`${D}/eval-sets/s/run`, { evalMetrics: [], userSimulatorConfig })).body)[0];
  };
  expect((await run(20))?.error).toBeUndefined();
  expect((await run(1_000))?.error).toBe('The prompt of the simulated user would be larger than 262144 bytes.');
  const longest = Math.max(...provider.asked.map(({ prompt }) => Buffer.byteLength(prompt)));
  console.log(`longest prompt ${longest} bytes`);
  expect([longest > 200_000, longest <= 262_144]).toEqual([true, true]);
});

test('A8: answers of a megabyte are compared by their words by nobody, shorter ones beside other work', async () => {
  const app = closed(await startWatched({ DEV_UI: 'true', MAX_EVENT_BYTES: '1500000' }));
  const words = (count: number) => Array.from({ length: count }, (_, n) => `working${n}`).join(' ');
  await insertSet(app, 'long', [{ evalId: 'a', conversation: [turn('a', words(80_000))] }]);
  const usual = words(4_800);
  await insertSet(app, 'usual', [{ evalId: 'a', conversation: Array.from({ length: 8 }, () => turn('a', usual)) }]);
  const stored = { modelExecutionMode: 'stored', toolExecutionMode: 'stored' };
  const run = async (set: string, metrics: object[]) => {
    const { body } = await app.post(`${D}/eval-sets/${set}/run`, { ...stored, evalMetrics: metrics });
    const { longestMs } = await app.report();
    return { results: resultsOf(body)[0]?.overallEvalMetricResults, longestMs };
  };
  await run('long', []);
  const without = await run('long', []);
  const [match] = [{ metricName: 'response_match_score', threshold: 1 }];
  const long = await run('long', [match]);
  expect(long.results?.[0]?.details?.rubricScores[0]?.rationale).toBe(
    'A response of over 65536 characters is not compared by its words.',
  );
  const figures = [without.longestMs, long.longestMs].map(Math.round);
  const short = await run('usual', [match]);
  expect(short.results?.[0]).toMatchObject({ score: 1, evalStatus: 1 });
  console.log(
    `longest turns of the loop: without %d, with %d ms; 8 of ${usual.length} characters: %d ms`,
    ...figures,
    Math.round(short.longestMs),
  );
  expect(short.longestMs).toBeLessThan(500);
});

test('A8: expected calls are compared in one pass over both lists', () => {
  let reads = 0;
  const call = (n: number): FunctionCall => ({
    get name() {
      reads += 1;
      return `tool${n % 7}`;
    },
    args: { n },
  });
  const actual = Array.from({ length: 480 }, (_, n) => call(n));
  const expected = Array.from({ length: 12_480 }, (_, n) => call(n + 240));
  expect(trajectoryMatch(actual, expected, { matchType: 'ANY_ORDER', ignoreArgs: false })).toBe(0);
  expect(trajectoryDetails(actual, expected).f1).toBeCloseTo(480 / 12_960);
  console.log(`names read: ${reads}`);
  expect(reads).toBeLessThan(10 * 12_960);
});

/** Cases of one process at once. */
const PLACES = 16;

describe('A8: users beside each other', () => {
  const scopes = 'invoke read write develop';
  const cases = [
    { evalId: 'a', conversation: [turn('Hello', 'hi')] },
    { evalId: 'b', conversation: [turn('Hello', 'hi')] },
  ];

  test('A8: 100 open runs of one user refuse that user only, and are not served before another user', async () => {
    const tokens = closed(await startTokenIssuer());
    const gate = gatedAgents();
    const app = closed(await startApp(tokens.environment, { agents: gate.agents }));
    const [mallory, alice] = [
      await tokens.headersOf('mallory', { scopes }),
      await tokens.headersOf('alice', { scopes }),
    ];
    for (const [id, headers] of [
      ['of_mallory', mallory],
      ['of_alice', alice],
    ] as const) {
      await insertSet(app, id, cases, headers);
    }
    const start = (evalSetId: string, headers: object) =>
      app.post(`${D}/eval-runs`, { evalSetId, evalMetrics: [], parallelism: PLACES }, { ...headers });
    const statuses: number[] = [];
    for (let n = 0; n < 101; n += 1) statuses.push((await start('of_mallory', mallory)).status);
    expect([statuses.slice(0, 100).every((status) => status === 202), statuses.at(-1)]).toEqual([true, 409]);
    await gate.entered(PLACES);
    const hers = await start('of_alice', alice);
    expect(hers.status).toBe(202);
    const { runId } = hers.body as Run;
    for (let n = 0; n < 2; n += 1) {
      gate.open();
      await gate.entered(PLACES + 1 + n);
    }
    const { counts } = (await app.get(`${D}/eval-runs/${runId}`, alice)).body as Run;
    console.log(`of two places that became free hers got ${2 - (counts['waiting'] ?? 2)}`);
    expect(counts['waiting']).toBe(0);
  });

  test('A8: a stored model with live tools needs the scope override', async () => {
    const tokens = closed(await startTokenIssuer());
    const app = closed(await startApp(tokens.environment));
    const mallory = await tokens.headersOf('mallory', { scopes });
    const operator = await tokens.headersOf('mallory', { scopes: `${scopes} override` });
    await insertSet(app, 's', [{ evalId: 'a', conversation: [{ userContent: { parts: [{ text: 'hi' }] } }] }], mallory);
    const start = async (headers: Record<string, string>, modes: object) =>
      (await app.post(`${D}/eval-runs`, { evalSetId: 's', evalMetrics: [], ...modes }, headers)).status;
    const written = { modelExecutionMode: 'stored', toolExecutionMode: 'live' };
    expect(await start(mallory, written)).toBe(403);
    expect(await start(mallory, { modelExecutionMode: 'replay' })).toBe(403);
    expect(await start(operator, written)).toBe(202);
    expect(await start(mallory, { ...written, toolExecutionMode: 'stored' })).toBe(202);
    expect(await start(mallory, { modelExecutionMode: 'live', toolExecutionMode: 'stored' })).toBe(202);
  });
});
