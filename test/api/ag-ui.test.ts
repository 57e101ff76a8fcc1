import { beforeEach, expect, test, vi } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { type Client, type Frame, newClient, readFrames, typesOf } from '../support/ag-ui.ts';
import { tool } from '../support/agent-fixtures.ts';
import { stageDoor } from '../support/door-stage.ts';
import { callPart } from '../support/scripted-model.ts';

/** AG-UI's own `HttpAgent`, which verifies the order of events, against two replicas of the service. */

const note = tool('note', async (_args, { actions, services }) => {
  actions.stateDelta = { 'a/b~c': [1], 'temp:x': 1 };
  actions.artifactDelta = { 'note.txt': await services.saveArtifact('note.txt', { text: 'Hi' }) };
  return { noted: true };
});
const script = {
  hello: [{ text: 'A greeting.', thought: true }, { text: 'Hello, and welcome to this long and friendly answer.' }],
  note: [{ text: 'I note it.' }, callPart('note')],
  color: [callPart('setColor', { color: 'red' })],
};
const { app, other, requests, spoken, paid } = stageDoor('ag-ui', { tools: [note], script });

const warn = vi.spyOn(console, 'warn');
const logged = vi.spyOn(console, 'error');
beforeEach(() => void logged.mockImplementation(() => undefined));

const open = (threadId: string, at = app.url, more = {}) => newClient(`${at}/ag-ui/harness_agent`, threadId, more);
const listEvents = async (threadId: string): Promise<Event[]> =>
  ((await app.get(`/apps/harness_agent/users/user/sessions/${threadId}`)).body as { events: Event[] }).events;
/** What a client shows: role, text and calls; reasoning is not restated where there is none to restate. */
const shown = ({ messages }: Pick<Client, 'messages'>) =>
  messages.map(({ id, role, content, toolCalls }) => [id, role, content ?? '', toolCalls ?? []]);
const end = (frames: Frame[]) => frames.at(-1) as Frame & { outcome: { interrupts: { id: string }[] } };
/** A client that comes new to a thread. */
const reload = async (threadId: string, at = other.url) => {
  const client = open(threadId, at);
  await client.connectAgent();
  await client.settled();
  return client;
};

test('a run has its text, its reasoning, its step and its usage, and a second one stores nothing twice', async () => {
  const client = open('text');
  const frames = await client.say('hello');
  expect(typesOf(frames)).toEqual([
    'RUN_STARTED',
    'STATE_SNAPSHOT',
    'STEP_STARTED',
    'REASONING_START',
    'REASONING_MESSAGE_START',
    'REASONING_MESSAGE_CONTENT',
    'REASONING_MESSAGE_END',
    'REASONING_END',
    'TEXT_MESSAGE_START',
    'TEXT_MESSAGE_CONTENT',
    'TEXT_MESSAGE_END',
    'STEP_FINISHED',
    'RUN_FINISHED',
  ]);
  expect(frames[0]).toMatchObject({ threadId: 'text', protocolVersion: '1.0' });
  expect(frames.filter(({ type }) => type === 'TEXT_MESSAGE_CONTENT').length).toBeGreaterThan(1);
  const usage = [{ model: 'scripted-1', inputTokens: 10, outputTokens: 7, totalTokens: 17, reasoningTokens: 2 }];
  expect(end(frames)).toMatchObject({ runId: frames[0]?.['runId'], outcome: { type: 'success' }, usage });
  expect(client.messages.map(({ content }) => content)).toEqual([
    'hello',
    'A greeting.',
    'Hello, and welcome to this long and friendly answer.',
  ]);
  // The client has all, so that nothing is restated.
  expect(typesOf(await client.say('again'))).not.toContain('MESSAGES_SNAPSHOT');
  expect((await listEvents('text')).map(({ author }) => author)).toEqual([
    'user',
    'harness_agent',
    'user',
    'harness_agent',
  ]);
  expect(shown(await reload('text'))).toEqual(shown(client));
  expect(warn).not.toHaveBeenCalled();
});

