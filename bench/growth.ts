import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Client } from 'pg';
import { Pool } from 'undici';
import { fill, LARGE, type Size, SMALL, TRIAL } from './growth-fill.ts';
import { IDS, OPERATIONS, type Operation, type Request, SEED } from './growth-operations.ts';
import { freePort, startPostgres } from './postgres.ts';
import { type ServerProcess, startServer } from './processes.ts';

/**
 * What operations of one user cost where others have little and where they have much: `npm run bench:growth`. Two
 * databases are filled by SQL, each with a service of its own; of each operation both do the same in turns, and the
 * least CPU a request of the rounds counts, of the service and of the database's connections. `--small`: a trial.
 *
 *   --only=<pattern>  the operations whose name has it
 */

const LIMIT = 1.5;
const ROUNDS = 4;
const REQUESTS = 20;
/** A minute: each side then has one of the sweeps that come once a minute. */
const IDLE_MS = 60_000;
const { values } = parseArgs({ options: { small: { type: 'boolean' }, only: { type: 'string', default: '' } } });
const only = new RegExp(values.only);

/** A database with a service on it. */
interface Side {
  name: string;
  server: ServerProcess;
  pool: Pool;
  sql: Client;
  /** Requests of each operation that were sent. */
  sent: Map<string, number>;
  /** Ids that the service chose. */
  ids: Record<string, string>;
}

async function openSide(name: string, size: Size): Promise<Side> {
  const url = await postgres.createDatabase(name);
  const port = await freePort();
  const main = new URL('../src/main.ts', import.meta.url).pathname;
  const environment = {
    DATABASE_URL: url,
    PORT: String(port),
    LOG_LEVEL: 'error',
    MODEL_PROVIDER: 'offline',
    DEV_UI: 'true',
    CRONJOBS: 'true',
    WEBHOOKS: 'true',
    CRONJOBS_MAX_PER_USER: '100000',
    SESSION_LEASE_MS: '600000',
  };
  const server = await startServer([main], port, '/ready', environment);
  const sql = new Client({ connectionString: url });
  // The server ends before it where something has failed.
  sql.on('error', () => undefined);
  await sql.connect();
  const began = performance.now();
  await fill(sql, size);
  console.error(`${name}: filled in ${Math.round((performance.now() - began) / 1_000)} s`);
  const pool = new Pool(server.url, { connections: 4 });
  const side: Side = { name, server, pool, sql, sent: new Map(), ids: {} };
  for (const request of SEED) await request1(side, request);
  for (const [key, statement] of Object.entries(IDS))
    side.ids[key] = (await sql.query<{ id: string }>(statement)).rows[0]?.id ?? '';
  return side;
}

async function request1(side: Side, { method, path: template, body, isEndless }: Request): Promise<void> {
  const withIds = (text: string) => text.replaceAll(/\{(\w+)\}/g, (whole, key: string) => side.ids[key] ?? whole);
  const path = withIds(template);
  if (path.startsWith('/run_live')) return speak(`${side.server.url.replace('http', 'ws')}${path}`, body);
  const isText = typeof body === 'string';
  const headers = isText
    ? { 'content-type': 'application/x-ndjson', 'x-requested-with': 'bench' }
    : { 'content-type': 'application/json' };
  const sent = body === undefined ? {} : { body: isText ? body : withIds(JSON.stringify(body)), headers };
  const answer = await side.pool.request({ method, path, ...sent });
  if (isEndless) {
    for await (const _ of answer.body) break;
    return;
  }
  const said = await answer.body.text();
  if (answer.statusCode > 299) throw new Error(`${method} ${path}: ${answer.statusCode} ${said.slice(0, 300)}`);
}

/** Says one thing in a live session, and leaves when its turn is complete. */
function speak(url: string, frame: unknown): Promise<void> {
  const socket = new WebSocket(url);
  return new Promise((resolve, reject) => {
    socket.addEventListener('open', () => socket.send(JSON.stringify(frame)));
    socket.addEventListener('message', ({ data }) => {
      if (/"turnComplete": ?true/.test(String(data))) socket.close();
    });
    socket.addEventListener('close', ({ code, reason }) =>
      code < 1002 || code === 1005 ? resolve() : reject(new Error(`${url}: ${code} ${reason}`)),
    );
    socket.addEventListener('error', () => reject(new Error(`${url}: no answer`)));
  });
}

