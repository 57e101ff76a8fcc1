import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds of a clock tick of /proc, 1/100 s on every Linux that Node supports. */
const TICK_MS = 10;
const START_TIMEOUT_MS = 60_000;

/** CPU of a process in ms since its start, by all its threads, and of its children that have ended. */
export function cpuOf(pid: number): number {
  const ticks = statOf(pid)?.slice(11, 15) ?? [];
  return ticks.reduce((sum, value) => sum + Number(value), 0) * TICK_MS;
}

/** CPU of a process and of all its children. */
export function cpuOfFamily(pid: number): number {
  const children = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && statOf(Number(name))?.[1] === `${pid}`);
  return cpuOf(pid) + children.reduce((sum, child) => sum + cpuOf(Number(child)), 0);
}

/** The fields of /proc/<pid>/stat behind the name, which may have spaces; `undefined` for a process that has ended. */
function statOf(pid: number): string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}

/** Resident memory of a process, MB. */
export function memoryOf(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) / 1024;
}

/** A server that runs in a process of its own. */
export interface ServerProcess {
  url: string;
  pid: number;
  /** Milliseconds from its launch to its first answer, and what CPU it took for that. */
  startMs: number;
  startCpuMs: number;
  /** Settles when it has ended. Default: `SIGKILL`. */
  stop(signal?: 'SIGKILL' | 'SIGTERM'): Promise<void>;
}

/** Starts a server and waits for a 200 of `path`. @throws Error when it ends before. */
export async function startServer(
  args: string[],
  port: number,
  path: string,
  environment: NodeJS.ProcessEnv = {},
): Promise<ServerProcess> {
  const url = `http://127.0.0.1:${port}`;
  const startedAt = performance.now();
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, ...environment },
  });
  const kill = () => void child.kill('SIGKILL');
  // Also when the benchmark itself fails.
  process.once('exit', kill);
  child.once('exit', () => process.off('exit', kill));
  while (!(await answers(`${url}${path}`))) {
    if (child.exitCode !== null) throw new Error(`${args.join(' ')} ended with ${child.exitCode}`);
    if (performance.now() - startedAt > START_TIMEOUT_MS) throw new Error(`${args.join(' ')} does not answer`);
    await sleep(5);
  }
  const pid = child.pid ?? 0;
  return {
    url,
    pid,
    startMs: performance.now() - startedAt,
    startCpuMs: cpuOf(pid),
    stop: (signal = 'SIGKILL') => stop(child, signal),
  };
}

const answers = (url: string): Promise<boolean> =>
  fetch(url).then(
    async (response) => (await response.arrayBuffer(), response.ok),
    () => false,
  );

async function stop(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill(signal);
  await ended;
}
