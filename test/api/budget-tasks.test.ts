import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { SCOPES } from '../../src/platform/http/operation/principal.ts';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { hostAgent } from '../support/agents.ts';
import { client, startApp, startOn, type TestApp } from '../support/app.ts';
import { startTokenIssuer, type TokenIssuer } from '../support/token-issuer.ts';

/** A budget that stops a run in the background is a task: who may change budgets lets it go on, no user for itself. */

/** Of one call: more than is reserved for it. */
const USED = { prompt_tokens: 10_000, completion_tokens: 5_000, total_tokens: 15_000 };
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-budget-tasks-'));
const keys = {
  admin: createKey({ id: 'admin', scopes: SCOPES }),
  plain: createKey({ id: 'plain', scopes: ['invoke', 'read'] }),
};
const admin = { authorization: `Bearer ${keys.admin.key}` };
const plain = { authorization: `Bearer ${keys.plain.key}` };

let provider: AnsweringProvider;
let tokens: TokenIssuer;
let app: TestApp;
let sql: Client;
beforeAll(async () => {
  provider = await startAnsweringProvider(
    ({ results }) => (results.length > 0 ? 'done' : { calls: [['calculator', { expression: '17 * 23' }]] }),
    USED,
  );
  tokens = await startTokenIssuer();
  writeFileSync(join(folder, 'keys'), `${keys.admin.entry}\n${keys.plain.entry}\n`);
  const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'small', MODEL_BASE_URL: provider.baseUrl };
  const settings = { ...model, TOOLS: 'calculator', MAX_OPEN_TASKS: '1' };
  app = await startApp({ ...settings, RUNTIME_API_KEYS_FILE: join(folder, 'keys') });
  sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
});
afterAll(async () => {
  await sql.end();
  await app.close();
  await Promise.all([tokens.close(), provider.close()]);
  rmSync(folder, { recursive: true });
});

interface Task {
  id: string;
  kind: string;
  form: { hint: string };
  expireTime: number;
}
const setBudget = (forUser: string, maxTokens: number) =>
  app.send('PUT', '/apps/harness_agent/budgets', { appliesTo: 'user', forUser, period: 'day', maxTokens }, admin);
const change = (task: Task | undefined, body: object, headers: Record<string, string> = admin) =>
  app.send('PATCH', `/tasks/${task?.id}`, body, headers);

/** Starts a run whose budget is enough for its first call, and waits until it is paused. */
async function stop(userId: string, sessionId = 's') {
  const path = `/apps/harness_agent/users/${userId}/sessions/${sessionId}`;
  await setBudget(userId, 15_000);
  await app.post(`/apps/harness_agent/users/${userId}/sessions`, { sessionId }, admin);
  const newMessage = { role: 'user', parts: [{ text: 'What is 17 * 23?' }] };
  const { id } = (await app.post(`${path}/invocations`, { newMessage }, admin)).body as { id: string };
  const status = async () => ((await app.get(`${path}/invocations/${id}`, admin)).body as { status: string }).status;
  const list = async () => ((await app.get(`/tasks?ownerId=${userId}`, admin)).body as { items: Task[] }).items;
  const session = async () => (await app.get(path, admin)).text;
  return { id, path, status, list, session };
}

test('it goes on where it stopped, once more may be used: each step is there once', async () => {
  const { status, list, session } = await stop('ann');
  await expect.poll(status).toBe('paused');
  const [task] = await list();
  expect(task).toMatchObject({ kind: 'budget', state: 'open', requestedBy: 'ann', users: [], groups: [] });
  expect(task?.form.hint).toContain('budget.user.day.tokens');
  // By itself it goes on when the budget opens.
  expect((task?.expireTime ?? 0) % 86_400).toBeLessThan(60);
  expect(await session()).not.toContain('errorCode');
  // A yes alone gives nothing to use.
  expect((await change(task, { action: 'answer', by: 'boss' })).status).toBe(200);
  await expect.poll(async () => (await list()).map(({ id }) => id)).not.toContain(task?.id);
  await expect.poll(status).toBe('paused');
  await expect.poll(list).toHaveLength(1);
  const [again] = await list();
  await setBudget('ann', 1_000_000);
  expect(await change(again, { action: 'answer', by: 'boss' })).toMatchObject({ body: { decidedBy: 'boss' } });
  await expect.poll(status).toBe('succeeded');
  const steps = await session();
  expect(steps.split('"functionResponse"')).toHaveLength(2);
  expect(steps).toContain('"done"');
  expect(steps).not.toContain('errorCode');
});

