import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { startAnsweringProvider } from '../support/answering-provider.ts';
import { startApp } from '../support/app.ts';
import { staged } from '../support/staged.ts';
import { statementsOf } from '../support/store.ts';

const provider = staged(() =>
  startAnsweringProvider(({ prompt, results }) => {
    if (prompt.includes('is_the_agent_response') || prompt.includes('"verdict"')) {
      return JSON.stringify({ reason: 'r', verdict: prompt.includes('wrong') ? 'invalid' : 'valid' });
    }
    if (prompt.startsWith('You play the user')) return 'and then?';
    if (prompt.includes('calculate') && results.length === 0) {
      return { calls: [['calculator', { expression: '1 + 1' }]] };
    }
    return `answer to ${prompt}`;
  }),
);
const app = staged(() =>
  startApp({
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'answering',
    MODEL_BASE_URL: provider.baseUrl,
    MODEL_MAX_RETRIES: '0',
    TOOLS: 'calculator',
  }),
);

const D = '/dev/apps/harness_agent';
const text = (said: string, role = 'user') => ({ role, parts: [{ text: said }] });
const call = { name: 'calculator', args: { expression: '1 + 1' } };
const turn = (said: string, calls: object[] = []) => ({
  userContent: text(said),
  finalResponse: text(`answer to ${said}`, 'model'),
  intermediateData: { toolUses: calls, toolResponses: [], intermediateResponses: [] },
});
const session = { appName: 'harness_agent', userId: 'eve', state: {} };
const TRAJECTORY = { metricName: 'tool_trajectory_avg_score', threshold: 1 };
const MATCH = { metricName: 'response_match_score', threshold: 0.7 };
const set = (id: string, cases: object[]) =>
  app.post(`${D}/eval-sets`, { evalSet: { eval_set_id: id, eval_cases: cases } });
const send = (path: string, body: object) => app.post(path, body, { 'idempotency-key': 'one' });
const uuid = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}';
interface Result {
  evalId: string;
  finalEvalStatus: number;
  overallEvalMetricResults: unknown[];
  evalMetricResultPerInvocation: { evalMetricResults: unknown[] }[];
  sessionId: string;
  userId: string;
}
const results = (body: unknown) => (body as { runEvalResults: Result[] }).runEvalResults;

