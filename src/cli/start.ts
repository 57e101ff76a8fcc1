import { flushCompileCache } from 'node:module';
import { type Config, readConfig } from '../process/config.ts';
import { processEnvironment } from '../config/environment.ts';
import { isShorterThanStatements, SHORT_LEASE } from '../invocations/settings.ts';
import { openApiDocument } from '../platform/http/openapi/document.ts';
import { compileDocument } from '../platform/http/validation/openapi-gate.ts';
import { createLog, type Log } from '../platform/log.ts';
import { listAllOperations } from '../process/app.ts';
import { COMPONENTS } from '../process/app.ts';
import { describeHarness, modelText, readHarnessAgent } from '../process/host-agents.ts';
import { findDatabase, migrate } from '../process/open-database.ts';
import { type Runtime, startRuntime } from '../process/runtime.ts';
import { HARNESS_APP } from '../core/names.ts';
import { VERSION } from '../platform/version.ts';
import { onNpxEnd } from './npx.ts';
import { builtInTools } from '../agent/tools/registry.ts';
import type { HostedAgent } from '../conversation/apps/hosted-agent.ts';

/** Signals within this time count as one, because npm forwards Ctrl-C to a process that has received it already. */
const SAME_SIGNAL_MS = 1000;
/** Exit code if a second signal ends a process that is stopping: 128 + SIGINT, a convention of shells. */
const INTERRUPTED_EXIT_CODE = 130;

/** Runs the service. `changed`: the file for which `dev` restarted it. @throws {ConfigError} with a remedy */
export async function start(changed?: string): Promise<void> {
  const config = readConfig(processEnvironment());
  const log = createLog(config.LOG_LEVEL);
  const starting = startRuntime({ config, log });
  const stopping = stopOnSignals(starting, log);
  const runtime = await starting;
  if (changed !== undefined) console.log(`${changed} changed: reloaded, ${toBrowserUrl(runtime)}`);
  else if (!stopping.aborted) await printStart(config, runtime);
  if (sendsNoKey(config)) log.warn(NO_LOGIN);
  if (isShorterThanStatements(config)) log.warn(SHORT_LEASE);
  // Node writes its compile cache only when a process exits normally, which processes in containers seldom do.
  flushCompileCache();
}

/**
 * Applies migrations, or with `isCheck` only looks for missing ones.
 * @throws {ConfigError} if one is missing, or the database cannot be used
 */
export async function migrateOnly({ isCheck }: { isCheck: boolean }): Promise<void> {
  const config = readConfig(processEnvironment(), { listens: false });
  const source = await findDatabase(config);
  try {
    const applied = await migrate(source.access, isCheck ? 'check' : 'on-start', config);
    const outcome = applied.length > 0 ? `: applied ${applied.join(', ')}.` : ' has all that this version needs.';
    console.log(`${source.shown}${outcome}`);
  } finally {
    await source.stop();
  }
}

/** Prints the effective configuration of the agents. @throws {ConfigError} if the service could not start with it */
export async function check(): Promise<void> {
  process.stdout.write(await describeHarness(readConfig(processEnvironment(), { listens: false }), console.error));
}

const NO_LOGIN =
  'the development UI (DEV_UI) can send no credential: its pages open, and the operations under /dev/ that they ask ' +
  'refuse them with 401; use AUTH_MODE local for them, or give the operations a key';
const sendsNoKey = ({ DEV_UI, auth }: Config) => DEV_UI && auth.mode !== 'local';

/** Returns the service's URL for a browser, which cannot open the address 0.0.0.0. */
const toBrowserUrl = ({ url }: Runtime) => url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');

async function printStart(config: Config, runtime: Runtime): Promise<void> {
  const url = toBrowserUrl(runtime);
  const { model } = await readHarnessAgent(config);
  const lines = [
    `Agent runtime ${VERSION} listens on ${url} (documents: ${url}/docs)`,
    `  database  ${runtime.database}`,
    `  model     ${modelText(model)}`,
    `  mode      auth ${config.auth.mode}`,
    ...(runtime.served.has('console') ? [`  console   ${url}/console/`] : []),
    ...(config.DEV_UI && runtime.served.has('adk')
      ? [`  UI        ${url}/dev-ui/${sendsNoKey(config) ? ` (${NO_LOGIN})` : ''}`]
      : []),
    ...(runtime.metrics ? [`  metrics   ${runtime.metrics}`] : []),
    ...(config.auth.mode === 'jwt' ? [] : ['Try it:', ...toCommands(config, runtime).map((line) => `  ${line}`)]),
  ];
  console.log(lines.join('\n'));
}

