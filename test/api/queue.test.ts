import { Client } from 'pg';
import { afterEach, describe, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { type Gate, gatedAgents } from '../support/agents.ts';
import { type Answer, client, startApp, startOn, type TestApp } from '../support/app.ts';

const user = '/apps/harness_agent/users/u/sessions';
let gate: Gate;
let app: TestApp;
let replica: Runtime | undefined;
const start = async (environment: Record<string, string> = {}, overrides: { sweepIntervalMs?: number } = {}) => {
  gate = gatedAgents();
  app = await startApp(environment, { agents: gate.agents, ...overrides });
};
afterEach(async () => {
  await replica?.close();
  replica = undefined;
  await app.close();
});

const message = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
const invoke = (sessionId: string, prompt: string, at: Pick<TestApp, 'post'> = app, headers = {}) =>
  at.post(
    '/harness/invoke',
    { prompt, harness_name: 'h', run_agent_request: { user_id: 'u', session_id: sessionId } },
    headers,
  );
const run = (sessionId: string, text: string, at: Pick<TestApp, 'post'> = app) =>
  at.post('/run', { appName: 'harness_agent', userId: 'u', sessionId, ...message(text) });
/** Starts an invocation in the background; its id. */
const background = async (sessionId: string, text: string, at: Pick<TestApp, 'post'> = app, key?: string) => {
  const headers = key === undefined ? {} : { 'idempotency-key': key };
  const { status, body } = await at.post(`${user}/${sessionId}/invocations`, message(text), headers);
  expect(status).toBe(200);
  return body as { id: string; status: string };
};
const find = async (sessionId: string, id: string, at: Pick<TestApp, 'get'> = app) =>
  at.get(`${user}/${sessionId}/invocations/${id}`);
/** Waits until the session has as many invocations with this status; gives them, newest first. */
const until = async (sessionId: string, status: string, count: number) => {
  for (;;) {
    const all = (await app.get(`${user}/${sessionId}/invocations`)).body as { id: string; status: string }[];
    const found = all.filter((each) => each.status === status);
    if (found.length === count) return found;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};
const history = async (sessionId: string) => {
  const { events } = (await app.get(`${user}/${sessionId}`)).body as { events: Event[] };
  return events.map(({ content, errorCode }) => content?.parts?.[0]?.text ?? errorCode);
};
const sql = async (statement: string) => {
  const database = new Client({ connectionString: app.databaseUrl });
  await database.connect();
  await database.query(statement);
  await database.end();
};
const summary = ({ status, headers, body }: Answer) => [status, headers.get('retry-after'), body];

describe('background work that was accepted', () => {
  test('waits for its session as long as that takes, also where a request would be refused', async () => {
    await start({ SESSION_WAIT_MS: '0' });
    const first = invoke('s', 'one');
    await gate.entered(1);
    const second = await background('s', 'two');
    expect(second.status).toBe('queued');
    const refused = await invoke('s', 'three');
    expect(refused.status).toBe(429);
    gate.open();
    expect((await first).status).toBe(200);
    await gate.entered(2);
    gate.open();
    await until('s', 'succeeded', 2);
    expect((await find('s', second.id)).body).toMatchObject({ id: second.id, status: 'succeeded' });
    expect(await history('s')).toEqual(['one', 'answer 1', 'two', 'answer 2']);
  });

  test('outlives the replica that accepted it: another one runs it, in order, and its key stays with it', async () => {
    await start();
    const elsewhere = gatedAgents();
    replica = await startOn(app.databaseUrl, {}, { agents: elsewhere.agents });
    const accepting = client(replica.url);
    const first = invoke('s', 'one');
    await gate.entered(1);
    const second = await background('s', 'two', accepting, 'k');
    const third = await background('s', 'three');
    await replica.close();
    expect((await find('s', second.id)).body).toMatchObject({ status: 'queued' });
    expect(await background('s', 'two', app, 'k')).toMatchObject({ id: second.id, status: 'queued' });
    for (const n of [1, 2, 3]) {
      await gate.entered(n);
      gate.open();
    }
    expect((await first).status).toBe(200);
    const ended = await until('s', 'succeeded', 3);
    expect(ended.map(({ id }) => id).slice(0, 2)).toEqual([third.id, second.id]);
    expect(await history('s')).toEqual(['one', 'answer 1', 'two', 'answer 2', 'three', 'answer 3']);
    expect(await background('s', 'two', app, 'k')).toMatchObject({ id: second.id, status: 'succeeded' });
  });

  test('is not overtaken by a request that came later', async () => {
    await start();
    const first = invoke('s', 'one');
    await gate.entered(1);
    await background('s', 'two');
    const third = invoke('s', 'three');
    await until('s', 'queued', 2);
    for (const n of [1, 2, 3]) {
      await gate.entered(n);
      gate.open();
    }
    expect([(await first).status, (await third).status]).toEqual([200, 200]);
    expect(await history('s')).toEqual(['one', 'answer 1', 'two', 'answer 2', 'three', 'answer 3']);
  });

  test('that is cancelled before it began says so, and its key stays with it', async () => {
    await start();
    const first = invoke('s', 'one');
    await gate.entered(1);
    const { id } = await background('s', 'two', app, 'k');
    await app.post(`${user}/s/invocations/${id}/cancel`);
    const cancelled = {
      id,
      status: 'cancelled',
      error: { code: 'cancelled', message: 'The invocation was cancelled.' },
    };
    expect((await find('s', id)).body).toMatchObject(cancelled);
    expect(await background('s', 'two', app, 'k')).toMatchObject(cancelled);
    gate.open();
    expect((await first).status).toBe(200);
    expect(await history('s')).toEqual(['one', 'answer 1']);
  });

  test('that is cancelled before it began does not go on by its id alone, because its message is not kept', async () => {
    await start();
    const first = invoke('s', 'one');
    await gate.entered(1);
    const { id } = await background('s', 'two');
    await app.post(`${user}/s/invocations/${id}/cancel`);
    gate.open();
    expect((await first).status).toBe(200);
    const again = (more: object) => app.post(`${user}/s/invocations`, { invocationId: id, ...more });
    expect(await again({})).toMatchObject({
      status: 409,
      body: {
        detail: `Invocation ${id} was stopped before it began, and its message is not kept. Send the message again.`,
      },
    });
    expect((await again(message('two'))).status).toBe(200);
    await gate.entered(2);
    gate.open();
    await until('s', 'succeeded', 2);
    expect(await history('s')).toEqual(['one', 'answer 1', 'two', 'answer 2']);
  });

  test('keeps its state delta, its metadata and its overrides while it waits', async () => {
    await start();
    const first = invoke('s', 'one');
    await gate.entered(1);
    const started = await app.post(`${user}/s/invocations`, {
      ...message('\u0000two'),
      stateDelta: { color: 'red' },
      customMetadata: { from: 'cron' },
      harness: { max_llm_calls: 1 },
    });
    expect(started.body).toMatchObject({ status: 'queued' });
    gate.open();
    await first;
    await gate.entered(2);
    gate.open();
    await until('s', 'succeeded', 2);
    const { state, events } = (await app.get(`${user}/s`)).body as { state: object; events: Event[] };
    expect(state).toEqual({ color: 'red' });
    expect(events[2]).toMatchObject({ content: { parts: [{ text: '\u0000two' }] } });
    expect(events[3]?.customMetadata).toEqual({ from: 'cron' });
  });
});

describe('a request that waits for its session', () => {
  test('in vain did nothing, and the same request with its Idempotency-Key is answered later', async () => {
    await start({ SESSION_WAIT_MS: '1' });
    const first = invoke('s', 'one');
    await gate.entered(1);
    const key = { 'idempotency-key': 'in-vain' };
    expect((await invoke('s', 'two', app, key)).status).toBe(429);
    gate.open();
    await first;
    const retry = invoke('s', 'two', app, key);
    await Promise.race([gate.entered(2), retry]);
    gate.open();
    const answered = { harness_name: 'h', overwrite: false, output: 'answer 2', error: null };
    expect(summary(await retry)).toEqual([200, null, answered]);
    expect(summary(await invoke('s', 'two', app, key))).toEqual([200, null, answered]);
    expect(await history('s')).toEqual(['one', 'answer 1', 'two', 'answer 2']);
  });

  test('and is cancelled ends as cancelled: 200 with an error from the harness, 409 from /run', async () => {
    await start();
    const first = invoke('s', 'one');
    await gate.entered(1);
    for (const [wait, answer] of [
      [
        () => invoke('s', 'two'),
        [200, null, expect.objectContaining({ output: '', error: 'The invocation was cancelled.' })],
      ],
      [() => run('s', 'two'), [409, null, { detail: 'The invocation was cancelled.' }]],
    ] as const) {
      const waiting = wait();
      const [queued] = await until('s', 'queued', 1);
      await app.post(`${user}/s/invocations/${queued?.id}/cancel`);
      expect(summary(await waiting)).toEqual(answer);
    }
    gate.open();
    expect((await first).status).toBe(200);
    expect(await history('s')).toEqual(['one', 'answer 1']);
  });

  test('while its replica stops is sent elsewhere with 503, whatever it asked for', async () => {
    await start();
    replica = await startOn(app.databaseUrl, {}, { agents: gatedAgents().agents });
    const stopping = client(replica.url);
    const first = invoke('s', 'one');
    await gate.entered(1);
    const waiting = [
      invoke('s', 'two', stopping),
      run('s', 'three', stopping),
      stopping.post(`${user}/s/rewind`, { rewindBeforeInvocationId: 'e' }),
    ];
    await until('s', 'queued', 3);
    await replica.close();
    const answer = [503, '1', { detail: 'The service is stopping. Try again.' }];
    expect((await Promise.all(waiting)).map(summary)).toEqual([answer, answer, answer]);
    gate.open();
    expect((await first).status).toBe(200);
    expect(await history('s')).toEqual(['one', 'answer 1']);
  });

  test.each([
    // What the sweeper does when a place was not renewed in time.
    ['was ended', `update invocations set status = 'interrupted', end_time = now() where status = 'queued'`],
    ['is gone', `delete from invocations where status = 'queued'`],
  ])('and whose place %s is told that, not that others wait', async (_, loss) => {
    await start({ SESSION_LEASE_MS: '3000' }, { sweepIntervalMs: 60_000 });
    const first = invoke('s', 'one');
    await gate.entered(1);
    const waiting = run('s', 'two');
    await until('s', 'queued', 1);
    await sql(loss);
    expect(summary(await waiting)).toEqual([
      503,
      '1',
      { detail: 'The request lost its place in the queue of session s. Try again.' },
    ]);
    gate.open();
    expect((await first).status).toBe(200);
  });

  test('for a session that is deleted gets 404', async () => {
    await start({ SESSION_LEASE_MS: '3000' });
    const first = invoke('s', 'one');
    await gate.entered(1);
    const waiting = run('s', 'two');
    await until('s', 'queued', 1);
    await sql('delete from sessions');
    expect(summary(await waiting)).toEqual([404, null, { detail: 'Session not found: s' }]);
    gate.open();
    expect((await first).status).toBe(409);
  });
});
