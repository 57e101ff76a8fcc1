import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import {
  Agent,
  hostedMcpTool,
  OpenAIConversationsSession,
  setTracingDisabled,
  tool as agentTool,
  OpenAIProvider,
  Runner,
} from '@openai/agents';
import { createOpenAI } from '@ai-sdk/openai';
import OpenAI from 'openai';
import { zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import { tool } from '../support/agent-fixtures.ts';
import { startOn } from '../support/app.ts';
import { stageDoor } from '../support/door-stage.ts';
import { callPart } from '../support/scripted-model.ts';
import { parseId } from '../../src/features/doors/openai/ids.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { leastStatements } from '../support/store.ts';

/** The official packages of this protocol against two replicas of the service. */

setTracingDisabled(true);

const guest = createKey({ id: 'guest', scopes: ['invoke', 'read'] });

const ownTools = [
  tool('note', () => Promise.resolve({ noted: true })),
  tool('tear', () => Promise.resolve({ error: 'It is torn.' })),
];
const script = {
  note: [{ text: 'I note it.' }, callPart('note', { a: 1 })],
  tear: [callPart('tear', {})],
  weather: [callPart('get_weather', { city: 'Bern' })],
};
const { app, other, agents, requests, spoken, paid } = stageDoor('openai', { tools: ownTools, script });

const APP = 'harness_agent';
let client: OpenAI;
beforeAll(() => {
  client = new OpenAI({ baseURL: `${app.url}/v1`, apiKey: 'none', maxRetries: 0 });
});

const elsewhere = () => new OpenAI({ baseURL: `${other.url}/v1`, apiKey: 'none', maxRetries: 0 });
const sessions = async () => (await app.get(`/apps/${APP}/users/user/sessions`)).body as { id: string }[];

test('a response, as it is made and as any replica reads it', async () => {
  const made = await client.responses.create({ model: APP, input: 'hello', metadata: { topic: 'x' } });
  expect(made).toMatchObject({ object: 'response', status: 'completed', model: APP, output_text: 'You said hello' });
  expect(made.output.map(({ type }) => type)).toEqual(['reasoning', 'message']);
  expect(made.metadata).toEqual({ topic: 'x' });
  const read = await elsewhere().responses.retrieve(made.id);
  expect({ ...read, _request_id: null }).toEqual({ ...made, _request_id: null });
  const input = await client.responses.inputItems.list(made.id);
  expect(input.data).toMatchObject([
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'hello' }] },
  ]);
});

test('the helper of the package follows a stream, whose events are the same at each reading', async () => {
  const stream = client.responses.stream({ model: APP, input: 'note' });
  const events: OpenAI.Responses.ResponseStreamEvent[] = [];
  for await (const event of stream) events.push(event);
  const final = await stream.finalResponse();
  expect(final.output.map(({ type }) => type)).toEqual(['message', 'mcp_call', 'message']);
  expect(final.output[1]).toMatchObject({
    type: 'mcp_call',
    name: 'note',
    arguments: '{"a":1}',
    output: '{"noted":true}',
  });
  const again = await elsewhere().responses.retrieve(final.id, { stream: true });
  const replayed: unknown[] = [];
  for await (const event of again) replayed.push(event);
  expect(replayed).toEqual(events);
  const rest = await client.responses.retrieve(final.id, { stream: true, starting_after: events[5]!.sequence_number });
  const later: unknown[] = [];
  for await (const event of rest) later.push(event);
  expect(later).toEqual(events.slice(6));
  const numbers = events.map(({ sequence_number }) => sequence_number);
  expect(numbers).toEqual([...new Set(numbers)].toSorted((a, b) => a - b));
  // Of text that was taken back while the client was away.
  const lost = await client.responses.retrieve(final.id, { stream: true, starting_after: numbers[5]! + 1_000_000 });
  await expect(lost[Symbol.asyncIterator]().next()).rejects.toThrow('read it from its first event');
});

