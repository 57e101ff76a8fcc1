import { flushCompileCache } from 'node:module';
import { describeHarness, modelText, readHarnessAgent } from '../process/host-agents.ts';
import { type Config, readConfig } from '../config/config.ts';
import { processEnvironment } from '../config/environment.ts';
import { createLog } from '../platform/log.ts';
import { findDatabase, migrate } from '../process/open-database.ts';
import { type Runtime, startRuntime } from '../process/runtime.ts';
import { VERSION } from '../process/version.ts';

/**
 * A signal that comes sooner after the first is that one again: npm hands on what a terminal sent to all of its group.
 */
const SAME_SIGNAL_MS = 1000;
/** Exit code of a process that got a second signal while it was stopping: 128 + SIGINT, as shells expect. */
const INTERRUPTED_EXIT_CODE = 130;

/** Starts the service; it ends with a signal. @throws {ConfigError} when it cannot start, with what to do about it. */
export async function start(): Promise<void> {
  const config = readConfig(processEnvironment());
  const starting = startRuntime({ config, log: createLog(config.LOG_LEVEL) });
  const stopping = stopOnSignals(starting);
  const runtime = await starting;
  if (!stopping.aborted) await printStart(config, runtime);
  // Node keeps what it compiled when a process ends by itself, which a container seldom does.
  flushCompileCache();
}

/**
 * Applies the migrations, to the embedded database where no other is named; with `isCheck` it only looks, and says
 * where nothing is missing. @throws {ConfigError} as a start does.
 */
export async function migrateOnly({ isCheck }: { isCheck: boolean }): Promise<void> {
  const source = await findDatabase(readConfig(processEnvironment(), { listens: false }));
  try {
    await migrate(source.access, isCheck ? 'check' : 'on-start');
    if (isCheck) console.log(`${source.shown} has all that this version needs.`);
  } finally {
    await source.stop();
  }
}

/** Prints what would be served. @throws {ConfigError} for what cannot be. */
export async function check(): Promise<void> {
  process.stdout.write(await describeHarness(readConfig(processEnvironment(), { listens: false }), console.error));
}

async function printStart(config: Config, { url: bound, database, metrics }: Runtime): Promise<void> {
  // What is typed into a browser: every address of a machine is none.
  const url = bound.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
  const { model } = await readHarnessAgent(config);
  const modes = [`auth ${config.auth.mode}`, ...(config.DEV_UI ? ['development UI'] : [])].join(', ');
  const authorization = config.auth.mode === 'key' ? " -H 'authorization: Bearer <a key of RUNTIME_API_KEYS>'" : '';
  const request = {
    prompt: 'What is 17 * 23? Use the calculator.',
    harness_name: 'demo',
    run_agent_request: { user_id: 'u1', session_id: 's1' },
  };
  const lines = [
    `Agent runtime ${VERSION} listens on ${url} (documents: ${url}/docs)`,
    `  database  ${database}`,
    `  model     ${modelText(model)}`,
    `  mode      ${modes}`,
    ...(metrics ? [`  metrics   ${metrics}`] : []),
  ];
  if (config.auth.mode !== 'jwt') {
    lines.push(
      'Try it:',
      `  curl -s ${url}/harness/invoke -H 'content-type: application/json'${authorization} ` +
        `-d '${JSON.stringify(request)}'`,
    );
  }
  console.log(lines.join('\n'));
}

/**
 * The first SIGTERM or Ctrl-C drains and stops, also during the start; a later one ends at once, and the embedded
 * PostgreSQL with it. The signal that is returned says that it has come.
 */
function stopOnSignals(starting: Promise<Runtime>): AbortSignal {
  const stopping = new AbortController();
  let firstAt = 0;
  const stop = () => {
    if (stopping.signal.aborted) {
      if (performance.now() - firstAt >= SAME_SIGNAL_MS) process.exit(INTERRUPTED_EXIT_CODE);
      return;
    }
    stopping.abort();
    firstAt = performance.now();
    console.log('Stopping; running requests may finish. Once more to end at once.');
    starting.then(close, () => undefined); // a start that fails is reported by main
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  return stopping.signal;
}

async function close(runtime: Runtime): Promise<void> {
  try {
    await runtime.close();
    process.exit(0);
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}
