import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Model, ModelRequest } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { hostAgent } from '../support/agents.ts';
import { type Answer, client, startApp, startOn, type TestApp } from '../support/app.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';
import { SpokenModel } from '../support/spoken-model.ts';

/**
 * What holds for each door, whatever its protocol: written once, and run for each. A door adds how a prompt is sent, how
 * an answer says that it is complete, and how a person's yes is sent.
 */

const APP = 'harness_agent';

/** A prompt in a session; the same key again is the same call. */
interface Call {
  user: string;
  session: string;
  prompt: string;
  key: string;
}

interface Sent {
  path: string;
  body: object;
  headers?: Record<string, string>;
}

interface Door {
  name: string;
  /** The request that sends a prompt and reads the answer to its end. */
  toRequest: (call: Call) => Sent;
  /** What only an answer contains that is complete. */
  complete: string;
  /** What only an answer contains that asks a person. */
  asking: string;
  /** True if an answer that asks a person is complete too. */
  askingCompletes?: boolean;
  /** True if text comes before the answer is complete. */
  streams: boolean;
  /** True if the session must be there before the call. */
  needsSession?: boolean;
  /** True if a client that leaves cancels the call. */
  leavingCancels?: boolean;
  /** The request that allows the call of `pay` that an answer asks about; absent: another door has to be asked. */
  toYes?: (call: Call, asking: string) => Sent;
}

/** The text behind a marker in an answer, up to the next quotation mark. */
function textBehind(marker: string, text: string): string {
  const [, behind] = text.split(marker);
  if (behind === undefined) throw new Error(`${marker} is not in ${text}`);
  return behind.split('"')[0] ?? '';
}

const toA2a = (method: string) => {
  const toMessage = ({ user, session, key }: Call, members: object) => ({
    path: `/a2a/${APP}?user_id=${user}`,
    headers: { 'a2a-version': '1.0' },
    body: {
      jsonrpc: '2.0',
      id: 1,
      method,
      params: { message: { messageId: key, contextId: session, role: 'ROLE_USER', ...members } },
    },
  });
  return {
    toRequest: (call: Call) => toMessage(call, { parts: [{ text: call.prompt }] }),
    toYes: (call: Call, asking: string) => {
      const data = { callId: textBehind('"callId":"', asking), confirmed: true };
      const taskId = textBehind(/"taskId":"/.test(asking) ? '"taskId":"' : '"task":{"id":"', asking);
      return toMessage({ ...call, key: `${call.key}-yes` }, { taskId, parts: [{ data }] });
    },
    complete: 'TASK_STATE_COMPLETED',
    asking: 'TASK_STATE_INPUT_REQUIRED',
  };
};

const MCP_REVISION = '2026-07-28';
const toMcpRequest = ({ user, session, prompt, key }: Call, members: object, headers: Sent['headers']) => ({
  path: `/mcp?user_id=${user}`,
  headers: { accept: 'application/json, text/event-stream', 'idempotency-key': key, ...headers },
  body: {
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name: APP, arguments: { prompt, session }, ...members },
  },
});
/** A client of the revision that can show a form to a person. */
const toFormRequest = (call: Call, members: object = {}) =>
  toMcpRequest(
    call,
    {
      _meta: {
        'io.modelcontextprotocol/protocolVersion': MCP_REVISION,
        'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
      },
      ...members,
    },
    { 'mcp-protocol-version': MCP_REVISION, 'mcp-method': 'tools/call', 'mcp-name': APP },
  );

const toAgUi = ({ user, session, key }: Call, messages: object[], members: object = {}) => ({
  path: `/ag-ui/${APP}?user_id=${user}`,
  body: { threadId: session, runId: key, messages, tools: [], context: [], state: {}, ...members },
});

const toAiSdk = ({ user, session, key }: Call, message: object) => ({
  path: `/ai-sdk/${APP}/chat?user_id=${user}`,
  headers: { 'idempotency-key': key },
  body: { id: session, messages: [message] },
});

const toChat = (stream: boolean) => ({
  toRequest: ({ user, session, prompt, key }: Call) => ({
    path: `/v1/chat/completions?user_id=${user}`,
    headers: { 'idempotency-key': key, 'x-session-id': session },
    body: { model: APP, stream, messages: [{ role: 'user', content: prompt }] },
  }),
  complete: '"finish_reason":"stop"',
  asking: 'approval_required',
  streams: stream,
});

const toResponses = (stream: boolean) => {
  const toRequest = ({ user, session, key }: Call, input: unknown) => ({
    path: `/v1/responses?user_id=${user}`,
    headers: { 'idempotency-key': key },
    body: {
      model: APP,
      stream,
      conversation: `conv_${Buffer.from([APP, user, session].join('\n')).toString('base64url')}`,
      input,
    },
  });
  return {
    toRequest: (call: Call) => toRequest(call, call.prompt),
    toYes: (call: Call, asking: string) => {
      const approval_request_id = /"id":"([^"]+)","type":"mcp_approval_request"/.exec(asking)?.[1] ?? asking;
      const approval = { type: 'mcp_approval_response', approval_request_id, approve: true };
      return toRequest({ ...call, key: `${call.key}-yes` }, [approval]);
    },
    complete: stream ? 'event: response.completed' : '"status":"completed","error"',
    asking: '"type":"mcp_approval_request"',
    askingCompletes: true,
    streams: stream,
    needsSession: true,
  };
};