describe('a run', () => {
  test('with an Idempotency-Key ends, and is done once', async () => {
    await set('once', [{ evalId: 'a', conversation: [turn('hello')] }]);
    const body = { evalMetrics: [TRAJECTORY] };
    const answers = [];
    for (const path of [`${D}/eval-sets/once/run`, `${D}/eval_sets/once/run_eval`]) {
      const [first, again] = [await send(path, body), await send(path, body)];
      expect([first.status, again.text]).toEqual([200, first.text]);
      answers.push(first);
    }
    const runs = await app.get(`${D}/eval-runs?evalSetId=once`);
    expect(runs.body).toHaveLength(answers.length);
  });

  test('answers in both shapes, in the order of the set, and stays as a result', async () => {
    await set('both', [
      { evalId: 'z', conversation: [turn('calculate', [call])], sessionInput: session },
      { evalId: 'a', conversation: [turn('hello')] },
    ]);
    const list = await app.post(`${D}/eval_sets/both/run_eval`, { evalIds: ['a', 'z'], evalMetrics: [TRAJECTORY] });
    expect([list.status, (list.body as Result[]).map(({ evalId }) => evalId)]).toEqual([200, ['z', 'a']]);
    const { status, body } = await app.post(`${D}/eval-sets/both/run`, {
      eval_case_ids: ['z'],
      eval_metrics: [TRAJECTORY, { metric_name: 'response_match_score', threshold: 0.7 }],
    });
    const scores = [
      { ...TRAJECTORY, score: 1, evalStatus: 1 },
      { ...MATCH, score: 1, evalStatus: 1 },
    ];
    const [result] = results(body);
    const shown = {
      evalSetFile: 'both',
      evalSetId: 'both',
      evalId: 'z',
      finalEvalStatus: 1,
      evalMetricResults: [],
      overallEvalMetricResults: scores,
      evalMetricResultPerInvocation: [
        {
          actualInvocation: {
            invocationId: expect.stringMatching(`^e-${uuid}$`),
            userContent: text('calculate'),
            finalResponse: text('answer to calculate', 'model'),
            intermediateData: {
              toolUses: [{ ...call, id: expect.any(String) }],
              toolResponses: [{ id: expect.any(String), name: call.name, response: expect.any(Object) }],
              intermediateResponses: [],
            },
            creationTimestamp: expect.any(Number),
            appDetails: {
              agentDetails: {
                harness_agent: {
                  name: 'harness_agent',
                  instructions: 'You are a helpful assistant.',
                  toolDeclarations: [{ functionDeclarations: [expect.objectContaining({ name: call.name })] }],
                },
              },
            },
          },
          expectedInvocation: {
            ...turn('calculate', [call]),
            intermediateData: { toolUses: [call], toolResponses: [], intermediateResponses: [] },
          },
          evalMetricResults: scores,
        },
      ],
      sessionId: expect.stringMatching(`^adk-eval-session-${uuid}$`),
      userId: 'eve',
      efficiency: {
        toolCallCount: 1,
        inferenceCallCount: 2,
        tokenUsage: { totalTokens: 30, inputTokens: 20, promptTokens: 20, outputTokens: 10, candidatesTokens: 10 },
        invocationDuration: {
          totalSeconds: expect.any(Number),
          modelSeconds: expect.any(Number),
          toolSeconds: expect.any(Number),
        },
      },
    };
    expect([status, body]).toEqual([200, { runEvalResults: [shown] }]);

    const ids = (await app.get(`${D}/eval_results`)).body as string[];
    expect((await app.get(`${D}/eval-results`)).body).toEqual({ evalResultIds: ids });
    const last = ids.at(-1) ?? '';
    expect(last).toMatch(/^harness_agent_both_\d+\.\d{1,6}$/);
    for (const spelling of ['eval_results', 'eval-results']) {
      expect((await app.get(`${D}/${spelling}/${last}`)).body).toEqual({
        evalSetResultId: last,
        evalSetResultName: last,
        evalSetId: 'both',
        evalCaseResults: [shown],
        creationTimestamp: Number(last.split('_').at(-1)),
      });
    }
    // The session is there to look at, and in no list.
    const sessions = '/apps/harness_agent/users/eve/sessions';
    expect((await app.get(`${sessions}/${result?.sessionId}`)).status).toBe(200);
    expect((await app.get(sessions)).body).toEqual([]);
  });

  test('a wrong answer and a wrong trajectory fail; what the case said before an edit is not what counts', async () => {
    await set('wrong', [{ evalId: 'c', conversation: [turn('calculate')] }]);
    const run = async () =>
      results((await app.post(`${D}/eval-sets/wrong/run`, { evalMetrics: [TRAJECTORY, MATCH] })).body).map(
        ({ finalEvalStatus, overallEvalMetricResults }) => [finalEvalStatus, overallEvalMetricResults],
      );
    expect(await run()).toEqual([
      [
        2,
        [
          { ...TRAJECTORY, score: 0, evalStatus: 2 },
          { ...MATCH, score: 1, evalStatus: 1 },
        ],
      ],
    ]);
    const edited = { evalId: 'c', conversation: [turn('calculate', [call])] };
    await app.send('PUT', `${D}/eval-sets/wrong/eval-cases/c`, edited);
    expect((await run()).map(([status]) => status)).toEqual([1]);
  });

  test('a metric of the dialog that a judge decides runs with a threshold only', async () => {
    await set('judged', [
      { evalId: 'good', conversation: [turn('hello')] },
      { evalId: 'bad', conversation: [{ ...turn('hello'), finalResponse: text('wrong', 'model') }] },
    ]);
    const judge = { metricName: 'final_response_match_v2', threshold: 0.5 };
    const before = provider.asked.length;
    const { body } = await app.post(`${D}/eval-sets/judged/run`, { evalMetrics: [judge] });
    expect(results(body).map((one) => [one.evalId, one.finalEvalStatus, one.overallEvalMetricResults])).toEqual([
      ['good', 1, [{ ...judge, score: 1, evalStatus: 1 }]],
      ['bad', 2, [{ ...judge, score: 0, evalStatus: 2 }]],
    ]);
    // A turn and five samples each.
    expect(provider.asked.length - before).toBe(12);
  });

  test('a simulated user speaks until the limit', async () => {
    const conversationScenario = { starting_prompt: 'hello', conversation_plan: 'say hello, then more' };
    await set('simulated', [{ evalId: 's', conversationScenario }]);
    const { body } = await app.post(`${D}/eval-sets/simulated/run`, {
      evalMetrics: [],
      userSimulatorConfig: { maxAllowedInvocations: 2 },
    });
    const [result] = results(body);
    const { events } = (await app.get(`/apps/harness_agent/users/test_user_id/sessions/${result?.sessionId}`)).body as {
      events: { author: string; content: { parts: { text: string }[] } }[];
    };
    expect(events.map(({ author }) => author)).toEqual(['user', 'harness_agent', 'user', 'harness_agent']);
    expect(events.map(({ content }) => content.parts[0]?.text)).toEqual([
      'hello',
      'answer to hello',
      'and then?',
      'answer to and then?',
    ]);
  });

  test('model, tools or both come from the case, as the set says that the UI made, or the run', async () => {
    const called = { functionCall: { id: 'c1', ...call } };
    // The calculator would say 2, the provider something else.
    const answered = { functionResponse: { id: 'c1', name: 'calculator', response: { result: 42 } } };
    const invocationEvents = [
      { author: 'harness_agent', content: { role: 'model', parts: [called] } },
      { author: 'harness_agent', content: { role: 'user', parts: [answered] } },
    ];
    const finalResponse = text('It is 42', 'model');
    const one = { userContent: text('calculate'), finalResponse, intermediateData: { invocationEvents } };
    const modes = { model_execution_mode: 'replay', tool_execution_mode: 'replay' };
    const eval_cases = [{ evalId: 'r', conversation: [one] }];
    const made = await app.post(`${D}/eval-sets`, { eval_set: { eval_set_id: 'replayed', ...modes, eval_cases } });
    expect([made.status, (await app.get(`${D}/eval_sets/replayed`)).body]).toEqual([
      200,
      expect.objectContaining(modes),
    ]);
    const runWith = async (more: object) => {
      const before = provider.asked.length;
      const answer = await app.post(`${D}/eval-sets/replayed/run`, { evalMetrics: [TRAJECTORY, MATCH], ...more });
      const [result] = results(answer.body);
      const read = await app.get(`/apps/harness_agent/users/test_user_id/sessions/${result?.sessionId}`);
      const [value] = [.../"response": \{"result": (\d+)\}/g[Symbol.matchAll](read.text)].map(([, found]) =>
        Number(found),
      );
      return [result?.finalEvalStatus, value, provider.asked.length - before];
    };
    expect(await runWith({})).toEqual([1, 42, 0]);
    expect(await runWith({ tool_execution_mode: 'live' })).toEqual([1, 2, 0]);
    expect(await runWith({ modelExecutionMode: 'live', toolExecutionMode: 'stored' })).toEqual([2, 42, 2]);
    expect(await runWith({ modelExecutionMode: 'live', toolExecutionMode: 'live' })).toEqual([2, 2, 2]);
    const runs = (await app.get(`${D}/eval-runs?evalSetId=replayed`)).body as Record<string, unknown>[];
    expect(runs.map((run) => [run['modelExecutionMode'], run['toolExecutionMode']])).toEqual([
      ['live', 'live'],
      ['live', 'stored'],
      ['stored', 'live'],
      ['stored', 'stored'],
    ]);
    const unknown = await app.post(`${D}/eval-sets/replayed/run`, { evalMetrics: [], model_execution_mode: 'mocked' });
    expect(unknown.status).toBe(422);
  });

  test('a call without an answer is an error that the model reads; a model without one ends the case', async () => {
    const intermediateData = { toolUses: [], toolResponses: [], intermediateResponses: [] };
    await set('unanswered', [{ evalId: 'u', conversation: [{ userContent: text('calculate'), intermediateData }] }]);
    const { body } = await app.post(`${D}/eval-sets/unanswered/run`, { evalMetrics: [], toolExecutionMode: 'stored' });
    const [result] = results(body);
    const read = await app.get(`/apps/harness_agent/users/test_user_id/sessions/${result?.sessionId}`);
    expect(read.text).toContain('{"error": "The eval case has no stored answer to this call."}');
    const silent = await app.post(`${D}/eval-sets/unanswered/run`, { evalMetrics: [], modelExecutionMode: 'replay' });
    expect(results(silent.body)).toMatchObject([
      { finalEvalStatus: 2, error: 'The eval case has no further answer of the model.', failedTurn: 0 },
    ]);
  });

  test('a case can begin within a session: its history and state of then come first, and are no turns', async () => {
    const at = '/apps/harness_agent/users/eve/sessions/long';
    await app.post(at, { state: { topic: 'first' } });
    const say = (said: string, stateDelta: object) =>
      app.post('/run', {
        appName: 'harness_agent',
        userId: 'eve',
        sessionId: 'long',
        newMessage: text(said),
        stateDelta,
      });
    await say('one', { topic: 'second' });
    await say('two', { topic: 'third' });
    const add = (evalId: string, fromSequence: number) =>
      app.post(`${D}/eval-sets/later/add-session`, { evalId, sessionId: 'long', userId: 'eve', fromSequence });
    const within = await add('within', 1);
    const detail = 'The invocation of event 1 goes on behind it: name its last event.';
    expect([within.status, within.body]).toEqual([400, { detail }]);
    expect((await add('beyond', 99)).status).toBe(400);
    expect([(await add('later', 2)).status, (await app.get(`${D}/eval_sets/later/evals`)).body]).toEqual([
      200,
      ['later'],
    ]);
    const before = provider.asked.length;
    const { body } = await app.post(`${D}/eval-sets/later/run`, { evalMetrics: [TRAJECTORY, MATCH] });
    const [result] = results(body);
    expect([result?.finalEvalStatus, result?.evalMetricResultPerInvocation.length]).toEqual([1, 1]);
    expect(provider.asked.slice(before).map(({ messages }) => messages.map(({ content }) => content))).toEqual([
      ['one', 'answer to one', 'two'],
    ]);
    const ran = await app.get(`/apps/harness_agent/users/eve/sessions/${result?.sessionId}`);
    expect(ran.body).toMatchObject({ state: { topic: 'second' }, events: [{}, {}, {}, {}] });
    const ids = (await app.get(`${D}/eval_results`)).body as string[];
    const read = (await app.get(`${D}/eval_results/${ids.at(-1)}`)).body as { evalCaseResults: Result[] };
    expect(read.evalCaseResults).toEqual(results(body));
  });

  test('a case whose history is gone ends with the reason; a sequence needs a session', async () => {
    const sessionInput = { appName: 'harness_agent', userId: 'eve', sessionId: 'never', sequence: 2 };
    await set('gone', [{ evalId: 'g', conversation: [turn('hello')], sessionInput }]);
    const { body } = await app.post(`${D}/eval-sets/gone/run`, { evalMetrics: [] });
    expect(results(body)).toMatchObject([{ finalEvalStatus: 2, error: 'Session not found: never', failedTurn: 0 }]);
    const { sessionId: _without, ...bare } = sessionInput;
    expect((await set('bare', [{ evalId: 'g', conversation: [turn('hello')], sessionInput: bare }])).status).toBe(422);
  });

  test('a result, a summary and a score of a session say what models cost, where their price is known', async () => {
    await set('costs', [{ evalId: 'c', conversation: [turn('calculate', [call])], sessionInput: session }]);
    const body = { evalSetId: 'costs', evalMetrics: [TRAJECTORY], trials: 2 };
    const { runId, evalSetResultId } = (await app.post(`${D}/eval-runs`, body)).body as Record<string, string>;
    await app.get(`${D}/eval-runs/${runId}/stream`);
    const read = async () => {
      const result = (await app.get(`${D}/eval_results/${evalSetResultId}`)).body as { evalCaseResults: object[] };
      const summary = (await app.get(`${D}/eval-runs/${runId}/summary`)).body as { cases: object[] };
      const costs = [...result.evalCaseResults, ...summary.cases, summary].map(
        (one) => (one as { cost?: number }).cost,
      );
      return costs;
    };
    expect(await read()).toEqual([undefined, undefined, undefined, undefined]);
    // The provider's name begins with it; the longest one counts.
    for (const model of ['*', 'ans', 'answering-2'])
      await app.send('PUT', '/model-prices', { model, promptPrice: 1, outputPrice: 1 });
    await app.send('PUT', '/model-prices', { model: 'answer', promptPrice: 50_000, outputPrice: 100_000 });
    // 20 tokens of prompts and 10 of answers.
    expect(await read()).toEqual([2, 2, 4, 4]);
    await app.post('/apps/harness_agent/users/eve/sessions/paid');
    await app.post('/run', { appName: 'harness_agent', userId: 'eve', sessionId: 'paid', newMessage: text('hello') });
    const sessions = [{ userId: 'eve', sessionId: 'paid' }];
    expect((await app.post(`${D}/session-scores`, { evalMetrics: [TRAJECTORY], sessions })).body).toMatchObject([
      { cost: 1 },
    ]);
  });

  test('what cannot be run is refused with the reason', async () => {
    await set('refused', [
      { evalId: 'a', conversation: [turn('a')] },
      { evalId: 'other', conversation: [turn('a')], sessionInput: { ...session, appName: 'shop' } },
    ]);
    const run = async (id: string, body: object) => {
      const answer = await app.post(`${D}/eval-sets/${id}/run`, { evalMetrics: [], ...body });
      return [answer.status, (answer.body as { detail: unknown }).detail];
    };
    expect(await run('nope', {})).toEqual([404, 'Eval set `nope` not found.']);
    expect(await run('refused', { evalCaseIds: ['a', 'x', 'y'] })).toEqual([
      404,
      'Eval case `x`, `y` not found in eval set `refused`.',
    ]);
    expect(await run('refused', { evalCaseIds: ['other'] })).toEqual([
      400,
      'The session input of eval case `other` names the app shop, not harness_agent.',
    ]);
    expect(await run('refused', { evalCaseIds: ['a'], trials: 1_000, userSimulatorConfig: { type: 'x' } })).toEqual([
      400,
      expect.stringMatching(/^The simulated user cannot be used: type: /),
    ]);
    const many = { trials: 1_000, evalCaseIds: [] };
    await set('many', [
      { evalId: 'a', conversation: [turn('a')] },
      { evalId: 'b', conversation: [turn('b')] },
    ]);
    expect(await run('many', many)).toEqual([400, 'The run has 2000 cases, trials counted; the maximum is 1000.']);
    await set('empty', []);
    expect((await app.post(`${D}/eval-sets/empty/run`, { evalMetrics: [] })).body).toEqual({ runEvalResults: [] });
    expect((await app.get(`${D}/eval-runs?evalSetId=empty`)).body).toEqual([]);
  });

  test('of one case claims once, because the end of the case starts no next one', async () => {
    await set('single', [{ evalId: 'a', conversation: [turn('a')] }]);
    const countClaims = async () => {
      const sent = await statementsOf(async () => {
        await app.post(`${D}/eval-sets/single/run`, { evalMetrics: [MATCH] });
        await sleep(500);
      });
      // Nothing is left to stop where each turn has ended.
      expect(sent.filter((statement) => /^update "invocations" .* ->> 'kind' = /s.test(statement))).toEqual([]);
      return sent.filter((statement) => statement.includes('from claim_jobs(')).length;
    };
    // The least of several, because polls may fall into some of them, more on a slow machine.
    const counts: number[] = [];
    while (!counts.includes(1) && counts.length < 20) counts.push(await countClaims());
    expect(counts).toContain(1);
  });
});

