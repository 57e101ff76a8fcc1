import { mkdtemp, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AgentCard, generateAgentCardSignature, Task } from '@a2a-js/sdk';
import { AgentEvent, type AgentExecutor, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, UserBuilder } from '@a2a-js/sdk/server/express';
import express from 'express';
import { exportJWK, FlattenedSign, generateKeyPair } from 'jose';
import { Client } from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import type { ModelRequest } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { deriveId } from '../../src/agent/loop/invocation-state.ts';
import { getFunctionResponses } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { startConsentIssuer } from '../support/consent-issuer.ts';
import { readBody } from '../support/edge.ts';
import { startStrippingProxy } from '../support/stripping-proxy.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';

/** Agents of other services, as tools of one here and handed over to. */

const answersOf = ({ contents }: ModelRequest) => getFunctionResponses(contents.at(-1)).map(({ response }) => response);
const wordOf = ({ contents }: ModelRequest) => contents.at(-1)?.parts?.at(-1)?.text ?? '';

/** Starts a server until the test ends. @returns its address */
async function startServer(serve: RequestListener): Promise<string> {
  const server = createServer(serve).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Starts a service whose agent hands each request on to another one. */
async function startFront(
  remote: { url: string; headers?: Record<string, string>; keys?: string },
  { maxLlmCalls = 100, asTool = true, maxOutputTokens = 0 } = {},
): Promise<TestApp> {
  const model = scriptedModel([
    (request: ModelRequest) => {
      const answers = answersOf(request);
      if (answers.length > 0) return [{ text: `Got ${JSON.stringify(answers)}` }];
      if (asTool) return [callPart('helper', { request: wordOf(request) })];
      return [callPart('transfer_to_agent', { agent_name: 'helper' })];
    },
  ]);
  const of = { description: '', instruction: '', tools: [], skills: [], mcpServers: [] };
  const sampling = maxOutputTokens ? { maxOutputTokens } : {};
  const helper = { name: 'helper', ...of, remote, asTool, sampling };
  const app = await startApp(
    { DOORS: 'a2a' },
    { agents: hostAgent(model, [], { subAgents: [helper], maxLlmCalls }), sweepIntervalMs: 50 },
  );
  onTestFinished(() => app.close());
  await app.post(SESSIONS, { sessionId: 's' });
  return app;
}

const ask: Tool = {
  name: 'ask',
  description: '',
  parameters: { type: 'object' },
  needsConfirmation: false,
  longRunning: true,
  run: () => Promise.resolve(undefined),
};

const note: Tool = { ...ask, name: 'note', longRunning: false, run: () => Promise.resolve({ done: true }) };

/** Starts a service whose agent answers; `hold` is waited for before it does. */
async function startBack(
  hold: Promise<void> = Promise.resolve(),
  environment: Record<string, string> = {},
): Promise<TestApp & { count: () => number; bounds: () => unknown[] }> {
  let count = 0;
  const bounds: unknown[] = [];
  const scripted = scriptedModel([
    (request: ModelRequest) => {
      const answers = answersOf(request);
      if (answers.length > 0) return [{ text: `Heard ${JSON.stringify(answers)}` }];
      const word = wordOf(request);
      return word === 'ask' || word === 'note' ? [callPart(word, {})] : [{ text: `Echo ${wordOf(request)}` }];
    },
  ]);
  const model = {
    provider: 'scripted',
    async *generate(request: ModelRequest) {
      count += 1;
      bounds.push(request.sampling.maxOutputTokens);
      await hold;
      return yield* scripted.generate(request);
    },
  };
  const app = await startApp({ DOORS: 'a2a', ...environment }, { agents: hostAgent(model, [ask, note]) });
  onTestFinished(() => app.close());
  return { ...app, count: () => count, bounds: () => bounds };
}

const SESSIONS = '/apps/harness_agent/users/u/sessions';
const at = (app: TestApp) => ({ url: `${app.url}/a2a/harness_agent` });
const run = async (app: TestApp, parts: object[], more: object = {}) => {
  const body = { appName: 'harness_agent', userId: 'u', sessionId: 's', newMessage: { role: 'user', parts }, ...more };
  const answer = await app.post('/run', body);
  expect(answer.status).toBe(200);
  return answer.body as {
    invocationId: string;
    longRunningToolIds?: string[];
    content?: { parts: { text?: string; functionCall?: { id: string; name: string; args: object } }[] };
  }[];
};
const lastText = (events: Awaited<ReturnType<typeof run>>) => events.at(-1)?.content?.parts[0]?.text;

test('an agent of another service answers like a tool, in a session of its own there', async () => {
  const back = await startBack();
  const front = await startFront(at(back));
  expect(lastText(await run(front, [{ text: 'hello' }]))).toBe('Got [{"result":"Echo hello"}]');
  expect(lastText(await run(front, [{ text: 'again' }]))).toBe('Got [{"result":"Echo again"}]');
  expect((await back.get('/apps/harness_agent/users/user/sessions')).body).toHaveLength(2);
});

test('as a tool it asks our person too, whose answer it gets in a session of its own', async () => {
  const back = await startBack();
  const front = await startFront(at(back));
  await run(front, [{ text: 'ask' }]);
  const { items } = (await front.get('/tasks')).body as { items: { id: string }[] };
  expect(items).toMatchObject([{ kind: 'question', rootSessionId: 's' }]);
  await front.send('PATCH', `/tasks/${items[0]?.id ?? ''}`, { action: 'answer', answer: { answer: 'It rains.' } });
  await expect.poll(async () => (await front.get(`${SESSIONS}/s`)).text).toMatch(/Got .*It rains\./);
  expect(back.count()).toBe(2);
});

const findCall = (events: Awaited<ReturnType<typeof run>>) =>
  events.flatMap(({ content }) => content?.parts.map(({ functionCall }) => functionCall) ?? []).findLast(Boolean);

test('what it asks is asked of our person, whose answer it gets', async () => {
  const back = await startBack();
  const front = await startFront(at(back), { asTool: false });
  const asked = await run(front, [{ text: 'ask' }]);
  const call = findCall(asked);
  expect(call).toMatchObject({
    name: 'ask_person',
    args: { question: expect.stringContaining('The agent `helper` asks:'), schema: { required: ['answer'] } },
  });
  const { body } = await front.get('/tasks');
  expect(body).toMatchObject({ items: [{ kind: 'question' }] });
  const functionResponse = { id: call?.id, name: call?.name, response: { answer: 'It rains.' } };
  const done = await run(front, [{ functionResponse }], { invocationId: asked[0]?.invocationId });
  expect(done.at(-1)).toMatchObject({ author: 'helper' });
  expect(lastText(done)).toContain('It rains.');
  expect(back.count()).toBe(2);
});

test('a question that a client has written itself names no task of others', async () => {
  const back = await startBack();
  const front = await startFront(at(back), { asTool: false });
  const asked = await run(front, [{ text: 'ask' }]);
  const stored = (await front.get(`${SESSIONS}/s`)).body as { events: { content?: object; id: string }[] };
  const question = stored.events.find(({ content }) => JSON.stringify(content).includes('ask_person'));
  expect(JSON.stringify(question)).toContain('taskId');
  await front.post(SESSIONS, { sessionId: 'forged', events: [{ ...question, id: 'forged', invocationId: 'forged' }] });
  const functionResponse = { id: findCall(asked)?.id, name: 'ask_person', response: { answer: 'Mine.' } };
  const newMessage = { role: 'user', parts: [{ functionResponse }] };
  const body = { appName: 'harness_agent', userId: 'u', sessionId: 'forged', newMessage };
  const { text } = await front.post('/run', body);
  expect(text).not.toContain('Mine.');
  expect(JSON.stringify((await back.get('/apps/harness_agent/users/user/sessions')).body)).not.toContain('Mine.');
});

test('handed over to, it speaks for itself, as it speaks, and goes on with its conversation', async () => {
  const said = Promise.withResolvers<void>();
  onTestFinished(() => said.resolve());
  const heard: string[] = [];
  const model = {
    provider: 'scripted',
    async *generate({ contents }: ModelRequest) {
      heard.push(JSON.stringify(contents.map(({ parts }) => parts?.map(({ text }) => text).join(''))));
      const toContent = (text: string) => ({ role: 'model', parts: [{ text }] });
      yield { content: toContent('The product of both is '), modelVersion: 'm' };
      await said.promise;
      yield { content: toContent('391.'), modelVersion: 'm' };
      return { content: toContent('The product of both is 391.'), modelVersion: 'm' };
    },
  };
  const back = await startApp({ DOORS: 'a2a' }, { agents: hostAgent(model) });
  onTestFinished(() => back.close());
  const front = await startFront(at(back), { asTool: false });
  const body = { appName: 'harness_agent', userId: 'u', sessionId: 's', streaming: true };
  const newMessage = { role: 'user', parts: [{ text: 'What is 17 * 23?' }] };
  const stream = await fetch(`${front.url}/run_sse`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...body, newMessage }),
  });
  let text = '';
  for await (const piece of stream.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += piece;
    // The other agent still speaks.
    if (/^data:.*"partial":true.*The product/m.test(text)) said.resolve();
  }
  expect(text).toMatch(/^data:.*"author": ?"helper".*The product of both is 391\./m);
  expect(lastText(await run(front, [{ text: 'And 2 * 2?' }]))).toBe('The product of both is 391.');
  // It heard the person and itself: nothing of the tools of the agent that handed over.
  expect(heard).toEqual(['["What is 17 * 23?"]', '["What is 17 * 23?","The product of both is 391.","And 2 * 2?"]']);
  expect((await back.get('/apps/harness_agent/users/user/sessions')).body).toHaveLength(1);
  const { events } = (await front.get(`${SESSIONS}/s`)).body as { events: { author: string }[] };
  expect(events.map(({ author }) => author)).toEqual([...TURN, ...TURN]);
});

