import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const list = (userId: string) => `/apps/harness_agent/users/${userId}/sessions`;
const one = (userId: string, sessionId: string) => `${list(userId)}/${sessionId}`;
const labels = (userId: string, sessionId: string) => `${one(userId, sessionId)}/labels`;
const said = (text: string) => ({ author: 'user', content: { role: 'user', parts: [{ text }] } });
const newUser = () => `user-${randomUUID()}`;

async function idsOf(path: string): Promise<string[]> {
  const { status, body } = await app.get(path);
  expect([status, body]).toEqual([200, expect.any(Array)]);
  return (body as { id: string }[]).map(({ id }) => id);
}

describe('labels of a session', () => {
  test('a value sets one, null removes it, others stay; the state and the events say nothing of them', async () => {
    const user = newUser();
    const made = await app.post(list(user), { sessionId: 's', state: { a: 1 } });
    expect((await app.get(labels(user, 's'))).body).toEqual({});
    const set = await app.send('PATCH', labels(user, 's'), { project: 'atlas', 'team/name': 'Été 1', constructor: '' });
    expect([set.status, set.body]).toEqual([200, { project: 'atlas', 'team/name': 'Été 1', constructor: '' }]);
    const changed = await app.send('PATCH', labels(user, 's'), { project: 'mars', constructor: null, absent: null });
    expect([changed.status, changed.body]).toEqual([200, { project: 'mars', 'team/name': 'Été 1' }]);
    expect((await app.get(labels(user, 's'))).body).toEqual(changed.body);
    const session = (await app.get(one(user, 's'))).body as { lastUpdateTime: number };
    const { lastUpdateTime, ...others } = made.body as { lastUpdateTime: number };
    expect(session).toEqual({ ...others, lastUpdateTime: expect.any(Number) });
    expect(session.lastUpdateTime).toBeGreaterThan(lastUpdateTime);
  });

  test('changes at the same time are all kept', async () => {
    const user = newUser();
    await app.post(list(user), { sessionId: 's' });
    const names = Array.from({ length: 20 }, (_, n) => `n${n}`);
    const answers = await Promise.all(names.map((name) => app.send('PATCH', labels(user, 's'), { [name]: name })));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect((await app.get(labels(user, 's'))).body).toEqual(Object.fromEntries(names.map((name) => [name, name])));
  });

  test('an absent session is 404 and stays absent', async () => {
    const user = newUser();
    for (const method of ['GET', 'PATCH']) {
      const { status, body } = await app.send(
        method,
        labels(user, 'absent'),
        method === 'GET' ? undefined : { project: 'atlas' },
      );
      expect([status, body]).toEqual([404, { detail: 'Session not found: absent' }]);
    }
    expect(await idsOf(list(user))).toEqual([]);
  });

  test('more than 32, or more than 8,192 bytes, are 413 and change nothing', async () => {
    const user = newUser();
    await app.post(list(user), { sessionId: 's' });
    const many = (from: number, to: number, value: string) =>
      Object.fromEntries(Array.from({ length: to - from }, (_, n) => [`n${from + n}`, value]));
    expect((await app.send('PATCH', labels(user, 's'), many(0, 32, 'x'))).status).toBe(200);
    const detail = 'A session has at most 32 labels, 8192 bytes together.';
    const over = await app.send('PATCH', labels(user, 's'), { one: 'more' });
    expect([over.status, over.body]).toEqual([413, { detail }]);
    const large = await app.send('PATCH', labels(user, 's'), many(0, 32, '€'.repeat(256)));
    expect([large.status, large.body]).toEqual([413, { detail }]);
    expect((await app.get(labels(user, 's'))).body).toEqual(many(0, 32, 'x'));
    const replaced = await app.send('PATCH', labels(user, 's'), { n0: null, one: 'more' });
    expect(replaced.body).toEqual({ ...many(1, 32, 'x'), one: 'more' });
  });

  test.each([
    ['a name with a space', { 'a b': 'x' }],
    ['a name that begins with an underscore', { __proto: 'x' }],
    ['a value that is a number', { a: 1 }],
    ['a value with a line break', { a: 'x\ny' }],
    ['a lone surrogate', { a: '\uD800' }],
    ['a list', []],
    ['nothing', undefined],
  ])('%s is 422', async (_name, body) => {
    const user = newUser();
    await app.post(list(user), { sessionId: 's' });
    expect((await app.send('PATCH', labels(user, 's'), body)).status).toBe(422);
    expect((await app.get(labels(user, 's'))).body).toEqual({});
  });
});