test('a response goes on from an earlier one, and branches where the conversation went on since', async () => {
  const first = await client.responses.create({ model: APP, input: 'one' });
  const second = await client.responses.create({ model: APP, input: 'two', previous_response_id: first.id });
  expect(requests.at(-1)?.contents.length).toBe(3);
  const branch = await client.responses.create({ model: APP, input: 'three', previous_response_id: first.id });
  expect(JSON.stringify(requests.at(-1)?.contents)).not.toContain('two');
  expect(requests.at(-1)?.contents.length).toBe(3);
  expect(branch.conversation?.id).not.toBe(second.conversation?.id);
  await expect(
    client.responses.create({ model: APP, input: 'x', previous_response_id: 'resp_none' }),
  ).rejects.toMatchObject({ status: 404, code: 'previous_response_not_found' });
});

test('a tool of the client is answered with the next request', async () => {
  const tools = [{ type: 'function' as const, name: 'get_weather', parameters: { type: 'object' }, strict: false }];
  const asked = await client.responses.create({ model: APP, input: 'weather', tools });
  expect(asked.output).toMatchObject([{ type: 'function_call', name: 'get_weather', arguments: '{"city":"Bern"}' }]);
  const { call_id } = asked.output[0] as OpenAI.Responses.ResponseFunctionToolCall;
  const output = { type: 'function_call_output' as const, call_id, output: 'sunny' };
  const answered = await client.responses.create({
    model: APP,
    previous_response_id: asked.id,
    input: [output],
    tools,
  });
  expect(answered.output_text).toBe('Got [{"result":"sunny"}]');
  expect(answered.id).not.toBe(asked.id);
  // Both stay as they were.
  expect((await client.responses.retrieve(asked.id)).output).toEqual(asked.output);
  expect((await elsewhere().responses.retrieve(answered.id)).output).toEqual(answered.output);
});

test('a confirmation is an approval request, and what it allows runs once', async () => {
  const asked = await client.responses.create({ model: APP, input: 'pay' });
  expect(asked.output).toMatchObject([{ type: 'mcp_approval_request', name: 'pay', arguments: '{"amount":5}' }]);
  expect(paid).not.toHaveBeenCalled();
  const approval_request_id = asked.output[0]?.id ?? '';
  const approval = { type: 'mcp_approval_response' as const, approval_request_id, approve: true };
  const done = await client.responses.create({ model: APP, previous_response_id: asked.id, input: [approval] });
  expect(done.output).toMatchObject([{ type: 'mcp_call', name: 'pay', output: '{"paid":true}' }, { type: 'message' }]);
  expect(paid).toHaveBeenCalledTimes(1);
});

test('a tool of the agent that fails is a failed call, with its error as the protocol has it', async () => {
  const stream = client.responses.stream({ model: APP, input: 'tear' });
  const types: string[] = [];
  for await (const event of stream) types.push(event.type);
  expect(types).toContain('response.mcp_call.failed');
  const content = [{ type: 'text', text: 'It is torn.' }];
  const error = { type: 'mcp_tool_execution_error', content };
  const made = await stream.finalResponse();
  expect(made.output[0]).toMatchObject({ type: 'mcp_call', name: 'tear', status: 'failed', output: null, error });
  expect((await elsewhere().responses.retrieve(made.id)).output[0]).toEqual(made.output[0]);
});

