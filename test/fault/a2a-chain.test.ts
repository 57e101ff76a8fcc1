import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testDatabase } from '../support/database.ts';
import { MINUTE } from '../support/patience.ts';
import { freePort } from './support/cluster.ts';
import { APP, modelSettings, report } from './support/faults.ts';
import { answerFor, type Message, type ModelServer, promptFor, startModelServer } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { type Receiver, startReceiver } from '../support/webhook-receiver.ts';

/**
 * Three services, each the agent of the one before, whose processes are killed while they wait for one another: the
 * first one calls the second like a tool, which hands over to the third.
 */

const ROUNDS = either(3, 100);
const LONGEST_LIFE_MS = 1_500;
const ENDED_WITHIN_MS = 6 * MINUTE;
/** Model calls that an invocation of the first may take: two of it, two of the second, one of the third, and spare. */
const MAX_CALLS = 8;
/** Tokens that the user of the first may pay for, with those of the others; each call reserves some 10,000. */
const MAX_TOKENS = 20_000 * ROUNDS;
/** Tokens of a model call, which is made in each of two services, and twice in the first. */
const TOKENS = 15;

const services = [testDatabase(), testDatabase(), testDatabase()].map((database, place) => ({ database, place }));
let model: ModelServer;
let receiver: Receiver;
let directory: string;
const ports: number[] = [];
const servers: ServerProcess[] = [];

/** The agent above hands its prompt on, those that are asked answer. */
function script(messages: Message[], { id }: { id: string }) {
  const instruction = JSON.stringify(messages.find(({ role }) => role === 'system'));
  if (instruction.includes('You are the last') || messages.at(-1)?.role === 'tool') return answerFor(id);
  if (instruction.includes('Hand it over')) return [{ name: 'transfer_to_agent', arguments: { agent_name: 'next' } }];
  return [{ name: 'next', arguments: { request: promptFor({ id, delayMs: 200 }) } }];
}

function toHarness(place: number): string {
  const url = `http://127.0.0.1:${ports[place + 1]}/a2a/${APP}`;
  const instruction = ['Ask the next one.', 'Hand it over.', 'You are the last.'][place];
  const lines = [`system_prompt: ${instruction}`, ...(place === 2 ? [] : ['sub_agents:'])];
  const next = ['  - name: next', `    as_tool: ${place === 0}`, '    remote:', `      url: ${url}`];
  return [...lines, ...(place === 2 ? [] : next), `max_llm_calls: ${MAX_CALLS}`, ''].join('\n');
}

async function start(place: number): Promise<void> {
  const file = join(directory, `${place}.yaml`);
  await writeFile(file, toHarness(place));
  const { TOOLS: _, ...settings } = modelSettings(model.baseUrl);
  servers[place] = await startServer(services[place]?.database.url ?? '', {
    ...settings,
    HARNESS_FILE: file,
    PORT: String(ports[place]),
    DOORS: 'a2a',
    WEBHOOKS: 'true',
    WEBHOOKS_ALLOWED_HOSTS: receiver.origin,
    SESSION_LEASE_MS: String(paced(1_000)),
  });
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'agent-runtime-chain-'));
  model = await startModelServer(script);
  receiver = await startReceiver();
  for (const _ of services) ports.push(await freePort());
  await Promise.all(services.map(({ place }) => start(place)));
});
afterAll(async () => {
  await Promise.all(servers.map((server) => server.kill()));
  await model.close();
  await receiver.close();
  await rm(directory, { recursive: true });
});

/** The trace that the client of a round is in. */
const toTrace = (round: number) => String(round + 1).padStart(32, '0');

async function read<Row extends object>(place: number, statement: string): Promise<Row[]> {
  const sql = new Client({ connectionString: services[place]?.database.url });
  await sql.connect();
  try {
    return (await sql.query<Row>(statement)).rows;
  } finally {
    await sql.end();
  }
}

