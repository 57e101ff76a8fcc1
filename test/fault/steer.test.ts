import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, spareServers, startServer, tryTo } from './support/server-process.ts';
import { SteeredModel } from './support/steered-model.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * Messages steer runs whose processes are killed. Each one is one stored event: inside a run, or the prompt of its own
 * invocation. The model was asked with it in each request after it, and in none before.
 */

const MESSAGES = either(300, 10_000);
const PER_SESSION = 50;
const SESSIONS = MESSAGES / PER_SESSION;
/** Sessions in which messages come at the same time. */
const AT_ONCE = 6;
const [SHORTEST_LIFE_MS, LONGEST_LIFE_MS] = [200, 2_000];
const REST_WITHIN_MS = either(5, 60) * MINUTE;

const steered = new SteeredModel();
const here = stage(steered.script);

test('each message is in one event, before the first request that could have it, however often processes are killed', async () => {
  const draw = random('steers');
  const environment = here.environment({
    SESSION_LEASE_MS: String(paced(600)),
    INVOCATION_ATTEMPTS: '100',
    SESSION_QUEUE_DEPTH: '20',
    DOUBLE_TEXTING: 'steer',
  });
  const start = () => startServer(here.databaseUrl, environment);
  const survivor = await start();
  const victims = spareServers(start);
  let victim: ServerProcess = await victims.take();
  let isOver = false;
  let kills = 0;
  const killing = (async () => {
    while (!isOver) {
      await sleep(draw.whole(SHORTEST_LIFE_MS, LONGEST_LIFE_MS));
      const next = await victims.take();
      const dead = victim;
      victim = next;
      await dead.kill();
      kills += 1;
    }
  })();
  const names = Array.from({ length: SESSIONS }, (_, place) => `s${place}`);
  const talk = async (session: string) => {
    await survivor.post(listPath('u'), { sessionId: session });
    for (let n = 0; n < PER_SESSION; n += 1) {
      const id = `${session}.${n}`;
      const newMessage = { role: 'user', parts: [{ text: promptFor({ id, delayMs: 10 }) }] };
      for (let isTold = false; !isTold; ) {
        const at = draw.whole(0, 1) === 0 ? victim : survivor;
        const path = `${sessionPath('u', session)}/invocations`;
        const answer = await tryTo(at.post(path, { newMessage }, { 'idempotency-key': id }));
        isTold = answer?.status === 200;
        if (!isTold) await sleep(20);
      }
      await sleep(draw.whole(0, 60));
    }
  };
  const waiting = [...names];
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (let session = waiting.shift(); session !== undefined; session = waiting.shift()) await talk(session);
    }),
  );
  await whenAtRest(here.sql, REST_WITHIN_MS);
  isOver = true;
  await killing;
  await Promise.all([victim.kill(), victims.close(), survivor.kill()]);

  const keys = names.flatMap((session) => Array.from({ length: PER_SESSION }, (_, n) => `${session}.${n}`));
  const { violations, taken } = await steered.check(here.sql, names, keys);
  const told = `${MESSAGES} messages, ${kills} kills, ${taken} taken by a run, ${violations.length} violations`;
  report('steers', told);
  expect(violations).toEqual([]);
  expect(taken).toBeGreaterThan(0);
  expect(here.model.badHistories).toEqual([]);
});
