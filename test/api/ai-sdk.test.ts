import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { tool } from '../support/agent-fixtures.ts';
import { hostAgent } from '../support/agents.ts';
import {
  type Chat,
  type Chunk,
  type Json,
  newChat,
  type Sdk,
  type Transport,
  type UiMessage,
} from '../support/ai-sdk.ts';
import { startApp, startOn } from '../support/app.ts';
import { loadFrontEnd } from '../support/front-ends.ts';
import { callPart } from '../support/scripted-model.ts';
import { SpokenModel } from '../support/spoken-model.ts';
import { staged } from '../support/staged.ts';

/** The door of the AI SDK, spoken to by the SDK itself: its transports, its chat, its schemas. */

const model = new SpokenModel();
const tools = [
  tool('write', async ({ key }) => ({ kept: key }), { needsConfirmation: true }),
  tool('ask', async () => undefined, { longRunning: true }),
  tool('look', async ({ at }, { actions }) => {
    actions.stateDelta = { looked: at };
    return { seen: at };
  }),
];
const agents = hostAgent(model, tools);
const sdks = {} as Record<6 | 7, Sdk>;
let WorkflowChatTransport: new (options: object) => Transport;
beforeAll(async () => {
  sdks[7] = (await loadFrontEnd('ai')) as Sdk;
  sdks[6] = (await loadFrontEnd('ai6')) as Sdk;
  ({ WorkflowChatTransport } = (await loadFrontEnd('@ai-sdk/workflow/client')) as {
    WorkflowChatTransport: typeof WorkflowChatTransport;
  });
});
const app = staged(() => startApp({}, { agents }));
const other = staged(() => startOn(app.databaseUrl, {}, { agents }));
beforeEach(() => void (model.calls.length = 0));

const CHAT = '/ai-sdk/harness_agent/chat';
const SESSIONS = '/apps/harness_agent/users/user/sessions';
const prompt = (text: string, id = 'm1') => ({ id, role: 'user', parts: [{ type: 'text', text }] });
const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;
const lastOf = (chat: Chat): UiMessage => plain(chat.messages.at(-1)) as UiMessage;
const shown = ({ parts }: UiMessage) => parts.filter(({ type }) => type === 'text').map(({ text }) => text as string);
const stateOf = ({ parts }: UiMessage) => parts.find(({ type }) => type === 'dynamic-tool');
const stored = async (id: string, version = 7) =>
  (await app.get(`${CHAT}/${id}/messages?version=${version}`)).body as UiMessage[];

const openChat = (
  version: 6 | 7,
  id: string,
  { at = app.url, ...more }: Parameters<typeof newChat>[3] & { at?: string } = {},
) => newChat(sdks[version], `${at}${CHAT}?version=${version}`, id, more);

/** A fetch whose answer breaks off behind some chunks, or ends where `isClean`. */
const cutting =
  (chunks: number, isClean = false): typeof fetch =>
  async (input, init) => {
    const response = await fetch(input, init);
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let left = chunks;
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const { done, value = '' } = (await reader?.read()) ?? { done: true };
        const frames = value.split(/(?<=\n\n)/);
        const some = frames.slice(0, left);
        left -= some.length;
        if (some.length > 0) controller.enqueue(new TextEncoder().encode(some.join('')));
        if (done) return controller.close();
        if (left > 0) return;
        await reader?.cancel();
        if (isClean) controller.close();
        else controller.error(new TypeError('network error'));
      },
    });
    return new Response(body, response);
  };

/** The chunks of an answer, each as the schema of its version takes it. */
async function readChunks(response: Response, version: 6 | 7 = 7): Promise<Chunk[]> {
  const frames = (await response.text()).split('\n\n').filter((frame) => frame.startsWith('data: '));
  expect(frames.pop()).toBe('data: [DONE]');
  const chunks = frames.map((frame) => JSON.parse(frame.slice(6)) as Chunk);
  for (const chunk of chunks)
    expect(await sdks[version].uiMessageChunkSchema().validate(chunk)).toMatchObject({ success: true });
  return chunks;
}

