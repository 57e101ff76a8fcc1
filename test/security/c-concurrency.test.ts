import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { WebSocket } from 'ws';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Answer, startApp, type TestApp } from '../support/app.ts';
import { startHeldProvider } from '../support/held-provider.ts';
import { startTokenIssuer, type TokenIssuer } from '../support/token-issuer.ts';
import { MINUTE } from '../support/patience.ts';

/** One signed-in user who takes all there is at once, and another who wants one of it. */

type Headers = Record<string, string>;

const LIMITS = {
  MAX_INVOCATIONS: '6',
  MAX_INVOCATIONS_PER_USER: '3',
  // Half of them streams, so 5.
  MAX_REQUESTS_PER_USER: '9',
  MAX_CONNECTIONS_PER_ADDRESS: '40',
  MAX_HEAVY_READS_PER_USER: '2',
  REQUEST_TIMEOUT_MS: '1500',
  KEEP_ALIVE_TIMEOUT_MS: '1500',
};

let provider: Awaited<ReturnType<typeof startHeldProvider>>;
let tokens: TokenIssuer;
let app: TestApp;
let mallory: Headers;
let alice: Headers;

beforeAll(async () => {
  provider = await startHeldProvider();
  tokens = await startTokenIssuer();
  const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'held', MODEL_BASE_URL: provider.baseUrl };
  app = await startApp({ ...tokens.environment, ...model, DEV_UI: 'false', ...LIMITS });
  mallory = await tokens.headersOf('mallory');
  alice = await tokens.headersOf('alice');
});
afterAll(async () => {
  provider.release();
  await app.close();
  await tokens.close();
  await provider.close();
});

const sessionsOf = (user: string) => `/apps/harness_agent/users/${user}/sessions`;
const refused = (limit: string, detail: string) => ({ status: 429, body: { detail, limit }, limit, waits: true });
const shown = ({ status, body, headers }: Answer) => ({
  status,
  body,
  limit: headers.get('x-limit'),
  waits: Number(headers.get('retry-after')) >= 1,
});

async function session(user: string, headers: Headers): Promise<string> {
  const { body } = await app.post(sessionsOf(user), {}, headers);
  return (body as { id: string }).id;
}

/** Follows the events of a session; settles with the status once the headers are there. */
async function follow(user: string, sessionId: string, headers: Headers) {
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  const response = await fetch(`${app.url}${sessionsOf(user)}/${sessionId}/events/stream`, {
    headers,
    signal: stop.signal,
  });
  return { response, stop: () => stop.abort() };
}

