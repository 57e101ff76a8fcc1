import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** `ticks`: start time in clock ticks since boot (field 22 of /proc/<pid>/stat). `undefined` except on Linux. */
function readStart(pid: number): { ticks: string; isZombie: boolean } | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // In /proc/<pid>/stat, the command before the other fields may contain spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { ticks: fields[19] ?? '0', isZombie: fields[0] === 'Z' };
  } catch {
    return undefined;
  }
}

/** Creates a unique name `<pid>-<start>-<random>` for this process. The start time detects a reused pid. */
export function newProcessName(): string {
  return `${process.pid}-${readStart(process.pid)?.ticks ?? '0'}-${randomBytes(4).toString('hex')}`;
}

/** Returns the pid in a name of `newProcessName` if that process still lives; otherwise `undefined`. */
export function livingPid(processName: string): number | undefined {
  const [, digits, ticks] = /^(\d+)-(\d+)-[0-9a-f]{8}/.exec(processName) ?? [];
  const pid = Number(digits);
  if (digits === undefined || !isPidAlive(pid)) return undefined;
  const start = readStart(pid);
  if (start === undefined || ticks === '0') return pid; // cannot be told apart from a process that got the same pid
  return !start.isZombie && start.ticks === ticks ? pid : undefined;
}

/** True if the pid is in use by any process, even a zombie. */
export function isPidAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}
