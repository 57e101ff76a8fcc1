import { type AgentCard, Message, Task, StreamResponse, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk';
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
} from '@a2a-js/sdk/client';
import { exportJWK, flattenedVerify, generateKeyPair } from 'jose';
import {
  ContentTypeNotSupportedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/errors';
import { expect, onTestFinished, test } from 'vitest';
import { client as clientOf, startOn } from '../support/app.ts';
import { stageDoor } from '../support/door-stage.ts';

/** The official client of A2A against two replicas of the service. */

const script = {
  draw: [
    { inlineData: { data: 'AAAA', mimeType: 'image/png', displayName: 'a.png' } },
    { fileData: { fileUri: 'https://example.com/b', displayName: 'b' } },
  ],
};
const { app, other, agents, spoken, paid } = stageDoor('a2a', { script });

const APP = '/a2a/harness_agent';
const CARD = `${APP}/.well-known/agent-card.json`;

const BINDINGS = ['JSONRPC', 'HTTP+JSON'] as const;
const connect = (url: string, binding: (typeof BINDINGS)[number] = 'JSONRPC') =>
  new ClientFactory(
    ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { preferredTransports: [binding] }),
  ).createFromUrl(url, CARD);
const say = (text: string, more: object = {}, parts: object[] = [{ text }]) => ({
  tenant: '',
  message: Message.fromJSON({ messageId: crypto.randomUUID(), role: 'ROLE_USER', parts, ...more }),
  configuration: undefined,
  metadata: undefined,
});
const toJson = (result: Message | Task) =>
  Task.toJSON(result as Task) as { id: string; contextId: string } & Record<string, unknown>;
type Asks = { id: string; status: { message: { parts: { data?: { callId: string } }[] } } };
const named = (id: string) => ({ id, tenant: '' });
async function readAll(stream: AsyncIterable<StreamResponse>) {
  const updates: Record<string, never>[] = [];
  for await (const update of stream) updates.push(StreamResponse.toJSON(update) as Record<string, never>);
  return updates;
}
const textOf = (updates: Record<string, never>[]) =>
  updates.reduce((text, update: { artifactUpdate?: { append?: boolean; artifact: { parts: { text: string }[] } } }) => {
    const { artifactUpdate } = update;
    if (!artifactUpdate) return text;
    return (artifactUpdate.append ? text : '') + (artifactUpdate.artifact.parts[0]?.text ?? '');
  }, '');

test.each(BINDINGS)('%s: a message is a task, which any replica knows', async (binding) => {
  const client = await connect(app.url, binding);
  const made = toJson(await client.sendMessage(say('hello')));
  expect(made).toMatchObject({
    status: { state: 'TASK_STATE_COMPLETED' },
    artifacts: [{ parts: [{ text: 'You said hello' }] }],
    history: [{ role: 'ROLE_USER', parts: [{ text: 'hello' }] }],
  });
  const elsewhere = await connect(other.url, binding);
  expect(toJson(await elsewhere.getTask(named(made.id)))).toEqual(made);
  const again = toJson(await elsewhere.sendMessage(say('more', { contextId: made.contextId })));
  expect(again.contextId).toBe(made.contextId);
  const listed = await client.listTasks({
    ...named(''),
    contextId: made.contextId,
    status: TaskState.TASK_STATE_COMPLETED,
    pageSize: 1,
    pageToken: '',
    statusTimestampAfter: undefined,
    includeArtifacts: true,
  });
  expect(listed.tasks.map(({ id }) => id)).toEqual([again.id]);
  expect(listed.totalSize).toBe(2);
  expect(listed.nextPageToken).not.toBe('');
});

test.each(BINDINGS)(
  '%s: the same message again is the same task, another one under its id is refused',
  async (binding) => {
    const client = await connect(app.url, binding);
    const sent = say('once');
    const made = toJson(await client.sendMessage(sent));
    expect(toJson(await (await connect(other.url, binding)).sendMessage(sent))).toEqual(made);
    await expect(client.sendMessage(say('twice', { messageId: sent.message.messageId }))).rejects.toThrow(
      /another request/,
    );
  },
);

