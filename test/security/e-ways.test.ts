import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { client, startApp, type TestApp } from '../support/app.ts';
import { startHeldProvider } from '../support/held-provider.ts';
import { isEnd, openLive, say } from '../support/live-client.ts';
import { startMcpServer } from '../support/mcp-server.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { FROZEN_MS, startWatched, type WatchedService } from '../support/watched-service.ts';

/** Every way by which bytes come in has bounds: frames, messages of MCP servers, bodies, what a request may ask for. */

const sessionsOf = (user: string) => `/apps/harness_agent/users/${user}/sessions`;
const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);
const live = (session_id: string) => ({ user_id: 'mallory', session_id, modalities: 'TEXT' });
const frameWith = (json: string) => `{"content":{"role":"user","parts":[{"partMetadata":{"x":${json}}}]}}`;
const rssMb = ({ process: { pid } }: WatchedService) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;

describe('A1: frames of live sessions pass the bounds of bodies', () => {
  let service: WatchedService;
  beforeAll(async () => {
    service = await startWatched();
    await service.post(sessionsOf('mallory'), { sessionId: 's' });
    await service.post(sessionsOf('alice'), { sessionId: 'a' });
    const warm = await openLive(service, live('s'));
    warm.send(say('hello'));
    await warm.until(isEnd);
  });
  beforeEach(() => service.report().then(() => undefined));
  afterAll(() => service.close());

  async function isUnharmed(): Promise<void> {
    expect((await service.get(`${sessionsOf('alice')}/a`)).status).toBe(200);
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
    expect(service.process.exitCode).toBeNull();
  }

  test('A1: 4 sockets × 4 frames of 7.4 MB are closed unread', async () => {
    const frame = frameWith(`{${Array.from({ length: 600_000 }, (_, n) => `"k${n}":0`).join()}}`);
    const sockets = await Promise.all(Array.from({ length: 4 }, () => openLive(service, live('s'))));
    for (const each of sockets) for (let n = 0; n < 4; n += 1) each.send(frame);
    await isUnharmed();
    expect(await Promise.all(sockets.map(async ({ closed }) => (await closed)[0]))).toEqual([1009, 1009, 1009, 1009]);
    await isUnharmed();
  });

  test.each([
    ['2,000 levels', nested(2_000), 'The frame has more than 64 levels of nesting.'],
    ['20,000 values', `[${'0,'.repeat(20_000)}0]`, 'The frame has more than 2000 values.'],
  ])('A1: a frame of %s is refused with a sentence, and ends the session', async (_, json, error) => {
    const one = await openLive(service, live('s'));
    one.send(frameWith(json));
    expect(await one.closed).toEqual([1008, error]);
    expect(one.frames).toEqual([{ error }]);
    const { body } = await service.get(`${sessionsOf('mallory')}/s/events`);
    expect(JSON.stringify(body)).not.toContain('partMetadata');
    await isUnharmed();
  });

  test('A1: 4 sockets that say 25 times what no schema takes leave the loop free', async () => {
    const odd = `{"content":{"parts":[${'{"x":0},'.repeat(950)}{}]}}`;
    const sockets = await Promise.all(Array.from({ length: 4 }, () => openLive(service, live('s'))));
    for (const each of sockets) for (let n = 0; n < 25; n += 1) each.send(odd);
    for (const each of sockets) await each.until(({ error }) => error !== undefined, 25);
    expect(new Set(sockets.flatMap(({ frames }) => frames.map(({ error }) => error))).size).toBe(1);
    await isUnharmed();
  });
});

test('A1: frames that wait are counted in bytes, for each socket and for all of a user', async () => {
  const held = createServer(() => undefined);
  await new Promise<void>((resolve) => held.listen(0, '127.0.0.1', resolve));
  const { port } = held.address() as AddressInfo;
  const service = await startWatched({
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'held',
    MODEL_BASE_URL: `http://127.0.0.1:${port}/v1`,
  });
  onTestFinished(async () => {
    await service.close();
    held.close();
    held.closeAllConnections();
  });
  await Promise.all(Array.from({ length: 16 }, (_, n) => service.post(sessionsOf('mallory'), { sessionId: `s${n}` })));
  const sockets = await Promise.all(Array.from({ length: 16 }, (_, n) => openLive(service, live(`s${n}`))));
  await service.report();
  const before = rssMb(service);
  // The first of them runs, and the others wait.
  for (const each of sockets) for (let n = 0; n < 9; n += 1) each.send(say('x'.repeat(900_000)));
  const closed = await Promise.race([
    Promise.any(sockets.map((each) => each.closed)),
    new Promise<[number, string]>((resolve) => void setTimeout(resolve, 120_000, [0, 'none was closed'])),
  ]);
  const more = rssMb(service) - before;
  console.log(`16 sockets x 9 frames of 900 KB: RSS ${before.toFixed(0)} MB and ${more.toFixed(0)} more`);
  expect(closed).toEqual([
    1008,
    expect.stringMatching(/^The frames of your live sessions that wait have more than 8388608 /),
  ]);
  expect(more).toBeLessThan(200);
  expect((await service.get('/health')).status).toBe(200);
});

