import { describe, expect, onTestFinished, test } from 'vitest';
import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import type { Part } from '../../src/core/content.ts';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import { toResponseId } from '../../src/features/doors/openai/ids.ts';
import { hostAgent } from '../support/agents.ts';
import { client, startApp, startOn } from '../support/app.ts';
import { openLive, say } from '../support/live-client.ts';
import { MINUTE } from '../support/patience.ts';
import { callPart } from '../support/scripted-model.ts';
import { staged, stagedSql } from '../support/staged.ts';

/**
 * Agents that are used as tools: each runs in a session of its own. A model calls what the first word of its text names,
 * an agent with the rest of the text, and then says what it was answered. ` & ` stands between the calls of the root, ` + `
 * between those of others.
 */

const USERS = '/apps/harness_agent/users';
/** Each is called by the one before. */
const AGENTS = ['helper', 'deep', 'deeper', 'deep4', 'deep5', 'deep6'];

/** The tokens of one call: more than is reserved for it. */
const DEAR = { promptTokenCount: 10_000, candidatesTokenCount: 5_000, totalTokenCount: 15_000 };

/** It calls `spin` again and again, and where an agent is asked something dear, each of its calls uses many tokens. */
const model: Model = {
  provider: 'scripted',
  // eslint-disable-next-line require-yield
  async *generate({ contents, instruction, tools: offered }) {
    const last = contents.at(-1)?.parts ?? [];
    const isDear = JSON.stringify(contents[0]).includes('"dear');
    const usageMetadata = isDear ? DEAR : { promptTokenCount: 10, candidatesTokenCount: 1 };
    const turns = contents.filter(({ role }) => role === 'model').length;
    if (last.some(({ functionResponse }) => functionResponse?.name === 'spin'))
      return { content: { role: 'model', parts: [callPart('spin', { turns })] }, usageMetadata };
    const answers = last.flatMap(({ functionResponse }) => (functionResponse ? [functionResponse.response] : []));
    if (answers.length > 0) {
      const texts = answers.map((answer) => {
        const told = answer?.['error'] ?? answer?.['result'] ?? answer;
        return typeof told === 'string' ? told : JSON.stringify(told);
      });
      return { content: { role: 'model', parts: [{ text: `said ${texts.join(', ')}` }] }, usageMetadata };
    }
    const said = last.map((part) => part.text ?? '').join('');
    const parts = said.split(instruction.startsWith('Answer.') ? ' & ' : ' + ').flatMap((each): Part[] => {
      const [name = '', ...rest] = each.split(' ');
      if (!offered.some((tool) => tool.name === name)) return [];
      const args = AGENTS.includes(name) ? { request: rest.join(' ') } : {};
      return [{ functionCall: { name, args } }];
    });
    return { content: { role: 'model', parts: parts.length > 0 ? parts : [{ text: said }] }, usageMetadata };
  },
};

/** What an agent answered that a tool calls within the invocation: its model calls `spin` again and again. */
let consulted: string | undefined;
const plain = { description: 'Acts.', parameters: { type: 'object', properties: {} }, needsConfirmation: false };
let ran = 0;
let held: { entered: PromiseWithResolvers<void>; released: PromiseWithResolvers<void> } | undefined;
const tools: Tool[] = [
  { ...plain, name: 'pay', needsConfirmation: true, run: async () => ({ result: `paid ${++ran}` }) },
  { ...plain, name: 'ask', longRunning: true, effect: 'none', run: async () => undefined },
  { ...plain, name: 'spin', effect: 'none', run: async () => ({ result: 'spun' }) },
  { ...plain, name: 'act', effect: 'once', run: async () => ({ result: `acted ${++ran}` }) },
  {
    ...plain,
    name: 'hold',
    effect: 'none',
    async run(_args, { signal }) {
      held?.entered.resolve();
      await Promise.race([held?.released.promise, new Promise((resolve) => signal.addEventListener('abort', resolve))]);
      return { result: 'held' };
    },
  },
  {
    ...plain,
    name: 'consult',
    effect: 'none',
    async run(_args, context) {
      const spin = tools.filter(({ name }) => name === 'spin');
      const node = { ...own, name: 'inner', kind: 'llm' as const, instruction: '', appendedInstruction: '' };
      const called = context.callAgent({ ...node, model, tools: spin, subAgents: [] }, 'spin');
      consulted = await called.then(({ text }) => text).catch((error: Error) => error.message);
      return { result: consulted };
    },
  },
  {
    ...plain,
    name: 'note',
    effect: 'none',
    async run(_args, { actions, state, session, services }) {
      actions.stateDelta = { seen: state['colour'] ?? null, noted: true };
      await services.saveArtifact('note.txt', { text: 'A note.' });
      return { result: session.sessionId };
    },
  },
];

