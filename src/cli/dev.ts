import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readConfig } from '../process/config.ts';
import { freshEnvironment } from '../config/environment.ts';
import { ConfigError } from '../core/errors.ts';
import { startEmbedded } from '../platform/db/embedded/embedded.ts';
import { onNpxEnd } from './npx.ts';
import { watchFiles } from './watch-files.ts';

/** Settings of the child process that shorten its shutdown, so that a reload does not wait for running invocations. */
const IMPATIENT = { DRAIN_DELAY_MS: '0', SHUTDOWN_GRACE_MS: '1000' };

/**
 * Runs the service with the development UI in a child process. When a file of an agent or a setting changes, and
 * `agent-runtime check` passes with it, a new child process replaces the old one. The embedded database keeps running.
 * @throws {ConfigError} if the settings are wrong at the start
 */
export async function dev(opensBrowser: boolean): Promise<void> {
  let embedded: Awaited<ReturnType<typeof startEmbedded>> | undefined;
  let places: string[] = [];
  // Variables of `.env` are not passed on, because the child process reads the current `.env` itself.
  const prepare = async () => {
    const { own, all } = freshEnvironment();
    const config = readConfig({ ...all, DEV_UI: 'true' });
    const { AGENTS_DIR, SKILLS_DIR, HARNESS_FILE = 'harness.yaml', DATABASE_URL } = config;
    if (DATABASE_URL === undefined) embedded ??= await startEmbedded({ dir: config.DATA_DIR });
    places = [AGENTS_DIR, ...(SKILLS_DIR === undefined ? [] : [SKILLS_DIR]), HARNESS_FILE, '.env'];
    const database = DATABASE_URL === undefined ? { DATABASE_URL: embedded?.url } : {};
    return { ...own, ...IMPATIENT, DEV_UI: 'true', ...database };
  };
  const service = createService(await prepare(), prepare, opensBrowser);
  const unwatch = watchFiles(() => places, service.reload);
  console.log(`Watching ${places.join(', ')}.`);
  let isStopping = false;
  await new Promise<void>((resolve) => {
    // Without a listener a second signal would end only this process, and leave its child and its PostgreSQL behind. The
    // child tells a signal that npm hands on after Ctrl-C from a second Ctrl-C, which ends it at once.
    const onSignal = () => {
      if (isStopping) service.signal();
      isStopping = true;
      resolve();
    };
    process.on('SIGINT', onSignal).on('SIGTERM', onSignal);
    onNpxEnd(resolve);
  });
  unwatch();
  await service.stop();
  await embedded?.stop();
}

type Environment = Record<string, string | undefined>;

/** Runs a command in its own process group: Ctrl-C reaches only this process, which stops the child in order. */
const runChild = (env: Environment, output: 'pipe' | 'ignore', ...args: string[]): ChildProcess =>
  spawn(process.execPath, [...process.execArgv, process.argv[1] ?? '', ...args], {
    env,
    stdio: ['ignore', output, 'inherit'],
    detached: true,
  });

const isRunning = ({ exitCode, signalCode }: ChildProcess) => exitCode === null && signalCode === null;

/** Starts the service in a child process. The result can replace that process or stop it. */
function createService(first: Environment, prepare: () => Promise<Environment>, opensBrowser: boolean) {
  let isOpened = !opensBrowser;
  let turn = Promise.resolve();
  const start = (env: Environment, ...args: string[]) => {
    const started = runChild(env, 'pipe', 'start', ...args);
    started.stdout?.on('data', (chunk: Buffer) => {
      process.stdout.write(chunk);
      const [, url] = /listens on (\S+)/.exec(chunk.toString()) ?? [];
      if (url !== undefined && !isOpened) openBrowser(url);
      isOpened ||= url !== undefined;
    });
    return started;
  };
  let child = start(first);
  const stop = async () => {
    if (!isRunning(child)) return;
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
  };
  /**
   * Runs `agent-runtime check` on the current files. Returns a new child's environment, or `undefined` after faults.
   */
  const check = async (): Promise<Environment | undefined> => {
    try {
      const env = await prepare();
      const [code] = await once(runChild(env, 'ignore', 'check'), 'exit');
      return code === 0 ? env : undefined;
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      console.error(error.message);
      return undefined;
    }
  };
  const replace = async (file: string) => {
    const env = await check();
    if (!env) return console.log(`${file} changed: not reloaded${isRunning(child) ? ', the one before goes on' : ''}.`);
    await stop();
    child = start(env, '--changed', file);
  };
  return {
    signal: () => child.kill('SIGTERM'),
    reload: (file: string) => void (turn = turn.then(() => replace(file))),
    stop: async () => {
      await turn;
      await stop();
    },
  };
}

/** Opens a URL in the browser. Does nothing if the machine has no browser. */
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