const TURN = ['user', 'harness_agent', 'harness_agent', 'helper'];

test('in a workflow it hears the agents before it', async () => {
  const back = await startBack();
  const none = { description: '', instruction: '', tools: [], skills: [], mcpServers: [] };
  const agents = hostAgent(scriptedModel([[{ text: 'A poem.' }]]), [], {
    kind: 'sequential',
    subAgents: [
      { ...none, name: 'poet' },
      { ...none, name: 'critic', remote: at(back) },
    ],
  });
  const front = await startApp({}, { agents });
  onTestFinished(() => front.close());
  await front.post(SESSIONS, { sessionId: 's' });
  expect(lastText(await run(front, [{ text: 'Write.' }]))).toBe('Echo [poet] said: A poem.');
});

test.each([true, false])('the task of a killed process is found again, not made twice: asTool %s', async (asTool) => {
  const hold = Promise.withResolvers<void>();
  const { url, count } = await startOfficial('1.0', { hold: hold.promise });
  const front = await startFront({ url }, { asTool });
  const sql = new Client({ connectionString: front.databaseUrl });
  await sql.connect();
  onTestFinished(() => sql.end());
  const started = await front.post(`${SESSIONS}/s/invocations`, {
    newMessage: { role: 'user', parts: [{ text: 'x' }] },
  });
  expect(started.status).toBe(200);
  const row = async () => (await sql.query('select state, attempt, response from tool_calls')).rows as object[];
  await expect.poll(async () => JSON.stringify(await row())).toContain('"taskId"');
  const token = async () => (await sql.query('select lease_token from invocations')).rows as unknown;
  const first = await token();
  // As where its process had died.
  await sql.query(`update invocations set lease_expire_time = now() - interval '1 second'`);
  await expect.poll(token).not.toEqual(first);
  hold.resolve();
  const status = async () => (await sql.query('select status from invocations')).rows as unknown;
  const succeeded = { status: 'succeeded' };
  await expect.poll(status).toEqual(asTool ? [succeeded, succeeded] : [succeeded]);
  const done = { state: 'done', attempt: 2 };
  expect(await row()).toMatchObject(asTool ? [done, done] : [done]);
  // It knows no message again: a second one would have been a second task.
  expect(count()).toBe(1);
});

