import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { hostScript } from '../support/agents.ts';
import { startApp, type TestApp, testApp } from '../support/app.ts';
import { s3Environment, startS3 } from '../support/s3-server.ts';

const app = testApp({}, { agents: hostScript([[{ text: 'gone on' }]]) });
const list = (userId: string) => `/apps/harness_agent/users/${userId}/sessions`;
const one = (userId: string, sessionId = 's') => `${list(userId)}/${sessionId}`;
const newUser = () => `user-${randomUUID()}`;
const said = (text: string, more: object = {}) => ({
  author: 'user',
  content: { role: 'user', parts: [{ text }] },
  ...more,
});
const bodyOf = async (path: string) => (await app.get(path)).body as Record<string, unknown>;
const save = (from: TestApp, session: string, filename: string, text: string) =>
  from.post(`${session}/artifacts`, {
    filename,
    artifact: { inlineData: { mimeType: 'text/plain', data: Buffer.from(text).toString('base64') } },
  });

/** A session of three events that each set `n`; with an artifact that they name, and one that none does. */
async function makeSession(user: string) {
  await app.post(list(user), { sessionId: 's', state: { first: true, 'user:x': 1 } });
  const say = (n: number, artifactDelta = {}) =>
    app.post(`${one(user)}/events`, said(`text ${n}`, { actions: { stateDelta: { n }, artifactDelta } }));
  await say(1);
  await save(app, one(user), 'a.txt', 'zero');
  await save(app, one(user), 'a.txt', 'one');
  await say(2, { 'a.txt': 1 });
  await save(app, one(user), 'free.txt', 'nobody names it');
  await save(app, one(user), 'a.txt', 'two');
  await say(3, { 'a.txt': 2 });
  await app.send('PATCH', `${one(user)}/labels`, { of: 'the first' });
}

