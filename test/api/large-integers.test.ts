import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../src/agent/definition/agent-module.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { createModel } from '../../src/agent/models/create-model.ts';
import type { JsonObject } from '../../src/core/content.ts';
import { parseExactJson, toExactInteger } from '../../src/core/exact-json.ts';
import { sendChat } from '../support/chat-wire.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { readBody } from '../support/edge.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * Integers that no float holds, from the model to the tool, into the store and out of every door: digit by digit. The
 * model is a server that speaks chat completions.
 */

/** What the model calls next, with the text of the arguments; without a call it says `done`. */
let next: { name: string; args: string } | undefined;
let requests: string[] = [];

const server = createServer((request, response) => void respond(request, response));

async function respond(request: IncomingMessage, response: ServerResponse) {
  const body = (await readBody(request)).toString();
  requests.push(body);
  const call = next;
  next = undefined;
  const id = `call_${requests.length}`;
  const called = call && [{ index: 0, id, type: 'function', function: { name: call.name, arguments: call.args } }];
  const delta = called ? { tool_calls: called } : { content: 'done' };
  const chunk = { id: 'c', model: 'm', choices: [{ index: 0, delta, finish_reason: called ? 'tool_calls' : 'stop' }] };
  sendChat(response, JSON.parse(body) as object, [chunk]);
}

const tool = (name: string, more: Partial<Tool>): Tool => ({
  name,
  description: '',
  parameters: { type: 'object' },
  needsConfirmation: false,
  run: async (args, { actions }) => {
    actions.stateDelta = { seen: args };
    return { got: args };
  },
  ...more,
});
const tools = [
  tool('echo', {}),
  tool('pay', { needsConfirmation: true }),
  tool('later', { longRunning: true, run: async () => undefined }),
  defineTool({
    name: 'big',
    description: '',
    parameters: z.object({ id: z.bigint(), small: z.bigint() }),
    run: async (args) => ({ type: typeof args.id, ...args }),
  }),
  defineTool({
    name: 'small',
    description: '',
    parameters: z.object({ id: z.number() }),
    run: async ({ id }) => ({ id }),
  }),
  defineTool({
    name: 'sum',
    description: '',
    parameters: { type: 'object' },
    run: async ({ id }) => Number(id) + 1,
  }),
];

let app: TestApp;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  const model = createModel({ provider: 'openai-compatible', baseUrl, maxRetries: 0 });
  app = await startApp({}, { agents: hostAgent(model, tools) });
});
afterAll(async () => {
  await app.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const USER = '/apps/harness_agent/users/user';
const VALUE = {
  id: toExactInteger('1234567890123456789'),
  list: [toExactInteger('18446744073709551615'), { x: toExactInteger('-9007199254740993') }],
  power: toExactInteger('1152921504606846976'),
  long: toExactInteger('1234567890123456789012345678901234567890'),
};
const TEXT = JSON.stringify(VALUE);
const DIGITS = TEXT.match(/\d{16,}/g) ?? [];
/** The integers of the value that a text lacks. */
const missingIn = (text: string) => DIGITS.filter((digits) => !text.includes(digits));

const message = (text: string) => ({ role: 'user', parts: [{ text }] });
const run = (sessionId: string, more: object = {}) =>
  app.post('/run', { appName: 'harness_agent', userId: 'user', sessionId, newMessage: message('go'), ...more });

interface Session {
  state: JsonObject;
  events: { content?: { parts: { functionCall?: JsonObject; functionResponse?: { response: JsonObject } }[] } }[];
}
const read = async (path: string) => {
  const { status, text } = await app.get(path);
  expect(status).toBe(200);
  return parseExactJson(text) as Session;
};
const partsOf = ({ events }: Session) => events.flatMap(({ content }) => content?.parts ?? []);
const callOf = (session: Session) => partsOf(session).find(({ functionCall }) => functionCall)?.functionCall?.['args'];
const responseOf = (session: Session) =>
  partsOf(session).find(({ functionResponse }) => functionResponse)?.functionResponse?.response;

const integer = fc.bigInt({ min: -(10n ** 40n), max: 10n ** 40n }).map((value) => toExactInteger(String(value)));
const key = fc.stringMatching(/^[a-z]{1,8}$/);
const { object } = fc.letrec<{ value: unknown; object: JsonObject }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    { weight: 5, arbitrary: integer },
    { weight: 1, arbitrary: fc.constantFrom(null, true, 'text', '12345678901234567890', 0.5) },
    { weight: 1, arbitrary: fc.array(tie('value'), { maxLength: 3 }) },
    { weight: 1, arbitrary: tie('object') },
  ),
  object: fc.dictionary(key, tie('value'), { maxKeys: 4 }),
}));