describe('C: nobody takes the places of others', () => {
  test('a user has so many invocations at once, and one more is refused; another user’s runs', async () => {
    const run = async (user: string, headers: Headers) => {
      const newMessage = { role: 'user', parts: [{ text: 'Hello' }] };
      const body = { appName: 'harness_agent', userId: user, sessionId: await session(user, headers), newMessage };
      return app.post('/run', body, headers);
    };
    const all = Array.from({ length: 9 }, () => run('mallory', mallory));
    const over = Array.from({ length: 6 }, () => Promise.race(all));
    expect(shown(await (over[0] as Promise<Answer>))).toEqual(
      refused(
        'MAX_INVOCATIONS_PER_USER',
        'You may have 3 invocations running or waiting at once: MAX_INVOCATIONS_PER_USER. ' +
          'Try again when one has ended.',
      ),
    );
    const hers = run('alice', alice);
    // The model holds all answers back until now.
    await expect.poll(async () => (await Promise.race([hers, sleep(500, 'waits')])) as unknown).toBe('waits');
    provider.release();
    expect((await hers).status).toBe(200);
    expect((await Promise.all(all)).map(({ status }) => String(status)).toSorted()).toEqual([
      ...Array.from({ length: 3 }, () => '200'),
      ...Array.from({ length: 6 }, () => '429'),
    ]);
    expect((await run('mallory', mallory)).status).toBe(200);
  });

  test('a user has so many streams open, live sessions among them; another user’s opens', async () => {
    const sessionId = await session('mallory', mallory);
    const open = await Promise.all([1, 2, 3, 4].map(() => follow('mallory', sessionId, mallory)));
    const query = new URLSearchParams({ user_id: 'mallory', session_id: sessionId });
    const socket = new WebSocket(`${app.url.replace('http', 'ws')}/run_live?${query.toString()}`, { headers: mallory });
    onTestFinished(() => socket.terminate());
    await new Promise((resolve) => socket.once('open', resolve));
    const path = `${sessionsOf('mallory')}/${sessionId}/events/stream`;
    const full = refused(
      'MAX_REQUESTS_PER_USER',
      'You may have 5 streams open at once: MAX_REQUESTS_PER_USER. Try again when one has ended.',
    );
    expect(shown(await app.get(path, mallory))).toEqual(full);
    const hers = await follow('alice', await session('alice', alice), alice);
    expect(hers.response.status).toBe(200);
    open[0]?.stop();
    await expect.poll(async () => (await follow('mallory', sessionId, mallory)).response.status).toBe(200);
    socket.terminate();
    await expect.poll(async () => (await follow('mallory', sessionId, mallory)).response.status).toBe(200);
  });

  test('a user has so many requests under way, also those that never arrive whole', async () => {
    const answers = Array.from({ length: 12 }, () => unfinishedPost(sessionsOf('mallory'), mallory));
    const refusals = await Promise.all([0, 1, 2].map(() => Promise.race(answers)));
    for (const text of refusals) {
      expect(text).toContain('HTTP/1.1 429');
      expect(text).toContain('x-limit: MAX_REQUESTS_PER_USER');
    }
    expect((await app.get(sessionsOf('alice'), alice)).status).toBe(200);
    await Promise.all(answers);
    await expect.poll(async () => (await app.get(sessionsOf('mallory'), mallory)).status).toBe(200);
  });

  test('a request with an Upgrade header that nothing follows gives its place back with its answer', async () => {
    const { hostname, port } = new URL(app.url);
    const socket = connect(Number(port), hostname);
    onTestFinished(() => void socket.destroy());
    let answers = '';
    socket.on('data', (chunk) => (answers += chunk.toString()));
    const statuses = () => [...answers.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
    const request = `GET ${sessionsOf('alice')} HTTP/1.1\r\nhost: x\r\nauthorization: ${alice['authorization']}\r\n`;
    for (let count = 1; count <= 12; count += 1) {
      socket.write(`${request}upgrade: h2c\r\n\r\n`);
      await vi.waitUntil(() => statuses().length === count, { timeout: MINUTE });
    }
    expect(statuses()).toEqual(Array.from({ length: 12 }, () => '200'));
  });

  test('a user does so many large reads at once; another user’s begins', async () => {
    const holder = new Client({ connectionString: app.databaseUrl });
    await holder.connect();
    await holder.query('begin; lock table sessions in access exclusive mode');
    const reads = [0, 1, 2].map(() => app.get(sessionsOf('mallory'), mallory));
    const hers = app.get(sessionsOf('alice'), alice);
    expect(shown(await Promise.race([...reads, hers]))).toEqual(
      refused(
        'MAX_HEAVY_READS_PER_USER',
        'You may have 2 large reads under way at once: MAX_HEAVY_READS_PER_USER. Try again when one has ended.',
      ),
    );
    await holder.query('commit');
    await holder.end();
    const statuses = (await Promise.all(reads)).map(({ status }) => String(status));
    expect([(await hers).status, ...statuses.toSorted()]).toEqual([200, '200', '200', '429']);
  });

  test('an address has so many connections', async () => {
    const { hostname, port } = new URL(app.url);
    const sockets = Array.from({ length: 60 }, () => connect(Number(port), hostname));
    onTestFinished(() => void sockets.map((socket) => socket.destroy()));
    for (const socket of sockets) socket.on('error', () => undefined).resume();
    await expect.poll(() => sockets.filter(({ closed }) => closed).length).toBeGreaterThanOrEqual(20);
  });

  test('what is dripped, and a connection that is idle, is ended', async () => {
    const { hostname, port } = new URL(app.url);
    const sockets = [connect(Number(port), hostname), connect(Number(port), hostname)] as const;
    onTestFinished(() => void sockets.map((socket) => socket.destroy()));
    const closed = sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve)));
    for (const socket of sockets) socket.on('error', () => undefined).resume();
    const head = `POST ${sessionsOf('mallory')} HTTP/1.1\r\nhost: x\r\nauthorization: ${mallory['authorization']}\r\n`;
    sockets[0].write(`${head}content-type: application/json\r\ncontent-length: 1000\r\n\r\n{`);
    const dripping = setInterval(() => sockets[0].write(' '), 100);
    onTestFinished(() => clearInterval(dripping));
    sockets[1].write(`GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n`);
    const ended = await Promise.race([Promise.all(closed).then(() => 'both'), sleep(60_000, 'open')]);
    expect(ended).toBe('both');
  });

  test.each([
    [
      'a dripped body',
      `POST ${sessionsOf('mallory')} HTTP/1.1`,
      'content-type: application/json\r\ncontent-length: 1000',
    ],
    ['a connection without a request', '', ''],
    ['a WebSocket that is refused', 'GET /run_live HTTP/1.1', 'connection: upgrade\r\nupgrade: websocket'],
    ['another protocol', 'GET /health HTTP/1.1', 'connection: upgrade\r\nupgrade: h2c'],
  ])('%s is ended also where its client does not end its side', async (_what, line, headers) => {
    const { hostname, port } = new URL(app.url);
    const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    let isEnded = false;
    socket.on('end', () => (isEnded = true)).resume();
    const isGone = new Promise((resolve) => socket.once('error', resolve));
    const head = `${line}\r\nhost: x\r\nauthorization: ${mallory['authorization']}\r\n${headers}\r\n\r\n`;
    if (line !== '') socket.write(head);
    await vi.waitUntil(() => isEnded, { timeout: MINUTE });
    // A server that has let the connection go refuses what still comes.
    const dripping = setInterval(() => socket.write(' '), 100);
    onTestFinished(() => clearInterval(dripping));
    expect(await Promise.race([isGone, sleep(60_000, 'open')])).toMatchObject({ syscall: expect.any(String) });
  });

  test('no connection of a stranger keeps the service from stopping', async () => {
    const stopping = await startApp({ ...tokens.environment, DEV_UI: 'false' });
    const { hostname, port } = new URL(stopping.url);
    const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    socket.write('GET /run_live HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n');
    await new Promise((resolve) => socket.once('data', resolve));
    expect(await Promise.race([stopping.close().then(() => 'stopped'), sleep(60_000, 'runs')])).toBe('stopped');
  });

  test('a stream and a live session end when their token does, and say so', async () => {
    const sessionId = await session('alice', alice);
    // Tokens are good for 30 seconds more than they say.
    const short = await tokens.headersOf('alice', { expires: '-27 seconds' });
    const query = new URLSearchParams({ user_id: 'alice', session_id: sessionId });
    const socket = new WebSocket(`${app.url.replace('http', 'ws')}/run_live?${query.toString()}`, { headers: short });
    const frames: unknown[] = [];
    socket.on('message', (data: Buffer) => frames.push(JSON.parse(data.toString())));
    const closed = new Promise((resolve) => socket.once('close', (code, reason) => resolve([code, reason.toString()])));
    const { response } = await follow('alice', sessionId, short);
    const detail = 'The credential of this stream is not valid any more. Connect again with a new one.';
    const ended = await Promise.race([response.text(), sleep(60_000, 'open')]);
    expect(ended).toBe(`event: expired\ndata: ${JSON.stringify({ detail })}\n\n`);
    expect(await closed).toEqual([1008, detail]);
    expect(frames).toEqual([{ error: detail }]);
  });
});

/** A request whose body stays away: what is answered until the connection ends. */
function unfinishedPost(path: string, headers: Headers): Promise<string> {
  const { hostname, port } = new URL(app.url);
  const socket = connect(Number(port), hostname);
  onTestFinished(() => void socket.destroy());
  const head = `POST ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: ${headers['authorization']}\r\n`;
  return new Promise((resolve, reject) => {
    let text = '';
    socket.on('error', reject);
    socket.on('close', () => resolve(text));
    socket.on('data', (chunk) => {
      text += chunk.toString();
      if (text.includes(' 429 ')) resolve(text);
    });
    socket.write(`${head}content-type: application/json\r\ncontent-length: 10\r\n\r\n{`);
  });
}