describe('a fork', () => {
  test('has the events, the state and the artifacts of then, and says where it comes from', async () => {
    const user = newUser();
    await makeSession(user);
    const source = await bodyOf(one(user));
    const made = await app.post(`${one(user)}/fork`, { sessionId: 'f', atSequence: 2, labels: { kind: 'try' } });
    const forkedFrom = { sessionId: 's', atSequence: 2 };
    const answer = { id: 'f', appName: 'harness_agent', userId: user, forkedFrom, artifactVersions: 3 };
    expect([made.status, made.body]).toEqual([200, answer]);
    expect(await bodyOf(`${one(user, 'f')}?withDetails=true`)).toEqual({
      id: 'f',
      appName: 'harness_agent',
      userId: user,
      state: { first: true, n: 2, 'user:x': 1 },
      events: (source.events as unknown[]).slice(0, 2),
      lastUpdateTime: expect.any(Number),
      createTime: expect.any(Number),
      lastSequence: 2,
      labels: { kind: 'try' },
      firstText: 'text 1',
      forkedFrom,
    });
    expect(await bodyOf(`${one(user, 'f')}?atSequence=1`)).toMatchObject({ state: { first: true, n: 1 } });
    expect(await bodyOf(`${one(user, 'f')}/artifacts`)).toEqual(['a.txt', 'free.txt']);
    expect(await bodyOf(`${one(user, 'f')}/artifacts/a.txt/versions`)).toEqual([0, 1]);
    const metadata = await bodyOf(`${one(user, 'f')}/artifacts/a.txt/versions/1/metadata`);
    const uri = `postgres://apps/harness_agent/users/${user}/sessions/f/artifacts/a.txt/versions/1`;
    expect(metadata).toMatchObject({ version: 1, canonicalUri: uri, mimeType: 'text/plain' });
    expect(await bodyOf(one(user))).toEqual(source);
  });

  test('before the first event is the beginning; without a sequence it is all, with an id of the server', async () => {
    const user = newUser();
    await makeSession(user);
    const { events, state } = await bodyOf(one(user));
    expect((await app.post(`${one(user)}/fork`, { sessionId: 'empty', atSequence: 0 })).status).toBe(200);
    expect(await bodyOf(`${one(user, 'empty')}?withDetails=true`)).toMatchObject({
      state: { first: true, 'user:x': 1 },
      events: [],
      firstText: '',
    });
    const { body } = await app.post(`${one(user)}/fork`);
    const { id } = body as { id: string };
    expect(body).toMatchObject({ forkedFrom: { sessionId: 's', atSequence: 3 }, artifactVersions: 4 });
    expect(await bodyOf(one(user, id))).toMatchObject({ events, state });
  });

  test('shares nothing with the session that it came from', async () => {
    const user = newUser();
    await makeSession(user);
    await app.post(`${one(user)}/fork`, { sessionId: 'f' });
    const [source, fork] = [await bodyOf(one(user)), await bodyOf(one(user, 'f'))];
    await app.post(`${one(user, 'f')}/events`, said('only here', { actions: { stateDelta: { n: 'f' } } }));
    const saved = await save(app, one(user, 'f'), 'a.txt', 'three');
    expect(saved.body).toMatchObject({ version: 3 });
    await app.send('DELETE', `${one(user, 'f')}/artifacts/free.txt`);
    expect(await bodyOf(one(user))).toEqual(source);
    expect(await bodyOf(`${one(user)}/artifacts`)).toEqual(['a.txt', 'free.txt']);
    await app.send('DELETE', one(user));
    expect(await bodyOf(one(user, 'f'))).toMatchObject({ state: { n: 'f' }, events: [...(fork.events as []), {}] });
    expect((await app.get(`${one(user, 'f')}/artifacts/a.txt/versions/2/metadata`)).status).toBe(200);
  });

  test('goes on: an invocation sees its history', async () => {
    const user = newUser();
    await makeSession(user);
    await app.post(`${one(user)}/fork`, { sessionId: 'f', atSequence: 1 });
    const run = { appName: 'harness_agent', userId: user, sessionId: 'f', newMessage: said('go on').content };
    expect((await app.post('/run', run)).status).toBe(200);
    const { events } = (await bodyOf(one(user, 'f'))) as { events: { author: string }[] };
    expect(events.map(({ author }) => author)).toEqual(['user', 'user', 'harness_agent']);
  });

  test('with an Idempotency-Key is made once', async () => {
    const user = newUser();
    await makeSession(user);
    const fork = () => app.post(`${one(user)}/fork`, { atSequence: 1 }, { 'idempotency-key': 'k' });
    const [first, again] = [await fork(), await fork()];
    expect([again.status, again.text]).toEqual([200, first.text]);
    expect(await bodyOf(list(user))).toHaveLength(2);
  });

  test('of what is absent, not reached or taken is refused and makes nothing', async () => {
    const user = newUser();
    await makeSession(user);
    const refusalOf = async (session: string, body: object) => {
      const answer = await app.post(`${session}/fork`, body);
      return [answer.status, answer.body];
    };
    expect(await refusalOf(one(user, 'absent'), {})).toEqual([404, { detail: 'Session not found: absent' }]);
    const ahead = 'The session has 3 events; it has not reached 4.';
    expect(await refusalOf(one(user), { sessionId: 'f', atSequence: 4 })).toEqual([400, { detail: ahead }]);
    const last = { sessionId: 'f', atSequence: 2 ** 31 - 1 };
    expect((await refusalOf(one(user), last))[0]).toBe(400);
    expect(await refusalOf(one(user), { sessionId: 's' })).toEqual([409, { detail: 'Session already exists: s' }]);
    await save(app, one(user, 'former'), 'a.txt', 'left');
    const left = 'A former session former has left artifacts: choose another id.';
    expect(await refusalOf(one(user), { sessionId: 'former' })).toEqual([409, { detail: left }]);
    expect(await bodyOf(list(user))).toHaveLength(1);
  });

  test('of many at once with one id one is made', async () => {
    const user = newUser();
    await makeSession(user);
    const fork = () => app.post(`${one(user)}/fork`, { sessionId: 'f' });
    const answers = await Promise.all(Array.from({ length: 8 }, fork));
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, ...Array<number>(7).fill(409)]);
    expect(await bodyOf(one(user, 'f'))).toMatchObject({ events: [{}, {}, {}] });
  });
});

test('artifacts in a bucket are copied there: deleting those of one session leaves those of the other', async () => {
  const s3 = await startS3();
  const bucketApp = await startApp(s3Environment(s3), { agents: hostScript([]) });
  try {
    await bucketApp.post(list('u'), { sessionId: 's' });
    await save(bucketApp, one('u'), 'a.txt', 'hello');
    expect((await bucketApp.post(`${one('u')}/fork`, { sessionId: 'f' })).body).toMatchObject({ artifactVersions: 1 });
    expect(s3.objects.size).toBe(2);
    await bucketApp.send('DELETE', `${one('u')}/artifacts/a.txt`);
    expect(s3.objects.size).toBe(1);
    const data = Buffer.from('hello').toString('base64');
    expect((await bucketApp.get(`${one('u', 'f')}/artifacts/a.txt`)).body).toMatchObject({ inlineData: { data } });
  } finally {
    await bucketApp.close();
    await s3.close();
  }
});
