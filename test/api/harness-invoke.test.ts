import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp({ SESSION_WAIT_MS: '50' });
const invoke = (request: Record<string, unknown>, more: Record<string, unknown> = {}) =>
  app.post('/harness/invoke', {
    prompt: 'What is 17 * 23? Use the calculator.',
    harness_name: 'demo',
    run_agent_request: { user_id: 'u', session_id: 's', ...request },
    ...more,
  });
const events = async (sessionId: string) => {
  const { body } = await app.get(`/apps/harness_agent/users/u/sessions/${sessionId}`);
  return (body as { events: Record<string, unknown>[] }).events;
};
const noActions = { stateDelta: {}, artifactDelta: {}, requestedAuthConfigs: {}, requestedToolConfirmations: {} };

const output_schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

describe('the form of an answer', () => {
  test('its value stands beside the text, in the event, and in what a retry gets', async () => {
    const harness = { output_schema };
    const request = { prompt: 'Say {"city":"Rome"}.', harness, harness_name: 'demo' };
    const send = () =>
      app.post(
        '/harness/invoke',
        { ...request, run_agent_request: { user_id: 'u', session_id: 'form' } },
        { 'idempotency-key': 'form' },
      );
    const { text } = await send();
    expect(text).toBe(
      '{"harness_name":"demo","overwrite":true,"output":"{\\"city\\":\\"Rome\\"}",' +
        '"structured_output":{"city":"Rome"},"error":null}',
    );
    expect((await send()).text).toBe(text);
    expect((await events('form')).at(-1)).toMatchObject({ output: { city: 'Rome' } });
    expect(await events('form')).toHaveLength(2);
  });

  test('what cannot fit fails with a sentence; what is no schema leaves nothing behind', async () => {
    const never = { harness: { output_schema: { type: 'object', required: ['x'], not: {} } } };
    expect((await invoke({ session_id: 'unfit' }, never)).body).toMatchObject({
      output: '',
      error: expect.stringMatching(/^The answers of `offline` do not fit the output schema: /) as string,
    });
    const wrong = { harness: { output_schema: { type: 'nothing' } } };
    expect((await invoke({ session_id: 'wrong' }, wrong)).body).toMatchObject({
      error: '`harness.output_schema`: The schema of the answer cannot be used.',
    });
    expect((await events('wrong')).filter(({ author }) => author === 'user')).toEqual([]);
    const long = { harness: { output_schema: { description: 'x'.repeat(65_536) } } };
    expect((await invoke({ session_id: 'long' }, long)).status).toBe(422);
  });
});

describe('one invocation', () => {
  test('user message, call, response, final text: stored in order, with usage and model version', async () => {
    const { status, text } = await invoke({ session_id: 'calc', max_llm_calls: 5 });
    expect([status, text]).toEqual([
      200,
      '{"harness_name":"demo","overwrite":false,"output":"The tool `calculator` answered: 391","error":null}',
    ]);
    const common = {
      id: expect.any(String),
      invocationId: expect.stringMatching(/^e-/),
      timestamp: expect.any(Number),
      actions: noActions,
    };
    const agent = { author: 'harness_agent', nodeInfo: { path: 'harness_agent@1' } };
    const model = {
      ...agent,
      finishReason: 'STOP',
      modelVersion: 'offline',
      usageMetadata: {
        promptTokenCount: expect.any(Number),
        candidatesTokenCount: expect.any(Number),
        totalTokenCount: expect.any(Number),
      },
    };
    const stored = await events('calc');
    const callId = expect.any(String);
    expect(stored).toEqual([
      {
        ...common,
        author: 'user',
        nodeInfo: { path: '' },
        content: { role: 'user', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] },
      },
      {
        ...common,
        ...model,
        longRunningToolIds: [],
        content: {
          role: 'model',
          parts: [{ functionCall: { id: callId, name: 'calculator', args: { expression: '17 * 23' } } }],
        },
      },
      {
        ...common,
        ...agent,
        content: {
          role: 'user',
          parts: [{ functionResponse: { id: callId, name: 'calculator', response: { result: 391 } } }],
        },
      },
      { ...common, ...model, content: { role: 'model', parts: [{ text: 'The tool `calculator` answered: 391' }] } },
    ]);
    expect(new Set(stored.map(({ invocationId }) => invocationId)).size).toBe(1);
  });

  test('a second one goes on in the same session', async () => {
    await invoke({ session_id: 'twice' });
    await invoke({ session_id: 'twice' }, { prompt: 'And now?' });
    expect((await events('twice')).filter(({ author }) => author === 'user')).toHaveLength(2);
  });
});

