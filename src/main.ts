import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { listOperations } from './app.ts';
import { COMPONENTS } from './components.ts';
import { describeHarness, modelText, readHarnessAgent } from './host-agents.ts';
import { type Config, processEnvironment, readConfig } from './core/config.ts';
import { AppError } from './core/errors.ts';
import { createKey } from './http/access/key-ring.ts';
import { openApiDocument } from './http/openapi/document.ts';
import { type Scope, USER_SCOPES } from './http/operation/principal.ts';
import { compileDocument } from './http/validation/openapi-gate.ts';
import { createLog } from './core/log.ts';
import { migrate, type Runtime, startRuntime } from './runtime.ts';

const HELP = `Agent runtime: an HTTP service that hosts an agent and keeps its sessions in PostgreSQL.

  node src/main.ts                  start the service
  node src/main.ts --migrate        apply the migrations to DATABASE_URL and end
  node src/main.ts --check          print the effective configuration of the agent and end
  node src/main.ts --print-openapi  print the OpenAPI document with every operation and end
  node src/main.ts --create-key     print a new runtime key and its line for RUNTIME_API_KEYS_FILE and end; limits:
                                    --scopes read,write --users u1,u2 --apps a --expires 2030-01-01T00:00:00Z --id name
  node src/main.ts --help           this text

Settings are environment variables, or lines of a file .env; docs/configuration.md lists them.
`;

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string;
};
/**
 * A signal that comes sooner after the first is that one again: npm hands on what a terminal sent to all of its group.
 */
const SAME_SIGNAL_MS = 1000;
/** Exit code of a process that got a second signal while it was stopping: 128 + SIGINT, as shells expect. */
const INTERRUPTED_EXIT_CODE = 130;

try {
  await main();
} catch (error) {
  const isForPeople = error instanceof AppError || (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS');
  console.error(isForPeople ? (error as Error).message : error);
  process.exitCode = 1;
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      migrate: { type: 'boolean' },
      check: { type: 'boolean' },
      'print-openapi': { type: 'boolean' },
      'create-key': { type: 'boolean' },
      scopes: { type: 'string' },
      users: { type: 'string' },
      apps: { type: 'string' },
      expires: { type: 'string' },
      id: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) return void process.stdout.write(HELP);
  if (values['print-openapi']) return printOpenApi();
  if (values['create-key']) return printKey(values);
  const config = readConfig(processEnvironment());
  if (values.check) return void process.stdout.write(await describeHarness(config, console.error));
  if (values.migrate && config.DATABASE_URL) return migrate(config.DATABASE_URL);
  const starting = startRuntime({ config, log: createLog(config.LOG_LEVEL), version });
  if (values.migrate) return (await starting).close();
  const stopping = stopOnSignals(starting);
  const runtime = await starting;
  if (!stopping.aborted) printStart(config, runtime);
}

/**
 * Every operation of every mode, as the committed copy has it. @throws Error when it is not a valid OpenAPI document.
 */
async function printOpenApi(): Promise<void> {
  const document = openApiDocument(listOperations({ isDevelopment: true, isShared: false, hasCronjobs: true }), {
    authMode: 'local',
    components: COMPONENTS,
  });
  await compileDocument(document);
  process.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
}

/** What the options of `--create-key` say, each a list with commas. */
type KeyOptions = Partial<Record<'scopes' | 'users' | 'apps' | 'expires' | 'id', string>>;

function printKey({ scopes, users, apps, expires, id }: KeyOptions): void {
  const { key, entry } = createKey({
    id,
    scopes: (scopes?.split(',') ?? [...USER_SCOPES]) as Scope[],
    users: users?.split(','),
    apps: apps?.split(','),
    expires,
  });
  console.log(`The key, shown once, for its holder:\n${key}\nIts line for RUNTIME_API_KEYS_FILE:\n${entry}`);
}

function printStart(config: Config, { url, database }: Runtime): void {
  const { model } = readHarnessAgent(config);
  const modes = [`auth ${config.auth.mode}`, ...(config.DEV_UI ? ['development UI'] : [])].join(', ');
  const authorization = config.auth.mode === 'key' ? " -H 'authorization: Bearer <a key of RUNTIME_API_KEYS>'" : '';
  const request = {
    prompt: 'What is 17 * 23? Use the calculator.',
    harness_name: 'demo',
    run_agent_request: { user_id: 'u1', session_id: 's1' },
  };
  const lines = [
    `Agent runtime ${version} listens on ${url} (documents: ${url}/docs)`,
    `  database  ${database}`,
    `  model     ${modelText(model)}`,
    `  mode      ${modes}`,
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