const own = { description: '', modelName: 'scripted', skills: [], mcpServers: [], sampling: {}, asTool: true };
const names = [...tools.map(({ name }) => name), 'load_artifacts'].filter(
  (name) => builtInTools().has(name) || tools.some((tool) => tool.name === name),
);
const toAgent = (name: string, subAgents: AgentDefinition[]): AgentDefinition => ({
  ...own,
  name,
  instruction: 'Help.',
  tools: names,
  subAgents,
});
const [helper] = AGENTS.reduceRight<AgentDefinition[]>((below, name) => [toAgent(name, below)], []);
const agents = (more: Partial<AgentDefinition> = {}) =>
  hostAgent(model, tools, { subAgents: helper ? [helper] : [], ...more });

const app = staged(() =>
  startApp({ CRONJOBS: 'true', DEV_UI: 'true', DOORS: 'openai' }, { agents: agents(), sweepIntervalMs: 50 }),
);
const sql = stagedSql(app);

/** Another process, in which the agent is a bit different. */
async function startOther(more: Partial<AgentDefinition>) {
  const other = await startOn(app.databaseUrl, {}, { agents: agents(more) });
  onTestFinished(() => other.close());
  return client(other.url);
}

interface Task {
  id: string;
  kind: string;
  sessionId: string;
  rootSessionId?: string;
  callId: string;
}
interface Row {
  session_id: string;
  status: string;
  llm_calls: number;
  tool_calls: number;
  prompt_tokens: number;
  attempt: number;
}

let sessions = 0;
async function begin(state: object = {}) {
  const sessionId = `s${++sessions}`;
  const userId = `u${sessions}`;
  const path = `${USERS}/${userId}/sessions`;
  await app.post(path, { sessionId, state });
  const run = (text: string, on: Pick<typeof app, 'post'> = app) =>
    on.post('/run', { appName: 'harness_agent', userId, sessionId, newMessage: { role: 'user', parts: [{ text }] } });
  const start = async (text: string) =>
    (await app.post(`${path}/${sessionId}/invocations`, { newMessage: { parts: [{ text }] } })).body as { id: string };
  const rows = async () =>
    (
      await sql.query<Row>(
        `select i.* from invocations i join sessions s on s.user_id = i.user_id and s.id = i.session_id
         where i.user_id = $1 order by s.depth, i.create_time`,
        [userId],
      )
    ).rows;
  const statuses = async () => (await rows()).map(({ status }) => status);
  const tasks = async (query = '') =>
    ((await app.get(`/tasks?appName=harness_agent&ownerId=${userId}${query}`)).body as { items: Task[] }).items;
  const answer = async () => {
    const [task] = await tasks();
    return app.send('PATCH', `/tasks/${task?.id ?? ''}`, { action: 'answer' });
  };
  const text = async (id = sessionId) =>
    ((await app.get(`${path}/${id}`)).body as { events: { content?: { parts: Part[] } }[] }).events.flatMap(
      ({ content }) => content?.parts.flatMap((part) => part.text ?? []) ?? [],
    );
  const children = async (of = sessionId) =>
    (await app.get(`${path}?parentSessionId=${of}&withDetails=true`)).body as { id: string; parent: object }[];
  return { sessionId, userId, path, run, start, rows, statuses, tasks, answer, text, children };
}

