import { expect, test } from 'vitest';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { AgentError } from '../../src/core/errors.ts';
import { hostAgent } from '../support/agents.ts';
import { client, startApp, startOn, type TestApp } from '../support/app.ts';
import { startCollector } from '../support/collector.ts';
import { findSpanFaults } from '../support/gen-ai-conventions.ts';
import { MINUTE } from '../support/patience.ts';
import { staged, stagedSql } from '../support/staged.ts';

/** A run that goes on after a wait or in another process is a trace of its own, linked to the one before. */

const REASON = 'agent_runtime.link.reason';
const USERS = '/apps/harness_agent/users/u/sessions';

interface Run {
  trace_id: string;
  span_id: string;
  links: { trace_id: string; span_id: string; attributes: Record<string, unknown> }[];
}

/** Calls the tool that the message names, then says `done`; the second word of a message holds that back. */
const held = new Map<string, { entered: PromiseWithResolvers<void>; open: PromiseWithResolvers<void> }>();
const hold = (name: string) => {
  const gate = { entered: Promise.withResolvers<void>(), open: Promise.withResolvers<void>() };
  held.set(name, gate);
  return gate;
};
let naps = 0;
const model: Model = {
  provider: 'scripted',
  // eslint-disable-next-line require-yield
  async *generate({ contents, signal }) {
    const last = contents.at(-1)?.parts ?? [];
    const text = last.map((part) => part.text ?? '').join('');
    const gate = held.get(text);
    held.delete(text);
    if (gate) {
      gate.entered.resolve();
      await Promise.race([
        gate.open.promise,
        new Promise((_, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason as Error));
        }),
      ]);
    }
    const isSecondNap = last.some(({ functionResponse }) => functionResponse?.name === 'nap') && naps++ === 0;
    const tool = tools.find(({ name }) => name === (isSecondNap ? 'nap' : text));
    const usageMetadata = { promptTokenCount: 10_000, candidatesTokenCount: 5_000, totalTokenCount: 15_000 };
    const parts = tool ? [{ functionCall: { name: tool.name, args: {} } }] : [{ text: 'done' }];
    return { content: { role: 'model', parts }, usageMetadata };
  },
};

const plain = { description: 'Acts.', parameters: { type: 'object', properties: {} } } as const;
const waits = (name: string, wait?: Tool['wait']): Tool => ({
  ...plain,
  name,
  needsConfirmation: false,
  longRunning: true,
  effect: 'none',
  run: async () => undefined,
  ...(wait && { wait }),
});
const tools: Tool[] = [
  waits('nap', { kind: 'sleep', expiresAfter: 0.2 }),
  waits('parcel', { kind: 'signal', signal: 'parcel' }),
  waits('ask', { kind: 'question' }),
  { ...plain, name: 'pay', needsConfirmation: true, run: async () => ({ paid: 1 }) },
  { ...plain, name: 'count', needsConfirmation: false, effect: 'none', run: async () => ({ counted: 1 }) },
];
const agents = hostAgent(model, tools);

const collector = staged(startCollector);
const settings = () => ({
  DEV_UI: 'true',
  OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
  OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json',
});
const app = staged(() => startApp(settings(), { agents, sweepIntervalMs: 50 }));
const sql = stagedSql(app);

/** Starts an invocation in the background that calls a tool. */
async function start(sessionId: string, text: string, headers = {}, on: Pick<TestApp, 'post'> = app) {
  await app.post(USERS, { sessionId });
  const path = `${USERS}/${sessionId}`;
  const newMessage = { role: 'user', parts: [{ text }] };
  const { id } = (await on.post(`${path}/invocations`, { newMessage }, headers)).body as { id: string };
  const status = async () => ((await app.get(`${path}/invocations/${id}`)).body as { status: string }).status;
  const isAt = async (wanted: string) => {
    await expect.poll(status, { timeout: MINUTE }).toBe(wanted);
  };
  const answer = async (body: object) => {
    const { items } = (await app.get(`/tasks?sessionId=${sessionId}`)).body as { items: { id: string }[] };
    expect((await app.send('PATCH', `/tasks/${items[0]?.id}`, body)).status).toBe(200);
  };
  return { id, path, isAt, answer };
}

/** The runs of the session that have ended, as they are stored, once there are so many. */
async function runsOf(sessionId: string, count: number): Promise<Run[]> {
  const read = async () => {
    const { body } = await app.get(`/dev/apps/harness_agent/debug/trace/session/${sessionId}`);
    return (body as (Run & { name: string })[]).filter(({ name }) => name === 'invocation');
  };
  await expect.poll(async () => (await read()).length, { timeout: MINUTE }).toBe(count);
  return read();
}

