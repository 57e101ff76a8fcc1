import { fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { TestApp } from './app.ts';
import { largeEvent, type Order } from './attacks.ts';

const MALLORY = fileURLToPath(new URL('./mallory.ts', import.meta.url));

/** Runs a program when nothing else on the machine wants to, where the machine has that (Linux, `sched(7)`). */
const WHEN_IDLE = ['--idle', '0'];
const hasIdle = spawnSync('chrt', [...WHEN_IDLE, 'true']).status === 0;

/** Stores what an attacker needs before: a session of 27 MB, and small ones. */
export async function prepareAttacker(
  { post }: Pick<TestApp, 'post'>,
  user: string,
  headers: Record<string, string>,
): Promise<void> {
  const sessions = `/apps/harness_agent/users/${user}/sessions`;
  await post(sessions, { sessionId: 'large' }, headers);
  for (let count = 0; count < 30; count += 1) await post(`${sessions}/large/events`, largeEvent(), headers);
  for (let count = 0; count < 60; count += 1) await post(sessions, { sessionId: `s${count}` }, headers);
}

/**
 * Lets an attacker do its worst, in a process of its own, while something else is done; `counts` are its answers by
 * status. Attackers have machines of their own: the process runs when nothing else wants this one.
 */
export async function whileAttacked<T>(
  order: Order,
  work: () => Promise<T>,
): Promise<{ result: T; counts: Record<string, number> }> {
  const program = hasIdle ? { execPath: 'chrt', execArgv: [...WHEN_IDLE, process.execPath] } : {};
  const attacker = fork(MALLORY, { ...program, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  onTestFinished(() => void attacker.kill('SIGKILL'));
  await once(attacker, 'message');
  attacker.send(order);
  await once(attacker, 'message');
  const result = await work();
  attacker.send('stop');
  const [counts] = (await once(attacker, 'message')) as [Record<string, number>];
  return { result, counts };
}

/** Returns the value below which this share of them is. */
export const percentile = (values: number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? 0;