test.each(BINDINGS)('%s: a stream has each text once, also for who subscribes on another replica', async (binding) => {
  const client = await connect(app.url, binding);
  const stream = client.sendMessageStream(say('speak'));
  const first = (await stream.next()).value as StreamResponse;
  const { id } = (StreamResponse.toJSON(first) as { task: { id: string } }).task;
  const call = await spoken.called(1);
  await call.say('Some words that are long enough to be cut, ');
  await expect
    .poll(async () => (await stream.next()).value as unknown)
    .toMatchObject({ payload: { $case: 'artifactUpdate' } });
  await stream.return();
  const elsewhere = (await connect(other.url, binding)).resubscribeTask(named(id));
  const snapshot = StreamResponse.toJSON((await elsewhere.next()).value as StreamResponse);
  expect(snapshot).toMatchObject({ task: { id, status: { state: 'TASK_STATE_WORKING' } } });
  await call.say('and some more of them.');
  call.end();
  const updates = await readAll(elsewhere);
  expect(textOf(updates)).toBe('Some words that are long enough to be cut, and some more of them.');
  expect(updates.at(-1)).toMatchObject({ statusUpdate: { status: { state: 'TASK_STATE_COMPLETED' } } });
  await expect(readAll(client.resubscribeTask(named(id)))).rejects.toThrow(/over/);
});

test.each(BINDINGS)('%s: what an agent asks is asked of the client, and its answer goes on', async (binding) => {
  const client = await connect(app.url, binding);
  const asks = toJson(await client.sendMessage(say('ask')));
  expect(asks).toMatchObject({
    status: {
      state: 'TASK_STATE_INPUT_REQUIRED',
      message: { parts: [{ text: expect.any(String) }, { data: { name: 'ask' } }] },
    },
  });
  const taskId = asks.id;
  const following = client.resubscribeTask(named(taskId));
  expect((await following.next()).value).toMatchObject({ payload: { $case: 'task' } });
  const answer = say('It rains.', { taskId });
  const done = toJson(await client.sendMessage(answer));
  expect(done).toMatchObject({ id: taskId, status: { state: 'TASK_STATE_COMPLETED' } });
  expect(JSON.stringify(done['artifacts'])).toContain('It rains.');
  expect(done['history']).toMatchObject([{ parts: [{ text: 'ask' }] }, { parts: [{ text: 'It rains.' }] }]);
  expect((await readAll(following)).at(-1)).toMatchObject({
    statusUpdate: { status: { state: 'TASK_STATE_COMPLETED' } },
  });
  expect(toJson(await client.sendMessage(answer))).toEqual(done);
  await expect(client.sendMessage(say('more', { taskId }))).rejects.toThrow(/does not wait/);
});

test.each([
  ['URL-safe and unpadded', '_-8', '/+8='],
  ['standard and unpadded', '/+8', '/+8='],
  ['standard', '/+8=', '/+8='],
])('bytes that a client sends %s are stored as standard base64', async (_, raw, stored) => {
  const message = {
    messageId: `raw ${raw}`,
    role: 'ROLE_USER',
    parts: [{ raw, mediaType: 'image/png' }, { text: 'x' }],
  };
  const headers = { 'a2a-version': '1.0' };
  const { status, body } = await app.post('/a2a/harness_agent/message:send', { message }, headers);
  const { task } = body as { task: { contextId: string } };
  expect([status, task]).toEqual([200, expect.objectContaining({ contextId: expect.any(String) as string })]);
  const session = await app.get(`/apps/harness_agent/users/user/sessions/${task.contextId}`);
  expect(session.text).toContain(JSON.stringify(stored));
});

test('files are artifacts, and the names of protocol buffers are understood', async () => {
  const message = { messageId: 'draw', role: 'ROLE_USER', parts: [{ text: 'draw' }] };
  const rpc = async (method: string, params: object) =>
    (await app.post(APP, { jsonrpc: '2.0', id: 1, method, params }, { 'a2a-version': '1.0' })).body;
  const made = (await rpc('SendMessage', { message })) as { result: { task: { id: string; history: object[] } } };
  expect(made.result.task).toMatchObject({
    artifacts: [
      { parts: [{ raw: 'AAAA', mediaType: 'image/png', filename: 'a.png' }] },
      { parts: [{ url: 'https://example.com/b', filename: 'b' }] },
    ],
  });
  expect(made.result.task.history).toHaveLength(1);
  const shown = (await rpc('GetTask', { id: made.result.task.id, history_length: 0 })) as { result: object };
  expect(shown.result).not.toHaveProperty('history');
});

