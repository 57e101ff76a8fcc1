import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
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
      content: { role: 'user', parts: [{ text: 'hi', futureMember: [1] }] },
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

  test('two events with one id are a conflict, and no session is left', async () => {
    const sent = { sessionId: 'twice', events: [{ id: 'same' }, { id: 'same' }] };
    const { status, body } = await app.post(list('u'), sent);
    expect([status, body]).toEqual([409, { detail: 'Event already exists in session twice.' }]);
    expect((await app.get(one('u', 'twice'))).status).toBe(404);
  });
});

describe('get a session', () => {
  test('an absent one is 404 and named, also for a user or an application that nobody knows', async () => {
    const expected = [404, { detail: 'Session not found: nope' }];
    for (const path of [one('u', 'nope'), one('stranger', 'nope'), '/apps/other/users/u/sessions/nope']) {
      const { status, body } = await app.get(path);
      expect([status, body]).toEqual(expected);
    }
  });

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
