import { randomUUID } from 'node:crypto';
import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { sql } from 'drizzle-orm';
import pino from 'pino';
import { Client } from 'pg';
import { beforeEach, expect, test } from 'vitest';
import { LeaseLostError } from '../../src/core/errors.ts';
import {
  claimJobs,
  deleteLanes,
  endsJob,
  type Job,
  type JobLimits,
  putsBackJob,
  renewJobs,
  setHalfOpen,
  takeBackLoss,
} from '../../src/platform/jobs/job-store.ts';
import { type JobKind, runJobs } from '../../src/platform/jobs/run-jobs.ts';
import { makesDue } from '../support/jobs.ts';
import { testPool } from '../support/store.ts';

/** The table `jobs`: claims of several processes, each with a kind of its own. */

const store = testPool(20);
const HOUR_MS = 3_600_000;
let kind = '';
beforeEach(() => {
  kind = randomUUID();
});

const add = (user: string, lane: string, count = 1, isHalfOpen = false) =>
  store.pool.db.execute(sql`
    select add_job(${kind}, 'a', ${user}, ${randomUUID()} || n, ${lane}, ${isHalfOpen})
    from generate_series(1, ${count}::int) n`);
const claim = async (slots: number, limits: JobLimits = {}, leaseMs = HOUR_MS) =>
  (await claimJobs(store.pool.db, { kind, slots, leaseMs, limits })).claimed;
const pause = async () => (await claimJobs(store.pool.db, { kind, slots: 1, leaseMs: 1, limits: {} })).pause_ms;
const end = async (job: Job) =>
  (await store.pool.db.execute<{ held: boolean }>(sql`select ${endsJob(kind, job)} as held`)).rows[0]?.held;
const putBack = async (job: Job, pauseMs: number) =>
  (await store.pool.db.execute<{ held: boolean }>(sql`select ${putsBackJob(kind, job, pauseMs)} as held`)).rows[0]
    ?.held;
const countBy = (jobs: Job[], of: (job: Job) => string) =>
  Object.fromEntries([...Map.groupBy(jobs, of)].map(([name, list]) => [name, list.length]));
const userOf = ({ userId }: Job) => userId;
const rowsOf = async () =>
  (
    await store.pool.db.execute<{ user_id: string; lane: string; losses: number; running: boolean }>(
      sql`select user_id, lane, losses, lease_token is not null as running from jobs where kind = ${kind}`,
    )
  ).rows;
const jobLanesOf = async () =>
  (await store.pool.db.execute<{ id: string; lane: string }>(sql`select id, lane from jobs where kind = ${kind}`)).rows;
const lanesOf = async () =>
  (await store.pool.db.execute<{ lane: string }>(sql`select lane from job_lanes where kind = ${kind}`)).rows;
/** A connection of its own, which adds a job in a transaction that is left open. */
async function addInTransaction(user: string, lane: string) {
  const client = new Client({ connectionString: store.url });
  await client.connect();
  await client.query('begin');
  await client.query('select add_job($1, $2, $3, $4, $5, false)', [kind, 'a', user, randomUUID(), lane]);
  return async () => {
    await client.query('commit');
    await client.end();
  };
}

test('lanes take turns: a flood in one delays no other', async () => {
  await add('flood', 'l', 500);
  await add('one', 'l');
  await add('two', 'l', 2);
  expect(countBy(await claim(4), userOf)).toEqual({ flood: 2, one: 1, two: 1 });
  expect(countBy(await claim(4), userOf)).toEqual({ flood: 3, two: 1 });
});

