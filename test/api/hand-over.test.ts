import { Client } from 'pg';
import { afterEach, expect, test } from 'vitest';
import type { Tool } from '../../src/agent/definition/tool.ts';
import type { Event } from '../../src/core/event.ts';
import { AgentError } from '../../src/core/errors.ts';
import { type Gate, gatedAgents } from '../support/agents.ts';
import { client, startApp, startOn, type TestApp } from '../support/app.ts';
import { isEnd, openLive, say } from '../support/live-client.ts';
import { callPart } from '../support/scripted-model.ts';

/** A process that is told to stop while others run: what it has not ended another one goes on with, at once. */

const user = '/apps/harness_agent/users/u/sessions';
let app: TestApp;
afterEach(() => app.close());

const message = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
const toRun = (sessionId: string) => ({ appName: 'harness_agent', userId: 'u', sessionId, ...message('one') });
const toInvoke = (session_id: string) => ({
  prompt: 'one',
  harness_name: 'h',
  run_agent_request: { user_id: 'u', session_id },
});
const history = async (sessionId: string) => {
  const { events } = (await app.get(`${user}/${sessionId}`)).body as { events: Event[] };
  return events.map(({ content }) => content?.parts?.[0]);
};
/** A further process, and what stops it: at once, or with the end of its grace, for which no test waits. */
async function startReplica({ agents }: Gate, settings = {}) {
  const grace = new AbortController();
  const overrides = { agents, stopping: grace.signal };
  const runtime = await startOn(app.databaseUrl, { SHUTDOWN_GRACE_MS: '600000', ...settings }, overrides);
  const stop = (isGraceOver: boolean) => {
    const closed = runtime.close();
    if (isGraceOver) grace.abort(new AgentError('interrupted', 'The grace is over.'));
    return closed;
  };
  return { ...client(runtime.url), url: runtime.url, stop };
}
const rows = async (statement: string) => {
  const database = new Client({ connectionString: app.databaseUrl });
  await database.connect();
  const found = await database.query<Record<string, unknown>>(statement);
  await database.end();
  return found.rows;
};

test.each([
  ['/run', toRun],
  ['/harness/invoke', toInvoke],
] as const)('%s: the client hears where its answer is had, and has it with the same key', async (path, toBody) => {
  const [here, there] = [gatedAgents(), gatedAgents()];
  app = await startApp({}, { agents: there.agents });
  await app.post(user, { sessionId: 's' });
  const replica = await startReplica(here);
  const ask = (at: Pick<TestApp, 'post'>) => at.post(path, toBody('s'), { 'idempotency-key': 'k' });
  const first = ask(replica);
  await here.entered(1);
  await replica.stop(true);
  const { status, headers, body } = await first;
  const [{ id } = {}] = await rows('select id from invocations');
  expect([status, headers.get('retry-after'), headers.get('x-invocation-id')]).toEqual([503, '1', id]);
  const detail = `another process goes on with invocation ${String(id)}. The same request with its Idempotency-Key`;
  expect(body).toEqual({ detail: expect.stringContaining(detail) as string });
  await there.entered(1);
  const again = ask(app);
  there.open();
  expect([(await again).status, (await again).text]).toEqual([200, expect.stringContaining('answer 1')]);
  expect(await history('s')).toEqual([{ text: 'one' }, { text: 'answer 1' }]);
  expect(await rows('select status, attempt, request from invocations')).toEqual([
    { status: 'succeeded', attempt: 1, request: null },
  ]);
});

test('a stream ends without an error, and the same request goes on with it', async () => {
  const [here, there] = [gatedAgents(), gatedAgents()];
  app = await startApp({}, { agents: there.agents });
  await app.post(user, { sessionId: 's' });
  const replica = await startReplica(here);
  const ask = (at: Pick<TestApp, 'post'>) => at.post('/run_sse', toRun('s'), { 'idempotency-key': 'k' });
  const first = ask(replica);
  await here.entered(1);
  await replica.stop(true);
  expect([(await first).status, (await first).text]).toEqual([200, '']);
  await there.entered(1);
  there.open();
  expect((await ask(app)).text).toContain('answer 1');
});