test('any JSON goes from state and model to the tool, the store, a fork, an export and back', {
  timeout: 5 * MINUTE,
}, async () => {
  let count = 0;
  await fc.assert(
    fc.asyncProperty(object, async (sent) => {
      const text = JSON.stringify(sent);
      const value = parseExactJson(text);
      const [id, path] = [`s${(count += 1)}`, `${USER}/sessions`];
      requests = [];
      await app.post(path, `{"sessionId":"${id}","state":{"given":${text}}}`);
      next = { name: 'echo', args: text };
      const delta = await app.post(
        '/run',
        `{"appName":"harness_agent","userId":"user","sessionId":"${id}","stateDelta":{"later":${text}},
          "newMessage":{"role":"user","parts":[{"text":"go"}]}}`,
      );
      expect(delta.status).toBe(200);
      const session = await read(`${path}/${id}`);
      expect(session.state).toEqual({ given: value, later: value, seen: value });
      expect([callOf(session), responseOf(session)]).toEqual([value, { got: value }]);
      // What the model is told of it.
      const { messages } = parseExactJson(requests[1] ?? '') as {
        messages: { tool_calls?: { function: { arguments: string } }[]; role: string; content: string }[];
      };
      const told = messages.find(({ tool_calls: calls }) => calls)?.tool_calls?.[0]?.function.arguments ?? '';
      expect(parseExactJson(told)).toEqual(value);
      expect(parseExactJson(messages.find(({ role }) => role === 'tool')?.content ?? '')).toEqual({ got: value });

      await app.post(`${path}/${id}/fork`, { sessionId: `f${id}` });
      expect((await read(`${path}/f${id}`)).state).toEqual(session.state);
      // What was read is sent again.
      const { events } = (await app.get(`${path}/${id}`)).body as { events: unknown[] };
      expect(events.length).toBeGreaterThan(0);
      const whole = (await app.get(`${path}/${id}`)).text;
      const again = `{"sessionId":"c${id}","events":${whole.slice(whole.indexOf('"events":') + 9, whole.lastIndexOf(']') + 1)}}`;
      expect((await app.post(path, again)).status).toBe(200);
      expect(callOf(await read(`${path}/c${id}`))).toEqual(value);
    }),
    { numRuns: 12 },
  );
});

test('an export holds the digits, and an import brings them back', async () => {
  await app.post('/apps/harness_agent/users/mover/sessions', `{"sessionId":"e","state":{"given":${TEXT}}}`);
  const lines = (await app.get('/apps/harness_agent/users/mover/export')).text;
  expect(missingIn(lines)).toEqual([]);
  await app.send('DELETE', '/apps/harness_agent/users/mover/sessions/e');
  const imported = await app.post('/apps/harness_agent/users/mover/import', lines, {
    'content-type': 'application/x-ndjson',
  });
  expect([imported.status, imported.text]).toEqual([200, expect.any(String)]);
  expect((await read('/apps/harness_agent/users/mover/sessions/e')).state).toEqual({ given: VALUE });
});

test('a confirmed call acts on what was shown', async () => {
  await app.post(`${USER}/sessions`, { sessionId: 'confirm' });
  next = { name: 'pay', args: TEXT };
  const asked = await run('confirm');
  expect(missingIn(asked.text)).toEqual([]);
  const request = partsOf({ state: {}, events: asked.body as Session['events'] })
    .map(({ functionCall }) => functionCall)
    .find((call) => call?.['name'] === 'adk_request_confirmation');
  const functionResponse = { id: request?.['id'], name: 'adk_request_confirmation', response: { confirmed: true } };
  await run('confirm', { newMessage: { role: 'user', parts: [{ functionResponse }] } });
  const session = await read(`${USER}/sessions/confirm`);
  expect(session.state).toEqual({ seen: VALUE });
});

test('a tool with a bigint gets it whole, one with a number refuses it in words, and none is rounded', async () => {
  const answerTo = async (name: string, args: string) => {
    const id = `typed-${name}`;
    await app.post(`${USER}/sessions`, { sessionId: id });
    next = { name, args };
    await run(id);
    return responseOf(await read(`${USER}/sessions/${id}`));
  };
  expect(await answerTo('big', '{"id":1234567890123456789,"small":5}')).toEqual({
    type: 'bigint',
    id: VALUE.id,
    small: 5,
  });
  const refusal = { error: expect.stringContaining('a number of that many digits') as string };
  expect(await answerTo('small', '{"id":1234567890123456789}')).toEqual(refusal);
  expect(await answerTo('sum', '{"id":1234567890123456789}')).toEqual(refusal);
});

test('an artifact keeps them in what is said of it', async () => {
  await app.post(`${USER}/sessions`, { sessionId: 'artifact' });
  const path = `${USER}/sessions/artifact/artifacts`;
  const saved = await app.post(
    path,
    `{"filename":"a","artifact":{"text":"x","partMetadata":{"m":${TEXT}}},"customMetadata":{"c":${TEXT}}}`,
  );
  expect([saved.status, missingIn(saved.text)]).toEqual([200, []]);
  expect(missingIn((await app.get(`${path}/a`)).text)).toEqual([]);
});