test('limits hold over all processes, and every place that is free again goes to a lane that waits for it', async () => {
  const limits = { user: 3, lane: 4, pair: 2 };
  const users = ['u1', 'u2', 'u3', 'u4'];
  for (const user of users) for (const lane of ['x', 'y', 'z']) await add(user, lane, 3);
  const seen = new Set<string>();
  for (let left = 36; left > 0; ) {
    const claimed = (await Promise.all([8, 1, 8, 3, 8].map((slots) => claim(slots, limits)))).flat();
    const running = (await rowsOf()).filter((row) => row.running);
    const most = (of: (row: (typeof running)[number]) => string) =>
      Math.max(...[...Map.groupBy(running, of).values()].map((list) => list.length));
    expect(most(({ user_id }) => user_id)).toBeLessThanOrEqual(3);
    expect(most(({ lane }) => lane)).toBeLessThanOrEqual(4);
    expect(most(({ user_id, lane }) => `${user_id} ${lane}`)).toBeLessThanOrEqual(2);
    expect(claimed.length).toBeGreaterThan(0);
    for (const job of claimed) {
      expect(seen.has(job.id)).toBe(false);
      seen.add(job.id);
      expect(await end(job)).toBe(true);
    }
    left -= claimed.length;
  }
  expect([await rowsOf(), await pause()]).toEqual([[], null]);
  expect(await lanesOf()).toEqual([]);
});

test('a claim waits for one that is not committed, because it cannot count its jobs', async () => {
  await add('u', 'x');
  await add('u', 'y');
  const [claimed, commit] = [Promise.withResolvers<Job[]>(), Promise.withResolvers<void>()];
  const first = store.pool.transaction(async (tx) => {
    claimed.resolve((await claimJobs(tx, { kind, slots: 1, leaseMs: HOUR_MS, limits: { user: 1 } })).claimed);
    await commit.promise;
  });
  expect(await claimed.promise).toHaveLength(1);
  const second = claim(4, { user: 1 });
  const waiting = sql`select pid from pg_locks where locktype = 'advisory' and not granted and database = (
                        select oid from pg_database where datname = current_database())`;
  const isWaiting = async () => (await store.pool.db.execute(waiting)).rows.length;
  await expect.poll(isWaiting).toBe(1).finally(commit.resolve);
  await first;
  expect(await second).toEqual([]);
});

test('a claim fills what the limits allow, whatever lanes are behind full ones', async () => {
  for (let n = 0; n < 30; n++) await add('many', `lane-${n}`);
  await add('other', 'l');
  expect(countBy(await claim(10, { user: 4 }), userOf)).toEqual({ many: 4, other: 1 });
  await add('third', 'l');
  expect(countBy(await claim(10, { user: 4 }), userOf)).toEqual({ third: 1 });
});

test('the last slots of a process are left to other users', async () => {
  await add('u', 'l', 9);
  expect(await claim(3, { user: 4 })).toHaveLength(2);
  expect(await claim(1, { user: 4 })).toEqual([]);
  await add('v', 'l');
  expect(countBy(await claim(1, { user: 4 }), userOf)).toEqual({ v: 1 });
  expect(countBy(await claim(9, { user: 4 }), userOf)).toEqual({ u: 2 });
});

test('a half-open lane runs one job at a time until it is opened', async () => {
  await add('u', 'l', 5, true);
  const [first, ...more] = await claim(9, { pair: 3 });
  expect([more, await claim(9, { pair: 3 })]).toEqual([[], []]);
  await setHalfOpen(store.pool.db, kind, { userId: 'u', lane: 'l', isHalfOpen: false });
  expect(await claim(9, { pair: 3 })).toHaveLength(2);
  expect(first && (await end(first))).toBe(true);
  await setHalfOpen(store.pool.db, kind, { userId: 'u', lane: 'l', isHalfOpen: true });
  expect(await claim(9, { pair: 3 })).toEqual([]);
});