test('each task is done once, in one trace, within the calls of the first; an erasure there is told', async () => {
  const draw = random('chain of services');
  const set = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json' };
    const init = { method: 'PUT', headers, body: JSON.stringify(body) };
    expect((await fetch(`http://127.0.0.1:${ports[0]}${path}`, init)).ok).toBe(true);
  };
  await set('/model-prices', { model: '*', promptPrice: 1, outputPrice: 1 });
  await set(`/apps/${APP}/budgets`, { appliesTo: 'users', period: 'day', maxCost: MAX_TOKENS / 1_000_000 });
  let kills = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const id = `chain-${round}`;
    const path = `/apps/${APP}/users/u/sessions/${id}/invocations`;
    await servers[0]?.post(`/apps/${APP}/users/u/sessions`, { sessionId: id });
    const newMessage = { role: 'user', parts: [{ text: promptFor({ id, delayMs: 200 }) }] };
    const started = await servers[0]?.post(
      path,
      { newMessage },
      { traceparent: `00-${toTrace(round)}-${'1'.repeat(16)}-01` },
    );
    expect(started).toMatchObject({ status: 200 });
    await sleep(draw.whole(0, LONGEST_LIFE_MS));
    const victim = draw.whole(0, 2);
    await servers[victim]?.kill();
    kills++;
    await start(victim);
    const ended = async () => (await servers[0]?.get(path))?.text;
    await expect.poll(ended, { message: id, timeout: ENDED_WITHIN_MS }).not.toMatch(/"(?:running|queued)"/);
  }
  const rows = await Promise.all(
    services.map(({ place }) =>
      // The first one calls its agent like a tool, whose invocation is of a child session.
      read<{ status: string; calls: number }>(
        place,
        `select i.status, i.llm_calls as calls from invocations i
         join sessions s on s.user_id = i.user_id and s.id = i.session_id where s.parent_session_id is null`,
      ),
    ),
  );
  const readTraces = ({ place }: { place: number }) =>
    read<{ id: string }>(place, 'select distinct trace_id as id from spans order by 1');
  const [used] = await read<{ tokens: number; cost: number }>(
    0,
    'select sum(prompt_tokens + output_tokens)::int as tokens, sum(cost)::float8 as cost from budget_uses',
  );
  const calls = (rows[0] ?? []).map((row) => row.calls);
  report(
    'chain',
    `${ROUNDS} tasks, ${kills} kills, calls of the first ${calls.join()}, ${used?.tokens} of ${MAX_TOKENS} tokens`,
  );
  for (const each of rows) expect(each.map(({ status }) => status)).toEqual(Array(ROUNDS).fill('succeeded'));
  expect(Math.max(...calls)).toBeLessThanOrEqual(MAX_CALLS);
  // What the others used is paid for at the first, once.
  expect(used?.tokens).toBeGreaterThanOrEqual(4 * TOKENS * ROUNDS);
  expect(used?.tokens).toBeLessThanOrEqual(MAX_TOKENS);
  expect(used?.cost).toBeCloseTo((used?.tokens ?? 0) / 1_000_000, 9);
  const expected = Array.from({ length: ROUNDS }, (_, round) => ({ id: toTrace(round) }));
  // A process that is killed right behind its part takes the spans with it; the other two have them.
  const toLost = async () => {
    const found = (await Promise.all(services.map(readTraces))).flat().map((row) => row.id);
    expect(expected).toEqual(expect.arrayContaining(found.map((id) => ({ id }))));
    return expected.filter(({ id }) => found.filter((each) => each === id).length < 2);
  };
  await expect.poll(toLost).toEqual([]);

  // The other two have the user of a client that names none; their operators hear of the erasure, and erase too.
  const webhook = await servers[0]?.post('/harness/webhooks', {
    ownerId: 'operator',
    url: `${receiver.origin}/erased`,
  });
  const { webhookId } = JSON.parse(webhook?.text ?? '') as { webhookId: string };
  const erase = async (place: number, path: string) =>
    expect((await fetch(`http://127.0.0.1:${ports[place]}/apps/${APP}/users/${path}`, { method: 'DELETE' })).ok).toBe(
      true,
    );
  await erase(0, `u?webhookId=${webhookId}`);
  const [told] = await receiver.until('/erased', 1);
  expect(told?.message).toMatchObject({ type: 'user.erased', data: { userId: 'u', counts: { sessions: 2 * ROUNDS } } });
  await Promise.all([erase(1, 'user'), erase(2, 'user')]);
  const left = services.map(({ place }) => read(place, 'select from sessions'));
  expect(await Promise.all(left)).toEqual([[], [], []]);
});