test('the task that the version before kept with the call of the tool is found again', async () => {
  const hold = Promise.withResolvers<void>();
  const { url, count } = await startOfficial('1.0', { hold: hold.promise });
  const front = await startFront({ url });
  const sql = new Client({ connectionString: front.databaseUrl });
  await sql.connect();
  onTestFinished(() => sql.end());
  await front.post(`${SESSIONS}/s/invocations`, { newMessage: { role: 'user', parts: [{ text: 'x' }] } });
  interface CallRow {
    session_id: string;
    operation_id: string;
    response: { kept: object } | null;
  }
  const calls = async () => (await sql.query<CallRow>('select * from tool_calls order by session_id = $1', ['s'])).rows;
  await expect.poll(async () => JSON.stringify(await calls())).toContain('"taskId"');
  const [below, call] = await calls();
  // That version ran the agent within the invocation, which its process then left.
  const operationId = deriveId([call?.operation_id, JSON.stringify(['helper', { count: 0 }]), 0]);
  const response = { kept: { [operationId]: below?.response?.kept } };
  await sql.query('begin');
  await sql.query('delete from sessions where id = $1', [below?.session_id]);
  await sql.query('update tool_calls set response = $1', [JSON.stringify(response)]);
  await sql.query('update sessions set lease_token = null');
  await sql.query(
    `update invocations set status = 'queued', lease_token = gen_random_uuid(), lease_expire_time = now(),
       request = jsonb_set(request, '{began,spentMs}', '1')`,
  );
  await sql.query('commit');
  const status = async () => (await sql.query('select status, attempt from invocations')).rows as unknown;
  await expect.poll(status).toEqual([{ status: 'running', attempt: 2 }]);
  hold.resolve();
  await expect.poll(status).toEqual([{ status: 'succeeded', attempt: 2 }]);
  expect(count()).toBe(1);
});