test('a job whose lease has expired goes to another process, and the first one changes nothing', async () => {
  await add('u', 'l', 5);
  const lost = await claim(5, {}, 0);
  await sleep(2);
  const taken = [...(await claim(2)), ...(await claim(9))];
  expect(taken.map(({ attempt, losses }) => [attempt, losses])).toEqual(taken.map(() => [2, 1]));
  expect(taken.map(({ id }) => id).toSorted()).toEqual(lost.map(({ id }) => id).toSorted());
  const [first] = lost;
  if (!first) throw new Error('nothing was claimed');
  expect([await end(first), await putBack(first, 0)]).toEqual([null, false]);
  for (const job of lost) await takeBackLoss(store.pool.db, kind, job);
  expect((await rowsOf()).map(({ losses, running }) => [losses, running])).toEqual(lost.map(() => [0, true]));
});

test('expired leases are claimed up to the slots, no more', async () => {
  await add('u', 'l', 30);
  expect(await claim(30, {}, 0)).toHaveLength(30);
  await sleep(2);
  for (let round = 0; round < 6; round++) expect(await claim(5)).toHaveLength(5);
  expect(await claim(5)).toEqual([]);
});

test('a job that is put back waits for its pause, and delays no other of its lane', async () => {
  await add('u', 'l', 2);
  const [first] = await claim(1);
  if (!first) throw new Error('nothing was claimed');
  expect(await putBack(first, HOUR_MS)).toBe(true);
  const [second, ...none] = await claim(5);
  expect([second?.attempt, none]).toEqual([1, []]);
  const later = await pause();
  expect(later).toBeGreaterThan(HOUR_MS - 600_000);
  await add('u', 'l');
  const [third, ...others] = await claim(5);
  expect([third?.attempt, others]).toEqual([1, []]);
  expect(third && (await putBack(third, 0))).toBe(true);
  expect(await claim(5)).toMatchObject([{ id: third?.id, attempt: 2 }]);
});

test('a transaction that is left open delays no claim, and its job is not forgotten', async () => {
  await add('u', 'known');
  const commits = [await addInTransaction('u', 'known'), await addInTransaction('u', 'new')];
  expect(await claim(5)).toHaveLength(1);
  expect(await claim(5)).toEqual([]);
  for (const commit of commits) await commit();
  await expect.poll(async () => (await claim(5)).length).toBeGreaterThan(0);
  await expect.poll(async () => [...(await claim(5)), ...(await rowsOf()).filter((row) => !row.running)]).toEqual([]);
  expect(await rowsOf()).toHaveLength(3);
});

test('lanes that are emptied while jobs are added: each job ends once, and none is stranded', async () => {
  const WRITERS = 5;
  const EACH = 40;
  let isWritten = false;
  const write = async (writer: number) => {
    for (let n = 0; n < EACH; n++) {
      await store.pool.transaction(async (tx) => {
        await tx.execute(
          sql`select add_job(${kind}, 'a', 'u' || ${n % 3}, ${`${writer}-${n}`}, 'l' || ${n % 2}, false)`,
        );
        if (n % 5 === 0) await sleep(3);
      });
    }
  };
  const ended: string[] = [];
  const back = new Set<string>();
  const work = async () => {
    // A job that is stranded is never claimed.
    for (let looks = 0; looks < 500; looks += 1) {
      const isLast = isWritten;
      const jobs = await claim(4, { user: 4, lane: 6, pair: 3 });
      for (const job of jobs) {
        const isBack = ended.length % 10 === 3 && !back.has(job.id);
        if (isBack) back.add(job.id);
        expect(await (isBack ? putBack(job, 5) : end(job))).toBe(true);
        if (!isBack) ended.push(job.id);
      }
      if (jobs.length > 0) looks = 0;
      else if (isLast && (await rowsOf()).length === 0) return;
      else await sleep(5);
    }
  };
  const workers = [work(), work(), work()];
  await Promise.all(Array.from({ length: WRITERS }, (_, n) => write(n)));
  isWritten = true;
  await Promise.all(workers);
  expect([ended.length, new Set(ended).size]).toEqual([WRITERS * EACH, WRITERS * EACH]);
  await claim(1);
  expect(await lanesOf()).toEqual([]);
});

