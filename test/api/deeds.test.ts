import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { toHandle } from '../../src/features/doors/handle.ts';
import { toConversationId, toResponseId } from '../../src/features/doors/openai/ids.ts';
import { hostScript } from '../support/agents.ts';
import { startApp, startOn, type TestApp, client } from '../support/app.ts';
import { statementsOf } from '../support/store.ts';
import { Client } from 'pg';

/** What a call of a door reads and counts as. */

const KEY = 'a-key-of-this-one-test';
const HEADERS = { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', 'a2a-version': '1.0' };
const MEDIA = Buffer.alloc(300_000, 'media ').toString('base64');
let app: TestApp;
let invocationIds: string[];
const key = { appName: 'harness_agent', userId: 'ann', sessionId: 's' };
const A2A = '/a2a/harness_agent';
beforeAll(async () => {
  const settings = { DOORS: 'a2a,ai-sdk,ag-ui,mcp,openai,durable-streams', RUNTIME_API_KEYS: KEY, DEV_UI: 'false' };
  app = await startApp(settings, { agents: hostScript([[{ text: 'Seen.' }]]) });
  invocationIds = [];
  for (let turn = 0; turn < 5; turn += 1) {
    const parts = [{ inlineData: { mimeType: 'image/png', data: MEDIA } }, { text: `prompt ${turn}` }];
    const body = { ...key, newMessage: { role: 'user', parts } };
    if (turn === 0) await app.post('/apps/harness_agent/users/ann/sessions', { sessionId: 's' }, HEADERS);
    const answer = await app.post('/run', body, HEADERS);
    invocationIds.push((answer.body as { invocationId: string }[]).at(-1)?.invocationId ?? '');
  }
});
afterAll(() => app.close());

const rpc = (method: string, params: object, user = 'ann', on: Pick<TestApp, 'post'> = app) =>
  on.post(`${A2A}?user_id=${user}`, { jsonrpc: '2.0', id: 1, method, params }, HEADERS);

/** The bytes of the rows that this process gets while `work` runs, and the statements about events that it sends. */
async function readBy(work: () => Promise<unknown>): Promise<{ bytes: number; aboutEvents: number }> {
  let bytes = 0;
  // oxlint-disable-next-line typescript/unbound-method -- put back as it was, and called with its own `this`
  const original = Client.prototype.query;
  Client.prototype.query = function counted(this: Client, ...args: unknown[]) {
    const result = Reflect.apply(original, this, args) as Promise<{ rows?: unknown[] }>;
    if (typeof result?.then === 'function')
      void result.then(({ rows }) => (bytes += JSON.stringify(rows ?? []).length)).catch(() => undefined);
    return result as never;
  };
  try {
    const sent = await statementsOf(work);
    return { bytes, aboutEvents: sent.filter((text) => /\b"?events"?\b/.test(text) && /payload/.test(text)).length };
  } finally {
    Client.prototype.query = original;
  }
}

describe('a list reads what it shows', () => {
  test('tasks without what their user said cost one statement, and none of those bytes', async () => {
    const { bytes, aboutEvents } = await readBy(async () => {
      const { body } = await rpc('ListTasks', { pageSize: 100, includeArtifacts: true, historyLength: 0 });
      const { tasks } = (body as { result: { tasks: { artifacts: object[] }[] } }).result;
      expect(tasks).toHaveLength(5);
      expect(tasks[0]?.artifacts).toHaveLength(1);
    });
    expect(aboutEvents).toBe(1);
    expect(bytes).toBeLessThan(100_000);
  });

  test('tasks without anything cost no statement about events', async () => {
    const { aboutEvents } = await readBy(() => rpc('ListTasks', { pageSize: 100 }));
    expect(aboutEvents).toBe(0);
  });

  test('one task reads its own events, not what came after it, and no more than is shown', async () => {
    const id = toHandle({ key, invocationId: invocationIds[0] ?? '' });
    const whole = await readBy(async () => {
      const { body } = await rpc('GetTask', { id });
      expect(JSON.stringify(body)).toContain('prompt 0');
    });
    expect(whole.bytes).toBeLessThan(2 * MEDIA.length);
    const made = await readBy(async () => {
      const { body } = await rpc('GetTask', { id, historyLength: 0 });
      expect(JSON.stringify(body)).toContain('Seen.');
    });
    expect(made.bytes).toBeLessThan(50_000);
  });

  test('a page of tasks ends by the bytes that it reads, and the next one goes on', async () => {
    const seen: string[] = [];
    let pageToken = '';
    let pages = 0;
    do {
      const { body } = await rpc('ListTasks', { pageSize: 100, historyLength: 10, pageToken });
      const result = (body as { result: { tasks: { id: string }[]; nextPageToken: string } }).result;
      seen.push(...result.tasks.map(({ id }) => id));
      pageToken = result.nextPageToken;
      pages += 1;
    } while (pageToken !== '');
    expect(new Set(seen).size).toBe(5);
    expect(seen).toHaveLength(5);
    expect(pages).toBeLessThan(5);
  });

  test('a stream that is resumed from its end is read once', async () => {
    const { bytes } = await readBy(() =>
      app.get('/ai-sdk/harness_agent/chat/s/stream?user_id=ann&startIndex=-1', HEADERS),
    );
    expect(bytes).toBeLessThan(1.5 * MEDIA.length);
  });

  test('a word that is added to a conversation reads none of it', async () => {
    // One that keeps nothing of it yet.
    const cold = await startOn(app.databaseUrl, { DOORS: 'openai', RUNTIME_API_KEYS: KEY, DEV_UI: 'false' });
    onTestFinished(() => cold.close());
    const replica = client(cold.url);
    const added = await readBy(async () => {
      const items = [{ role: 'user', content: 'One word.' }];
      expect((await replica.post(`/v1/conversations/${toConversationId(key)}/items`, { items }, HEADERS)).status).toBe(
        200,
      );
    });
    expect(added.bytes).toBeLessThan(20_000);
    const unknown = { items: [{ type: 'function_call_output', call_id: 'none', output: 'x' }] };
    expect((await replica.post(`/v1/conversations/${toConversationId(key)}/items`, unknown, HEADERS)).status).toBe(400);
    const call = { type: 'function_call', call_id: 'c1', name: 'look', arguments: '{}' };
    const path = `/v1/conversations/${toConversationId(key)}/items`;
    expect((await replica.post(path, { items: [call] }, HEADERS)).status).toBe(200);
    const answer = { type: 'function_call_output', call_id: 'c1', output: 'seen' };
    const answered = await readBy(async () => {
      expect((await replica.post(path, { items: [answer] }, HEADERS)).body).toMatchObject({
        data: [{ call_id: 'c1' }],
      });
    });
    expect(answered.bytes).toBeLessThan(20_000);
  });
});

describe('what a call does decides its class, whatever door it came through', () => {
  const taskId = () => toHandle({ key, invocationId: invocationIds[0] ?? '' });
  const mcp = (method: string, params: object, user: string, on: Pick<TestApp, 'post'>) => {
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 't', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': { extensions: { 'io.modelcontextprotocol/tasks': {} } },
    };
    return on.post(
      `/mcp?user_id=${user}`,
      { jsonrpc: '2.0', id: 1, method, params: { ...params, _meta } },
      {
        ...HEADERS,
        'mcp-protocol-version': '2026-07-28',
        'mcp-method': method,
      },
    );
  };
  const READS: Record<string, (user: string, on: ReturnType<typeof client>) => Promise<{ status: number }>> = {
    'A2A ListTasks': (user, on) => rpc('ListTasks', {}, user, on),
    'A2A tasks/list over HTTP': (user, on) => on.get(`${A2A}/tasks?user_id=${user}`, HEADERS),
    'A2A GetTask': (user, on) => rpc('GetTask', { id: taskId() }, user, on),
    'A2A SubscribeToTask': (user, on) => rpc('SubscribeToTask', { id: taskId() }, user, on),
    'MCP tasks/get': (user, on) => mcp('tasks/get', { taskId: taskId() }, user, on),
    'MCP resources/list': (user, on) => mcp('resources/list', {}, user, on),
    'AI SDK resume': (user, on) =>
      on.get(`/ai-sdk/harness_agent/chat/none/stream?user_id=${user}&startIndex=0`, HEADERS),
    'AI SDK messages': (user, on) => on.get(`/ai-sdk/harness_agent/chat/none/messages?user_id=${user}`, HEADERS),
    'AG-UI thread': (user, on) => on.get(`/ag-ui/harness_agent/none?user_id=${user}`, HEADERS),
    'Durable Streams page': (user, on) => on.get(`/durable-streams/harness_agent/sessions/s?user_id=${user}`, HEADERS),
    'own page of events': (user, on) => on.get(`/apps/harness_agent/users/${user}/sessions/s/events`, HEADERS),
  };

  test('the fourth large read of a minute is refused where three are allowed, through each door', async () => {
    const limits = {
      MAX_READS_PER_MINUTE: '30',
      RUNTIME_API_KEYS: KEY,
      DEV_UI: 'false',
      DOORS: 'a2a,ai-sdk,ag-ui,mcp,openai,durable-streams',
    };
    const limited = await startOn(app.databaseUrl, limits, { agents: hostScript([[{ text: 'Seen.' }]]) });
    try {
      const on = client(limited.url);
      const refused = await Promise.all(
        Object.entries(READS).map(async ([name, read], index) => {
          const statuses: number[] = [];
          for (let n = 0; n < 4; n += 1) {
            const answer = (await read(`reader-${index}`, on)) as { status: number; text?: string };
            statuses.push(answer.status);
          }
          return [name, statuses.map((status) => status === 429)];
        }),
      );
      expect(refused).toEqual(Object.keys(READS).map((name) => [name, [false, false, false, true]]));
    } finally {
      await limited.close();
    }
  });
});

test('the answer to a cancellation says how it stands, and nothing of what was said', async () => {
  const response = toResponseId({ key, invocationId: invocationIds[0] ?? '' });
  const { status, body, text } = await app.post(`/v1/responses/${response}/cancel`, {}, HEADERS);
  expect(status).toBe(200);
  expect(body).toMatchObject({ id: response, object: 'response', status: 'completed', output: [] });
  expect(text).not.toContain('Seen.');
});
