import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { client } from '../support/app.ts';
import { type Balancer, startBalancer } from './support/balancer.ts';
import { eventually, listPath, report, sessionPath, stage, whenAtRest } from './support/faults.ts';
import { type History, newHistory, operate, type Target } from './support/history.ts';
import { finalOrder, historyViolations, nameOf } from './support/history-checks.ts';
import { either, random } from './support/seed.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';
import { followStream } from './support/stream-follower.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * Two replicas behind a proxy that repeats nothing. One after the other is stopped with SIGTERM and replaced, as a
 * deployment does, while clients work: no request of theirs may fail, and nothing may be lost or doubled.
 */

const here = stage();
const ROUNDS = either(3, 10);
const CLIENTS = either(6, 16);
/** Between two restarts, and before the first. */
const WORK_MS = either(1_000, 5_000);
const PATIENCE_MS = 2 * MINUTE;
/** Longer than a proxy on a loaded machine takes to notice; the other limits are those of a machine without load. */
const settings = {
  DRAIN_DELAY_MS: '10000',
  SESSION_LEASE_MS: '60000',
  SESSION_WAIT_MS: '120000',
  SESSION_QUEUE_DEPTH: '100',
  SHUTDOWN_GRACE_MS: '60000',
};
const targets: Target[] = Array.from({ length: 6 }, (_, n) => ({ userId: 'u', sessionId: `s-${n}` }));

let replicas: ServerProcess[] = [];
let balancer: Balancer;
const start = () => startServer(here.databaseUrl, here.environment(settings));
beforeAll(async () => {
  replicas = [await start(), await start()];
  balancer = await startBalancer(() => replicas.map(({ url }) => url));
  await eventually('both replicas serve', PATIENCE_MS, servesAll);
});
afterAll(async () => {
  await balancer.close();
  for (const replica of replicas) await replica.kill();
});
const servesAll = async () => replicas.every(({ url }) => balancer.serves(url));

/** Stops one replica and puts a new one into its place. @returns its exit code. */
async function replace(position: number): Promise<number | null> {
  const old = replicas[position] as ServerProcess;
  old.signal('SIGTERM');
  const code = await old.exited;
  replicas[position] = await start();
  await eventually('the new replica serves', PATIENCE_MS, servesAll);
  return code;
}

test('rolling restarts under load: no request fails, no event is lost or doubled', async () => {
  const api = { ...(replicas[0] as ServerProcess), ...client(balancer.url) };
  for (const { userId, sessionId } of targets) await api.post(listPath(userId), { sessionId });
  // Of each client its own: none repeats the request of another one that is still under way, which is a 409.
  const histories = Array.from({ length: CLIENTS }, newHistory);
  let isOver = false;
  let isAtRest = false;
  const clients = histories.map(async (own, n) => {
    const draw = random(`rolling client ${n}`);
    while (!isOver) {
      await operate(own, draw, api, draw.pick(targets), { messages: false });
      await sleep(draw.whole(0, 30));
    }
  });
  const streams = new Map(
    targets.map((target) => {
      const url = `${balancer.url}${sessionPath(target.userId, target.sessionId)}/events/stream`;
      return [
        target,
        followStream(
          () => url,
          () => isAtRest,
        ),
      ] as const;
    }),
  );
  const codes: (number | null)[] = [];
  await sleep(WORK_MS);
  for (let round = 0; round < ROUNDS; round++) {
    for (const position of replicas.keys()) {
      codes.push(await replace(position));
      await sleep(WORK_MS);
    }
  }
  isOver = true;
  await Promise.all(clients);
  await whenAtRest(here.sql, PATIENCE_MS);
  const final = await finalOrder(here.sql);
  await eventually('the streams have sent all', PATIENCE_MS, async () =>
    [...streams].every(([target, { followed }]) => followed.ids.length >= (final.get(nameOf(target))?.length ?? 0)),
  ).catch(() => undefined);
  isAtRest = true;
  await Promise.all([...streams.values()].map(({ ended }) => ended));
  const followed = new Map([...streams].map(([target, stream]) => [target, stream.followed]));
  const history = together(histories);
  const violations = await historyViolations(here.sql, history, followed, here.model.asked, { api });
  const events = [...final.values()].reduce((sum, { length }) => sum + length, 0);
  report(
    'rolling restart',
    `${ROUNDS} times two replicas; ${balancer.answered} requests answered, ${balancer.failed.length} failed, ` +
      `${history.unsure} unsure; ${events} events, ${violations.length} lost, doubled or out of order; ` +
      `exit codes ${codes.join()}`,
  );
  expect(balancer.failed).toEqual([]);
  expect([violations, history.unsure]).toEqual([[], 0]);
  expect(new Set(codes)).toEqual(new Set([0]));
  expect(history.acked.length).toBeGreaterThan(ROUNDS * CLIENTS);
});

/** What all clients know. */
function together(histories: History[]): History {
  const all = newHistory();
  for (const { acked, failed, keys, reads, told, keyed, wrong, operations, unsure } of histories) {
    for (const [name, own] of reads) all.reads.set(name, [...(all.reads.get(name) ?? []), ...own]);
    all.acked.push(...acked);
    all.failed.push(...failed);
    all.keys.push(...keys);
    all.told.push(...told);
    all.keyed.push(...keyed);
    all.wrong.push(...wrong);
    all.operations += operations;
    all.unsure += unsure;
  }
  return all;
}
