import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { JsonObject } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import { type PostgresCluster, startCluster } from './support/cluster.ts';
import {
  eventBody,
  invokeBody,
  listPath,
  modelSettings,
  openSql,
  report,
  sessionPath,
  whenAtRest,
} from './support/faults.ts';
import { type Acked, findViolations } from './support/invariants.ts';
import { answerFor, type ModelServer, promptFor, startModelServer } from './support/model-server.ts';
import { either, type Random, random } from './support/seed.ts';
import { type ServerProcess, startServer, tryTo } from './support/server-process.ts';

/**
 * Clients of two replicas do what chance says, each operation with a value of its own, while processes are killed and
 * stopped, connections cut and PostgreSQL restarted. Afterwards: what was told is there, what was refused is not, what
 * is unsure may be; every read is the beginning of every later one. A session has one total order, which makes these
 * checks complete.
 */

const DURATION_MS = either(10_000, 600_000);
const NEMESIS_EVERY_MS = either(1_500, 4_000);
const [CLIENTS, SESSIONS, USERS] = [16, 8, 2];
const LEASE_MS = 600;
const REST_WITHIN_MS = 30_000;
const settings = { SESSION_LEASE_MS: String(LEASE_MS), SWEEP_INTERVAL_MS: '100', SESSION_WAIT_MS: '5000' };

/** What a client saw of a session, and when it asked and heard. */
interface Read {
  client: number;
  askedAt: number;
  heardAt: number;
  ids: string[];
  lastUpdateTime: number;
}

/** Everything that clients know when all is over. */
interface History {
  acked: Acked[];
  /** Texts that were refused: they must not be there. */
  failed: string[];
  /** Shared keys that were told to be written, and where. */
  keys: { userId: string; key: string }[];
  reads: Map<string, Read[]>;
  operations: number;
  unsure: number;
}

interface Target {
  userId: string;
  sessionId: string;
}

let cluster: PostgresCluster;
let model: ModelServer;
let sql: Pool;
const replicas: ServerProcess[] = [];

const start = () => startServer(cluster.url, { ...modelSettings(model.baseUrl), ...settings });

beforeAll(async () => {
  model = await startModelServer();
  cluster = await startCluster();
  sql = openSql(cluster.url);
  replicas.push(...(await Promise.all([start(), start()])));
});
afterAll(async () => {
  for (const replica of replicas) await replica.kill();
  await sql.end();
  await cluster.close();
  await model.close();
});

/** One operation of one client, with what it heard of it. */
async function operate(
  history: History,
  draw: Random,
  at: ServerProcess,
  target: Target,
  client: number,
): Promise<void> {
  const { userId, sessionId } = target;
  const id = randomUUID();
  const path = sessionPath(userId, sessionId);
  const kind = draw.whole(0, 9);
  history.operations++;
  if (kind <= 2) return read(history, at, target, client);
  if (kind <= 5) {
    const prompt = { id, calls: draw.whole(0, 2), delayMs: draw.whole(0, 20) };
    const answer = await tryTo(at.post('/harness/invoke', invokeBody(userId, sessionId, prompt)));
    const { error } = (answer?.body ?? {}) as { error?: string | null };
    if (answer?.status === 200 && error === null) {
      history.acked.push({ userId, sessionId, said: promptFor(prompt), answered: answerFor(id) });
    } else if (answer?.status === 429) history.failed.push(promptFor(prompt));
    else history.unsure++;
    return;
  }
  const keys = { [`user:${id}`]: id, [`app:${id}`]: id, [`own-${id}`]: id };
  const answer =
    kind <= 7
      ? await tryTo(at.post(`${path}/events`, eventBody(id, keys)))
      : await tryTo(at.send('PATCH', path, { stateDelta: keys }));
  if (answer?.status !== 200) return void history.unsure++;
  if (kind <= 7) history.acked.push({ userId, sessionId, said: id });
  history.keys.push(
    ...Object.keys(keys)
      .filter((key) => !key.startsWith('own-'))
      .map((key) => ({ userId, key })),
  );
}

