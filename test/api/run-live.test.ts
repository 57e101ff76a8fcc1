import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { SignJWT } from 'jose';
import { WebSocket } from 'ws';
import type { Event } from '../../src/core/event.ts';
import { gatedAgents, hostScript } from '../support/agents.ts';
import { startApp, testApp, type TestApp } from '../support/app.ts';
import { signingKey, startIssuer } from '../support/issuer.ts';
import { type Frame, isEnd, openLive, say } from '../support/live-client.ts';
import { callPart } from '../support/scripted-model.ts';

/** Live sessions over real sockets, in text. */

const isError = ({ error }: Frame) => error !== undefined;
const texts = (events: Event[]) => events.map(({ content }) => content?.parts?.map(({ text }) => text).join('') ?? '');
const sessions = '/apps/harness_agent/users/u/sessions';
const query = (session_id: string, more: Record<string, string> = {}) => ({
  app_name: 'harness_agent',
  user_id: 'u',
  session_id,
  modalities: 'TEXT',
  ...more,
});
async function storedIn(app: TestApp, sessionId: string): Promise<Event[]> {
  return ((await app.get(`${sessions}/${sessionId}`)).body as { events: Event[] }).events;
}

describe('a live session in text', () => {
  const script = Array.from({ length: 20 }, () => [
    [callPart('calculator', { expression: '1+1' })],
    [{ text: 'it is ' }, { text: 'two' }],
  ]).flat();
  const app = testApp({}, { agents: hostScript(script) });

  test('a turn: the call, its response, partial pieces, the whole, turnComplete; stored as an invocation', async () => {
    await app.post(sessions, { sessionId: 'turn' });
    const live = await openLive(app, query('turn'));
    live.send(say('how much?'));
    const frames = await live.until(isEnd);
    expect(frames.map(({ partial, turnComplete }) => turnComplete ?? partial ?? 'response')).toEqual([
      false,
      'response',
      true,
      true,
      false,
      true,
    ]);
    expect(texts(frames.filter(({ partial }) => partial === true))).toEqual(['it is ', 'two']);
    const invocationId = frames[0]?.invocationId;
    expect(frames.at(-1)).toEqual({
      id: expect.any(String),
      invocationId,
      author: 'harness_agent',
      nodeInfo: { path: '' },
      timestamp: expect.any(Number),
      turnComplete: true,
    });
    const events = await storedIn(app, 'turn');
    expect(texts(events)).toEqual(['how much?', '', '', 'it is two', '']);
    expect(frames.filter(({ partial }) => partial !== true)).toEqual(events.slice(1));
    expect(frames.map(({ nodeInfo }) => nodeInfo?.path)).toEqual(frames.map(() => ''));
    const { body } = await app.get(`${sessions}/turn/invocations`);
    expect(body).toMatchObject([{ id: invocationId, status: 'succeeded', llmCalls: 2, toolCalls: 1 }]);
  });

  test('two contents are two turns, one after the other', async () => {
    await app.post(sessions, { sessionId: 'two' });
    const live = await openLive(app, query('two'));
    live.send(say('one'));
    live.send(say('two'));
    await live.until(isEnd, 2);
    expect(texts(await storedIn(app, 'two')).filter(Boolean)).toEqual(['one', 'it is two', 'two', 'it is two']);
  });

  test('what cannot be read is an error frame, and the reader goes on', async () => {
    await app.post(sessions, { sessionId: 'odd' });
    const live = await openLive(app, query('odd'));
    for (const frame of ['{', '[1]', { content: { parts: [{ txt: 'typo' }] } }]) live.send(frame);
    live.socket.send('{"content":{"parts":[{"partMetadata":{"n":-0}}]}}');
    live.socket.send(Buffer.from([1, 2]), { binary: true });
    // Of no effect without audio.
    for (const frame of [{}, { unknown: 1 }, { activity_start: {} }, { activity_end: {} }]) live.send(frame);
    live.send(say('still there?'));
    await live.until(isEnd);
    expect(live.frames.filter(isError).map(({ error }) => error)).toEqual(
      expect.arrayContaining([
        'The frame is not valid JSON.',
        expect.stringMatching(/^The frame is not valid: /),
        expect.stringMatching(/^The frame is not valid at content\.parts\.0: /),
        'The frame is not valid at content.parts.0.partMetadata.n: a negative zero is not kept: send 0.',
        'Frames are JSON text.',
      ]),
    );
    expect(texts(await storedIn(app, 'odd')).filter(Boolean)).toEqual(['still there?', 'it is two']);
  });

  test('close ends the session', async () => {
    await app.post(sessions, { sessionId: 'closing' });
    const live = await openLive(app, query('closing'));
    live.send({ close: true });
    expect(await live.closed).toEqual([1000, '']);
  });

  test('a session or an application that is not there is closed with its reason', async () => {
    expect(await (await openLive(app, query('nope'))).closed).toEqual([1002, 'Session not found']);
    const unknown = await openLive(app, query('nope', { app_name: 'nope' }));
    expect(await unknown.closed).toEqual([1008, 'App not found: nope']);
  });

  test.each(['AUDIO', 'VIDEO'])('%s is refused with a sentence', async (modalities) => {
    await app.post(sessions, { sessionId: `av-${modalities}` });
    const live = await openLive(app, query(`av-${modalities}`, { modalities }));
    const reason = 'This model has no live API: audio and video cannot be used. Send text instead.';
    expect(await live.closed).toEqual([1011, reason]);
  });

  test('modalities may be repeated, and each counts', async () => {
    await app.post(sessions, { sessionId: 'two-modalities' });
    const address = `${app.url.replace('http', 'ws')}/run_live?user_id=u&session_id=two-modalities`;
    const repeated = `${address}&modalities=AUDIO&modalities=TEXT`;
    const socket = new WebSocket(repeated);
    const [code] = await new Promise<[number]>((resolve) => socket.once('close', (...args) => resolve([args[0]])));
    expect(code).toBe(1011);
    const wrong = await app.get('/run_live?user_id=u&session_id=s&modalities=TEXT&modalities=SMELL&save_live_blob=2');
    expect([wrong.status, wrong.body]).toEqual([
      422,
      {
        detail: [
          {
            type: 'enum',
            loc: ['query', 'modalities', 1],
            msg: "Input should be 'TEXT', 'AUDIO' or 'VIDEO'",
            input: 'SMELL',
            ctx: { expected: "'TEXT', 'AUDIO' or 'VIDEO'" },
          },
          {
            type: 'bool_parsing',
            loc: ['query', 'save_live_blob'],
            msg: 'Input should be a valid boolean, unable to interpret input',
            input: '2',
          },
        ],
      },
    ]);
  });

  test('without modalities text is answered, and audio refused when it comes, as the Web UI sends it', async () => {
    await app.post(sessions, { sessionId: 'call' });
    const live = await openLive(app, { app_name: 'harness', user_id: 'u', session_id: 'call' });
    live.send(say('hello'));
    await live.until(isEnd);
    live.send({ blob: { mime_type: 'audio/pcm', data: 'AAAA' }, content: { parts: [{ text: 'not read' }] } });
    expect((await live.closed)[0]).toBe(1011);
    expect(texts(await storedIn(app, 'call')).filter(Boolean)).toEqual(['hello', 'it is two']);
  });

  test.each([{}, { user_id: 'u' }, { ...query('s'), modalities: 'SMELL' }])(
    'the handshake with %j is refused with 422',
    async (wrong) => {
      await expect(openLive(app, wrong as Record<string, string>)).rejects.toThrow('Unexpected server response: 422');
    },
  );

  test('without an upgrade it is 426, which names the protocol', async () => {
    const { status, body, headers } = await app.get('/run_live?user_id=u&session_id=s');
    expect(headers.get('upgrade')).toBe('websocket');
    expect([status, body]).toEqual([
      426,
      { detail: 'This address speaks WebSocket: the request must ask for an upgrade.' },
    ]);
  });

  test('other addresses answer an upgrade as any request', async () => {
    const socket = new WebSocket(`${app.url.replace('http', 'ws')}/health`);
    const failed = new Promise<Error>((resolve) => socket.once('error', resolve));
    expect((await failed).message).toBe('Unexpected server response: 200');
  });
});

