import { type ClientRequest, get } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { LoadClient } from './load.ts';
import { freePort, startPostgres } from './postgres.ts';
import { cpuOf, startServer } from './processes.ts';
import { sessionsPath } from './seed.ts';

/**
 * Streams of events: what idle ones cost, and how long an append on one replica takes to reach those that are open on
 * another, from the moment that its request is sent. `npm run bench -- streams`; the clients share the machine.
 */

const IDLE_MS = 10_000;
const AT_ONCE = 50;
/** Appends that are not counted: code that runs for the first time is slow. */
const WARM_UP = 10;
const SHAPES = [
  { streams: 1_000, sessions: 1_000, appends: 400, perSecond: 50, goal: '' },
  { streams: 3_000, sessions: 3_000, appends: 400, perSecond: 50, goal: 'p99 < 250 ms' },
  { streams: 1_000, sessions: 1, appends: 50, perSecond: 2, goal: 'p50 < 10 ms, p99 < 50 ms, 1 read an append' },
];

const postgres = await startPostgres();
const main = new URL('../src/main.ts', import.meta.url).pathname;

async function startReplica(databaseUrl: string) {
  const port = await freePort();
  const environment = { DATABASE_URL: databaseUrl, PORT: String(port), LOG_LEVEL: 'error' };
  return startServer([main], port, '/ready', environment);
}

/** Statements of both replicas since the last reset, by what they are about. */
async function statements(client: Client): Promise<{ all: number; reads: number }> {
  const { rows } = await client.query<{ all: number; reads: number }>(
    `select coalesce(sum(calls), 0)::int as all,
            coalesce(sum(calls) filter (where query ~ 'placeId'), 0)::int as reads
     from pg_stat_statements
     where dbid = (select oid from pg_database where datname = current_database())
       and query !~ 'pg_stat_statements'`,
  );
  return rows[0] ?? { all: 0, reads: 0 };
}

/** Opens a stream; `take` gets the number of each append that it brings, and when. */
function open(url: string, take: (append: number, at: number) => void): Promise<ClientRequest> {
  return new Promise((resolve, reject) => {
    const request = get(url, { agent: false }, (response) => {
      response.on('data', (chunk: Buffer) => {
        const at = performance.now();
        for (const [, append] of chunk.toString('latin1').matchAll(/"append (\d+)"/g)) take(Number(append), at);
      });
      response.on('error', () => undefined);
      if (response.statusCode === 200) resolve(request);
      else reject(new Error(`${url}: status ${response.statusCode}`));
    });
    request.on('error', reject);
  });
}

async function inGroups<T>(count: number, work: (n: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let from = 0; from < count; from += AT_ONCE) {
    const group = Array.from({ length: Math.min(AT_ONCE, count - from) }, (_, n) => work(from + n));
    results.push(...(await Promise.all(group)));
  }
  return results;
}

async function measure({ streams, sessions, appends, perSecond, goal }: (typeof SHAPES)[number]) {
  const databaseUrl = await postgres.createDatabase(`streams_${streams}_${sessions}`);
  const [writer, reader] = [await startReplica(databaseUrl), await startReplica(databaseUrl)];
  const client = new LoadClient(writer.url, AT_ONCE);
  const sql = new Client({ connectionString: databaseUrl });
  await sql.connect();
  const path = (n: number) => `${sessionsPath('u')}/s-${n}`;
  await inGroups(sessions, (n) =>
    client.send({ method: 'POST', path: sessionsPath('u'), body: { sessionId: `s-${n}` } }),
  );
  const sentAt: number[] = [];
  const latencies: number[] = [];
  const take = (append: number, at: number) => void latencies.push(at - (sentAt[append] ?? Number.NaN));
  const opened = await inGroups(streams, (n) => open(`${reader.url}${path(n % sessions)}/events/stream`, take));
  await sleep(2_000);

  await sql.query('select pg_stat_statements_reset()');
  const cpu = cpuOf(reader.pid);
  await sleep(IDLE_MS);
  const idle = await statements(sql);
  const idleCpu = (cpuOf(reader.pid) - cpu) / IDLE_MS;

  const expected = (streams / sessions) * appends;
  for (let append = -WARM_UP; append < appends; append++) {
    if (append === 0) await sql.query('select pg_stat_statements_reset()');
    sentAt[append] = performance.now();
    const body = { author: 'user', content: { parts: [{ text: `append ${append}` }] } };
    const sent = client.send({ method: 'POST', path: `${path(((append + WARM_UP) * 7) % sessions)}/events`, body });
    await sleep(1_000 / perSecond);
    await sent;
  }
  for (let waited = 0; latencies.length < expected && waited < 30_000; waited += 50) await sleep(50);
  const busy = await statements(sql);
  const sorted = latencies.toSorted((a, b) => a - b);
  const at = (share: number) => `${(sorted[Math.ceil(sorted.length * share) - 1] ?? Number.NaN).toFixed(1)} ms`;
  for (const request of opened) request.destroy();
  await client.close();
  await sql.end();
  await Promise.all([writer.stop(), reader.stop()]);
  return {
    streams,
    sessions,
    'idle statements/s, both replicas': (idle.all / (IDLE_MS / 1_000)).toFixed(1),
    'idle CPU of the replica': `${(idleCpu * 100).toFixed(0)} %`,
    delivered: `${latencies.length} of ${expected}`,
    p50: at(0.5),
    p99: at(0.99),
    'reads/append': (busy.reads / appends).toFixed(2),
    goal: `idle <= 5 statements/s${goal ? `; ${goal}` : ''}`,
  };
}

console.log(`PostgreSQL ${postgres.version}`);
for (const shape of SHAPES) console.table([await measure(shape)]);
await postgres.stop();