describe.each([7, 6] as const)('useChat of version %i', (version) => {
  test('an answer that is cut off is resumed on the other replica: one message, its text once', async () => {
    const id = `cut-${version}`;
    const chat = openChat(version, id, { fetch: cutting(4) });
    const sending = chat.sendMessage({ text: 'Speak.' });
    const call = await model.called(1);
    await call.say('Let me think of it first. ', true);
    await call.say('Once upon a time there was a ');
    await sending;
    const { id: messageId } = lastOf(chat);
    expect([chat.status, lastOf(chat).role]).toEqual(['error', 'assistant']);
    const again = openChat(version, id, { at: other.url, messages: plain(chat.messages) });
    const resuming = again.resumeStream();
    await expect.poll(() => shown(lastOf(again)).join('')).toBe('Once upon a time ');
    const second = openChat(version, id, { messages: plain(await stored(id, version)) });
    const beside = second.resumeStream();
    await expect.poll(() => shown(lastOf(second)).join('')).toBe('Once upon a time ');
    await call.say('king.');
    call.end();
    await Promise.all([resuming, beside]);
    for (const each of [again, second]) {
      expect([each.status, each.messages.length, lastOf(each).id]).toEqual(['ready', 2, messageId]);
      expect(shown(lastOf(each))).toEqual(['Once upon a time there was a king.']);
    }
    expect((await stored(id, version)).at(-1)).toEqual(lastOf(again));
    expect((await app.get(`${CHAT}/${id}/stream`)).status).toBe(204);
    await again.resumeStream();
    expect(again.messages).toHaveLength(2);
  });

  test.each([true, false])('a tool waits for a person, who says %s', async (approved) => {
    const id = `confirm-${version}-${approved}`;
    const auto = sdks[version].lastAssistantMessageIsCompleteWithApprovalResponses;
    const chat = openChat(version, id, { auto });
    const sending = chat.sendMessage({ text: 'Write.' });
    (await model.called(1)).end([callPart('write', { key: 'color' })]);
    await sending;
    const asked = stateOf(lastOf(chat)) as Json & { approval: { id: string }; toolCallId: string };
    expect(asked).toMatchObject({ toolName: 'write', state: 'approval-requested', input: { key: 'color' } });
    expect((await stored(id, version)).at(-1)).toEqual(lastOf(chat));
    await chat.addToolApprovalResponse({ id: asked.approval.id, approved });
    (await model.called(2)).end([{ text: 'Done.' }]);
    await expect.poll(() => [chat.status, ...shown(lastOf(chat))]).toEqual(['ready', 'Done.']);
    expect(stateOf(lastOf(chat))).toMatchObject(
      approved ? { state: 'output-available', output: { kept: 'color' } } : { state: 'output-denied' },
    );
    expect(chat.messages).toHaveLength(2);
    const [, answer] = await stored(id, version);
    // Version 6 is not told of decisions: the client that took it knows.
    const withoutApproval = (message: UiMessage | undefined) =>
      plain({ ...message, parts: message?.parts.map((part) => ({ ...part, approval: undefined })) });
    if (version === 7) expect(answer).toEqual(lastOf(chat));
    else expect(withoutApproval(answer)).toEqual(withoutApproval(lastOf(chat)));
    // The same decision again, or another one, only reads what became of the first.
    const forged = plain(lastOf(chat));
    Object.assign(stateOf(forged) ?? {}, {
      state: 'approval-responded',
      approval: { id: asked.approval.id, approved: !approved },
    });
    const repeated = await fetch(`${app.url}${CHAT}?version=${version}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ id, messages: [forged] }),
    });
    const chunks = await readChunks(repeated, version);
    expect([chunks[0], chunks.at(-1)?.type]).toEqual([{ type: 'start', messageId: lastOf(chat).id }, 'finish']);
    expect(model.calls).toHaveLength(2);
  });

  test('a tool of the client is answered by the client', async () => {
    const id = `ask-${version}`;
    const chat = openChat(version, id, { auto: sdks[version].lastAssistantMessageIsCompleteWithToolCalls });
    const sending = chat.sendMessage({ text: 'Ask.' });
    (await model.called(1)).end([callPart('ask', { what: 'color' })]);
    await sending;
    const { toolCallId } = stateOf(lastOf(chat)) as { toolCallId: string };
    expect(stateOf(lastOf(chat))).toMatchObject({ state: 'input-available' });
    await chat.addToolOutput({ tool: 'ask', toolCallId, output: 'blue' });
    (await model.called(2)).end([{ text: 'Blue it is.' }]);
    await expect.poll(() => [chat.status, ...shown(lastOf(chat))]).toEqual(['ready', 'Blue it is.']);
    expect((await app.get(`${SESSIONS}/${id}`)).text).toContain('{"result": "blue"}');
    expect((await app.get(`${SESSIONS}/${id}/invocations`)).body).toMatchObject([{ status: 'succeeded' }]);
  });
});

/** A long answer: reasoning, text, two steps with a tool, state, a source. */
async function answerAtLength(): Promise<void> {
  const first = await model.called(1);
  await first.say('I have to look first. Where could it be? ', true);
  await first.say('Let me look.');
  first.end([callPart('look', { at: 'shelf' })]);
  const second = await model.called(2);
  await second.say('It is on the shelf, behind the books that nobody reads.');
  second.end([{ inlineData: { mimeType: 'image/png', data: 'AAAA' } }, { executableCode: { code: '1' } }]);
}

test('WorkflowChatTransport goes on behind any chunk, on another replica, and has the same chunks', async () => {
  const send = (at: string, more: object) => {
    const transport = new WorkflowChatTransport({
      api: `${at}${CHAT}`,
      prepareSendMessagesRequest: ({ messages }: { messages: UiMessage[] }) => ({
        body: { id: 'workflow', messages },
        headers: { 'content-type': 'application/json', 'idempotency-key': 'workflow' },
      }),
      ...more,
    });
    const options = { chatId: 'workflow', trigger: 'submit-message', messages: [prompt('Look.')] };
    return { transport, sent: transport.sendMessages(options) };
  };
  const collect = async (stream: ReadableStream<Chunk> | null): Promise<Chunk[]> => {
    const chunks: Chunk[] = [];
    for await (const chunk of stream ?? []) chunks.push(chunk);
    return chunks;
  };
  const live = send(app.url, {}).sent;
  await answerAtLength();
  const whole = await collect(await live);
  expect(whole.map(({ type }) => type).filter((type) => !type.endsWith('-delta'))).toEqual(
    [
      'start start-step reasoning-start reasoning-end text-start text-end tool-input-available tool-output-available',
      'data-state finish-step start-step text-start text-end file data-part finish-step finish',
    ]
      .join(' ')
      .split(' '),
  );
  for (const isClean of [false, true])
    for (let cut = 1; cut < whole.length; cut += 1) {
      let n = 0;
      // The first answer breaks off here, the next ones after two chunks, on alternating replicas.
      const breaking = (input: string, init: RequestInit) => {
        n += 1;
        const url = input.replace(app.url, n % 2 === 0 ? other.url : app.url);
        return cutting(n === 1 ? cut : 2, isClean || n > 1)(url, init);
      };
      expect(await collect(await send(app.url, { fetch: breaking }).sent)).toEqual(whole);
    }
  // From the end, and by the id of the chat.
  for (const startIndex of [-1, -5, -100, 3]) {
    const found = await fetch(`${other.url}${CHAT}/workflow/stream?startIndex=${startIndex}`);
    const tail = found.headers.get('x-workflow-stream-tail-index');
    expect(tail).toBe(startIndex < 0 ? String(whole.length - 1) : null);
    expect(await readChunks(found)).toEqual(whole.slice(startIndex));
  }
  const { transport } = send(app.url, { initialStartIndex: -3 });
  expect((await collect(await transport.reconnectToStream({ chatId: 'workflow' }))).at(-1)?.type).toBe('finish');
  const built: UiMessage[] = [];
  const stream = new ReadableStream({
    start: (controller) => {
      for (const chunk of whole) controller.enqueue(chunk);
      controller.close();
    },
  });
  for await (const message of sdks[7].readUIMessageStream({ stream })) built.push(message);
  expect((await stored('workflow')).at(-1)).toEqual(plain(built.at(-1)));
  expect((await app.get(`${SESSIONS}/workflow/invocations`)).body).toHaveLength(1);
});

test.each([
  { version: 7, query: '?version=7', first: 'reset-step' },
  { version: 6, query: '', first: 'text-end' },
] as const)(
  'what runs is stopped; a failure is an error; both end with finish: $version',
  async ({ version, query, first }) => {
    const send = (id: string) =>
      fetch(`${app.url}${CHAT}${query}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ id, messages: [prompt('Speak.')], trigger: 'submit-message' }),
      });
    const running = await send(`stop-${version}`);
    const call = await model.called(1);
    await call.say('Once upon a time there was');
    const [seen, rest] = (running.body as ReadableStream<Uint8Array>).tee();
    for await (const text of seen.pipeThrough(new TextDecoderStream())) if (text.includes('Once upon')) break;
    expect((await app.post(`${CHAT}/stop-${version}/stop`)).body).toEqual({ stopped: true });
    const chunks = await readChunks(new Response(rest), version);
    // Version 6 keeps what it has shown.
    const [shownBefore, ...ends] = chunks.filter(({ type }) => type !== 'finish-step').slice(-3);
    expect(shownBefore?.type).toBe(first);
    expect(ends).toEqual([
      { type: 'abort', reason: 'The invocation was cancelled.' },
      { type: 'finish', finishReason: 'other' },
    ]);
    expect((await app.post(`${CHAT}/stop-${version}/stop`)).body).toEqual({ stopped: false });
    const failing = await send(`fail-${version}`);
    (await model.called(2)).end();
    expect((await readChunks(failing, version)).slice(-2)).toMatchObject([
      { type: 'error', errorText: expect.stringContaining('empty answer') as string },
      { type: 'finish', finishReason: 'error' },
    ]);
  },
);