/** CPU of a process, ms, exact: of its threads that are there. */
function cpuOf(pid: number | string): number {
  const threads = listFiles(`/proc/${pid}/task`);
  return (
    threads.reduce((sum, thread) => sum + Number(read(`/proc/${pid}/task/${thread}/schedstat`).split(' ')[0]), 0) / 1e6
  );
}

/** Starts to count the CPU of the connections to a database. @returns what counts it until then, ms */
function countDatabaseCpu(name: string): () => number {
  const find = () =>
    listFiles('/proc').flatMap((pid) =>
      /^\d+$/.test(pid) && read(`/proc/${pid}/cmdline`).includes(` ${name} 127.0.0.1`)
        ? [[pid, cpuOf(pid)] as const]
        : [],
    );
  const before = new Map(find());
  return () => find().reduce((sum, [pid, cpu]) => sum + cpu - (before.get(pid) ?? 0), 0);
}

/** Of a process that has ended there is nothing. */
function attempt<T>(work: () => T, otherwise: T): T {
  try {
    return work();
  } catch {
    return otherwise;
  }
}
const listFiles = (path: string) => attempt(() => readdirSync(path), []);
const read = (path: string) => attempt(() => readFileSync(path, 'utf8'), '');

/** CPU of service and database a request, ms. */
async function measureRound(side: Side, name: string, count: number): Promise<[number, number]> {
  const next = OPERATIONS[name] as Operation;
  const first = side.sent.get(name) ?? 0;
  side.sent.set(name, first + count);
  const [service, database] = [cpuOf(side.server.pid), countDatabaseCpu(side.name)];
  let n = first;
  const client = async () => {
    while (n < first + count) await request1(side, next(n++));
  };
  await Promise.all([client(), client()]);
  return [(cpuOf(side.server.pid) - service) / count, database() / count];
}

/** The least of the rounds, of which both sides do one after the other; the first one is not counted. */
async function compare(sides: Side[], name: string): Promise<[number, number][]> {
  const least = sides.map((): [number, number] => [Infinity, Infinity]);
  for (let round = 0; round <= ROUNDS; round += 1) {
    for (const [place, side] of sides.entries()) {
      const [a, b] = await measureRound(side, name, REQUESTS);
      const [service, database] = least[place] as [number, number];
      if (round > 0 && a + b < service + database) least[place] = [a, b];
    }
  }
  return least;
}

const postgres = await startPostgres();
try {
  const sides = [
    await openSide('small', values.small ? TRIAL.small : SMALL),
    await openSide('large', values.small ? TRIAL.large : LARGE),
  ];
  await sleep(10_000);
  const show = ([a, b]: [number, number]) => `${a.toFixed(2)} + ${b.toFixed(2)}`;
  console.log('| operation, CPU ms of service + database | small | large | ratio |\n| --- | --- | --- | --- |');
  const over: string[] = [];
  const print = (name: string, [small, large]: [number, number][]) => {
    if (!small || !large) return;
    const ratio = (large[0] + large[1]) / (small[0] + small[1]);
    if (ratio > LIMIT) over.push(`${name}: ${ratio.toFixed(2)}`);
    console.log(`| ${name} | ${show(small)} | ${show(large)} | ${ratio.toFixed(2)} |`);
  };
  if (only.test('an idle service, a second')) {
    const idle = sides.map((side) => [cpuOf(side.server.pid), countDatabaseCpu(side.name)] as const);
    await sleep(IDLE_MS);
    const used = sides.map((side, place): [number, number] => [
      (1_000 * (cpuOf(side.server.pid) - (idle[place]?.[0] ?? 0))) / IDLE_MS,
      (1_000 * (idle[place]?.[1]() ?? 0)) / IDLE_MS,
    ]);
    print('an idle service, a second', used);
  }
  for (const name of Object.keys(OPERATIONS).filter((each) => only.test(each))) {
    await compare(sides, name).then(
      (figures) => print(name, figures),
      (error: Error) => over.push(`${name} failed: ${error.message}`),
    );
  }
  console.log(`Over ${LIMIT}: ${over.join('; ') || 'none'}.`);
  for (const { server, pool, sql } of sides) {
    await pool.destroy();
    await sql.end();
    await server.stop();
  }
} finally {
  await postgres.stop();
}
