import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { client, type TestApp } from './app.ts';
import { createTestDatabase } from './database.ts';
import { NODE_FLAGS } from './node-flags.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const WATCH = new URL('./loop-watch.ts', import.meta.url).href;

/**
 * CPU time within one turn of the event loop from which it counts as frozen, milliseconds. The goal on an idle machine
 * is 250; a freeze lasts for seconds.
 */
export const FROZEN_MS = 1_500;

/** What the main thread of a service did since it was last asked. */
interface LoopReport {
  /** Longest CPU time between two turns of its event loop, as on an idle machine of the usual speed, milliseconds. */
  longestMs: number;
  /** CPU time of each turn in which it had something to do, as measured. */
  turns: number[];
  /** How many times dearer the same work was at the end than there; 1 where no turn was long. */
  slowness: number;
  heapMb: number;
  /** Open connections, those to the database included. */
  sockets: number;
}

/** A service in a process of its own with a small heap, whose event loop is watched. */
export interface WatchedService extends TestApp {
  process: ChildProcess;
  /** Asks the event loop: this never answers while the loop is frozen. */
  report: () => Promise<LoopReport>;
}

/** Starts `node --max-old-space-size=512 src/main.ts` on a database of its own. The caller closes it. */
export async function startWatched(environment: Record<string, string> = {}): Promise<WatchedService> {
  const database = await createTestDatabase();
  const child = fork(MAIN, [], {
    cwd: mkdtempSync(join(tmpdir(), 'agent-runtime-watched-')),
    execArgv: ['--max-old-space-size=512', ...NODE_FLAGS, '--import', WATCH],
    env: { PATH: process.env['PATH'] ?? '', DATABASE_URL: database.url, PORT: '0', LOG_LEVEL: 'error', ...environment },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  const url = await listening(child);
  return {
    ...client(url),
    databaseUrl: database.url,
    process: child,
    report: async () => {
      const answer = once(child, 'message') as Promise<[LoopReport]>;
      child.send('report');
      return (await answer)[0];
    },
    close: async () => {
      if (child.exitCode === null && child.signalCode === null) {
        const ended = once(child, 'exit');
        child.kill('SIGKILL');
        await ended;
      }
      await database.drop();
    },
  };
}

function listening(child: ChildProcess): Promise<string> {
  let said = '';
  child.stderr?.on('data', (chunk: Buffer) => (said += chunk.toString()));
  return new Promise((resolve, reject) => {
    child.stdout?.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      const [url] = /http:\/\/[\d.]+:\d+/.exec(said) ?? [];
      if (url) resolve(url);
    });
    child.once('exit', (code) => reject(new Error(`the service ended with ${code}: ${said}`)));
  });
}
