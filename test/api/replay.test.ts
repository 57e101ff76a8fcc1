import { Pool } from 'pg';
import diagnostics from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { type FakeMcp, startMcpServer } from '../support/mcp-server.ts';
import { type ReplayCase, replayCases } from '../support/replay-cases.ts';
import { MUTANTS } from '../support/replay-mutants.ts';
import { type ReplayWorld, replayWorld } from '../support/replay-world.ts';

let app: TestApp;
let mcp: FakeMcp;
let world: ReplayWorld;
let sql: Pool;

beforeAll(async () => {
  const inputSchema = { properties: { item: { type: 'string', minLength: 1 } }, required: ['item'] };
  mcp = await startMcpServer([{ name: 'price', inputSchema }]);
  world = replayWorld(mcp.url);
  const settings = { MAX_TOOL_CALLS: '6', MAX_EVENT_BYTES: '32768', DEV_UI: 'false', LOG_LEVEL: 'silent' };
  app = await startApp(settings, { agents: world.agents });
  sql = new Pool({ connectionString: app.databaseUrl });
});
afterAll(async () => {
  await sql.end();
  await app.close();
  await mcp.close();
});

/** An invocation that was recorded. */
interface Recorded {
  kind: string;
  path: string;
  ids: string[];
}
interface Difference {
  event: number;
  path: string;
  before: unknown;
  after: unknown;
}
interface Answer {
  status: string;
  difference?: Difference;
  stopped?: string;
}

const sessionOf = ({ app: name = 'harness_agent' }: ReplayCase, id: string) => `/apps/${name}/users/u/sessions/${id}`;
const eventsOf = async (path: string) => ((await app.get(path)).body as { events: Event[] }).events;

/** Runs one case in a session of its own, as a client does. */
async function record(one: ReplayCase, n: number): Promise<Recorded> {
  const id = `case-${n}`;
  const path = sessionOf(one, id);
  world.scripts.set(id, { ...one.script });
  const body = { appName: one.app ?? 'harness_agent', userId: 'u', sessionId: id };
  const say = (newMessage: unknown, more: object = {}) => app.post('/run', { ...body, newMessage, ...more });
  const text = { role: 'user', parts: [{ text: `Go #${id}` }] };
  await app.post(path, {});
  const { harness, stateDelta, next, streaming = false } = one;
  const hanging = next === 'cancel' ? world.hanging() : undefined;
  const first = app.post('/run_sse', { ...body, newMessage: text, harness, stateDelta, streaming });
  if (hanging) {
    await hanging;
    const [running] = (await app.get(`${path}/invocations`)).body as { id: string }[];
    await app.post(`${path}/invocations/${running?.id}/cancel`);
  }
  await first;
  if (one.app === 'short') await say(text);
  const events = await eventsOf(path);
  const invocationId = events[0]?.invocationId;
  if (next === 'rewind') await app.post(`${path}/rewind`, { rewindBeforeInvocationId: invocationId });
  const open = events.flatMap((event) => event.longRunningToolIds ?? []).at(-1);
  const call = events.flatMap((event) => event.content?.parts ?? []).find((part) => part.functionCall?.id === open);
  if (open && next?.match(/answer|confirm|reject/)) {
    const response = next.startsWith('answer') ? { chosen: 'a' } : { confirmed: next === 'confirm' };
    const functionResponse = { id: open, name: call?.functionCall?.name, response };
    await say({ role: 'user', parts: [{ functionResponse }] }, next === 'answer the same' ? { invocationId } : {});
  }
  const all = (await app.get(`${path}/invocations`)).body as { id: string }[];
  return { kind: one.kind, path, ids: all.map((each) => each.id).filter((each) => each.startsWith('e-')) };
}

const replay = (path: string, id: string, body?: object) => app.post(`${path}/invocations/${id}/replay`, body);

/** All that is stored, as one text. */
async function snapshot(): Promise<string> {
  const tables = ['sessions', 'events', 'invocations', 'artifacts', 'artifact_versions', 'memories', 'user_states'];
  const texts = tables.map(async (name) => {
    const { rows } = await sql.query<{ hash: string }>(
      `select md5(coalesce(string_agg(t::text, '|' order by t::text), '')) as hash from ${name} t`,
    );
    return `${name} ${rows[0]?.hash}`;
  });
  return (await Promise.all(texts)).join('\n');
}

describe('100 stored invocations', () => {
  let recorded: Recorded[] = [];
  beforeAll(async () => {
    for (const [n, one] of replayCases(100).entries()) recorded = [...recorded, await record(one, n)];
  });

  test('have compactions on the way, and a circle', async () => {
    const { rows } = await sql.query<{ kind: string }>(
      `select coalesce(payload ->> 'errorCode', payload #>> '{customMetadata,agent-runtime/compaction,strategy}') as kind
       from events where payload ->> 'errorCode' = 'loop_detected' or (app_name = 'narrow' and payload -> 'actions' ? 'compaction')
       group by 1`,
    );
    expect(rows.map(({ kind }) => kind).toSorted()).toEqual(['drop_results', 'loop_detected', 'summarise']);
  });

  test('replay without a difference, a network call or an effect', async () => {
    const before = { stored: await snapshot(), counts: { ...world.counts }, mcp: { ...mcp.counts } };
    const sockets: Socket[] = [];
    const onSocket = (message: unknown) => void sockets.push((message as { socket: Socket }).socket);
    diagnostics.subscribe('net.client.socket', onSocket);
    const all = recorded.flatMap(({ kind, path, ids }) => ids.map((id) => ({ kind, path, id })));
    const found: unknown[] = [];
    for (const { kind, path, id } of all) {
      const { status, body } = await replay(path, id);
      if (status !== 200 || (body as Answer).status !== 'same') found.push({ kind, status, body });
    }
    diagnostics.unsubscribe('net.client.socket', onSocket);
    expect(found).toEqual([]);
    expect(all.length).toBeGreaterThanOrEqual(100);
    const own = [app.url, app.databaseUrl].map((url) => Number(new URL(url).port));
    expect(sockets.filter(({ remotePort }) => remotePort !== undefined && !own.includes(remotePort))).toEqual([]);
    expect({ stored: await snapshot(), counts: world.counts, mcp: mcp.counts }).toEqual(before);
    console.log(`replay: ${all.length} stored invocations, 0 different, 0 model, tool or server calls`);
  });

  test('30 mutants of instruction, tool schema and tool answer: the first event that differs is named', async () => {
    const failures: unknown[] = [];
    for (const mutant of MUTANTS) {
      const { kind, path, ids } = recorded.find((one) => one.kind === mutant.kind) as Recorded;
      const undo = mutant.change(world);
      const body = mutant.isLive ? { tool_execution_mode: 'live' } : {};
      const answer = (await replay(path, ids.at(-1) ?? '', body)).body as Answer;
      undo();
      const { status, difference } = answer;
      const named = [status, difference?.event, difference?.path];
      const isNamed = JSON.stringify(named) === JSON.stringify(['different', mutant.event, mutant.path]);
      const isShown = JSON.stringify(difference?.after ?? null).includes(mutant.shows);
      if (!isNamed || !isShown) failures.push({ kind, mutant, answer });
    }
    expect(failures).toEqual([]);
    expect(MUTANTS).toHaveLength(30);
    console.log(`replay: ${MUTANTS.length} of ${MUTANTS.length} mutants named`);
  });
});