async function read(history: History, at: ServerProcess, { userId, sessionId }: Target, client: number): Promise<void> {
  const askedAt = performance.now();
  const answer = await tryTo(at.get(sessionPath(userId, sessionId)));
  if (answer?.status !== 200) return;
  const { events, lastUpdateTime } = answer.body as { events: Event[]; lastUpdateTime: number };
  const ids = events.map((event) => event.id ?? '');
  const name = `${userId}/${sessionId}`;
  const reads = history.reads.get(name) ?? [];
  history.reads.set(name, reads);
  reads.push({ client, askedAt, heardAt: performance.now(), ids, lastUpdateTime });
}

/** I7: a read that was asked for after another was heard begins with all that the other saw. */
function readViolations(name: string, reads: Read[], final: string[]): string[] {
  const violations: string[] = [];
  const ordered = reads.toSorted((a, b) => a.heardAt - b.heardAt);
  const isPrefix = (short: string[], long: string[]) => short.every((id, position) => long[position] === id);
  for (const [position, earlier] of ordered.entries()) {
    if (!isPrefix(earlier.ids, final)) violations.push(`${name}: a read is no beginning of what is stored`);
    const later = ordered.slice(position + 1).find(({ askedAt }) => askedAt >= earlier.heardAt);
    if (!later) continue;
    if (!isPrefix(earlier.ids, later.ids)) violations.push(`${name}: a later read lacks what an earlier one saw`);
    if (later.lastUpdateTime < earlier.lastUpdateTime) violations.push(`${name}: I7: lastUpdateTime went back`);
  }
  return violations;
}

/** A stream of a session's events that reconnects until it ends: each sequence once, in order, without a gap. */
async function follow(
  { userId, sessionId }: Target,
  isOver: () => boolean,
): Promise<{ ids: string[]; violations: string[] }> {
  const [ids, violations] = [[] as string[], [] as string[]];
  let last = 0;
  for (let turn = 0; !isOver(); turn++) {
    const leave = new AbortController();
    const at = replicas[turn % replicas.length];
    const timer = setInterval(() => isOver() && leave.abort(), 50);
    try {
      const response = await fetch(`${at?.url}${sessionPath(userId, sessionId)}/events/stream`, {
        headers: { 'last-event-id': String(last) },
        signal: leave.signal,
      });
      if (!response.ok || !response.body) throw new TypeError(String(response.status));
      let text = '';
      const decoder = new TextDecoder();
      for await (const chunk of response.body) {
        text += decoder.decode(chunk, { stream: true });
        for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
          const [, sequence, data] = /^id: (\d+)\ndata: (.*)$/m.exec(text.slice(0, end)) ?? [];
          text = text.slice(end + 2);
          if (data === undefined) continue;
          if (Number(sequence) !== last + 1)
            violations.push(`${sessionId}: the stream went from ${last} to ${sequence}`);
          last = Number(sequence);
          ids.push((JSON.parse(data) as Event).id ?? '');
        }
      }
    } catch {
      await sleep(50); // the replica is gone or stopped: the next one goes on
    } finally {
      clearInterval(timer);
    }
  }
  return { ids, violations };
}

type Nemesis = (draw: Random) => Promise<void>;

