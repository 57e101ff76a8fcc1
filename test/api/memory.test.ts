import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const app = testApp();
const of = (user: string, appName = 'harness_agent') => `/apps/${appName}/users/${user}`;
const said = (text: string, more = {}) => ({ author: 'user', content: { role: 'user', parts: [{ text }] }, ...more });
const remember = async (user: string, sessionId: string, events: object[], appName?: string) => {
  await app.post(`${of(user, appName)}/sessions`, { sessionId, events });
  return app.send('PATCH', `${of(user, appName)}/memory`, { sessionId });
};
const search = async (user: string, words: string, more = '', appName?: string) => {
  const { status, body } = await app.get(`${of(user, appName)}/memory?query=${encodeURIComponent(words)}${more}`);
  expect(status).toBe(200);
  return (body as { memories: { content: { parts: { text: string }[] } }[] }).memories.map(
    ({ content }) => content.parts[0]?.text ?? '',
  );
};

describe('add and search', () => {
  test.each(['sessionId', 'session_id'])('by %s: the answer is null, and what was said is found', async (name) => {
    await app.post(`${of('adder')}/sessions`, {
      sessionId: name,
      events: [said(`The ${name.toLowerCase()} whale is blue`, { timestamp: 1_700_000_000.25, author: 'helper' })],
    });
    const added = await app.send('PATCH', `${of('adder')}/memory`, { [name]: name });
    expect([added.status, added.text]).toEqual([200, 'null']);
    const { status, body } = await app.get(`${of('adder')}/memory?query=${name.toLowerCase()}`);
    expect([status, body]).toEqual([
      200,
      {
        memories: [
          {
            author: 'helper',
            timestamp: '2023-11-14T22:13:20.250000Z',
            content: { role: 'user', parts: [{ text: `The ${name.toLowerCase()} whale is blue` }] },
          },
        ],
      },
    ]);
  });

  test('any of the words is enough, the best match comes first, thoughts are not searched', async () => {
    await remember('ranker', 's', [
      said('apples grow'),
      said('apples and pears grow'),
      { author: 'agent', content: { parts: [{ text: 'secret apples', thought: true }] } },
      said('nothing else'),
    ]);
    expect(await search('ranker', 'pears apples')).toEqual(['apples and pears grow', 'apples grow']);
    expect(await search('ranker', 'APPLES', '&limit=1')).toHaveLength(1);
    expect(await search('ranker', 'secret')).toEqual([]);
    expect(await search('ranker', 'http://example.com/a?x=1&y=2 pears')).toEqual(['apples and pears grow']);
  });

  test('an address is found as a whole before its parts', async () => {
    await remember('links', 's', [
      said('see example.com/a?x=1&y=2', { timestamp: 1 }),
      said('see example.com', { timestamp: 2 }),
    ]);
    const found = await search('links', 'http://example.com/a?x=1&y=2');
    expect(found).toEqual(['see example.com/a?x=1&y=2', 'see example.com']);
  });

  test('adding again adds what was said since, each thing once', async () => {
    await remember('again', 's', [said('first thing')]);
    await app.post(`${of('again')}/sessions/s/events`, said('second thing'));
    for (const _ of [1, 2]) await app.send('PATCH', `${of('again')}/memory`, { sessionId: 's' });
    expect((await search('again', 'thing')).toSorted()).toEqual(['first thing', 'second thing']);
  });

  test('another user and another application find nothing', async () => {
    await remember('owner', 's', [said('private whale')]);
    expect(await search('owner', 'whale')).toEqual(['private whale']);
    expect(await search('stranger', 'whale')).toEqual([]);
    expect(await search('owner', 'whale', '', 'other')).toEqual([]);
  });

  test("an absent or a foreign session is 404, and the foreign one's words stay its owner's", async () => {
    await app.post(`${of('owner')}/sessions`, { sessionId: 'foreign', events: [said('hidden whale')] });
    for (const sessionId of ['nope', 'foreign']) {
      const { status, body } = await app.send('PATCH', `${of('thief')}/memory`, { sessionId });
      expect([status, body]).toEqual([404, { detail: `Session not found: ${sessionId}` }]);
    }
    expect(await search('thief', 'hidden')).toEqual([]);
  });

  test.each(["' or 1=1 --", '&|!():*<->', '', '\\', '\u0000', '\ud800', 'x'.repeat(1_000), "a' & b"])(
    'the words %j are only words',
    async (words) => {
      const sent = words.isWellFormed() ? encodeURIComponent(words) : '%EF%BF%BD';
      const { status, body } = await app.get(`${of('owner')}/memory?query=${sent}`);
      expect([status, body]).toEqual([200, { memories: [] }]);
    },
  );

  test('a wrong request is 422', async () => {
    const missing = { type: 'missing', loc: ['query', 'query'], msg: 'Field required', input: null };
    const { status, body } = await app.get(`${of('u')}/memory`);
    expect([status, body]).toEqual([422, { detail: [missing] }]);
    for (const query of ['query=x&limit=0', 'query=x&limit=101', 'query=x&limit=a']) {
      expect((await app.get(`${of('u')}/memory?${query}`)).status).toBe(422);
    }
    for (const [sent, type, loc] of [
      [undefined, 'missing', ['body']],
      [{}, 'missing', ['body', 'sessionId']],
      [{ session_id: 1 }, 'string_type', ['body', 'session_id']],
    ] as const) {
      const refused = await app.send('PATCH', `${of('u')}/memory`, sent);
      expect([refused.status, refused.body]).toEqual([422, { detail: [expect.objectContaining({ type, loc })] }]);
    }
    expect((await app.get(`${of('%00')}/memory?query=x`)).status).toBe(422);
  });
});

describe('forget', () => {
  test('deleting a session keeps its memories unless it is told to forget them; also afterwards', async () => {
    await remember('forgetter', 'a', [said('alpha whale')]);
    await remember('forgetter', 'b', [said('beta whale')]);
    const remove = (sessionId: string, query = '') =>
      app.send('DELETE', `${of('forgetter')}/sessions/${sessionId}${query}`);
    expect((await remove('a')).text).toBe('null');
    expect((await search('forgetter', 'whale')).toSorted()).toEqual(['alpha whale', 'beta whale']);
    expect((await remove('b', '?forgetMemories=true')).text).toBe('null');
    expect(await search('forgetter', 'whale')).toEqual(['alpha whale']);
    expect((await remove('a', '?forgetMemories=true')).text).toBe('null');
    expect(await search('forgetter', 'whale')).toEqual([]);
    expect((await remove('a', '?forgetMemories=perhaps')).status).toBe(422);
  });

  test('what is added and forgotten at once is forgotten', async () => {
    for (let round = 0; round < 20; round++) {
      const sessionId = `s${round}`;
      await app.post(`${of('racer')}/sessions`, { sessionId, events: [said('racing whale')] });
      await Promise.all([
        app.send('PATCH', `${of('racer')}/memory`, { sessionId }),
        app.send('DELETE', `${of('racer')}/sessions/${sessionId}?forgetMemories=true`),
      ]);
    }
    expect(await search('racer', 'whale')).toEqual([]);
  });
});