test('it is rejected, and ends as cancelled', async () => {
  const { status, list } = await stop('rob');
  await expect.poll(status).toBe('paused');
  const [task] = await list();
  await change(task, { action: 'reject', text: 'Too dear.', by: 'boss' });
  await expect.poll(status).toBe('cancelled');
});

test('one that was asked to stop, and is told so by nobody before it pauses, ends', async () => {
  await sql.query(`
    create function ask_to_stop() returns trigger language plpgsql as $$
    begin
      update invocations set stop_requested_as = 'cancelled' where user_id = 'sue' and status = 'running';
      return null;
    end $$`);
  await sql.query(`
    create trigger ask_to_stop after insert on events for each row when (new.user_id = 'sue' and new.author <> 'user')
    execute function ask_to_stop()`);
  const { status, list } = await stop('sue');
  await expect.poll(status).toBe('cancelled');
  expect(await list()).toEqual([]);
});

test('it goes on by itself when the budget opens', async () => {
  const { status, list } = await stop('tim');
  await expect.poll(status).toBe('paused');
  await setBudget('tim', 1_000_000);
  await sql.query('update tasks set expire_time = now(), due_time = now() where id = $1', [(await list())[0]?.id]);
  await sql.query(`select pg_notify('agent_runtime', '["tasks"]')`);
  await expect.poll(status).toBe('succeeded');
});

test('no user answers for itself, and no key without the scope for budgets', async () => {
  const { status, list, path, id } = await stop('eve');
  await expect.poll(status).toBe('paused');
  const [task] = await list();
  const yes = { action: 'answer' };
  expect((await change(task, { ...yes, by: 'boss' }, plain)).text).toContain('`admin`');
  expect((await change(task, { action: 'assign', users: ['eve'], by: 'boss' }, plain)).status).toBe(403);
  // Not even with a key that may, in the name of the one who asked.
  expect((await change(task, yes)).status).toBe(403);
  const ofUsers = await startOn(app.databaseUrl, { ...tokens.environment, DEV_UI: 'false' });
  const users = client(ofUsers.url);
  const own = await tokens.headersOf('eve', { scopes: SCOPES.join(' ') });
  expect((await users.get(`/tasks/${task?.id}`, own)).status).toBe(200);
  for (const body of [
    yes,
    { action: 'reject' },
    { action: 'postpone', seconds: 1 },
    { action: 'assign', users: ['eve'] },
  ])
    expect((await users.send('PATCH', `/tasks/${task?.id}`, body, own)).status).toBe(403);
  expect((await users.post(`/tasks/${task?.id}/address`, {}, own)).status).not.toBe(200);
  const part = { functionResponse: { id: 'budget', name: 'budget', response: { goesOn: true } } };
  const session = { appName: 'harness_agent', userId: 'eve', sessionId: 's' };
  const said = { ...session, invocationId: id, newMessage: { role: 'user', parts: [part] } };
  expect((await users.post('/run', said, own)).status).toBeGreaterThanOrEqual(400);
  expect((await users.post(`${path}/events`, { author: 'user', content: said.newMessage }, own)).status).toBe(403);
  await ofUsers.close();
  expect(await list()).toHaveLength(1);
  await expect.poll(status).toBe('paused');
});

