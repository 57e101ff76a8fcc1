import { type ChildProcess, fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { TestApp } from './app.ts';
import { largeEvent, type Order } from './attacks.ts';

/** Measures what one user notices of another (`test/security/c-fairness.test.ts`). */

type Headers = Record<string, string>;
/** What a user does again and again while the other attacks. */
export type Doing = 'turn' | 'read';
/** A service, and its process. */
export type Target = Pick<TestApp, 'url' | 'get' | 'post'> & { pid: number };

/** Of each kind of request, milliseconds. */
export interface Measured {
  /** From its first byte to the last of its answer. */
  times: Record<Doing, number[]>;
  /** What the main thread of the target worked meanwhile, for whomever; 0 where the machine does not say. */
  work: Record<Doing, number[]>;
  statuses: number[];
}

const MALLORY = new URL('./mallory.ts', import.meta.url);

/** Runs a program when nothing else on the machine wants to, where the machine has that (Linux, `sched(7)`). */
const WHEN_IDLE = ['--idle', '0'];
const hasIdle = spawnSync('chrt', [...WHEN_IDLE, 'true']).status === 0;

/**
 * Starts a file as a process, which ends with the test. Attackers have machines of their own: what their programs take
 * of this one is not what they do to the service.
 */
function startProcess(file: URL): ChildProcess {
  const program = hasIdle ? { execPath: 'chrt', execArgv: [...WHEN_IDLE, process.execPath] } : {};
  const child = fork(fileURLToPath(file), { ...program, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

/** CPU time of the main thread of a process, milliseconds: what other work on the machine does not change. */
function workOf(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
  } catch {
    return 0;
  }
}

/** Turns and small reads of one user in one session, one after the other: `rounds` more of what was measured. */
export async function measure(
  target: Target,
  user: string,
  headers: Headers,
  rounds: number,
  measured: Measured,
): Promise<Measured> {
  const sessions = `/apps/harness_agent/users/${user}/sessions`;
  const newMessage = { role: 'user', parts: [{ text: 'What is 17 * 23? Use the calculator.' }] };
  const body = { appName: 'harness_agent', userId: user, sessionId: 's', newMessage };
  const timed = async (doing: Doing, ask: () => Promise<{ status: number }>) => {
    const [before, start] = [workOf(target.pid), performance.now()];
    measured.statuses.push((await ask()).status);
    measured.times[doing].push(performance.now() - start);
    measured.work[doing].push(workOf(target.pid) - before);
  };
  for (let round = 0; round < rounds; round += 1) {
    await timed('turn', () => target.post('/run', body, headers));
    await timed('read', () => target.get(`${sessions}/s/events?limit=5`, headers));
    await sleep(20);
  }
  return measured;
}

/** Nothing measured yet. */
export const nothingMeasured = (): Measured => ({
  times: { turn: [], read: [] },
  work: { turn: [], read: [] },
  statuses: [],
});

/** What an attacker needs before: a session of 27 MB, and small ones. */
export async function prepareAttacker({ post }: Pick<Target, 'post'>, user: string, headers: Headers): Promise<void> {
  const sessions = `/apps/harness_agent/users/${user}/sessions`;
  await post(sessions, { sessionId: 'large' }, headers);
  for (let count = 0; count < 30; count += 1) await post(`${sessions}/large/events`, largeEvent(), headers);
  for (let count = 0; count < 60; count += 1) await post(sessions, { sessionId: `s${count}` }, headers);
}

/** Lets an attacker do its worst while something is measured; `counts` are its answers by status. */
export async function whileAttacked<T>(order: Order, work: () => Promise<T>): Promise<{ result: T; counts: object }> {
  const attacker = startProcess(MALLORY);
  await once(attacker, 'message');
  attacker.send(order);
  await once(attacker, 'message');
  const result = await work();
  attacker.send('stop');
  const [counts] = (await once(attacker, 'message')) as [object];
  return { result, counts };
}

/** The value below which this share of them is. */
export const percentile = (values: number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? 0;
