import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Client } from 'pg';
import { Pool } from 'undici';
import { fill, LARGE, type Size, SMALL, TRIAL } from './growth-fill.ts';
import { BOUND, IDS, MADE_BY, OPERATIONS, SEED, UNMEASURED } from './growth-operations.ts';
import { type Operation, type Request, USER } from './growth-request.ts';
import { freePort, startPostgres } from './postgres.ts';
import { type ServerProcess, startServer } from './processes.ts';
import { startModel } from './targets.ts';
import { createKey } from '../src/platform/http/access/key-ring.ts';
import { installVectors } from '../test/support/vectors.ts';
import { USER_SCOPES } from '../src/platform/http/operation/principal.ts';
import { listRoutes } from '../src/platform/http/operation/paths.ts';
import { listAllOperations } from '../src/process/app.ts';

/**
 * What operations of one user cost where others have little and where they have much: `npm run bench -- growth`. Two
 * databases are filled by SQL, each with a service of its own; of each operation both do the same in turns, and the
 * least CPU a request of the rounds counts, of the service and of the database's connections. Then some of them again
 * with a key of the user, under row-level security. `--small`: a trial.
 *
 *   --only=<pattern>  the operations whose name has it
 */

const LIMIT = 1.5;
/** How often an operation is asked, in rounds: first of all, then of what was over the limit. */
const FIRST = { rounds: 2, requests: 10 };
const AGAIN = { rounds: 6, requests: 20 };
/** A minute: each side then has one of the sweeps that come once a minute. */
const IDLE_MS = 60_000;
const { values } = parseArgs({ options: { small: { type: 'boolean' }, only: { type: 'string', default: '' } } });
const only = new RegExp(values.only);

/** A database with a service on it. */
interface Side {
  name: string;
  url: string;
  server: ServerProcess;
  /** The service that is asked with a key of the user, once it has started, and its key. */
  bound?: { server: ServerProcess; pool: Pool; key: string };
  pool: Pool;
  sql: Client;
  /** Requests of each operation that were sent. */
  sent: Map<string, number>;
  /** Ids that the service chose. */
  ids: Record<string, string>;
}

const MAIN = new URL('../src/main.ts', import.meta.url).pathname;
const ENVIRONMENT = {
  LOG_LEVEL: 'error',
  MODEL_PROVIDER: 'offline',
  AGENTS_DIR: new URL('./servers/agents', import.meta.url).pathname,
  DEV_UI: 'true',
  EVALS: 'true',
  CRONJOBS: 'true',
  WEBHOOKS: 'true',
  CRONJOBS_MAX_PER_USER: '100000',
  SESSION_LEASE_MS: '600000',
};

const toEnvironment = (url: string) => ({ ...ENVIRONMENT, DATABASE_URL: url, BENCH_MODEL_URL: model.url });

async function openSide(name: string, size: Size): Promise<Side> {
  const url = await postgres.createDatabase(name);
  await installVectors(url);
  const port = await freePort();
  const server = await startServer([MAIN], port, '/ready', { ...toEnvironment(url), PORT: String(port) });
  const sql = new Client({ connectionString: url });
  // The server ends before it where something has failed.
  sql.on('error', () => undefined);
  await sql.connect();
  const began = performance.now();
  await fill(sql, size);
  console.error(`${name}: filled in ${Math.round((performance.now() - began) / 1_000)} s`);
  const pool = new Pool(server.url, { connections: 4 });
  const side: Side = { name, url, server, pool, sql, sent: new Map(), ids: {} };
  for (const request of SEED) await request1(side, request);
  while ((await sql.query(`select from jobs where kind = 'memory'`)).rowCount) await sleep(100);
  for (const [key, statement] of Object.entries(IDS))
    side.ids[key] = (await sql.query<{ id: string }>(statement)).rows[0]?.id ?? '';
  return side;
}

/** Starts a second service on the database of a side, with a key of the user. */
async function startBound(side: Side): Promise<void> {
  const { key, entry } = createKey({ scopes: [...USER_SCOPES, 'develop'], users: [USER, 'many'] });
  const file = join(await mkdtemp(join(tmpdir(), 'agent-runtime-growth-')), 'keys');
  await writeFile(file, entry);
  const port = await freePort();
  const environment = { ...toEnvironment(side.url), PORT: String(port), RUNTIME_API_KEYS_FILE: file };
  const limits = {
    MAX_READS_PER_MINUTE: '1000000',
    MAX_WRITES_PER_MINUTE: '1000000',
    MAX_INVOCATIONS_PER_MINUTE: '1000000',
  };
  const more = { ...limits, AUTH_MODE: 'key', DEV_UI: 'false', DOORS: 'ag-ui,ai-sdk,durable-streams,mcp,a2a' };
  const server = await startServer([MAIN], port, '/ready', { ...environment, ...more });
  side.bound = { server, pool: new Pool(server.url, { connections: 4 }), key };
}

