import { describe, expect, test } from 'vitest';
import { gatedAgents, hostAgent } from '../support/agents.ts';
import { type Answer, client, startOn, type TestApp, testApp } from '../support/app.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';
import { leastStatements, statementsOf } from '../support/store.ts';
import { staged, stagedSql } from '../support/staged.ts';

/**
 * A door's call runs its invocation in its own process and reads the events from memory. It costs what
 * `/harness/invoke` costs, and shows what a reader of the database would see.
 */

const DOORS = 'mcp,a2a,openai,ag-ui,ai-sdk';
const APP = 'harness_agent';

type Send = (app: Pick<TestApp, 'post'>, prompt: string, sessionId?: string) => Promise<Answer>;

let count = 0;
const newId = () => `id-${++count}`;

const rpc = (method: string, text: string, contextId?: string) => ({
  jsonrpc: '2.0',
  id: 1,
  method,
  params: { message: { messageId: newId(), contextId, role: 'ROLE_USER', parts: [{ text }] } },
});
const A2A = { 'a2a-version': '1.0' };
const MCP = { accept: 'application/json, text/event-stream' };

/** A call of each door, in a new session unless one is named. */
const CALLS = {
  'MCP tools/call': (app, prompt, session) => {
    const params = { name: APP, arguments: { prompt, ...(session !== undefined && { session }) } };
    return app.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params }, MCP);
  },
  'A2A send': (app, text, session) => app.post(`/a2a/${APP}`, rpc('SendMessage', text, session), A2A),
  'A2A stream': (app, text, session) => app.post(`/a2a/${APP}`, rpc('SendStreamingMessage', text, session), A2A),
  'AG-UI': (app, content, threadId = newId()) => {
    const messages = [{ id: newId(), role: 'user', content }];
    return app.post(`/ag-ui/${APP}`, { threadId, runId: newId(), messages, tools: [], context: [], state: {} });
  },
  'AI SDK': (app, text, id = newId()) => {
    const messages = [{ id: newId(), role: 'user', parts: [{ type: 'text', text }] }];
    return app.post(`/ai-sdk/${APP}/chat`, { id, messages });
  },
  'OpenAI responses': (app, input) => app.post('/v1/responses', { model: APP, input }),
  'OpenAI responses as a stream': (app, input) => app.post('/v1/responses', { model: APP, input, stream: true }),
} satisfies Record<string, Send>;

describe('what a call costs', () => {
  const answer = [{ text: 'Whale.' }];
  const model = scriptedModel([
    ({ contents }) =>
      contents.at(-1)?.parts?.[0]?.functionResponse ? answer : [callPart('calculator', { expression: '17 * 23' })],
  ]);
  const app = testApp(
    { DOORS, SESSION_LEASE_MS: '600000' },
    { agents: hostAgent(model, [], { tools: ['calculator'] }) },
  );

  /** Claim, call, its response, finish. */
  const OF_INVOCATION = 4;
  test.each<[keyof typeof CALLS | 'invoke', number, string]>([
    ['invoke', 0, ''],
    ['MCP tools/call', 0, ''],
    ['A2A send', 0, ''],
    ['A2A stream', 2, ': the task as it begins, and its events'],
    ['AG-UI', 1, ': the thread so far'],
    ['AI SDK', 0, ''],
    ['OpenAI responses', 0, ''],
    ['OpenAI responses as a stream', 0, ''],
  ])('%s: what its invocation costs and %i more%s', async (name, more) => {
    const invoke: Send = (at, prompt) =>
      at.post('/harness/invoke', {
        prompt,
        harness_name: 'x',
        run_agent_request: { user_id: 'u', session_id: newId() },
      });
    const call = name === 'invoke' ? invoke : CALLS[name];
    const budget = OF_INVOCATION + more;
    const least = await leastStatements(budget, async () => {
      const { status, text } = await call(app, 'What is 17 * 23?');
      expect([status, text]).toEqual([200, expect.stringContaining('Whale.')]);
    });
    expect(least).toBe(budget);
  });

  test('a prompt that is stored with the first event, because its request may turn out invalid', async () => {
    const format = { type: 'json_schema', name: 'any', schema: {} };
    const request = { model: APP, input: 'What is 17 * 23?', text: { format } };
    let answered: Answer | undefined;
    const sent = await statementsOf(async () => (answered = await app.post('/v1/responses', request)));
    expect(answered).toMatchObject({ status: 200, body: { status: 'failed' } });
    // The poll of the queue may run beside it.
    const reads = sent.filter((text) => / from "events"| from "invocations"/.test(text) && !/'queued'/.test(text));
    expect(reads).toEqual([]);
  });
});