/** Why each run but the first one was begun. Each has one link, to the run before, as stored and at the collector. */
async function reasonsOf(sessionId: string, count: number): Promise<unknown[]> {
  const runs = await runsOf(sessionId, count);
  for (const [at, { span_id: id, links }] of runs.entries()) {
    const before = runs.slice(0, at).slice(-1);
    expect(links).toMatchObject(before.map(({ trace_id, span_id }) => ({ trace_id, span_id })));
    const spans = await collector.trace('invocation', 'gen_ai.conversation.id', sessionId, id);
    const sent = spans.find(({ spanId }) => spanId === id)?.links ?? [];
    const read = sent.map(({ traceId, spanId, attributes }) => ({ trace_id: traceId, span_id: spanId, attributes }));
    expect(read).toEqual(links);
    expect(spans.flatMap(findSpanFaults)).toEqual([]);
  }
  return runs.flatMap(({ links }) => links.map(({ attributes }) => attributes[REASON]));
}

test('after a sleep, each time', async () => {
  const { isAt } = await start('sleep', 'nap');
  await isAt('succeeded');
  expect(await reasonsOf('sleep', 3)).toEqual(['sleep', 'sleep']);
  expect(new Set((await runsOf('sleep', 3)).map(({ trace_id }) => trace_id)).size).toBe(3);
});

test('after a signal', async () => {
  const { isAt, path } = await start('signal', 'parcel');
  await isAt('paused');
  await app.send('POST', `${path}/signals/parcel`, { payload: {} });
  await isAt('succeeded');
  expect(await reasonsOf('signal', 2)).toEqual(['signal']);
});

test.each([
  ['confirmation', 'pay', { action: 'answer' }],
  ['question', 'ask', { action: 'answer', answer: { yes: true } }],
])('after a task: %s', async (kind, tool, body) => {
  const { isAt, answer } = await start(kind, tool);
  await isAt('paused');
  await answer(body);
  await isAt('succeeded');
  expect(await reasonsOf(kind, 2)).toEqual([kind]);
});

test('after an answer of the client, also where the request that waited was made under a trace of its caller', async () => {
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  const { id, isAt, path } = await start('answer', 'ask', { traceparent });
  await isAt('paused');
  const { events } = (await app.get(path)).body as {
    events: { content?: { parts?: { functionCall?: { id: string } }[] } }[];
  };
  const callId = events.flatMap(({ content }) => content?.parts ?? []).find(({ functionCall }) => functionCall)
    ?.functionCall?.id;
  const functionResponse = { id: callId, name: 'ask', response: { yes: true } };
  const newMessage = { role: 'user', parts: [{ functionResponse }] };
  const body = { appName: 'harness_agent', userId: 'u', sessionId: 'answer', invocationId: id, newMessage };
  expect((await app.post('/run', body)).status).toBe(200);
  await isAt('succeeded');
  expect(await reasonsOf('answer', 2)).toEqual(['answer']);
  const [first, second] = await runsOf('answer', 2);
  expect([first?.trace_id, second?.trace_id === first?.trace_id]).toEqual([traceparent.split('-')[1], false]);
});

test('after a budget that had nothing left', async () => {
  const budget = { appliesTo: 'user', forUser: 'u', period: 'day', maxTokens: 15_000 };
  await sql.query('truncate budget_uses');
  await app.send('PUT', '/apps/harness_agent/budgets', budget);
  const { isAt, answer } = await start('budget', 'count');
  await isAt('paused');
  await app.send('PUT', '/apps/harness_agent/budgets', { ...budget, maxTokens: 1_000_000_000 });
  await answer({ action: 'answer', by: 'boss' });
  await isAt('succeeded');
  expect(await reasonsOf('budget', 2)).toEqual(['budget']);
});

test('in the process that it was handed over to', async () => {
  const grace = new AbortController();
  const overrides = { agents, stopping: grace.signal };
  const runtime = await startOn(app.databaseUrl, { ...settings(), SHUTDOWN_GRACE_MS: '600000' }, overrides);
  const gate = hold('held');
  const { isAt } = await start('hand-over', 'held', {}, client(runtime.url));
  await gate.entered.promise;
  const closed = runtime.close();
  grace.abort(new AgentError('interrupted', 'The grace is over.'));
  await closed;
  await isAt('succeeded');
  expect(await reasonsOf('hand-over', 2)).toEqual(['hand_over']);
});

test('after a kill: the link leads to the trace of the process that died, which may have sent parts of it', async () => {
  const gate = hold('killed');
  const { isAt } = await start('kill', 'killed');
  await gate.entered.promise;
  const { rows } = await sql.query<{ trace: string }>(
    `update invocations set lease_expire_time = now() - interval '1 second' where session_id = 'kill'
     returning request ->> 'trace' as trace`,
  );
  await isAt('succeeded');
  gate.open.resolve();
  const [, traceId, spanId] = rows[0]?.trace.split('-') ?? [];
  const runs = await runsOf('kill', 2);
  const link = { trace_id: traceId, span_id: spanId, attributes: { [REASON]: 'take_over' } };
  expect(runs.map(({ links }) => links).toSorted((one, other) => one.length - other.length)).toEqual([[], [link]]);
  // This process lives, so that its lost run ends too, under the ids that were stored before it began.
  expect(runs.map(({ span_id: id }) => id)).toContain(spanId);
});

test('each run is linked to the one before it alone, and what never waited to none', async () => {
  const { isAt } = await start('none', 'count');
  await isAt('succeeded');
  expect(await reasonsOf('none', 1)).toEqual([]);
});
