import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { AgentError } from '../../src/core/errors.ts';
import type { Event } from '../../src/core/event.ts';
import { type Gate, gatedAgents, hostScript } from '../support/agents.ts';
import { type Answer, client, startApp, startOn, type TestApp } from '../support/app.ts';
import { callPart } from '../support/scripted-model.ts';

const user = '/apps/harness_agent/users/u/sessions';
let gate: Gate;
let app: TestApp;
const start = async (
  environment: Record<string, string> = {},
  tools: Tool[] = [],
  overrides: { sweepIntervalMs?: number } = {},
) => {
  gate = gatedAgents(tools);
  app = await startApp(environment, { agents: gate.agents, ...overrides });
};
const invoke = (
  sessionId: string,
  prompt: string,
  headers: Record<string, string> = {},
  at: Pick<TestApp, 'post'> = app,
) =>
  at.post(
    '/harness/invoke',
    { prompt, harness_name: 'h', run_agent_request: { user_id: 'u', session_id: sessionId } },
    headers,
  );
const output = ({ body }: Answer) => (body as { output: string }).output;
const history = async (sessionId: string) => {
  const { events } = (await app.get(`${user}/${sessionId}`)).body as { events: Event[] };
  return events.map(({ content, errorCode }) => content?.parts?.[0]?.text ?? errorCode);
};
const invocations = async (sessionId: string) =>
  (await app.get(`${user}/${sessionId}/invocations`)).body as { id: string; status: string; error?: unknown }[];
const statuses = async (sessionId: string) => (await invocations(sessionId)).map(({ status }) => status).toReversed();
/** Waits until as many invocations of the session have one of these statuses. */
const until = async (sessionId: string, status: string, count: number) => {
  while ((await statuses(sessionId)).filter((found) => found === status).length !== count) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};
const sql = async (statement: string, databaseUrl = app.databaseUrl) => {
  const database = new Client({ connectionString: databaseUrl });
  await database.connect();
  const { rows } = await database.query(statement);
  await database.end();
  return rows as Record<string, unknown>[];
};

describe('a second message for a busy session', () => {
  beforeEach(() => start({ SESSION_QUEUE_DEPTH: '2', SESSION_WAIT_MS: '60000' }));
  afterAll(() => app.close());

  test('waits its turn: first come, first served, never interleaved', async () => {
    const answers = [invoke('s', 'one')];
    await gate.entered(1);
    answers.push(invoke('s', 'two'));
    await until('s', 'queued', 1);
    answers.push(invoke('s', 'three'));
    await until('s', 'queued', 2);
    const full = await invoke('s', 'four');
    expect([full.status, full.headers.get('retry-after'), full.body]).toEqual([
      429,
      '1',
      { detail: 'Session s has 2 requests waiting. Try again later.' },
    ]);
    for (const n of [1, 2, 3]) {
      await gate.entered(n);
      gate.open();
    }
    expect((await Promise.all(answers)).map(output)).toEqual(['answer 1', 'answer 2', 'answer 3']);
    expect(await history('s')).toEqual(['one', 'answer 1', 'two', 'answer 2', 'three', 'answer 3']);
    expect(await statuses('s')).toEqual(['succeeded', 'succeeded', 'succeeded']);
    await app.close();
  });

  test('reject: 409 at once, and nothing is stored', async () => {
    const first = invoke('s', 'one');
    await gate.entered(1);
    const second = await invoke('s', 'two', { 'x-double-texting': 'reject' });
    expect([second.status, second.body]).toEqual([409, { detail: 'Session s runs another invocation.' }]);
    gate.open();
    expect(output(await first)).toBe('answer 1');
    expect(await history('s')).toEqual(['one', 'answer 1']);
    await app.close();
  });

  test('interrupt: the running one ends as interrupted, the new one starts', async () => {
    const first = invoke('s', 'one');
    await gate.entered(1);
    const second = invoke('s', 'two', { 'x-double-texting': 'interrupt' });
    const interrupted = await first;
    expect(interrupted.body).toMatchObject({ output: '', error: 'The invocation was interrupted by a newer message.' });
    await gate.entered(2);
    gate.open();
    gate.open();
    expect(output(await second)).toBe('answer 2');
    expect(await history('s')).toEqual(['one', 'interrupted', 'two', 'answer 2']);
    expect(await statuses('s')).toEqual(['interrupted', 'succeeded']);
    await app.close();
  });

  test('an unknown policy is refused by name', async () => {
    const { status, body } = await invoke('s', 'x', { 'x-double-texting': 'maybe' });
    expect(status).toBe(422);
    expect(body).toMatchObject({ detail: [{ loc: ['header', 'x-double-texting'] }] });
    await app.close();
  });
});