test('a tool of the agent: call, result, state as a patch, artifacts', async () => {
  const client = open('tool');
  const frames = await client.say([
    { type: 'image', source: { type: 'data', value: 'aGk=', mimeType: 'image/png' } },
    { type: 'document', source: { type: 'url', value: 'https://example.com/a.pdf', mimeType: 'application/pdf' } },
    { type: 'text', text: 'note' },
  ]);
  expect(typesOf(frames).filter((type) => /TOOL|STATE|CUSTOM|STEP|RUN/.test(type))).toEqual([
    'RUN_STARTED',
    'STATE_SNAPSHOT',
    'STEP_STARTED',
    'TOOL_CALL_START',
    'TOOL_CALL_ARGS',
    'TOOL_CALL_END',
    'TOOL_CALL_RESULT',
    'STATE_DELTA',
    'CUSTOM',
    'STEP_FINISHED',
    'STEP_STARTED',
    'STEP_FINISHED',
    'RUN_FINISHED',
  ]);
  expect(client.state).toEqual({ 'a/b~c': [1] });
  expect(frames.find(({ type }) => type === 'CUSTOM')).toMatchObject({ name: 'artifacts', value: { 'note.txt': 0 } });
  const parts = (await listEvents('tool'))[0]?.content?.parts;
  expect(parts).toMatchObject([
    { inlineData: { data: 'aGk=', mimeType: 'image/png' } },
    { fileData: { fileUri: 'https://example.com/a.pdf', mimeType: 'application/pdf' } },
    { text: 'note' },
  ]);
  expect(shown(await reload('tool'))).toEqual(shown(client));
  expect(warn).not.toHaveBeenCalled();
});

test('binary parts and data URLs are files', async () => {
  const large = Buffer.alloc(20_000).toString('base64');
  const content = [
    { type: 'binary', mimeType: 'image/png', data: 'aGk=', filename: 'a.png' },
    { type: 'binary', mimeType: 'image/png', url: `data:image/png;base64,${large}` },
    { type: 'binary', mimeType: 'application/pdf', url: 'https://example.com/a.pdf' },
    { type: 'image', source: { type: 'url', value: 'data:image/jpeg;base64,aGk=' } },
    { type: 'text', text: 'hello' },
  ];
  const said = { threadId: 'binary', runId: 'r', messages: [{ id: 'm', role: 'user', content }] };
  expect((await app.post('/ag-ui/harness_agent', said)).status).toBe(200);
  expect((await listEvents('binary'))[0]?.content?.parts).toMatchObject([
    { inlineData: { data: 'aGk=', mimeType: 'image/png', displayName: 'a.png' } },
    { inlineData: { data: large, mimeType: 'image/png' } },
    { fileData: { fileUri: 'https://example.com/a.pdf', mimeType: 'application/pdf' } },
    { inlineData: { data: 'aGk=', mimeType: 'image/jpeg' } },
    { text: 'hello' },
  ]);
  for (const source of [
    { id: 'stored' },
    { url: 'data:image/png;base64,?' },
    { url: 'x'.repeat(8_193) },
    { data: '?' },
  ]) {
    const part = { type: 'binary', mimeType: 'image/png', ...source };
    const messages = [{ id: 'm', role: 'user', content: [part] }];
    const refused = await app.post('/ag-ui/harness_agent', { threadId: 'binary', runId: 'r', messages });
    expect(refused.status).toBe(422);
  }
});

const setColor = {
  name: 'setColor',
  description: 'Sets the colour of the page.',
  parameters: { type: 'object', properties: { color: { type: 'string' } } },
};

test('a tool of the front end pauses the run, and its answer goes on with it', async () => {
  const client = open('front');
  const frames = await client.say('color', { tools: [setColor] });
  expect(requests[0]?.tools.map(({ name }) => name)).toEqual(['note', 'pay', 'ask', 'setColor']);
  const [call] = client.messages.at(-1)?.toolCalls ?? [];
  expect(call?.function).toEqual({ name: 'setColor', arguments: '{"color":"red"}' });
  expect(end(frames)).toMatchObject({ outcome: { type: 'success', pendingToolCallIds: [call?.id] } });
  expect(end((await reload('front')).frames)).toMatchObject({ outcome: { pendingToolCallIds: [call?.id] } });
  client.addMessage({ id: 't1', role: 'tool', toolCallId: call?.id ?? '', content: 'done' });
  const rest = await client.go({ tools: [setColor] });
  expect(typesOf(rest)).not.toContain('MESSAGES_SNAPSHOT');
  expect(client.messages.at(-1)?.content).toBe('Got [{"result":"done"}]');
  const events = await listEvents('front');
  expect(new Set(events.map(({ invocationId }) => invocationId)).size).toBe(1);
  expect(shown(await reload('front'))).toEqual(shown(client));
  // Without the tools of that run there are none.
  await client.say('plain');
  expect(requests.at(-1)?.tools.map(({ name }) => name)).not.toContain('setColor');
});

