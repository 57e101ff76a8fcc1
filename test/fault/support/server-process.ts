import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { client, type TestApp } from '../../support/app.ts';
import { MINUTE } from '../../support/patience.ts';

const MAIN = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
const START_TIMEOUT_MS = MINUTE;
/** No `.env` and no `harness.yaml` are there; compiled code is kept, also for the next run. */
const home = join(tmpdir(), `agent-runtime-fault-${process.getuid?.() ?? 0}`);
mkdirSync(home, { recursive: true, mode: 0o700 });
const children = new Set<ChildProcess>();

process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
});

/** The service as an operator runs it: a process of its own. */
export interface ServerProcess extends Omit<TestApp, 'databaseUrl' | 'close'> {
  pid: number;
  /** What it said on standard error. */
  log(): string;
  /** Sends a signal; `SIGKILL` and `SIGTERM` are answered with the end of the process. */
  signal(name: 'SIGSTOP' | 'SIGCONT' | 'SIGTERM' | 'SIGKILL'): void;
  /** Settles with the exit code when the process is gone; `null` after a kill. */
  exited: Promise<number | null>;
  kill(): Promise<void>;
}

/** Starts `node src/main.ts` with these settings and waits until it listens. */
export async function startServer(databaseUrl: string, environment: Record<string, string>): Promise<ServerProcess> {
  const child = spawn(process.execPath, [MAIN], {
    cwd: home,
    env: {
      PATH: process.env['PATH'],
      HOME: home,
      NODE_COMPILE_CACHE: join(home, 'compiled'),
      DATABASE_URL: databaseUrl,
      PORT: '0',
      DEV_UI: 'true',
      LOG_LEVEL: 'error',
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.add(child);
  let said = '';
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const exited = once(child, 'exit').then(([code]) => {
    children.delete(child);
    return code as number | null;
  });
  const url = await listeningUrl(child, exited, () => said);
  return {
    ...client(url),
    pid: child.pid ?? 0,
    log: () => said,
    signal: (name) => void child.kill(name),
    exited,
    async kill() {
      child.kill('SIGCONT');
      child.kill('SIGKILL');
      await exited;
    },
  };
}

async function listeningUrl(child: ChildProcess, exited: Promise<unknown>, log: () => string): Promise<string> {
  const listening = Promise.withResolvers<string>();
  let said = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    said += chunk.toString();
    const [, url] = /listens on (\S+)/.exec(said) ?? [];
    if (url) listening.resolve(url);
  });
  const timer = setTimeout(() => listening.reject(new Error(`no start in time: ${log()}`)), START_TIMEOUT_MS);
  void exited.then(() => listening.reject(new Error(`the service ended instead of starting: ${log()}`)));
  try {
    return await listening.promise;
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** A process that is started ahead of need, so that a test that kills many waits for none. */
export function spareServers<Server extends ServerProcess>(
  start: () => Promise<Server>,
): {
  take(): Promise<Server>;
  close(): Promise<void>;
} {
  let spare = start();
  spare.catch(() => undefined);
  return {
    async take() {
      const taken = spare;
      const server = await taken;
      spare = start();
      spare.catch(() => undefined);
      return server;
    },
    close: async () => (await spare).kill(),
  };
}

/** An answer, or `undefined` where the connection broke before it. */
export async function tryTo<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof TypeError) return undefined; // what fetch throws for a network error
    throw error;
  }
}
