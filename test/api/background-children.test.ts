import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import type { Part } from '../../src/core/content.ts';
import { createLog } from '../../src/platform/log.ts';
import { hostAgent } from '../support/agents.ts';
import { client, startApp, startOn } from '../support/app.ts';
import { MINUTE } from '../support/patience.ts';
import { callPart } from '../support/scripted-model.ts';
import { staged, stagedSql } from '../support/staged.ts';

/**
 * Agents in the background. A model calls what the first word of its text names, with the rest of the text; ` & ` stands
 * between the calls of the root, ` + ` between those of others, ` ; ` below these. Then it says what it got, and what it
 * was told.
 */

const USERS = '/apps/harness_agent/users';
const SAID = /^The agent `/;

const model: Model = {
  provider: 'scripted',
  // eslint-disable-next-line require-yield
  async *generate({ contents, instruction, tools: offered }) {
    const usageMetadata = { promptTokenCount: 10, candidatesTokenCount: 1 };
    const place = contents.findLastIndex(({ role }) => role === 'model');
    const last = contents.slice(place + 1).flatMap(({ parts }): Part[] => parts ?? []);
    const turns = contents.filter(({ role }) => role === 'model').length;
    if (last.some(({ functionResponse }) => functionResponse?.name === 'spin'))
      return { content: { role: 'model', parts: [callPart('spin', { turns })] }, usageMetadata };
    const got = last.flatMap(({ functionResponse, text }) => {
      const { started, error, result = error } = functionResponse?.response ?? {};
      if (functionResponse) return [started === undefined ? `got ${String(result)}` : 'started'];
      if (text?.endsWith('again and again')) return [];
      return text != null && SAID.test(text) ? [`told ${text.replaceAll(/which the call \S+ started/g, 'which')}`] : [];
    });
    // An agent that starts itself anew with each result.
    const said = last
      .map(({ text }) => (text ?? '').replace(/^The agent .*\sagain and again$/s, 'helper last again and again'))
      .join('');
    const separator = instruction.startsWith('Answer.') ? ' & ' : instruction === 'Go between.' ? ' + ' : ' ; ';
    const calls = said.split(separator).flatMap((each): Part[] => {
      const [name = '', ...rest] = each.split(' ');
      if (!offered.some((tool) => tool.name === name)) return [];
      const [last_, text] = [rest.at(-1) === 'behind', rest.join(' ').replace(/ behind$/, '')];
      const args = AGENTS.includes(name) ? { request: text, ...(last_ && { background: true }) } : {};
      return [{ functionCall: { name, args: HAS_TEXT.includes(name) ? { gate: text } : args } }];
    });
    const answer = got.length > 0 ? [{ text: got.join(', ') }] : calls.length > 0 ? calls : [{ text: said }];
    return { content: { role: 'model', parts: answer }, usageMetadata };
  },
};
const AGENTS = ['helper', 'maybe', 'middle', 'deep'];
const HAS_TEXT = ['hold', 'last'];

const plain = { description: 'Acts.', parameters: { type: 'object', properties: {} }, needsConfirmation: false };
/** Gates at which `hold` waits, by name. */
const gates = new Map<string, { entered: PromiseWithResolvers<void>; opened: PromiseWithResolvers<void> }>();
function gate(name: string) {
  const found = gates.get(name) ?? { entered: Promise.withResolvers<void>(), opened: Promise.withResolvers<void>() };
  gates.set(name, found);
  return { entered: found.entered.promise, open: () => found.opened.resolve() };
}
const tools: Tool[] = [
  { ...plain, name: 'ask', longRunning: true, effect: 'none', run: async () => undefined },
  {
    ...plain,
    name: 'nap',
    longRunning: true,
    effect: 'none',
    wait: { kind: 'sleep', expiresAfter: 600 },
    run: async () => undefined,
  },
  { ...plain, name: 'spin', effect: 'none', run: async () => ({ result: 'spun' }) },
  {
    ...plain,
    name: 'fail',
    effect: 'none',
    run: async (_args, { actions }) => {
      actions.escalate = true;
      throw new Error('broken');
    },
  },
  {
    ...plain,
    name: 'hold',
    parameters: { type: 'object', properties: { gate: { type: 'string' } } },
    effect: 'none',
    async run({ gate: name }, { signal }) {
      gate(String(name));
      const { entered, opened } = gates.get(String(name)) ?? {};
      entered?.resolve();
      await Promise.race([opened?.promise, new Promise((resolve) => signal.addEventListener('abort', resolve))]);
      return { result: `held ${String(name)}` };
    },
  },
  {
    ...plain,
    name: 'last',
    parameters: { type: 'object', properties: { gate: { type: 'string' } } },
    effect: 'none',
    // Answers once no turn of the user's session runs: an agent that calls it begins the next one.
    async run({ gate: text }, { session: { userId }, signal }) {
      const runs = () =>
        sql.query(
          `select from invocations i join sessions s on s.user_id = i.user_id and s.id = i.session_id
           where i.user_id = $1 and s.depth = 0 and i.status = 'running'`,
          [userId],
        );
      while (!signal.aborted && (await runs()).rowCount !== 0) await sleep(20);
      return { result: String(text) };
    },
  },
  {
    ...plain,
    name: 'note',
    effect: 'none',
    async run(_args, { actions, services }) {
      actions.stateDelta = { noted: 'yes' };
      actions.artifactDelta = { 'note.txt': 0 };
      await services.saveArtifact('note.txt', { text: 'A note.' });
      return { result: 'noted' };
    },
  },
];

const own = { description: '', modelName: 'scripted', skills: [], mcpServers: [], sampling: {} };
const names = tools.map(({ name }) => name);
const toAgent = (name: string, more: Partial<AgentDefinition> = {}): AgentDefinition => ({
  ...own,
  name,
  instruction: 'Help.',
  tools: names,
  ...more,
});
const subAgents = [
  toAgent('helper', { background: true }),
  toAgent('maybe', { background: 'optional' }),
  toAgent('middle', { asTool: true, instruction: 'Go between.', subAgents: [toAgent('deep', { background: true })] }),
];
const agents = (more: Partial<AgentDefinition> = {}) => hostAgent(model, tools, { subAgents, ...more });
/** What the service logged as an error. */
const errors: string[] = [];
const log = createLog('error', { write: (line) => void errors.push(line) });
const app = staged(() =>
  startApp({ DOORS: 'ai-sdk,a2a', CRONJOBS: 'true' }, { agents: agents(), sweepIntervalMs: 50, log }),
);
const sql = stagedSql(app);

interface Row {
  id: string;
  session_id: string;
  depth: number;
  status: string;
  llm_calls: number;
  error_message: string | null;
  steered_invocation_id: string | null;
}
interface StoredEvent {
  author: string;
  invocationId: string;
  content?: { parts: Part[] };
  actions?: { stateDelta?: object };
  customMetadata?: Record<string, unknown>;
}

let sessions = 0;
async function begin(prefix = 's') {
  const sessionId = `${prefix}${++sessions}`;
  const userId = `u${sessions}`;
  const path = `${USERS}/${userId}/sessions`;
  await app.post(path, { sessionId, state: { colour: 'red' } });
  const message = (text: string) => ({ role: 'user', parts: [{ text }] });
  const run = (text: string, on: Pick<typeof app, 'post'> = app, headers = {}) =>
    on.post('/run', { appName: 'harness_agent', userId, sessionId, newMessage: message(text) }, headers);
  const start = async (text: string) =>
    (await app.post(`${path}/${sessionId}/invocations`, { newMessage: message(text) })).body as { id: string };
  const rows = async () =>
    (
      await sql.query<Row>(
        `select i.*, s.depth from invocations i join sessions s on s.user_id = i.user_id and s.id = i.session_id
         where i.user_id = $1 order by s.depth, i.create_time, i.id`,
        [userId],
      )
    ).rows;
  const statuses = async () => (await rows()).map(({ depth, status }) => `${depth} ${status}`);
  const events = async (id = sessionId) =>
    ((await app.get(`${path}/${id}`)).body as { events: StoredEvent[]; state: object }) ?? { events: [] };
  /** What the agents of a session have said. */
  const said = async (id = sessionId) =>
    (await events(id)).events.flatMap(({ author, content }) =>
      author === 'user' ? [] : (content?.parts.flatMap(({ text }) => text ?? []) ?? []),
    );
  const child = async (depth = 1) => (await rows()).find((row) => row.depth === depth);
  const cancel = (row: Pick<Row, 'id' | 'session_id'> | undefined) =>
    app.post(`${path}/${row?.session_id ?? ''}/invocations/${row?.id ?? ''}/cancel`);
  const answerTask = async () => {
    const list = await app.get(`/tasks?appName=harness_agent&ownerId=${userId}`);
    const [task] = (list.body as { items: { id: string }[] }).items;
    return app.send('PATCH', `/tasks/${task?.id ?? ''}`, { action: 'answer' });
  };
  return { sessionId, userId, path, run, start, rows, statuses, events, said, child, cancel, answerTask };
}

const ENDED = 'told The agent `helper`, which in the background, has ended. Its answer:\n\n';
const DEEP = ENDED.replace('helper', 'deep');

test('the call answers at once; its result begins the next turn, with its state changes and the names of artifacts', async () => {
  const { sessionId, userId, path, run, rows, events, said, statuses } = await begin();
  expect((await run('helper note ; last look')).status).toBe(200);
  expect((await said())[0]).toBe('started');
  await expect.poll(statuses).toEqual(['0 succeeded', '0 succeeded', '1 succeeded']);
  expect(await said()).toEqual([
    'started',
    'told The agent `helper`, which in the background, has ended. It saved these artifacts: note.txt. Its answer:\n\ngot noted, got look',
  ]);
  const [, , child] = await rows();
  const { events: all, state } = await events();
  const prompt = all.findLast(({ author }) => author === 'user');
  const result = { agent: 'helper', sessionId: child?.session_id, invocationId: child?.id, status: 'succeeded' };
  expect(prompt).toMatchObject({
    customMetadata: { 'agent-runtime/result': { ...result, artifacts: { 'note.txt': 0 } } },
    actions: { stateDelta: { noted: 'yes' } },
  });
  expect(state).toEqual({ colour: 'red', noted: 'yes' });
  expect((await app.get(`${path}/${sessionId}/artifacts`)).body).toEqual(['note.txt']);
  expect((await app.get(`${path}?parentSessionId=${sessionId}`)).body).toMatchObject([{ id: child?.session_id }]);
  const chat = await app.get(`/ai-sdk/harness_agent/chat/${sessionId}/messages?version=6&userId=${userId}`);
  expect(chat.body).toMatchObject([{}, {}, { role: 'user', metadata: { result } }, {}]);
  // The two turns are invocations of the user, the agent is none; what it used counts in the first.
  const usage = await app.get(`/apps/harness_agent/users/${userId}/usage`);
  expect(usage.body).toMatchObject({ items: [{ invocations: 2, llmCalls: 5 }] });
  const { rows: charged } = await sql.query(
    `select sum(invocations)::int as invocations from budget_uses where user_id = $1`,
    [userId],
  );
  expect(charged).toEqual([{ invocations: 2 }]);
});

test('it steers an invocation that runs: the next request to the model has it', async () => {
  const { userId, run, said, rows, events } = await begin();
  const here = gate('steered');
  const answered = run('helper note & hold steered');
  await here.entered;
  await expect.poll(async () => (await rows()).at(-1)?.status).toBe('succeeded');
  here.open();
  expect((await answered).status).toBe(200);
  expect(await said()).toEqual([
    `started, got held steered, ${ENDED.replace('.', '. It saved these artifacts: note.txt.')}got noted`,
  ]);
  const [root, result] = await rows();
  expect(result).toMatchObject({ status: 'succeeded', steered_invocation_id: root?.id });
  const counted = await sql.query(
    `select (select sum(invocations)::int from inspect.usage where user_id = $1) as reported,
            (select sum(invocations)::int from budget_uses where user_id = $1) as charged`,
    [userId],
  );
  expect(counted.rows).toEqual([{ reported: 1, charged: 1 }]);
  const { events: all, state } = await events();
  expect(state).toEqual({ colour: 'red', noted: 'yes' });
  expect(all.filter(({ customMetadata }) => customMetadata?.['agent-runtime/result'])).toMatchObject([
    { invocationId: root?.id, customMetadata: { 'agent-runtime/steer': true } },
  ]);
});

test('it wakes an invocation that sleeps', async () => {
  const { run, said, statuses } = await begin();
  const here = gate('sleeping');
  await run('helper hold sleeping & nap');
  await here.entered;
  expect(await statuses()).toEqual(['0 paused', '1 running']);
  here.open();
  await expect.poll(statuses).toEqual(['0 succeeded', '0 succeeded', '1 succeeded']);
  expect((await said()).at(-1)).toContain(`${ENDED}got held sleeping`);
});

test('beside one that waits for a person it begins the next turn', async () => {
  const { run, said, statuses, answerTask } = await begin();
  const here = gate('asking');
  await run('helper hold asking & ask');
  await here.entered;
  here.open();
  await expect.poll(statuses).toEqual(['0 paused', '0 succeeded', '1 succeeded']);
  expect((await said()).at(-1)).toContain(`${ENDED}got held asking`);
  await answerTask();
  await expect.poll(statuses).toEqual(['0 succeeded', '0 succeeded', '1 succeeded']);
});

describe('below an agent that is waited for', () => {
  test('it steers that one', async () => {
    const { run, said, child } = await begin();
    const here = gate('inner');
    const answered = run('middle deep note + hold inner');
    await here.entered;
    const middle = await child();
    await expect.poll(async () => (await child(2))?.status).toBe('succeeded');
    here.open();
    await answered;
    const told = DEEP.replace('.', '. It saved these artifacts: note.txt.');
    expect(await said(middle?.session_id)).toEqual([`started, got held inner, ${told}got noted`]);
    expect(await said()).toEqual([`got started, got held inner, ${told}got noted`]);
  });

  test('it begins no turn there: the result waits for the answer of a person', async () => {
    const { run, said, child, statuses, answerTask } = await begin();
    const here = gate('waited');
    await run('middle deep hold waited + ask');
    await here.entered;
    here.open();
    await expect.poll(async () => (await child(2))?.status).toBe('succeeded');
    expect(await statuses()).toEqual(['0 paused', '1 paused', '1 queued', '2 succeeded']);
    const middle = await child();
    await answerTask();
    await expect.poll(statuses).toEqual(['0 succeeded', '1 succeeded', '1 succeeded', '2 succeeded']);
    expect((await said(middle?.session_id)).at(-1)).toContain(`${DEEP}got held waited`);
  });

  test('it wakes that one, if it sleeps', async () => {
    const { run, said, child, statuses } = await begin();
    const here = gate('wakes');
    await run('middle deep hold wakes + nap');
    await here.entered;
    here.open();
    await expect.poll(statuses).toEqual(['0 succeeded', '1 succeeded', '1 succeeded', '2 succeeded']);
    expect((await said((await child())?.session_id)).at(-1)).toContain(`${DEEP}got held wakes`);
  });

  test('one that has ended: its result goes on to the session of the user', async () => {
    const { run, said, statuses } = await begin();
    const here = gate('outlives');
    await run('middle deep hold outlives');
    await here.entered;
    expect(await said()).toEqual(['got started']);
    here.open();
    await expect.poll(statuses).toEqual(['0 succeeded', '0 succeeded', '1 succeeded', '2 succeeded']);
    expect((await said()).at(-1)).toBe(`${DEEP}got held outlives`);
  });

  test('one that is interrupted while its result waits there: it moves up', async () => {
    const { run, said, child, statuses } = await begin();
    const here = gate('moves');
    await run('middle deep hold moves + ask');
    await here.entered;
    here.open();
    await expect.poll(async () => (await child(2))?.status).toBe('succeeded');
    const middle = await child();
    await sql.query(`select * from request_stop('harness_agent', $1, $2, $3, 'interrupted', 'Stopped.')`, [
      (await sql.query<{ user_id: string }>('select user_id from sessions where id = $1', [middle?.session_id])).rows[0]
        ?.user_id,
      middle?.session_id,
      middle?.id,
    ]);
    await expect.poll(statuses).toEqual(['0 succeeded', '0 succeeded', '1 interrupted', '2 succeeded']);
    expect((await said()).join()).toContain(`${DEEP}got held moves`);
  });
});

test('nothing is left of it when its session is deleted', async () => {
  const { sessionId, userId, path, run } = await begin();
  const here = gate('deleted');
  await run('helper hold deleted');
  await here.entered;
  expect((await app.send('DELETE', `${path}/${sessionId}`)).status).toBe(200);
  here.open();
  const left = async () => (await sql.query('select from invocations where user_id = $1', [userId])).rowCount;
  expect(await left()).toBe(0);
  await expect.poll(left).toBe(0);
});

describe('a cancellation', () => {
  test('that comes as it pauses ends it, and its agents', async () => {
    const { start, rows, statuses } = await begin();
    const here = gate('pauses');
    await start('helper ask & hold pauses & ask');
    await here.entered;
    await expect.poll(statuses).toEqual(['0 running', '1 paused']);
    // The process is not told of it before it pauses.
    const [root] = await rows();
    await sql.query(`update invocations set status = status, stop_requested_as = 'cancelled' where id = $1`, [
      root?.id,
    ]);
    here.open();
    await expect.poll(statuses).toEqual(['0 cancelled', '1 cancelled']);
    const open = await sql.query(`select from tasks where session_id = $1 and state = 'open'`, [root?.session_id]);
    expect(open.rowCount).toBe(0);
  });

  test('of an invocation that runs ends all, and nothing is told', async () => {
    const { start, rows, statuses, cancel } = await begin();
    const [here, below] = [gate('root runs'), gate('child runs')];
    await start('helper hold child runs & middle deep hold deeper & hold root runs');
    await Promise.all([here.entered, below.entered, gate('deeper').entered]);
    const [root] = await rows();
    await expect.poll(statuses).toContain('1 succeeded');
    expect((await cancel(root)).status).toBe(200);
    await expect
      .poll(async () => (await statuses()).sort())
      .toEqual(['0 cancelled', '1 cancelled', '1 succeeded', '2 cancelled']);
  });

  test('of one that has ended ends its agents, also those below one that has ended, and says so', async () => {
    const { run, rows, statuses, cancel, said } = await begin();
    await run('helper hold left & middle deep hold left below');
    await Promise.all([gate('left').entered, gate('left below').entered]);
    const [root] = await rows();
    expect((await cancel(root)).body).toMatchObject({ status: 'succeeded', stoppedAgents: 2 });
    await expect
      .poll(async () => (await statuses()).sort())
      .toEqual(['0 succeeded', '1 cancelled', '1 succeeded', '2 cancelled']);
    expect((await cancel(root)).body).not.toHaveProperty('stoppedAgents');
    expect(await said()).toHaveLength(1);
  });

  test('takes back results that wait', async () => {
    const { start, rows, statuses, cancel } = await begin();
    const here = gate('waits on');
    await start('helper quick & hold waits on');
    await here.entered;
    await expect.poll(statuses).toEqual(['0 running', '0 queued', '1 succeeded']);
    await cancel((await rows())[0]);
    await expect.poll(statuses).toEqual(['0 cancelled', '0 cancelled', '1 succeeded']);
  });

  test('of the agent alone is told', async () => {
    const { run, child, said, statuses, cancel } = await begin();
    await run('helper hold alone');
    await gate('alone').entered;
    await cancel(await child());
    await expect.poll(statuses).toEqual(['0 succeeded', '0 succeeded', '1 cancelled']);
    expect((await said()).at(-1)).toBe(
      'told The agent `helper`, which in the background, was cancelled: The invocation was cancelled.',
    );
  });
});

test('an interruption leaves it alone', async () => {
  const { run, start, statuses, said } = await begin();
  const [here, below] = [gate('interrupted'), gate('goes on')];
  await start('helper hold goes on & hold interrupted');
  await Promise.all([here.entered, below.entered]);
  expect((await run('Hello.', app, { 'x-double-texting': 'interrupt' })).status).toBe(200);
  expect(await statuses()).toEqual(['0 interrupted', '0 succeeded', '1 running']);
  below.open();
  await expect.poll(statuses).toEqual(['0 interrupted', '0 succeeded', '0 succeeded', '1 succeeded']);
  expect((await said()).at(-1)).toBe(`${ENDED}got held goes on`);
});

test('what is left is divided among those that begin together and their parent, and is lent', async () => {
  const { run, rows, events, statuses } = await begin();
  const other = await startOther({ maxLlmCalls: 10 });
  await run('helper spin & helper spin & spin', other);
  await expect
    .poll(async () => (await statuses()).filter((each) => each.endsWith('running') || each.endsWith('queued')))
    .toEqual([]);
  const all = await rows();
  const why = 'Max number of llm calls limit of `3` exceeded';
  const failed = { status: 'failed', llm_calls: 3, error_message: why };
  expect(all.filter(({ depth }) => depth === 1)).toMatchObject([failed, failed]);
  expect(all[0]).toMatchObject({ status: 'failed', llm_calls: 10 });
  const told = (await events()).events.flatMap(({ author, content }) =>
    author === 'user' ? (content?.parts ?? []) : [],
  );
  expect(told.at(-1)?.text).toContain(`in the background, has failed: ${why}`);
});

test('tokens that are left are divided, and lent, as calls are', async () => {
  // A call uses 11. The root has 66 after its first one.
  const message = {
    messageId: 'm',
    role: 'user',
    parts: [{ kind: 'text', text: 'helper spin & helper spin & spin' }],
    metadata: { 'agent-runtime/tokens': 77 },
  };
  const call = { jsonrpc: '2.0', id: 1, method: 'message/send', params: { message } };
  await app.post('/a2a/harness_agent?user_id=tokens', call);
  const all = async () =>
    (
      await sql.query<Row>(
        `select i.*, s.depth from invocations i join sessions s on s.user_id = i.user_id and s.id = i.session_id
         where i.user_id = 'tokens' order by s.depth, i.create_time`,
      )
    ).rows;
  await expect
    .poll(async () => (await all()).filter(({ depth }) => depth === 1).map(({ status }) => status))
    .toEqual(['failed', 'failed']);
  await expect.poll(async () => (await all())[0]?.status).toBe('failed');
  const failed = { llm_calls: 2, error_message: expect.stringContaining('tokens') as unknown };
  expect((await all()).filter(({ depth }) => depth === 1)).toMatchObject([failed, failed]);
  expect((await all())[0]).toMatchObject({ llm_calls: 7 });
});

test('a schedule starts one: the result comes to the session of its run', async () => {
  const { userId } = await begin();
  const schedule = { type: 'once', onceAt: '2900-01-01T00:00:00Z' };
  const job = { ownerId: userId, name: 'n', prompt: 'helper last look', schedule };
  const { jobId } = (await app.post('/harness/cronjobs', job)).body as { jobId: string };
  const { runId } = (await app.post(`/harness/cronjobs/${jobId}/run`)).body as { runId: string };
  const read = async () => (await app.get(`/harness/cronjobs/${jobId}/runs/${runId}`)).body as Record<string, string>;
  // The run ends when the call has answered.
  await expect.poll(read).toMatchObject({ status: 'success' });
  const { sessionId = '' } = await read();
  const events = async () =>
    ((await app.get(`${USERS}/${userId}/sessions/${sessionId}`)).body as { events: StoredEvent[] }).events;
  await expect
    .poll(async () => (await events()).flatMap(({ content }) => content?.parts.flatMap(({ text }) => text ?? []) ?? []))
    .toContain(`${ENDED}got look`);
});

test('a cancellation of a run that has ended ends its agents', async () => {
  const { userId, statuses } = await begin();
  const schedule = { type: 'once', onceAt: '2900-01-01T00:00:00Z' };
  const job = { ownerId: userId, name: 'n', prompt: 'helper hold scheduled', schedule };
  const { jobId } = (await app.post('/harness/cronjobs', job)).body as { jobId: string };
  const { runId } = (await app.post(`/harness/cronjobs/${jobId}/run`)).body as { runId: string };
  const path = `/harness/cronjobs/${jobId}/runs/${runId}`;
  await gate('scheduled').entered;
  await expect.poll(async () => (await app.get(path)).body).toMatchObject({ status: 'success' });
  expect((await app.post(`${path}/cancel`)).body).toMatchObject({ status: 'success' });
  await expect.poll(statuses).toEqual(['0 succeeded', '1 cancelled']);
});

test('a rewind ends the agents of the turns that it takes back, and tells nobody of them', async () => {
  const { sessionId, path, run, rows, said, statuses } = await begin();
  await run('Hello.');
  const [kept, removed] = [gate('kept on'), gate('taken back')];
  await run('helper hold kept on');
  await kept.entered;
  await run('helper hold taken back & middle deep hold taken back');
  await removed.entered;
  const { id } = (await rows()).filter(({ depth }) => depth === 0)[2] ?? {};
  const rewound = await app.post(`${path}/${sessionId}/rewind`, { rewindBeforeInvocationId: id });
  expect(rewound.status).toBe(200);
  const ofAgents = async () => (await statuses()).filter((each) => !each.startsWith('0')).sort();
  await expect.poll(ofAgents).toEqual(['1 cancelled', '1 running', '1 succeeded', '2 cancelled']);
  kept.open();
  removed.open();
  await expect.poll(async () => (await said()).at(-1)).toBe(`${ENDED}got held kept on`);
  expect((await said()).filter((each) => each.includes('taken back'))).toEqual([]);
});

test('what an agent has lent counts for the one above it', async () => {
  const { run, rows } = await begin();
  await run('middle deep spin & spin', await startOther({ maxLlmCalls: 23 }));
  // The middle may make 11 calls, half of what is left, lends 5 and makes 2.
  await expect.poll(async () => (await rows()).find(({ depth }) => depth === 2)?.status).toBe('failed');
  await expect.poll(async () => (await rows())[0]).toMatchObject({ status: 'failed', llm_calls: 23 });
  expect((await rows()).filter(({ depth }) => depth > 0).map(({ depth, llm_calls }) => [depth, llm_calls])).toEqual([
    [1, 7],
    [2, 5],
  ]);
});

test('where too little is left, the call is an error', async () => {
  const { run, said } = await begin();
  await run('helper note', await startOther({ maxLlmCalls: 2 }));
  expect(await said()).toEqual(['got Too little of what the invocation may use is left for the agent `helper`.']);
});

test('results begin at most 100 turns one after the other; a message of the user lets it go on', async () => {
  const { sessionId, run, said, statuses } = await begin();
  const here = gate('again and again');
  await run('helper hold again and again');
  await here.entered;
  // As if 97 turns before it had been begun by results.
  await sql.query(
    `update invocations set request = jsonb_set(request, '{child,turns}', '97') where session_id in (
       select id from sessions where depth = 1 and root_session_id = $1)`,
    [sessionId],
  );
  here.open();
  const refused = 'got Results of agents have begun 100 turns, one after the other. A message of the user is needed.';
  await expect.poll(async () => (await said()).at(-1)).toBe(refused);
  expect(await said()).toEqual(['started', 'started', 'started', refused]);
  expect(await statuses()).toEqual([
    ...Array.from({ length: 4 }, () => '0 succeeded'),
    ...Array.from({ length: 3 }, () => '1 succeeded'),
  ]);
  await run('helper look');
  // It may come before the call's own turn ends.
  await expect.poll(async () => (await said()).at(-1)).toContain(`${ENDED}look`);
});

test('with `optional` the model says whether it waits', async () => {
  const { run, said } = await begin();
  await run('maybe look');
  expect(await said()).toEqual(['got look']);
  await run('maybe last look behind');
  await expect.poll(() => said()).toEqual(['got look', 'started', `${ENDED.replace('helper', 'maybe')}got look`]);
});

test('a long answer is cut, and the message says so', async () => {
  const { run, said } = await begin();
  await run(`helper last ${'x'.repeat(56)}`, await startOther({ toolLimits: { helper: { maxResultCharacters: 20 } } }));
  const cut = ENDED.replace(
    'Its answer:',
    'Its answer has 60 characters, too many to be shown whole. These are the first:',
  );
  await expect.poll(async () => (await said()).at(-1)).toBe(`${cut}got ${'x'.repeat(16)}`);
});

test('a cut leaves no part of a character that is stored as several', async () => {
  const { run, said } = await begin();
  const text = `${'x'.repeat(17)}\0${'y'.repeat(40)}`;
  await run(`helper ${text}`, await startOther({ toolLimits: { helper: { maxResultCharacters: 20 } } }));
  await expect.poll(async () => (await said()).at(-1)).toMatch(/the first:\n\nx{17}$/);
});

test('in the session of an evaluation each call waits', async () => {
  const { run, said, statuses } = await begin('___eval___session___');
  await run('helper look');
  expect(await said()).toEqual(['got look']);
  expect(await statuses()).toEqual(['0 succeeded', '1 succeeded']);
});

test('its session is kept while it works', async () => {
  const { sessionId, userId, run } = await begin();
  const here = gate('kept');
  await run('helper hold kept');
  await here.entered;
  await sql.query(`update sessions set update_time = now() - interval '9 days' where user_id = $1`, [userId]);
  const deleted = async () => (await sql.query(`select from sessions where id = $1`, [sessionId])).rowCount === 0;
  const sweep = () =>
    startOn(app.databaseUrl, { SESSION_RETENTION_DAYS: '1' }, { agents: agents(), sweepIntervalMs: 50 });
  const gone = await begin();
  await sql.query(`update sessions set update_time = now() - interval '8 days' where user_id = $1`, [gone.userId]);
  // Its first sweep is for an hour the only one.
  const other = await sweep();
  onTestFinished(() => other.close());
  await expect
    .poll(async () => (await sql.query(`select from sessions where id = $1`, [gone.sessionId])).rowCount)
    .toBe(0);
  expect(await deleted()).toBe(false);
  here.open();
});

test('a parent that goes on in another process starts none twice', async () => {
  const { userId, run, statuses, said } = await begin();
  const here = gate('lost');
  const lost = run('helper look & hold lost');
  await here.entered;
  await expect.poll(async () => (await statuses()).at(-1)).toBe('1 succeeded');
  await sql.query(
    `update invocations set lease_expire_time = now() - interval '1 second' where user_id = $1 and status = 'running'`,
    [userId],
  );
  here.open();
  await lost;
  await expect.poll(statuses).toEqual(['0 succeeded', '0 succeeded', '1 succeeded']);
  expect((await said()).at(-1)).toBe(`started, got held lost, ${ENDED}look`);
});

test('one that was waited for is waited for, although its application says now that it works in the background', async () => {
  const host = async (more: Partial<AgentDefinition>) => {
    const hosted = hostAgent(model, tools, { name: 'changing', subAgents: [toAgent('helper', more)] });
    const other = await startOn(app.databaseUrl, { TASKS_PUBLIC: '' }, { agents: hosted, sweepIntervalMs: 50 });
    onTestFinished(() => other.close());
    return { ...client(other.url), close: () => other.close() };
  };
  const before = await host({ asTool: true });
  const path = '/apps/changing/users/u/sessions';
  await before.post(path, { sessionId: 's' });
  const newMessage = { role: 'user', parts: [{ text: 'helper ask' }] };
  await before.post('/run', { appName: 'changing', userId: 'u', sessionId: 's', newMessage });
  const list = await before.get('/tasks?appName=changing&ownerId=u');
  await before.close();
  const after = await host({ background: true });
  const { items } = list.body as { items: { id: string }[] };
  expect((await after.send('PATCH', `/tasks/${items[0]?.id ?? ''}`, { action: 'answer' })).status).toBe(200);
  const said = async () =>
    ((await after.get(`${path}/s`)).body as { events: StoredEvent[] }).events.flatMap(({ author, content }) =>
      author === 'user' ? [] : (content?.parts.flatMap(({ text }) => text ?? []) ?? []),
    );
  await expect.poll(said).toEqual(['got got done']);
});

test.each([
  [{ background: true }, { asTool: true }, `started, got held KIND, ${ENDED}look`],
  [{ asTool: true }, { background: true }, 'got look, got held KIND'],
])('one that ended before the process left is told once, as it was called: %j, now %j', async (before, after, told) => {
  const name = Object.keys(before)[0] ?? '';
  const start = async (more: Partial<AgentDefinition>) => {
    const hosted = hostAgent(model, tools, { name: `redeployed_${name}`, subAgents: [toAgent('helper', more)] });
    const other = await startOn(app.databaseUrl, {}, { agents: hosted, sweepIntervalMs: 50 });
    onTestFinished(() => other.close());
    return { ...client(other.url), close: () => other.close() };
  };
  const first = await start(before);
  const path = `/apps/redeployed_${name}/users/u/sessions`;
  await first.post(path, { sessionId: 's' });
  const here = gate(name);
  const newMessage = { role: 'user', parts: [{ text: `helper look & hold ${name}` }] };
  await first.post(`${path}/s/invocations`, { newMessage });
  await here.entered;
  const ofChild = `select from invocations where app_name = $1 and session_id <> 's' and status = 'succeeded'`;
  await expect.poll(async () => (await sql.query(ofChild, [`redeployed_${name}`])).rowCount).toBe(1);
  // As if the process had left before the ledger had the response of the call.
  await sql.query(`update tool_calls set state = 'started', response = null where app_name = $1 and tool = 'helper'`, [
    `redeployed_${name}`,
  ]);
  await first.close();
  const second = await start(after);
  here.open();
  const said = async () =>
    ((await second.get(`${path}/s`)).body as { events: StoredEvent[] }).events.flatMap(({ author, content }) =>
      author === 'user' ? [] : (content?.parts.flatMap(({ text }) => text ?? []) ?? []),
    );
  await expect.poll(said).toEqual([told.replace('KIND', name)]);
});

test('a session that is there already is not that of a call: the call fails, and nothing runs there', async () => {
  const { userId, path, run, said, rows } = await begin();
  const here = gate('taken');
  const answered = run('hold taken & ask');
  await here.entered;
  const [root] = await rows();
  await app.post(path, { sessionId: 'taken' });
  const child = {
    sessionId: root?.session_id,
    invocationId: root?.id,
    callId: 'c',
    rootSessionId: root?.session_id,
    depth: 1,
  };
  const call = sql.query(
    `select * from enqueue_invocation('harness_agent', $1, 'taken', 'e-taken', gen_random_uuid(), 1, null, null, null, $2, 1, null)`,
    [userId, JSON.stringify({ version: 1, child })],
  );
  await expect(call).rejects.toThrow('There is a session taken already, which is not that of this call.');
  here.open();
  await answered;
  expect(await said('taken')).toEqual([]);
});

test('of many that end at once each is told once', async () => {
  const { run, rows, events } = await begin();
  await run(Array.from({ length: 20 }, (_, n) => `helper look${n}`).join(' & '));
  await expect.poll(async () => (await rows()).every(({ status }) => status === 'succeeded')).toBe(true);
  const told = (await events()).events.flatMap(
    ({ customMetadata }) =>
      (customMetadata?.['agent-runtime/result'] as { sessionId: string } | undefined)?.sessionId ?? [],
  );
  expect(new Set(told).size).toBe(20);
  expect(told).toHaveLength(20);
});

describe('while a hundred results come', () => {
  const left = async (userId: string) =>
    (
      await Promise.all(
        ['sessions', 'invocations', 'events', 'tasks', 'tool_calls', 'spans'].map(async (table) => {
          const { rowCount } = await sql.query(`select from ${table} where user_id = $1`, [userId]);
          return rowCount ? [`${table}: ${rowCount}`] : [];
        }),
      )
    ).flat();
  const usedBytes = async (userId: string) =>
    (
      await sql.query(
        'select coalesce(sum(event_bytes + artifact_bytes), 0)::int as bytes from user_storage where user_id = $1',
        [userId],
      )
    ).rows;

  test.each(['its session is deleted', 'its user is erased', 'retention deletes it'])(
    '%s: nothing is left, and nothing hangs',
    async (how) => {
      const { sessionId, userId, path, run, statuses } = await begin();
      errors.length = 0;
      const name = how.replaceAll(' ', '_');
      const here = gate(name);
      const calls = Array.from({ length: 100 }, (_, n) => (n % 2 ? `helper hold ${name}` : `maybe look behind`));
      await run(calls.join(' & '), await startOther({ maxLlmCalls: 1_000 }));
      await here.entered;
      const removed = async () => {
        if (how.includes('deleted')) return (await app.send('DELETE', `${path}/${sessionId}`)).status;
        if (how.includes('erased')) return (await app.send('DELETE', `/apps/harness_agent/users/${userId}`)).status;
        // A process looks when it starts, then each hour.
        const sweep = async () => {
          await sql.query(
            `update sessions set update_time = now() - interval '9 days' where user_id = $1 and depth = 0`,
            [userId],
          );
          const settings = { SESSION_RETENTION_DAYS: '1' };
          const other = await startOn(app.databaseUrl, settings, { agents: agents(), sweepIntervalMs: 20, log });
          onTestFinished(() => other.close());
        };
        await sweep();
        const open = async () => (await statuses()).filter((each) => /queued|running/.test(each));
        await expect.poll(open, { timeout: MINUTE }).toEqual([]);
        expect(await left(userId)).not.toEqual([]);
        await sweep();
        return 200;
      };
      here.open();
      await expect.poll(async () => (await statuses()).includes('1 succeeded')).toBe(true);
      expect(await removed()).toBeLessThan(300);
      await expect.poll(() => left(userId), { timeout: MINUTE }).toEqual([]);
      expect(await usedBytes(userId)).toEqual([{ bytes: 0 }]);
      // Its slots are free, and no queue is stuck.
      const next = await begin();
      await next.run(Array.from({ length: 20 }, () => 'helper look').join(' & '));
      await expect.poll(async () => (await next.statuses()).filter((each) => each === '1 succeeded')).toHaveLength(20);
      expect(await left(userId)).toEqual([]);
      expect(errors).toEqual([]);
    },
  );

  test('an imported tree is deleted, too', async () => {
    const { userId, run, statuses } = await begin();
    await run('middle deep look & helper look & helper ask');
    await expect.poll(async () => (await statuses()).filter((each) => /queued|running/.test(each))).toEqual([]);
    const { text } = await app.get(`/apps/harness_agent/users/${userId}/export`);
    errors.length = 0;
    const other = `${userId}-again`;
    const imported = await app.post(`/apps/harness_agent/users/${other}/import`, text, {
      'content-type': 'application/x-ndjson',
    });
    expect(imported.status).toBe(200);
    const { rows } = await sql.query<{ id: string; depth: number }>(
      'select id, depth from sessions where user_id = $1',
      [other],
    );
    const [root] = rows.filter(({ depth }) => depth === 0);
    expect(rows).toHaveLength(5);
    expect((await app.send('DELETE', `${USERS}/${other}/sessions/${root?.id ?? ''}`)).status).toBeLessThan(300);
    expect(await left(other)).toEqual([]);
    expect(await usedBytes(other)).toEqual([{ bytes: 0 }]);
    expect(errors).toEqual([]);
  });
});

async function startOther(more: Partial<AgentDefinition>) {
  const other = await startOn(app.databaseUrl, {}, { agents: agents(more), log });
  onTestFinished(() => other.close());
  return client(other.url);
}