describe('a list of sessions with conditions', () => {
  test('has those with all the labels, by value or by name, in pages as without', async () => {
    const user = newUser();
    for (const sessionId of ['a', 'b', 'c', 'd']) await app.post(list(user), { sessionId });
    await app.send('PATCH', labels(user, 'b'), { project: 'atlas', kind: 'x=y' });
    await app.send('PATCH', labels(user, 'c'), { project: 'mars' });
    await app.send('PATCH', labels(user, 'd'), { project: 'atlas' });
    expect(await idsOf(`${list(user)}?label=project%3Datlas`)).toEqual(['d', 'b']);
    expect(await idsOf(`${list(user)}?label=project`)).toEqual(['d', 'c', 'b']);
    expect(await idsOf(`${list(user)}?label=project%3Datlas&label=kind`)).toEqual(['b']);
    expect(await idsOf(`${list(user)}?label=kind%3Dx%3Dy`)).toEqual(['b']);
    expect(await idsOf(`${list(user)}?label=project%3Datlas&label=project%3Dmars`)).toEqual([]);
    const first = await app.get(`${list(user)}?label=project&limit=2`);
    expect((first.body as { id: string }[]).map(({ id }) => id)).toEqual(['d', 'c']);
    const next = first.headers.get('x-next-cursor') ?? '';
    expect(await idsOf(`${list(user)}?label=project&limit=2&cursor=${next}`)).toEqual(['b']);
    expect((await app.get(`${list(user)}?label=a%20b`)).status).toBe(422);
  });

  test('has those whose first text has the words in it, whatever was said later', async () => {
    const user = newUser();
    await app.post(list(user), { sessionId: 'a', events: [said('The Weather of Lima'), said('and Berlin')] });
    await app.post(list(user), { sessionId: 'b' });
    await app.post(`${one(user, 'b')}/events`, { author: 'user', actions: { stateDelta: { a: 1 } } });
    await app.post(`${one(user, 'b')}/events`, said('100% of Berlin_'));
    await app.post(`${one(user, 'b')}/events`, said('weather'));
    await app.post(list(user), { sessionId: 'c', state: { text: 'weather' } });
    const find = (text: string) => idsOf(`${list(user)}?text=${encodeURIComponent(text)}`);
    expect(await find('weather')).toEqual(['a']);
    expect(await find('berlin')).toEqual(['b']);
    expect(await find('0% of Berlin_')).toEqual(['b']);
    expect(await find('%')).toEqual(['b']);
  });

  test('with details each says its labels, age, size and first text', async () => {
    const user = newUser();
    const long = `${'𝕏'.repeat(150)}${'y'.repeat(150)}`;
    await app.post(list(user), { sessionId: 'a', events: [said(long), said('two')] });
    await app.send('PATCH', labels(user, 'a'), { project: 'atlas' });
    const details = async () => (await app.get(`${list(user)}?withDetails=true`)).body;
    const plain = (await app.get(list(user))).body as { lastUpdateTime: number }[];
    const expected = {
      ...plain[0],
      createTime: expect.any(Number),
      lastSequence: 2,
      labels: { project: 'atlas' },
      firstText: `${'𝕏'.repeat(150)}${'y'.repeat(50)}`,
    };
    expect(Object.keys(plain[0] ?? {})).toEqual(['id', 'appName', 'userId', 'state', 'events', 'lastUpdateTime']);
    expect(await details()).toEqual([expected]);
    await app.post(`${one(user, 'a')}/events`, said('three'));
    expect(await details()).toMatchObject([{ firstText: expected.firstText }]);
  });

  test('is sorted by creation or update, both ways, in pages; a cursor of another order is 422', async () => {
    const user = newUser();
    for (const sessionId of ['a', 'b', 'c']) await app.post(list(user), { sessionId });
    await app.post(`${one(user, 'a')}/events`, said('again'));
    const orders = { '': ['a', 'c', 'b'], 'sort=created': ['c', 'b', 'a'], 'sort=created&order=asc': ['a', 'b', 'c'] };
    for (const [query, expected] of Object.entries({ ...orders, 'order=asc': ['b', 'c', 'a'] })) {
      expect(await idsOf(`${list(user)}?${query}`)).toEqual(expected);
      const seen: string[] = [];
      for (let cursor: string | undefined = ''; cursor !== undefined; ) {
        const page = await app.get(`${list(user)}?${query}&limit=1${cursor}`);
        seen.push(...(page.body as { id: string }[]).map(({ id }) => id));
        const next = page.headers.get('x-next-cursor');
        cursor = next === null ? undefined : `&cursor=${next}`;
      }
      expect(seen).toEqual(expected);
    }
    const next = (await app.get(`${list(user)}?sort=created&limit=1`)).headers.get('x-next-cursor');
    const mixed = await app.get(`${list(user)}?limit=1&cursor=${next}`);
    expect([mixed.status, mixed.body]).toEqual([
      422,
      {
        detail: [
          {
            type: 'value_error',
            loc: ['query', 'cursor'],
            msg: 'Value error, it is of a list in another order',
            ctx: { error: {} },
          },
        ],
      },
    ]);
  });

  test('has those created and updated between two times', async () => {
    const user = newUser();
    for (const sessionId of ['a', 'b', 'c']) await app.post(list(user), { sessionId });
    await app.post(`${one(user, 'a')}/events`, said('again'));
    const body = (await app.get(`${list(user)}?withDetails=true`)).body as {
      id: string;
      createTime: number;
      lastUpdateTime: number;
    }[];
    const b = body.find(({ id }) => id === 'b');
    expect(await idsOf(`${list(user)}?createdAfter=${b?.createTime}`)).toEqual(['c']);
    expect(await idsOf(`${list(user)}?createdBefore=${b?.createTime}`)).toEqual(['a']);
    expect(await idsOf(`${list(user)}?updatedBefore=${b?.lastUpdateTime}`)).toEqual([]);
    expect(await idsOf(`${list(user)}?updatedAfter=${b?.lastUpdateTime}&createdBefore=1e300`)).toEqual(['a', 'c']);
  });
});