describe('the wait for a busy session is bounded', () => {
  test('429 with Retry-After, the place in the queue is given up, the running one is not harmed', async () => {
    await start({ SESSION_WAIT_MS: '50' });
    const first = invoke('s', 'one');
    await gate.entered(1);
    const second = await invoke('s', 'two');
    expect([second.status, second.headers.get('retry-after')]).toEqual([429, '1']);
    expect(await statuses('s')).toEqual(['running']);
    gate.open();
    expect(output(await first)).toBe('answer 1');
    await app.close();
  });

  test('goes on after an interruption of the notifications', async () => {
    await start();
    const listener = async () => {
      const rows = await sql(`select pid from pg_stat_activity where datname = current_database()
        and application_name like 'agent-runtime/%' and query !~ 'pg_backend_pid'`);
      return rows[0]?.['pid'];
    };
    const answers = [invoke('s', 'one')];
    await gate.entered(1);
    for (const [n, prompt] of ['two', 'three'].entries()) {
      answers.push(invoke('s', prompt));
      await until('s', 'queued', n + 1);
    }
    await expect.poll(listener).toBeTypeOf('number');
    const pid = await listener();
    await sql(`select pg_terminate_backend(${String(pid)})`);
    await expect.poll(async () => [undefined, pid].includes(await listener()), { timeout: 30_000 }).toBe(false);
    expect(await statuses('s')).toEqual(['running', 'queued', 'queued']);
    for (const n of [1, 2, 3]) {
      await gate.entered(n);
      gate.open();
    }
    expect((await Promise.all(answers)).map(output)).toEqual(['answer 1', 'answer 2', 'answer 3']);
    await app.close();
  });

  test('more invocations than the process may hold are refused at once with 503', async () => {
    await start({ MAX_INVOCATIONS: '1' });
    const first = invoke('s', 'one');
    await gate.entered(1);
    const second = await invoke('other', 'two');
    expect([second.status, second.headers.get('retry-after'), second.body]).toEqual([
      503,
      '1',
      { detail: 'The service holds 1 invocations already. Try again later.' },
    ]);
    expect((await app.get(`${user}/s`)).status).toBe(200);
    gate.open();
    await first;
    await app.close();
  });
});

test('a retry while the first runs is refused where it may not wait', async () => {
  await start({ SESSION_WAIT_MS: '0' });
  const headers = { 'idempotency-key': 'k1' };
  const first = invoke('keyed', 'one', headers);
  await gate.entered(1);
  const early = await invoke('keyed', 'one', headers);
  expect([early.status, early.body]).toEqual([
    409,
    { detail: 'The request with this Idempotency-Key is still running.' },
  ]);
  gate.open();
  expect((await first).status).toBe(200);
  await app.close();
});