const nemeses: Record<string, Nemesis> = {
  async kill(draw) {
    const position = draw.whole(0, replicas.length - 1);
    await replicas[position]?.kill();
    replicas[position] = await start();
  },
  async stop(draw) {
    const replica = draw.pick(replicas);
    replica.signal('SIGSTOP');
    await sleep(LEASE_MS * 2);
    replica.signal('SIGCONT');
  },
  async disconnect() {
    await sql.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where application_name like 'agent-runtime%' and random() < 0.7`,
    );
  },
  async restart() {
    await cluster.stopImmediately();
    await cluster.start();
  },
};

describe('a history of two replicas under faults', () => {
  test('has one order per session, and holds what was told', async () => {
    const history: History = { acked: [], failed: [], keys: [], reads: new Map(), operations: 0, unsure: 0 };
    const targets = Array.from(
      { length: SESSIONS },
      (_, n): Target => ({ userId: `u-${n % USERS}`, sessionId: `s-${n}` }),
    );
    for (const { userId, sessionId } of targets) await replicas[0]?.post(listPath(userId), { sessionId });
    const until = performance.now() + DURATION_MS;
    const isOver = () => performance.now() >= until;
    const clients = Array.from({ length: CLIENTS }, async (_, client) => {
      const draw = random(`client ${client}`);
      while (!isOver()) {
        const at = draw.pick(replicas);
        await operate(history, draw, at, draw.pick(targets), client);
        await sleep(draw.whole(0, 10));
      }
    });
    let isAtRest = false;
    const streams = targets.map((target) => follow(target, () => isAtRest));
    const suffered: string[] = [];
    const draw = random('nemesis');
    const names = Object.keys(nemeses);
    while (performance.now() + NEMESIS_EVERY_MS < until) {
      await sleep(NEMESIS_EVERY_MS);
      const missing = names.filter((each) => !suffered.includes(each)); // each once, then as chance has it
      const name = draw.pick(missing.length > 0 ? missing : names);
      suffered.push(name);
      await nemeses[name]?.(draw);
    }
    await Promise.all(clients);
    await whenAtRest(sql, REST_WITHIN_MS);
    const final = new Map<string, string[]>();
    for (const target of targets) {
      const { rows } = await sql.query<{ id: string }>(
        'select id from events where session_id = $1 order by sequence',
        [target.sessionId],
      );
      final.set(
        `${target.userId}/${target.sessionId}`,
        rows.map(({ id }) => id),
      );
    }
    await sleep(2_000); // streams look once a second, whatever notifications were lost
    isAtRest = true;
    const streamed = await Promise.all(streams);
    const api = replicas[0] as ServerProcess;
    const violations = [
      ...(await findViolations(sql, { acked: history.acked, api })),
      ...(await failedViolations(history.failed)),
      ...(await keyViolations(history.keys)),
      ...[...history.reads].flatMap(([name, reads]) => readViolations(name, reads, final.get(name) ?? [])),
      ...streamed.flatMap(({ ids, violations: found }, position) => {
        const { userId = '', sessionId = '' } = targets[position] ?? {};
        const missed =
          ids.join() === final.get(`${userId}/${sessionId}`)?.join() ? [] : [`${sessionId}: a stream missed events`];
        return [...found, ...missed];
      }),
    ];
    const reads = [...history.reads.values()].flat().length;
    const events = [...final.values()].flat().length;
    report(
      'history',
      `${history.operations} operations (${history.acked.length} told, ${history.failed.length} refused, ` +
        `${history.unsure} unsure, ${reads} reads), ` +
        `${events} events, nemeses ${suffered.join(' ')}; ${violations.length} violations`,
    );
    expect(violations.slice(0, 20)).toEqual([]);
    expect(model.badHistories).toEqual([]);
    expect(history.acked.length).toBeGreaterThan(CLIENTS);
  });
});

/** What was refused has left no trace. */
async function failedViolations(failed: string[]): Promise<string[]> {
  const { rows } = await sql.query<{ text: string }>(
    `select payload -> 'content' -> 'parts' -> 0 ->> 'text' as text from events
     where payload -> 'content' -> 'parts' -> 0 ->> 'text' = any($1)`,
    [failed],
  );
  return rows.map(({ text }) => `refused, and stored: ${text}`);
}

/** Shared keys that were told to be written are there. */
async function keyViolations(keys: History['keys']): Promise<string[]> {
  const { rows } = await sql.query<{ user_id: string | null; state: JsonObject }>(
    'select user_id, state from user_states union all select null, state from app_states',
  );
  const stateOf = (userId: string, key: string) =>
    rows.find((row) => row.user_id === (key.startsWith('user:') ? userId : null))?.state ?? {};
  return keys.filter(({ userId, key }) => !Object.hasOwn(stateOf(userId, key), key)).map(({ key }) => `lost: ${key}`);
}