test('a failure of the agent is an event, and the session goes on', async () => {
  const app = await startApp({}, { agents: hostScript([new Error('secret'), [{ text: 'better' }]]) });
  await app.post(sessions, { sessionId: 's' });
  const live = await openLive(app, query('s'));
  live.send(say('one'));
  await live.until(isEnd);
  live.send(say('two'));
  await live.until(isEnd, 2);
  expect(
    live.frames.map(({ errorCode, content, turnComplete }) => errorCode ?? turnComplete ?? content?.parts),
  ).toEqual(['model_failed', true, [{ text: 'better' }], [{ text: 'better' }], true]);
  await app.close();
});

describe('who may', () => {
  test('a foreign origin and a foreign host are refused', async () => {
    const app = await startApp();
    const refused = 'Unexpected server response: 403';
    await expect(openLive(app, query('s'), { origin: 'http://evil.example' })).rejects.toThrow(refused);
    await expect(openLive(app, query('s'), { host: 'evil.example' })).rejects.toThrow(refused);
    await expect(openLive(app, query('s'), { 'x-forwarded-for': '1.2.3.4' })).rejects.toThrow(refused);
    await app.close();
  });

  test('with keys, nobody without one', async () => {
    const key = randomBytes(32).toString('hex');
    const app = await startApp({ RUNTIME_API_KEYS: key, DEV_UI: 'false' });
    const authorization = `Bearer ${key}`;
    await app.post(sessions, { sessionId: 's' }, { authorization });
    await expect(openLive(app, query('s'))).rejects.toThrow('Unexpected server response: 401');
    await expect(openLive(app, query('s'), { authorization: 'Bearer wrong' })).rejects.toThrow('401');
    const live = await openLive(app, query('s'), { authorization });
    live.send(say('hello'));
    await live.until(isEnd);
    expect(texts(live.frames).join('')).toContain('You wrote: "hello"');
    await app.close();
  });
});

