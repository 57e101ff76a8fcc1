import { appendFile, mkdir } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { text } from 'node:stream/consumers';
import { Client } from 'pg';
import { answerFor, promptFor, startModelServer } from '../test/fault/support/model-server.ts';
import { NODE_FLAGS } from '../test/support/node-flags.ts';
import { freePort, startPostgres } from './postgres.ts';
import { type ServerProcess, startServer } from './processes.ts';
import { APP, type CountStored, Load, script, type Tally } from './soak-load.ts';
import { Inspector, look, type Sample, slopeOf, type TableSize } from './soak-watch.ts';

/**
 * `npm run soak`: two replicas under a gentle load of all kinds for an hour. One of them is killed and stopped
 * by turns; the other one is watched: what it keeps in memory, its descriptors and connections. Each conversation is
 * checked when it is over and then deleted, so that tables stay as large as they are; what grows is printed. Exit code 1
 * for lost or doubled work, descriptors or connections that leak, and a heap that rises.
 *
 *   --minutes=60      length of the load
 *   --rate=5          requests a second
 *   --kill-every=3    minutes between two ends of the other replica
 *   --snapshots=<dir> heap snapshots after a third and two thirds
 */

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '60' },
    rate: { type: 'string', default: '5' },
    'kill-every': { type: 'string', default: '3' },
    snapshots: { type: 'string' },
  },
});
const MINUTE = 60_000;
const MINUTES = Number(values.minutes);
/** Requests of a conversation, repeated ones included, as counted. */
const REQUESTS_A_CONVERSATION = 16;
const WARM_MS = 20_000;
/** Also the idle time of a client's connection, twice. */
const QUIET_MS = 30_000;
const POOL_SIZE = 10;
/** Beside the pool: notifications, the lock of the sweeper, and one for a tool or a job. */
const OTHER_CONNECTIONS = 3;
const OTHER_DESCRIPTORS = 10;
/** MB an hour, over the last half; less cannot be told from noise. */
const MAX_SLOPE = 3;
/** A shorter run says nothing about a slope. */
const MIN_MINUTES = 30;
const CRONJOBS = 6;
const INTERVAL_SECONDS = 60;
const RESULTS = new URL('results/', import.meta.url);

const tally: Tally = { requests: 0, answered: 0, conversations: 0, repeated: new Map(), wrong: [] };
const postgres = await startPostgres();
const model = await startModelServer(script);

/** The world outside: it counts payments by prompt, and deliveries by invocation. */
const payments = new Map<string, Set<string>>();
const deliveries = new Map<string, Set<string>>();
const note = (in_: Map<string, Set<string>>, of: string, id: string) =>
  void in_.set(of, (in_.get(of) ?? new Set()).add(id));
const world = createServer((request, response) => {
  const take = async () => {
    const body = await text(request);
    const said = JSON.parse(body) as { for: string; operationId: string; type: string; data: { invocationId: string } };
    if (request.url === '/payments') note(payments, said.for, said.operationId);
    else if (said.type === 'invocation.ended')
      note(deliveries, said.data.invocationId, String(request.headers['webhook-id']));
    response.writeHead(204).end();
  };
  void take();
});
await new Promise<void>((resolve) => world.listen(0, '127.0.0.1', resolve));
const worldUrl = `http://127.0.0.1:${(world.address() as AddressInfo).port}`;

const databaseUrl = await postgres.createDatabase('soak');
const environment = {
  DATABASE_URL: databaseUrl,
  DATABASE_POOL_SIZE: String(POOL_SIZE),
  LOG_LEVEL: 'error',
  AGENTS_DIR: fileURLToPath(new URL('servers/soak', import.meta.url)),
  MODEL_API_KEY: 'none',
  SOAK_MODEL_URL: model.baseUrl,
  SOAK_WORLD_URL: worldUrl,
  CRONJOBS: 'true',
  DEV_UI: 'true',
  WEBHOOKS: 'true',
  WEBHOOKS_ALLOWED_HOSTS: worldUrl,
  DRAIN_DELAY_MS: '1000',
};
const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const start = (port: number, flags: string[] = []) =>
  startServer([...NODE_FLAGS, ...flags, MAIN], port, '/ready', { ...environment, PORT: String(port) });

const inspectorPort = await freePort();
const watched = await start(await freePort(), [`--inspect=127.0.0.1:${inspectorPort}`]);
const inspector = await Inspector.open(inspectorPort);
const otherPort = await freePort();
let other: ServerProcess | undefined = await start(otherPort);
const otherUrl = other.url;

