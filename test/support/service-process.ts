import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The entry of the service. */
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
/** An empty directory: no `.env`, no `harness.yaml`, no `agents`. */
const elsewhere = mkdtempSync(join(tmpdir(), 'agent-runtime-process-'));

/** Code that one process has compiled and the next one need not: a start takes a third less. */
const compiled = join(tmpdir(), `agent-runtime-compiled-${process.getuid?.() ?? 0}`);

/** What a process said until it ended. */
interface Ended {
  code: number | null;
  out: string;
  error: string;
}

/** A process that a test started. */
export interface ServiceProcess {
  child: ChildProcess;
  /** Settles when the process and everything that shares its output have ended. */
  end: Promise<Ended>;
  /** What it has said so far; `code` is null. */
  ended: Ended;
  /** Settles when it has printed the text; rejects when it ends instead. */
  until: (text: string) => Promise<void>;
}

/** Starts a program from a directory that is not the project's, with these variables and PATH only. */
export function startProcess(
  command: string,
  args: string[],
  environment: Record<string, string>,
  options: { cwd?: string; detached?: boolean; uid?: number; gid?: number } = {},
): ServiceProcess {
  const child: ChildProcess = spawn(command, args, {
    cwd: elsewhere,
    env: { PATH: process.env['PATH'] ?? '', NODE_COMPILE_CACHE: compiled, ...environment },
    ...options,
  });
  const ended: Ended = { code: null, out: '', error: '' };
  const waiting: { text: string; found: () => void }[] = [];
  child.stdout?.on('data', (chunk: Buffer) => {
    ended.out += chunk.toString();
    for (const { text, found } of waiting) if (ended.out.includes(text)) found();
  });
  child.stderr?.on('data', (chunk: Buffer) => (ended.error += chunk.toString()));
  const end = new Promise<Ended>((resolve) => child.on('close', (code) => resolve({ ...ended, code })));
  const until = (text: string) =>
    Promise.race([
      new Promise<void>((found) => {
        waiting.push({ text, found });
        if (ended.out.includes(text)) found();
      }),
      end.then(({ error, out }) => Promise.reject(new Error(`it ended before "${text}": ${error}${out}`))),
    ]);
  return { child, end, until, ended };
}

/** Starts `node src/main.ts` with these variables and arguments. */
export const startService = (environment: Record<string, string>, ...args: string[]): ServiceProcess =>
  startProcess(process.execPath, [MAIN, ...args], environment);
