import { fileURLToPath } from 'node:url';
import { beforeAll, expect, test } from 'vitest';
import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import { startApp } from '../support/app.ts';
import { lookUp, type ReplayWorld, replayWorld, type Script } from '../support/replay-world.ts';
import { callPart } from '../support/scripted-model.ts';
import { startProcess } from '../support/service-process.ts';
import { staged, stagedSql } from '../support/staged.ts';
import { HOOKS } from '../../src/agent/definition/hooks.ts';

/** A replay compares what models are given, whatever hooks an agent has, and says what it did not compare. */

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
let world: ReplayWorld;
let sessions = 0;

beforeAll(async () => {
  world = replayWorld('http://127.0.0.1:9');
});
const app = staged(() => startApp({ DEV_UI: 'false' }, { agents: world.agents }));
const sql = stagedSql(app);

interface Answer {
  status: string;
  events: number;
  liveModelCalls: number;
  liveToolCalls: number;
  difference?: { path: string; event: number };
  stopped?: string;
  notes: string[];
}
/** An invocation that was recorded. */
interface Recorded {
  app: string;
  session: string;
  id: string;
  replay: (body?: object) => Promise<Answer>;
}

/** Lets an agent look something up and answer, in a session of its own. */
async function record(name: string, script: Script = { [name]: [[lookUp('tea')], 'Tea it is.'] }): Promise<Recorded> {
  const session = `hooks-${(sessions += 1)}`;
  world.scripts.set(session, script);
  const path = `/apps/${name}/users/u/sessions/${session}`;
  await app.post(path, {});
  const newMessage = { role: 'user', parts: [{ text: `Go #${session}` }] };
  expect((await app.post('/run', { appName: name, userId: 'u', sessionId: session, newMessage })).status).toBe(200);
  const [{ id }] = (await app.get(`${path}/invocations`)).body as [{ id: string }];
  const replay = async (body: object = {}) => {
    // The script begins anew for a model that is asked.
    world.scripts.set(session, { ...script });
    return (await app.post(`${path}/invocations/${id}/replay`, body)).body as Answer;
  };
  return { app: name, session, id, replay };
}

/** Replays while the agent is another one. */
async function changed(
  { app: name, replay }: Recorded,
  change: (agent: AgentDefinition) => Partial<AgentDefinition>,
  body?: object,
): Promise<Answer> {
  const before = world.definitions.get(name) as AgentDefinition;
  world.definitions.set(name, { ...before, ...change(before) });
  try {
    return await replay(body);
  } finally {
    world.definitions.set(name, before);
  }
}
const pathOf = ({ status, difference }: Answer) => [status, difference?.path];

const HOOKED = [...HOOKS.map((kind) => `with_${kind}`), 'plugged', 'guarded', 'judged', 'hooked'];

test.each(HOOKED)('of an agent like `%s` a changed instruction, tool or sampling is named', async (name) => {
  const recorded = await record(name);
  expect((await recorded.replay()).status).toBe('same');
  expect(pathOf(await changed(recorded, ({ instruction }) => ({ instruction: `${instruction} Anew.` })))).toEqual([
    'different',
    '/request/instruction',
  ]);
  expect(pathOf(await changed(recorded, ({ tools }) => ({ tools: [...tools, 'calculator'] })))).toEqual([
    'different',
    '/request/tools/6',
  ]);
  expect(pathOf(await changed(recorded, () => ({ sampling: { temperature: 0.3 } })))).toEqual([
    'different',
    '/request/sampling/temperature',
  ]);
  expect(pathOf(await recorded.replay({ harness: { system_prompt: 'Answer in one word.' } }))).toEqual([
    'different',
    '/request/instruction',
  ]);
});

test('hooks that are not run are named in a note, and a hook that is gone or new is a difference', async () => {
  const recorded = await record('guarded');
  expect((await recorded.replay()).notes).toEqual([expect.stringMatching(/^Hooks around what is stored are not run/)]);
  expect(pathOf(await changed(recorded, () => ({ plugins: [] })))).toEqual(['different', '/request/hooks']);
  const more = { hooks: { name: 'more', afterModel: () => undefined } };
  expect(pathOf(await changed(recorded, () => more))).toEqual(['different', '/request/hooks/1']);
  expect((await (await record('harness_agent')).replay()).notes).not.toContainEqual(expect.stringMatching(/Hooks/));
});