test('an answer of a tool in parts is its text', async () => {
  const client = open('parts');
  await client.say('color', { tools: [setColor] });
  const [call] = client.messages.at(-1)?.toolCalls ?? [];
  const texts = ['It is', 'done.'].map((text) => ({ type: 'text', text }));
  client.addMessage({ id: 't1', role: 'tool', toolCallId: call?.id ?? '', content: texts });
  await client.go({ tools: [setColor] });
  expect(client.messages.at(-1)?.content).toBe('Got [{"result":"It is\\ndone."}]');
});

test('a tool of the front end that fails, one that nobody answers, and one with a name that is taken', async () => {
  const client = open('failed');
  await client.say('color', { tools: [setColor] });
  const toolCallId = client.messages.at(-1)?.toolCalls?.[0]?.id ?? '';
  client.addMessage({ id: 'forged', role: 'tool', toolCallId: 'another', content: 'forged' });
  client.addMessage({ id: 't2', role: 'tool', toolCallId, content: '', error: 'No page.' });
  await client.go();
  expect(client.messages.at(-1)?.content).toBe('Got [{"error":"No page.","content":""}]');
  await client.say('color', { tools: [setColor] });
  await client.say('never mind');
  expect(client.messages.at(-1)?.content).toBe('You said never mind');
  await client.say('color', { tools: [{ ...setColor, name: 'pay' }] });
  expect(end(client.frames)).toMatchObject({
    type: 'RUN_ERROR',
    code: 'unsupported_override',
    message: expect.stringContaining('`pay` has the name of a tool') as string,
  });
});

test('a confirmation is an interrupt: approved, denied, cancelled, and never by half', async () => {
  const client = open('pay');
  const answers: [object, number, string][] = [
    [{ status: 'resolved', payload: { approved: true } }, 1, 'Got [{"paid":true}]'],
    [{ status: 'resolved', payload: { approved: 'yes' } }, 0, 'Got [{"error":"This tool call is rejected."}]'],
    [{ status: 'cancelled' }, 0, 'Got [{"error":"This tool call is rejected."}]'],
  ];
  for (const [answer, calls, text] of answers) {
    paid.mockClear();
    const asked = end(await client.say('pay'));
    const toolCallId = client.messages.at(-1)?.toolCalls?.[0]?.id;
    expect(asked.outcome).toMatchObject({ type: 'interrupt', interrupts: [{ reason: 'tool_call', toolCallId }] });
    // Who comes new sees it too.
    expect(end((await reload('pay')).frames).outcome).toEqual(asked.outcome);
    const [{ id: interruptId } = { id: '' }] = asked.outcome.interrupts;
    const unknown = { interruptId: 'another', status: 'resolved', payload: { approved: true } };
    const rest = await client.go({ resume: [{ interruptId, ...answer }, unknown] });
    expect(end(rest)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } });
    expect([paid.mock.calls.length, client.messages.at(-1)?.content]).toEqual([calls, text]);
  }
  expect(shown(await reload('pay'))).toEqual(shown(client));
});