const sql = new Client({ connectionString: databaseUrl });
await sql.connect();
/** Statements of several conversations at once, which must not wait for those of a look. */
const checks = new Client({ connectionString: databaseUrl });
await checks.connect();
const countStored: CountStored = async (user, session, ids) => {
  const { rows } = await checks.query<{ author: string; text: string }>(
    `select author, payload -> 'content' -> 'parts' -> 0 ->> 'text' as text from events
     where app_name = $1 and user_id = $2 and session_id = $3`,
    [APP, user, session],
  );
  const said = rows.filter(({ author }) => author === 'user').map(({ text: each }) => each ?? '');
  const others = rows.filter(({ author }) => author !== 'user').map(({ text: each }) => each ?? '');
  return {
    said: ids.map((id) => said.filter((each) => each.startsWith(`#id=${id} `)).length),
    answered: ids.map((id) => others.filter((each) => each === answerFor(id)).length),
  };
};

const load = new Load({
  urls: () => [watched.url, otherUrl],
  tally,
  countStored,
  payments: (id) => payments.get(id)?.size ?? 0,
  deliveries: (id) => deliveries.get(id)?.size ?? 0,
  webhook: `${worldUrl}/hook`,
});

const samples: Sample[] = [];
const startedAt = performance.now();
const minutesGone = () => (performance.now() - startedAt) / MINUTE;
async function takeSample(): Promise<void> {
  const seen = await look({ pid: watched.pid, url: watched.url, inspector }, sql);
  const repeated = [...tally.repeated.values()].reduce((sum, count) => sum + count, 0);
  const { requests, conversations, wrong } = tally;
  const sample = { minute: minutesGone(), ...seen, requests, conversations, repeated, wrong: wrong.length };
  samples.push(sample);
  await appendFile(new URL('soak.jsonl', RESULTS), `${JSON.stringify(sample)}\n`);
  console.log(toLine(sample));
}

const countRows = (tables: TableSize[], of: 'rows' | 'dead') => tables.reduce((all, table) => all + table[of], 0);
/** Of the queues that should be short; a task waits for as long as a person takes. */
const oldestOf = (queues: Sample['queues']) =>
  Math.max(0, ...queues.map(({ name, oldestSeconds }) => (name === 'tasks' ? 0 : (oldestSeconds ?? 0))));

/** What is printed of a sample, by the head of its column. */
const COLUMNS: Record<string, (sample: Sample) => string | number> = {
  minute: ({ minute }) => minute.toFixed(0),
  'heap MB': ({ heap }) => heap.toFixed(1),
  'external MB': ({ external }) => external.toFixed(1),
  'resident MB': ({ resident }) => resident.toFixed(0),
  descriptors: ({ descriptors }) => descriptors,
  connections: ({ connections }) => connections,
  backends: ({ backends }) => backends,
  'database MB': ({ database }) => database.toFixed(1),
  rows: ({ tables }) => countRows(tables, 'rows'),
  dead: ({ tables }) => countRows(tables, 'dead'),
  waiting: ({ queues }) => queues.reduce((all, { waiting }) => all + waiting, 0),
  'oldest s': ({ queues }) => oldestOf(queues).toFixed(1),
  requests: ({ requests }) => requests,
  conversations: ({ conversations }) => conversations,
  repeated: ({ repeated }) => repeated,
  wrong: ({ wrong }) => wrong,
};
const toLine = (sample: Sample) =>
  `| ${Object.entries(COLUMNS)
    .map(([head, of]) => String(of(sample)).padStart(head.length))
    .join(' | ')} |`;