test('a hook that changes its request in place, down to the sampling, is no difference and hides none', async () => {
  const before = world.definitions.get('with_beforeModel') as AgentDefinition;
  const hooks: AgentDefinition['hooks'] = {
    name: 'own',
    beforeModel: (request) => {
      request.sampling.temperature = 0;
      request.instruction += ' And mine.';
      request.tools.splice(1);
    },
  };
  world.definitions.set('with_beforeModel', { ...before, hooks, sampling: { temperature: 0.9 } });
  try {
    const recorded = await record('with_beforeModel');
    expect((await recorded.replay()).status).toBe('same');
    expect(pathOf(await changed(recorded, () => ({ sampling: { temperature: 0.8 } })))).toEqual([
      'different',
      '/request/sampling/temperature',
    ]);
  } finally {
    world.definitions.set('with_beforeModel', before);
  }
});

test('with a live model the requests are compared that a hook answered in its place, each with its own', async () => {
  const before = world.definitions.get('with_beforeModel') as AgentDefinition;
  const hooks: AgentDefinition['hooks'] = {
    name: 'own',
    beforeModel: ({ contents }) =>
      contents.length === 1 ? { content: { role: 'model', parts: [lookUp('tea')] } } : undefined,
  };
  world.definitions.set('with_beforeModel', { ...before, hooks });
  try {
    const recorded = await record('with_beforeModel');
    const live = { modelExecutionMode: 'live' };
    expect(await recorded.replay(live)).toMatchObject({ status: 'same', events: 5, liveModelCalls: 2 });
    const { difference } = await changed(
      recorded,
      ({ instruction }) => ({ instruction: `${instruction} Anew.` }),
      live,
    );
    expect(difference).toMatchObject({ event: 1, path: '/request/instruction' });
  } finally {
    world.definitions.set('with_beforeModel', before);
  }
});

test('an agent below one that is a tool is compared too', async () => {
  const recorded = await record('desk', {
    desk: [[callPart('teller', { request: 'help' })], 'Helped.'],
    teller: [[callPart('transfer_to_agent', { agent_name: 'clerk' })]],
    clerk: ['So.'],
  });
  expect((await recorded.replay()).status).toBe('same');
  const rewritten = (agent: AgentDefinition): AgentDefinition => ({
    ...agent,
    ...(agent.name === 'clerk' && { instruction: `${agent.instruction} Anew.` }),
    ...(agent.subAgents && { subAgents: agent.subAgents.map(rewritten) }),
  });
  expect(pathOf(await changed(recorded, rewritten))).toEqual(['different', '/request/agents/clerk/instruction']);
});

test('a question of a hook gets no answer of the tape: the replay stops and says so', async () => {
  const recorded = await record('judged');
  const answer = await recorded.replay({ toolExecutionMode: 'live' });
  expect(answer).toMatchObject({ status: 'stopped', stopped: expect.stringMatching(/A hook of `judged` asks/) });
  expect((await recorded.replay({ modelExecutionMode: 'live' })).liveModelCalls).toBe(2);
});

const command = (...args: string[]) =>
  startProcess(process.execPath, [MAIN, '--url', app.url, '--app', 'plugged', '--user', 'u', 'replay', ...args], {})
    .end;

test('an invocation without a tape is not compared: the status, a note and the exit code say so', async () => {
  const kept = await record('plugged');
  expect((await command(kept.session)).code).toBe(0);
  expect((await command('--since', '1d')).code).toBe(0);
  const lost = await record('plugged');
  await sql.query('update invocations set tapes = null where session_id = $1', [lost.session]);
  const answer = await lost.replay();
  expect(answer).toMatchObject({ status: 'not_compared', events: 3 });
  expect(answer.notes[0]).toMatch(/^Not compared: Nothing is kept of what its models were given/);
  const { code, out } = await command(lost.session);
  expect([code, out]).toEqual([3, expect.stringMatching(/not_compared[^]*Not compared: Nothing is kept/)]);
  expect(pathOf(await changed(lost, ({ instruction }) => ({ instruction: `${instruction} Anew.` })))).toEqual([
    'not_compared',
    undefined,
  ]);
});
