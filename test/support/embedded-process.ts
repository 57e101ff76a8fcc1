import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { startEmbedded } from '../../src/platform/db/embedded/embedded.ts';

/** What a process that started an embedded server says about it. */
export interface EmbeddedProcess {
  process: ChildProcess;
  url: string;
  home: string;
}

/** How the process differs from the current one. */
export interface ProcessOptions {
  uid?: number;
  gid?: number;
  /** Arguments for node itself. */
  nodeArguments?: string[];
}

/**
 * Starts the embedded server of `dir` in a process of its own, away from the project's directory and without LANG or
 * PATH.
 */
export async function spawnEmbedded(
  dir: string,
  { nodeArguments = [], ...ids }: ProcessOptions = {},
): Promise<EmbeddedProcess> {
  const args = [...nodeArguments, fileURLToPath(import.meta.url), dir];
  const child = spawn(process.execPath, args, { ...ids, cwd: '/', env: {}, stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', (text: Buffer) => (said += text.toString()));
  for await (const line of createInterface({ input: child.stdout })) return { process: child, ...JSON.parse(line) };
  throw new Error(said);
}

/** Ends the process: at `SIGTERM` it stops its server, at `SIGUSR2` it exits without a word, at `SIGKILL` it cannot. */
export async function endProcess(child: ChildProcess, signal: 'SIGTERM' | 'SIGUSR2' | 'SIGKILL'): Promise<void> {
  const ended = once(child, 'exit');
  child.kill(signal);
  await ended;
}

const [, script, directory] = process.argv;
if (script === fileURLToPath(import.meta.url) && directory) {
  const server = await startEmbedded({ dir: directory });
  process.stdin.resume().once('end', () => void server.stop()); // also ends when the test process was killed
  process.once('SIGUSR2', () => process.exit());
  process.once('SIGTERM', () => void server.stop().then(() => process.stdin.destroy()));
  console.log(JSON.stringify(server));
}