test('an input that leaves an interrupt uncovered is refused, and nothing is done', async () => {
  const client = open('uncovered');
  const [first, second] = end(await client.say('pay twice')).outcome.interrupts;
  const resume = [{ interruptId: first?.id, status: 'resolved', payload: { approved: true } }];
  const send = (more: object) =>
    app.post('/ag-ui/harness_agent', { threadId: 'uncovered', runId: 'r', messages: client.messages, ...more });
  const half = await send({ resume });
  expect([half.status, half.text]).toEqual([409, expect.stringContaining(second?.id ?? '-')]);
  const talk = { messages: [...client.messages, { id: 'new', role: 'user', content: 'hello' }] };
  expect((await send(talk)).status).toBe(409);
  expect(await send({})).toMatchObject({ status: 409 });
  expect(paid).not.toHaveBeenCalled();
  const cover = resume.concat({ ...resume[0], interruptId: second?.id } as (typeof resume)[0]);
  await client.go({ resume: cover });
  expect(paid).toHaveBeenCalledTimes(2);
  expect((await send({})).status).toBe(400);
});

test('a tool that waits for an answer from elsewhere is an interrupt with a question', async () => {
  const client = open('ask');
  const [asked] = end(await client.say('ask')).outcome.interrupts;
  expect(asked).toMatchObject({ reason: 'input_required', message: '`ask` waits for its answer.' });
  await client.go({ resume: [{ interruptId: asked?.id, status: 'resolved', payload: { city: 'Oslo' } }] });
  expect(client.messages.at(-1)?.content).toBe('Got [{"city":"Oslo"}]');
});

test('the application tells the model a context, which no message shows', async () => {
  const client = open('context');
  await client.say('word', { context: [{ description: 'Page', value: 'Cart' }] });
  const asked = requests[0]?.contents.at(-1)?.parts?.map(({ text }) => text);
  expect(asked).toEqual(['The application says:\n- Page: Cart', 'word']);
  expect(shown(await reload('context'))).toEqual(shown(client));
});

test('a failure is one RUN_ERROR and nothing after it', async () => {
  const client = open('fail');
  await client.say('fail');
  expect(typesOf(client.frames).filter((type) => type.startsWith('RUN'))).toEqual(['RUN_STARTED', 'RUN_ERROR']);
  expect(end(client.frames)).toMatchObject({ type: 'RUN_ERROR', code: 'model_failed' });
});

test('a cancelled run closes what is open and ends as cancelled', async () => {
  const client = open('cancel');
  const run = client.say('speak');
  const call = await spoken.called(1);
  await call.say('Some text that goes on and on ');
  await expect.poll(() => typesOf(client.frames)).toContain('TEXT_MESSAGE_CONTENT');
  const [event] = await listEvents('cancel');
  await app.post(`/apps/harness_agent/users/user/sessions/cancel/invocations/${event?.invocationId}/cancel`);
  const frames = await run;
  // What was said of an answer that never came is in no thread.
  const last = ['TEXT_MESSAGE_END', 'STEP_FINISHED', 'MESSAGES_SNAPSHOT', 'RUN_FINISHED'];
  expect(typesOf(frames).slice(-4)).toEqual(last);
  expect(client.messages.map(({ content }) => content)).toEqual(['speak']);
  expect(end(frames).outcome).toEqual({ type: 'cancelled' });
});

test('two runs at once on a thread come one after the other, and the second one sees the first', async () => {
  const [one, two] = [open('queue'), open('queue', other.url)];
  const first = one.say('speak one');
  const call = await spoken.called(1);
  const second = two.say('speak two');
  await expect.poll(() => typesOf(two.frames)).toContain('RUN_STARTED');
  await call.say('The first answer is here ');
  call.end();
  const next = await spoken.called(2);
  await next.say('The second answer is here ');
  next.end();
  await first;
  expect(typesOf(await second)).toContain('MESSAGES_SNAPSHOT');
  expect(two.messages.map(({ content }) => content)).toEqual([
    'speak one',
    'The first answer is here ',
    'speak two',
    'The second answer is here ',
  ]);
  expect(warn).not.toHaveBeenCalled();
});

