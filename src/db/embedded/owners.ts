import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** One process's claim on an embedded server; the server stays up while any live claim is left. */
export interface Claim {
  /** Gives the claim up. `stopServer` is awaited only when no other live process holds one. */
  release(stopServer: () => Promise<void>): Promise<void>;
}

const STOPPING = '.stopping';
const STOP_WAIT_MS = 20_000;

/** The start of a process in clock ticks since boot (field 22 of /proc/<pid>/stat); undefined where there is no such file. */
function readStart(pid: number): { ticks: string; isZombie: boolean } | undefined {
  if (process.platform !== 'linux') return undefined;
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' '); // the command in front may hold spaces and brackets
    return { ticks: fields[19] ?? '0', isZombie: fields[0] === 'Z' };
  } catch {
    return undefined;
  }
}

/** A name for something of this process, `<pid>-<start>-<random>`: unique, and recognisable as dead even when its pid is used again. */
export function newOwnedName(): string {
  return `${process.pid}-${readStart(process.pid)?.ticks ?? '0'}-${randomBytes(4).toString('hex')}`;
}

/** Whether the process that made this name with `newOwnedName` still lives; false for a text that is no such name. */
export function isOwnerAlive(ownedName: string): boolean {
  const [, pid, ticks] = /^(\d+)-(\d+)-[0-9a-f]{8}/.exec(ownedName) ?? [];
  if (pid === undefined || !isPidAlive(Number(pid))) return false;
  const start = readStart(Number(pid));
  if (start === undefined || ticks === '0') return true; // cannot be told apart from a process that got the same pid
  return !start.isZombie && start.ticks === ticks;
}

/** Whether the pid is in use, by whomever; a zombie counts. */
export function isPidAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/**
 * Claims the server of `dir` for this process, after waiting for a stop that another process has begun.
 * The claim is there before the server is looked for, and a stop announces itself before it looks for claims:
 * whichever comes second sees the other, so no server is stopped under a process that has just found it.
 */
export async function claimServer(dir: string): Promise<Claim> {
  const owners = join(dir, 'owners');
  await mkdir(owners, { recursive: true, mode: 0o700 });
  const mine = join(owners, newOwnedName());
  await writeFile(mine, '', { flag: 'wx', mode: 0o600 }); // everything is in the name, so no reader sees half of it
  await waitForStops(owners);
  return {
    async release(stopServer) {
      await rename(mine, mine + STOPPING).catch(() => undefined); // gone when somebody deleted the whole directory
      try {
        const others = await listLive(owners);
        if (others.every((name) => name.endsWith(STOPPING))) await stopServer();
      } finally {
        await rm(mine + STOPPING, { force: true });
      }
    },
  };
}

async function waitForStops(owners: string): Promise<void> {
  for (const until = Date.now() + STOP_WAIT_MS; Date.now() < until; await sleep(25)) {
    const live = await listLive(owners);
    if (!live.some((name) => name.endsWith(STOPPING))) return;
  }
}

/** Names of claims whose process lives; those of dead processes are removed. */
async function listLive(owners: string): Promise<string[]> {
  const names = await readdir(owners).catch(() => []);
  const dead = names.filter((name) => !isOwnerAlive(name));
  await Promise.all(dead.map((name) => rm(join(owners, name), { force: true })));
  return names.filter((name) => !dead.includes(name));
}