describe('A16: messages of MCP servers', () => {
  let service: WatchedService;
  beforeAll(async () => {
    service = await startWatched();
    await invoke([]);
  });
  beforeEach(() => service.report().then(() => undefined));
  afterAll(() => service.close());

  const invoke = async (mcp_servers: object[]) => {
    const run_agent_request = { user_id: 'mallory', session_id: crypto.randomUUID() };
    const { body } = await service.post('/harness/invoke', {
      prompt: 'go',
      harness_name: 'h',
      harness: { mcp_servers },
      run_agent_request,
    });
    return body as { output: string; error: string | null };
  };
  /** A server that leaves the list of its tools open, and writes this to the stream that the client opens. */
  async function serve(type: string, write: (response: ServerResponse) => void, name: string) {
    const server = await startMcpServer([], {
      intercept(request, response, body) {
        if (request.method === 'GET') write(response.writeHead(200, { 'content-type': type }));
        return (
          request.method === 'GET' || (body !== '' && (JSON.parse(body) as { method: string }).method === 'tools/list')
        );
      },
    });
    onTestFinished(() => server.close());
    return { name, url: server.url, transport: 'streamable-http' };
  }
  const notification = (data: string) =>
    `data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":${data}}}\n\n`;

  test.each(['application/json', 'text/event-stream'])(
    'A16: 8 servers × 50,000 notifications of %s end, and the loop is free',
    async (type) => {
      const many = notification('0').repeat(50_000);
      const servers = await Promise.all(
        Array.from({ length: 8 }, (_, n) => serve(type, (response) => response.write(many), `m${n}`)),
      );
      const { error } = await invoke(servers);
      const { longestMs } = await service.report();
      console.log(`8 servers x 50,000 notifications as ${type}: longest turn ${longestMs.toFixed(0)} ms`);
      expect(error).toMatch(/^MCP server `m\d` did not list its tools\. It sent more than 1000 messages at once\.$/);
      expect(longestMs).toBeLessThan(FROZEN_MS / 3);
    },
  );

  test.each([
    ['430,000 values', notification(`[${'0,'.repeat(430_000)}0]`), 'a message with more than 100000 values'],
    [
      'brackets behind a comment',
      `: ${']'.repeat(4_000)}\n${notification(nested(3_000))}`,
      'a message with more than 500 levels',
    ],
    ['fields that there are not', 'x\n'.repeat(1_500_000), 'more than 4000 lines at once that are no data'],
  ])('A16: %s end the connection with a sentence', async (_, text, reason) => {
    const server = await serve('application/json', (response) => response.write(text), 'm');
    expect(await invoke([server])).toMatchObject({
      error: `MCP server \`m\` did not list its tools. It sent ${reason}.`,
    });
    expect((await service.report()).longestMs).toBeLessThan(FROZEN_MS);
  });

  test('A16: comments and other fields are no JSON', async () => {
    const server = await startMcpServer([{ name: 'work' }], {
      intercept(request, response) {
        if (request.method !== 'GET') return false;
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        return response.write(`:\n: ${'['.repeat(4_000)}\nid: ${'{'.repeat(600)}\n${notification('0')}`);
      },
    });
    onTestFinished(() => server.close());
    expect(await invoke([{ name: 'm', url: server.url }])).toMatchObject({ error: null });
  });
});

