import { describe, expect, test } from 'vitest';
import type { HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import { hostScript } from '../support/agents.ts';
import { testApp } from '../support/app.ts';

const agents = hostScript([]);
agents.set('patched', agents.get('harness_agent') as HostedAgent);
const app = testApp({}, { agents });
const list = (userId: string) => `/apps/harness_agent/users/${userId}/sessions`;
const one = (userId: string, sessionId: string) => `${list(userId)}/${sessionId}`;
const clockNow = expect.toSatisfy((value: number) => Math.abs(value - Date.now() / 1000) < 60, 'a time of this minute');

describe('create a session', () => {
  test('without a body: the server chooses the id', async () => {
    const { status, body, headers } = await app.post(list('u'));
    expect([status, headers.get('content-type')]).toEqual([200, 'application/json']);
    expect(body).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      appName: 'harness_agent',
      userId: 'u',
      state: {},
      events: [],
      lastUpdateTime: clockNow,
    });
  });

  test.each(['sessionId', 'session_id', 'id'])('with the id as %s', async (name) => {
    const { status, body } = await app.post(list('ids'), { [name]: `by-${name}` });
    expect([status, (body as { id: string }).id]).toEqual([200, `by-${name}`]);
  });

  test('with state and events: unknown members are kept, temp: keys are not, defaults are filled in', async () => {
    const event = {
      id: 'first',
      invocationId: 'e-1',
      author: 'user',
      timestamp: 12.5,
      content: { role: 'user', parts: [{ text: 'hi' }] },
      unknownMember: { a: null },
    };
    const sent = {
      sessionId: 'full',
      state: { a: 1, 'temp:b': 2 },
      events: [event, { partial: true }, { content: { parts: [] } }],
    };
    const { status, body } = await app.post(list('u'), sent);
    expect(status).toBe(200);
    expect(body).toEqual({
      id: 'full',
      appName: 'harness_agent',
      userId: 'u',
      state: { a: 1 },
      events: [
        event,
        { id: expect.any(String), invocationId: '', author: 'user', content: { parts: [] }, timestamp: clockNow },
      ],
      lastUpdateTime: clockNow,
    });
    expect((await app.get(one('u', 'full'))).body).toEqual(body);
  });

  test('an id that is taken is 409 and changes nothing; a blank one means none', async () => {
    await app.post(list('u'), { sessionId: 'taken', state: { first: true } });
    const { status, body } = await app.post(list('u'), { sessionId: 'taken', state: { second: true } });
    expect([status, body]).toEqual([409, { detail: 'Session already exists: taken' }]);
    expect((await app.get(one('u', 'taken'))).body).toMatchObject({ state: { first: true } });
    expect((await app.post(list('u'), { sessionId: '  ' })).body).toMatchObject({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
  });

  test('an id too long in bytes is 422, as it is in a path', async () => {
    const sessionId = '𝕏'.repeat(200);
    const { status, body } = await app.post(list('u'), { sessionId, events: [{ id: '𝕏'.repeat(128) }] });
    expect([status, body]).toEqual([
      422,
      {
        detail: [
          {
            type: 'value_error',
            loc: ['body', 'sessionId'],
            msg: 'Value error, at most 512 bytes of UTF-8 are allowed',
            input: sessionId,
            ctx: { error: {} },
          },
        ],
      },
    ]);
    const longest = { sessionId: '𝕏'.repeat(128), events: [{ id: '𝕏'.repeat(128) }] };
    expect((await app.post(list('𝕏'.repeat(128)), longest)).status).toBe(200);
  });

  test('two events with one id are a conflict, and no session is left', async () => {
    const sent = { sessionId: 'twice', events: [{ id: 'same' }, { id: 'same' }] };
    const { status, body } = await app.post(list('u'), sent);
    expect([status, body]).toEqual([409, { detail: 'Event already exists in session twice.' }]);
    expect((await app.get(one('u', 'twice'))).status).toBe(404);
  });
});

describe('get a session', () => {
  test('HEAD answers as GET, without a body', async () => {
    await app.post(list('u'), { sessionId: 'head' });
    const { status, text, headers } = await app.send('HEAD', one('u', 'head'));
    expect([status, text, headers.get('content-type')]).toEqual([200, '', 'application/json']);
  });

  test('one session is seen by its own user and application only', async () => {
    await app.post(list('owner'), { sessionId: 'mine' });
    expect((await app.get(one('owner', 'mine'))).status).toBe(200);
    expect((await app.get(one('other', 'mine'))).status).toBe(404);
    expect((await app.get('/apps/other/users/owner/sessions/mine')).status).toBe(404);
  });
});

describe('list sessions', () => {
  test('newest first, with state, without events; an unknown user has none', async () => {
    for (const sessionId of ['a', 'b', '___eval___session___x']) {
      await app.post(list('lister'), {
        sessionId,
        state: { n: sessionId },
        events: [{ content: { parts: [{ text: 'x' }] } }],
      });
    }
    const { status, body } = await app.get(list('lister'));
    expect(status).toBe(200);
    expect(body).toEqual(
      ['b', 'a'].map((id) => ({
        id,
        appName: 'harness_agent',
        userId: 'lister',
        state: { n: id },
        events: [],
        lastUpdateTime: clockNow,
      })),
    );
    expect((await app.get(list('nobody'))).body).toEqual([]);
  });
});

describe('parts of a session and of a list', () => {
  test('the newest events, and those after a place', async () => {
    const events = ['a', 'b', 'c', 'd'].map((id) => ({ id }));
    await app.post(list('parts'), { sessionId: 's', events });
    const idsOf = async (query: string) => {
      const { status, body } = await app.get(`${one('parts', 's')}?${query}`);
      return [status, (body as { events: { id: string }[] }).events.map(({ id }) => id).join('')];
    };
    expect(await idsOf('numRecentEvents=2')).toEqual([200, 'cd']);
    expect(await idsOf('numRecentEvents=0')).toEqual([200, '']);
    expect(await idsOf('afterSequence=3')).toEqual([200, 'd']);
    expect(await idsOf('afterSequence=1&numRecentEvents=99')).toEqual([200, 'bcd']);
    expect(await idsOf('unknown=1')).toEqual([200, 'abcd']);
  });

  test('those that were updated after a time', async () => {
    for (const sessionId of ['a', 'b', 'c', 'd', 'e']) await app.post(list('pages'), { sessionId });
    const whole = await app.get(list('pages'));
    expect(whole.headers.get('x-next-cursor')).toBeNull();
    const [, , third] = whole.body as { id: string; lastUpdateTime: number }[];
    const later = await app.get(`${list('pages')}?updatedAfter=${third?.lastUpdateTime}`);
    expect((later.body as { id: string }[]).map(({ id }) => id)).toEqual(['e', 'd']);
  });

  test.each([
    ['limit=0', 'greater_than_equal', 'limit'],
    ['limit=1001', 'less_than_equal', 'limit'],
    ['limit=x', 'int_parsing', 'limit'],
    ['updatedAfter=nan', 'float_parsing', 'updatedAfter'],
    ['cursor=', 'value_error', 'cursor'],
    ['cursor=abc', 'value_error', 'cursor'],
    ...['0000-01-01T00:00:00.000000Z', '2026-02-31T00:00:00.000000Z', "now'; drop table sessions; --"].map((time) => [
      `cursor=${Buffer.from(JSON.stringify([time, 'a'])).toString('base64url')}`,
      'value_error',
      'cursor',
    ]),
    [
      `cursor=${Buffer.from('["2026-01-01T00:00:00.000000Z","a\\u0000"]').toString('base64url')}`,
      'value_error',
      'cursor',
    ],
  ])('the query %s is 422', async (query, type, name) => {
    const { status, body } = await app.get(`${list('pages')}?${query}`);
    expect([status, body]).toEqual([
      422,
      { detail: [expect.objectContaining({ type, loc: ['query', name], msg: expect.any(String) })] },
    ]);
  });

  test('an extreme time is a time', async () => {
    expect((await app.get(`${list('pages')}?updatedAfter=1e300`)).body).toEqual([]);
    expect((await app.get(`${list('pages')}?updatedAfter=-1e300`)).body).toHaveLength(5);
  });

  test.each(['numRecentEvents=-1', 'afterSequence=2147483648', 'afterSequence=99999999999999999999'])(
    'the query %s of one session is 422',
    async (query) => {
      expect((await app.get(`${one('parts', 's')}?${query}`)).status).toBe(422);
    },
  );

  test('10,000 events come whole, as a valid answer', async () => {
    const events = Array.from({ length: 10_000 }, (_, n) => ({ id: `e${n}`, content: { parts: [{ text: 'x' }] } }));
    const created = await app.post(list('long'), { sessionId: 's', events });
    const { status, body, headers } = await app.get(one('long', 's'));
    expect([status, headers.get('content-type'), headers.get('content-length')]).toEqual([
      200,
      'application/json',
      null,
    ]);
    expect((body as { events: { id: string }[] }).events.map(({ id }) => id)).toEqual(events.map(({ id }) => id));
    expect(created.body).toEqual(body);
    expect((await app.send('HEAD', one('long', 's'))).status).toBe(200);
  });

  test('a client that leaves in the middle does not disturb the service', async () => {
    const leaving = new AbortController();
    const response = await fetch(`${app.url}${one('long', 's')}`, { signal: leaving.signal });
    await response.body?.getReader().read();
    leaving.abort();
    expect((await app.get(`${one('long', 's')}?numRecentEvents=1`)).status).toBe(200);
  });
});

describe('change the state', () => {
  test.each(['stateDelta', 'state_delta'])('%s is merged by scope, as an event', async (name) => {
    const user = `patch-${name}`;
    const sessions = `/apps/patched/users/${user}/sessions`; // the state of an application is seen by all others here
    await app.post(sessions, { sessionId: 's', state: { kept: 1, changed: 1 } });
    const delta = {
      changed: 2,
      gone: null,
      'user:u': 3,
      [`app:${name}`]: 4,
      'temp:t': 5,
      nested_key: { in_side: null },
    };
    const { status, body } = await app.send('PATCH', `${sessions}/s`, { [name]: delta });
    const { 'temp:t': _, ...stored } = delta;
    expect([status, body]).toEqual([
      200,
      {
        id: 's',
        appName: 'patched',
        userId: user,
        state: expect.objectContaining({ kept: 1, ...stored }),
        events: [
          {
            id: expect.any(String),
            invocationId: expect.stringMatching(/^p-[0-9a-f-]{36}$/),
            author: 'user',
            nodeInfo: { path: '' },
            actions: {
              stateDelta: stored,
              artifactDelta: {},
              requestedAuthConfigs: {},
              requestedToolConfirmations: {},
            },
            timestamp: clockNow,
          },
        ],
        lastUpdateTime: clockNow,
      },
    ]);
    expect((await app.get(`${sessions}/s`)).body).toEqual(body);
    await app.post(sessions, { sessionId: 'other' });
    expect((await app.get(`${sessions}/other`)).body).toMatchObject({ state: { 'user:u': 3, [`app:${name}`]: 4 } });
  });

  test('an absent session is 404 and stays absent', async () => {
    const { status, body } = await app.send('PATCH', one('u', 'nope'), { stateDelta: { 'user:leak': 1 } });
    expect([status, body]).toEqual([404, { detail: 'Session not found: nope' }]);
    await app.post(list('u'), { sessionId: 'after' });
    expect((await app.get(one('u', 'after'))).body).toMatchObject({
      state: expect.not.objectContaining({ 'user:leak': 1 }),
    });
  });

  test.each([
    [undefined, 'missing', ['body']],
    [{}, 'missing', ['body', 'stateDelta']],
    [{ stateDelta: null }, 'dict_type', ['body', 'stateDelta']],
    [{ state_delta: [] }, 'dict_type', ['body', 'state_delta']],
  ])('the body %j is 422', async (sent, type, loc) => {
    const { status, body } = await app.send('PATCH', one('u', 's'), sent);
    expect([status, body]).toEqual([422, { detail: [expect.objectContaining({ type, loc })] }]);
  });

  test('a state over its limit is 413 and changes nothing', async () => {
    await app.post(list('big'), { sessionId: 's', state: { a: 1 } });
    const big = { big: 'x'.repeat(2_000_000) };
    expect((await app.send('PATCH', one('big', 's'), { stateDelta: big })).status).toBe(413);
    expect((await app.post(list('big'), { sessionId: 't', state: big })).status).toBe(413);
    expect((await app.get(one('big', 's'))).body).toMatchObject({ state: { a: 1 }, events: [] });
    expect((await app.get(one('big', 't'))).status).toBe(404);
  });
});

describe('create with an id in the path', () => {
  test.each([
    ['nothing', undefined, {}],
    ['an empty object', {}, {}],
    ['the state itself', { a: 1, state: { b: 2 } }, { a: 1, state: { b: 2 } }],
    ['a state', { state: { a: 1 } }, { a: 1 }],
    ['no state', { state: null }, {}],
    ['a state named state', { state: 'x' }, { state: 'x' }],
  ])('the body is %s', async (name, sent, state) => {
    const { status, body } = await app.post(one('legacy', name), sent);
    expect([status, body]).toEqual([
      200,
      { id: name, appName: 'harness_agent', userId: 'legacy', state, events: [], lastUpdateTime: clockNow },
    ]);
    const again = await app.post(one('legacy', name), sent);
    expect([again.status, again.body]).toEqual([409, { detail: `Session already exists: ${name}` }]);
  });

  test('a list is no state', async () => {
    const { status, body } = await app.post(one('legacy', 'x'), []);
    expect([status, body]).toEqual([422, { detail: [expect.objectContaining({ type: 'dict_type', loc: ['body'] })] }]);
  });
});

describe('delete a session', () => {
  test('answers null, twice, and the session is gone', async () => {
    await app.post(list('u'), { sessionId: 'gone' });
    for (const _ of [1, 2]) {
      const { status, text, headers } = await app.send('DELETE', one('u', 'gone'));
      expect([status, text, headers.get('content-type')]).toEqual([200, 'null', 'application/json']);
    }
    expect((await app.get(one('u', 'gone'))).status).toBe(404);
  });
});