const DOORS: Door[] = [
  {
    name: 'MCP',
    toRequest: (call) => toMcpRequest(call, {}, {}),
    complete: '"status":"succeeded"',
    asking: '"status":"paused"',
    streams: false,
    needsSession: true,
  },
  {
    name: 'MCP with forms',
    toRequest: (call) => toFormRequest(call),
    toYes: (call, asking) => {
      const id = textBehind('"inputRequests":{"', asking);
      return toFormRequest(call, {
        requestState: textBehind('"requestState":"', asking),
        inputResponses: { [id]: { action: 'accept', content: { confirmed: true } } },
      });
    },
    complete: '"status":"succeeded"',
    asking: '"resultType":"input_required"',
    streams: false,
    needsSession: true,
    leavingCancels: true,
  },
  { name: 'A2A', ...toA2a('SendMessage'), streams: false },
  { name: 'A2A as a stream', ...toA2a('SendStreamingMessage'), streams: true },
  {
    name: 'AG-UI',
    toRequest: (call) => toAgUi(call, [{ id: `m-${call.key}`, role: 'user', content: call.prompt }]),
    toYes: (call, asking) => {
      const interruptId = textBehind('"interrupts":[{"id":"', asking);
      const resume = [{ interruptId, status: 'resolved', payload: { approved: true } }];
      return toAgUi({ ...call, key: `${call.key}-yes` }, [], { resume });
    },
    complete: '"outcome":{"type":"success"}',
    asking: '"outcome":{"type":"interrupt"',
    streams: true,
  },
  {
    name: 'AI SDK',
    toRequest: (call) =>
      toAiSdk(call, { id: `m-${call.key}`, role: 'user', parts: [{ type: 'text', text: call.prompt }] }),
    toYes: (call, asking) => {
      const id = textBehind('"type":"tool-approval-request","approvalId":"', asking);
      const approval = { id, approved: true };
      const part = { type: 'dynamic-tool', toolName: 'pay', state: 'approval-responded', approval };
      const messageId = textBehind('"type":"start","messageId":"', asking);
      return toAiSdk({ ...call, key: `${call.key}-yes` }, { id: messageId, role: 'assistant', parts: [part] });
    },
    complete: '"finishReason":"stop"',
    asking: '"finishReason":"tool-calls"',
    streams: true,
  },
  { name: 'OpenAI chat', ...toChat(false) },
  { name: 'OpenAI chat as a stream', ...toChat(true) },
  { name: 'OpenAI Responses', ...toResponses(false) },
  { name: 'OpenAI Responses as a stream', ...toResponses(true) },
];