test.each([
  [{ confirmed: true }, 1],
  [{ confirmed: 'true' }, 0],
])('a confirmation is a clear yes: %j', async (said, times) => {
  paid.mockClear();
  const client = await connect(app.url);
  const asks = Task.toJSON((await client.sendMessage(say('pay'))) as Task) as Asks;
  const callId = asks.status.message.parts[1]?.data?.callId;
  await client.sendMessage(say('', { taskId: asks.id }, [{ data: { callId, response: said } }]));
  expect(paid).toHaveBeenCalledTimes(times);
});

test.each(BINDINGS)('%s: a task is cancelled on whatever replica it runs, once', async (binding) => {
  const client = await connect(app.url, binding);
  const sent = {
    ...say('speak'),
    configuration: { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: true },
  };
  const { id } = (await client.sendMessage(sent)) as Task;
  const cancel = { ...named(id), metadata: {} };
  const cancelled = await (await connect(other.url, binding)).cancelTask(cancel);
  expect(toJson(cancelled)).toMatchObject({ status: { state: 'TASK_STATE_CANCELED' } });
  await expect(client.cancelTask(cancel)).rejects.toThrow(/over/);
  await expect(client.getTask(named('no-task'))).rejects.toThrow(/not found/i);
});

const legacyCompat = { enabled: true };
/** Connects a client that knows no version after 0.3. */
const connectOld = (url: string) => {
  const fetchImpl: typeof fetch = async (address) => {
    const { supportedInterfaces: _, ...card } = (await (await fetch(address)).json()) as Record<string, unknown>;
    return Response.json(card);
  };
  const cardResolver = new DefaultAgentCardResolver({ legacyCompat, fetchImpl });
  const transports = [new JsonRpcTransportFactory({ legacyCompat })];
  return new ClientFactory({ transports, cardResolver }).createFromUrl(url, CARD);
};

