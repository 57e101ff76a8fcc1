import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Client } from 'pg';
import { Pool } from 'undici';
import { fill, LARGE, type Size, SMALL, TRIAL } from './growth-fill.ts';
import { freePort, startPostgres } from './postgres.ts';
import { type ServerProcess, startServer } from './processes.ts';
import { APP } from './seed.ts';

/**
 * What operations of one user cost where others have little and where they have much: `npm run bench:growth`. Two
 * databases are filled by SQL, each with a service of its own; of each operation both do the same in turns, and the
 * least CPU a request of the rounds counts, of the service and of the database's connections. `--small`: a trial.
 *
 *   --only=<words>  the operations whose name has these words
 */

const LIMIT = 1.5;
const ROUNDS = 4;
const REQUESTS = 20;
const IDLE_MS = 20_000;
const USER = 'measured';
const { values } = parseArgs({ options: { small: { type: 'boolean' }, only: { type: 'string', default: '' } } });

interface Request {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path: string;
  body?: unknown;
}
/** Makes the n-th request of an operation. */
type Operation = (n: number) => Request;

const get =
  (path: string): Operation =>
  () => ({ method: 'GET', path });
const send =
  (method: Request['method'], path: (n: number) => string, body?: (n: number) => unknown): Operation =>
  (n) => ({
    method,
    path: path(n),
    ...(body && { body: body(n) }),
  });
const of = `/apps/${APP}/users/${USER}`;
const session = `${of}/sessions/s0`;
const D = `/dev/apps/${APP}`;
const text = (words: string) => ({ role: 'user', parts: [{ text: words }] });
const event = (id: string) => ({
  id,
  invocationId: 'i',
  author: 'user',
  content: text('some words'),
  timestamp: 1.79e9,
});
const job = (name: string) => ({
  ownerId: USER,
  name,
  prompt: 'hello',
  schedule: { type: 'daily', time: '08:00', timezone: 'Europe/Berlin' },
});

/** What there is of the user that is measured, in both databases. */
const SEED: Request[] = [
  ...[0, 1, 2].map(
    (n): Request => ({
      method: 'POST',
      path: `${of}/sessions`,
      body: { sessionId: `s${n}`, events: Array.from({ length: 10 }, (_, k) => event(`e${k}`)) },
    }),
  ),
  { method: 'POST', path: `${session}/artifacts`, body: { filename: 'note.txt', artifact: { text: 'hello' } } },
  { method: 'PATCH', path: `${of}/memory`, body: { sessionId: 's0' } },
  { method: 'PATCH', path: `${of}/memory`, body: { sessionId: 's1' } },
  { method: 'PATCH', path: `${session}/labels`, body: { project: 'atlas' } },
  { method: 'POST', path: '/harness/cronjobs', body: job('seed') },
  { method: 'POST', path: '/harness/webhooks', body: { ownerId: USER, url: 'https://hook.example/seed' } },
  { method: 'POST', path: '/harness/invoke', body: invoke('seeded') },
  { method: 'POST', path: `${D}/eval-sets`, body: { evalSet: { eval_set_id: 'smoke', eval_cases: [] } } },
  {
    method: 'POST',
    path: `${D}/eval-sets/smoke/add-session`,
    body: { evalId: 'c', sessionId: 'seeded', userId: USER },
  },
];

function invoke(sessionId: string, prompt = 'What is 17 * 23? Use the calculator.') {
  return { prompt, harness_name: 'h', run_agent_request: { user_id: USER, session_id: sessionId } };
}
const run = (n: number) => ({ appName: APP, userId: USER, sessionId: `new${n}`, newMessage: text('hello') });
const evalMetrics = [{ metricName: 'response_match_score', threshold: 0.8 }];