describe('A13: MAX_EVENT_BYTES bounds what a user says, by whichever operation', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await startApp({ MAX_EVENT_BYTES: '2000' });
    await app.post(sessionsOf('mallory'), { sessionId: 's' });
  });
  afterAll(() => app.close());
  const detail = 'An event is larger than MAX_EVENT_BYTES, 2000 bytes.';
  const session = { appName: 'harness_agent', userId: 'mallory', sessionId: 's' };
  const words = { role: 'user', parts: [{ text: 'x'.repeat(3_000) }] };
  const picture = { inlineData: { mimeType: 'image/png', data: 'A'.repeat(400_000) } };

  test.each([
    ['/run', { ...session, newMessage: words }],
    ['/run_sse', { ...session, newMessage: words }],
    ['/run', { ...session, newMessage: { ...words, parts: [{ text: 'hi' }] }, stateDelta: { a: 'x'.repeat(3_000) } }],
    [
      '/harness/invoke',
      { prompt: 'x'.repeat(3_000), harness_name: 'h', run_agent_request: { user_id: 'mallory', session_id: 's' } },
    ],
    [`${sessionsOf('mallory')}/s/invocations`, { newMessage: words }],
    [`${sessionsOf('mallory')}/s/events`, { content: words }],
  ])('A13: %s', async (path, body) => {
    expect(await app.post(path, body)).toMatchObject({ status: 413, body: { detail } });
    expect((await app.get(`${sessionsOf('mallory')}/s/events`)).body).toEqual([]);
  });

  test('A13: a turn of a live session', async () => {
    const one = await openLive(app, live('s'));
    one.send({ content: words });
    await one.until(({ error }) => error !== undefined);
    expect(one.frames).toEqual([{ error: detail }]);
  });

  test('A13: media that a client uploads with its message are bounded by the body, and come back', async () => {
    await app.post(sessionsOf('mallory'), { sessionId: 'media' });
    const newMessage = { role: 'user', parts: [{ text: 'What is this?' }, picture] };
    const { status } = await app.post('/run_sse', { ...session, sessionId: 'media', newMessage });
    expect(status).toBe(200);
    const { body } = await app.get(`${sessionsOf('mallory')}/media/events`);
    expect(body).toMatchObject([{ content: newMessage }, { author: 'harness_agent' }]);
  });
});

test('A21: without `override` a request lowers the limit of model calls, and never raises it', async () => {
  const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-ways-')), 'keys');
  const plain = createKey({ id: 'plain', scopes: ['invoke'] });
  const strong = createKey({ id: 'strong', scopes: ['invoke', 'override'] });
  writeFileSync(file, `${plain.entry}\n${strong.entry}\n`);
  const app = await startApp({ RUNTIME_API_KEYS_FILE: file, DEV_UI: 'false', MAX_LLM_CALLS: '2' });
  onTestFinished(() => app.close());
  const model = (key: string, max_llm_calls: unknown, harness = {}) =>
    app.post(
      '/harness/invoke',
      {
        prompt: 'What is 17 * 23? Use the calculator.',
        harness_name: 'h',
        harness,
        run_agent_request: { user_id: 'u', session_id: crypto.randomUUID(), max_llm_calls },
      },
      { authorization: `Bearer ${key}` },
    );
  const exceeded = (limit: number) => ({ body: { error: `Max number of llm calls limit of \`${limit}\` exceeded` } });
  expect(await model(plain.key, 1)).toMatchObject(exceeded(1));
  expect(await model(plain.key, 1_000_000)).toMatchObject({ body: { error: null, overwrite: false } });
  expect(await model(strong.key, 1, { max_llm_calls: 5 })).toMatchObject(exceeded(1));
  const low = await startApp({ RUNTIME_API_KEYS_FILE: file, DEV_UI: 'false', MAX_LLM_CALLS: '1' });
  onTestFinished(() => low.close());
  Object.assign(app, client(low.url));
  expect(await model(plain.key, 1_000_000)).toMatchObject(exceeded(1));
  expect(await model(plain.key, '1000000')).toMatchObject(exceeded(1));
  expect(await model(strong.key, 1_000_000)).toMatchObject({ body: { error: null } });
  expect(await model(plain.key, undefined, { max_llm_calls: 5 })).toMatchObject({ status: 403 });
});

test('a line of an import, and a prompt in a body of text, pass the parser of bodies', async () => {
  const app = await startApp();
  onTestFinished(() => app.close());
  const importLine = (row: string) => app.post('/apps/harness_agent/users/u/import', `{"table":"events","row":${row}}`);
  expect((await importLine(`{"a":${nested(2_000)}}`)).body).toEqual({
    detail: 'Line 1 has more than 600 levels of nesting.',
  });
  expect((await importLine(`{"a":[${'0,'.repeat(200_000)}0]}`)).body).toEqual({
    detail: 'Line 1 has more than 100000 values.',
  });
  const prompt = (json: string) =>
    app.post('/invoke', `{"prompt":"hi","x":${json}}`, { user_id: 'u', session_id: 's' });
  expect(await prompt(`[${'0,'.repeat(200_000)}0]`)).toMatchObject({
    status: 413,
    body: { detail: 'The body has more than 100000 values.' },
  });
  expect((await prompt(nested(2_000))).status).toBe(422);
  expect((await prompt('0')).status).toBe(200);
});