test('its steps are stored in a child session, which lists leave out; what it used counts in its parent once', async () => {
  const { sessionId, userId, path, run, rows, children, text } = await begin({ colour: 'red' });
  expect((await run('helper note')).status).toBe(200);
  expect(await rows()).toMatchObject([
    { session_id: sessionId, status: 'succeeded', llm_calls: 4, tool_calls: 2, prompt_tokens: 40 },
    { status: 'succeeded', llm_calls: 2, tool_calls: 1, prompt_tokens: 20 },
  ]);
  const [child] = await children();
  expect(child).toMatchObject({
    parent: { sessionId, rootSessionId: sessionId },
    state: { colour: 'red', noted: true },
  });
  expect(await text(child?.id)).toEqual(['note', `said ${sessionId}`]);
  expect(await text()).toEqual(['helper note', `said said ${sessionId}`]);
  expect((await app.get(path)).body).toMatchObject([{ id: sessionId, state: { seen: 'red', noted: true } }]);
  expect((await app.get(`${path}/${sessionId}/artifacts`)).body).toEqual(['note.txt']);
  const usage = await app.get(`/apps/harness_agent/users/${userId}/usage`);
  expect(usage.body).toMatchObject({ items: [{ invocations: 1, llmCalls: 4, promptTokens: 40 }] });
  const charged = await sql.query(
    'select sum(invocations)::int as invocations, sum(prompt_tokens)::int as tokens from budget_uses where user_id = $1',
    [userId],
  );
  expect(charged.rows).toEqual([{ invocations: 1, tokens: 40 }]);
});

test('what it asks stands in the inbox; the answer lets it go on, and then its parent', async () => {
  const { sessionId, run, statuses, tasks, answer, text, rows, children } = await begin();
  ran = 0;
  expect((await run('helper pay')).status).toBe(200);
  expect(await statuses()).toEqual(['paused', 'paused']);
  const [child] = await children();
  expect(await tasks()).toMatchObject([{ kind: 'confirmation', sessionId: child?.id, rootSessionId: sessionId }]);
  expect(await tasks(`&sessionId=${sessionId}`)).toHaveLength(1);
  const [waits] = await tasks('&kind=child');
  expect(waits).toMatchObject({ kind: 'child', sessionId });
  expect(await app.send('PATCH', `/tasks/${waits?.id ?? ''}`, { action: 'answer' })).toMatchObject({ status: 409 });
  expect((await answer()).status).toBe(200);
  await expect.poll(statuses).toEqual(['succeeded', 'succeeded']);
  expect(await text()).toEqual(['helper pay', 'said said paid 1']);
  expect(await rows()).toMatchObject([{ llm_calls: 4, attempt: 1 }, { llm_calls: 2 }]);
});

test('a question of a grandchild is answered too, beside calls that have run', async () => {
  const { run, statuses, tasks, answer, text, children } = await begin();
  ran = 0;
  await run('helper deep deeper ask & act');
  expect(await statuses()).toEqual(['paused', 'paused', 'paused', 'paused']);
  expect(await tasks()).toHaveLength(1);
  await answer();
  await expect.poll(statuses).toEqual(['succeeded', 'succeeded', 'succeeded', 'succeeded']);
  expect((await text()).at(-1)).toBe('said said said said done, acted 1');
  expect(await children()).toHaveLength(1);
  expect(ran).toBe(1);
});

test('calls beside one that waits are answered once, and what they ask is asked after it', async () => {
  const { run, statuses, answer, tasks, text } = await begin();
  ran = 0;
  await run('act & helper ask & pay');
  expect(await tasks()).toMatchObject([{ kind: 'call' }]);
  await answer();
  await expect.poll(() => tasks()).toMatchObject([{ kind: 'confirmation' }]);
  await expect.poll(statuses).toEqual(['paused', 'succeeded']);
  await answer();
  await expect.poll(statuses).toEqual(['succeeded', 'succeeded']);
  expect((await text()).at(-1)).toBe('said acted 1, said done, paid 2');
});

