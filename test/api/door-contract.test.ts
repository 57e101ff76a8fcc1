import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Model, ModelRequest } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { hostAgent } from '../support/agents.ts';
import { type Answer, client, startApp, startOn, type TestApp } from '../support/app.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';
import { SpokenModel } from '../support/spoken-model.ts';

/**
 * What holds for each door, whatever its protocol: written once, and run for each. A door adds how a prompt is sent and
 * how an answer says that it is complete.
 */

const APP = 'harness_agent';

/** A prompt in a session; the same key again is the same call. */
interface Call {
  user: string;
  session: string;
  prompt: string;
  key: string;
}

interface Door {
  name: string;
  /** Path, body and headers of the request that sends a prompt and reads the answer to its end. */
  toRequest: (call: Call) => { path: string; body: object; headers?: Record<string, string> };
  /** What only an answer contains that is complete. */
  complete: string;
  /** True if text comes before the answer is complete. */
  streams: boolean;
}

const toA2a = (method: string) => ({
  toRequest: ({ user, session, prompt, key }: Call) => ({
    path: `/a2a/${APP}?user_id=${user}`,
    headers: { 'a2a-version': '1.0' },
    body: {
      jsonrpc: '2.0',
      id: 1,
      method,
      params: { message: { messageId: key, contextId: session, role: 'ROLE_USER', parts: [{ text: prompt }] } },
    },
  }),
  complete: 'TASK_STATE_COMPLETED',
});

const DOORS: Door[] = [
  {
    name: 'MCP',
    toRequest: ({ user, session, prompt, key }) => ({
      path: `/mcp?user_id=${user}`,
      headers: { accept: 'application/json, text/event-stream', 'idempotency-key': key },
      body: {
        jsonrpc: '2.0',
        id: 1,
        method: 'tools/call',
        params: { name: APP, arguments: { prompt, session } },
      },
    }),
    complete: '"status":"succeeded"',
    streams: false,
  },
  { name: 'A2A', ...toA2a('SendMessage'), streams: false },
  { name: 'A2A as a stream', ...toA2a('SendStreamingMessage'), streams: true },
  {
    name: 'AG-UI',
    toRequest: ({ user, session, prompt, key }) => ({
      path: `/ag-ui/${APP}?user_id=${user}`,
      body: {
        threadId: session,
        runId: key,
        messages: [{ id: `m-${key}`, role: 'user', content: prompt }],
        tools: [],
        context: [],
        state: {},
      },
    }),
    complete: '"outcome":{"type":"success"}',
    streams: true,
  },
  {
    name: 'AI SDK',
    toRequest: ({ user, session, prompt, key }) => ({
      path: `/ai-sdk/${APP}/chat?user_id=${user}`,
      headers: { 'idempotency-key': key },
      body: { id: session, messages: [{ id: `m-${key}`, role: 'user', parts: [{ type: 'text', text: prompt }] }] },
    }),
    complete: '"finishReason":"stop"',
    streams: true,
  },
  {
    name: 'OpenAI chat',
    toRequest: ({ user, session, prompt, key }) => ({
      path: `/v1/chat/completions?user_id=${user}`,
      headers: { 'idempotency-key': key, 'x-session-id': session },
      body: { model: APP, messages: [{ role: 'user', content: prompt }] },
    }),
    complete: '"finish_reason":"stop"',
    streams: false,
  },
  {
    name: 'OpenAI chat as a stream',
    toRequest: ({ user, session, prompt, key }) => ({
      path: `/v1/chat/completions?user_id=${user}`,
      headers: { 'idempotency-key': key, 'x-session-id': session },
      body: { model: APP, stream: true, messages: [{ role: 'user', content: prompt }] },
    }),
    complete: '"finish_reason":"stop"',
    streams: true,
  },
];

