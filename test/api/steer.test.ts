import { Client } from 'pg';
import { afterEach, describe, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { toEvalInvocations } from '../../src/features/evals/cases/turns.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { hostAgent } from '../support/agents.ts';
import { type Answer, client, startApp, startOn, type TestApp } from '../support/app.ts';
import { type AskedGate, newAskedGate } from '../support/asked-gate.ts';
import { callPart } from '../support/scripted-model.ts';

/** Messages that a running invocation takes between two of its steps. */

const user = '/apps/harness_agent/users/u/sessions';
const steer = { 'x-double-texting': 'steer' };

let gate: AskedGate;
let app: TestApp;
const replicas: Runtime[] = [];
const agents = () => hostAgent(gate.model, [], { tools: ['calculator', 'sleep_for', 'ask_person'] });
async function start(environment: Record<string, string> = {}) {
  gate = newAskedGate();
  app = await startApp(environment, { agents: agents(), sweepIntervalMs: 50 });
  await app.post(user, { sessionId: 's' });
}
async function addReplica() {
  const replica = await startOn(app.databaseUrl, {}, { agents: agents(), sweepIntervalMs: 50 });
  replicas.push(replica);
  return client(replica.url);
}
afterEach(async () => {
  for (const replica of replicas.splice(0)) await replica.close();
  await app.close();
});

const message = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
const run = (text: string, headers = {}, at: Pick<TestApp, 'post'> = app, path = '/run') =>
  at.post(path, { appName: 'harness_agent', userId: 'u', sessionId: 's', ...message(text) }, headers);
const invoke = (prompt: string, headers = {}) =>
  app.post(
    '/harness/invoke',
    { prompt, harness_name: 'h', run_agent_request: { user_id: 'u', session_id: 's' } },
    headers,
  );
const background = async (text: string, headers = {}, at: Pick<TestApp, 'post'> = app) =>
  (await at.post(`${user}/s/invocations`, message(text), headers)).body as { id: string; status: string };
interface Row {
  id: string;
  status: string;
  steeredInto?: string;
}
const list = async () => (await app.get(`${user}/s/invocations`)).body as Row[];
const find = async (id: string) => (await app.get(`${user}/s/invocations/${id}`)).body as Row;
async function until(status: string, count: number) {
  await expect.poll(async () => (await list()).filter((each) => each.status === status)).toHaveLength(count);
}
const events = async () => ((await app.get(`${user}/s`)).body as { events: Event[] }).events;
const said = async () =>
  (await events()).map(({ content, errorCode }) => {
    const { text, functionCall, functionResponse } = content?.parts?.[0] ?? {};
    return (
      text ?? (functionCall ? `${functionCall.name}()` : functionResponse ? `=${functionResponse.name}` : errorCode)
    );
  });
async function sql(statement: string) {
  const database = new Client({ connectionString: app.databaseUrl });
  await database.connect();
  const { rows } = await database.query<Record<string, unknown>>(statement);
  await database.end();
  return rows;
}
const sum = callPart('calculator', { expression: '1' });
const texts = ({ body }: Answer) => (body as Event[]).map(({ content }) => content?.parts?.[0]?.text);

describe('a message for a running invocation', () => {
  test('is stored behind its next step and in the next request; who sent it gets the answer', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const second = run('two', steer);
    await until('queued', 1);
    const third = invoke('three', steer);
    await until('queued', 2);
    gate.answer(sum);
    await gate.entered(2);
    expect(gate.asked[1]).toEqual(['one', 'calculator()', '=calculator', 'two', 'three']);
    gate.answer({ text: 'done' });
    const [one, two, three] = await Promise.all([first, second, third]);
    expect([one, two, three].map(({ status }) => status)).toEqual([200, 200, 200]);
    expect([texts(one).at(-1), texts(two)]).toEqual(['done', ['done']]);
    expect(three.body).toEqual({ harness_name: 'h', overwrite: false, output: 'done', error: null });
    const all = await list();
    const taker = all.find(({ steeredInto }) => steeredInto === undefined)?.id;
    expect(all.map(({ status, steeredInto }) => [status, steeredInto])).toEqual([
      ['succeeded', taker],
      ['succeeded', taker],
      ['succeeded', undefined],
    ]);
    expect([two, three].map(({ headers }) => headers.get('x-invocation-id'))).toEqual([taker, taker]);
    expect(await said()).toEqual(['one', 'calculator()', '=calculator', 'two', 'three', 'done']);
    const stored = await events();
    expect(stored.slice(3, 5).map(({ author, invocationId }) => [author, invocationId])).toEqual([
      ['user', taker],
      ['user', taker],
    ]);
    expect(new Set(all.slice(0, 2).map(({ id }) => id))).toEqual(new Set(stored.slice(3, 5).map(({ id }) => id)));
    expect(await sql('select sum(invocations)::int as counted from budget_uses')).toEqual([{ counted: 3 }]);
    expect(await sql('select sum(invocations)::int as counted from inspect.usage')).toEqual([{ counted: 3 }]);
    const usage = (await app.get('/apps/harness_agent/users/u/usage')).body;
    expect(usage).toMatchObject({ items: [{ invocations: 3 }] });
    expect(await sql('select is_steered from sessions')).toEqual([{ is_steered: false }]);
    const { items } = (await app.get('/apps/harness_agent/invocations?userId=u')).body as { items: Row[] };
    expect(items.map(({ steeredInto }) => steeredInto)).toEqual([taker, taker, undefined]);
    const bytes = `select event_bytes = (select sum(bytes) from events) as is_right from sessions`;
    expect(await sql(bytes)).toEqual([{ is_right: true }]);
  });

  test('begins the next turn if the run ends first', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const second = run('two', steer);
    const third = run('three', steer);
    await until('queued', 2);
    gate.answer({ text: 'first' });
    await gate.entered(2);
    expect(gate.asked[1]?.slice(0, 2)).toEqual(['one', 'first']);
    gate.answer({ text: 'second' });
    await gate.entered(3);
    gate.answer({ text: 'third' });
    expect(texts(await first)).toEqual(['first']);
    expect(new Set([...texts(await second), ...texts(await third)])).toEqual(new Set(['second', 'third']));
    expect((await list()).map(({ status, steeredInto }) => [status, steeredInto])).toEqual(
      Array.from({ length: 3 }, () => ['succeeded', undefined]),
    );
    expect(await events()).toHaveLength(6);
  });

  test('comes by the setting, from another replica, and in the background', async () => {
    await start({ DOUBLE_TEXTING: 'steer' });
    const replica = await addReplica();
    const first = run('one');
    await gate.entered(1);
    const { id } = await background('two', steer, replica);
    const third = await background('three');
    gate.answer(sum);
    await gate.entered(2);
    expect(gate.asked[1]?.slice(3)).toEqual(['two', 'three']);
    gate.answer({ text: 'done' });
    await first;
    const [taker] = (await list()).filter(({ steeredInto }) => !steeredInto);
    expect([await find(id), await find(third.id)]).toMatchObject([
      { status: 'succeeded', steeredInto: taker?.id },
      { status: 'succeeded', steeredInto: taker?.id },
    ]);
  });

  test('an idle session begins an invocation, as ever', async () => {
    await start();
    const first = invoke('one', steer);
    await gate.entered(1);
    gate.answer({ text: 'first' });
    expect((await first).body).toMatchObject({ output: 'first', error: null });
    expect(await sql('select is_steered from sessions')).toEqual([{ is_steered: false }]);
  });

  test('a retry with the same key gets the same answer, while it waits and afterwards', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const keyed = { ...steer, 'idempotency-key': 'k' };
    const sent = [run('two', keyed), invoke('three', { ...steer, 'idempotency-key': 'h' })];
    await until('queued', 2);
    sent.push(run('two', keyed));
    gate.answer(sum);
    await gate.entered(2);
    sent.push(run('two', keyed));
    gate.answer({ text: 'done' });
    await first;
    const [one, harness, ...more] = await Promise.all(sent);
    for (const { body } of [...more, await run('two', keyed)]) expect(body).toEqual(one?.body);
    expect((await invoke('three', { ...steer, 'idempotency-key': 'h' })).body).toEqual(harness?.body);
    expect(await list()).toHaveLength(3);
  });

  test('as a stream: the frames of the run behind the message', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const second = run('two', steer, app, '/run_sse');
    await until('queued', 1);
    gate.answer(sum);
    await gate.entered(2);
    gate.answer({ text: 'done' });
    await first;
    const frames = ((await second).text ?? '').split('\n').filter((line) => line.startsWith('data: '));
    expect(frames.map((line) => (JSON.parse(line.slice(6)) as Event).content?.parts?.[0]?.text)).toEqual(['done']);
  });

  test('what is more than a message waits for its own turn', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const body = { appName: 'harness_agent', userId: 'u', sessionId: 's', ...message('two') };
    const second = app.post('/run', { ...body, stateDelta: { a: 1 } }, steer);
    await until('queued', 1);
    gate.answer(sum);
    await gate.entered(2);
    expect(gate.asked[1]?.slice(3)).toEqual([]);
    gate.answer({ text: 'first' });
    await first;
    await gate.entered(3);
    gate.answer({ text: 'second' });
    expect(texts(await second)).toEqual(['second']);
  });

  test('that is cancelled while it waits is not taken; one that was taken is not cancelled', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const [two, three] = [await background('two', steer), await background('three', steer)];
    await app.post(`${user}/s/invocations/${two.id}/cancel`);
    gate.answer(sum);
    await gate.entered(2);
    expect(gate.asked[1]?.slice(3)).toEqual(['three']);
    const { status, body } = await app.post(`${user}/s/invocations/${three.id}/cancel`);
    const { steeredInto = '' } = await find(three.id);
    expect([status, body]).toEqual([409, { detail: expect.stringContaining(steeredInto) as string }]);
    gate.answer({ text: 'done' });
    await first;
  });
});

