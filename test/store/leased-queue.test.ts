import { randomUUID } from 'node:crypto';
import { Writable } from 'node:stream';
import { sql } from 'drizzle-orm';
import pino from 'pino';
import { afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { AgentError, LeaseLostError } from '../../src/core/errors.ts';
import { type LeasedQueue, pauseUntil, runLeasedQueue } from '../../src/platform/work/leased-queue.ts';
import { testPool } from '../support/store.ts';
import { SECOND } from '../support/patience.ts';

const store = testPool();
const HOUR_MS = 3_600_000;

/** A queue in its smallest form: a row waits (no token), is held (token and time), or has ended. */
interface Job extends Record<string, unknown> {
  id: string;
  token: string;
}

const query = async <Row extends Record<string, unknown>>(text: ReturnType<typeof sql>) =>
  (await store.pool.db.execute<Row>(text)).rows;

beforeAll(async () => {
  await query(sql`create table sample_jobs (id text primary key, token uuid, lease_end timestamptz, ended_by text,
    due timestamptz not null default clock_timestamp(), attempts int not null default 0, is_cancelled boolean)`);
});

const claimJobs = (slots: number) =>
  query<Job>(sql`
    update sample_jobs set token = gen_random_uuid(), lease_end = clock_timestamp() + interval '1 hour',
                    attempts = attempts + 1
    from (select id from sample_jobs where ended_by is null and due <= clock_timestamp()
            and (token is null or lease_end < clock_timestamp())
          order by id limit ${slots} for update skip locked) chosen
    where sample_jobs.id = chosen.id returning sample_jobs.id, token`);

const renewJobs = (tokens: string[]) =>
  query<{ token: string; is_cancelled: boolean | null }>(sql`
    update sample_jobs set lease_end = clock_timestamp() + interval '2 hours'
    where token = any(${sql.param(tokens)}::uuid[]) and ended_by is null returning token, is_cancelled`);

async function finishJob({ id, token }: Job, worker: string): Promise<void> {
  const ended = await query(sql`
    update sample_jobs set ended_by = ${worker}, token = null where id = ${id} and token = ${token} returning id`);
  if (ended.length === 0) throw new LeaseLostError(`${worker} lost ${id}.`);
}

const postponeJob = ({ id, token }: Job) =>
  query(sql`update sample_jobs set token = null, due = clock_timestamp() + interval '1 hour'
            where id = ${id} and token = ${token}`);

const insertJobs = async (...ids: string[]) => {
  for (const id of ids) await query(sql`insert into sample_jobs (id) values (${id})`);
};
const findJob = async (id: string) =>
  (
    await query(sql`select token is not null as held, ended_by, attempts, due > clock_timestamp() as later,
                   lease_end > clock_timestamp() + interval '90 minutes' as renewed from sample_jobs where id = ${id}`)
  )[0];

/** Topics within this process: what is published is there at once. */
const listeners = new Map<string, Set<() => void>>();
const notifications = {
  subscribe(topic: string, listener: () => void) {
    const all = listeners.get(topic) ?? new Set();
    listeners.set(topic, all.add(listener));
    return () => void all.delete(listener);
  },
};
const publish = (topic: string) => {
  for (const listener of listeners.get(topic) ?? []) listener();
};

const logged: unknown[] = [];
const lines = new Writable({
  write(chunk: Buffer, _encoding, done) {
    logged.push((JSON.parse(chunk.toString()) as { msg: string }).msg);
    done();
  },
});

interface Worker {
  /** Jobs under way: the test says how each goes on. */
  running: Map<string, { signal: AbortSignal; end: () => void; fail: (error: Error) => void }>;
  drain: () => void;
  stopped: Promise<void>;
}
const workers: Worker[] = [];

function startWorker(name: string, maxJobs: number, more: Partial<LeasedQueue<Job>> = {}): Worker {
  const draining = new AbortController();
  const running: Worker['running'] = new Map();
  const stopped = runLeasedQueue<Job>(
    { notifications, log: pino({ base: null }, lines), draining: draining.signal },
    {
      name: 'jobs',
      topic: 'jobs',
      maxJobs,
      claim: async ({ slots }) => {
        const jobs = await claimJobs(slots);
        return { jobs, pauseMs: jobs.length > 0 ? 0 : HOUR_MS, mayMore: jobs.length === slots };
      },
      lease: {
        renewalMs: HOUR_MS,
        cancelTopic: 'jobs:cancel',
        renew: async (jobs, stop) => {
          const held = new Map((await renewJobs(jobs.map(({ token }) => token))).map((row) => [row.token, row]));
          for (const job of jobs) {
            const row = held.get(job.token);
            if (!row) stop(job, new LeaseLostError('Another process holds it.'));
            else if (row.is_cancelled) stop(job, new AgentError('cancelled', 'It was cancelled.'));
          }
          return jobs.filter(({ token }) => !held.has(token));
        },
      },
      run: async (job, signal) => {
        const gate = Promise.withResolvers<void>();
        running.set(job.id, { signal, end: gate.resolve, fail: gate.reject });
        await gate.promise.finally(() => running.delete(job.id));
        await finishJob(job, name);
        return 'over';
      },
      toLogFields: ({ id }) => ({ id }),
      ...more,
    },
  );
  const worker = { running, stopped, drain: () => draining.abort() };
  workers.push(worker);
  return worker;
}

beforeEach(() => query(sql`truncate sample_jobs`));
afterEach(async () => {
  for (const { drain, running } of workers) {
    drain();
    for (const { end } of running.values()) end();
  }
  await Promise.all(workers.splice(0).map(({ stopped }) => stopped));
  logged.splice(0);
});

test('two workers share the jobs: each runs once, and no worker has more than its places', async () => {
  const ids = Array.from({ length: 10 }, (_, n) => `job-${n}`);
  await insertJobs(...ids);
  const two = [startWorker('one', 2), startWorker('two', 3)];
  const ended: string[] = [];
  while (ended.length < ids.length) {
    await expect.poll(() => two.some(({ running }) => running.size > 0)).toBe(true);
    expect(two.map(({ running }, n) => running.size <= n + 2)).toEqual([true, true]);
    for (const { running } of two) {
      for (const [id, { end }] of running) {
        ended.push(id);
        end();
      }
    }
  }
  expect(ended.toSorted()).toEqual(ids);
  await expect.poll(() => query(sql`select id from sample_jobs where ended_by is null or attempts <> 1`)).toEqual([]);
});

test('a job that comes later is claimed when its topic is published', async () => {
  const worker = startWorker('one', 1);
  await insertJobs('late');
  publish('jobs');
  await expect.poll(() => [...worker.running.keys()]).toEqual(['late']);
});

test('leases are renewed together', async () => {
  await insertJobs('a', 'b');
  const worker = startWorker('one', 2);
  await expect.poll(() => worker.running.size).toBe(2);
  publish('jobs:cancel');
  for (const id of ['a', 'b']) await expect.poll(() => findJob(id)).toMatchObject({ held: true, renewed: true });
  expect([...worker.running.values()].map(({ signal }) => signal.aborted)).toEqual([false, false]);
});

test('a cancelled job is told why, and ends as its owner says', async () => {
  await insertJobs('a', 'b');
  const worker = startWorker('one', 2);
  await expect.poll(() => worker.running.size).toBe(2);
  await query(sql`update sample_jobs set is_cancelled = true where id = 'a'`);
  publish('jobs:cancel');
  await expect.poll(() => worker.running.get('a')?.signal.reason).toMatchObject({ code: 'cancelled' });
  expect(worker.running.get('b')?.signal.aborted).toBe(false);
  worker.running.get('a')?.end();
  await expect.poll(() => findJob('a')).toMatchObject({ ended_by: 'one' });
});

test('a job whose lease was over goes to another worker; the first writes nothing', async () => {
  await insertJobs('a');
  const first = startWorker('first', 1);
  await expect.poll(() => first.running.size).toBe(1);
  await query(sql`update sample_jobs set lease_end = clock_timestamp() - interval '1 second'`);
  const second = startWorker('second', 1);
  await expect.poll(() => second.running.size).toBe(1);
  publish('jobs:cancel');
  await expect.poll(() => first.running.get('a')?.signal.reason).toBeInstanceOf(LeaseLostError);
  expect(second.running.get('a')?.signal.aborted).toBe(false);
  first.running.get('a')?.end();
  await expect.poll(() => first.running.size).toBe(0);
  expect(await findJob('a')).toMatchObject({ held: true, ended_by: null });
  second.running.get('a')?.end();
  await expect.poll(() => findJob('a')).toMatchObject({ ended_by: 'second', attempts: 2 });
  expect(logged).toEqual([]);
});

test('a worker that lives takes its loss back, once; a job with two losses is given up', async () => {
  await insertJobs('a', 'b');
  const ended: string[] = [];
  const losses: NonNullable<LeasedQueue<Job>['losses']> = {
    count: ({ id }) => (id === 'b' ? 2 : 0),
    giveUp: async ({ id }) => {
      ended.push(`gave ${id} up`);
      return 'over';
    },
    takeBack: async ({ id }) => ended.push(`took ${id} back`),
  };
  const first = startWorker('first', 2, { losses });
  await expect.poll(() => [first.running.size, ended]).toEqual([1, ['gave b up']]);
  await query(sql`update sample_jobs set lease_end = clock_timestamp() - interval '1 second' where id = 'a'`);
  const second = startWorker('second', 1, { losses });
  await expect.poll(() => second.running.size).toBe(1);
  publish('jobs:cancel');
  await expect.poll(() => ended).toEqual(['gave b up', 'took a back']);
  first.running.get('a')?.fail(new LeaseLostError('Another process holds it.'));
  await expect.poll(() => first.running.size).toBe(0);
  second.running.get('a')?.end();
  await expect.poll(() => findJob('a')).toMatchObject({ ended_by: 'second' });
  expect(ended).toEqual(['gave b up', 'took a back']);
});

test('a drained worker claims nothing more and stops when its last job has ended', async () => {
  await insertJobs('a', 'b');
  const worker = startWorker('one', 1);
  await expect.poll(() => worker.running.size).toBe(1);
  let isStopped = false;
  const stopped = worker.stopped.then(() => (isStopped = true));
  worker.drain();
  publish('jobs');
  // Leases are kept as long as jobs run.
  publish('jobs:cancel');
  await expect.poll(() => findJob('a')).toMatchObject({ renewed: true });
  expect(isStopped).toBe(false);
  worker.running.get('a')?.end();
  await stopped;
  expect(await findJob('a')).toMatchObject({ ended_by: 'one' });
  expect(await findJob('b')).toMatchObject({ held: false, ended_by: null, attempts: 0 });
  expect([...listeners.values()].flatMap((each) => [...each])).toEqual([]);
});

test('a job that is put back waits for its pause', async () => {
  await insertJobs('a');
  const worker = startWorker('one', 1, { run: (job) => postponeJob(job).then(() => 'waits' as const) });
  await expect.poll(() => findJob('a')).toMatchObject({ held: false, later: true, attempts: 1 });
  publish('jobs');
  await insertJobs('b');
  publish('jobs');
  await expect.poll(() => findJob('b')).toMatchObject({ attempts: 1 });
  expect(await findJob('a')).toMatchObject({ attempts: 1 });
  expect(worker.running.size).toBe(0);
});

test('a job that fails without a reason is logged, keeps its lease, and makes room for others', async () => {
  await insertJobs('a', 'b');
  const worker = startWorker('one', 1);
  await expect.poll(() => worker.running.has('a')).toBe(true);
  worker.running.get('a')?.fail(new Error(randomUUID()));
  await expect.poll(() => logged).toEqual(['one of the jobs failed']);
  publish('jobs');
  await expect.poll(() => worker.running.has('b')).toBe(true);
  expect(await findJob('a')).toMatchObject({ held: true, ended_by: null, attempts: 1 });
});

test('a failed poll is logged and the next one comes', async () => {
  await insertJobs('a');
  let polls = 0;
  const claim: LeasedQueue<Job>['claim'] = async ({ slots }) => {
    if (++polls === 1) throw new Error('broken');
    return { jobs: await claimJobs(slots), pauseMs: HOUR_MS, mayMore: false };
  };
  const worker = startWorker('one', 1, { claim });
  publish('jobs');
  await expect.poll(() => worker.running.size).toBe(1);
  expect(logged).toEqual(['the queue of jobs could not be polled']);
});

test('the end of a job makes a claim only where others may wait', async () => {
  await insertJobs('a');
  let claims = 0;
  const claim: LeasedQueue<Job>['claim'] = async ({ slots }) => {
    claims += 1;
    const jobs = await claimJobs(slots);
    return { jobs, pauseMs: HOUR_MS, mayMore: jobs.length === slots };
  };
  const worker = startWorker('one', 2, { claim });
  await expect.poll(() => worker.running.size).toBe(1);
  worker.running.get('a')?.end();
  await expect.poll(() => findJob('a')).toMatchObject({ ended_by: 'one' });
  await insertJobs('b', 'c', 'd');
  publish('jobs');
  await expect.poll(() => [...worker.running.keys()]).toEqual(['b', 'c']);
  expect(claims).toBe(2);
  worker.running.get('b')?.end();
  await expect.poll(() => [...worker.running.keys()]).toEqual(['c', 'd']);
  expect(claims).toBe(3);
});

test('claims that find nothing although a job is due, as one of an open transaction, back off', async () => {
  const times: number[] = [];
  const claim = async () => {
    times.push(performance.now());
    return { jobs: [], pauseMs: 10, mayMore: false, isVain: true };
  };
  startWorker('one', 1, { claim });
  await expect.poll(() => times.length).toBeGreaterThanOrEqual(8);
  // 10, 20, 40, 80, 160, 320 and 640 ms, which timers may shorten by a part of a millisecond each.
  expect((times[7] ?? 0) - (times[0] ?? 0)).toBeGreaterThan(1_200);
});

test('claims that get nothing because no job is due do not back off', async () => {
  const times: number[] = [];
  const claim = async () => {
    times.push(performance.now());
    return { jobs: [], pauseMs: times.length > 20 ? HOUR_MS : 1, mayMore: false };
  };
  startWorker('one', 1, { claim });
  // With the back-off the 20th claim would come after 13 seconds.
  await expect.poll(() => times.length, { timeout: 10 * SECOND }).toBe(21);
});

test('a pause lasts until the first time, a second where a job is due and blocked, and at most its limit', () => {
  expect(pauseUntil(30_000)).toBe(30_000);
  expect(pauseUntil(30_000, undefined, 200, 5_000)).toBe(200);
  expect(pauseUntil(30_000, -5, undefined)).toBe(1_000);
  expect(pauseUntil(30_000, -5, 200)).toBe(200);
  expect(pauseUntil(30_000, 90_000)).toBe(30_000);
});