test('a client of 0.3 is served in its words', async () => {
  const rpc = (method: string, params: object, headers = {}) =>
    app.post(APP, { jsonrpc: '2.0', id: 7, method, params }, headers);
  const message = { kind: 'message', messageId: 'old', role: 'user', parts: [{ kind: 'text', text: 'hello' }] };
  const sent = (await rpc('message/send', { message })).body;
  expect(sent).toMatchObject({
    id: 7,
    result: {
      kind: 'task',
      status: { state: 'completed' },
      artifacts: [{ parts: [{ kind: 'text', text: 'You said hello' }] }],
      history: [{ kind: 'message', role: 'user', messageId: 'old' }],
    },
  });
  const file = { name: 'a.png', mimeType: 'image/png', bytes: 'AAAA' };
  const mixed = [
    { kind: 'file', file },
    { kind: 'file', file: { uri: 'https://example.com/b' } },
    { kind: 'data', data: { callId: 'c', parts: [{ raw: 'kept' }] } },
  ];
  expect((await rpc('message/send', { message: { ...message, messageId: 'mixed', parts: mixed } })).body).toMatchObject(
    {
      result: {
        history: [
          {
            parts: [
              { kind: 'file', file },
              { kind: 'file', file: { uri: 'https://example.com/b' } },
              { kind: 'text', text: '{"callId":"c","parts":[{"raw":"kept"}]}' },
            ],
          },
        ],
      },
    },
  );
  const parts = [{ kind: 'text', text: 'speak' }];
  const params = { message: { ...message, messageId: 'old stream', parts } };
  const streaming = await fetch(`${app.url}${APP}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'message/stream', params }),
  });
  let streamed = '';
  for await (const piece of streaming.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    // Not before the task as it is has come: what is said before stands in it.
    if (!streamed) {
      const call = await spoken.called(1);
      await call.say('Old words.');
      call.end();
    }
    streamed += piece;
  }
  expect(streamed).toContain('"kind":"artifact-update"');
  expect(streamed).toContain('"final":true');
  for (const wrong of [
    { role: undefined },
    { parts: [{ type: 'text', text: 'hello' }] },
    { parts: [{ kind: 'file' }] },
    { parts: [{ kind: 'constructor' }, null] },
    { parts: 'hello' },
  ])
    expect((await rpc('message/send', { message: { ...message, messageId: 'wrong', ...wrong } })).body).toMatchObject({
      error: { code: -32_602 },
    });
  expect((await rpc('tasks/pushNotificationConfig/set', { taskId: 't' })).body).toMatchObject({
    error: { code: -32_003 },
  });
  expect((await rpc('SendMessage', { message }, { 'a2a-version': '0.3' })).body).toMatchObject({
    error: { code: -32_601 },
  });
  expect((await rpc('SendMessage', { message }, { 'a2a-version': '99.0' })).body).toMatchObject({
    error: { code: -32_009 },
  });
});

test('the official client of 0.3 sends, follows, answers and cancels', async () => {
  const client = await connectOld(app.url);
  const made = toJson(await client.sendMessage(say('hello')));
  expect(made).toMatchObject({
    status: { state: 'TASK_STATE_COMPLETED' },
    artifacts: [{ parts: [{ text: 'You said hello' }] }],
    history: [{ role: 'ROLE_USER', parts: [{ text: 'hello' }] }],
  });
  const elsewhere = await connectOld(other.url);
  expect(toJson(await elsewhere.getTask(named(made.id)))).toEqual(made);
  expect(toJson(await elsewhere.getTask({ ...named(made.id), historyLength: 0 }))).not.toHaveProperty('history');

  const stream = client.sendMessageStream(say('speak'));
  const first = StreamResponse.toJSON((await stream.next()).value as StreamResponse) as { task: { id: string } };
  const call = await spoken.called(1);
  await call.say('Some words that are long enough to be cut, ');
  expect((await stream.next()).value).toMatchObject({ payload: { $case: 'artifactUpdate' } });
  await stream.return();
  const following = elsewhere.resubscribeTask(named(first.task.id));
  expect((await following.next()).value).toMatchObject({ payload: { $case: 'task' } });
  await call.say('and some more of them.');
  call.end();
  const updates = await readAll(following);
  expect(textOf(updates)).toBe('Some words that are long enough to be cut, and some more of them.');
  expect(updates.at(-1)).toMatchObject({ statusUpdate: { status: { state: 'TASK_STATE_COMPLETED' } } });

  const asks = toJson(await client.sendMessage(say('ask')));
  expect(asks).toMatchObject({
    status: { state: 'TASK_STATE_INPUT_REQUIRED', message: { parts: [{}, { data: { name: 'ask' } }] } },
  });
  const parts = [
    { data: { callId: (asks as unknown as Asks).status.message.parts[1]?.data?.callId, response: { rain: true } } },
  ];
  const answered = toJson(await client.sendMessage(say('', { taskId: asks.id }, parts)));
  expect(JSON.stringify(answered['artifacts'])).toContain('rain');

  const configuration = { acceptedOutputModes: [], taskPushNotificationConfig: undefined, returnImmediately: true };
  const running = toJson(await client.sendMessage({ ...say('speak'), configuration }));
  expect(running).not.toMatchObject({ status: { state: 'TASK_STATE_COMPLETED' } });
  const cancel = { ...named(running.id), metadata: {} };
  expect(toJson(await elsewhere.cancelTask(cancel))).toMatchObject({ status: { state: 'TASK_STATE_CANCELED' } });
  await expect(client.cancelTask(cancel)).rejects.toThrow(TaskNotCancelableError);
  await expect(client.getTask(named('no-task'))).rejects.toThrow(TaskNotFoundError);
  await expect(readAll(client.resubscribeTask(named(made.id)))).rejects.toThrow(UnsupportedOperationError);
  const wrong = say('', {}, [{ raw: 'AAAA', mediaType: 'application/x-unknown' }]);
  await expect(client.sendMessage(wrong)).rejects.toThrow(ContentTypeNotSupportedError);
  expect(await client.getAgentCard()).toMatchObject({ name: 'harness_agent' });
});

test('0.3 is not served over HTTP+JSON, and no card says so', async () => {
  const message = { messageId: 'old rest', role: 'ROLE_USER', content: [{ text: 'hello' }] };
  expect(await app.post(`${APP}/v1/message:send`, { request: message })).toMatchObject({
    status: 404,
    body: { error: { status: 'NOT_FOUND' } },
  });
  expect(await app.get(`${APP}/tasks/none`, { 'a2a-version': '0.3' })).toMatchObject({
    status: 400,
    body: { error: { details: [{ reason: 'VERSION_NOT_SUPPORTED' }] } },
  });
  const { body } = await app.get(CARD);
  const { supportedInterfaces, additionalInterfaces } = body as {
    supportedInterfaces: { protocolBinding: string; protocolVersion: string }[];
    additionalInterfaces: { transport: string }[];
  };
  expect(supportedInterfaces.map((each) => `${each.protocolBinding} ${each.protocolVersion}`)).toEqual([
    'JSONRPC 1.0',
    'HTTP+JSON 1.0',
    'JSONRPC 0.3',
  ]);
  expect(additionalInterfaces.map(({ transport }) => transport)).toEqual(['JSONRPC']);
});

test('what is wrong is said to a client of 0.3 with one object, which all of its readers take', async () => {
  const data = { '@type': expect.any(String), reason: 'TASK_NOT_FOUND', domain: 'a2a-protocol.org' };
  const ask = async (method: string, headers: Record<string, string> = {}, id = 'nope') =>
    (await app.post(APP, { jsonrpc: '2.0', id: 1, method, params: { id } }, headers)).body;
  expect(await ask('tasks/get')).toMatchObject({ id: 1, error: { code: -32_001, data } });
  expect(await ask('tasks/get', { 'a2a-version': '0.3' })).toMatchObject({ error: { data } });
  expect(await ask('GetTask', { 'a2a-version': '1.0' })).toMatchObject({ error: { data: [data] } });
  expect(await ask('GetTask')).toMatchObject({ error: { data: [data] } });
  expect(await ask('unknown', { 'a2a-version': '0.3' })).toMatchObject({
    error: { data: { domain: 'a2a-protocol.org' } },
  });
  expect((await app.post(APP, '{')).body).toMatchObject({
    error: { code: -32_700, data: { domain: 'a2a-protocol.org' } },
  });
  expect((await app.post('/a2a/none', {})).body).toMatchObject({ error: { data: { reason: 'NOT_FOUND' } } });
});

test('what is wrong is said in the words of the protocol', async () => {
  const rpc = async (body: unknown) => (await app.post(APP, body, { 'a2a-version': '1.0' })).body;
  expect(await rpc('{')).toMatchObject({ id: null, error: { code: -32_700 } });
  expect(await rpc({ id: 1, method: 'GetTask' })).toMatchObject({ error: { code: -32_600 } });
  const call = (method: string, params: object) => rpc({ jsonrpc: '2.0', id: 1, method, params });
  expect(await call('constructor', {})).toMatchObject({ id: 1, error: { code: -32_601 } });
  expect(await call('SendMessage', { message: { messageId: 'm', role: 'ROLE_USER', parts: [] } })).toMatchObject({
    error: { code: -32_602, data: [{ domain: 'a2a-protocol.org' }] },
  });
  const parts = [{ raw: 'AAAA', mediaType: 'application/x-unknown' }];
  expect(await call('SendMessage', { message: { messageId: 'm', role: 'ROLE_USER', parts } })).toMatchObject({
    error: { code: -32_005 },
  });
  expect(await call('GetTaskPushNotificationConfig', { taskId: 't', id: 'c' })).toMatchObject({
    error: { code: -32_003 },
  });
  expect((await app.post(APP, '{}', { 'a2a-version': '1.0', 'content-type': 'text/plain' })).body).toMatchObject({
    error: { code: -32_005 },
  });
  for (const wrong of ['{', `${'{"a":['.repeat(40_000)}${']}'.repeat(40_000)}`, 'null', '[1]', '{"message":"m"}'])
    expect(await app.post(`${APP}/message:send`, wrong)).toMatchObject({
      status: 400,
      body: { error: { status: 'INVALID_ARGUMENT' } },
    });
  const absent = await app.get(`${APP}/tasks/none`);
  expect(absent).toMatchObject({
    status: 404,
    body: { error: { status: 'NOT_FOUND', details: [{ reason: 'TASK_NOT_FOUND' }] } },
  });
  expect((await app.get(`${APP}/tasks?pageSize=0`)).status).toBe(400);
  expect((await app.get('/a2a/none/.well-known/agent-card.json')).status).toBe(404);
  const card = await app.get('/.well-known/agent-card.json', { 'a2a-version': '1.0' });
  expect(card.body).not.toHaveProperty('url');
  const etag = card.headers.get('etag') ?? '';
  expect((await app.get('/.well-known/agent-card.json', { 'a2a-version': '1.0', 'if-none-match': etag })).status).toBe(
    304,
  );
});

/** Members of 0.3 in a card, which no signature covers. */
const OLD_MEMBERS = new Set(['additionalInterfaces', 'url', 'preferredTransport', 'protocolVersion', 'security']);
const OLD_SCHEME = new Set(['type', 'scheme']);

/** The form of RFC 8785 of what a signature of 1.0 covers: without what is empty, as in protocol buffers. */
function toCovered(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return value === '' ? undefined : JSON.stringify(value);
  const members = Object.entries(value).map(([name, each]) => [name, toCovered(each)] as const);
  const kept = members.filter(([, text]) => text !== undefined);
  if (kept.length === 0) return undefined;
  if (Array.isArray(value)) return `[${kept.map(([, text]) => text).join(',')}]`;
  // In the order of UTF-16, as sort() has it.
  return `{${kept
    .map(([name, text]) => `${JSON.stringify(name)}:${text}`)
    .sort()
    .join(',')}}`;
}

test.each(['ES256', 'RS256'])('cards are signed by %s with the key of the operator, in each form', async (alg) => {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  const jwk = { ...(await exportJWK(privateKey)), alg };
  const withKey = (kid: string) => ({
    DOORS: 'a2a',
    RUNTIME_API_KEYS: 'a-key-of-this-one-test',
    PUBLIC_URL: 'https://agents.example.com',
    A2A_CARD_KEY: JSON.stringify({ ...jwk, kid }),
  });
  const started = await startOn(app.databaseUrl, withKey('k1'), { agents });
  onTestFinished(() => started.close());
  const signed = clientOf(started.url);
  const plain = { 'a2a-version': '1.0' };
  const key = { authorization: 'Bearer a-key-of-this-one-test' };
  const rpc = async (method: string, headers: object) => {
    const answer = await signed.post(APP, { jsonrpc: '2.0', id: 1, method, params: {} }, { ...key, ...headers });
    return (answer.body as { result: unknown }).result;
  };
  const cards = [
    (await signed.get(CARD, plain)).body,
    (await signed.get(CARD)).body,
    (await signed.get('/.well-known/agent-card.json', plain)).body,
    (await signed.get(`${APP}/extendedAgentCard`, { ...plain, ...key })).body,
    await rpc('GetExtendedAgentCard', plain),
    await rpc('agent/getAuthenticatedExtendedCard', {}),
  ] as AgentCard[];
  const verify = verifyAgentCardSignature((kid) => {
    expect(kid).toBe('k1');
    return Promise.resolve(publicKey);
  });
  for (const card of cards) {
    await verify(card);
    await expect(verify({ ...card, description: 'Changed.' })).rejects.toThrow(/No valid signatures/);
    const { signatures, securitySchemes, ...members } = card as unknown as Record<string, unknown> & {
      signatures: { protected: string; signature: string }[];
      securitySchemes: { bearer: object };
    };
    const bearer = Object.entries(securitySchemes.bearer).filter(([name]) => !OLD_SCHEME.has(name));
    const covered = toCovered({
      ...Object.fromEntries(Object.entries(members).filter(([name]) => !OLD_MEMBERS.has(name))),
      supportsAuthenticatedExtendedCard: '',
      securitySchemes: { bearer: Object.fromEntries(bearer) },
    });
    const payload = Buffer.from(covered ?? '').toString('base64url');
    expect(signatures).toHaveLength(1);
    const { protectedHeader } = await flattenedVerify({ payload, ...signatures[0] } as never, publicKey);
    expect(protectedHeader).toEqual({ alg, kid: 'k1', typ: 'JOSE' });
  }
  const [first, again] = [await signed.get(CARD), await signed.get(CARD)];
  expect(first.text).toBe(again.text);
  const etag = first.headers.get('etag') ?? '';
  expect(again.headers.get('etag')).toBe(etag);
  expect(await signed.get(CARD, { 'if-none-match': etag })).toMatchObject({ status: 304, text: '' });
  // With another key it is another card: its signature names that key.
  const turned = await startOn(app.databaseUrl, withKey('k2'), { agents });
  onTestFinished(() => turned.close());
  expect((await clientOf(turned.url).get(CARD, { 'if-none-match': etag })).status).toBe(200);
  expect((await app.get(CARD)).body).not.toHaveProperty('signatures');
});