test('who reloads in the middle of an answer has its beginning and its end, on the other replica too', async () => {
  const client = open('reload');
  const run = client.say('speak');
  const call = await spoken.called(1);
  await call.say('Once upon a time there was ');
  const back = open('reload', other.url);
  const connected = back.connectAgent();
  await expect.poll(() => typesOf(back.frames)).toContain('TEXT_MESSAGE_CONTENT');
  const read: Frame[] = [];
  const reader = fetch(`${other.url}/ag-ui/harness_agent/reload`).then((response) => readFrames(response, read));
  await expect.poll(() => typesOf(read)).toContain('TEXT_MESSAGE_CONTENT');
  await call.say('a model that said no more.');
  call.end([callPart('note')]);
  await Promise.all([run, connected]);
  await back.settled();
  expect(typesOf(back.frames).slice(0, 3)).toEqual(['RUN_STARTED', 'MESSAGES_SNAPSHOT', 'STATE_SNAPSHOT']);
  expect(shown(back)).toEqual(shown(client));
  expect(back.state).toEqual({ 'a/b~c': [1] });
  const own = (frames: Frame[]) =>
    frames.slice(
      frames.findIndex(({ type }) => type === 'STEP_STARTED'),
      -1,
    );
  expect(own(await reader)).toEqual(own(back.frames));
  expect(own(back.frames)).toEqual(own(client.frames));
  expect(warn).not.toHaveBeenCalled();
});

test('a run that is sent again is attached to the first, and other words under its name are refused', async () => {
  const client = open('again');
  const run = client.say('speak', { runId: 'r1' });
  const call = await spoken.called(1);
  await call.say('Once upon a time there was ');
  await expect.poll(() => typesOf(client.frames)).toContain('TEXT_MESSAGE_CONTENT');
  // As a client that has half of the answer.
  const again = open('again', other.url, { messages: structuredClone(client.messages) });
  const retry = again.go({ runId: 'r1' });
  await expect.poll(() => typesOf(again.frames)).toContain('TEXT_MESSAGE_CONTENT');
  call.end();
  await Promise.all([run, retry]);
  expect(shown(again)).toEqual(shown(client));
  expect(spoken.calls).toHaveLength(1);
  const body = { threadId: 'again', runId: 'r1', messages: [{ id: 'x', role: 'user', content: 'Other words' }] };
  expect((await app.post('/ag-ui/harness_agent', body)).status).toBe(422);
  const elsewhere = open('elsewhere');
  expect(end(await elsewhere.say('word', { runId: 'r1' }))).toMatchObject({ outcome: { type: 'success' } });
});

test('a thread is a session of its user: others find nothing', async () => {
  await open('mine').say('hello');
  const body = { threadId: 'mine', runId: 'r', messages: [] };
  for (const thread of ['mine', 'absent']) {
    const found = await app.get(`/ag-ui/harness_agent/${thread}?user_id=mallory`);
    expect([found.status, found.body]).toEqual([404, { detail: `Session not found: ${thread}` }]);
  }
  expect((await app.post('/ag-ui/harness_agent/connect?user_id=mallory', body)).status).toBe(404);
  expect((await app.post('/ag-ui/harness_agent/connect', body)).status).toBe(200);
});

test.each([
  ['no messages', { messages: undefined }],
  ['a message without an id', { messages: [{ role: 'user', content: 'x' }] }],
  ['an unknown role', { messages: [{ id: 'm', role: 'root', content: 'x' }] }],
  ['content that is a number', { messages: [{ id: 'm', role: 'user', content: 1 }] }],
  ['bytes that are no base64', { messages: [{ id: 'm', role: 'user', content: [media('%%%')] }] }],
  ['a tool without a name', { tools: [{ description: 'x' }] }],
  ['a tool with a wrong name', { tools: [{ name: 'a b', description: 'x' }] }],
  ['two tools of one name', { tools: [setColor, setColor] }],
  ['too many tools', { tools: Array.from({ length: 65 }, (_, n) => ({ name: `t${n}`, description: 'x' })) }],
  ['tools that are too large', { tools: [{ name: 't', description: 'x'.repeat(65_536) }] }],
  ['a resume that is no list', { resume: { interruptId: 'x', status: 'resolved' } }],
  ['an unknown status', { resume: [{ interruptId: 'x', status: 'maybe' }] }],
])('%s is refused', async (_name, more) => {
  const body = { threadId: 't', runId: 'r', messages: [{ id: 'm', role: 'user', content: 'x' }], ...more };
  expect((await app.post('/ag-ui/harness_agent', body)).status).toBe(422);
});

function media(value: string) {
  return { type: 'image', source: { type: 'data', value, mimeType: 'image/png' } };
}