test('in the background: cancelled on another replica, resumed as a stream', async () => {
  const begun = await client.responses.create({ model: APP, input: 'speak', background: true, stream: true });
  const iterator = begun[Symbol.asyncIterator]();
  const created = (await iterator.next()).value as OpenAI.Responses.ResponseCreatedEvent;
  const call = await spoken.called(1);
  await call.say('Hello to everybody ');
  await call.say('who reads this ');
  await iterator.return?.();
  const resumed = await elsewhere().responses.retrieve(created.response.id, { stream: true, starting_after: 0 });
  call.end();
  let text = '';
  let last: OpenAI.Responses.ResponseStreamEvent | undefined;
  for await (const event of resumed) {
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  expect(text).toBe('Hello to everybody who reads this ');
  expect(last?.type).toBe('response.completed');

  const long = await client.responses.create({ model: APP, input: 'speak', background: true });
  expect(['queued', 'in_progress']).toContain(long.status);
  await spoken.called(2);
  expect(await elsewhere().responses.cancel(long.id)).toMatchObject({ status: 'cancelled' });
  expect(await client.responses.retrieve(long.id)).toMatchObject({ status: 'cancelled' });
});

test('a response that a newer message interrupted has failed, with the reason, whole and as a stream', async () => {
  const { id: conversation } = await client.conversations.create({});
  const sessionId = parseId('conv_', conversation)?.key.sessionId;
  const stream = await client.responses.create({ model: APP, conversation, input: 'speak', stream: true });
  await spoken.called(1);
  const newMessage = { role: 'user', parts: [{ text: 'hello' }] };
  const newer = { appName: APP, userId: 'user', sessionId, newMessage };
  expect((await app.post('/run', newer, { 'x-double-texting': 'interrupt' })).status).toBe(200);
  const events: OpenAI.Responses.ResponseStreamEvent[] = [];
  for await (const event of stream) events.push(event);
  const error = { code: 'server_error', message: expect.stringContaining('interrupted') };
  const failed = { status: 'failed', error, incomplete_details: null };
  expect(events.at(-1)).toMatchObject({ type: 'response.failed', response: failed });
  const { response } = events[0] as OpenAI.Responses.ResponseCreatedEvent;
  for (const each of [client, elsewhere()]) expect(await each.responses.retrieve(response.id)).toMatchObject(failed);
});

test('conversations: made with items, gone on with, listed, changed, deleted', async () => {
  const made = await client.conversations.create({
    metadata: { topic: 'sums' },
    items: [
      { type: 'message', role: 'user', content: 'I am Ada.' },
      { type: 'message', role: 'assistant', content: 'Hello Ada.' },
    ],
  });
  const response = await client.responses.create({ model: APP, conversation: made.id, input: 'next' });
  expect(response.conversation?.id).toBe(made.id);
  expect(JSON.stringify(requests.at(-1)?.contents)).toContain('Hello Ada.');
  const items = await client.conversations.items.list(made.id, { order: 'asc' });
  expect(items.data.map(({ type }) => type)).toEqual(['message', 'message', 'message', 'reasoning', 'message']);
  const page = await client.conversations.items.list(made.id, { order: 'asc', limit: 2 });
  expect(page.has_more).toBe(true);
  const added = await client.conversations.items.create(made.id, {
    items: [{ type: 'message', role: 'user', content: 'more' }],
  });
  expect(added.data).toHaveLength(1);
  const many = Array.from({ length: 21 }, () => ({ type: 'message' as const, role: 'user' as const, content: 'more' }));
  await expect(client.conversations.items.create(made.id, { items: many })).rejects.toMatchObject({ status: 400 });
  await expect(client.conversations.create({ items: many })).rejects.toMatchObject({ status: 400 });
  const changed = await client.conversations.update(made.id, { metadata: { topic: 'words' } });
  expect(changed.metadata).toEqual({ topic: 'words' });
  await client.conversations.delete(made.id);
  await expect(client.conversations.retrieve(made.id)).rejects.toMatchObject({ status: 404 });
});

test('a chat completion without a name leaves nothing behind', async () => {
  const before = await sessions();
  const messages = [
    { role: 'system' as const, content: 'Be brief.' },
    { role: 'user' as const, content: 'I am Ada.' },
    { role: 'assistant' as const, content: 'Hello Ada.' },
    { role: 'user' as const, content: 'who?' },
  ];
  const answer = await client.chat.completions.create({ model: APP, messages });
  expect(answer.choices[0]).toMatchObject({ finish_reason: 'stop', message: { content: 'You said who?' } });
  expect(requests.at(-1)?.contents.map(({ role }) => role)).toEqual(['user', 'model', 'user']);
  // A message of the system that leads is the instruction, where the credential may change that.
  expect(requests.at(-1)).toMatchObject({
    instruction: 'Be brief.',
    contents: [{ parts: [{ text: 'I am Ada.' }] }, {}, {}],
  });
  const stream = client.chat.completions.stream({ model: APP, messages, stream_options: { include_usage: true } });
  expect((await stream.finalChatCompletion()).choices[0]?.message.content).toBe('You said who?');
  expect((await stream.totalUsage()).total_tokens).toBeGreaterThanOrEqual(0);
  // The last answer is told before its session is gone.
  await expect.poll(sessions).toHaveLength(before.length);
});

test.each([
  {
    what: 'behind a prompt',
    messages: [
      { role: 'user', content: 'one' },
      { role: 'system', content: 'Be brief.' },
    ],
  },
  { what: 'alone', messages: [{ role: 'system', content: 'Be brief.' }] },
  {
    what: 'with what a template fills in',
    messages: [
      { role: 'system', content: 'Say {name}.' },
      { role: 'user', content: 'one' },
    ],
  },
] as const)('a message of the system $what is the word of the application', async ({ messages }) => {
  await client.chat.completions.create({ model: APP, messages: [...messages] });
  expect(requests.at(-1)?.instruction).toBe('Answer.');
  expect(JSON.stringify(requests.at(-1)?.contents)).toContain('The application says:');
});

test('a chat completion without a name whose client leaves ends, and leaves nothing behind', async () => {
  const before = await sessions();
  const leave = new AbortController();
  const ask = { model: APP, messages: [{ role: 'user' as const, content: 'speak' }] };
  const left = client.chat.completions.create(ask, { signal: leave.signal });
  await spoken.called(1);
  leave.abort();
  await expect(left).rejects.toThrow('aborted');
  await expect.poll(sessions).toHaveLength(before.length);
});

test('a chat completion with tools of the client', async () => {
  const tools = [{ type: 'function' as const, function: { name: 'get_weather', parameters: { type: 'object' } } }];
  const ask = { role: 'user' as const, content: 'weather' };
  const asked = await client.chat.completions.create({ model: APP, messages: [ask], tools });
  const [choice] = asked.choices;
  expect(choice).toMatchObject({
    finish_reason: 'tool_calls',
    message: { tool_calls: [{ function: { name: 'get_weather' } }] },
  });
  const calls = choice?.message.tool_calls ?? [];
  const result = { role: 'tool' as const, tool_call_id: calls[0]?.id ?? '', content: 'sunny' };
  const assistant = { role: 'assistant' as const, content: null, tool_calls: calls };
  const done = await client.chat.completions.create({ model: APP, messages: [ask, assistant, result], tools });
  expect(done.choices[0]?.message.content).toBe('Got [{"result":"sunny"}]');
  const inParts = { ...result, content: ['sunny', 'in Bern'].map((text) => ({ type: 'text' as const, text })) };
  const again = await client.chat.completions.create({ model: APP, messages: [ask, assistant, inParts], tools });
  expect(again.choices[0]?.message.content).toBe('Got [{"result":"sunny\\nin Bern"}]');
});

const forecast = { name: 'get_weather', parameters: { type: 'object' } };
const search = { name: 'search_web', parameters: { type: 'object' } };

test.each([
  { choice: 'required', chosen: 'required', offered: 2 },
  { choice: { type: 'function', function: { name: 'search_web' } }, chosen: { name: 'search_web' }, offered: 2 },
  {
    choice: {
      type: 'allowed_tools',
      allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'search_web' } }] },
    },
    chosen: 'required',
    offered: 1,
  },
  { choice: 'auto', chosen: undefined, offered: 2 },
  { choice: 'none', chosen: undefined, offered: 0 },
])('the first call of the model has to call a tool of the client: $choice', async ({ choice, chosen, offered }) => {
  const own = agents.get(APP) as HostedAgent;
  const agentTools = (await own.prepare({}, new AbortController().signal, 'user')).tools.length;
  const ask = (content: string) => ({
    model: APP,
    messages: [{ role: 'user', content }],
    tools: [forecast, search].map((each) => ({ type: 'function', function: each })),
    tool_choice: choice,
  });
  // The agent calls a tool of its own first: what comes behind that is not chosen.
  await client.chat.completions.create(ask('note') as never);
  expect(requests.map(({ toolChoice }) => toolChoice)).toEqual([chosen, undefined]);
  expect(requests[0]?.tools).toHaveLength(agentTools + offered);
  requests.length = 0;
  const { function: called, allowed_tools: allowed, ...flat } = choice as Record<string, unknown>;
  const plain = typeof choice === 'string' ? choice : { ...flat, ...(called as object), ...(allowed as object) };
  const tools = [forecast, search].map((each) => ({ type: 'function', strict: false, ...each }));
  const answered = await client.responses.create({ model: APP, input: 'note', tools, tool_choice: plain } as never);
  expect(requests.map(({ toolChoice }) => toolChoice)).toEqual([chosen, undefined]);
  expect(answered).toMatchObject({ tool_choice: plain });
});