test.each([true, false])('its task is cancelled with the invocation: asTool %s', async (asTool) => {
  const hold = Promise.withResolvers<void>();
  onTestFinished(() => hold.resolve());
  const back = await startBack(hold.promise);
  const front = await startFront(at(back), { asTool });
  const newMessage = { role: 'user', parts: [{ text: 'x' }] };
  const { body } = await front.post(`${SESSIONS}/s/invocations`, { newMessage });
  await expect.poll(back.count).toBe(1);
  await front.post(`${SESSIONS}/s/invocations/${(body as { id: string }).id}/cancel`, {});
  const [there] = (await back.get('/apps/harness_agent/users/user/sessions')).body as { id: string }[];
  const path = `/apps/harness_agent/users/user/sessions/${there?.id}/invocations`;
  await expect.poll(async () => (await back.get(path)).text).toContain('"cancelled"');
});

test.each([true, false])('a task is cancelled too whose id comes behind that: asTool %s', async (asTool) => {
  const [asked, hold, cancelled] = [0, 1, 2].map(() => Promise.withResolvers<void>());
  const url = await startServer((came, answer) => {
    void readBody(came).then(async (body) => {
      const supportedInterfaces = [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }];
      if (came.method === 'GET') return answer.end(JSON.stringify({ supportedInterfaces, capabilities: {} }));
      const { id, method } = JSON.parse(body.toString()) as { id: number; method: string };
      if (method === 'SendMessage') asked?.resolve();
      if (method === 'SendMessage') await hold?.promise;
      if (method === 'CancelTask') cancelled?.resolve();
      const task = { id: 't', status: { state: 'TASK_STATE_WORKING' } };
      return answer.end(JSON.stringify({ jsonrpc: '2.0', id, result: method === 'SendMessage' ? { task } : task }));
    });
  });
  const front = await startFront({ url }, { asTool });
  const newMessage = { role: 'user', parts: [{ text: 'x' }] };
  const { body } = await front.post(`${SESSIONS}/s/invocations`, { newMessage });
  await asked?.promise;
  const path = `${SESSIONS}/s/invocations/${(body as { id: string }).id}`;
  await front.post(`${path}/cancel`, {});
  await expect.poll(async () => (await front.get(path)).text).toContain('"cancelled"');
  hold?.resolve();
  await cancelled?.promise;
});

