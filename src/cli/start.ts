import { flushCompileCache } from 'node:module';
import { type Config, readConfig } from '../config/config.ts';
import { processEnvironment } from '../config/environment.ts';
import { openApiDocument } from '../platform/http/openapi/document.ts';
import { compileDocument } from '../platform/http/validation/openapi-gate.ts';
import { createLog, type Log } from '../platform/log.ts';
import { listOperations } from '../process/app.ts';
import { COMPONENTS } from '../process/components.ts';
import { describeHarness, modelText, readHarnessAgent } from '../process/host-agents.ts';
import { findDatabase, migrate } from '../process/open-database.ts';
import { type Runtime, startRuntime } from '../process/runtime.ts';
import { VERSION } from '../process/version.ts';

/** Signals that follow sooner repeat the first: npm forwards one that the terminal sent to the whole group. */
const SAME_SIGNAL_MS = 1000;
/** Exit code of a process that got a second signal while it was stopping: 128 + SIGINT, as shells expect. */
const INTERRUPTED_EXIT_CODE = 130;

/** Runs the service until a signal. @throws {ConfigError} when it cannot start, with a remedy */
export async function start(): Promise<void> {
  const config = readConfig(processEnvironment());
  const log = createLog(config.LOG_LEVEL);
  const starting = startRuntime({ config, log });
  const stopping = stopOnSignals(starting, log);
  const runtime = await starting;
  if (!stopping.aborted) await printStart(config, runtime);
  // Node writes its compile cache only when a process ends by itself, which a container seldom does.
  flushCompileCache();
}

/** Applies the migrations; with `isCheck` only checks that none is missing. @throws {ConfigError} as a start does */
export async function migrateOnly({ isCheck }: { isCheck: boolean }): Promise<void> {
  const config = readConfig(processEnvironment(), { listens: false });
  const source = await findDatabase(config);
  try {
    await migrate(source.access, isCheck ? 'check' : 'on-start', config);
    if (isCheck) console.log(`${source.shown} has all that this version needs.`);
  } finally {
    await source.stop();
  }
}

/** Prints the effective configuration. @throws {ConfigError} where it cannot be served */
export async function check(): Promise<void> {
  process.stdout.write(await describeHarness(readConfig(processEnvironment(), { listens: false }), console.error));
}

async function printStart(config: Config, { url: bound, database, metrics }: Runtime): Promise<void> {
  // The address for a browser, which cannot open 0.0.0.0.
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
 * Drains and stops at the first SIGTERM or Ctrl-C, also during the start; a later one ends the process at once, and the
 * embedded PostgreSQL with it. An exception that nothing caught, as in a timer of a tool, stops it in the same way.
 * @returns a signal that aborts with the first one
 */
function stopOnSignals(starting: Promise<Runtime>, log: Log): AbortSignal {
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
  // Rejections that nothing handles come here too. State of the process may be wrong, so it takes no new work.
  process.on('uncaughtException', (err) => {
    const isFirst = process.exitCode !== 1;
    process.exitCode = 1;
    if (isFirst) log.fatal({ err }, 'nothing caught an exception: the process finishes what runs and ends');
    if (!stopping.signal.aborted) stop();
  });
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  return stopping.signal;
}

async function close(runtime: Runtime): Promise<void> {
  try {
    await runtime.close();
    process.exit();
  } catch (error) {
    console.error(error);
    process.exit(1);
  }
}

/** Prints the document of all operations of all modes. @throws {Error} when it is not a valid OpenAPI document */
export async function printOpenApi(): Promise<void> {
  const operations = listOperations({ isDevelopment: true, isShared: false, hasCronjobs: true, hasWebhooks: true });
  const document = openApiDocument(operations, { authMode: 'local', components: COMPONENTS });
  await compileDocument(document);
  process.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
}