describe('a retry with the same key', () => {
  beforeAll(() => start());
  afterAll(() => app.close());

  test('while the first runs it waits; afterwards: the same bytes and one invocation; another body: 422', async () => {
    const headers = { 'idempotency-key': 'k1' };
    const first = invoke('keyed', 'one', headers);
    await gate.entered(1);
    const early = invoke('keyed', 'one', headers);
    gate.open();
    const { text } = await first;
    expect(await early).toMatchObject({ status: 200, text });
    const late = await invoke('keyed', 'one', headers);
    expect([late.status, late.text]).toEqual([200, text]);
    const other = await invoke('keyed', 'two', headers);
    expect([other.status, other.body]).toEqual([
      422,
      {
        detail: [
          {
            type: 'value_error',
            loc: ['header', 'idempotency-key'],
            msg: 'Value error, the Idempotency-Key was used for another request',
            input: null,
            ctx: { error: {} },
          },
        ],
      },
    ]);
    expect(await history('keyed')).toEqual(['one', 'answer 1']);
  });

  test('/run answers the same bytes, made from the stored events', async () => {
    await app.post(user, { sessionId: 'run' });
    const body = { appName: 'harness_agent', userId: 'u', sessionId: 'run', newMessage: { parts: [{ text: 'x' }] } };
    const first = app.post('/run', body, { 'idempotency-key': 'run-1' });
    await gate.entered(2);
    gate.open();
    const { text } = await first;
    const again = await app.post('/run', body, { 'idempotency-key': 'run-1' });
    expect([again.status, again.text]).toEqual([200, text]);
    expect(await history('run')).toHaveLength(2);
  });

  test('/run_sse attaches: a retry while it runs gets the stored events and the rest', async () => {
    await app.post(user, { sessionId: 'sse' });
    const body = { appName: 'harness_agent', userId: 'u', sessionId: 'sse', newMessage: { parts: [{ text: 'x' }] } };
    const headers = { 'idempotency-key': 'sse-1' };
    const first = app.post('/run_sse', body, headers);
    await gate.entered(3);
    const second = app.post('/run_sse', body, headers);
    gate.open([callPart('calculator', { expression: '1+1' }, 'c')]);
    await gate.entered(4);
    gate.open();
    const [one, two] = await Promise.all([first, second]);
    expect(two.text).toBe(one.text);
    expect(one.text.match(/^data: /gm)).toHaveLength(3);
    const third = await app.post('/run_sse', body, headers);
    expect(third.text).toBe(one.text);
  });
});

describe('a killed process', () => {
  test('bricks nothing: the next message ends the dead invocation, answers its calls and goes on', async () => {
    await start();
    const answers: string[] = [];
    const dead = randomUUID();
    const calls = [{ functionCall: { id: 'c1', name: 'calculator', args: {} } }];
    const events = [
      { id: 'q', invocationId: 'e-dead', author: 'user', content: { role: 'user', parts: [{ text: 'before' }] } },
      { id: 'c', invocationId: 'e-dead', author: 'harness_agent', content: { role: 'model', parts: calls } },
    ];
    await app.post(user, { sessionId: 'dead', events });
    await sql(`update sessions set lease_token = '${dead}' where id = 'dead'`);
    await sql(`insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
      values ('harness_agent', 'u', 'dead', 'e-dead', 'running', '${dead}', clock_timestamp())`);
    const next = invoke('dead', 'after');
    await gate.entered(1);
    gate.open();
    answers.push(output(await next));
    expect(answers).toEqual(['answer 1']);
    const stored = ((await app.get(`${user}/dead`)).body as { events: Event[] }).events;
    expect(stored.map(({ content, errorCode }) => content?.parts?.[0] ?? errorCode)).toEqual([
      { text: 'before' },
      calls[0],
      {
        functionResponse: {
          id: 'c1',
          name: 'calculator',
          response: { error: 'The call was interrupted before it answered.' },
        },
      },
      'interrupted',
      { text: 'after' },
      { text: 'answer 1' },
    ]);
    expect(await statuses('dead')).toEqual(['interrupted', 'succeeded']);
    await app.close();
  });

  test('the sweeper ends it without a next message', async () => {
    await start({}, [], { sweepIntervalMs: 50 });
    const dead = randomUUID();
    await app.post(user, { sessionId: 'swept' });
    await sql(`update sessions set lease_token = '${dead}' where id = 'swept'`);
    await sql(`insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
      values ('harness_agent', 'u', 'swept', 'e-dead', 'running', '${dead}', clock_timestamp())`);
    await until('swept', 'interrupted', 1);
    expect(await history('swept')).toEqual(['interrupted']);
    expect(await sql(`select lease_token from sessions where id = 'swept'`)).toEqual([{ lease_token: null }]);
    await app.close();
  });

  test('whoever lost its lease writes nothing more, and tells nobody of a failure', async () => {
    await start({ SESSION_LEASE_MS: '300' });
    const zombie = invoke('z', 'one');
    await gate.entered(1);
    await sql(`update invocations set lease_token = '${randomUUID()}' where session_id = 'z'`);
    await sql(`update sessions set lease_token = null where id = 'z'`);
    gate.open();
    const { status, headers, text } = await zombie;
    expect([status, headers.get('retry-after')]).toEqual([503, null]);
    const id = headers.get('x-invocation-id');
    expect(text).toContain(`GET /apps/harness_agent/users/u/sessions/z/invocations/${id} says how it ends`);
    expect(await history('z')).toEqual(['one']);
    await app.close();
  });
});