describe('a process that dies', () => {
  const lose = (userId: string) =>
    sql.query(`update invocations set lease_expire_time = now() - interval '1 second' where user_id = $1`, [userId]);

  test('while the child runs: it goes on, acts once, and its parent is answered once', async () => {
    const { userId, run, statuses, text, rows, children } = await begin();
    ran = 0;
    held = { entered: Promise.withResolvers(), released: Promise.withResolvers() };
    const lost = run('helper act + hold');
    await held.entered.promise;
    await expect.poll(() => ran).toBe(1);
    // The answer of the call that acted is in the ledger before the process is lost.
    const kept = () =>
      sql.query(`select from tool_calls where user_id = $1 and tool = 'act' and response is not null`, [userId]);
    await expect.poll(async () => (await kept()).rowCount).toBe(1);
    const first = held;
    held = undefined;
    await lose(userId);
    await expect.poll(statuses).toEqual(['succeeded', 'succeeded']);
    first.released.resolve();
    await lost;
    expect(ran).toBe(1);
    expect(await text()).toEqual(['helper act + hold', 'said said acted 1, held']);
    expect(await rows()).toMatchObject([
      { llm_calls: 4, prompt_tokens: 40 },
      { llm_calls: 2, attempt: 2 },
    ]);
    expect(await children()).toHaveLength(1);
  });

  test('after the child has ended: its end is found, and it is not run again', async () => {
    const { userId, run, statuses, text, rows } = await begin();
    ran = 0;
    held = { entered: Promise.withResolvers(), released: Promise.withResolvers() };
    const lost = run('helper act & hold');
    await held.entered.promise;
    await expect.poll(statuses).toEqual(['running', 'succeeded']);
    const first = held;
    held = undefined;
    await sql.query(
      `update invocations set lease_expire_time = now() - interval '1 second'
       where user_id = $1 and session_id = (select id from sessions where user_id = $1 and depth = 0)`,
      [userId],
    );
    first.released.resolve();
    await lost;
    await expect.poll(statuses).toEqual(['succeeded', 'succeeded']);
    expect(ran).toBe(1);
    expect(await text()).toEqual(['helper act & hold', 'said said acted 1, held']);
    expect(await rows()).toMatchObject([{ llm_calls: 4, prompt_tokens: 40 }, { llm_calls: 2 }]);
  });
});

describe('a cancelled parent', () => {
  test('that waits: its descendants end with it, and nothing waits in the inbox', async () => {
    const { sessionId, path, run, statuses, rows, tasks } = await begin();
    await run('helper deep pay');
    const id = (await sql.query<{ id: string }>('select id from invocations where session_id = $1', [sessionId]))
      .rows[0]?.id;
    expect((await app.post(`${path}/${sessionId}/invocations/${id ?? ''}/cancel`)).status).toBe(200);
    expect(await statuses()).toEqual(['cancelled', 'cancelled', 'cancelled']);
    expect(await tasks('&kind=child&kind=confirmation')).toEqual([]);
    expect(await rows()).toMatchObject([{ llm_calls: 3 }, { llm_calls: 2 }, { llm_calls: 1 }]);
  });

  test('that runs: its descendants end', async () => {
    const { sessionId, path, start, statuses } = await begin();
    held = { entered: Promise.withResolvers(), released: Promise.withResolvers() };
    const { id } = await start('helper deep hold');
    await held.entered.promise;
    expect((await app.post(`${path}/${sessionId}/invocations/${id}/cancel`)).status).toBe(200);
    await expect.poll(statuses).toEqual(['cancelled', 'cancelled', 'cancelled']);
  });
});

test('a child that is cancelled is told to the model of its parent', async () => {
  const { path, run, statuses, text, children } = await begin();
  await run('helper pay');
  const [child] = await children();
  const id = `e-${child?.id ?? ''}`;
  expect((await app.post(`${path}/${child?.id ?? ''}/invocations/${id}/cancel`)).status).toBe(200);
  await expect.poll(statuses).toEqual(['succeeded', 'cancelled']);
  expect(await text()).toEqual(['helper pay', 'said The invocation was cancelled.']);
});

