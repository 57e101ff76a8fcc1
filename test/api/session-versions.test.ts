import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const list = (userId: string) => `/apps/harness_agent/users/${userId}/sessions`;
const one = (userId: string, sessionId = 's') => `${list(userId)}/${sessionId}`;
const newUser = () => `user-${randomUUID()}`;
const said = (text: string) => ({ author: 'user', content: { role: 'user', parts: [{ text }] } });
const etagOf = async (path: string) => (await app.get(path)).headers.get('etag') ?? '';
const ETAG = /^"[0-9a-f]+\.[0-9a-f]*\.[0-9a-f]*"$/;

describe('the ETag of a session', () => {
  test('stays while nothing changes, and is another after each change, of shared states too', async () => {
    const user = newUser();
    const made = await app.post(list(user), { sessionId: 's' });
    await app.post(list(user), { sessionId: 'other' });
    const seen = [made.headers.get('etag'), await etagOf(one(user))];
    expect(seen).toEqual([expect.stringMatching(ETAG), seen[0]]);
    const stateOf = (stateDelta: object) => ({ author: 'user', actions: { stateDelta } });
    await app.post(`${one(user)}/events`, said('hi'));
    seen.push(await etagOf(one(user)));
    await app.send('PATCH', `${one(user)}/labels`, { a: 'b' });
    seen.push(await etagOf(one(user)));
    await app.post(`${one(user, 'other')}/events`, stateOf({ 'user:a': 1 }));
    seen.push(await etagOf(one(user)));
    await app.post(`${one(user, 'other')}/events`, stateOf({ 'user:a': 1 }));
    seen.push(await etagOf(one(user)));
    await app.post(`${one(user, 'other')}/events`, stateOf({ 'app:a': 1 }));
    seen.push(await etagOf(one(user)));
    expect(new Set(seen).size).toBe(6);
  });

  test('answers a read that knows it with 304 and nothing else, until something changes', async () => {
    const user = newUser();
    await app.post(list(user), { sessionId: 's' });
    const etag = await etagOf(one(user));
    for (const known of [etag, `"other", W/${etag}`, '*']) {
      const { status, headers, text } = await app.get(one(user), { 'if-none-match': known });
      expect([status, headers.get('etag'), text]).toEqual([304, etag, '']);
    }
    expect((await app.get(one(user), { 'if-none-match': '"other"' })).status).toBe(200);
    expect((await app.get(one(user, 'absent'), { 'if-none-match': '*' })).status).toBe(404);
    await app.send('PATCH', one(user), { stateDelta: { a: 1 } });
    const { status, body } = await app.get(one(user), { 'if-none-match': etag });
    expect([status, body]).toMatchObject([200, { id: 's', state: { a: 1 } }]);
    expect((await app.get(one(user), { 'if-none-match': 'unquoted' })).status).toBe(422);
  });
});

describe('If-Match', () => {
  const changes = [
    ['an append', 'POST', '/events', said('hi')],
    ['a change of state', 'PATCH', '', { stateDelta: { a: 1 } }],
    ['a change of labels', 'PATCH', '/labels', { a: 'b' }],
    ['a deletion', 'DELETE', '', undefined],
  ] as const;

  test.each(changes)('lets %s through for the version of now, and refuses it with 412 and that', async (...change) => {
    const [, method, path, body] = change;
    const user = newUser();
    const old = (await app.post(list(user), { sessionId: 's' })).headers.get('etag') ?? '';
    const appended = await app.post(`${one(user)}/events`, said('first'), { 'if-match': old });
    expect(appended.status).toBe(200);
    const before = await app.get(one(user));
    const etag = before.headers.get('etag') ?? '';
    for (const stale of [old, `W/${etag}`, '"x"']) {
      const refused = await app.send(method, `${one(user)}${path}`, body, { 'if-match': stale });
      const detail = `If-Match: it has changed, its ETag is ${etag} now. Read it again and decide anew.`;
      expect([refused.status, refused.headers.get('etag'), refused.body]).toEqual([412, etag, { detail }]);
    }
    expect((await app.get(one(user))).text).toBe(before.text);
    // What the append answered names the same version as the ETag of the session.
    const given = appended.headers.get('etag') ?? '';
    expect((await app.send(method, `${one(user)}${path}`, body, { 'if-match': `"x", ${given}` })).status).toBe(200);
    expect(await etagOf(one(user))).not.toBe(etag);
  });

  test.each(changes)(
    'of %s: * is any version, and a change of shared state by others does not matter',
    async (...c) => {
      const [, method, path, body] = c;
      const user = newUser();
      const made = await app.post(list(user), { sessionId: 's' });
      await app.post(list(user), { sessionId: 'other', state: { 'user:a': 1, 'app:b': 1 } });
      const etag = made.headers.get('etag') ?? '';
      expect(await etagOf(one(user))).not.toBe(etag);
      if (method !== 'DELETE') {
        expect((await app.send(method, `${one(user)}${path}`, body, { 'if-match': '*' })).status).toBe(200);
      }
      const now = (await etagOf(one(user))).replace(/\..*/, '.other.other"');
      expect((await app.send(method, `${one(user)}${path}`, body, { 'if-match': now })).status).toBe(200);
    },
  );

  test('of an absent session: what makes none is 404 as without it, a deletion 412', async () => {
    const user = newUser();
    for (const tag of ['*', '"1.2.3"']) {
      const headers = { 'if-match': tag };
      const statuses = [];
      for (const [, method, path, body] of changes) {
        statuses.push((await app.send(method, `${one(user)}${path}`, body, headers)).status);
      }
      expect(statuses).toEqual([404, 404, 404, 412]);
    }
    expect((await app.send('DELETE', one(user))).status).toBe(200);
  });

  test('of many writers at once that know one version one writes, the others are refused', async () => {
    const user = newUser();
    await app.post(list(user), { sessionId: 's' });
    for (let round = 1; round <= 5; round++) {
      const etag = await etagOf(one(user));
      const answers = await Promise.all(
        Array.from({ length: 12 }, (_, n) => {
          const [, method, path, body] = changes[n % 3] ?? changes[0];
          return app.send(method, `${one(user)}${path}`, body, { 'if-match': etag });
        }),
      );
      expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, ...Array(11).fill(412)]);
    }
  });

  test('a retry with its Idempotency-Key gets its first answer, although the version is another by then', async () => {
    const user = newUser();
    const made = await app.post(list(user), { sessionId: 's' });
    const headers = { 'if-match': made.headers.get('etag') ?? '', 'idempotency-key': 'once' };
    const [first, again] = [
      await app.post(`${one(user)}/events`, said('hi'), headers),
      await app.post(`${one(user)}/events`, said('hi'), headers),
    ];
    expect([first.status, again.status, again.text]).toEqual([200, 200, first.text]);
  });
});