describe('invocations are a resource', () => {
  beforeAll(() => start());
  afterAll(() => app.close());

  test('start in the background, look at it, cancel it', async () => {
    await app.post(user, { sessionId: 'bg' });
    const started = await app.post(`${user}/bg/invocations`, { newMessage: { parts: [{ text: 'hello' }] } });
    const known = {
      id: expect.stringMatching(/^e-/),
      appName: 'harness_agent',
      userId: 'u',
      sessionId: 'bg',
      agentVersion: 'test',
    };
    const counts = { llmCalls: 0, toolCalls: 0, promptTokens: 0, outputTokens: 0 };
    const times = { createTime: expect.any(Number), startTime: expect.any(Number) };
    expect([started.status, started.body]).toEqual([200, { ...known, ...counts, ...times, status: 'running' }]);
    const { id } = started.body as { id: string };
    await gate.entered(1);
    const cancelled = await app.post(`${user}/bg/invocations/${id}/cancel`);
    expect(cancelled).toMatchObject({ status: 200, body: { status: 'cancelled' } });
    await until('bg', 'cancelled', 1);
    expect((await app.get(`${user}/bg/invocations/${id}`)).body).toEqual({
      ...known,
      ...counts,
      ...times,
      llmCalls: expect.any(Number),
      endTime: expect.any(Number),
      workSeconds: expect.any(Number),
      status: 'cancelled',
      error: { code: 'cancelled', message: 'The invocation was cancelled.' },
    });
    expect(await history('bg')).toEqual(['hello', 'cancelled']);
    expect(await invocations('bg')).toHaveLength(1);
    gate.open();
  });

  test('a finished one counts calls and tokens and stays as it is when it is cancelled', async () => {
    const answer = invoke('counted', 'x');
    await gate.entered(2);
    gate.open([callPart('calculator', { expression: '1+1' }, 'c')]);
    await gate.entered(3);
    gate.open();
    await answer;
    const [found] = await invocations('counted');
    expect(found).toMatchObject({ status: 'succeeded', llmCalls: 2, toolCalls: 1, promptTokens: 20, outputTokens: 14 });
    expect((await app.post(`${user}/counted/invocations/${found?.id}/cancel`)).body).toEqual(found);
  });
});