function toCommands(config: Config, runtime: Runtime): string[] {
  const url = toBrowserUrl(runtime);
  const { app, prompt } = findExample(runtime.agents);
  const authorization = config.auth.keys ? " -H 'authorization: Bearer <a key of RUNTIME_API_KEYS>'" : '';
  const post = (path: string, body: object) => {
    // A single quote would end the quoted argument of the shell.
    const text = JSON.stringify(body).replaceAll("'", '\\u0027');
    return `curl -s ${url}${path} -H 'content-type: application/json'${authorization} -d '${text}'`;
  };
  if (app === HARNESS_APP) {
    const session = { user_id: 'u1', session_id: 's1' };
    return [post('/harness/invoke', { prompt, harness_name: 'demo', run_agent_request: session })];
  }
  const message = { newMessage: { role: 'user', parts: [{ text: prompt }] } };
  return [
    post(`/apps/${app}/users/u1/sessions/s1`, {}),
    post('/run', { appName: app, userId: 'u1', sessionId: 's1', ...message }),
  ];
}

/**
 * Stops the service at the first SIGTERM or Ctrl-C, even during its start. A second signal ends the process at once,
 * with the embedded PostgreSQL. An uncaught exception, e.g. in a timer of a tool, stops it like a signal.
 * @returns an abort signal that is aborted when the service begins to stop
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
  // Node reports unhandled rejections here too. The state of the process may be corrupt, so it takes no new work.
  process.on('uncaughtException', (err) => {
    const isFirst = process.exitCode !== 1;
    process.exitCode = 1;
    if (isFirst) log.fatal({ err }, 'nothing caught an exception: the process finishes what runs and ends');
    if (!stopping.signal.aborted) stop();
  });
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  onNpxEnd(() => {
    if (!stopping.signal.aborted) stop();
  });
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

/** The OpenAPI document has the operations of all modes. @throws {Error} if it is not valid OpenAPI */
export async function printOpenApi(): Promise<void> {
  const operations = listAllOperations();
  const document = openApiDocument(operations, { authMode: 'local', components: COMPONENTS });
  await compileDocument(document);
  process.stdout.write(`${JSON.stringify(document, null, 2)}\n`);
}

/** Finds an application that has a tool of its own, and a prompt with which even the offline model calls that tool. */
export function findExample(agents: ReadonlyMap<string, HostedAgent>): { app: string; prompt: string } {
  const builtIn = builtInTools();
  for (const [app, agent] of agents) {
    const own = agent.describe().tools.find(({ name }) => !builtIn.has(name));
    if (own) return { app, prompt: `${own.name} ${JSON.stringify(toExample(own.parameters))}` };
  }
  return { app: HARNESS_APP, prompt: 'What is 17 * 23? Use the calculator.' };
}

interface Schema extends Partial<Record<'default' | 'const' | 'type', unknown>> {
  examples?: unknown[];
  enum?: unknown[];
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  minItems?: number;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
}

/**
 * An example of a JSON Schema: objects get only required members; patterns and formats are ignored.
 * @param name what a text says that may be any
 */
export function toExample(schema: Schema, name = 'text'): unknown {
  const value = schema.default ?? schema.const ?? schema.examples?.[0] ?? schema.enum?.[0];
  if (value !== undefined) return value;
  const { type, anyOf, required = [], properties = {} } = schema;
  if (anyOf?.[0]) return toExample(anyOf[0], name);
  if (type === 'string') return name.padEnd(schema.minLength ?? 0, '.').slice(0, schema.maxLength);
  if (type === 'integer' || type === 'number') return Math.max(schema.minimum ?? 1, 1);
  if (type === 'boolean') return true;
  if (type === 'array') return Array.from({ length: schema.minItems ?? 0 }, () => toExample(schema.items ?? {}, name));
  return Object.fromEntries(required.map((each) => [each, toExample(properties[each] ?? {}, each)]));
}