test('with tokens, a live session belongs to the user of the token, whatever the query says', async () => {
  const key = await signingKey('ES256', 'k');
  const issuer = await startIssuer([{ ...key.jwk, alg: 'ES256' }]);
  const app = await startApp({
    AUTH_MODE: 'jwt',
    JWT_ISSUER: issuer.url,
    JWT_AUDIENCE: 'runtime',
    JWT_JWKS_URL: issuer.jwksUrl,
    DEV_UI: 'false',
  });
  const token = await new SignJWT({ sub: 'u' })
    .setProtectedHeader({ alg: 'ES256', kid: 'k' })
    .setIssuer(issuer.url)
    .setAudience('runtime')
    .setIssuedAt()
    .setExpirationTime('5m')
    .sign(key.privateKey);
  const headers = { authorization: `Bearer ${token}` };
  await app.post(sessions, { sessionId: 's' }, headers);
  const foreign = { ...query('s'), user_id: 'somebody' };
  await expect(openLive(app, foreign, headers)).rejects.toThrow('Unexpected server response: 404');
  const live = await openLive(app, query('s'), headers);
  live.send({ close: true });
  expect(await live.closed).toEqual([1000, '']);
  await app.close();
  await issuer.close();
});

describe('bounds', () => {
  test('of sockets, of frames, of silence', async () => {
    const app = await startApp(
      { MAX_INVOCATIONS: '2', MAX_BODY_BYTES: '2048' },
      { liveLimits: { idleMs: 400, totalMs: 3_600_000, frames: 1_000, bytes: 1_000_000 } },
    );
    await app.post(sessions, { sessionId: 's' });
    const live = await openLive(app, query('s'));
    await expect(openLive(app, query('s'))).rejects.toThrow('Unexpected server response: 503');
    live.send(say('x'.repeat(3_000)));
    expect((await live.closed)[0]).toBe(1009);
    const silent = await openLive(app, query('s'));
    expect(await silent.closed).toEqual([1000, 'Nothing was said.']);
    await app.close();
  });

  test('of runs in a minute: each turn is one, as the request is that opened the session', async () => {
    const app = await startApp({ MAX_INVOCATIONS_PER_MINUTE: '3' });
    await app.post(sessions, { sessionId: 's' });
    const live = await openLive(app, query('s'));
    for (const text of ['one', 'two', 'three']) live.send(say(text));
    await Promise.race([live.until(isError), live.until(isEnd, 3)]);
    expect(live.frames.filter(isEnd)).toHaveLength(2);
    expect(live.frames.at(-1)).toEqual({
      error: expect.stringMatching(/^You have used all 3 of this minute: MAX_INVOCATIONS_PER_MINUTE\. Try again in /),
    });
    expect((await app.get(`${sessions}/s/invocations`)).body).toHaveLength(2);
    await app.close();
  });

  test('a stop ends a silent session at once, and one that is answering after its turn', async () => {
    const gate = gatedAgents();
    const app = await startApp({ SHUTDOWN_GRACE_MS: '60000' }, { agents: gate.agents });
    await app.post(sessions, { sessionId: 'silent' });
    await app.post(sessions, { sessionId: 'busy' });
    const silent = await openLive(app, query('silent'));
    const busy = await openLive(app, query('busy'));
    busy.send(say('hello'));
    await gate.entered(1);
    const closing = app.close();
    expect(await silent.closed).toEqual([1001, 'The service is stopping.']);
    gate.open();
    expect(await busy.closed).toEqual([1001, 'The service is stopping.']);
    expect(busy.frames.at(-1)?.turnComplete).toBe(true);
    await closing;
  });
});