test('a job that is added while it runs comes once more, with its attempts anew; one that waits is not hastened', async () => {
  const addOne = () => store.pool.db.execute(sql`select add_job(${kind}, 'a', 'u', 'one', 'l')`);
  await addOne();
  const [first] = await claim(1);
  await addOne();
  await addOne();
  expect(await claim(1)).toEqual([]);
  expect(first && (await end(first))).toBe(false);
  const [second] = await claim(1);
  expect(second).toMatchObject({ id: 'one', attempt: 1 });
  expect(second && (await putBack(second, HOUR_MS))).toBe(true);
  await addOne();
  expect(await claim(1)).toEqual([]);
  await store.pool.db.execute(sql.raw(makesDue(kind)));
  const [third] = await claim(1);
  expect(third?.attempt).toBe(1);
  expect(third && (await end(third))).toBe(true);
  expect(await rowsOf()).toEqual([]);
});

test('a job that is moved is due later, and the process that runs it loses it', async () => {
  const move = (seconds: number) =>
    store.pool.db.execute(
      sql`select move_job(${kind}, 'a', 'u', 'one', 'l', clock_timestamp() + ${seconds} * interval '1 second')`,
    );
  await move(0);
  await add('u', 'l');
  const held = await claim(2);
  expect(await renewJobs(store.pool.db, kind, held, HOUR_MS)).toEqual([]);
  await move(3_600);
  const moved = held.find(({ id }) => id === 'one');
  expect(await renewJobs(store.pool.db, kind, held, HOUR_MS)).toEqual([moved]);
  expect(moved && (await end(moved))).toBe(null);
  expect(await claim(2)).toEqual([]);
  await move(0);
  expect(await claim(2)).toMatchObject([{ id: 'one', attempt: 1 }]);
});

test('lanes of one name are deleted with what waits and runs in them, and with what is being added', async () => {
  await add('u', 'l', 2);
  await add('v', 'l');
  await add('v', 'other');
  const commit = await addInTransaction('u', 'l');
  const deleting = store.pool.transaction((tx) => deleteLanes(tx, { kind, appName: 'a', lane: 'l' }));
  const waiting = sql`select from pg_locks where not granted and pid in (
                        select pid from pg_stat_activity where datname = current_database())`;
  await expect.poll(async () => (await store.pool.db.execute(waiting)).rows.length).toBe(1);
  await commit();
  await deleting;
  expect((await rowsOf()).map(({ lane }) => lane)).toEqual(['other']);
  expect(await lanesOf()).toEqual([{ lane: 'other' }]);
});

/** Runs the loop until `stop` is called; `notify` says what a notification of the topic says. */
function runLoop(more: Pick<JobKind<{ job: Job }>, 'run'> & Partial<JobKind<{ job: Job }>>) {
  const draining = new AbortController();
  const listeners = new Set<() => void>();
  const published: string[] = [];
  const logged: { jobId?: string }[] = [];
  const lines = new Writable({
    write(chunk: Buffer, _encoding, done) {
      logged.push(JSON.parse(chunk.toString()) as { jobId?: string });
      done();
    },
  });
  const stopped = runJobs<{ job: Job }>(
    {
      database: store.pool,
      notifications: {
        subscribe: (_, listener) => {
          listeners.add(listener);
          return () => listeners.delete(listener);
        },
        publish: (topic) => {
          published.push(topic);
          for (const wake of listeners) wake();
        },
      },
      log: pino({ base: null }, lines),
      leaseTimes: { durationMs: HOUR_MS, renewalMs: HOUR_MS },
      draining: draining.signal,
    },
    {
      kind,
      name: 'jobs',
      topic: 'jobs',
      maxJobs: 2,
      maxPauseMs: HOUR_MS,
      ...more,
    },
  );
  const notify = () => {
    for (const listener of listeners) listener();
  };
  return { draining, notify, stop: () => (draining.abort(), stopped), stopped, published, logged };
}