describe('a run that nobody waits for', () => {
  test('is started, followed, listed and read; each trial has a session of its own', async () => {
    await set('trials', [{ evalId: 'a', conversation: [turn('hello')] }]);
    const started = await app.post(`${D}/eval-runs`, { evalSetId: 'trials', evalMetrics: [MATCH], trials: 3 });
    const { runId } = started.body as { runId: string };
    expect(started.status).toBe(202);
    const { text: frames } = await app.get(`${D}/eval-runs/${runId}/stream`);
    const last = JSON.parse(frames.trim().split('\n\n').at(-1)?.replace('data: ', '') ?? '') as object;
    const done = {
      runId,
      evalSetId: 'trials',
      status: 'done',
      evalSetResultId: expect.stringMatching(/^harness_agent_trials_/),
      evalMetrics: [MATCH],
      trials: 3,
      parallelism: 4,
      maxJudgeTokens: 10_000_000,
      judgeTokens: 0,
      agentHash: expect.stringMatching(/^[0-9a-f]{64}$/),
      modelName: 'answering',
      createTime: expect.any(Number),
      endTime: expect.any(Number),
      modelExecutionMode: 'live',
      toolExecutionMode: 'live',
      counts: { total: 3, waiting: 0, running: 0, errors: 0, cancelled: 0, passed: 3, failed: 0, notEvaluated: 0 },
    };
    expect(last).toEqual(done);
    expect((await app.get(`${D}/eval-runs/${runId}`)).body).toEqual(done);
    expect((await app.get(`${D}/eval-runs?evalSetId=trials`)).body).toEqual([done]);
    const { evalSetResultId } = last as { evalSetResultId: string };
    const result = (await app.get(`${D}/eval-results/${evalSetResultId}`)).body as { evalCaseResults: Result[] };
    expect(new Set(result.evalCaseResults.map(({ sessionId }) => sessionId)).size).toBe(3);
    // One that has ended stays as it is.
    expect((await app.send('DELETE', `${D}/eval-runs/${runId}`)).body).toEqual(done);
    for (const id of ['nope', '7d444840-9dc0-41d1-b245-5ffdce74fad2']) {
      const absent = await app.get(`${D}/eval-runs/${id}`);
      expect([absent.status, absent.body]).toEqual([404, { detail: `Eval run \`${id}\` not found.` }]);
    }
  });
});