test('who may only invoke chooses its own tools, and none of the agent', async () => {
  const keys = join(mkdtempSync(join(tmpdir(), 'keys-')), 'keys');
  writeFileSync(keys, guest.entry);
  const guarded = await startOn(app.databaseUrl, { DOORS: 'openai', RUNTIME_API_KEYS_FILE: keys }, { agents });
  try {
    const limited = new OpenAI({ baseURL: `${guarded.url}/v1`, apiKey: guest.key, maxRetries: 0 });
    const ask = { model: APP, messages: [{ role: 'user' as const, content: 'weather' }] };
    const tools = [{ type: 'function' as const, function: forecast }];
    const asked = await limited.chat.completions.create({ ...ask, tools, tool_choice: 'required' });
    expect(asked.choices[0]).toMatchObject({ finish_reason: 'tool_calls' });
    expect(requests.at(-1)?.toolChoice).toBe('required');
    await expect(limited.chat.completions.create({ ...ask, tool_choice: 'required' })).rejects.toMatchObject({
      status: 403,
    });
    const system = { role: 'system' as const, content: 'Be brief.' };
    await limited.chat.completions.create({ model: APP, messages: [system, ...ask.messages] });
    expect(JSON.stringify(requests.at(-1)?.contents)).toContain('The application says:');
    expect(requests.at(-1)?.instruction).toBe('Answer.');
  } finally {
    await guarded.close();
    rmSync(dirname(keys), { recursive: true });
  }
  // In mode `local` a client may do all.
  await client.chat.completions.create({
    model: APP,
    messages: [{ role: 'user', content: 'note' }],
    tool_choice: 'required',
  });
  expect(requests.map(({ toolChoice }) => toolChoice).slice(-2)).toEqual(['required', undefined]);
});