async function request1(
  side: Side,
  { method, path: template, body, isEndless, headers: own, keep }: Request,
): Promise<void> {
  const withIds = (text: string) => text.replaceAll(/\{(\w+)\}/g, (whole, key: string) => side.ids[key] ?? whole);
  const path = withIds(template);
  if (path.startsWith('/run_live')) return speak(`${side.server.url.replace('http', 'ws')}${path}`, body);
  const isText = typeof body === 'string';
  const type = isText ? 'application/x-ndjson' : 'application/json';
  const headers = {
    ...(isText && { 'x-requested-with': 'bench' }),
    ...(body !== undefined && { 'content-type': type }),
    ...(side.bound && { authorization: `Bearer ${side.bound.key}` }),
    ...Object.fromEntries(Object.entries(own ?? {}).map(([name, value]) => [name, withIds(value)])),
  };
  const sent = body === undefined ? {} : { body: isText ? body : withIds(JSON.stringify(body)) };
  const answer = await (side.bound ?? side).pool.request({ method, path, headers, ...sent });
  if (isEndless) {
    for await (const _ of answer.body) break;
    return;
  }
  const said = await answer.body.text();
  if (answer.statusCode > 299) throw new Error(`${method} ${path}: ${answer.statusCode} ${said.slice(0, 300)}`);
  if (!keep) return;
  const [, id] = keep[1].exec(said) ?? [];
  if (id === undefined) throw new Error(`${method} ${path}: no ${keep[0]} in ${said.slice(0, 300)}`);
  side.ids[keep[0]] = id;
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
async function measureRound(side: Side, [name, next]: [string, Operation], count: number): Promise<[number, number]> {
  const first = side.sent.get(name) ?? 0;
  side.sent.set(name, first + count);
  const maker = MADE_BY[name];
  for (let n = maker ? (side.sent.get(maker) ?? 0) : Infinity; maker && n < first + count; n++) {
    await request1(side, (OPERATIONS[maker] as Operation)(n));
    side.sent.set(maker, n + 1);
  }
  const getServiceCpu = () => cpuOf(side.server.pid) + (side.bound ? cpuOf(side.bound.server.pid) : 0);
  const [service, database] = [getServiceCpu(), countDatabaseCpu(side.name)];
  let n = first;
  const client = async () => {
    while (n < first + count) await request1(side, next(n++));
  };
  await Promise.all([client(), client()]);
  return [(getServiceCpu() - service) / count, database() / count];
}

/** The least of the rounds, of which both sides do one after the other; the first one is not counted. */
async function compare(
  sides: Side[],
  operation: [string, Operation],
  { rounds, requests } = FIRST,
): Promise<[number, number][]> {
  const least = sides.map((): [number, number] => [Infinity, Infinity]);
  for (let round = 0; round <= rounds; round += 1) {
    for (const [place, side] of sides.entries()) {
      const [a, b] = await measureRound(side, operation, requests);
      const [service, database] = least[place] as [number, number];
      if (round > 0 && a + b < service + database) least[place] = [a, b];
    }
  }
  return least;
}

/** The operations that have neither a row nor a reason, by their id. */
function listForgotten(): string[] {
  const served = listRoutes(listAllOperations()).map(({ path, operation: { method, operationId } }) => ({
    id: operationId,
    pattern: new RegExp(`^${method} ${path.replaceAll(/\{\w+\}/g, '[^/]+').replaceAll('.', '\\.')}$`, 'i'),
  }));
  const sent = Object.values({ ...OPERATIONS, ...BOUND }).map((operation) => {
    const { method, path } = operation(0);
    return `${method} ${path.split('?')[0]}`;
  });
  // Of several paths that fit, the one with the fewest parameters is meant: the shortest pattern's.
  const measured = new Set(
    sent.map(
      (line) =>
        served
          .filter(({ pattern }) => pattern.test(line))
          .toSorted((a, b) => a.pattern.source.split('[').length - b.pattern.source.split('[').length)[0]?.id,
    ),
  );
  return [...new Set(served.map(({ id }) => id))].filter((id) => !measured.has(id) && !(id in UNMEASURED));
}

const forgotten = listForgotten();
if (forgotten.length > 0)
  throw new Error(`Give these a row in OPERATIONS or a reason in UNMEASURED: ${forgotten.join(', ')}.`);
const postgres = await startPostgres();
const model = await startModel();
try {
  const sides = [
    await openSide('small', values.small ? TRIAL.small : SMALL),
    await openSide('large', values.small ? TRIAL.large : LARGE),
  ];
  await sleep(10_000);
  const show = ([a, b]: [number, number]) => `${a.toFixed(2)} + ${b.toFixed(2)}`;
  console.log('| operation, CPU ms of service + database | small | large | ratio |\n| --- | --- | --- | --- |');
  const over: string[] = [];
  const getRatio = ([small = [1, 0], large = [1, 0]]: [number, number][]) =>
    (large[0] + large[1]) / (small[0] + small[1]);
  const print = (name: string, figures: [number, number][]) => {
    const ratio = getRatio(figures);
    if (ratio > LIMIT) over.push(`${name}: ${ratio.toFixed(2)}`);
    console.log(`| ${[name, ...figures.map(show), ratio.toFixed(2)].join(' | ')} |`);
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
  const measure = async (operations: Record<string, Operation>) => {
    for (const operation of Object.entries(operations).filter(([name]) => only.test(name))) {
      try {
        const figures = await compare(sides, operation);
        print(operation[0], getRatio(figures) > LIMIT ? await compare(sides, operation, AGAIN) : figures);
      } catch (error) {
        over.push(`${operation[0]} failed: ${(error as Error).message}`);
      }
    }
  };
  await measure(OPERATIONS);
  await Promise.all(sides.map(startBound));
  await measure(BOUND);
  console.log(`Over ${LIMIT}: ${over.join('; ') || 'none'}.`);
  for (const { server, pool, sql, bound } of sides) {
    await bound?.pool.destroy();
    await bound?.server.stop();
    await pool.destroy();
    await sql.end();
    await server.stop();
  }
} finally {
  await model.stop();
  await postgres.stop();
}