test('without an id a chat has a session of its own, which its run names', async () => {
  const sending = app.post(CHAT, { messages: [prompt('Hello')] });
  (await model.called(1)).end([{ text: 'Hello.' }]);
  const run = (await sending).headers.get('x-workflow-run-id') ?? '';
  expect(run).toMatch(/^run\.[\w-]+\.[\w-]+$/);
  const again = await readChunks(await fetch(`${other.url}${CHAT}/${run}/stream`));
  expect(again.at(-1)).toEqual({ type: 'finish', finishReason: 'stop' });
  expect(await stored(run)).toMatchObject([{ role: 'user' }, { role: 'assistant' }]);
  expect((await app.get(`${CHAT}/${run.slice(0, -4)}/stream`)).status).toBe(404);
});

test("another user's chat is as absent", async () => {
  const of = (user: string) => `?user_id=${user}`;
  const sending = app.post(`${CHAT}${of('alice')}`, { id: 'hers', messages: [prompt('Secret')] });
  const call = await model.called(1);
  const asks = (user: string) =>
    Promise.all(
      [`/hers/stream${of(user)}`, `/hers/messages${of(user)}`].map(async (path) => (await app.get(CHAT + path)).status),
    );
  expect(await asks('bob')).toEqual([204, 404]);
  expect((await app.post(`${CHAT}/hers/stop${of('bob')}`)).body).toEqual({ stopped: false });
  call.end([{ text: 'Kept.' }]);
  const run = (await sending).headers.get('x-workflow-run-id');
  expect((await app.get(`${CHAT}/${run}/stream${of('bob')}`)).status).toBe(404);
  const bobs = app.post(`${CHAT}${of('bob')}`, { id: 'hers', messages: [prompt('Mine')] });
  (await model.called(2)).end([{ text: 'Yours.' }]);
  await bobs;
  expect((await app.get(`/apps/harness_agent/users/bob/sessions/hers`)).text).not.toContain('Secret');
});