/** More than a run keeps in memory for its follower, and than the buffers of a connection. */
const LARGE_STEPS = 60;
const LARGE_TEXT = 'x'.repeat(100_000);
const scripted = scriptedModel([
  ({ contents }: ModelRequest) => {
    const prompt = contents.findLast(({ role, parts }) => role === 'user' && parts?.some(({ text }) => text));
    const word = prompt?.parts?.at(-1)?.text ?? '';
    const steps = contents.filter(({ parts }) => parts?.some(({ functionResponse }) => functionResponse)).length;
    if (word.startsWith('large') && steps < LARGE_STEPS)
      return [{ text: `${steps}-${LARGE_TEXT}` }, callPart('calculator', { expression: '1' })];
    if (word.startsWith('pay')) return [callPart('pay')];
    return [{ text: `answer-to-${word}` }];
  },
]);
const spoken = new SpokenModel();
const model: Model = {
  provider: 'scripted',
  generate: (call) =>
    JSON.stringify(call.contents.at(-1)).includes('speak-') ? spoken.generate() : scripted.generate(call),
};
const pay: Tool = {
  name: 'pay',
  description: 'Pays.',
  parameters: { type: 'object' },
  needsConfirmation: true,
  run: () => Promise.resolve({ paid: true }),
};
const agents = hostAgent(model, [pay], { tools: ['calculator', 'pay'] });

let app: TestApp;
let other: Pick<TestApp, 'post'>;
let replica: Awaited<ReturnType<typeof startOn>>;
beforeAll(async () => {
  const settings = { DOORS: 'mcp,a2a,openai,ag-ui,ai-sdk' };
  app = await startApp(settings, { agents });
  replica = await startOn(app.databaseUrl, settings, { agents });
  other = client(replica.url);
});
afterAll(async () => {
  await replica.close();
  await app.close();
});
beforeEach(() => void (spoken.calls.length = 0));

let count = 0;
const sessionsOf = (user: string) => `/apps/${APP}/users/${user}/sessions`;
/** A call in a new session. */
async function newCall(door: Door, word: string, { isThere = door.name === 'MCP' } = {}) {
  const id = `${door.name.toLowerCase().replaceAll(/\W/g, '-')}-${++count}`;
  const call = { user: 'ann', session: `s-${id}`, prompt: `${word}-${id}`, key: `k-${id}` };
  if (isThere) await app.post(sessionsOf(call.user), { sessionId: call.session });
  return call;
}
const send = ({ toRequest }: Door, call: Call, at: Pick<TestApp, 'post'> = app): Promise<Answer> => {
  const { path, body, headers } = toRequest(call);
  return at.post(path, body, headers);
};
const invocationsOf = async ({ user, session }: Call) =>
  (await app.get(`${sessionsOf(user)}/${session}/invocations`)).body as { id: string; status: string }[];
const spokenCall = async () => {
  await expect.poll(() => spoken.calls.length).toBe(1);
  return spoken.calls[0] as SpokenModel['calls'][number];
};

