import { describe, expect, test } from 'vitest';
import { startApp, testApp } from '../support/app.ts';

const app = testApp();
const at = '/dev/apps/harness_agent';
const clockNow = expect.toSatisfy((value: number) => Math.abs(value - Date.now() / 1000) < 60, 'a time of this minute');
const turn = (text: string) => ({ invocationId: 'i', userContent: { role: 'user', parts: [{ text }] } });
const evalCase = (evalId: string) => ({
  evalId,
  conversation: [turn('hi')],
  sessionInput: { appName: 'harness_agent', userId: 'u', state: { kept: null } },
  creationTimestamp: 12.5,
});
/** As the ADK Web UI sends it. */
const create = (eval_set_id: string, eval_cases: unknown[] = []) =>
  app.post(`${at}/eval-sets`, {
    eval_set: { eval_set_id, model_execution_mode: 'live', tool_execution_mode: 'live', eval_cases },
  });
/** Both spellings of a case. */
const cases = (set: string, id: string) => [
  `${at}/eval_sets/${set}/evals/${id}`,
  `${at}/eval-sets/${set}/eval-cases/${id}`,
];

describe('sets', () => {
  test('are created, listed sorted, read and deleted, in every spelling', async () => {
    const created = await create('b_set', [evalCase('one')]);
    const set = {
      eval_set_id: 'b_set',
      name: 'b_set',
      eval_cases: [evalCase('one')],
      model_execution_mode: 'live',
      tool_execution_mode: 'live',
      creation_timestamp: clockNow,
    };
    expect([created.status, created.body]).toEqual([200, set]);
    const camel = await app.post(`${at}/eval-sets`, {
      evalSet: { eval_set_id: 'A_set', name: 'N\u0000', description: 'D\ud800' },
    });
    expect([camel.status, camel.body]).toEqual([
      200,
      { eval_set_id: 'A_set', name: 'N\u0000', description: 'D\ud800', eval_cases: [], creation_timestamp: clockNow },
    ]);
    const legacy = await app.post(`${at}/eval_sets/c_set`);
    expect([legacy.status, legacy.text]).toEqual([200, 'null']);

    const ids = ['A_set', 'b_set', 'c_set'];
    expect((await app.get(`${at}/eval_sets`)).body).toEqual(ids);
    expect((await app.get(`${at}/eval-sets`)).body).toEqual({ evalSetIds: ids });
    expect((await app.get('/dev/apps/other/eval_sets')).body).toEqual([]);
    const nul = await app.get(`${at}/eval_sets?cursor=a%00`);
    expect(nul.status).toBe(422);
    for (const spelling of ['eval_sets', 'eval-sets']) {
      expect((await app.get(`${at}/${spelling}/b_set`)).body).toEqual(created.body);
      const [gone = ''] = ids.splice(0, 1);
      const deleted = await app.send('DELETE', `${at}/${spelling}/${gone}`);
      expect([deleted.status, deleted.text]).toEqual([200, 'null']);
      expect((await app.get(`${at}/eval_sets`)).body).toEqual(ids);
    }
  });

  test('a taken id is 409, another character than ADK allows 400; nothing is changed', async () => {
    await create('taken', [evalCase('one')]);
    const expected = [409, { detail: 'EvalSet taken already exists for app harness_agent.' }];
    const again = await create('taken', [evalCase('two')]);
    expect([again.status, again.body]).toEqual(expected);
    const legacy = await app.post(`${at}/eval_sets/taken`);
    expect([legacy.status, legacy.body]).toEqual(expected);
    expect((await app.get(`${at}/eval_sets/taken/evals`)).body).toEqual(['one']);
    for (const id of ['a-b', 'ä', 'a b']) {
      const { status, body } = await create(id);
      expect([status, body]).toEqual([
        400,
        { detail: 'Invalid Eval Set ID. Eval Set ID should have the `^[a-zA-Z0-9_]+$` format' },
      ]);
    }
    const twice = await create('twice', [evalCase('one'), evalCase('one')]);
    expect([twice.status, twice.body]).toEqual([409, { detail: 'Two of the eval cases have one id.' }]);
    expect((await app.get(`${at}/eval_sets/twice`)).status).toBe(404);
  });

  test('a session is added to a set of any id that a session may have, which only a file of ADK cannot hold', async () => {
    await app.post('/apps/harness_agent/users/u/sessions', { sessionId: 'named' });
    const added = { evalId: 'e', sessionId: 'named', userId: 'u' };
    const ids = ['my-set', 'a set', 'Prüfung', 'a.b', '100%'];
    for (const id of ids) {
      const set = `${at}/eval-sets/${encodeURIComponent(id)}`;
      const made = await app.post(`${set}/add-session`, added);
      expect([id, made.status, made.body]).toEqual([id, 200, null]);
      expect((await app.post(`${set.replace('eval-sets', 'eval_sets')}/add_session`, added)).status).toBe(200);
      expect((await app.get(`${at}/eval_sets/${encodeURIComponent(id)}/evals`)).body).toEqual(['e']);
      const file = await app.get(`${set}/file`);
      expect([file.status, file.body]).toEqual([400, { detail: expect.stringContaining(`\`${id}\``) as string }]);
    }
    const listed: string[] = [];
    for (let cursor = ''; ; ) {
      const page = await app.get(`${at}/eval-sets?limit=1${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
      listed.push(...(page.body as { evalSetIds: string[] }).evalSetIds);
      cursor = page.headers.get('x-next-cursor') ?? '';
      if (cursor === '') break;
    }
    expect(listed).toEqual(expect.arrayContaining(ids));
    expect((await app.get(`${at}/eval-sets?cursor=%25zz`)).status).toBe(422);
    for (const id of ids) await app.send('DELETE', `${at}/eval-sets/${encodeURIComponent(id)}`);
  });

  test.each([
    [undefined, 'missing', ['body']],
    [{}, 'missing', ['body', 'evalSet']],
    [{ eval_set: 1 }, 'model_attributes_type', ['body', 'eval_set']],
    [{ eval_set: {} }, 'missing', ['body', 'eval_set', 'eval_set_id']],
    [{ eval_set: { eval_set_id: 'x', eval_cases: {} } }, 'list_type', ['body', 'eval_set', 'eval_cases']],
    [
      { eval_set: { eval_set_id: 'x', eval_cases: [{ evalId: 'a' }] } },
      'value_error',
      ['body', 'eval_set', 'eval_cases', 0],
    ],
  ])('the body %j is 422', async (sent, type, loc) => {
    const { status, body } = await app.post(`${at}/eval-sets`, sent);
    expect([status, body]).toEqual([422, { detail: [expect.objectContaining({ type, loc })] }]);
  });
});

describe('cases', () => {
  test('are read, replaced and deleted in both spellings', async () => {
    for (const [n, path] of cases('cases', 'one').entries()) {
      await create('cases', [evalCase('one')]);
      expect((await app.get(path)).body).toEqual({ ...evalCase('one'), finalSessionState: {} });
      // As the UI sends it: with members of its own in events, and without those it does not know.
      const said = { role: 'model', parts: [{ functionCall: { name: 'f', args: { a: null } } }] };
      const edited = {
        evalId: 'one',
        conversation: [
          {
            ...turn('edited'),
            finalResponse: { role: 'model', parts: [{ text: 'yes', thought: null }] },
            intermediateData: { invocationEvents: [{ author: 'a', content: said, invocationIndex: n }] },
          },
        ],
        sessionInput: { appName: 'harness_agent', userId: 'u', state: {} },
      };
      const put = await app.send('PUT', path, edited);
      expect([put.status, put.text]).toEqual([200, 'null']);
      const [kept] = edited.conversation;
      const toolUses = [{ name: 'f', args: { a: null } }];
      const shown = {
        ...kept,
        finalResponse: { role: 'model', parts: [{ text: 'yes' }] },
        // The UI has the older paths. Every ADK refuses a case with both forms.
        intermediateData: {
          ...kept?.intermediateData,
          ...(path.includes('/eval-cases/') ? {} : { toolUses, toolResponses: [], intermediateResponses: [] }),
        },
      };
      expect((await app.get(path)).body).toEqual({
        ...edited,
        conversation: [shown],
        creationTimestamp: 12.5,
        finalSessionState: {},
      });
      const deleted = await app.send('DELETE', path);
      expect([deleted.status, deleted.text]).toEqual([200, 'null']);
      expect((await app.get(`${at}/eval_sets/cases/evals`)).body).toEqual([]);
      await app.send('DELETE', `${at}/eval-sets/cases`);
    }
  });

  test('snake_case members are the same', async () => {
    await create('snake', [{ eval_id: 'one', conversation: [{ user_content: { parts: [] } }] }]);
    const { status } = await app.send('PUT', cases('snake', 'one')[0] ?? '', {
      eval_id: 'one',
      creation_timestamp: 3,
      session_input: { app_name: 'a', user_id: 'u' },
      conversation: [{ invocation_id: 'i', user_content: { parts: [{ function_call: { args: { a_b: 1 } } }] } }],
    });
    expect(status).toBe(200);
    expect((await app.get(cases('snake', 'one')[1] ?? '')).body).toEqual({
      evalId: 'one',
      creationTimestamp: 3,
      sessionInput: { appName: 'a', userId: 'u' },
      conversation: [{ invocationId: 'i', userContent: { parts: [{ functionCall: { args: { a_b: 1 } } }] } }],
      finalSessionState: {},
    });
  });

  test('another id in the body is 400', async () => {
    await create('here');
    const [path = ''] = cases('here', 'nope');
    const other = await app.send('PUT', path, evalCase('other'));
    expect([other.status, other.body]).toEqual([
      400,
      { detail: 'Eval id in EvalCase should match the eval id in the API route.' },
    ]);
  });

  test.each([
    [{ ...turn('a'), zzz: 1 }, ['zzz']],
    [{ ...turn('a'), intermediateData: { toolUses: [], zzz: 1 } }, ['intermediateData', 'zzz']],
    [{ ...turn('a'), rubrics: [{ rubricId: 'r', rubricContent: {}, zzz: 1 }] }, ['rubrics', 0, 'zzz']],
    [{ ...turn('a'), finalResponse: { parts: [], zzz: 1 } }, ['finalResponse', 'zzz']],
  ])('with the turn %j are 422: records of turns are closed', async (one, loc) => {
    const wanted = { type: 'extra_forbidden', msg: 'Extra inputs are not permitted', input: 1 };
    const put = await app.send('PUT', cases('here', 'x')[0] ?? '', { evalId: 'x', conversation: [one] });
    expect([put.status, put.body]).toEqual([
      422,
      { detail: [{ ...wanted, loc: ['body', 'conversation', 0, ...loc] }] },
    ]);
    const set = { eval_set_id: 'closed', eval_cases: [{ evalId: 'x', conversation: [one] }] };
    const made = await app.post(`${at}/eval-sets`, { eval_set: set });
    const at0 = ['body', 'eval_set', 'eval_cases', 0, 'conversation', 0, ...loc];
    expect([made.status, made.body]).toEqual([422, { detail: [{ ...wanted, loc: at0 }] }]);
  });

  test('keep members that they do not know beside their turns', async () => {
    const open = {
      evalId: 'open',
      conversation: [{ userContent: { parts: [] } }],
      mine: { aB: 1 },
      sessionInput: { appName: 'a', userId: 'u', my: 1 },
    };
    await create('open', [open]);
    expect((await app.get(cases('open', 'open')[0] ?? '')).body).toMatchObject(open);
  });

  test('of no turn are 422: there would be nothing to evaluate', async () => {
    const sent = { evalId: 'x', conversation: [] };
    const refused = { detail: [{ loc: ['body'], msg: 'Value error, A conversation needs a turn to evaluate.' }] };
    expect(await app.send('PUT', cases('here', 'x')[0] ?? '', sent)).toMatchObject({ status: 422, body: refused });
  });

  test.each([{}, { conversation: [], conversationScenario: { startingPrompt: 'p', conversationPlan: 'c' } }])(
    'of %j one member too few or too many is 422',
    async (more) => {
      const sent = { evalId: 'x', ...more };
      const { status, body } = await app.send('PUT', cases('here', 'x')[0] ?? '', sent);
      expect([status, body]).toEqual([
        422,
        {
          detail: [
            {
              type: 'value_error',
              loc: ['body'],
              msg:
                'Value error, ' +
                'Exactly one of conversation and conversation_scenario must be provided in an EvalCase.',
              input: sent,
              ctx: { error: {} },
            },
          ],
        },
      ]);
    },
  );

  test('a session becomes a case in the spelling of the UI too', async () => {
    await app.post('/harness/invoke', {
      prompt: 'What is 2 + 3? Use the calculator.',
      harness_name: 'h',
      run_agent_request: { user_id: 'u', session_id: 's' },
    });
    const added = await app.post(`${at}/eval_sets/of_ui/add_session`, { evalId: 'case1', sessionId: 's', userId: 'u' });
    expect([added.status, added.text]).toEqual([200, 'null']);
    const { body } = await app.get(cases('of_ui', 'case1')[1] ?? '');
    expect(body).toMatchObject({ evalId: 'case1', sessionInput: { appName: 'harness_agent', userId: 'u', state: {} } });
    const replaced = await app.send('PUT', cases('of_ui', 'case1')[0] ?? '', body);
    expect(replaced.status).toBe(200);
    expect((await app.get(cases('of_ui', 'case1')[1] ?? '')).body).toEqual(body);
  });

  test.each(['%00', 'x'.repeat(300)])('the id %s is 422', async (id) => {
    for (const path of [...cases('here', id), ...cases(id, 'x'), `${at}/eval_sets/${id}`, `${at}/eval-results/${id}`]) {
      expect([path, (await app.get(path)).status]).toEqual([path, 422]);
    }
  });
});

describe('results and metrics', () => {
  test('there are none before a run', async () => {
    expect((await app.get(`${at}/eval_results`)).body).toEqual([]);
    expect((await app.get(`${at}/eval-results`)).body).toEqual({ evalResultIds: [] });
  });

  test('each metric has the interval that the UI reads; without a model there is no judge', async () => {
    const { status, body } = await app.get(`${at}/metrics-info`);
    const metric = (metricName: string) => ({
      metricName,
      description: expect.any(String),
      metricValueInfo: { interval: { minValue: 0, openAtMin: false, maxValue: 1, openAtMax: false } },
      requiresThreshold: true,
    });
    expect([status, body]).toEqual([
      200,
      {
        metricsInfo: [
          'tool_trajectory_avg_score',
          'response_match_score',
          'tool_trajectory_f1',
          'tool_arguments_score',
        ].map(metric),
      },
    ]);
  });
});

test('a judge is listed where its provider has the key that it asks for', async () => {
  const metricsWith = async (environment: Record<string, string>) => {
    const started = await startApp({ MODEL_PROVIDER: 'openai', MODEL_NAME: 'm', ...environment });
    const { body } = await started.get('/dev/apps/harness_agent/metrics-info');
    await started.close();
    return (body as { metricsInfo: { metricName: string }[] }).metricsInfo.map(({ metricName }) => metricName);
  };
  expect(await metricsWith({})).not.toContain('safety_v1');
  expect(await metricsWith({ MODEL_API_KEY: 'key-of-the-provider' })).toContain('safety_v1');
});

describe('older paths', () => {
  const old = '/apps/harness_agent';

  test('of ADK 1.x lead to the same', async () => {
    await create('old', [evalCase('one')]);
    expect((await app.post(`${old}/eval_sets/older`)).text).toBe('null');
    expect((await app.get(`${old}/eval_sets`)).body).toEqual(expect.arrayContaining(['old', 'older']));
    expect((await app.get(`${old}/eval_sets/old/evals`)).body).toEqual(['one']);
    const read = await app.get(`${old}/eval_sets/old/evals/one`);
    expect(read.body).toEqual({ ...evalCase('one'), finalSessionState: {} });
    expect((await app.send('PUT', `${old}/eval_sets/old/evals/one`, evalCase('one'))).text).toBe('null');
    await app.post('/apps/harness_agent/users/u/sessions', { sessionId: 'for-old' });
    const added = await app.post(`${old}/eval_sets/old/add_session`, {
      evalId: 'two',
      sessionId: 'for-old',
      userId: 'u',
    });
    expect(added.text).toBe('null');
    expect((await app.send('DELETE', `${old}/eval_sets/old/evals/one`)).text).toBe('null');
    expect((await app.get(`${old}/eval_sets/old/evals`)).body).toEqual(['two']);
    expect((await app.get(`${old}/eval_results`)).status).toBe(200);
    expect((await app.get(`${old}/eval-sets`)).body).toEqual({ detail: 'Not Found. It is served with EVALS=true.' });
  });
});