test('clients do not write in a child session, and delete it with that of its parent', async () => {
  const { sessionId, userId, path, run, children, statuses } = await begin();
  await run('helper pay');
  const [child] = await children();
  const childId = child?.id ?? '';
  const key = { appName: 'harness_agent', userId, sessionId: childId };
  const newMessage = { role: 'user', parts: [{ text: 'Hello.' }] };
  const refusals = await Promise.all([
    app.post('/run', { appName: 'harness_agent', userId, sessionId: childId, newMessage }),
    app.post(`${path}/${childId}/invocations`, { newMessage }),
    app.post(`${path}/${childId}/events`, { author: 'user', content: newMessage }),
    app.send('PATCH', `${path}/${childId}`, { stateDelta: { a: 1 } }),
    app.send('DELETE', `${path}/${childId}`),
    app.post('/harness/cronjobs', {
      ownerId: userId,
      name: 'It writes there.',
      prompt: 'Hello.',
      schedule: { type: 'daily', time: '08:00' },
      sessionPolicy: 'fixed',
      sessionId: childId,
    }),
    app.send('DELETE', `/v1/responses/${toResponseId({ key, invocationId: `e-${childId}` })}?user_id=${userId}`),
  ]);
  expect(refusals.map(({ status }) => status)).toEqual([403, 403, 403, 403, 403, 403, 403]);
  const live = await openLive(app, { app_name: key.appName, user_id: userId, session_id: childId, modalities: 'TEXT' });
  live.send(say('Hello.'));
  expect((await live.until(({ error }) => error !== undefined)).at(-1)?.error).toContain('which alone writes there');
  expect(await statuses()).toEqual(['paused', 'paused']);
  expect((await app.send('DELETE', `${path}/${sessionId}`)).status).toBeLessThan(300);
  for (const table of ['sessions', 'invocations', 'events', 'tasks', 'tool_calls']) {
    const { rowCount } = await sql.query(`select from ${table} where user_id = $1`, [userId]);
    expect([table, rowCount]).toEqual([table, 0]);
  }
});

test('an erased user leaves nothing of the tree, and a hold on the session covers its children', async () => {
  const { sessionId, userId, run, children } = await begin();
  await run('helper deep pay');
  const [child] = await children();
  await sql.query(
    `insert into legal_holds (app_name, user_id, session_id, reason) values ('harness_agent', $1, $2, 'law')`,
    [userId, sessionId],
  );
  for (const id of [sessionId, child?.id]) {
    const removed = sql.query('delete from sessions where user_id = $1 and id = $2', [userId, id]);
    await expect(removed).rejects.toThrow('legal hold');
  }
  await sql.query('delete from legal_holds where user_id = $1', [userId]);
  expect((await app.send('DELETE', `/apps/harness_agent/users/${userId}`)).status).toBeLessThan(300);
  for (const table of ['sessions', 'invocations', 'events', 'tasks', 'tool_calls']) {
    const { rowCount } = await sql.query(`select from ${table} where user_id = $1`, [userId]);
    expect([table, rowCount]).toEqual([table, 0]);
  }
});

test('an export is imported with its tree', async () => {
  const { userId, run } = await begin();
  await run('helper note');
  const { text } = await app.get(`/apps/harness_agent/users/${userId}/export`);
  const other = `${userId}-again`;
  const imported = await app.post(`/apps/harness_agent/users/${other}/import`, text, {
    'content-type': 'application/x-ndjson',
  });
  expect(imported.status).toBe(200);
  const tree = async (of: string) =>
    (
      await sql.query(
        `select id, parent_session_id, parent_invocation_id, parent_call_id, root_session_id, depth
         from sessions where user_id = $1 order by depth`,
        [of],
      )
    ).rows;
  expect(await tree(other)).toEqual(await tree(userId));
});

test('an import takes an export line by line, and no session that is above itself, or not below its parent', async () => {
  const { userId, run } = await begin();
  await run('helper deep note');
  const { text } = await app.get(`/apps/harness_agent/users/${userId}/export`);
  const lines = text.split('\n').filter((line) => line.startsWith('{"table":"sessions"'));
  expect(lines).toHaveLength(3);
  const bring = (other: string, ...rows: string[]) =>
    app.post(`/apps/harness_agent/users/${userId}-${other}/import`, rows.join('\n'), {
      'content-type': 'application/x-ndjson',
    });
  for (const line of lines) expect((await bring('lines', line)).body).toEqual({ imported: 1, present: 0 });
  const row = (id: string, parent: string, depth: number) =>
    JSON.stringify({
      table: 'sessions',
      row: {
        app_name: 'a',
        user_id: 'u',
        id,
        parent_session_id: parent,
        parent_invocation_id: 'e-1',
        parent_call_id: 'c',
        root_session_id: parent,
        depth,
      },
    });
  expect((await bring('itself', row('a', 'a', 1))).status).toBe(400);
  expect((await bring('each', row('a', 'b', 1), row('b', 'a', 2))).status).toBe(400);
  expect((await bring('lines', row('far', JSON.parse(lines[0] ?? '').row.id, 3))).status).toBe(400);
  expect((await bring('lines', row('deep', JSON.parse(lines[2] ?? '').row.id, 6))).status).toBe(400);
});

