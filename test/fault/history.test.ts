import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresCluster, startCluster } from './support/cluster.ts';
import { eventually, listPath, modelSettings, openSql, report, sessionPath } from './support/faults.ts';
import { whenAtRest } from './support/faults.ts';
import { historySettings, newHistory, operate, type Target, useEach } from './support/history.ts';
import { historyViolations } from './support/history-checks.ts';
import { type ModelServer, startModelServer } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { type PostgresProxy, startProxy } from './support/postgres-proxy.ts';
import { either, type Random, random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { followStream } from './support/stream-follower.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * Clients of two replicas do what chance says, each operation with a value of its own, while processes are killed,
 * stopped and ended, connections cut and swallowed and PostgreSQL restarted. A session has one total order, which makes
 * the checks complete.
 */

const DURATION_MS = either(20_000, 600_000);
const NEMESIS_EVERY_MS = either(1_500, 4_000);
const [CLIENTS, SESSIONS, USERS] = [16, 8, 2];
const REST_WITHIN_MS = 2 * MINUTE;
const LEASE_MS = paced(600);
const settings = {
  ...historySettings,
  SESSION_LEASE_MS: String(LEASE_MS),
  SESSION_WAIT_MS: '5000',
  SHUTDOWN_GRACE_MS: '2000',
  DRAIN_DELAY_MS: '200',
  // A black hole is noticed by them.
  DATABASE_STATEMENT_TIMEOUT_MS: '2000',
};

/** One of two processes, with a network of its own to the database. */
interface Replica {
  proxy: PostgresProxy;
  server: ServerProcess;
}

let cluster: PostgresCluster;
let model: ModelServer;
let sql: Pool;
const replicas: Replica[] = [];
const history = newHistory();

/** Those that were ended on purpose; any other end is a violation. */
const stopped = new Set<ServerProcess>();

async function start(proxy: PostgresProxy): Promise<ServerProcess> {
  const server = await startServer(proxy.url, { ...modelSettings(model.baseUrl), ...settings });
  const noteEnd = (code: number | null) => {
    if (!stopped.has(server)) history.wrong.push(`a process ended by itself with ${code}: ${server.log()}`);
  };
  void server.exited.then(noteEnd);
  return server;
}

beforeAll(async () => {
  model = await startModelServer();
  cluster = await startCluster();
  sql = openSql(cluster.url);
  for (let n = 0; n < 2; n++) {
    const proxy = await startProxy(cluster.url);
    replicas.push({ proxy, server: await start(proxy) });
  }
});
afterAll(async () => {
  for (const { proxy, server } of replicas) {
    stopped.add(server);
    await server.kill();
    await proxy.close();
  }
  await sql.end();
  await cluster.close();
  await model.close();
});

/** What may happen to one replica, or to the database of both. */
const nemeses: Record<string, (replica: Replica) => Promise<unknown>> = {
  async kill(replica) {
    stopped.add(replica.server);
    await replica.server.kill();
    replica.server = await start(replica.proxy);
  },
  async stop({ server }) {
    server.signal('SIGSTOP');
    await sleep(LEASE_MS * 2);
    server.signal('SIGCONT');
  },
  async term(replica) {
    stopped.add(replica.server);
    replica.server.signal('SIGTERM');
    const code = await replica.server.exited;
    if (code !== 0) history.wrong.push(`SIGTERM: exit code ${code}, ${replica.server.log()}`);
    replica.server = await start(replica.proxy);
  },
  reset: async ({ proxy }) => proxy.cutAll(),
  hole: async ({ proxy }) => proxy.swallowOpen(),
  terminate: () =>
    sql.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
       where application_name like 'agent-runtime%' and random() < 0.7`,
    ),
  async restart() {
    await cluster.stopImmediately();
    await cluster.start();
  },
};

/** Lets things happen until `until`: each once, then as chance has it. @returns their names. */
async function suffer(until: number): Promise<string[]> {
  const draw = random('nemesis');
  const names = Object.keys(nemeses);
  const suffered: string[] = [];
  while (performance.now() + NEMESIS_EVERY_MS < until || suffered.length < names.length) {
    await sleep(NEMESIS_EVERY_MS);
    const missing = names.filter((each) => !suffered.includes(each));
    const name = draw.pick(missing.length > 0 ? missing : names);
    suffered.push(name);
    await nemeses[name]?.(draw.pick(replicas));
  }
  return suffered;
}

async function work(draw: Random, targets: Target[], isOver: () => boolean): Promise<void> {
  while (!isOver()) {
    await operate(history, draw, draw.pick(replicas).server, draw.pick(targets));
    await sleep(draw.whole(0, 10));
  }
}

const count = async (table: 'events' | 'invocations'): Promise<number> =>
  (await sql.query<{ n: number }>(`select count(*)::int as n from ${table}`)).rows[0]?.n ?? 0;

test('a history of two replicas under faults has one order per session, and holds what was acknowledged', async () => {
  const targets = Array.from({ length: SESSIONS }, (_, n) => ({ userId: `u-${n % USERS}`, sessionId: `s-${n}` }));
  for (const { userId, sessionId } of targets) await replicas[0]?.server.post(listPath(userId), { sessionId });
  const until = performance.now() + DURATION_MS;
  let isFaultless = false;
  let isAtRest = false;
  const streams = new Map(
    targets.map((target, n) => {
      const path = `${sessionPath(target.userId, target.sessionId)}/events/stream`;
      const url = (turn: number) => `${replicas[(turn + n) % replicas.length]?.server.url}${path}`;
      return [target, followStream(url, () => isAtRest)];
    }),
  );
  const isOver = () => performance.now() >= until && isFaultless;
  const clients = Array.from({ length: CLIENTS }, (_, n) => work(random(`client ${n}`), targets, isOver));
  const suffered = await suffer(until);
  isFaultless = true;
  await Promise.all(clients);
  await whenAtRest(sql, REST_WITHIN_MS);
  const servers = replicas.map(({ server }) => server);
  expect(history.wrong).toEqual([]);
  await useEach(servers, targets, REST_WITHIN_MS);
  const events = await count('events');
  const sent = () => [...streams.values()].reduce((sum, { followed }) => sum + followed.ids.length, 0);
  await eventually('the streams have sent all', REST_WITHIN_MS, async () => sent() >= events).catch(() => undefined);
  isAtRest = true;
  await Promise.all([...streams.values()].map(({ ended }) => ended));
  const followed = new Map([...streams].map(([target, stream]) => [target, stream.followed]));
  const api = servers[0] as ServerProcess;
  const violations = await historyViolations(sql, history, followed, model.asked, { api });
  const counts = Map.groupBy(suffered, (name) => name);
  report(
    'history',
    `${Math.round(DURATION_MS / 1_000)} s, lease ${LEASE_MS} ms, ${history.operations} operations ` +
      `(${history.acked.length} acknowledged, ${history.told.length} told what became of a message, ` +
      `${history.keyed.length} with keys and ${history.keyed.flatMap(({ answers }) => answers).length} answers to ` +
      `these, ${history.failed.length} refused, ${history.unsure} unsure, ` +
      `${[...history.reads.values()].flat().length} reads), ` +
      `${events} events and ${await count('invocations')} invocations stored; ${suffered.length} faults ` +
      `(${[...counts].map(([name, all]) => `${all.length} ${name}`).join(', ')}); ${violations.length} violations`,
  );
  expect(violations.slice(0, 20)).toEqual([]);
  expect(model.badHistories).toEqual([]);
  expect(Math.min(history.acked.length, history.told.length, history.keyed.length)).toBeGreaterThan(CLIENTS);
});
