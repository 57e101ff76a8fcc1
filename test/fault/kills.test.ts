import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { eventBody, eventually, invokeBody, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { type Acked, findViolations } from './support/invariants.ts';
import { answerFor, promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { isRenewal, startProxy } from './support/postgres-proxy.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, spareServers, startServer, tryTo } from './support/server-process.ts';
import { MINUTE } from '../support/patience.ts';

const LEASE_MS = paced(600);
const [KILLS, STOPS] = [either(8, 200), either(3, 200)];
const CLIENTS = 8;
const SESSIONS = 4;
/** A process lives so long after it took its first request, by the seed. */
const [SHORTEST_LIFE_MS, LONGEST_LIFE_MS] = [20, 800];
const REST_WITHIN_MS = 2 * MINUTE;

const here = stage();
let survivor: ServerProcess;
const settings = { SESSION_LEASE_MS: String(LEASE_MS) };

beforeAll(async () => {
  survivor = await startServer(here.databaseUrl, here.environment(settings));
});
afterAll(() => survivor.kill());

/** A process that has loaded what it loads at its first invocation. */
async function startWarm(): Promise<ServerProcess> {
  const server = await startServer(here.databaseUrl, here.environment(settings));
  const id = randomUUID();
  await server.post('/harness/invoke', invokeBody(`warm-${id}`, 's', { id }));
  return server;
}

describe('random kills under load', () => {
  test('lose nothing that was told, and every session goes on', async () => {
    const draw = random('kill soak');
    const userId = `u-${randomUUID()}`;
    const acked: Acked[] = [];
    let asked = 0;
    let slowestMs = 0;
    const victims = spareServers(startWarm);
    for (let kill = 0; kill < KILLS; kill++) {
      const victim = await victims.take();
      const lifeMs = draw.whole(SHORTEST_LIFE_MS, LONGEST_LIFE_MS);
      let isAlive = true;
      const work = Array.from({ length: CLIENTS }, async (_, position) => {
        const sessionId = `s-${position % SESSIONS}`;
        while (isAlive) {
          asked++;
          const told = await askOnce(victim, userId, sessionId, draw.whole(0, 3));
          if (told) acked.push(told);
          if (!told) await sleep(5);
        }
      });
      await sleep(lifeMs);
      await victim.kill();
      isAlive = false;
      await Promise.all(work);
      const killedAt = performance.now();
      await Promise.all(
        Array.from({ length: SESSIONS }, async (_, position) => {
          const id = randomUUID();
          const sessionId = `s-${position}`;
          const { status } = await survivor.post('/harness/invoke', invokeBody(userId, sessionId, { id }));
          expect(status).toBe(200);
          acked.push({ userId, sessionId, said: promptFor({ id }), answered: answerFor(id) });
          slowestMs = Math.max(slowestMs, Math.round(performance.now() - killedAt));
        }),
      );
    }
    await victims.close();
    await whenAtRest(here.sql, REST_WITHIN_MS);
    const violations = await findViolations(here.sql, { acked, api: survivor });
    report(
      'kill soak',
      `${KILLS} kills, ${asked} requests, ${acked.length} answered, ${violations.length} violations; ` +
        `usable after ${slowestMs} ms at most`,
    );
    expect(violations).toEqual([]);
    expect(here.model.badHistories).toEqual([]);
    // How many there are follows from the speed of the machine.
    expect(acked.length).toBeGreaterThan(KILLS);
  });
});

/** An invocation or an event, as chance has it; what was told is returned. */
async function askOnce(at: ServerProcess, userId: string, sessionId: string, kind: number): Promise<Acked | undefined> {
  const id = randomUUID();
  if (kind === 3) {
    const answer = await tryTo(
      at.post(`${sessionPath(userId, sessionId)}/events`, eventBody(id, { [`own-${id}`]: 1, [`user:${id}`]: 1 })),
    );
    return answer?.status === 200 ? { userId, sessionId, said: id } : undefined;
  }
  const prompt = { id, calls: kind, delayMs: 5 };
  const answer = await tryTo(at.post('/harness/invoke', invokeBody(userId, sessionId, prompt)));
  const { error, output } = (answer?.body ?? {}) as { error?: string | null; output?: string };
  if (answer?.status !== 200 || error !== null) return undefined;
  return { userId, sessionId, said: promptFor(prompt), answered: output ?? '' };
}

describe('a process that sleeps longer than its lease', () => {
  test('writes nothing when it wakes up', async () => {
    const sleeper = await startWarm();
    const draw = random('zombies');
    const violations: string[] = [];
    const statuses: number[] = [];
    for (let stop = 0; stop < STOPS; stop++) {
      const [id, next, userId, sessionId] = [randomUUID(), randomUUID(), `z-${randomUUID()}`, 's'];
      const late = tryTo(
        sleeper.post('/harness/invoke', invokeBody(userId, sessionId, { id, calls: 2, delayMs: 150 })),
      );
      await eventually('the invocation runs', MINUTE, async () => {
        const { rows } = await here.sql.query(`select from invocations where user_id = $1 and status = 'running'`, [
          userId,
        ]);
        return rows.length === 1;
      });
      await sleep(draw.whole(0, 400));
      sleeper.signal('SIGSTOP');
      const { text } = await survivor.post('/harness/invoke', invokeBody(userId, sessionId, { id: next, calls: 1 }));
      const before = await rowsOf(userId);
      sleeper.signal('SIGCONT');
      const answer = await late;
      const { error } = (answer?.body ?? {}) as { error?: string | null };
      const told = answer?.status === 200 && error === null;
      statuses.push(answer?.status ?? 0);
      await sleep(LEASE_MS); // a late write would come with the next renewal
      if ((await rowsOf(userId)) !== before) violations.push(`stop ${stop}: a late row`);
      if (!text.includes(answerFor(next))) violations.push(`stop ${stop}: the next invocation: ${text}`);
      const acked = told
        ? [{ userId, sessionId, said: promptFor({ id, calls: 2, delayMs: 150 }), answered: answerFor(id) }]
        : [];
      violations.push(...(await findViolations(here.sql, { users: [userId], acked, api: survivor })));
    }
    report(
      'zombies',
      `${STOPS} stops, ${violations.length} late rows or other violations; the sleeper answered ${statuses.join(', ')}`,
    );
    expect(violations).toEqual([]);
    await sleeper.kill();
  });
});

describe('a process that is asleep at any message', () => {
  /** Messages of an invocation with three tool calls; those behind its end are not reached. */
  const MOST_MESSAGES = 14;
  /** Messages whose late arrival left one more artifact version. */
  const lateArtifacts: number[] = [];

  test('writes nothing when what it wanted to say arrives after the take-over', async () => {
    const proxy = await startProxy(here.databaseUrl);
    const sleeper = await startServer(proxy.url, here.environment({ ...settings, DATABASE_POOL_SIZE: '128' }));
    const sleeps = Array.from({ length: MOST_MESSAGES }, (_, n) => {
      const id = randomUUID();
      return {
        id,
        userId: `a-${id}`,
        message: n + 1,
        seen: 0,
        asleep: Promise.withResolvers<boolean>(),
        awake: Promise.withResolvers<void>(),
      };
    });
    const sayings = sleeps.map(async ({ id, userId, asleep }) => {
      const answer = await tryTo(sleeper.post('/harness/invoke', invokeBody(userId, 's', { id, calls: 3 })));
      asleep.resolve(false);
      return answer;
    });
    proxy.rules = {
      before(message) {
        const late = sleeps.find(({ id }) => message.has(id));
        if (!late) return undefined;
        if (!isRenewal(message)) late.seen++;
        if (late.seen < late.message) return undefined;
        late.asleep.resolve(true);
        return late.awake.promise;
      },
    };
    const reached = await Promise.all(sleeps.map(({ asleep }) => asleep.promise));
    const nexts = await Promise.all(
      sleeps.map(async ({ userId }) => {
        const next = randomUUID();
        const { text } = await survivor.post('/harness/invoke', invokeBody(userId, 's', { id: next, calls: 1 }));
        return { text, wanted: answerFor(next) };
      }),
    );
    const before = await Promise.all(sleeps.map(({ userId }) => rowsOf(userId)));
    const artifactsBefore = await Promise.all(sleeps.map(({ userId }) => artifactsOf(userId)));
    for (const { awake } of sleeps) awake.resolve();
    const answers = await Promise.all(sayings);
    await sleep(LEASE_MS);
    const violations: string[] = [];
    for (const [position, { id, userId, message }] of sleeps.entries()) {
      if (!reached[position]) continue;
      const said = promptFor({ id, calls: 3 });
      const { body, status } = answers[position] ?? {};
      const told = status === 200 && (body as { error: string | null }).error === null;
      // The first message is the claim: when it arrives late it waits its turn, and is served.
      const isClaim = message === 1 && told;
      if (!isClaim && (await artifactsOf(userId)) !== artifactsBefore[position]) lateArtifacts.push(message);
      const found = [
        ...(isClaim || (await rowsOf(userId)) === before[position] ? [] : ['a late row']),
        ...(nexts[position]?.text.includes(nexts[position].wanted)
          ? []
          : [`the next invocation: ${nexts[position]?.text}`]),
        ...(await findViolations(here.sql, {
          users: [userId],
          acked: told ? [{ userId, sessionId: 's', said, answered: answerFor(id) }] : [],
          api: survivor,
        })),
      ];
      violations.push(...found.map((violation) => `asleep at message ${message}: ${violation}`));
    }
    const points = reached.filter(Boolean).length;
    report(
      'asleep at a message',
      `${points} messages; ${violations.length} late rows or other violations; ` +
        `${lateArtifacts.length} late artifact versions`,
    );
    await sleeper.kill();
    await proxy.close();
    expect(violations).toEqual([]);
    // On a machine that is busy some requests end before their message.
    expect(points).toBeGreaterThan(2);
  });

  test('nor does its tool save an artifact', () => expect(lateArtifacts).toEqual([]));
});

async function artifactsOf(userId: string): Promise<number> {
  const { rows } = await here.sql.query('select from artifact_versions where user_id = $1', [userId]);
  return rows.length;
}

/** The session, its events and its state, as one sum. */
async function rowsOf(userId: string): Promise<string> {
  const { rows } = await here.sql.query<{ sum: string }>(
    `select md5(concat(
       (select string_agg(e::text, '' order by session_id, sequence) from events e where user_id = $1),
       (select string_agg(s::text, '' order by id) from sessions s where user_id = $1),
       (select string_agg(u::text, '') from user_states u where user_id = $1))) as sum`,
    [userId],
  );
  return rows[0]?.sum ?? '';
}