describe('failures are answered with 200, an empty output and a sentence', () => {
  test('the limit of model calls', async () => {
    const { status, body } = await invoke({ session_id: 'limit', max_llm_calls: 1 });
    const error = 'Max number of llm calls limit of `1` exceeded';
    expect([status, body]).toEqual([200, { harness_name: 'demo', overwrite: false, output: '', error }]);
    const stored = await events('limit');
    expect(stored).toHaveLength(4);
    expect(stored.at(-1)).toMatchObject({ author: 'harness_agent', errorCode: 'llm_calls_limit', errorMessage: error });
  });

  test('an unknown tool is named, with what exists', async () => {
    const { status, body } = await invoke({ session_id: 'unknown' }, { harness: { tools: 'calculator, nope' } });
    expect([status, body]).toEqual([
      200,
      {
        harness_name: 'demo',
        overwrite: true,
        output: '',
        error: expect.stringMatching(
          /^Tool `nope` is not a supported built-in tool\. Available: ask_person, calculator, current_time/,
        ),
      },
    ]);
    // The question was never asked: a client that repeats it rightly would find it twice.
    expect(await events('unknown')).toEqual([
      expect.objectContaining({ author: 'harness_agent', errorMessage: (body as { error: string }).error }),
    ]);
  });
});

describe('overrides', () => {
  test.each([
    [{}, false],
    [{ harness: null }, false],
    [{ harness: {} }, false],
    [{ harness: { mcp_servers: [] } }, false],
    [{ harness: { system_prompt: 'Be brief.' } }, true],
    [{ harness: { tools: ['calculator'] } }, true],
    [{ harness: { tools: '' } }, true],
    [{ harness_merge: true, harness_enhance: { enabled: true } }, false],
  ])('%j sets overwrite to %s', async (more, overwrite) => {
    const { body } = await invoke({ session_id: 'overrides' }, more);
    expect(body).toEqual({
      harness_name: 'demo',
      overwrite,
      output: 'The tool `calculator` answered: 391',
      error: null,
    });
  });
});

describe('refused requests', () => {
  test('all that is missing is listed, in order', async () => {
    const missing = (loc: string[], input: unknown) => ({
      type: 'missing',
      loc: ['body', ...loc],
      msg: 'Field required',
      input,
    });
    const empty = await app.post('/harness/invoke', {});
    expect([empty.status, empty.body]).toEqual([
      422,
      { detail: [missing(['prompt'], {}), missing(['harness_name'], {}), missing(['run_agent_request'], {})] },
    ]);
    const inner = await app.post('/harness/invoke', {
      prompt: 'p',
      harness_name: 'h',
      run_agent_request: { user_id: 1 },
    });
    expect(inner.body).toEqual({
      detail: [
        {
          type: 'string_type',
          loc: ['body', 'run_agent_request', 'user_id'],
          msg: 'Input should be a valid string',
          input: 1,
        },
        missing(['run_agent_request', 'session_id'], { user_id: 1 }),
      ],
    });
  });

  const atLeast1 = { type: 'greater_than_equal', msg: 'Input should be greater than or equal to 1', ctx: { ge: 1 } };
  const noInteger = {
    type: 'int_parsing',
    msg: 'Input should be a valid integer, unable to parse string as an integer',
  };
  test.each([
    ['max_llm_calls', 'many', noInteger],
    ['max_llm_calls', '', noInteger],
    ['max_llm_calls', '0', atLeast1],
    [
      'session_id',
      '',
      { type: 'string_too_short', msg: 'String should have at least 1 character', ctx: { min_length: 1 } },
    ],
    [
      'user_id',
      '',
      { type: 'string_too_short', msg: 'String should have at least 1 character', ctx: { min_length: 1 } },
    ],
  ])('%s %j is refused in the words of pydantic', async (name, input, said) => {
    const { type, msg, ctx } = said as { type: string; msg: string; ctx?: object };
    const { status, body } = await invoke({ session_id: 'words', [name]: input });
    const detail = { type, loc: ['body', 'run_agent_request', name], msg, input, ...(ctx && { ctx }) };
    expect([status, body]).toEqual([422, { detail: [detail] }]);
  });

  test.each([{ request: { max_llm_calls: '1' } }, { harness: { max_llm_calls: '1' } }])(
    'max_llm_calls can be text: %j',
    async ({ request = {}, harness }) => {
      const { status, body } = await invoke({ session_id: 'text', ...request }, harness ? { harness } : {});
      expect([status, (body as { error: unknown }).error]).toEqual([
        200,
        'Max number of llm calls limit of `1` exceeded',
      ]);
    },
  );

  test.each([0, -1, 1.5, '0', '-2', '1.5', 'two', '', true])(
    'max_llm_calls %j is 422, never unlimited',
    async (limit) => {
      const { status, body } = await invoke({ session_id: 'never', max_llm_calls: limit });
      expect(status).toBe(422);
      expect((body as { detail: { loc: unknown }[] }).detail[0]?.loc).toEqual([
        'body',
        'run_agent_request',
        'max_llm_calls',
      ]);
      expect((await app.get('/apps/harness_agent/users/u/sessions/never')).status).toBe(404);
    },
  );
});

test.each(['\u0000', '\ud800', `'; --`])('a model of any name is counted: %j', async (model_name) => {
  const session_id = `model ${JSON.stringify(model_name)}`;
  const answer = { harness_name: 'demo', overwrite: true, output: 'The tool `calculator` answered: 391', error: null };
  const first = await invoke({ session_id }, { harness: { model_name } });
  expect([first.status, first.body]).toEqual([200, answer]);
  // The invocation has ended: nobody waits for its session.
  const next = await invoke({ session_id });
  expect([next.status, next.body]).toEqual([200, { ...answer, overwrite: false }]);
});