describe('the stream of a session', () => {
  beforeAll(() => start());
  afterAll(() => app.close());

  const follow = async (path: string, headers: Record<string, string>, count: number, at = app.url) => {
    const leave = new AbortController();
    const response = await fetch(`${at}${path}`, { headers, signal: leave.signal });
    let text = '';
    const decoder = new TextDecoder();
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += decoder.decode(chunk, { stream: true });
      if ((text.match(/^data: /gm)?.length ?? 0) >= count) break;
    }
    leave.abort();
    return [...text.matchAll(/^id: (\d+)\ndata: (.*)$/gm)].map(([, id, data]) => [
      Number(id),
      (JSON.parse(data ?? '') as Event).content?.parts?.[0]?.text,
    ]);
  };

  test('replays what was missed and goes on live, also what another replica writes', async () => {
    const other = await startOn(app.databaseUrl, {}, { agents: gate.agents });
    const first = invoke('s', 'one');
    await gate.entered(1);
    gate.open();
    await first;
    const following = follow(`${user}/s/events/stream`, { 'last-event-id': '1' }, 3);
    const second = invoke('s', 'two', {}, client(other.url));
    await gate.entered(2);
    gate.open();
    await second;
    expect(await following).toEqual([
      [2, 'answer 1'],
      [3, 'two'],
      [4, 'answer 2'],
    ]);
    expect(await follow(`${user}/s/events/stream?afterSequence=3`, {}, 1, other.url)).toEqual([[4, 'answer 2']]);
    await other.close();
  });

  /** What a stream says up to a text, as it was sent. */
  const readUntil = async (response: Response, last: string) => {
    let text = '';
    const decoder = new TextDecoder();
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      text += decoder.decode(chunk, { stream: true });
      if (text.includes(last)) return text;
    }
    throw new Error(`the stream ended: ${text}`);
  };
  const create = (sessionId: string, texts: string[]) =>
    app.post(user, {
      sessionId,
      events: texts.map((text, n) => ({
        id: `${n}`,
        author: 'user',
        invocationId: 'i',
        content: { parts: [{ text }] },
      })),
    });

  test('a place beyond the end is answered with an event that says so, and with all events', async () => {
    await create('short', ['one', 'two']);
    const leave = new AbortController();
    const headers = { 'last-event-id': '7' };
    const response = await fetch(`${app.url}${user}/short/events/stream`, { headers, signal: leave.signal });
    const text = await readUntil(response, '"two"');
    const restart = { detail: 'The session has 2 events, so 7 is no place in it.' };
    expect(text.startsWith(`event: restart\nid: 0\ndata: ${JSON.stringify(restart)}\n\nid: 1\ndata: {`)).toBe(true);
    leave.abort();
  });

  test('a session that is deleted and created again is told apart, and all of the new one is sent', async () => {
    await create('again', ['old one', 'old two']);
    const leave = new AbortController();
    const response = await fetch(`${app.url}${user}/again/events/stream`, { signal: leave.signal });
    // One transaction, so that the stream cannot look between the two.
    const database = new Client({ connectionString: app.databaseUrl });
    const reading = readUntil(response, 'new three');
    await database.connect();
    await expect.poll(async () => (await app.get(`${user}/again`)).status).toBe(200);
    await database.query(`begin; create temp table kept as select * from events where session_id = 'again';
      create temp table session as select * from sessions where id = 'again';
      delete from sessions where id = 'again';
      update session set create_time = clock_timestamp(), last_sequence = 3;
      insert into sessions select * from session;
      insert into events select * from kept;
      update kept set sequence = 3, id = 'third', payload = '{"content": {"parts": [{"text": "new three"}]}}'
        where sequence = 2;
      insert into events select * from kept where sequence = 3;
      commit`);
    await database.end();
    const text = await reading;
    leave.abort();
    expect([...text.matchAll(/^(?:event|id): (.*)$/gm)].map(([, value]) => value)).toEqual([
      '1',
      '2',
      'restart',
      '0',
      '1',
      '2',
      '3',
    ]);
    expect(text).toContain('data: {"detail":"The session was deleted and created again."}');
  });

  test.each(['1.5', '9999999999', '9'.repeat(20), 'abc', '-3'])('begins nowhere for the place %s', async (place) => {
    const byHeader = await app.get(`${user}/s/events/stream`, { 'last-event-id': place });
    const byQuery = await app.get(`${user}/s/events/stream?afterSequence=${place}`);
    const at = ({ status, body }: Answer) => [
      status,
      (body as { detail: { loc: string[] }[] }).detail.map(({ loc }) => loc),
    ];
    expect(at(byHeader)).toEqual([422, [['header', 'last-event-id']]]);
    expect(at(byQuery)).toEqual([422, [['query', 'afterSequence']]]);
  });
});

describe('limits always hold', () => {
  const failing = async (environment: Record<string, string>, prompt = 'x') => {
    const { body } = await invoke('s', prompt);
    const [{ status } = { status: '' }] = await invocations('s');
    return [environment, (body as { error: string }).error, status];
  };

  test('tool calls', async () => {
    app = await startApp(
      { MAX_TOOL_CALLS: '2' },
      { agents: hostScript([[callPart('calculator', { expression: '1' })]]) },
    );
    expect(await failing({})).toEqual([{}, 'Max number of tool calls limit of `2` exceeded', 'failed']);
    const { events } = (await app.get(`${user}/s`)).body as { events: Event[] };
    const parts = events.flatMap(({ content }) => content?.parts ?? []);
    const ids = (kind: 'functionCall' | 'functionResponse') =>
      parts.flatMap((part) => (part[kind] ? [part[kind].id] : []));
    expect(ids('functionResponse')).toEqual(ids('functionCall'));
    await app.close();
  });

  test('bytes of an event', async () => {
    app = await startApp({ MAX_EVENT_BYTES: '2000' }, { agents: hostScript([[{ text: 'y'.repeat(3000) }]]) });
    const [, error] = await failing({});
    expect(error).toMatch(/^An event of \d+ bytes is over the limit of 2000 bytes\.$/);
    const event = { content: { parts: [{ text: 'y'.repeat(3000) }] } };
    const detail = 'An event is larger than MAX_EVENT_BYTES, 2000 bytes.';
    const appended = await app.post(`${user}/s/events`, event);
    expect([appended.status, appended.body]).toEqual([413, { detail }]);
    const created = await app.post(user, { sessionId: 'big', events: [event] });
    expect([created.status, created.body]).toEqual([413, { detail }]);
    expect((await app.get(`${user}/big`)).status).toBe(404);
    await app.close();
  });

  test('wall clock', async () => {
    await start({ INVOCATION_TIMEOUT_MS: '100' });
    expect(await failing({})).toEqual([{}, 'The invocation took longer than its limit of 0.1 s.', 'failed']);
    await app.close();
  });

  test('bytes of a state: 413 over HTTP, and nothing of the request is stored', async () => {
    await start({ MAX_STATE_BYTES: '2000' });
    const { status, body } = await app.post(user, { sessionId: 'big', state: { ok: 1, 'user:big': 'x'.repeat(3000) } });
    expect([status, body]).toEqual([413, { detail: 'The state would be larger than MAX_STATE_BYTES.' }]);
    expect((await app.get(`${user}/big`)).status).toBe(404);
    await app.close();
  });
});