test('an answer with a form: the agent is asked again until it fits', async () => {
  const form = z.object({ city: z.string() });
  const parsed = await client.responses.parse({
    model: APP,
    input: 'form',
    text: { format: zodTextFormat(form, 'place') },
  });
  expect(parsed.output_parsed).toEqual({ city: 'Bern' });
  expect(requests).toHaveLength(2);
  expect(requests[0]?.outputSchema).toMatchObject({ properties: { city: { type: 'string' } } });
  const chat = await client.chat.completions.parse({
    model: APP,
    messages: [{ role: 'user', content: 'form' }],
    response_format: zodResponseFormat(form, 'place'),
  });
  expect(chat.choices[0]?.message.parsed).toEqual({ city: 'Bern' });
  const sloppy = await client.responses.create({
    model: APP,
    input: 'form',
    text: { format: { type: 'json_object' } },
  });
  expect(JSON.parse(sloppy.output_text)).toEqual({ city: 'Bern' });
  const streamed = client.responses.stream({
    model: APP,
    input: 'form',
    text: { format: zodTextFormat(form, 'place') },
  });
  expect((await streamed.finalResponse()).output_parsed).toEqual({ city: 'Bern' });
  await expect(
    client.responses.create({ model: APP, input: 'x', text: { format: { type: 'grammar' } as never } }),
  ).rejects.toMatchObject({ status: 400, param: 'text.format.type' });
});

