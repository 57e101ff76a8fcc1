import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { hostScript } from '../support/agents.ts';
import { startApp, type TestApp, testApp } from '../support/app.ts';
import { callPart } from '../support/scripted-model.ts';

const user = '/apps/harness_agent/users/u/sessions';
const message = (text: string) => ({ role: 'user', parts: [{ text }] });
const texts = (events: Event[]) => events.map(({ content }) => content?.parts?.map(({ text }) => text).join(''));

describe('with the script: a tool call, then an answer', () => {
  let app: TestApp;
  beforeAll(async () => {
    const callThenAnswer = [callPart('calculator', { expression: '1+1' }, 'c1')];
    const script = Array.from({ length: 20 }, () => [callThenAnswer, [{ text: 'it is ' }, { text: 'two' }]]).flat();
    app = await startApp({}, { agents: hostScript(script) });
  });
  afterAll(() => app.close());

  const create = (sessionId: string) => app.post(user, { sessionId });
  const stored = async (sessionId: string) =>
    ((await app.get(`${user}/${sessionId}`)).body as { events: Event[] }).events;
  const frames = (text: string) =>
    text
      .split('\n\n')
      .filter(Boolean)
      .map((frame) => JSON.parse(frame.replace(/^data: /, '')) as Event);

  test('/run answers the events of the agent, as they are stored', async () => {
    await create('run');
    const { status, body } = await app.post('/run', {
      appName: 'harness_agent',
      userId: 'u',
      sessionId: 'run',
      newMessage: message('hi'),
    });
    expect(status).toBe(200);
    const events = await stored('run');
    expect(body).toEqual(events.slice(1));
    expect(texts(events)).toEqual(['hi', '', '', 'it is two']);
  });

  test('snake_case members, state delta and null members are the same', async () => {
    await create('snake');
    const { status } = await app.post('/run', {
      app_name: 'harness_agent',
      user_id: 'u',
      session_id: 'snake',
      new_message: { parts: [{ text: 'hi', inline_data: null }] },
      state_delta: { color: 'blue', 'temp:x': 1 },
      function_call_event_id: null,
      streaming: null,
    });
    expect(status).toBe(200);
    const session = (await app.get(`${user}/snake`)).body as { state: unknown; events: Event[] };
    expect(session.state).toEqual({ color: 'blue' });
    expect(session.events[0]?.content?.role).toBe('user');
  });

  test('/run_sse sends one frame per event, ends, and has no id lines', async () => {
    await create('sse');
    const { status, headers, text } = await app.post('/run_sse', {
      appName: 'harness_agent',
      userId: 'u',
      sessionId: 'sse',
      newMessage: message('hi'),
      stateDelta: null,
    });
    expect([status, headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8']);
    expect(text).not.toMatch(/^id:/m);
    expect(frames(text)).toEqual((await stored('sse')).slice(1));
  });

  test('streaming sends partial events, then the whole with `partial: false`; only the whole is stored', async () => {
    await create('pieces');
    const { text } = await app.post('/run_sse', {
      appName: 'harness_agent',
      userId: 'u',
      sessionId: 'pieces',
      newMessage: message('hi'),
      streaming: true,
    });
    const all = frames(text);
    const partial = all.filter((event) => event.partial === true);
    expect(texts(partial)).toEqual(['it is ', 'two']);
    expect(partial.every(({ timestamp }) => typeof timestamp === 'number')).toBe(true);
    const whole = all.filter((event) => event.partial !== true);
    expect(whole).toEqual((await stored('pieces')).slice(1));
    expect(whole.map((event) => event.partial)).toEqual([false, undefined, false]);
  });

  test('eventIds=true gives stored events their sequence', async () => {
    await create('ids');
    const body = {
      appName: 'harness_agent',
      userId: 'u',
      sessionId: 'ids',
      newMessage: message('hi'),
      streaming: true,
    };
    const { text } = await app.post('/run_sse?eventIds=true', body);
    expect([...text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))).toEqual([2, 3, 4]);
  });

  test.each(['/run', '/run_sse'])(
    '%s: an absent session or application is 404 before anything else, no message is 400',
    async (path) => {
      await create('there');
      const ask = (more: object) =>
        app.post(path, {
          appName: 'harness_agent',
          userId: 'u',
          sessionId: 'there',
          newMessage: message('x'),
          ...more,
        });
      const absent = await ask({ sessionId: 'nope' });
      expect([absent.status, absent.body]).toEqual([404, { detail: 'Session not found: nope' }]);
      const unknown = await ask({ appName: 'other' });
      expect([unknown.status, unknown.body]).toEqual([404, { detail: 'App not found: other' }]);
      const empty = await ask({ newMessage: null });
      const detail = 'newMessage is missing: only a request with the invocationId to go on with needs none.';
      expect([empty.status, empty.body]).toEqual([400, { detail }]);
      const gone = await ask({ newMessage: null, invocationId: 'e-1' });
      expect([gone.status, gone.body]).toEqual([404, { detail: 'Invocation not found: e-1' }]);
      expect(await stored('there')).toEqual([]);
    },
  );
});

test('a failing model is an event with the error on both operations, and the status stays 200', async () => {
  const app = await startApp({}, { agents: hostScript([new Error('secret detail')]) });
  await app.post(user, { sessionId: 's' });
  const request = { appName: 'harness_agent', userId: 'u', sessionId: 's', newMessage: message('x') };
  const run = await app.post('/run', request);
  expect([run.status, run.body]).toEqual([
    200,
    [
      expect.objectContaining({
        author: 'harness_agent',
        errorCode: expect.any(String),
        errorMessage: expect.any(String),
      }),
    ],
  ]);
  const sse = await app.post('/run_sse', request);
  expect(sse.status).toBe(200);
  expect(`${run.text}${sse.text}`).not.toContain('secret detail');
  await app.close();
});

describe('/invoke, as the AgentKit SDK calls it', () => {
  const app = testApp({}, { agents: hostScript([[{ text: 'hello' }]]) });
  const invoke = (body: string, headers: Record<string, string>) =>
    app.send('POST', '/invoke', body, { 'content-type': 'text/plain', ...headers });
  const said = async (userId: string, sessionId: string) => {
    const { body } = await app.get(`/apps/harness_agent/users/${userId}/sessions/${encodeURIComponent(sessionId)}`);
    return texts((body as { events: Event[] }).events);
  };

  test.each([
    ['{"prompt":"from json"}', 'from json'],
    ['{"other":1}', '{"other":1}'],
    ['plain words', 'plain words'],
    ['null', 'null'],
  ])('%s', async (body, prompt) => {
    const sessionId = `s-${encodeURIComponent(prompt)}`;
    const { status, headers, text } = await invoke(body, { user_id: 'ak', session_id: sessionId });
    expect([status, headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8']);
    expect(text.match(/^data: /gm)).toHaveLength(1);
    expect(await said('ak', sessionId)).toEqual([prompt, 'hello']);
  });

  test('without headers: the default user and a session of its own; without a body: 422', async () => {
    // A page of another site can send text without a header of ours: that is refused.
    expect((await invoke('hi', {})).status).toBe(415);
    expect((await invoke('"hi"', { 'content-type': 'application/json' })).status).toBe(200);
    const { body } = await app.get('/apps/harness_agent/users/agentkit_user/sessions');
    expect(body).toHaveLength(1);
    expect((await invoke('hi', { user_id: 'x'.repeat(300) })).status).toBe(422);
    const empty = await app.send('POST', '/invoke');
    expect([empty.status, empty.body]).toEqual([
      422,
      { detail: [{ type: 'missing', loc: ['body'], msg: 'Field required', input: null }] },
    ]);
  });
});

describe('rewind', () => {
  test('a key that the session was created with gets its first value back', async () => {
    const app = await startApp();
    onTestFinished(() => app.close());
    const path = '/apps/harness_agent/users/rewinder/sessions';
    await app.post(path, { sessionId: 'initial', state: { plan: 'free', kept: 1, other: { n: 1 } } });
    const events = [
      { invocationId: 'e-1', author: 'user', actions: { stateDelta: { kept: 2 } } },
      { invocationId: 'e-2', author: 'user', actions: { stateDelta: { plan: 'paid', kept: 3, new: true } } },
    ];
    for (const event of events) expect((await app.post(`${path}/initial/events`, event)).status).toBe(200);
    const { body } = await app.post(`${path}/initial/rewind`, { rewindBeforeInvocationId: 'e-2' });
    expect(body).toMatchObject({ actions: { stateDelta: { plan: 'free', kept: 2, new: null } } });
    const session = (await app.get(`${path}/initial`)).body as { state: object };
    expect(session.state).toMatchObject({ plan: 'free', kept: 2, other: { n: 1 } });
  });

  test('restores the session’s state and artifacts, and models no longer see what was rewound', async () => {
    const seen: string[][] = [];
    const save = (text: string) => callPart('save_artifact', { name: 'note.txt', text });
    const agents = hostScript([
      [callPart('write_state', { key: 'color', value: 'blue' }), save('one')],
      [{ text: 'first' }],
      [
        callPart('write_state', { key: 'color', value: 'red' }),
        callPart('write_state', { key: 'new', value: 1 }),
        callPart('write_state', { key: 'user:shared', value: 2 }),
        save('two'),
      ],
      [{ text: 'second' }],
      ({ contents }) => {
        seen.push(contents.flatMap(({ parts }) => (parts ?? []).flatMap(({ text }) => text ?? [])));
        return [{ text: 'third' }];
      },
    ]);
    const app = await startApp({}, { agents });
    await app.post(user, { sessionId: 's' });
    const overrides = { harness: { tools: 'write_state,save_artifact' } };
    const run = async (text: string) => {
      const request = {
        appName: 'harness_agent',
        userId: 'u',
        sessionId: 's',
        newMessage: message(text),
        ...overrides,
      };
      return (await app.post('/run', request)).body as Event[];
    };
    await run('one');
    const [event] = await run('two');
    const body = { rewindBeforeInvocationId: event?.invocationId };
    const { status, body: rewound } = await app.post(`${user}/s/rewind`, body, { 'idempotency-key': 'r' });
    expect([status, (rewound as Event).actions]).toEqual([
      200,
      {
        stateDelta: { color: 'blue', new: null },
        artifactDelta: { 'note.txt': 2 },
        requestedAuthConfigs: {},
        requestedToolConfirmations: {},
        rewindBeforeInvocationId: event?.invocationId,
      },
    ]);
    expect((await app.post(`${user}/s/rewind`, body, { 'idempotency-key': 'r' })).body).toEqual(rewound);
    const session = (await app.get(`${user}/s`)).body as { state: unknown };
    expect(session.state).toEqual({ color: 'blue', new: null, 'user:shared': 2 });
    await run('three');
    expect(seen).toEqual([['one', 'first', 'three']]);
    const unknown = await app.post(`${user}/s/rewind`, { rewindBeforeInvocationId: 'e-none' });
    expect([unknown.status, unknown.body]).toEqual([404, { detail: 'Invocation not found: e-none' }]);
    await app.close();
  });
});
