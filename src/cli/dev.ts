import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, watch } from 'node:fs';
import { readConfig } from '../config/config.ts';
import { processEnvironment } from '../config/environment.ts';
import { startEmbedded } from '../platform/db/embedded/embedded.ts';

/** Debounce of restarts: editors write a file in several steps. */
const SETTLE_MS = 200;
/** Settings for a restart after a change: running work is cut off soon. */
const IMPATIENT = { DRAIN_DELAY_MS: '0', SHUTDOWN_GRACE_MS: '1000' };

/**
 * Runs the service with the development UI in a child process, which is replaced when a file of the agent changes. The
 * embedded database keeps running.
 * @throws {ConfigError} when the settings are wrong
 */
export async function dev(opensBrowser: boolean): Promise<void> {
  const environment = processEnvironment();
  const config = readConfig({ ...environment, DEV_UI: 'true' });
  const embedded = config.DATABASE_URL === undefined ? await startEmbedded({ dir: config.DATA_DIR }) : undefined;
  const databaseUrl = config.DATABASE_URL ?? embedded?.url ?? '';
  const env = { ...environment, ...IMPATIENT, DEV_UI: 'true', DATABASE_URL: databaseUrl };
  const service = createService(env, opensBrowser);
  const files = [config.AGENTS_DIR, config.SKILLS_DIR, config.HARNESS_FILE ?? 'harness.yaml', '.env'];
  const watchers = files.flatMap((path) =>
    path !== undefined && existsSync(path) ? [watch(path, { recursive: true }, service.restartSoon)] : [],
  );
  console.log(`Watching ${files.filter((path) => path !== undefined && existsSync(path)).join(', ') || 'no files'}.`);
  await new Promise((resolve) => process.once('SIGINT', resolve).once('SIGTERM', resolve));
  for (const watcher of watchers) watcher.close();
  await service.stop();
  await embedded?.stop();
}

/** Starts the service in a child process that can be restarted. */
function createService(env: Record<string, string | undefined>, opensBrowser: boolean) {
  let isOpened = !opensBrowser;
  let timer: NodeJS.Timeout | undefined;
  let turn = Promise.resolve();
  const start = () => {
    const child = spawn(process.execPath, [...process.execArgv, process.argv[1] ?? '', 'start'], {
      env,
      stdio: ['ignore', 'pipe', 'inherit'],
      // Ctrl-C is for this process, which stops the child in order.
      detached: true,
    });
    child.stdout.on('data', (chunk: Buffer) => {
      process.stdout.write(chunk);
      const [, url] = /listens on (\S+)/.exec(chunk.toString()) ?? [];
      if (url !== undefined && !isOpened) openBrowser(url);
      isOpened ||= url !== undefined;
    });
    return child;
  };
  let child: ChildProcess = start();
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  };
  const restart = async () => {
    await stop();
    console.log('Changed: started again.');
    child = start();
  };
  return {
    restartSoon: () => {
      clearTimeout(timer);
      timer = setTimeout(() => void (turn = turn.then(restart)), SETTLE_MS);
    },
    stop: async () => {
      clearTimeout(timer);
      await turn;
      await stop();
    },
  };
}

/** Opens a page in the browser, where there is one. */
function openBrowser(url: string): void {
  const [program, args] =
    process.platform === 'darwin'
      ? ['open', [url]]
      : process.platform === 'win32'
        ? ['cmd', ['/c', 'start', '', url]]
        : ['xdg-open', [url]];
  spawn(program, args, { stdio: 'ignore', detached: true })
    .on('error', () => undefined)
    .unref();
}