describe('while it runs', () => {
  const gate = gatedAgents();
  let calls = 0;
  const app = testApp({ DOORS }, { agents: gate.agents, sweepIntervalMs: 50 });
  staged(() => startOn(app.databaseUrl, { DOORS }, { agents: gate.agents, sweepIntervalMs: 50 }));
  const sql = stagedSql(app);
  const entered = () => gate.entered(++calls);
  const path = (session: string, user = 'user') => `/apps/${APP}/users/${user}/sessions/${session}`;
  const IN_SESSION = ['MCP tools/call', 'A2A send', 'A2A stream', 'AG-UI', 'AI SDK'] as const;
  const create = async (sessionId: string) =>
    expect((await app.post(`/apps/${APP}/users/user/sessions`, { sessionId })).status).toBe(200);

  test.each(IN_SESSION)('%s: an event of another client comes in between', async (name) => {
    const sessionId = newId();
    await create(sessionId);
    const answering = CALLS[name](app, 'Hi.', sessionId);
    await entered();
    const note = { author: 'note', content: { role: 'user', parts: [{ text: 'A note.' }] } };
    expect((await app.post(`${path(sessionId)}/events`, note)).status).toBe(200);
    gate.open([{ text: `answer-to-${sessionId}` }]);
    const { text } = await answering;
    expect(text).toContain(`answer-to-${sessionId}`);
    expect(text).not.toContain('A note.');
  });

  test.each(IN_SESSION)('%s: a call that waits for its session, and is taken up here later', async (name) => {
    const sessionId = newId();
    await create(sessionId);
    const first = CALLS['AI SDK'](app, 'First.', sessionId);
    await entered();
    const second = CALLS[name](app, 'Second.', sessionId);
    const queued = async () =>
      (await sql.query(`select id from invocations where session_id = $1 and status = 'queued'`, [sessionId])).rowCount;
    await expect.poll(queued).toBe(1);
    gate.open([{ text: 'one' }]);
    expect((await first).text).toContain('one');
    await entered();
    gate.open([{ text: `answer-to-${sessionId}` }]);
    expect((await second).text).toContain(`answer-to-${sessionId}`);
  });

  test.each(IN_SESSION)('%s: another process takes it over', async (name) => {
    const sessionId = newId();
    await create(sessionId);
    const answering = CALLS[name](app, 'Hi.', sessionId);
    await entered();
    await sql.query(`update invocations set lease_expire_time = now() - interval '1 second' where session_id = $1`, [
      sessionId,
    ]);
    await entered();
    // The first model call is that of the process that lost the invocation: its answer is never shown.
    gate.open([{ text: 'lost' }]);
    gate.open([{ text: `answer-to-${sessionId}` }]);
    const { text } = await answering;
    expect(text).toContain(`answer-to-${sessionId}`);
    expect(text).not.toContain('lost');
  });

  /** How each door says that an answer is complete. */
  const COMPLETE = {
    'MCP tools/call': '"status":"succeeded"',
    'A2A send': 'TASK_STATE_COMPLETED',
    'A2A stream': 'TASK_STATE_COMPLETED',
    'AG-UI': 'RUN_FINISHED',
    'AI SDK': '"type":"finish"',
  };

  test.each(IN_SESSION)('%s: its session is deleted', async (name) => {
    const sessionId = newId();
    await create(sessionId);
    const answering = CALLS[name](app, 'Hi.', sessionId);
    await entered();
    expect((await app.send('DELETE', path(sessionId))).status).toBe(200);
    // A stream of A2A breaks off: its task is not there any more.
    const { text } = await answering.catch(() => ({ text: '' }));
    expect(text).not.toContain(COMPLETE[name]);
    gate.open();
  });

  test.each(IN_SESSION)('%s: its process stops, and another one has the answer', async (name) => {
    const sessionId = newId();
    await create(sessionId);
    const third = await startOn(app.databaseUrl, { DOORS, SHUTDOWN_GRACE_MS: '2000' }, { agents: gate.agents });
    const answering = CALLS[name](client(third.url), 'Hi.', sessionId);
    await entered();
    const closed = third.close();
    const { text } = await answering;
    expect(text).not.toContain(COMPLETE[name]);
    await closed;
    await entered();
    // The oldest call is that of the process that stopped.
    gate.open();
    gate.open([{ text: `answer-to-${sessionId}` }]);
    const events = async () => (await app.get(path(sessionId))).text;
    await expect.poll(events).toContain(`answer-to-${sessionId}`);
  });
});