test('the loop retries a job that fails and gives it up after its attempts; one that takes another turn begins anew', async () => {
  await add('fails', 'l');
  await add('more', 'l');
  const ran: [user: string, attempt: number][] = [];
  const loop = runLoop({
    leaseMs: HOUR_MS,
    retry: { attempts: 3, firstMs: 1, maxMs: 1 },
    run: async ({ job: { userId, attempt } }) => {
      ran.push([userId, attempt]);
      if (userId === 'fails') throw new Error('in vain');
      return ran.filter(([user]) => user === 'more').length < 3 ? { againInMs: 0 } : 'done';
    },
  });
  await expect.poll(rowsOf).toEqual([]);
  await loop.stop();
  const of = (user: string) => ran.flatMap(([each, attempt]) => (each === user ? [attempt] : []));
  expect([of('fails'), of('more')]).toEqual([
    [1, 2, 3],
    [1, 1, 1],
  ]);
});

test('a run whose job is lost is told so at the next renewal, and a job that stopping ends early waits for others', async () => {
  await add('u', 'lost');
  await add('u', 'kept');
  const aborted = Promise.withResolvers<unknown>();
  const [started, stopping] = [Promise.withResolvers<Job>(), Promise.withResolvers<void>()];
  const lanes = new Map((await jobLanesOf()).map(({ id, lane }) => [id, lane]));
  const loop = runLoop({
    run: async ({ job }, signal) => {
      if (lanes.get(job.id) === 'kept') {
        await stopping.promise;
        throw new Error('the process stops');
      }
      started.resolve(job);
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      aborted.resolve(signal.reason);
      return 'over';
    },
  });
  const { id } = await started.promise;
  await store.pool.db.execute(sql`select move_job(${kind}, 'a', 'u', ${id}, 'lost', now() + interval '1 hour')`);
  loop.notify();
  expect(await aborted.promise).toBeInstanceOf(LeaseLostError);
  const told = loop.published.length;
  loop.draining.abort();
  stopping.resolve();
  await loop.stopped;
  expect(loop.published.slice(told)).toEqual(['jobs']);
  expect((await claim(2)).map((job) => lanes.get(job.id))).toEqual(['kept']);
});

test('a run that fails because its job is gone, as one that was cancelled, is no failure; another one is', async () => {
  await add('u', 'gone');
  await add('v', 'fails');
  const loop = runLoop({
    retry: { attempts: 2, firstMs: HOUR_MS, maxMs: HOUR_MS },
    run: async ({ job }) => {
      if (job.userId === 'u') await end(job);
      throw new Error('in vain');
    },
  });
  await expect.poll(rowsOf).toMatchObject([{ user_id: 'v', running: false }]);
  await loop.stop();
  expect(loop.logged.map(({ jobId }) => jobId)).toEqual((await jobLanesOf()).map(({ id }) => id));
});

test('the end of a step leaves a lease that another process has just taken, though it waited for the claim', async () => {
  await add('u', '');
  const [job] = await claim(1, {}, 0);
  if (!job) throw new Error('nothing was claimed');
  await sleep(2);
  const client = new Client({ connectionString: store.url });
  await client.connect();
  await client.query('begin');
  const claiming = 'select claimed from claim_jobs($1, null, 1, $2, $3)';
  const { rows } = await client.query<{ claimed: Job[] }>(claiming, [kind, HOUR_MS, '{}']);
  const [again] = rows[0]?.claimed ?? [];
  const stepEnds = sql`select end_step(${kind}, 'a', 'u', ${job.id}) as due`;
  const step = store.pool.db.execute<{ due: boolean }>(stepEnds).then(({ rows: ended }) => ended);
  const waiting = sql`select from pg_locks where not granted and pid in (
                        select pid from pg_stat_activity where datname = current_database())`;
  await expect.poll(async () => (await store.pool.db.execute(waiting)).rows.length).toBe(1);
  await client.query('commit');
  await client.end();
  expect(await step).toEqual([{ due: false }]);
  expect(await renewJobs(store.pool.db, kind, [again as Job], HOUR_MS)).toEqual([]);
});