test.each(['artifact', 'message'])(
  'a task that is over with the answer, as an %s, is not asked for again',
  async (form) => {
    const parts = [{ text: 'Done.' }];
    const status = {
      state: 'TASK_STATE_COMPLETED',
      ...(form === 'message' && { message: { messageId: 'm', role: 'ROLE_AGENT', parts } }),
    };
    const task = { id: 't', status, ...(form === 'artifact' && { artifacts: [{ artifactId: 'a', parts }] }) };
    const url = await startServer((came, answer) => {
      void readBody(came).then((body) => {
        const supportedInterfaces = [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }];
        if (came.method === 'GET') return answer.end(JSON.stringify({ supportedInterfaces, capabilities: {} }));
        const { id, method } = JSON.parse(body.toString()) as { id: number; method: string };
        const error = { code: -32001, message: 'Task not found' };
        return answer.end(
          JSON.stringify({ jsonrpc: '2.0', id, ...(method === 'SendMessage' ? { result: { task } } : { error }) }),
        );
      });
    });
    const front = await startFront({ url });
    expect(lastText(await run(front, [{ text: 'x' }]))).toContain('Done.');
  },
);

test('what it says is bounded', async () => {
  const back = await startApp(
    { DOORS: 'a2a' },
    { agents: hostAgent(scriptedModel([[{ text: 'x'.repeat(150_000) }]])) },
  );
  onTestFinished(() => back.close());
  const front = await startFront(at(back), { asTool: false });
  expect(lastText(await run(front, [{ text: 'much' }]))).toHaveLength(100_000);
});

test('agents that would wait for one another end', async () => {
  const remote = { url: 'http://127.0.0.1:1' };
  const front = await startFront(remote);
  remote.url = at(front).url;
  expect(lastText(await run(front, [{ text: 'round' }]))).toContain('one of the agents that wait');
});

test.each([
  [1, 'Max number of llm calls', 0],
  [2, 'did not succeed: Max number of llm calls', 1],
  [4, 'Heard', 2],
])('of %i model calls the other agent has what is left: %s', async (most, answer, calls) => {
  const back = await startBack();
  const front = await startFront(at(back), { maxLlmCalls: most });
  const events = await run(front, [{ text: 'note' }]);
  expect(JSON.stringify(events)).toContain(answer);
  expect(back.count()).toBe(calls);
  const [made] = (await front.get(`${SESSIONS}/s/invocations`)).body as { llmCalls: number }[];
  expect(made?.llmCalls).toBe(most);
});

test('a service that is away is asked again, and what it asks in a stream that stays open is heard', async () => {
  const toTask = (state: string) => ({ id: 't', status: { state: `TASK_STATE_${state}`, message: asking } });
  const asking = { messageId: 'm', role: 'ROLE_AGENT', parts: [{ text: 'Which city?' }] };
  const results: Record<string, (object | undefined)[]> = {
    SendMessage: [undefined, { task: toTask('WORKING') }],
    GetTask: [undefined, toTask('WORKING'), toTask('INPUT_REQUIRED')],
    SubscribeToTask: [{ statusUpdate: toTask('INPUT_REQUIRED') }],
  };
  const sent: string[] = [];
  const url = await startServer((came, answer) => {
    void readBody(came).then((body) => {
      if (came.method === 'GET') return answer.end(JSON.stringify(card));
      const asked = JSON.parse(body.toString()) as { id: number; method: string; params: object };
      const { id, method, params } = asked;
      if (method === 'SendMessage') sent.push(JSON.stringify(params));
      const result = results[method]?.shift();
      if (!result) return answer.writeHead(503).end();
      const text = JSON.stringify({ jsonrpc: '2.0', id, result });
      if (method !== 'SubscribeToTask') return answer.end(text);
      return answer.writeHead(200, { 'content-type': 'text/event-stream' }).write(`data: ${text}\n\n`);
    });
  });
  const supportedInterfaces = [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }];
  const card = { supportedInterfaces, capabilities: { streaming: true } };
  const asked = await run(await startFront({ url }, { asTool: false }), [{ text: 'hello' }]);
  expect(JSON.stringify(asked)).toContain('The agent `helper` asks: Which city?');
  expect(sent).toEqual([sent[0], sent[0]]);
  expect(sent[0]).toMatch(/"agent-runtime\/timeMs":[1-9]/);
});

test('a task ends with the time that is left to the agent above', async () => {
  const held = Promise.withResolvers<void>();
  onTestFinished(() => held.resolve());
  const back = await startBack(held.promise);
  const metadata = { 'agent-runtime/timeMs': 1 };
  const message = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'hello' }], metadata };
  const rpc = { jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { message } };
  const { text } = await back.post('/a2a/harness_agent', rpc, { 'a2a-version': '1.0' });
  expect(text).toContain('longer than its limit of 0.001 s');
});