test.each([7, 6] as const)(
  'version %i that names no version is asked, and goes on once it has answered',
  async (version) => {
    const { lastAssistantMessageIsCompleteWithApprovalResponses: auto } = sdks[version];
    const chat = newChat(sdks[version], app.url + CHAT, `unnamed-${version}`, { auto });
    const sending = chat.sendMessage({ text: 'Write.' });
    (await model.called(1)).end([callPart('write', { key: 'color' })]);
    await sending;
    const asked = stateOf(lastOf(chat)) as Json & { approval: { id: string } };
    await chat.addToolApprovalResponse({ id: asked.approval.id, approved: true });
    (await model.called(2)).end([{ text: 'Done.' }]);
    await expect.poll(() => [chat.status, ...shown(lastOf(chat))]).toEqual(['ready', 'Done.']);
    expect(chat.error).toBeUndefined();
    expect(stateOf(lastOf(chat))).toMatchObject({ state: 'output-available', output: { kept: 'color' } });
  },
);

test('data between pages is not told to the model', async () => {
  const parts = [
    { type: 'data-place', data: { x: 1 } },
    { type: 'text', text: 'Where?' },
  ];
  const sending = app.post(CHAT, { id: 'data', messages: [{ id: 'm', role: 'user', parts }] });
  (await model.called(1)).end([{ text: 'Here.' }]);
  expect((await sending).status).toBe(200);
  expect((await stored('data'))[0]?.parts).toEqual([{ type: 'text', text: 'Where?' }]);
});