test.each(['runs at once', 'has waited'])(
  'bodies of what %s in the background count until it has ended',
  async (how) => {
    const [tokens, provider] = await Promise.all([startTokenIssuer(), startHeldProvider()]);
    const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'held', MODEL_BASE_URL: provider.baseUrl };
    const app = await startApp({ ...tokens.environment, ...model, DEV_UI: 'false', MAX_BODY_BYTES: '100000' });
    const database = new Client({ connectionString: app.databaseUrl });
    await database.connect();
    await database.query(`set agent_runtime.all_users = 'on'`);
    onTestFinished(async () => {
      provider.release();
      await database.end();
      await app.close();
      await tokens.close();
      await provider.close();
    });
    const headers = await tokens.headersOf('mallory');
    const sessions = sessionsOf('mallory');
    const start = async (sessionId: string, bytes: number) => {
      const message = { role: 'user', parts: [{ text: randomBytes(bytes / 2).toString('hex') }] };
      return (await app.post(`${sessions}/${sessionId}/invocations`, { newMessage: message }, headers)).status;
    };
    const count = async (status: string) =>
      (await database.query('select from invocations where status = $1', [status])).rowCount;
    const ids = Array.from({ length: 11 }, (_, n) => `s${n}`);
    for (const sessionId of [...ids, 'small']) await app.post(sessions, { sessionId }, headers);
    const waits = how === 'has waited';
    if (waits)
      await database.query(`
      update sessions set lease_token = gen_random_uuid();
      insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
      select app_name, user_id, id, 'held', 'running', lease_token, now() + interval '1 hour' from sessions`);
    const answers = [];
    for (const id of ids) answers.push(await start(id, 90_000));
    expect(answers).toEqual(ids.map((_, n) => (waits || n < 8 ? 200 : 429)));
    expect(await start('small', 10)).toBe(200);
    if (waits)
      await database.query(`
      delete from invocations where id = 'held';
      update sessions set lease_token = null`);
    const small = `select from invocations where session_id = 'small' and status = 'running'`;
    // Those that came before it were looked at before it.
    await expect.poll(async () => (await database.query(small)).rowCount).toBe(1);
    await expect.poll(() => count('running')).toBe(9);
    provider.release();
    await expect.poll(() => count('succeeded')).toBe(waits ? 12 : 9);
  },
);

test('bodies of one caller that are under way have a bound of bytes; another caller has an own one', async () => {
  const tokens = await startTokenIssuer();
  const app = await startApp({ ...tokens.environment, DEV_UI: 'false', MAX_BODY_BYTES: '100000' });
  onTestFinished(async () => {
    await app.close();
    await tokens.close();
  });
  const [mallory, alice] = [await tokens.headersOf('mallory'), await tokens.headersOf('alice')];
  const stop = new AbortController();
  onTestFinished(() => stop.abort());
  /** Announces a body, and never sends all of it. */
  const begin = () => {
    const body = new ReadableStream({ start: (controller) => controller.enqueue(Buffer.from('{')) });
    const headers = { ...mallory, 'content-type': 'application/json' };
    const init = { method: 'POST', headers, body, duplex: 'half', signal: stop.signal } as RequestInit;
    return fetch(`${app.url}${sessionsOf('mallory')}`, init);
  };
  const begun = Array.from({ length: 9 }, begin);
  const refused = await Promise.any(begun);
  expect(refused.status).toBe(429);
  expect(await refused.json()).toEqual({
    detail: expect.stringMatching(/^You may have 800000 bytes of bodies under way at once: MAX_BODY_BYTES/),
    limit: 'MAX_BODY_BYTES',
  });
  expect((await app.post(sessionsOf('mallory'), {}, mallory)).status).toBe(200);
  const state = { text: 'x'.repeat(80_000) };
  expect((await app.post(sessionsOf('alice'), { state }, alice)).status).toBe(200);
  for (const each of begun) each.catch(() => undefined);
});
