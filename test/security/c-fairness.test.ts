import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { type AttackKind, ATTACKS } from '../support/attacks.ts';
import { percentile, prepareAttacker, whileAttacked } from '../support/fairness.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { FROZEN_MS, startWatched } from '../support/watched-service.ts';
import { staged } from '../support/staged.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * One user takes all that the limits leave; another one goes on meanwhile. Held are the bounds: every request of hers
 * is answered, and no turn of the event loop lasts. Her times are printed, and are the machine's.
 */
const ROUNDS = Number(process.env['FAIRNESS_ROUNDS'] ?? 15);
/** A user may run the agent 300 times in a minute, and a session that grows is slower by itself. */
const ROUNDS_OF_USER = 50;
const TIMEOUT_MS = 15 * MINUTE + ROUNDS * 1_000;

const KINDS = Object.keys(ATTACKS) as AttackKind[];
const CASES: [string, AttackKind[]][] = [
  ...KINDS.map((kind): [string, AttackKind[]] => [kind, [kind]]),
  ['all', KINDS],
];

let users = 0;

/** Runs the agent and reads a little, one after the other. @returns the times of both, and all statuses */
async function goOn() {
  const times = { runs: [] as number[], reads: [] as number[] };
  const statuses = new Set<number>();
  const timed = async (list: number[], request: Promise<{ status: number }>) => {
    const start = performance.now();
    statuses.add((await request).status);
    list.push(performance.now() - start);
  };
  let user = '';
  let headers: Record<string, string> = {};
  for (let round = 0; round < ROUNDS; round += 1) {
    if (round % ROUNDS_OF_USER === 0) {
      user = `alice${users++}`;
      headers = await tokens.headersOf(user);
      await service.post(`/apps/harness_agent/users/${user}/sessions`, { sessionId: 's' }, headers);
    }
    const newMessage = { role: 'user', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] };
    const run = { appName: 'harness_agent', userId: user, sessionId: 's', newMessage };
    await timed(times.runs, service.post('/run', run, headers));
    const events = `/apps/harness_agent/users/${user}/sessions/s/events?limit=5`;
    await timed(times.reads, service.get(events, headers));
    await sleep(20);
  }
  return { times, statuses };
}

const show = (name: string, times: Record<string, number[]>) =>
  console.log(
    name,
    ...Object.entries(times).flatMap(([what, list]) => [
      `${what}: p50 ${percentile(list, 0.5).toFixed(1)} ms, p99 ${percentile(list, 0.99).toFixed(1)} ms;`,
    ]),
  );

const tokens = staged(() => startTokenIssuer());
const service = staged(() => startWatched(tokens.environment));

describe('C: while one user takes all that it may, another one is served', { timeout: TIMEOUT_MS }, () => {
  test('alone', async () => {
    await goOn();
    const { times, statuses } = await goOn();
    show('alone', times);
    expect([...statuses]).toEqual([200]);
  });

  test.each(CASES)('%s', async (name, kinds) => {
    const user = `mallory${users++}`;
    const headers = await tokens.headersOf(user);
    await prepareAttacker(service, user, headers);
    await service.report();
    const { result, counts } = await whileAttacked({ url: service.url, user, headers, kinds }, goOn);
    const { longestMs, heapMb } = await service.report();
    show(name, result.times);
    console.log(name, counts, `longest turn ${Math.round(longestMs)} ms of CPU, heap ${Math.round(heapMb)} MB`);
    // The limits of the other are not hers.
    expect([...result.statuses]).toEqual([200]);
    expect(longestMs).toBeLessThan(FROZEN_MS);
  });
});