/** More than a run keeps in memory for its follower, and than the buffers of a connection. */
const LARGE_STEPS = 30;
const LARGE_TEXT = 'x'.repeat(100_000);
const scripted = scriptedModel([
  ({ contents }: ModelRequest) => {
    const prompt = contents.findLast(({ role, parts }) => role === 'user' && parts?.some(({ text }) => text));
    const word = prompt?.parts?.at(-1)?.text ?? '';
    const steps = contents.filter(({ parts }) => parts?.some(({ functionResponse }) => functionResponse)).length;
    if (word.startsWith('large') && steps < LARGE_STEPS)
      return [{ text: `${steps}-${LARGE_TEXT}` }, callPart('calculator', { expression: `${steps}` })];
    if (word.startsWith('pay') && steps === 0) return [callPart('pay')];
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

const folder = mkdtempSync(join(tmpdir(), 'door-contract-'));
const file = join(folder, 'keys');
const SCOPES = ['invoke', 'read'] as const;
const keys = {
  ofAll: createKey({ id: 'all', scopes: SCOPES }),
  ofBob: createKey({ id: 'of-bob', scopes: SCOPES, users: ['bob'] }),
};
/** Replaces the file at once, so that a key without its entry is revoked. */
const writeKeys = (...more: { entry: string }[]) => {
  writeFileSync(`${file}.new`, [...Object.values(keys), ...more].map(({ entry }) => `${entry}\n`).join(''));
  renameSync(`${file}.new`, file);
};
const bearer = ({ key }: { key: string }) => ({ authorization: `Bearer ${key}` });

let app: TestApp;
let other: Pick<TestApp, 'post'>;
/** A replica that asks for a key. */
let keyed: ReturnType<typeof client>;
const replicas: Awaited<ReturnType<typeof startOn>>[] = [];
beforeAll(async () => {
  const settings = { DOORS: 'mcp,a2a,openai,ag-ui,ai-sdk' };
  writeKeys();
  app = await startApp(settings, { agents });
  const start = async (its: Record<string, string>) => {
    const replica = await startOn(app.databaseUrl, its, { agents });
    replicas.push(replica);
    return client(replica.url);
  };
  other = await start(settings);
  keyed = await start({ ...settings, RUNTIME_API_KEYS_FILE: file, DEV_UI: 'false' });
});
afterAll(async () => {
  await Promise.all(replicas.map((each) => each.close()));
  await app.close();
  rmSync(folder, { recursive: true });
});
beforeEach(() => void (spoken.calls.length = 0));

let count = 0;
const sessionsOf = (user: string) => `/apps/${APP}/users/${user}/sessions`;
/** A call in a new session. */
async function newCall(door: Door, word: string, { isThere = door.needsSession === true } = {}) {
  const id = `${door.name.toLowerCase().replaceAll(/\W/g, '-')}-${++count}`;
  const call = { user: 'ann', session: `s-${id}`, prompt: `${word}-${id}`, key: `k-${id}` };
  if (isThere) await app.post(sessionsOf(call.user), { sessionId: call.session });
  return call;
}
const post = ({ path, body, headers }: Sent, at: Pick<TestApp, 'post'> = app, more = {}): Promise<Answer> =>
  at.post(path, body, { ...headers, ...more });
const send = ({ toRequest }: Door, call: Call, at: Pick<TestApp, 'post'> = app): Promise<Answer> =>
  post(toRequest(call), at);
const invocationsOf = async ({ user, session }: Call) =>
  (await app.get(`${sessionsOf(user)}/${session}/invocations`)).body as { id: string; status: string }[];

/** The events of a session that answer a call of `pay` with its result. */
async function listPayments({ user, session }: Call) {
  const { events } = (await app.get(`${sessionsOf(user)}/${session}`)).body as { events: object[] };
  return events.filter((event) => JSON.stringify(event).includes('{"paid":true}'));
}

/** Opens a call and reads as it comes. */
function open({ toRequest }: Door, call: Call, { url }: Pick<TestApp, 'url'> = app, more = {}) {
  const { path, body, headers = {} } = toRequest(call);
  const leave = new AbortController();
  let text = '';
  const ended = (async () => {
    const response = await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers, ...more },
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
  const { complete, asking, askingCompletes = false, streams, toYes, leavingCancels = false } = door;

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
    const speech = await spoken.called(1);
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
    const first = await send(door, call);
    const { status, text, headers } = await send(door, call, other);
    expect([status, text]).toEqual([200, expect.stringContaining(complete)]);
    expect(text).toContain(`answer-to-${call.prompt}`);
    expect(await invocationsOf(call)).toHaveLength(1);
    // MCP's stream may begin before the invocation, so that its head names none.
    expect(headers.get('x-invocation-id')).toBe(first.headers.get('x-invocation-id'));
  });

  test.runIf(leavingCancels)('a client that leaves cancels the call', async () => {
    const call = await newCall(door, 'speak');
    const reading = open(door, call);
    await spoken.called(1);
    reading.leave();
    await expect.poll(() => invocationsOf(call)).toMatchObject([{ status: 'cancelled' }]);
  });

  test.skipIf(leavingCancels)('a client that left has the answer on another replica', async () => {
    const call = await newCall(door, 'speak');
    const first = open(door, call);
    const speech = await spoken.called(1);
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
    await spoken.called(1);
    const [invocation] = await invocationsOf(call);
    await app.post(`${sessionsOf(call.user)}/${call.session}/invocations/${invocation?.id}/cancel`);
    await reading.ended;
    expect(reading.text()).not.toContain(complete);
    expect(await invocationsOf(call)).toMatchObject([{ status: 'cancelled' }]);
  });

  test('a call that waits for a person says so, and does not end as complete', async () => {
    const call = await newCall(door, 'pay');
    const { text } = await send(door, call);
    expect(text).toContain(asking);
    expect(text.includes(complete)).toBe(askingCompletes);
    expect(await invocationsOf(call)).toMatchObject([{ status: 'paused' }]);
  });

  test.runIf(toYes)('the answer of a person goes on with the call on another replica, and acts once', async () => {
    const call = await newCall(door, 'pay');
    const yes = toYes?.(call, (await send(door, call)).text) as Sent;
    for (const at of [other, app]) {
      const { status, text } = await post(yes, at);
      expect([status, text]).toEqual([200, expect.stringContaining(complete)]);
      expect(text).toContain(`answer-to-${call.prompt}`);
    }
    expect(await invocationsOf(call)).toMatchObject([{ status: 'succeeded' }]);
    expect(await listPayments(call)).toHaveLength(1);
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

  test('a credential that is bound to another user starts nothing, and does for its own', async () => {
    const call = await newCall(door, 'bound', { isThere: true });
    // Repeated, because a process that could not read its file of keys for seconds refuses all of them.
    const sendForeign = () => post(door.toRequest(call), keyed, bearer(keys.ofBob));
    await expect.poll(async () => (await sendForeign()).status).toBeOneOf([403, 404]);
    expect(await invocationsOf(call)).toEqual([]);
    const own = await newCall(door, 'own');
    if (door.needsSession) await app.post(sessionsOf('bob'), { sessionId: own.session });
    const sendOwn = () => post(door.toRequest({ ...own, user: 'bob' }), keyed, bearer(keys.ofBob));
    await expect.poll(async () => (await sendOwn()).text).toContain(complete);
  });

  test('a call whose credential is revoked ends with that, and goes on for who comes with another', async () => {
    const call = await newCall(door, 'speak');
    const leaving = createKey({ id: `k${count}`, scopes: SCOPES });
    writeKeys(leaving);
    await expect.poll(async () => (await keyed.get('/v1/models', bearer(leaving))).status).toBe(200);
    const reading = open(door, call, keyed, bearer(leaving));
    const speech = await spoken.called(1);
    writeKeys();
    await reading.ended;
    expect(reading.text()).toMatch(/not valid any more|authentication required/);
    expect(reading.text()).not.toContain(complete);
    await speech.say('Whale.');
    speech.end();
    const again = async () => (await post(door.toRequest(call), keyed, bearer(keys.ofAll))).text;
    await expect.poll(again).toSatisfy((text: string) => text.includes('Whale.') && text.includes(complete));
    expect(await invocationsOf(call)).toHaveLength(1);
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
      const sending = request(
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
      sending.on('error', reject);
      sending.end(JSON.stringify(body));
    });
    // No diff of megabytes where it is not there.
    expect(text.includes(`answer-to-${call.prompt}`) && text.includes(complete)).toBe(true);
    if (streams) expect(text.length).toBeGreaterThan(LARGE_STEPS * LARGE_TEXT.length);
  });
});