test('a named chat goes on in its session; what is asked beside it leaves nothing in that', async () => {
  const headers = { 'X-OpenWebUI-Chat-Id': 'chat-1', 'X-OpenWebUI-User-Id': 'ada' };
  const say = (...contents: string[]) =>
    client.chat.completions.create(
      {
        model: APP,
        messages: contents.map((content, index) => ({ role: index % 2 ? 'assistant' : 'user', content }) as const),
      },
      { headers },
    );
  await say('one');
  await say('### Task: a title for: one');
  const second = await say('one', 'You said one', 'two');
  expect(second.choices[0]?.message.content).toBe('You said two');
  const { events } = (await app.get(`/apps/${APP}/users/ada/sessions/chat-1`)).body as { events: unknown[] };
  expect(events).toHaveLength(4);
});

describe('the messages of a named chat win over its session', () => {
  type Message = OpenAI.Chat.ChatCompletionMessageParam;
  const said = (text: string): Message[] => [
    { role: 'user', content: text },
    { role: 'assistant', content: `You said ${text}` },
  ];
  const one: Message = { role: 'user', content: 'one' };
  const three: Message = { role: 'user', content: 'three' };
  const known = [...said('one'), ...said('two')];
  const begun = async (name: string) => {
    const ask = (messages: Message[]) =>
      client.chat.completions.create({ model: APP, messages }, { headers: { 'X-Session-Id': name } });
    await ask([one]);
    await ask(known.slice(0, 3));
    requests.length = 0;
    const countEvents = async () =>
      ((await app.get(`/apps/${APP}/users/user/sessions/${name}`)).body as { events: unknown[] }).events.length;
    return { ask, countEvents };
  };

  test.each<[what: string, messages: Message[]]>([
    [
      'an answer that was made again',
      [...said('one'), { role: 'user', content: 'two' }, { role: 'assistant', content: 'Another.' }, three],
    ],
    ['an edited prompt', [{ role: 'user', content: 'uno' }, ...known.slice(1), three]],
    ['an edited answer', [one, { role: 'assistant', content: 'Sure.' }, ...known.slice(2), three]],
    ['an edited last prompt', [...said('one'), ...said('dos'), three]],
    ['an answer that was stopped', [...known.slice(0, 3), { role: 'assistant', content: 'You sa' }, three]],
    ['a turn that was deleted', [...said('two'), three]],
  ])('%s', async (what, messages) => {
    const { ask, countEvents } = await begun(`wins-${what}`);
    await ask(messages);
    const told = requests.at(-1)?.contents.map(({ parts }) => parts?.map(({ text }) => text).join(''));
    expect(told).toEqual(messages.map(({ content }) => content));
    expect(await countEvents()).toBe(4);
  });

  test.each<[what: string, messages: Message[]]>([
    ['the same words', known],
    ['a blank at the end', [one, { role: 'assistant', content: 'You said one\n' }, ...known.slice(2)]],
    ['parts', [{ role: 'user', content: [{ type: 'text', text: 'one' }] }, ...known.slice(1)]],
    ['an instruction of now', [{ role: 'system', content: `It is ${Date.now()}.` }, ...known]],
    ['thoughts', [one, { role: 'assistant', content: '<think>Thinking.</think>You said one' }, ...known.slice(2)]],
  ])('%s: it goes on', async (what, messages) => {
    const { ask, countEvents } = await begun(`goes-on-${what}`);
    await ask([...messages, three]);
    expect(await countEvents()).toBe(6);
  });

  test('a call of a tool of the client, and a picture, are told apart from none', async () => {
    const headers = { 'X-Session-Id': 'with-calls' };
    const tools = [{ type: 'function' as const, function: forecast }];
    const ask = (messages: Message[]) => client.chat.completions.create({ model: APP, messages, tools }, { headers });
    const url = 'data:image/png;base64,iVBORw0KGgo=';
    const first: Message = {
      role: 'user',
      content: [
        { type: 'image_url', image_url: { url } },
        { type: 'text', text: 'weather' },
      ],
    };
    const asked = (await ask([first])).choices[0]?.message as OpenAI.Chat.ChatCompletionMessage;
    const result: Message = { role: 'tool', tool_call_id: asked.tool_calls?.[0]?.id ?? '', content: 'sunny' };
    const got = (await ask([first, asked, result])).choices[0]?.message as OpenAI.Chat.ChatCompletionMessage;
    await ask([first, asked, result, got, three]);
    const { events } = (await app.get(`/apps/${APP}/users/user/sessions/with-calls`)).body as { events: unknown[] };
    expect(events).toHaveLength(6);
    const changed = { type: 'image_url' as const, image_url: { url: 'data:image/png;base64,iVBORw0KGgoA' } };
    await ask([{ role: 'user', content: [changed, { type: 'text', text: 'weather' }] }, asked, result, got, three]);
    expect(JSON.stringify(requests.at(-1)?.contents)).toContain('iVBORw0KGgoA');
  });
});