test('where the user may have no task more, and where a client waits, the run ends as before', async () => {
  const first = await stop('max');
  await expect.poll(first.status).toBe('paused');
  // Less than a call may use, not nothing: another run begins.
  await setBudget('max', 15_001);
  const path = '/apps/harness_agent/users/max/sessions';
  await app.post(path, { sessionId: 't' }, admin);
  const newMessage = { role: 'user', parts: [{ text: 'What is 17 * 23?' }] };
  const { body } = await app.post(`${path}/t/invocations`, { newMessage }, admin);
  const run = async () => (await app.get(`${path}/t/invocations/${(body as { id: string }).id}`, admin)).text;
  await expect.poll(run).toContain('budget_exceeded');
  await app.post(path, { sessionId: 'u' }, admin);
  const waits = { appName: 'harness_agent', userId: 'max', sessionId: 'u', newMessage };
  expect((await app.post('/run', waits, admin)).text).toContain('budget_exceeded');
  expect(await first.list()).toHaveLength(1);
});

test('what has begun counts once, however often it waits and goes on; a new prompt in it counts', async () => {
  const budget = { appliesTo: 'user', forUser: 'nap', period: 'day', maxInvocations: 1 };
  const path = '/apps/harness_agent/users/nap/sessions';
  const at = await startApp({ RUNTIME_API_KEYS_FILE: join(folder, 'keys') }, { agents: hostAgent(sleeper, waiting) });
  const used = new Client({ connectionString: at.databaseUrl });
  await used.connect();
  expect((await at.send('PUT', '/apps/harness_agent/budgets', budget, admin)).status).toBeLessThan(300);
  await at.post(path, { sessionId: 's' }, admin);
  const say = (text: string) => ({ newMessage: { role: 'user', parts: [{ text }] } });
  const { id } = (await at.post(`${path}/s/invocations`, say('nap ask nap ask'), admin)).body as { id: string };
  const status = async () => ((await at.get(`${path}/s/invocations/${id}`, admin)).body as { status: string }).status;
  const open = async () => ((await at.get('/tasks?ownerId=nap', admin)).body as { items: Asked[] }).items;
  const ofKind = async (kind: string) => (await open()).filter((task) => task.kind === kind);
  // By a person, then by a message of the session.
  await expect.poll(() => ofKind('call')).toHaveLength(1);
  const [asked] = await ofKind('call');
  await at.send('PATCH', `/tasks/${asked?.id}`, { action: 'answer', answer: { ok: true } }, admin);
  await expect.poll(async () => (await ofKind('call')).filter((task) => task.id !== asked?.id)).toHaveLength(1);
  const [second] = await ofKind('call');
  const part = { functionResponse: { id: second?.callId, name: 'ask', response: { ok: true } } };
  const session = { appName: 'harness_agent', userId: 'nap', sessionId: 's' };
  const answered = { ...session, invocationId: id, newMessage: { role: 'user', parts: [part] } };
  expect((await at.post('/run', answered, admin)).status).toBe(200);
  await expect.poll(status).toBe('succeeded');
  expect((await used.query('select sum(invocations)::int as n from budget_uses')).rows).toEqual([{ n: 1 }]);
  // It has its answer: what is said then is another prompt.
  expect((await at.post('/run', { ...session, invocationId: id, ...say('done') }, admin)).status).toBe(429);
  expect((await at.post('/run', { ...session, ...say('done') }, admin)).status).toBe(429);
  await used.end();
  await at.close();
});

interface Asked {
  id: string;
  kind: string;
  callId: string;
}

/** Calls what the first message names, one after the other. */
const sleeper: Model = {
  provider: 'scripted',
  // eslint-disable-next-line require-yield
  async *generate({ contents }) {
    const names = (contents[0]?.parts?.[0]?.text ?? '').split(' ');
    const done = contents.flatMap(({ parts }) => parts ?? []).filter(({ functionResponse }) => functionResponse).length;
    const name = names[done];
    const part = name === undefined ? { text: 'done' } : { functionCall: { name, args: {} } };
    return { content: { role: 'model', parts: [part] } };
  },
};
const toWaiting = (name: string, wait: NonNullable<Tool['wait']>): Tool => ({
  name,
  description: 'Waits.',
  parameters: { type: 'object', properties: {} },
  needsConfirmation: false,
  longRunning: true,
  effect: 'none',
  wait,
  run: async () => undefined,
});
const waiting = [toWaiting('nap', { kind: 'sleep', expiresAfter: 0.3 }), toWaiting('ask', {})];