describe('a run that took a message', () => {
  test('and whose process dies goes on with it, and takes what came meanwhile', async () => {
    await start();
    const lost = run('one');
    await gate.entered(1);
    await background('two', steer);
    gate.answer(sum);
    await gate.entered(2);
    await background('three', steer);
    await sql(`update invocations set lease_expire_time = now() - interval '1 second' where status = 'running'`);
    // The request of the process that goes on.
    await gate.entered(3);
    expect(gate.asked[2]).toEqual(['one', 'calculator()', '=calculator', 'two']);
    gate.answer();
    gate.answer(sum);
    await gate.entered(4);
    expect(gate.asked[3]?.slice(3)).toEqual(['two', 'calculator()', '=calculator', 'three']);
    gate.answer({ text: 'done' });
    await lost;
    await until('succeeded', 3);
    expect((await said()).filter((text) => text === 'two' || text === 'three')).toEqual(['two', 'three']);
  });

  test('is one turn of an evaluation case, with both messages', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    await background('two', steer);
    gate.answer(sum);
    await gate.entered(2);
    gate.answer({ text: 'done' });
    await first;
    expect(toEvalInvocations(await events())).toMatchObject([
      {
        userContent: { parts: [{ text: 'one' }, { text: 'two' }] },
        finalResponse: { parts: [{ text: 'done' }] },
        intermediateData: { invocationEvents: [{}, {}] },
      },
    ]);
  });

  test('is replayed with it', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    await background('two', steer);
    gate.answer(sum);
    await gate.entered(2);
    gate.answer(sum);
    await gate.entered(3);
    gate.answer({ text: 'done' });
    await first;
    const [taker] = (await list()).filter(({ steeredInto }) => !steeredInto);
    const { body } = await app.post(`${user}/s/invocations/${taker?.id}/replay`, {});
    expect(body).toMatchObject({ status: 'same', events: 5, output: { before: 'done', after: 'done' } });
    expect(body).not.toHaveProperty('breaks');
  });
});