test('a chat that begins costs the round trips of an invocation, one that goes on two reads more', async () => {
  const ask = (session: string, contents: readonly string[]) => {
    const messages = contents.map((content, index) => ({ role: index % 2 ? 'assistant' : 'user', content }) as const);
    const headers = { 'X-Session-Id': session };
    return client.chat.completions.create({ model: APP, messages }, { headers });
  };
  expect(await leastStatements(2, (run) => ask(`begun-${run}`, ['one']))).toBe(2);
  const said = ['one'];
  const goOn = async (run: number) => {
    said.push(`You said ${said.at(-1)}`, `turn ${run}`);
    await ask('begun-0', said);
  };
  expect(await leastStatements(4, goOn)).toBe(4);
});

test('a first prompt goes on with a session that was made for it, and the same key answers it once', async () => {
  await app.post(`/apps/${APP}/users/ada/sessions`, { sessionId: 'made', state: { plan: 'x' } });
  const ask = (headers: Record<string, string>, content = 'one') =>
    client.chat.completions.create(
      { model: APP, user: 'ada', messages: [{ role: 'user', content }] },
      { headers: { 'X-Session-Id': 'made', ...headers } },
    );
  const first = await ask({ 'Idempotency-Key': 'k1' });
  const again = await ask({ 'Idempotency-Key': 'k1' });
  expect(again.choices).toEqual(first.choices);
  expect(requests).toHaveLength(1);
  await expect(ask({ 'Idempotency-Key': 'k1' }, 'two')).rejects.toMatchObject({ type: 'invalid_request_error' });
  const { events, state } = (await app.get(`/apps/${APP}/users/ada/sessions/made`)).body as Record<string, object>;
  expect(events).toHaveLength(2);
  expect(state).toEqual({ plan: 'x' });
});

test('refusals have the form of the protocol', async () => {
  const create = (body: object) => client.responses.create({ model: APP, input: 'x', ...body } as never);
  await expect(create({ model: 'none' })).rejects.toMatchObject({
    status: 404,
    code: 'model_not_found',
    param: 'model',
  });
  await expect(create({ tools: [{ type: 'web_search' }] })).rejects.toMatchObject({ status: 400, param: 'tools[0]' });
  for (const tool_choice of [
    { type: 'function', name: 'note' },
    { type: 'mcp', server_label: APP },
  ])
    await expect(create({ tool_choice })).rejects.toMatchObject({ status: 400, param: 'tool_choice' });
  await expect(create({ input: undefined })).rejects.toMatchObject({ status: 400, type: 'invalid_request_error' });
  await expect(create({ input: [{ type: 'function_call_output', call_id: 'c', output: '1' }] })).rejects.toMatchObject({
    status: 400,
  });
  await expect(client.conversations.retrieve('conv_\u0001')).rejects.toMatchObject({
    status: 400,
    param: 'conversation_id',
  });
  const failed = await create({ input: 'fail' });
  const error = { code: 'server_error', message: expect.any(String), type: 'server_error', param: null };
  expect(failed).toMatchObject({ status: 'failed', error });
  await expect(
    client.chat.completions.create({ model: APP, messages: [{ role: 'user', content: 'pay' }] }),
  ).rejects.toMatchObject({ status: 409, code: 'approval_required' });
});