/** Opens a call and reads as it comes. */
function open({ toRequest }: Door, call: Call) {
  const { path, body, headers = {} } = toRequest(call);
  const leave = new AbortController();
  let text = '';
  const ended = (async () => {
    const response = await fetch(`${app.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
      signal: leave.signal,
    });
    for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) text += chunk;
  })().catch((error: unknown) => {
    if (!leave.signal.aborted) throw error;
  });
  return { text: () => text, ended, leave: () => leave.abort() };
}

describe.each(DOORS)('$name', (door) => {
  const { complete, streams } = door;

  test('answers a prompt in its session', async () => {
    const call = await newCall(door, 'hello');
    const { status, text } = await send(door, call);
    expect([status, text]).toEqual([200, expect.stringContaining(complete)]);
    expect(text).toContain(`answer-to-${call.prompt}`);
    expect(await invocationsOf(call)).toMatchObject([{ status: 'succeeded' }]);
  });

  test('text comes as the model speaks, and is complete only when it is stored', async () => {
    const call = await newCall(door, 'speak');
    const reading = open(door, call);
    const speech = await spokenCall();
    await speech.say('First. ');
    if (streams) await expect.poll(reading.text).toContain('First.');
    expect(reading.text()).not.toContain(complete);
    await speech.say('Second.');
    speech.end();
    await reading.ended;
    expect(reading.text()).toContain('Second.');
    expect(reading.text()).toContain(complete);
  });

  test('the same key on another replica has the same answer, and runs nothing', async () => {
    const call = await newCall(door, 'again');
    await send(door, call);
    const { status, text } = await send(door, call, other);
    expect([status, text]).toEqual([200, expect.stringContaining(complete)]);
    expect(text).toContain(`answer-to-${call.prompt}`);
    expect(await invocationsOf(call)).toHaveLength(1);
  });

  test('a client that left has the answer on another replica', async () => {
    const call = await newCall(door, 'speak');
    const first = open(door, call);
    const speech = await spokenCall();
    first.leave();
    await first.ended;
    const second = send(door, call, other);
    await speech.say('Whale.');
    speech.end();
    expect((await second).text).toContain('Whale.');
    expect((await second).text).toContain(complete);
    expect(await invocationsOf(call)).toHaveLength(1);
  });

  test('a call that is cancelled does not end as complete', async () => {
    const call = await newCall(door, 'speak');
    const reading = open(door, call);
    await spokenCall();
    const [invocation] = await invocationsOf(call);
    await app.post(`${sessionsOf(call.user)}/${call.session}/invocations/${invocation?.id}/cancel`);
    await reading.ended;
    expect(reading.text()).not.toContain(complete);
    expect(await invocationsOf(call)).toMatchObject([{ status: 'cancelled' }]);
  });

  test('a call that waits for a person does not end as complete', async () => {
    const call = await newCall(door, 'pay');
    expect((await send(door, call)).text).not.toContain(complete);
    expect(await invocationsOf(call)).toMatchObject([{ status: 'paused' }]);
  });

  test('a session with a large history is gone on with', async () => {
    const call = await newCall(door, 'long', { isThere: false });
    const events = Array.from({ length: 400 }, (_, place) => ({
      author: 'user',
      content: { role: 'user', parts: [{ text: `${place} ${'y'.repeat(2_000)}` }] },
    }));
    expect((await app.post(sessionsOf(call.user), { sessionId: call.session, events })).status).toBe(200);
    const { text } = await send(door, call);
    expect(text.includes(`answer-to-${call.prompt}`) && text.includes(complete)).toBe(true);
  });

  test('a call of another user does not reach the session', async () => {
    const call = await newCall(door, 'mine');
    await send(door, call);
    await send(door, { ...call, user: 'bob', key: `${call.key}-bob`, prompt: 'theirs' });
    const { events } = (await app.get(`${sessionsOf('ann')}/${call.session}`)).body as { events: object[] };
    expect(events).toHaveLength(2);
  });

  test('the key of a call whose session was deleted does not bring the session back', async () => {
    const call = await newCall(door, 'gone');
    await send(door, call);
    await app.send('DELETE', `${sessionsOf(call.user)}/${call.session}`);
    const { text } = await send(door, call, other);
    expect(text).not.toContain(complete);
    expect((await app.get(`${sessionsOf(call.user)}/${call.session}`)).status).toBe(404);
  });

  test('a reader that does not read for long has all of an answer that is larger than what is kept for it', async () => {
    const call = await newCall(door, 'large');
    const { path, body, headers } = door.toRequest(call);
    const text = await new Promise<string>((resolve, reject) => {
      const asking = request(
        `${app.url}${path}`,
        { method: 'POST', headers: { 'content-type': 'application/json', ...headers } },
        (response) => {
          const chunks: Buffer[] = [];
          const read = async () => {
            while ((await invocationsOf(call))[0]?.status !== 'succeeded') await sleep(50);
            response.on('data', (chunk: Buffer) => chunks.push(chunk));
            response.on('end', () => resolve(Buffer.concat(chunks).toString()));
          };
          response.on('error', reject);
          read().catch(reject);
        },
      );
      asking.on('error', reject);
      asking.end(JSON.stringify(body));
    });
    // No diff of megabytes where it is not there.
    expect(text.includes(`answer-to-${call.prompt}`) && text.includes(complete)).toBe(true);
    if (streams) expect(text.length).toBeGreaterThan(LARGE_STEPS * LARGE_TEXT.length);
  });
});