describe('a run that waits', () => {
  test('in a sleep is woken by a message, and has it in its next request', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    gate.answer(callPart('sleep_for', { days: 2 }));
    await first;
    await until('paused', 1);
    const second = run('two', steer);
    await gate.entered(2);
    expect(gate.asked[1]).toEqual(['one', 'sleep_for()', '=sleep_for', 'two']);
    gate.answer({ text: 'awake' });
    expect(texts(await second)).toEqual(['awake']);
    const all = await list();
    expect(all.map(({ status, steeredInto }) => [status, steeredInto])).toEqual([
      ['succeeded', all[1]?.id],
      ['succeeded', undefined],
    ]);
    const responses = (await events()).flatMap(({ content }) => content?.parts?.[0]?.functionResponse?.response ?? []);
    expect(responses.at(-1)).toMatchObject({ woken: 'by a message' });
    const { body } = await app.post(`${user}/s/invocations/${all[1]?.id}/replay`, {});
    expect(body).toMatchObject({ status: 'same' });
  });

  test('in a sleep is not woken by a message with other settings, which is answered beside it', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    gate.answer(callPart('sleep_for', { days: 2 }));
    await first;
    await until('paused', 1);
    const body = { prompt: 'two', harness_name: 'h', harness: { max_llm_calls: 9 } };
    const second = app.post(
      '/harness/invoke',
      { ...body, run_agent_request: { user_id: 'u', session_id: 's' } },
      steer,
    );
    await gate.entered(2);
    gate.answer({ text: 'beside' });
    await second;
    expect((await list()).map(({ status, steeredInto }) => [status, steeredInto])).toEqual([
      ['succeeded', undefined],
      ['paused', undefined],
    ]);
  });

  test('settings that are encrypted, of the message or of what runs, are not the same as any', async () => {
    await start();
    const [open, sealed, none] = [
      `{"overrides": {"maxLlmCalls": 5}}`,
      `{"overrides": {}, "secrets": "s"}`,
      '{"overrides": {}}',
    ];
    const both = `{"overrides": {"maxLlmCalls": 5}, "secrets": "s"}`;
    const compare = (mine: string, other: string) => `has_settings_of('${mine}', '${other}')`;
    const pairs = [
      compare(open, open),
      compare(open, both),
      compare(both, both),
      compare(sealed, sealed),
      compare(none, both),
    ];
    expect(await sql(`select array[${pairs.join(', ')}] as same`)).toEqual([
      { same: [true, false, false, false, true] },
    ]);
  });

  test('falls asleep while a message waits: it wakes at once', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const second = run('two', steer);
    await until('queued', 1);
    gate.answer(callPart('sleep_for', { days: 2 }));
    await first;
    await gate.entered(2);
    expect(gate.asked[1]).toEqual(['one', 'sleep_for()', '=sleep_for', 'two']);
    gate.answer({ text: 'awake' });
    expect(texts(await second)).toEqual(['awake']);
  });

  test('for a person: the message begins the next turn', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const second = run('two', steer);
    await until('queued', 1);
    gate.answer(callPart('ask_person', { question: 'Which?' }));
    await first;
    await gate.entered(2);
    gate.answer({ text: 'meanwhile' });
    expect(texts(await second)).toEqual(['meanwhile']);
    expect((await list()).map(({ status, steeredInto }) => [status, steeredInto])).toEqual([
      ['succeeded', undefined],
      ['paused', undefined],
    ]);
  });
});

