// oxlint-disable unicorn/require-post-message-target-origin -- ports of a thread, not windows
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { expect, onTestFinished, test } from 'vitest';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { FROZEN_MS, startWatched } from '../support/watched-service.ts';

/** `STRICT_FAIRNESS=true` holds the figures to the goal, on a machine that does nothing else. */
const isStrict = process.env['STRICT_FAIRNESS'] === 'true';
/** `WITHOUT_LIMITS=true` shows what the limits are for. */
const unlimited = Object.fromEntries(
  ['INVOCATIONS', 'REQUESTS', 'STREAMS', 'HEAVY_READS']
    .map((what) => [`MAX_${what}_PER_USER`, '1000000'])
    .concat(['READS', 'WRITES', 'HEAVY_READS', 'INVOCATIONS'].map((what) => [`MAX_${what}_PER_MINUTE`, '1000000'])),
);
const limits = process.env['WITHOUT_LIMITS'] === 'true' ? unlimited : {};
const ROUNDS = Number(process.env['FAIRNESS_ROUNDS'] ?? 15);
const percentile = (times: number[], share: number) =>
  times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0;

test('C: what one user does costs another little', async () => {
  const tokens = await startTokenIssuer();
  const service = await startWatched({ ...tokens.environment, ...limits });
  onTestFinished(async () => {
    await service.close();
    await tokens.close();
  });
  const [alice, mallory] = [await tokens.headersOf('alice'), await tokens.headersOf('mallory')];
  const sessions = '/apps/harness_agent/users/alice/sessions';
  await service.post(sessions, { sessionId: 's' }, alice);
  const newMessage = { role: 'user', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] };
  const body = { appName: 'harness_agent', userId: 'alice', sessionId: 's', newMessage };

  const measure = async () => {
    const times: Record<'turn' | 'read', number[]> = { turn: [], read: [] };
    const statuses = new Set<number>();
    const timed = async (kind: 'turn' | 'read', ask: () => Promise<{ status: number }>) => {
      const start = performance.now();
      statuses.add((await ask()).status);
      times[kind].push(performance.now() - start);
    };
    for (let round = 0; round < ROUNDS; round += 1) {
      await timed('turn', () => service.post('/run', body, alice));
      await timed('read', () => service.get(`${sessions}/s/events?limit=5`, alice));
      await sleep(20);
    }
    return { ...times, statuses: [...statuses] };
  };

  await measure();
  const alone = await measure();
  const attacker = new Worker(new URL('../support/mallory.ts', import.meta.url), {
    workerData: { url: service.url, headers: mallory },
  });
  onTestFinished(() => void attacker.terminate());
  await once(attacker, 'message');
  attacker.postMessage('attack');
  await sleep(1_000);
  await service.report();
  const attacked = await measure();
  const { longestMs } = await service.report();
  attacker.postMessage('stop');
  const [counts] = (await once(attacker, 'message')) as [Record<string, number>];

  console.log('mallory was answered', counts, 'longest turn of the loop', Math.round(longestMs), 'ms of CPU');
  for (const kind of ['turn', 'read'] as const) {
    const [before, during] = [percentile(alone[kind], 0.99), percentile(attacked[kind], 0.99)];
    const medians = [percentile(alone[kind], 0.5), percentile(attacked[kind], 0.5)].map(Math.round);
    console.log(`alice, ${kind}: p50 ${medians.join(' → ')} ms, p99 ${Math.round(before)} → ${Math.round(during)} ms`);
    // How fast it was is the machine's; the goal is for one that does nothing else.
    if (isStrict) expect(during).toBeLessThanOrEqual(2 * before);
  }
  // Nobody else’s limits are hers.
  expect(attacked.statuses).toEqual([200]);
  expect(longestMs).toBeLessThan(FROZEN_MS);
  if (Object.keys(limits).length === 0) expect(counts['429']).toBeGreaterThan(100);
});