test.each<[door: string, path: string, body: object, headers?: Record<string, string>]>([
  [
    'run_sse',
    '/run_sse',
    { appName: 'harness_agent', userId: 'user', sessionId: 'door', newMessage: message('go'), streaming: true },
  ],
  [
    'A2A',
    '/a2a/harness_agent',
    {
      jsonrpc: '2.0',
      id: 1,
      method: 'SendMessage',
      params: { message: { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'go' }] } },
    },
    { 'a2a-version': '1.0' },
  ],
  [
    'A2A 0.3',
    '/a2a/harness_agent',
    {
      jsonrpc: '2.0',
      id: 1,
      method: 'message/send',
      params: { message: { kind: 'message', messageId: 'm3', role: 'user', parts: [{ kind: 'text', text: 'go' }] } },
    },
  ],
  [
    'AG-UI',
    '/ag-ui/harness_agent',
    {
      threadId: 'ag-ui',
      runId: 'r',
      state: {},
      messages: [{ id: 'm', role: 'user', content: 'go' }],
      tools: [],
      context: [],
      forwardedProps: {},
    },
  ],
  [
    'AI SDK',
    '/ai-sdk/harness_agent/chat',
    {
      id: 'ai-sdk',
      messages: [{ id: 'm1', role: 'user', parts: [{ type: 'text', text: 'go' }] }],
      trigger: 'submit-message',
    },
  ],
  ['invoke', '/invoke', { prompt: 'go' }],
  ['OpenAI responses', '/v1/responses', { model: 'harness_agent', input: 'go' }],
])('%s tells the arguments of a call', async (door, path, body, headers) => {
  await app.post(`${USER}/sessions`, { sessionId: 'door' });
  // Doors show a call at the latest where it waits for a person.
  next = { name: 'pay', args: TEXT };
  const { status, text } = await app.post(path, body, headers);
  expect([door, status, missingIn(text)]).toEqual([door, 200, []]);
});

test('the OpenAI door tells the arguments of a tool of the client, and takes its history', async () => {
  const theirs = [{ type: 'function', function: { name: 'theirs', parameters: { type: 'object' } } }];
  const messages: object[] = [{ role: 'user', content: 'go' }];
  next = { name: 'theirs', args: TEXT };
  const first = await app.post('/v1/chat/completions', { model: 'harness_agent', messages, tools: theirs });
  expect([first.status, missingIn(first.text)]).toEqual([200, []]);
  const [choice] = (first.body as { choices: { message: { tool_calls: { id: string }[] } }[] }).choices;
  const answer = { role: 'tool', tool_call_id: choice?.message.tool_calls[0]?.id, content: TEXT };
  requests = [];
  const second = await app.post('/v1/chat/completions', {
    model: 'harness_agent',
    messages: [...messages, choice?.message, answer],
    tools: theirs,
  });
  expect(second.status).toBe(200);
  expect(missingIn(requests.at(-1) ?? '')).toEqual([]);
});

test('members with a type refuse such an integer', async () => {
  const { status, body } = await app.send(
    'PUT',
    '/apps/harness_agent/budgets',
    '{"appliesTo":"app","period":"day","maxTokens":12345678901234567890}',
  );
  expect([status, body]).toMatchObject([422, { detail: [{ loc: ['body', 'maxTokens'] }] }]);
  const asObject = await app.post(`${USER}/sessions`, '{"state":12345678901234567890}');
  expect(asObject.status).toBe(422);
});

test('what clients bring as data and answers reaches the model', async () => {
  const data = { messageId: 'data', role: 'ROLE_USER', parts: [{ data: 'DATA' }, { text: 'go' }] };
  requests = [];
  const sent = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message: data } });
  const { status } = await app.post('/a2a/harness_agent', sent.replace('"DATA"', TEXT), { 'a2a-version': '1.0' });
  expect([status, missingIn(requests.at(-1) ?? '')]).toEqual([200, []]);

  await app.post(`${USER}/sessions`, { sessionId: 'brought' });
  next = { name: 'later', args: '{}' };
  const asked = await run('brought');
  const call = partsOf({ state: {}, events: asked.body as Session['events'] }).find(({ functionCall }) => functionCall);
  const functionResponse = { id: call?.functionCall?.['id'], name: 'later', response: 'RESPONSE' };
  const body = { appName: 'harness_agent', userId: 'user', sessionId: 'brought' };
  const answer = JSON.stringify({ ...body, newMessage: { role: 'user', parts: [{ functionResponse }] } });
  requests = [];
  expect((await app.post('/run', answer.replace('"RESPONSE"', TEXT))).status).toBe(200);
  expect(missingIn(requests.at(-1) ?? '')).toEqual([]);
  expect(responseOf(await read(`${USER}/sessions/brought`))).toEqual(VALUE);
});

test('a replay compares them as values', async () => {
  await app.post(`${USER}/sessions`, { sessionId: 'replayed' });
  next = { name: 'echo', args: TEXT };
  const [first] = (await run('replayed')).body as { invocationId: string }[];
  const path = `${USER}/sessions/replayed/invocations/${first?.invocationId}/replay`;
  expect((await app.post(path, {})).body).toMatchObject({ status: 'same' });
});