describe('a message that the run cannot take begins the next turn', () => {
  test('because the run has used the tokens that its caller left to it', async () => {
    await start({ DOORS: 'a2a' });
    const metadata = { 'agent-runtime/tokens': 17 };
    const content = { messageId: 'm', contextId: 's', role: 'ROLE_USER', parts: [{ text: 'one' }], metadata };
    const first = app.post('/a2a/harness_agent/message:send', { message: content }, { 'a2a-version': '1.0' });
    await gate.entered(1);
    const path = '/apps/harness_agent/users/user/sessions/s/invocations';
    const { id } = (await app.post(path, message('two'), steer)).body as { id: string };
    gate.answer(sum);
    await gate.entered(2);
    expect(gate.asked[1]?.at(-1)).toBe('two');
    gate.answer({ text: 'second' });
    expect(JSON.stringify((await first).body)).toContain('TASK_STATE_FAILED');
    const findMessage = async () => (await app.get(`${path}/${id}`)).body as Row;
    await expect.poll(async () => (await findMessage()).status).toBe('succeeded');
    expect(await findMessage()).not.toHaveProperty('steeredInto');
  });

  test('because a client has stored an event with its id', async () => {
    await start();
    const first = run('one');
    await gate.entered(1);
    const { id } = await background('two', steer);
    const content = { role: 'user', parts: [{ text: 'forged' }] };
    expect((await app.post(`${user}/s/events`, { id, author: 'user', content })).status).toBe(200);
    gate.answer(sum);
    await gate.entered(2);
    expect(gate.asked[1]).not.toContain('two');
    gate.answer({ text: 'done' });
    expect(texts(await first).at(-1)).toBe('done');
    await gate.entered(3);
    expect(gate.asked[2]).toContain('two');
    gate.answer({ text: 'second' });
    await until('succeeded', 2);
    expect((await said()).filter((text) => text === 'two')).toHaveLength(1);
  });
});