test('the loop runs jobs, gives a poison job up, ends one about nothing, and leaves to others what it claims while it stops', async () => {
  await add('poison', 'l');
  for (let n = 0; n < 2; n++) {
    await claim(1, {}, 0);
    await sleep(2);
  }
  await add('good', 'l', 3);
  await add('nothing', 'l');
  await store.pool.db.execute(sql`
    create function work_of_test(p_app text, p_user text, p_id text) returns jsonb language sql as $$
      select to_jsonb('work of ' || p_user) where p_user <> 'nothing' $$`);
  const done: string[] = [];
  const loop = runLoop({
    leaseMs: HOUR_MS,
    work: 'work_of_test',
    toWork: (job) => {
      if (done.length === 4) loop.draining.abort();
      expect(job.work).toBe(`work of ${job.userId}`);
      return { job };
    },
    run: async ({ job }) => {
      done.push(`ran ${job.userId}`);
      return 'done';
    },
    giveUp: async ({ job }, reason) => {
      done.push(`gave up ${job.userId}: ${reason}`);
      await end(job);
      return 'over';
    },
  });
  await expect.poll(() => done.length).toBe(4);
  await expect.poll(rowsOf).toEqual([]);
  const reason = 'Given up after two processes ended while they ran it.';
  expect(done.toSorted()).toEqual([`gave up poison: ${reason}`, 'ran good', 'ran good', 'ran good']);
  await add('late', 'l');
  loop.notify();
  await loop.stopped;
  expect([done.length, await rowsOf()]).toMatchObject([4, [{ user_id: 'late', running: false }]]);
  expect(loop.published).toEqual(['jobs']);
});

test('a claim reads about as many rows as it takes, however many wait, also by a connection that knew almost empty tables', async () => {
  const limits = { user: 4, lane: 100, pair: 3 };
  const client = new Client({ connectionString: store.url });
  await client.connect();
  const claimAll = async () =>
    (
      await client.query<{ claimed: Job[] }>({
        name: 'claim',
        text: 'select claimed from claim_jobs($1, null, 8, $2, $3)',
        values: [kind, HOUR_MS, JSON.stringify(limits)],
      })
    ).rows[0]?.claimed ?? [];
  const claimAndCount = async () => {
    const readSoFar = async () =>
      (
        await client.query<{ n: number }>(
          `select sum(seq_tup_read + idx_tup_fetch)::int as n from pg_stat_xact_user_tables
           where relname in ('jobs', 'job_lanes')`,
        )
      ).rows[0]?.n ?? 0;
    await client.query('begin');
    const before = await readSoFar();
    const claimed = await claimAll();
    const count = (await readSoFar()) - before;
    await client.query('commit');
    expect(new Set(claimed.map(userOf)).size).toBe(8);
    return count;
  };
  await client.query('vacuum analyze jobs, job_lanes');
  for (let n = 0; n < 10; n++) {
    await add('u', `l${n}`);
    for (const job of await claimAll()) await end(job);
  }
  await client.query(
    `insert into jobs (kind, app_name, user_id, id, lane, due_time)
     select $1, 'a', 'u' || n % 10000, n::text, 'l', now() from generate_series(1, 20000) n`,
    [kind],
  );
  await client.query(
    `insert into job_lanes (kind, app_name, user_id, lane, turn_time)
     select distinct kind, app_name, user_id, lane, due_time from jobs where kind = $1`,
    [kind],
  );
  expect(await claimAndCount()).toBeLessThan(500);
  await client.query('analyze jobs, job_lanes');
  expect(await claimAndCount()).toBeLessThan(500);
  await client.end();
});