type Sign = (card: AgentCard) => Promise<AgentCard>;

/** Starts a server of the official package, of one version; `hold` is waited for before it ends a task. */
async function startOfficial(
  protocolVersion: '1.0' | '0.3',
  {
    hold = Promise.resolve(),
    sign = (card: AgentCard) => Promise.resolve(card),
  }: { hold?: Promise<void>; sign?: Sign } = {},
): Promise<{ url: string; count: () => number }> {
  let count = 0;
  const app = express();
  const server = createServer(app).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const unsigned = AgentCard.fromJSON({
    name: 'official',
    description: 'Says hello.',
    version: '1',
    supportedInterfaces: [{ url: `${url}/rpc`, protocolBinding: 'JSONRPC', protocolVersion }],
    capabilities: { streaming: true },
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    securitySchemes: { bearer: { httpAuthSecurityScheme: { scheme: 'Bearer' } } },
    skills: [],
  });
  const card = await sign(unsigned);
  const executor: AgentExecutor = {
    execute: async ({ taskId: id, contextId, userMessage }, bus) => {
      count += 1;
      bus.publish(AgentEvent.task(Task.fromJSON({ id, contextId, status: { state: 'TASK_STATE_WORKING' } })));
      await hold;
      const said = userMessage.parts[0]?.content;
      const text = `Official ${said?.$case === 'text' ? said.value : ''}`;
      const artifacts = [{ artifactId: 'a', parts: [{ text }] }];
      bus.publish(
        AgentEvent.task(Task.fromJSON({ id, contextId, status: { state: 'TASK_STATE_COMPLETED' }, artifacts })),
      );
      bus.finished();
    },
    cancelTask: () => Promise.resolve(),
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
  const legacyCompat = { enabled: protocolVersion === '0.3' };
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
  app.use('/rpc', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat }));
  return { url, count: () => count };
}

test.each(['1.0', '0.3'] as const)('a server of the official package is asked in %s', async (version) => {
  const front = await startFront(await startOfficial(version));
  expect(lastText(await run(front, [{ text: 'hello' }]))).toBe('Got [{"result":"Official hello"}]');
  const other = await startFront(await startOfficial(version), { asTool: false });
  expect(lastText(await run(other, [{ text: 'hello' }]))).toBe('Official hello');
});

test.each([true, false])('the tokens left are handed on, and those taken count here: asTool %s', async (asTool) => {
  const back = await startBack();
  const front = await startFront(at(back), { asTool, maxOutputTokens: 30 });
  const events = JSON.stringify(await run(front, [{ text: 'note' }]));
  // A call takes 17 tokens: the second one passes the 30, there is no third.
  expect(events).toContain('Heard');
  const [there] = (await back.get('/apps/harness_agent/users/user/sessions')).body as { id: string }[];
  const path = `/apps/harness_agent/users/user/sessions/${there?.id}/invocations`;
  expect((await back.get(path)).body).toMatchObject([{ llmCalls: 2, promptTokens: 20, outputTokens: 14 }]);
  const [here] = (await front.get(`${SESSIONS}/s/invocations`)).body as { promptTokens: number; llmCalls: number }[];
  expect(here).toMatchObject(asTool ? { llmCalls: 4, promptTokens: 40 } : { llmCalls: 3, promptTokens: 30 });
  expect(back.bounds()).toEqual([30, 13]);
  const poor = await startFront(at(back), { asTool, maxOutputTokens: 17 });
  expect(JSON.stringify(await run(poor, [{ text: 'note' }]))).toContain('The `17` tokens that the caller left');
});

async function createKey(kid: string, alg = 'ES256') {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  const header = { alg, kid, typ: 'JOSE' };
  const sign = generateAgentCardSignature(privateKey, header);
  return { sign, jwk: { ...(await exportJWK(privateKey)), kid }, shown: { ...(await exportJWK(publicKey)), kid } };
}

