import { appendFileSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import pino from 'pino';
import { createForgetSessions, type FeatureContext } from '../../src/process/context.ts';
import { rowContent } from '../../src/conversation/artifacts/artifact.ts';
import { applyRetention } from '../../src/features/users/retention.ts';
import { openPool } from '../support/store.ts';
import { agentTool } from '../../src/agent/loop/agent-tree.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { agent, tool } from '../support/agent-fixtures.ts';
import type { LiveMessage, LiveModel } from '../../src/agent/definition/model.ts';
import { WaitingQueue } from '../../src/platform/work/waiting-queue.ts';
import { hostAgent, hostScript } from '../support/agents.ts';
import { startApp } from '../support/app.ts';
import { openLive, say } from '../support/live-client.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';

/** Ways round a limit: agents that are tools, credentials that are gone, and data on hold. */

const APP = '/apps/harness_agent';

async function open(environment: Record<string, string> = {}, overrides = {}) {
  const app = await startApp(environment, overrides);
  const client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  await client.query(`set agent_runtime.all_users = 'on'`);
  onTestFinished(async () => {
    await client.end();
    await app.close();
  });
  return { app, rows: async (text: string) => (await client.query(text)).rows as unknown[] };
}

describe('an agent that is a tool', () => {
  /** A helper whose model calls the tool `step` ten times in each answer, and never ends. */
  function makeHelper() {
    const ran: unknown[] = [];
    const step = tool('step', async (args) => ran.push(args));
    const calls = Array.from({ length: 10 }, (_, n) => callPart('step', {}, `c${n}`));
    const model = scriptedModel(Array.from({ length: 200 }, () => calls));
    const helper = agent({ name: 'helper', description: 'Helps.', model, tools: [step] });
    const script = [[callPart('helper', { request: 'go' }, 'h')], [{ text: 'done' }]];
    return { ran, script, helper: agentTool(helper), asked: model.requests };
  }
  const makeHost = () => {
    const { script, helper, ...rest } = makeHelper();
    return { ...rest, agents: hostScript(script, [helper]) };
  };
  const invoke = {
    prompt: 'hi',
    harness_name: 'h',
    harness: { tools: 'helper' },
    run_agent_request: { user_id: 'u', session_id: 's' },
  };

  test('names others’ data in vain, whatever its model asks the tools for', async () => {
    const asks = [
      'alice',
      '../alice',
      'user:../../alice/f',
      '/apps/harness_agent/users/alice/sessions/s',
      'f',
      'user:f',
    ];
    const calls = asks.flatMap((name, n) => [
      callPart('save_artifact', { name, text: 'mine' }, `a${n}`),
      callPart('load_artifacts', { names: [name] }, `b${n}`),
      callPart('write_state', { key: `user:${name}`, value: 'mine' }, `c${n}`),
      callPart('load_memory', { query: `secret ${name}` }, `d${n}`),
      callPart('save_artifact', { name, text: 'mine', user_id: 'alice' }, `e${n}`),
    ]);
    const model = scriptedModel([calls, [{ text: 'done' }]]);
    const tools = [...builtInTools().values()];
    const helper = agentTool(agent({ name: 'helper', description: 'Helps.', model, tools }));
    const host = hostScript([[callPart('helper', { request: 'go' }, 'h')], [{ text: 'done' }]], [helper]);
    const { app, rows } = await open({}, { agents: host });
    const alice = `${APP}/users/alice`;
    const said = { author: 'user', content: { role: 'user', parts: [{ text: 'the secret of alice' }] } };
    await app.post(`${alice}/sessions`, { sessionId: 's', state: { 'user:k': 'secret' }, events: [said] });
    for (const filename of ['f', 'user:f'])
      await app.post(`${alice}/sessions/s/artifacts`, { filename, artifact: { text: 'the secret of alice' } });
    await app.send('PATCH', `${alice}/memory`, { sessionId: 's' });
    const others = async () => (await app.get(`${alice}/export`)).text.replaceAll(/"exportTime":[^,}]*/g, '');
    const before = await others();
    const { body } = await app.post('/harness/invoke', invoke);
    expect(body).toMatchObject({ error: null, output: 'done' });
    expect(model.requests).toHaveLength(2);
    const answers = JSON.stringify(model.requests[1]);
    expect(answers).toContain('functionResponse');
    expect(answers).not.toContain('the secret of alice');
    expect(await others()).toEqual(before);
    expect(await rows(`select distinct user_id from artifacts order by 1`)).toEqual([
      { user_id: 'alice' },
      { user_id: 'u' },
    ]);
  });

  test('calls no more tools than one invocation may', async () => {
    const { agents, ran } = makeHost();
    const { app, rows } = await open({ MAX_TOOL_CALLS: '25' }, { agents });
    await app.post('/harness/invoke', invoke);
    // The helper first, then what had called it.
    const ended = `select error_code from invocations where session_id = 's'`;
    expect(await rows(ended)).toEqual([{ error_code: 'tool_calls_limit' }]);
    expect(ran.length).toBeLessThanOrEqual(30);
  });

  /** A live API whose model calls the helper when it is told anything, and reads its answer out. */
  const callsHelper: LiveModel = {
    modelName: 'live',
    async connect() {
      const queue = new WaitingQueue<LiveMessage>();
      return {
        send: ({ kind }) =>
          queue.push(
            kind === 'responses'
              ? { parts: [{ text: 'done' }], turnComplete: true }
              : { calls: [{ id: 'h', name: 'helper', args: { request: 'go' } }] },
          ),
        ready: () => queue.ready(),
        peek: () => queue.peek(),
        shift: () => queue.shift(),
        cancelled: () => new AbortController().signal,
        close: () => undefined,
      };
    },
  };

  describe.each(['TEXT', 'AUDIO'])('in a live session of %s', (modalities) => {
    async function speak(environment: Record<string, string>, budget?: object) {
      const { ran, asked, helper, script } = makeHelper();
      const model = { ...scriptedModel(script), ...(modalities === 'AUDIO' && { live: callsHelper }) };
      const { app, rows } = await open(environment, { agents: hostAgent(model, [helper]) });
      if (budget) await app.send('PUT', `${APP}/budgets`, budget);
      await app.post(`${APP}/users/u/sessions`, { sessionId: 's' });
      const live = await openLive(app, { user_id: 'u', session_id: 's', modalities });
      live.send(say('hi'));
      const ended = () => rows(`select error_code from invocations where session_id = 's' and status <> 'running'`);
      await expect.poll(ended).not.toEqual([]);
      return { ran, asked, rows, error: await ended() };
    }

    test('calls no more tools than one invocation may', async () => {
      const { ran, error } = await speak({ MAX_TOOL_CALLS: '25' });
      expect(error).toEqual([{ error_code: 'tool_calls_limit' }]);
      expect(ran.length).toBeLessThanOrEqual(30);
    });

    test('ends with the model call that used the rest of a budget', async () => {
      const { asked, error, rows } = await speak({}, { appliesTo: 'users', period: 'day', maxTokens: 40 });
      expect(error).toEqual([{ error_code: 'budget_exceeded' }]);
      expect(asked.length).toBeLessThan(6);
      const used = 'select (prompt_tokens + output_tokens)::int as tokens from budget_uses';
      expect(await rows(used)).toEqual(await rows('select prompt_tokens + output_tokens as tokens from invocations'));
    });
  });

  test('ends with the model call that used the rest of a budget', async () => {
    const { agents, asked } = makeHost();
    const { app, rows } = await open({}, { agents });
    await app.send('PUT', `${APP}/budgets`, { appliesTo: 'users', period: 'day', maxTokens: 40 });
    await app.post('/harness/invoke', invoke);
    expect(await rows('select error_code from invocations')).toEqual([{ error_code: 'budget_exceeded' }]);
    expect(asked.length).toBeLessThan(6);
    const used = 'select (prompt_tokens + output_tokens)::int as tokens from budget_uses';
    const stored = 'select prompt_tokens + output_tokens as tokens from invocations';
    expect(await rows(used)).toEqual(await rows(stored));
  });
});