/** A request of the soak itself. */
async function ask(
  kind: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<Record<string, unknown> | undefined> {
  const sent = { method, path, ...(body !== undefined && { body }) };
  const said = await load.send(kind, sent);
  return said ? (JSON.parse(said) as Record<string, unknown>) : undefined;
}

/** Does something again and again until the load is over. */
let isOver = false;
async function repeat(pauseMs: number, work: () => Promise<void>): Promise<void> {
  for (;;) {
    for (let left = pauseMs; left > 0 && !isOver; left -= 500) await sleep(500);
    if (isOver) return;
    await work();
  }
}

const ends: string[] = [];
/** Ends the other replica, by a kill and by a stop in turn, and starts it again. */
async function endOther(): Promise<void> {
  const signal = ends.length % 2 === 0 ? 'SIGKILL' : 'SIGTERM';
  ends.push(signal);
  await other?.stop(signal);
  await sleep(5_000 + Math.random() * 15_000);
  other = await start(otherPort);
}

const prompts = Array.from({ length: CRONJOBS }, (_, n) => promptFor({ id: `cron-${n}`, calls: n % 3, delayMs: 100 }));
const runs = new Map<string, Set<string>>();
/** Deletes the sessions of runs that have ended, and remembers these. */
async function clearRuns(): Promise<void> {
  const { rows } = await sql.query<{ job: string; due: string; session: string; status: string; said: number }>(
    `select cronjob_id as job, due_time::text as due, session_id as session, status,
       (select count(*)::int from events e where e.app_name = r.app_name and e.user_id = r.user_id
          and e.session_id = r.session_id and e.payload -> 'content' -> 'parts' -> 0 ->> 'text' like '#id=cron-%') as said
     from cronjob_runs r where user_id = 'cron' and session_id is not null and end_time < now() - interval '20 seconds'`,
  );
  for (const { job, due, session, status, said } of rows) {
    if (status !== 'success' || said !== 1)
      tally.wrong.push(`run ${job} of ${due}: ${status}, its prompt is stored ${said} times`);
    if (runs.get(job)?.has(due)) tally.wrong.push(`run ${job} of ${due} was there twice`);
    note(runs, job, due);
    await ask('delete', 'DELETE', `/apps/${APP}/users/cron/sessions/${session}`);
  }
}

/** Due times between the first and the last run of each cronjob that had none. */
function listMissed(): string[] {
  return [...runs].flatMap(([job, dues]) => {
    const times = [...dues].map((due) => Date.parse(due)).toSorted((a, b) => a - b);
    return times.slice(1).flatMap((time, place) => {
      const gap = time - (times[place] ?? 0);
      return gap === INTERVAL_SECONDS * 1_000 ? [] : [`cronjob ${job} had no run for ${gap / 1_000} s`];
    });
  });
}

async function evaluate(): Promise<void> {
  const metrics = [{ metricName: 'response_match_score', threshold: 0.5 }];
  const run = await ask('evaluate', 'POST', `/dev/apps/${APP}/eval-runs`, {
    evalSetId: 'soak',
    evalMetrics: metrics,
  });
  if (!run) return;
  const { runId } = run;
  const done = await load.send(
    'evaluation',
    { method: 'GET', path: `/dev/apps/${APP}/eval-runs/${String(runId)}` },
    '"status":"done"',
  );
  const { rows } = await sql.query<{ status: string; n: number }>(
    'select status, count(*)::int as n from eval_run_cases where run_id = $1 group by status',
    [runId],
  );
  if (done !== undefined && !(rows.length === 1 && rows[0]?.status === 'done' && rows[0].n === 3))
    tally.wrong.push(`evaluation ${String(runId)}: ${JSON.stringify(rows)}`);
}

async function prepare(): Promise<void> {
  for (let n = 0; n < 20; n++)
    await ask('webhook', 'POST', '/harness/webhooks', { appName: APP, ownerId: `u${n}`, url: `${worldUrl}/hook` });
  const schedule = { type: 'interval', intervalSeconds: INTERVAL_SECONDS };
  for (const [n, prompt] of prompts.entries())
    await ask('cronjob', 'POST', '/harness/cronjobs', {
      appName: APP,
      ownerId: 'cron',
      name: `job ${n}`,
      prompt,
      schedule,
    });
  const eval_cases = [0, 1, 2].map((n) => ({
    evalId: `case-${n}`,
    conversation: [
      {
        userContent: { role: 'user', parts: [{ text: promptFor({ id: `eval-${n}`, calls: n }) }] },
        finalResponse: { role: 'model', parts: [{ text: answerFor(`eval-${n}`) }] },
      },
    ],
  }));
  await ask('set', 'POST', `/dev/apps/${APP}/eval-sets`, { evalSet: { eval_set_id: 'soak', eval_cases } });
}

const snapshot = async (name: string) => {
  if (values.snapshots === undefined) return;
  await inspector.usedMemory();
  await inspector.saveSnapshot(`${values.snapshots}/${name}.heapsnapshot`);
};

await mkdir(RESULTS, { recursive: true });
const [cpu] = cpus();
console.log(
  `${MINUTES} minutes, ${cpus().length} × ${cpu?.model}, Node ${process.versions.node}, PostgreSQL ${postgres.version}`,
);
let isGood = false;
try {
  await prepare();
  await sleep(WARM_MS);
  console.log(`| ${Object.keys(COLUMNS).join(' | ')} |`);
  await takeSample();

  const talks = new Set<Promise<void>>();
  const background = [
    repeat(Number(values['kill-every']) * MINUTE, endOther),
    repeat(MINUTE / 2, clearRuns),
    repeat(3 * MINUTE, evaluate),
    repeat((1_000 * REQUESTS_A_CONVERSATION) / Number(values.rate), async () => {
      const talk = load.converse().finally(() => talks.delete(talk));
      talks.add(talk);
    }),
  ];
  for (let minute = 1; minute <= MINUTES; minute++) {
    await sleep(Math.max(0, startedAt + minute * MINUTE - performance.now()));
    await takeSample();
    if (minute === Math.round(MINUTES / 3)) await snapshot('third');
    if (minute === Math.round((2 * MINUTES) / 3)) await snapshot('two-thirds');
  }
  isOver = true;
  await Promise.all(background);
  await Promise.all(talks);
  await sql.query(`update cronjobs set enabled = false, next_run_time = null where user_id = 'cron'`);
  // Until the last runs have ended, and long enough for `clearRuns`.
  await sleep(QUIET_MS);
  await clearRuns();
  await load.close();
  await sleep(QUIET_MS);
  await takeSample();
  isGood = await judge();
} finally {
  inspector.close();
  await watched.stop();
  await other?.stop();
  await checks.end().catch(() => undefined);
  await sql.end().catch(() => undefined);
  world.closeAllConnections();
  world.close();
  await model.close();
  await postgres.stop();
}
process.exitCode = isGood ? 0 : 1;

/** Prints what was found. @returns true where nothing is wrong */
async function judge(): Promise<boolean> {
  const [first, last] = [samples[0] as Sample, samples.at(-1) as Sample];
  const half = samples.slice(Math.floor(samples.length / 2), -1);
  console.log(
    '\n| table | rows: half | end | dead | MB: half | end | indexes MB: half | end |\n|---|---|---|---|---|---|---|---|',
  );
  const before = new Map((half[0] ?? first).tables.map((table) => [table.name, table]));
  for (const { name, rows, dead, table, indexes } of last.tables.slice(0, 14)) {
    const was = before.get(name);
    const mb = (size = 0) => size.toFixed(2);
    console.log(
      `| ${name} | ${was?.rows} | ${rows} | ${dead} | ${mb(was?.table)} | ${mb(table)} | ${mb(was?.indexes)} | ${mb(indexes)} |`,
    );
  }
  console.log('\nRepeated:');
  for (const [kind, count] of [...tally.repeated].toSorted(([, a], [, b]) => b - a))
    console.log(`  ${count} × ${kind}`);
  const { rows: left } = await sql.query<{ n: number }>(
    `select count(*)::int as n from sessions where user_id like 'u%'`,
  );
  const heap = slopeOf(half.map(({ minute, heap: used }) => [minute / 60, used]));
  const resident = slopeOf(half.map(({ minute, resident: used }) => [minute / 60, used]));
  const most = (of: 'connections' | 'descriptors') => Math.max(...samples.map((sample) => sample[of]));
  const rises = MINUTES >= MIN_MINUTES && heap.slope - 2 * heap.error > MAX_SLOPE;
  const verdicts: [boolean, string][] = [
    [
      !rises,
      `heap after collection, last half: ${heap.slope.toFixed(1)} ± ${(2 * heap.error).toFixed(1)} MB an hour (at most ${MAX_SLOPE}); at rest ${first.heap.toFixed(1)} MB before, ${last.heap.toFixed(1)} MB after`,
    ],
    [true, `resident memory, last half: ${resident.slope.toFixed(0)} ± ${(2 * resident.error).toFixed(0)} MB an hour`],
    [
      most('connections') <= POOL_SIZE + OTHER_CONNECTIONS,
      `connections of the watched replica: at most ${most('connections')} (pool of ${POOL_SIZE} and ${OTHER_CONNECTIONS})`,
    ],
    [
      last.descriptors <= first.descriptors + OTHER_DESCRIPTORS,
      `descriptors: ${first.descriptors} at rest before, at most ${most('descriptors')}, ${last.descriptors} after`,
    ],
    [left[0]?.n === 0, `sessions of conversations that are left: ${left[0]?.n}`],
    [model.badHistories.length === 0, `histories that no provider would take: ${model.badHistories.length}`],
    [listMissed().length === 0, `due times of cronjobs without a run: ${listMissed().join('; ') || 'none'}`],
    [tally.wrong.length === 0, `lost, doubled or wrong: ${tally.wrong.length}`],
  ];
  console.log(
    `\n${tally.requests} requests, ${tally.conversations} conversations, ${[...runs.values()].reduce((sum, dues) => sum + dues.size, 0)} runs of cronjobs, ${ends.filter((end) => end === 'SIGKILL').length} kills, ${ends.filter((end) => end === 'SIGTERM').length} stops`,
  );
  for (const [isRight, sentence] of verdicts) console.log(`${isRight ? ' ' : '!'} ${sentence}`);
  for (const sentence of tally.wrong.slice(0, 50)) console.log(`    ${sentence}`);
  return verdicts.every(([isRight]) => isRight);
}