/** Starts a server that answers each GET with what is at its path, and nothing else. */
async function startPages(pages: Record<string, unknown>) {
  const posted: unknown[] = [];
  const seen: { path: string | undefined; authorization: string | undefined }[] = [];
  const server = createServer((came, answer) => {
    if (came.method !== 'GET') posted.push(came.url);
    seen.push({ path: came.url, authorization: came.headers.authorization });
    const page = pages[came.url ?? ''];
    if (typeof page === 'number') answer.writeHead(page);
    answer.end(typeof page === 'string' ? page : JSON.stringify(page));
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, posted, seen };
}

test('an agent whose card is signed by a trusted key is asked', async () => {
  const [key, other] = [await createKey('k1'), await createKey('k0')];
  // A service with a login: its card has security schemes, which its signature covers.
  const proxy = await startStrippingProxy(() => back.url, '/below');
  onTestFinished(() => proxy.close());
  const back: Awaited<ReturnType<typeof startBack>> = await startBack(undefined, {
    A2A_CARD_KEY: JSON.stringify(key.jwk),
    PUBLIC_URL: proxy.url,
    RUNTIME_API_KEYS: 'a-key-of-this-one-test',
  });
  const pages = await startPages({ '/keys': { keys: [other.shown, key.shown] } });
  const headers = { authorization: 'Bearer a-key-of-this-one-test' };
  const url = `${proxy.url}/a2a/harness_agent`;
  const remote = { url, headers, keys: `${pages.url}/keys` };
  const front = await startFront(remote);
  expect(lastText(await run(front, [{ text: 'hello' }]))).toBe('Got [{"result":"Echo hello"}]');
  // The credentials are for the agent, and not for who has the keys.
  expect(pages.seen).toEqual([{ path: '/keys', authorization: undefined }]);
  // The official package signs what it has parsed, and sends it so.
  Object.assign(remote, await startOfficial('1.0', { sign: key.sign }));
  expect(lastText(await run(front, [{ text: 'again' }]))).toBe('Got [{"result":"Official again"}]');
});

test('an agent whose card is not signed by a trusted key is not asked', async () => {
  const [key, other] = [await createKey('k1'), await createKey('k1')];
  const secret = new TextEncoder().encode('a secret that the set of keys gives away');
  const pages: Record<string, unknown> = {};
  const { url, posted } = await startPages(pages);
  const json = {
    name: 'one',
    description: 'Says hello.',
    version: '1',
    supportedInterfaces: [{ url: `${url}/rpc`, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
    capabilities: {},
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [],
  };
  const card = json as never as AgentCard;
  const signed = await key.sign(card);
  const payload = new TextEncoder().encode('{}');
  const symmetric = await new FlattenedSign(payload).setProtectedHeader({ alg: 'HS256', kid: 'h' }).sign(secret);
  const none = Buffer.from(JSON.stringify({ alg: 'none', kid: 'k1', typ: 'JOSE' })).toString('base64url');
  const old = { name: 'one', url: `${url}/rpc`, protocolVersion: '0.3.0', capabilities: {}, skills: [] };
  const signedOld = await key.sign({ name: 'one' } as AgentCard);
  Object.assign(pages, {
    '/signed.json': signed,
    '/unsigned.json': card,
    '/other.json': await other.sign(card),
    '/changed.json': { ...signed, capabilities: { streaming: true } },
    '/none.json': { ...card, signatures: [{ protected: none, signature: '' }] },
    '/symmetric.json': { signatures: [symmetric] },
    // The right one comes too late.
    '/many.json': { ...card, signatures: [...Array.from({ length: 10 }, () => ({})), ...signed.signatures] },
    '/old.json': { ...old, signatures: signedOld.signatures },
    '/keys': { keys: [key.shown, { kty: 'oct', kid: 'h', k: Buffer.from(secret).toString('base64url') }] },
    '/no-keys': 404,
    '/text': '<html>',
    '/no-set': {},
    '/away': 503,
  });
  const remote = { url: '', keys: '' };
  const [forged, absent] = [
    'its card is signed by none of the keys for it.',
    'the keys for its card cannot be fetched: ',
  ];
  const front = await startFront(remote);
  for (const [cardPath, keys, sentence] of [
    ['unsigned', `${url}/keys`, 'its card is not signed.'],
    ['other', `${url}/keys`, forged],
    ['changed', `${url}/keys`, forged],
    ['none', `${url}/keys`, forged],
    ['symmetric', `${url}/keys`, forged],
    ['many', `${url}/keys`, forged],
    ['old', `${url}/keys`, 'its card names no JSON-RPC'],
    ['signed', `${url}/no-keys`, `${absent}HTTP 404.`],
    ['signed', `${url}/text`, absent],
    ['signed', `${url}/no-set`, `${absent}JSON Web Key Set malformed.`],
    ['signed', `${url}/away`, `${absent}no answer.`],
    ['signed', 'https://10.0.0.1/keys', `${absent}10.0.0.1 is not a public address.`],
    ['signed', 'http://keys.example/keys', `${absent}keys.example may be called by https only.`],
  ]) {
    Object.assign(remote, { url: `${url}/${cardPath}.json`, keys });
    const said = lastText(await run(front, [{ text: 'hello' }]));
    expect(said).toContain(`The agent \`helper\` cannot be asked: ${sentence}`);
  }
  expect(posted).toEqual([]);
  // One whose signature is right is.
  Object.assign(remote, { url: `${url}/signed.json`, keys: `${url}/keys` });
  await run(front, [{ text: 'hello' }]);
  expect(posted).not.toEqual([]);
});

test('each user grants the access with which it is asked', async () => {
  const issuer = await startConsentIssuer();
  const back = await startBack();
  const bearers: (string | undefined)[] = [];
  const guard = createServer((came, answer) => {
    void readBody(came).then(async (body) => {
      const { authorization } = came.headers;
      const isCard = came.method === 'GET';
      if (!isCard) bearers.push(authorization);
      if (!isCard && !issuer.takes(authorization)) return answer.writeHead(401).end();
      const { host, 'content-length': _, ...headers } = came.headers as Record<string, string>;
      const init = { method: came.method ?? '', headers, ...(isCard ? {} : { body }) };
      const got = await fetch(back.url + came.url, init);
      answer.writeHead(got.status, { 'content-type': got.headers.get('content-type') ?? '' });
      return answer.end((await got.text()).replaceAll(back.url, `http://${host}`));
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => guard.once('listening', resolve));
  const url = `http://127.0.0.1:${(guard.address() as AddressInfo).port}`;
  const file = join(await mkdtemp(join(tmpdir(), 'agent-runtime-remote-')), 'harness.yaml');
  const remote = { url: `${url}/a2a/harness_agent`, user_oauth: { issuer: issuer.url } };
  await writeFile(file, JSON.stringify({ model: { provider: 'offline' }, sub_agents: [{ name: 'helper', remote }] }));
  const front = await startApp({
    HARNESS_FILE: file,
    RUNTIME_SECRET_KEY: 'kw7Jt2Qz9xL4mNs8Vb3c',
    MCP_ALLOWED_HOSTS: [issuer.url, url].join(),
  });
  onTestFinished(async () => {
    await front.close();
    guard.closeAllConnections();
    guard.close();
    await issuer.close();
  });
  await front.post(SESSIONS, { sessionId: 's' });
  const handOver = { text: 'use transfer_to_agent {"agent_name":"helper"}' };
  const asked = await run(front, [handOver]);
  const call = findCall(asked);
  expect(call).toMatchObject({
    name: 'ask_person',
    args: { question: expect.stringContaining('needs your permission') },
  });
  const page = /Open ([^\s,]+),/.exec(JSON.stringify(call?.args))?.[1] ?? '';
  const answer = (confirmed: boolean) => {
    const functionResponse = { id: call?.id, name: call?.name, response: { confirmed } };
    return run(front, [{ functionResponse }], { invocationId: asked[0]?.invocationId });
  };
  const { search } = await issuer.open(page);
  expect((await front.get(`/oauth/callback${search}`)).status).toBe(200);
  // What it was to hear before is what it hears.
  expect(lastText(await answer(true))).toContain(`Echo ${handOver.text}`);
  // An access that is over is renewed without a question.
  issuer.expire();
  expect(lastText(await run(front, [handOver]))).toContain(`Echo ${handOver.text}`);
  expect(new Set(bearers.filter(Boolean)).size).toBe(2);
});