test('a cronjob is its owner’s: it outlives the key that made it, and not its owner', async () => {
  const [maker, operator] = [
    createKey({ id: 'maker', scopes: ['invoke', 'read'] }),
    createKey({ id: 'operator', scopes: ['invoke', 'read', 'write', 'admin'] }),
  ];
  const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-keys-')), 'keys');
  writeFileSync(file, `${operator.entry}\n`);
  appendFileSync(file, `${maker.entry}\n`);
  const { app, rows } = await open({ CRONJOBS: 'true', RUNTIME_API_KEYS_FILE: file });
  const as = ({ key }: { key: string }) => ({ authorization: `Bearer ${key}` });
  const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
  const made = await app.post('/harness/cronjobs', { ownerId: 'ann', name: 'n', prompt: 'p', schedule }, as(maker));
  const path = `/harness/cronjobs/${(made.body as { jobId: string }).jobId}`;
  writeFileSync(file, `${operator.entry}\n`);
  await expect.poll(async () => (await app.get(path, as(maker))).status).toBe(401);
  expect((await app.post(`${path}/run`, undefined, as(maker))).status).toBe(401);
  const due = () => rows(`update cronjobs set next_run_time = now() where user_id = 'ann' returning 1 as due`);
  const runs = () => rows(`select status from cronjob_runs`);
  expect(await due()).toEqual([{ due: 1 }]);
  // A change of any cronjob wakes the scheduler.
  await app.post('/harness/cronjobs', { ownerId: 'bob', name: 'n', prompt: 'p', schedule }, as(operator));
  await expect.poll(runs).toEqual([{ status: 'success' }]);
  expect((await app.send('DELETE', `${APP}/users/ann`, undefined, as(operator))).status).toBe(200);
  expect([await due(), await runs()]).toEqual([[], []]);
});