test('files of the user reach the model, and what means nothing is refused in words', async () => {
  const files = [
    { type: 'file', mediaType: 'image/png', filename: 'a.png', url: 'data:image/png;base64,AAAA' },
    { type: 'file', mediaType: 'text/html', url: 'https://example.com/' },
  ];
  const sending = app.post(CHAT, { id: 'files', messages: [{ id: 'm', role: 'user', parts: files }] });
  (await model.called(1)).end([{ text: 'Seen.' }]);
  await sending;
  expect((await stored('files'))[0]).toMatchObject({ role: 'user', parts: files });
  const user = prompt('Hello');
  const answer = { id: (await stored('files'))[1]?.id, role: 'assistant', parts: [] };
  const refused: [number, object][] = [
    [422, {}],
    [422, { messages: [] }],
    [422, { messages: [{ role: 'user' }] }],
    [422, { messages: [{ role: 'nobody', parts: [] }] }],
    [422, { messages: [{ ...user, parts: [] }] }],
    [422, { messages: [{ ...user, parts: [{ type: 'data-x', data: 1 }] }] }],
    [422, { messages: [{ ...user, parts: [{ type: 'file', mediaType: 'a/b', url: 'data:a/b;base64,?' }] }] }],
    [422, { messages: [{ ...user, role: 'system' }] }],
    [422, { messages: [user], trigger: 'regenerate-message' }],
    [422, { messages: [user], messageId: 'm1' }],
    [422, { id: 'a'.repeat(257), messages: [user] }],
    [409, { id: 'files', messages: [user, answer] }],
    [404, { id: 'files', messages: [user, { ...answer, id: 'e-none' }] }],
  ];
  for (const [status, body] of refused) {
    const found = await app.post(CHAT, body);
    expect([JSON.stringify(body), found.status, found.text]).toEqual([
      JSON.stringify(body),
      status,
      expect.stringContaining('detail'),
    ]);
  }
  expect((await app.send('POST', CHAT, 'x', { 'content-type': 'text/plain' })).status).toBe(415);
  expect(model.calls).toHaveLength(1);
});