test('an invocation calls 100 agents, and no more', async () => {
  const { userId, run, text } = await begin();
  held = { entered: Promise.withResolvers(), released: Promise.withResolvers() };
  const answered = run('hold & helper look & helper hello');
  await held.entered.promise;
  const started = () => sql.query('select from sessions where user_id = $1 and depth = 1', [userId]);
  await expect.poll(async () => (await started()).rowCount).toBe(2);
  held.released.resolve();
  await answered;
  expect((await text()).at(-1)).toBe('said held, look, hello');
  const claim = sql.query(
    `insert into sessions (app_name, user_id, id, parent_session_id, parent_invocation_id, parent_call_id, root_session_id, depth)
     select app_name, user_id, 'x' || n, parent_session_id, parent_invocation_id, 'c' || n, root_session_id, 1
     from (select * from sessions where user_id = $1 and depth = 1 limit 1) s cross join generate_series(1, 98) n`,
    [userId],
  );
  await claim;
  // The parent runs on, and has called so many.
  await sql.query(`update invocations set status = 'running', children = 100 where user_id = $1 and children > 0`, [
    userId,
  ]);
  const call = (n: number) =>
    sql.query(
      `select claimed from claim_session('harness_agent', $1, $2, $2, gen_random_uuid(), null, 1000, null, null, null,
         (select jsonb_build_object('version', 1, 'child', jsonb_build_object('sessionId', parent_session_id, 'invocationId',
            parent_invocation_id, 'callId', 'more', 'rootSessionId', root_session_id, 'depth', 1))
          from sessions where user_id = $1 and depth = 1 limit 1),
         false, true, true, false, true, null, null, false, '[]', '{}', null, '{}')`,
      [userId, `more${n}`],
    );
  await expect(call(1)).rejects.toThrow('has called 100 agents');
});

test('agents are nested five deep, and no deeper', async () => {
  const { run, rows, text } = await begin();
  await run(`${AGENTS.join(' ')} look`);
  expect((await text()).at(-1)).toBe(`${'said '.repeat(6)}Agents that are used as tools are nested 5 deep at most.`);
  expect(await rows()).toHaveLength(6);
});

test('what is left of the model calls is divided among those that begin together', async () => {
  const { run, rows, text } = await begin();
  await run('helper spin & helper spin', await startOther({ maxLlmCalls: 8 }));
  const limit = 'Max number of llm calls limit of `3` exceeded';
  expect((await text()).at(-1)).toBe(`said ${limit}, ${limit}`);
  expect(await rows()).toMatchObject([
    { status: 'succeeded', llm_calls: 8 },
    { status: 'failed', llm_calls: 3 },
    { status: 'failed', llm_calls: 3 },
  ]);
});

test('what is left to a child is divided among those that it begins, and all together use no more than there is', async () => {
  const { run, rows, text } = await begin();
  const asked = 'helper deep spin + deep spin';
  await run(`${asked} & ${asked}`, await startOther({ maxLlmCalls: 20 }));
  const limit = 'Max number of llm calls limit of `9` exceeded';
  expect((await text()).at(-1)).toBe(`said ${limit}, ${limit}`);
  expect((await rows()).map(({ llm_calls }) => llm_calls)).toEqual([20, 9, 9, 4, 4, 4, 4]);
});

test('an agent that a tool calls beside it has a part, and all together use no more than there is', async () => {
  const { run, rows } = await begin();
  held = { entered: Promise.withResolvers(), released: Promise.withResolvers() };
  const answered = run('helper hold & consult', await startOther({ maxLlmCalls: 9 }));
  await held.entered.promise;
  // What is left, 8, is halved: it makes three more calls, and the child may make all of its own.
  await expect.poll(() => consulted).toBe('Max number of llm calls limit of `9` exceeded');
  held.released.resolve();
  await answered;
  expect(await rows()).toMatchObject([{ llm_calls: 8 }, { llm_calls: 2 }]);
});