describe('a hold that was answered', () => {
  const OLD = 40;
  const ROUNDS = 6;

  test('keeps all that was there then, beside retention, deletions, an erasure and an import', async () => {
    const { app, rows } = await open();
    const database = openPool(app.databaseUrl, 4);
    onTestFinished(() => database.close());
    const sweep = { database, contentStore: rowContent(1_000_000), log: pino({ enabled: false }) };
    const retain = () =>
      applyRetention(
        { ...sweep, forgetSessions: createForgetSessions({} as FeatureContext) },
        { sessions: { days: 1, count: 0 }, artifactVersions: 0 },
      ).catch((error: unknown) => {
        // A batch that had chosen the session before the hold: undone whole, and the sweeper begins it again.
        if ((error as { cause?: { code?: string } }).cause?.code !== 'AR423') throw error;
      });
    const countOf = async (user: string) =>
      (
        await rows(`select (select count(*) from sessions where user_id = '${user}')::int as sessions,
                          (select count(*) from events where user_id = '${user}')::int as events`)
      )[0] as {
        sessions: number;
        events: number;
      };
    let raced = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      const user = `held${round}`;
      const path = `${APP}/users/${user}`;
      const sessions = Array.from({ length: OLD }, (_, n) => ({ sessionId: `s${n}`, events: [{ author: 'user' }] }));
      await Promise.all(sessions.map((session) => app.post(`${path}/sessions`, session)));
      const exported = (await app.get(`${path}/export`)).text;
      await rows(`update sessions set update_time = now() - interval '3 days' where user_id = '${user}'`);
      const deletions = [
        ...sessions.slice(0, 10).map(({ sessionId }) => app.send('DELETE', `${path}/sessions/${sessionId}`)),
        // An erasure that has begun refuses the hold: of every other round.
        round % 2 === 0 ? retain() : app.send('DELETE', path),
        app.send('POST', `${path}/import`, exported, { 'content-type': 'application/x-ndjson' }),
      ];
      const hold = await app.send('PUT', `${path}/hold`, { reason: 'Case 1' });
      const then = await countOf(user);
      await Promise.all(deletions);
      await retain();
      await app.send('DELETE', path);
      const now = await countOf(user);
      if (hold.status !== 200) continue; // of a user that is being erased
      if (then.sessions > 0 && then.sessions < OLD) raced += 1;
      expect([now.sessions >= then.sessions, now.events >= then.events]).toEqual([true, true]);
    }
    console.log(`${ROUNDS} holds beside deletions, ${raced} of them with some of the sessions gone already`);
  });
});