test('a client that waits for what another process runs hears the same', async () => {
  const [here, there] = [gatedAgents(), gatedAgents()];
  app = await startApp({}, { agents: there.agents });
  const replica = await startReplica(here);
  const ask = (at: Pick<TestApp, 'post'>) => at.post('/harness/invoke', toInvoke('s'), { 'idempotency-key': 'k' });
  const first = ask(app);
  await there.entered(1);
  const waiting = ask(replica);
  await replica.stop(true);
  const { status, headers } = await waiting;
  expect([status, headers.get('x-invocation-id')]).toEqual([503, expect.stringMatching(/^e-/)]);
  there.open();
  expect((await first).text).toContain('answer 1');
});

test('what nobody waits for goes elsewhere between two steps, once the tool that runs has answered', async () => {
  const [charging, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let ran = 0;
  const charge: Tool = {
    name: 'charge',
    description: 'Counts.',
    effect: 'once',
    needsConfirmation: false,
    parameters: { type: 'object', properties: {} },
    run: async () => {
      ran += 1;
      charging.resolve();
      await released.promise;
      return { ran };
    },
  };
  const [here, there] = [gatedAgents([charge]), gatedAgents([charge])];
  app = await startApp({}, { agents: there.agents });
  await app.post(user, { sessionId: 's' });
  const replica = await startReplica(here);
  await replica.post(`${user}/s/invocations`, message('one'));
  await here.entered(1);
  here.open([callPart('charge', {}, 'c1')]);
  await charging.promise;
  const closed = replica.stop(false);
  released.resolve();
  await closed;
  await there.entered(1);
  there.open();
  await expect
    .poll(() => rows('select status, attempt, llm_calls, tool_calls from invocations'))
    .toEqual([{ status: 'succeeded', attempt: 1, llm_calls: 2, tool_calls: 1 }]);
  expect((await history('s')).slice(2)).toEqual([
    { functionResponse: { id: 'c1', name: 'charge', response: { ran: 1 } } },
    { text: 'answer 1' },
  ]);
  expect(ran).toBe(1);
});

test('a turn of a live session in text ends elsewhere, as it would have here', async () => {
  const [here, there] = [gatedAgents(), gatedAgents()];
  app = await startApp({}, { agents: there.agents });
  await app.post(user, { sessionId: 's' });
  const replica = await startReplica(here);
  const live = { user_id: 'u', session_id: 's', modalities: 'TEXT' };
  const lost = await openLive(replica, live);
  lost.send(say('one'));
  await here.entered(1);
  const stopped = replica.stop(true);
  const error = 'The service is stopping, and another process goes on with this turn. Its events come to the session.';
  expect(await lost.closed).toEqual([1001, error]);
  expect(lost.frames).toEqual([{ error }]);
  await stopped;
  await there.entered(1);
  const next = await openLive(app, live);
  next.send(say('two'));
  there.open();
  await there.entered(2);
  there.open();
  await next.until(isEnd);
  const { events } = (await app.get(`${user}/s`)).body as { events: Event[] };
  const [first, second] = [events.slice(0, 3), events.slice(3)];
  const shape = (each: Event) => ({ ...each, id: '', invocationId: '', timestamp: 0, content: undefined });
  expect(first.map(shape)).toEqual(second.map(shape));
  expect(events.map(({ content, turnComplete }) => content?.parts?.[0] ?? turnComplete)).toEqual(
    ['one', 'answer 1', 'two', 'answer 2'].flatMap((text, index) => (index % 2 ? [{ text }, true] : [{ text }])),
  );
  expect(await rows('select status, attempt, request from invocations')).toEqual(
    [1, 2].map(() => ({ status: 'succeeded', attempt: 1, request: null })),
  );
});

test('the run of a cronjob follows its invocation: its prompt is given once', async () => {
  const [here, there] = [gatedAgents(), gatedAgents()];
  app = await startApp({}, { agents: there.agents });
  const replica = await startReplica(here, { CRONJOBS: 'true' });
  const job = { ownerId: 'u', name: 'n', prompt: 'one', schedule: { type: 'daily', time: '08:00', timezone: 'UTC' } };
  const { jobId } = (await replica.post('/harness/cronjobs', job)).body as { jobId: string };
  await replica.post(`/harness/cronjobs/${jobId}/run`, {});
  await here.entered(1);
  await replica.stop(true);
  await there.entered(1);
  const next = await startReplica(here, { CRONJOBS: 'true' });
  there.open();
  await expect
    .poll(() => rows('select status, attempt, output from cronjob_runs'))
    .toEqual([{ status: 'success', attempt: 1, output: 'answer 1' }]);
  expect(await rows('select status, attempt from invocations')).toEqual([{ status: 'succeeded', attempt: 1 }]);
  await next.stop(true);
});