test('the reader of the AI SDK sees why a response failed', async () => {
  const models = createOpenAI({ baseURL: `${app.url}/v1`, apiKey: 'none' });
  const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'fail' }] }];
  await expect(models.responses(APP).doGenerate({ prompt })).rejects.toThrow('failed unexpectedly');
  await expect(models.chat(APP).doGenerate({ prompt })).rejects.toThrow('failed unexpectedly');
  await expect(models.responses(APP).doStream({ prompt })).rejects.toThrow('failed unexpectedly');
});

test.each([
  ['POST', '/v1/embeddings', 404],
  ['GET', '/v1/files', 404],
  ['POST', '/v1/images/generations', 404],
  ['GET', '/v1/chat/completions', 405],
])('%s %s says what there is not', async (method, path, status) => {
  const refused = await app.send(method, path, method === 'POST' ? '{}' : undefined);
  const message = `There is no ${method} ${path} here.`;
  expect(refused).toMatchObject({ status, body: { error: { message, type: expect.any(String) } } });
});

test('the package for agents: a tool of its own, an approval, a conversation of the service', async () => {
  const provider = new OpenAIProvider({ openAIClient: client as never, useResponses: true });
  const runner = new Runner({ modelProvider: provider, tracingDisabled: true });
  const weather = agentTool({
    name: 'get_weather',
    description: 'The weather.',
    parameters: z.object({ city: z.string() }),
    execute: ({ city }) => Promise.resolve(`sunny in ${city}`),
  });
  const agent = new Agent({ name: 'Ada', instructions: 'Be brief.', model: APP, tools: [weather] });
  const result = await runner.run(agent, 'weather');
  expect(result.finalOutput).toContain('sunny in Bern');
  const session = new OpenAIConversationsSession({ client: client as never });
  const first = await runner.run(agent, 'weather', { session });
  expect(first.finalOutput).toContain('sunny in Bern');
  const streamed = await runner.run(agent, 'hello', { stream: true });
  await streamed.completed;
  expect(streamed.finalOutput).toContain('You said hello');
});

test.each([
  { decide: 'approve', paidTimes: 1, says: '"paid":true' },
  { decide: 'reject', paidTimes: 0, says: 'rejected' },
] as const)('the package for agents: a person is asked about a tool of the agent: $decide', async (each) => {
  const provider = new OpenAIProvider({ openAIClient: client as never, useResponses: true });
  const runner = new Runner({ modelProvider: provider, tracingDisabled: true });
  const own = hostedMcpTool({ serverLabel: APP, serverUrl: app.url, requireApproval: 'always' });
  const agent = new Agent({ name: 'Ada', model: APP, tools: [own] });
  const { id: conversationId } = await client.conversations.create();
  const asked = await runner.run(agent, 'pay', { conversationId });
  expect(asked.interruptions.map(({ rawItem }) => rawItem.providerData)).toMatchObject([
    { type: 'mcp_approval_request', name: 'pay', arguments: '{"amount":5}' },
  ]);
  expect(paid).not.toHaveBeenCalled();
  for (const interruption of asked.interruptions) asked.state[each.decide](interruption);
  const done = await runner.run(agent, asked.state, { conversationId });
  expect(paid).toHaveBeenCalledTimes(each.paidTimes);
  expect(done.interruptions).toEqual([]);
  expect(done.finalOutput).toContain(each.says);
});

test('a user sees no response of another', async () => {
  const made = await client.responses.create({ model: APP, input: 'mine', user: 'ada' });
  await expect(
    client.responses.create({ model: APP, input: 'x', user: 'bob', previous_response_id: made.id }),
  ).rejects.toMatchObject({ status: 404 });
});
