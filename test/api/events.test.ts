import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const list = (userId = 'u') => `/apps/harness_agent/users/${userId}/sessions`;
const events = (sessionId: string) => `${list()}/${sessionId}/events`;
const session = async (sessionId: string) => (await app.get(`${list()}/${sessionId}`)).body;
const clockNow = expect.toSatisfy((value: number) => Math.abs(value - Date.now() / 1000) < 60, 'a time of this minute');

describe('append an event', () => {
  test('what names it is filled in, its state delta is merged, and the answer is what is stored', async () => {
    await app.post(list(), { sessionId: 'append' });
    const sent = {
      content: { role: 'user', parts: [{ text: 'hi' }] },
      actions: { stateDelta: { a: 1, 'temp:b': 2 } },
      futureMember: { a: null },
    };
    const { status, body } = await app.post(events('append'), sent);
    const stored = { ...sent, actions: { stateDelta: { a: 1 } } };
    expect([status, body]).toEqual([
      200,
      { ...stored, id: expect.any(String), invocationId: '', author: 'user', timestamp: clockNow },
    ]);
    expect(await session('append')).toEqual({
      id: 'append',
      appName: 'harness_agent',
      userId: 'u',
      state: { a: 1 },
      events: [body],
      lastUpdateTime: (body as { timestamp: number }).timestamp,
    });
  });

  test('snake_case members are the same, inside free-form objects they are data', async () => {
    await app.post(list(), { sessionId: 'snake' });
    const { body } = await app.post(events('snake'), {
      id: 'e',
      invocation_id: 'i',
      author: 'agent',
      timestamp: 5,
      long_running_tool_ids: ['c'],
      content: { parts: [{ function_call: { id: 'c', name: 'f', args: { snake_case: 1 } } }] },
      actions: { state_delta: { snake_case: 1 }, artifact_delta: { 'a_b.txt': 0 } },
      cache_metadata: { fingerprint: 'f', contents_count: 3 },
    });
    expect(body).toEqual({
      id: 'e',
      invocationId: 'i',
      author: 'agent',
      timestamp: 5,
      longRunningToolIds: ['c'],
      content: { parts: [{ functionCall: { id: 'c', name: 'f', args: { snake_case: 1 } } }] },
      actions: { stateDelta: { snake_case: 1 }, artifactDelta: { 'a_b.txt': 0 } },
      cacheMetadata: { fingerprint: 'f', contents_count: 3 },
    });
  });

  test('nulls of the known structure are left out, those in free-form objects and unknown members stay', async () => {
    const sent = {
      id: 'n',
      invocationId: 'i',
      author: 'a',
      timestamp: 1,
      errorCode: null,
      output: null,
      groundingMetadata: null,
      content: {
        role: null,
        parts: [{ text: 'x', thought: null, functionCall: { args: { kept: null }, id: null } }],
      },
      actions: { escalate: null, setModelResponse: null, stateDelta: { kept: null }, renderUiWidgets: null },
      customMetadata: { kept: null },
      unknown: null,
    };
    const expected = {
      id: 'n',
      invocationId: 'i',
      author: 'a',
      timestamp: 1,
      content: { parts: [{ text: 'x', functionCall: { args: { kept: null } } }] },
      actions: { stateDelta: { kept: null } },
      customMetadata: { kept: null },
      unknown: null,
    };
    await app.post(list(), { sessionId: 'nulls' });
    const { body } = await app.post(events('nulls'), sent);
    expect(body).toEqual(expected);
    const created = await app.post(list(), { events: [sent] });
    expect((created.body as { events: unknown[] }).events).toEqual([expected]);
  });

  test('50 at once are all there, each once', async () => {
    await app.post(list(), { sessionId: 'many' });
    const ids = Array.from({ length: 50 }, (_, n) => `e${n}`);
    const answers = await Promise.all(ids.map((id) => app.post(events('many'), { id })));
    expect(answers.map(({ status }) => status)).toEqual(ids.map(() => 200));
    const stored = ((await session('many')) as { events: { id: string; timestamp: number }[] }).events;
    expect(stored.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
    const times = stored.map(({ timestamp }) => timestamp);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
  });

  test('a piece of a stream is 400, a taken id 409, an absent session 404; nothing is stored', async () => {
    await app.post(list(), { sessionId: 'refused', events: [{ id: 'first' }] });
    const partial = await app.post(events('refused'), { partial: true, content: { parts: [{ text: 'x' }] } });
    expect([partial.status, partial.body]).toEqual([
      400,
      { detail: 'A partial event is a piece of a stream and is never stored.' },
    ]);
    const taken = await app.post(events('refused'), { id: 'first', actions: { stateDelta: { leak: 1 } } });
    expect([taken.status, taken.body]).toEqual([409, { detail: 'Event already exists in session refused.' }]);
    expect(await session('refused')).toMatchObject({ state: {}, events: [{ id: 'first' }] });
    const absent = await app.post(events('nope'), { actions: { stateDelta: { 'user:leak': 1 } } });
    expect([absent.status, absent.body]).toEqual([404, { detail: 'Session not found: nope' }]);
  });

  test.each([
    [undefined, 'missing', ['body']],
    [[], 'model_attributes_type', ['body']],
    [{ id: 1 }, 'string_type', ['body', 'id']],
    [{ invocation_id: 'x'.repeat(300) }, 'string_too_long', ['body', 'invocation_id']],
    [{ content: { parts: [{ text: 1 }] } }, 'string_type', ['body', 'content', 'parts', 0, 'text']],
    [{ actions: { stateDelta: [] } }, 'dict_type', ['body', 'actions', 'stateDelta']],
  ])('the body %j is 422', async (sent, type, loc) => {
    const { status, body } = await app.post(events('refused'), sent);
    expect([status, body]).toEqual([422, { detail: [expect.objectContaining({ type, loc })] }]);
  });
});

describe('list events', () => {
  test('pages follow one another by the header', async () => {
    const ids = Array.from({ length: 250 }, (_, n) => `e${n}`);
    await app.post(list(), { sessionId: 'pages', events: ids.map((id) => ({ id })) });
    const sizes: number[] = [];
    const seen: string[] = [];
    for (let after: string | null = '0'; after !== null; ) {
      const { status, body, headers } = await app.get(`${events('pages')}?afterSequence=${after}`);
      expect(status).toBe(200);
      sizes.push((body as unknown[]).length);
      seen.push(...(body as { id: string }[]).map(({ id }) => id));
      after = headers.get('x-next-cursor');
    }
    expect([sizes, seen]).toEqual([[100, 100, 50], ids]);
    const { body, headers } = await app.get(`${events('pages')}?limit=1000`);
    expect([(body as unknown[]).length, headers.get('x-next-cursor')]).toEqual([250, null]);
    expect((await app.get(`${events('pages')}?afterSequence=250`)).body).toEqual([]);
  });

  test('those of one invocation, in pages', async () => {
    await app.post(list(), { sessionId: 'two' });
    const of = (n: number) => (n % 3 === 0 ? 'one' : 'other');
    for (let n = 0; n < 9; n += 1)
      await app.post(events('two'), {
        id: `e${n}`,
        invocationId: of(n),
        author: 'agent',
        content: { parts: [{ text: 'x' }] },
      });
    const page = async (query: string) => {
      const { body, headers } = await app.get(`${events('two')}?${query}`);
      return [(body as { id: string }[]).map(({ id }) => id), headers.get('x-next-cursor')];
    };
    expect(await page('invocationId=one&limit=2')).toEqual([['e0', 'e3'], '4']);
    expect(await page('invocationId=one&limit=2&afterSequence=4')).toEqual([['e6'], '7']);
    expect(await page('invocationId=one&limit=2&afterSequence=7')).toEqual([[], null]);
    expect(await page('invocationId=absent')).toEqual([[], null]);
    expect((await app.get(`${events('nowhere')}?invocationId=one`)).status).toBe(404);
  });

  test('those of one invocation in a long session, whose pages look through a part of it each', async () => {
    await app.post(list(), { sessionId: 'long' });
    const database = new Client({ connectionString: app.databaseUrl });
    await database.connect();
    await database.query(`set agent_runtime.all_users = 'on'`);
    await database.query(`
      insert into events (app_name, user_id, session_id, sequence, id, invocation_id, author, event_time, payload, bytes)
      select 'harness_agent', 'u', 'long', n, 'e' || n, case when n in (7, 1999, 4990, 5000) then 'rare' else 'other' end,
             'user', now(), jsonb_build_object('id', n), 12
      from generate_series(1, 5000) n`);
    await database.query(`update sessions set last_sequence = 5000 where id = 'long'`);
    await database.end();
    const pages: unknown[] = [];
    for (let after: string | null = '0'; after !== null; ) {
      const { body, headers } = await app.get(`${events('long')}?invocationId=rare&limit=3&afterSequence=${after}`);
      after = headers.get('x-next-cursor');
      pages.push([(body as { id: number }[]).map(({ id }) => id), after]);
    }
    expect(pages).toEqual([
      [[7, 1999], '1999'],
      [[], '3999'],
      [[4990, 5000], null],
    ]);
    const last = await app.get(`${events('long')}?invocationId=rare&afterSequence=2147483647`);
    expect([last.status, last.body]).toEqual([200, []]);
  });

  test('a wrong parameter is 422', async () => {
    for (const query of ['limit=0', 'limit=1001', 'afterSequence=-1', 'afterSequence=x', 'afterSequence=2147483648']) {
      expect([query, (await app.get(`${events('nope')}?${query}`)).status]).toEqual([query, 422]);
    }
  });

  test.each<[string, number, number?]>([
    ['%00', 422],
    ['x'.repeat(300), 422],
    ['__proto__', 404],
    [encodeURIComponent("' or 1=1 --"), 404],
    ['..%2F..', 404, 422],
  ])(
    'the session id %s is %i for both operations, unless no new name may have it',
    async (sessionId, read, write = read) => {
      expect((await app.get(events(sessionId))).status).toBe(read);
      expect((await app.post(events(sessionId), {})).status).toBe(write);
    },
  );
});

describe('export and import', () => {
  test('what is exported is imported: another session with the same state and events', async () => {
    await app.post('/harness/invoke', {
      prompt: 'What is 2 + 3? Use the calculator.',
      harness_name: 'h',
      run_agent_request: { user_id: 'u', session_id: 'exported' },
    });
    await app.send('PATCH', `${list()}/exported`, {
      stateDelta: { a: { b: null }, 'user:shared': 'old', __session_metadata__: { displayName: 'n' } },
    });
    await app.post(list(), { sessionId: 'later', state: { 'user:shared': 'new' } });
    const exported = (await session('exported')) as { state: unknown; events: unknown[] };
    expect(exported.events.length).toBeGreaterThan(3);

    const asUi = await app.post(list(), { events: exported.events, state: exported.state });
    expect(asUi.status).toBe(200);
    expect(asUi.body).toMatchObject({ state: exported.state, events: exported.events });

    const whole = await app.post(list('heir'), exported);
    expect([whole.status, whole.body]).toEqual([
      200,
      { ...exported, userId: 'heir', lastUpdateTime: expect.any(Number) },
    ]);
    const again = await app.post(list('heir'), exported);
    expect([again.status, again.body]).toEqual([409, { detail: 'Session already exists: exported' }]);
    expect(await session('later')).toMatchObject({ state: { 'user:shared': 'new' } });
  });
});