test.each([8, 9])('children of agents that run in parallel use together no more than there is: %s', async (most) => {
  const { run, rows } = await begin();
  const subAgents = ['one', 'two'].map((name, place) => ({
    ...toAgent(name, [toAgent(AGENTS[place] ?? '', [])]),
    asTool: false,
  }));
  await run('helper spin + deep spin', await startOther({ kind: 'parallel', subAgents, maxLlmCalls: most }));
  const [all = 0, ...each] = (await rows()).map(({ llm_calls }) => llm_calls);
  expect(all).toBeLessThanOrEqual(most);
  for (const part of each) expect(part).toBeLessThanOrEqual(3);
  expect(each).toHaveLength(2);
});

test('a call that takes too long ends its agent, also one that another process runs', async () => {
  const { run, statuses, text } = await begin();
  held = { entered: Promise.withResolvers(), released: Promise.withResolvers() };
  await run('helper deep hold', await startOther({ toolLimits: { helper: { timeoutMs: 1_000 } } }));
  expect((await text()).at(-1)).toBe('said The tool took longer than 1000 ms.');
  // The lowest one may not have begun by then.
  await expect.poll(async () => [...new Set(await statuses())]).toEqual(['succeeded', 'interrupted']);
});

test('a budget that is used up stops it, and with it its parent; both go on once it has more', async () => {
  const { userId, start, statuses, tasks, text } = await begin();
  const setBudget = (maxTokens: number) =>
    app.send('PUT', '/apps/harness_agent/budgets', { appliesTo: 'user', forUser: userId, period: 'day', maxTokens });
  await setBudget(15_000);
  await start('helper dear + act');
  await expect.poll(statuses).toEqual(['paused', 'paused']);
  expect(await tasks()).toMatchObject([{ kind: 'budget' }]);
  await setBudget(1_000_000);
  await sql.query(`update tasks set expire_time = now(), due_time = now() where user_id = $1 and kind = 'budget'`, [
    userId,
  ]);
  await expect.poll(statuses).toEqual(['succeeded', 'succeeded']);
  expect((await text()).at(-1)).toMatch(/^said said acted/);
});

test('a parent that was not told of the end is told by a sweep', async () => {
  const { userId, run, statuses, text } = await begin();
  await run('helper pay');
  const ofChild = `where user_id = $1 and session_id = (select id from sessions where user_id = $1 and depth = 1)`;
  await sql.query(`update invocations set request = null ${ofChild}`, [userId]);
  await sql.query(
    `update invocations set status = 'cancelled', end_time = now(), error_code = 'cancelled', error_message = 'Gone.' ${ofChild}`,
    [userId],
  );
  // Each minute; and another process does as it starts, unless one does just then.
  await startOther({});
  await expect.poll(statuses, { timeout: 1.5 * MINUTE }).toEqual(['succeeded', 'cancelled']);
  expect((await text()).at(-1)).toBe('said Gone.');
});

test('it is in the trace of the call, and linked to that, also when it goes on after a wait', async () => {
  const { sessionId, run, statuses, answer, children } = await begin();
  await run('helper pay');
  const [child] = await children();
  await answer();
  await expect.poll(statuses).toEqual(['succeeded', 'succeeded']);
  interface Span {
    name: string;
    span_id: string;
    trace_id: string;
    links: { span_id: string; attributes: object }[];
  }
  const spans = async (session = '', name = '') =>
    ((await app.get(`/dev/apps/harness_agent/debug/trace/session/${session}`)).body as Span[]).filter(
      (span) => span.name === name,
    );
  await expect.poll(() => spans(child?.id, 'invocation')).toHaveLength(2);
  const [call] = await spans(sessionId, 'execute_tool helper');
  const link = { span_id: call?.span_id, attributes: { 'agent_runtime.link.reason': 'parent' } };
  const below = { trace_id: call?.trace_id };
  const after = { attributes: { 'agent_runtime.link.reason': 'confirmation' } };
  expect(await spans(child?.id, 'invocation')).toMatchObject([
    { ...below, links: [link] },
    { ...below, links: [after, link] },
  ]);
});