describe('stopping', () => {
  test('readiness fails, a running invocation may finish, streams end', async () => {
    gate = gatedAgents();
    app = await startApp({ SHUTDOWN_GRACE_MS: '60000' }, { agents: gate.agents });
    const answer = invoke('s', 'one');
    await gate.entered(1);
    const response = await fetch(`${app.url}${user}/s/events/stream`);
    const stream = response.body?.getReader();
    expect(new TextDecoder().decode((await stream?.read())?.value)).toContain('"one"');
    const closing = app.close();
    expect((await stream?.read())?.done).toBe(true);
    gate.open();
    expect(output(await answer)).toBe('answer 1');
    await closing;
  });

  test('what does not finish in time, and may not go on elsewhere, ends as interrupted', async () => {
    gate = gatedAgents();
    const database = await startApp();
    const settings = { SHUTDOWN_GRACE_MS: '600000', INVOCATION_ATTEMPTS: '1' };
    const grace = new AbortController();
    const overrides = { agents: gate.agents, stopping: grace.signal };
    const runtime = await startOn(database.databaseUrl, settings, overrides);
    const answer = invoke('s', 'one', {}, client(runtime.url));
    await gate.entered(1);
    const closed = runtime.close();
    const error = 'The invocation was interrupted: the service is stopping.';
    grace.abort(new AgentError('interrupted', error));
    await closed;
    expect((await answer).body).toMatchObject({ output: '', error });
    expect(await sql(`select status from invocations`, database.databaseUrl)).toEqual([{ status: 'interrupted' }]);
    await database.close();
  });
});

describe('a keyed request whose process died', () => {
  const insert = (sessionId: string, status: string, hash: string) =>
    sql(`insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time,
                               idempotency_key, request_hash)
      values ('harness_agent', 'u', '${sessionId}', 'e-${sessionId}', '${status}', '${randomUUID()}', clock_timestamp(),
              'k-${sessionId}', '${hash}')`);
  /** The hash that the runtime keeps for a request, read from one that ran. */
  const hashOf = async (sessionId: string) => {
    const first = invoke(sessionId, 'one', { 'idempotency-key': `first-${sessionId}` });
    await gate.entered(1);
    gate.open();
    await first;
    const [row] = await sql(`select request_hash from invocations where idempotency_key = 'first-${sessionId}'`);
    await app.send('DELETE', `${user}/${sessionId}`);
    await app.post(user, { sessionId });
    return String(row?.['request_hash']);
  };

  test('while it waited: it never began, and the retry runs it', async () => {
    await start();
    await insert('waited', 'queued', await hashOf('waited'));
    const retry = invoke('waited', 'one', { 'idempotency-key': 'k-waited' });
    await gate.entered(2);
    gate.open();
    expect((await retry).body).toMatchObject({ output: 'answer 2', error: null });
    expect(await statuses('waited')).toEqual(['interrupted', 'succeeded']);
    await app.close();
  });

  test('while it ran: the retry is told so, and never that it succeeded', async () => {
    await start({}, [], { sweepIntervalMs: 50 });
    await insert('ran', 'running', await hashOf('ran'));
    await until('ran', 'interrupted', 1);
    const retry = await invoke('ran', 'one', { 'idempotency-key': 'k-ran' });
    expect(retry.body).toMatchObject({
      output: '',
      error: 'The invocation was interrupted: its process lost the session.',
    });
    await app.close();
  });
});