/** A request of every kind; those that delete find what one before them has made. */
const OPERATIONS: Record<string, Operation> = {
  health: get('/health'),
  ready: get('/ready'),
  'list applications': get('/list-apps'),
  'application info': get(`/apps/${APP}/app-info`),
  'list budgets': get(`/apps/${APP}/budgets`),
  'save a budget': send(
    'PUT',
    () => `/apps/${APP}/budgets`,
    (n) => ({ appliesTo: 'user', forUser: USER, period: 'day', maxTokens: 1e9 + n }),
  ),
  'list prices': get('/model-prices'),
  'save a price': send(
    'PUT',
    () => '/model-prices',
    (n) => ({ model: 'm', promptPrice: n, outputPrice: 1 }),
  ),
  'hold a session': send(
    'PUT',
    () => `${of}/hold`,
    () => ({ sessionId: 's2', reason: 'Case 1' }),
  ),
  'list holds': get(`/apps/${APP}/holds`),
  'remove a hold': send('DELETE', () => `${of}/hold?sessionId=s2`),
  'bytes of a user': get(`${of}/storage`),
  'list users, a page': get(`/apps/${APP}/users?limit=20`),
  'applications of a user': get(`/users/${USER}/apps`),
  'export a user': get(`/apps/${APP}/users/u1/export`),
  'list sessions': get(`/apps/${APP}/users/u1/sessions`),
  'list sessions, a page': get(`/apps/${APP}/users/u1/sessions?limit=2`),
  'list by label': get(`/apps/${APP}/users/u1/sessions?limit=20&label=project%3Datlas`),
  'list by text': get(`/apps/${APP}/users/u1/sessions?limit=20&text=nothing`),
  'list by label, own 20,000': get(`/apps/${APP}/users/many/sessions?limit=20&label=project%3Datlas`),
  'list by text, own 20,000': get(`/apps/${APP}/users/many/sessions?limit=20&text=nothing`),
  'list a page, own 20,000': get(`/apps/${APP}/users/many/sessions?limit=20`),
  'create a session': send(
    'POST',
    () => `${of}/sessions`,
    (n) => ({ sessionId: `new${n}` }),
  ),
  'get a session': get(session),
  'get a session as of an event': get(`${session}?atSequence=5`),
  'change a state': send(
    'PATCH',
    () => session,
    (n) => ({ stateDelta: { k: n } }),
  ),
  'change app state': send(
    'PATCH',
    () => session,
    (n) => ({ stateDelta: { 'app:k': n, 'user:k': n } }),
  ),
  'append an event': send(
    'POST',
    () => `${of}/sessions/s1/events`,
    (n) => event(`n${n}`),
  ),
  'list events': get(`${session}/events?limit=10`),
  'fork a session': send(
    'POST',
    () => `${session}/fork`,
    (n) => ({ sessionId: `fork${n}` }),
  ),
  'compare sessions': get(`${session}/diff?other=s2`),
  'labels of a session': get(`${session}/labels`),
  'label a session': send(
    'PATCH',
    () => `${session}/labels`,
    (n) => ({ n: `${n}` }),
  ),
  'run, a new session': send('POST', () => '/run', run),
  'run with a tool': send(
    'POST',
    () => '/harness/invoke',
    (n) => invoke(`tool${n}`),
  ),
  'run as events': send(
    'POST',
    () => '/run_sse',
    (n) => ({ ...run(n), sessionId: `new${n}` }),
  ),
  'start in the background': send(
    'POST',
    (n) => `${of}/sessions/new${n}/invocations`,
    () => ({ newMessage: text('hello') }),
  ),
  'list invocations': get(`${of}/sessions/seeded/invocations`),
  'save an artifact': send(
    'POST',
    () => `${session}/artifacts`,
    () => ({ filename: 'a.txt', artifact: { text: 'hello' } }),
  ),
  'list artifacts': get(`${session}/artifacts`),
  'load an artifact': get(`${session}/artifacts/note.txt`),
  'list versions': get(`${session}/artifacts/note.txt/versions`),
  'metadata of versions': get(`${session}/artifacts/note.txt/versions/metadata`),
  'delete an artifact': send('DELETE', () => `${session}/artifacts/a.txt`),
  'add to memory': send(
    'PATCH',
    () => `${of}/memory`,
    () => ({ sessionId: 's2' }),
  ),
  'search the memory': get(`${of}/memory?query=some+words`),
  'delete a session': send('DELETE', (n) => `${of}/sessions/new${n}`),
  'create a cronjob': send(
    'POST',
    () => '/harness/cronjobs',
    (n) => job(`j${n}`),
  ),
  'list cronjobs': get(`/harness/cronjobs?ownerId=${USER}&limit=2`),
  'list all cronjobs': get('/cronjobs?limit=5'),
  'list webhooks': get(`/harness/webhooks?ownerId=${USER}`),
  'list evaluation sets': get(`${D}/eval-sets`),
  'get an evaluation set': get(`${D}/eval-sets/smoke`),
  'list cases': get(`${D}/eval_sets/smoke/evals`),
  'run an evaluation': send(
    'POST',
    () => `${D}/eval-sets/smoke/run`,
    () => ({ evalMetrics }),
  ),
  'list evaluation runs': get(`${D}/eval-runs?limit=5`),
  'list results': get(`${D}/eval-results`),
  'trend of a set': get(`${D}/eval-sets/smoke/trend`),
  'trace of a session': get(`${D}/debug/trace/session/seeded`),
  'graph of an application': get(`${D}/build_graph`),
};

/** A database with a service on it. */
interface Side {
  name: string;
  server: ServerProcess;
  pool: Pool;
  sql: Client;
  /** Requests of each operation that were sent. */
  sent: Map<string, number>;
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
  const side = { name, server, pool, sql, sent: new Map() };
  for (const request of SEED) await request1(side, request);
  return side;
}

async function request1({ pool }: Side, { method, path, body }: Request): Promise<void> {
  const json =
    body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
  const answer = await pool.request({ method, path, ...json });
  const said = await answer.body.text();
  if (answer.statusCode > 299) throw new Error(`${method} ${path}: ${answer.statusCode} ${said.slice(0, 300)}`);
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
  await sleep(2_000);
  const show = ([a, b]: [number, number]) => `${a.toFixed(2)} + ${b.toFixed(2)}`;
  console.log('| operation, CPU ms of service + database | small | large | ratio |\n| --- | --- | --- | --- |');
  const over: string[] = [];
  const print = (name: string, [small, large]: [number, number][]) => {
    if (!small || !large) return;
    const ratio = (large[0] + large[1]) / (small[0] + small[1]);
    if (ratio > LIMIT) over.push(`${name}: ${ratio.toFixed(2)}`);
    console.log(`| ${name} | ${show(small)} | ${show(large)} | ${ratio.toFixed(2)} |`);
  };
  if ('an idle service, a second'.includes(values.only)) {
    const idle = sides.map((side) => [cpuOf(side.server.pid), countDatabaseCpu(side.name)] as const);
    await sleep(IDLE_MS);
    const used = sides.map((side, place): [number, number] => [
      (1_000 * (cpuOf(side.server.pid) - (idle[place]?.[0] ?? 0))) / IDLE_MS,
      (1_000 * (idle[place]?.[1]() ?? 0)) / IDLE_MS,
    ]);
    print('an idle service, a second', used);
  }
  for (const name of Object.keys(OPERATIONS).filter((each) => each.includes(values.only))) {
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
