import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Context, createApp } from './app.ts';
import { hostAgents } from './host-agents.ts';
import { openContentStore } from './artifacts/open-content-store.ts';
import type { Config } from './core/config.ts';
import { type DatabasePool, openDatabase } from './db/database.ts';
import { startEmbedded } from './db/embedded/embedded.ts';
import { migrateDatabase } from './db/migrate.ts';
import { openNotifications } from './db/notifications.ts';
import { AgentError, ConfigError } from './core/errors.ts';
import { answerClientError } from './http/error-handler.ts';
import { type Admission, createAdmission } from './invocations/admission.ts';
import { sweepRegularly } from './sweeper.ts';
import type { Log } from './core/log.ts';

/** A runtime that listens. */
export interface Runtime {
  /** Where it listens, e.g. `http://127.0.0.1:8000`. */
  url: string;
  /** The database for people: where it is, without a password. */
  database: string;
  /** Stops: no new work, a grace period for what runs, then everything that was started ends. Safe to call twice. */
  close(): Promise<void>;
}

/** What a runtime is made with beside its settings; tests give their own parts of the context. */
export interface RuntimeOptions {
  config: Config;
  log: Log;
  version: string;
  overrides?: Partial<Context>;
}

/**
 * Share of the grace period that running invocations have to end in by themselves; the rest is for storing their
 * interruption.
 */
const GRACE_SHARE = 0.9;
/** Time between two looks for idle connections of a stopping server. */
const IDLE_LOOK_MS = 20;

/**
 * Starts everything: the embedded PostgreSQL if none is given, migrations, the agents, the server.
 * @throws {ConfigError} when a part cannot start, with what to do about it.
 */
export async function startRuntime({ config, log, version, overrides = {} }: RuntimeOptions): Promise<Runtime> {
  const source = await findDatabase(config);
  const [draining, stopping] = [new AbortController(), new AbortController()];
  await migrate(source.url).catch(async (error: unknown) => {
    await source.stop();
    throw error;
  });
  const database = openPool(config, source.url, log);
  const notifications = openNotifications(source.url, (error) => log.warn({ err: error }, 'notifications broke'));
  const admission = createAdmission(config.MAX_INVOCATIONS);
  // Loaded only where it is used: the OpenTelemetry SDK takes 50 to 100 ms of the start.
  const tracing = config.DEV_UI ? (await import('./traces/tracing.ts')).createTracing(database.db, log) : undefined;
  const closeDatabase = async () => {
    await tracing?.close();
    await notifications.close();
    await database.close();
    await source.stop();
  };
  try {
    const context: Context = {
      config,
      log,
      version,
      database,
      notifications,
      admission,
      tracing,
      contentStore: await openContentStore(config),
      agents: await hostAgents(config),
      newId: randomUUID,
      now: () => Date.now() / 1000,
      leaseTimes: {
        durationMs: config.SESSION_LEASE_MS,
        renewalMs: config.SESSION_LEASE_MS / 3,
        waitMs: config.SESSION_WAIT_MS,
      },
      limits: {
        timeoutMs: config.INVOCATION_TIMEOUT_MS,
        toolCalls: config.MAX_TOOL_CALLS,
        eventBytes: config.MAX_EVENT_BYTES,
        queueDepth: config.SESSION_QUEUE_DEPTH,
      },
      busyPolicy: config.DOUBLE_TEXTING,
      cancelOnDisconnect: config.ON_DISCONNECT === 'cancel',
      draining: draining.signal,
      stopping: stopping.signal,
      isAccepting: () => !draining.signal.aborted,
      ...overrides,
    };
    const server = await listen(createServer(await createApp(context)), config);
    const sweeping = sweepRegularly(
      { ...context, traceHours: config.TRACE_RETENTION_HOURS },
      config.SWEEP_INTERVAL_MS,
      draining.signal,
    );
    const close = async () => {
      draining.abort();
      const tellToStop = () =>
        stopping.abort(new AgentError('interrupted', 'The invocation was interrupted: the service is stopping.'));
      await closeServer(server, admission, config.SHUTDOWN_GRACE_MS, tellToStop);
      await sweeping;
      await closeDatabase();
    };
    let closed: Promise<void> | undefined;
    return { url: urlOf(server), database: source.shown, close: () => (closed ??= close()) };
  } catch (error) {
    await closeDatabase();
    throw error;
  }
}

/** A database and what ends it. */
interface DatabaseSource {
  url: string;
  shown: string;
  stop(): Promise<void>;
}

async function findDatabase({ DATABASE_URL, DATA_DIR }: Config): Promise<DatabaseSource> {
  if (DATABASE_URL === undefined) {
    const embedded = await startEmbedded({ dir: DATA_DIR });
    return { url: embedded.url, shown: `embedded PostgreSQL in ${embedded.home}`, stop: () => embedded.stop() };
  }
  if (!URL.canParse(DATABASE_URL)) {
    throw new ConfigError('DATABASE_URL: found a wrong value; allowed: postgres://user:password@host:port/database.');
  }
  const { host, pathname } = new URL(DATABASE_URL);
  return { url: DATABASE_URL, shown: `PostgreSQL at ${host}${pathname}`, stop: async () => undefined };
}

const openPool = (config: Config, url: string, log: Log): DatabasePool =>
  openDatabase({
    url,
    size: config.DATABASE_POOL_SIZE,
    statementTimeoutMs: config.DATABASE_STATEMENT_TIMEOUT_MS,
    lockTimeoutMs: config.DATABASE_LOCK_TIMEOUT_MS,
    maxStateBytes: config.MAX_STATE_BYTES,
    connectTimeoutMs: config.DATABASE_CONNECT_TIMEOUT_MS,
    onIdleError: ({ message }) => log.warn({ reason: message }, 'a database connection broke'),
  });

/** Applies the migrations. @throws {ConfigError} when the database cannot be reached, without its password. */
export async function migrate(url: string): Promise<void> {
  await migrateDatabase(url).catch((error: unknown) => {
    const { host } = new URL(url);
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`The database at ${host} cannot be used: ${reason}. Check DATABASE_URL.`, { cause: error });
  });
}

function listen(server: Server, { HOST, PORT }: Config): Promise<Server> {
  // Slow senders must not hold sockets (reliability B12); answers may take as long as an invocation.
  server.headersTimeout = 10_000;
  server.requestTimeout = 60_000;
  server.keepAliveTimeout = 65_000;
  server.on('clientError', answerClientError);
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(new ConfigError(whyNotListening(error, HOST, PORT))));
    server.listen(PORT, HOST, () => resolve(server));
  });
}

function whyNotListening({ code, message }: NodeJS.ErrnoException, host: string, port: number): string {
  if (code === 'EADDRINUSE') return `PORT: ${port} is taken on ${host}; choose another, for example PORT=${port + 1}.`;
  if (code === 'EACCES') return `PORT: ${port} needs more rights than this user has; choose one above 1023.`;
  return `HOST: cannot listen on ${host}: ${message}.`;
}

function urlOf(server: Server): string {
  const { address, port, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/**
 * Ends a server: running requests and invocations may finish, are told to stop when most of the grace period is over,
 * and their connections are cut at its end.
 */
async function closeServer(
  server: Server,
  admission: Admission,
  graceMs: number,
  tellToStop: () => void,
): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // A kept-alive connection becomes idle when its last answer has gone out, which may be later.
  const idle = setInterval(() => server.closeIdleConnections(), IDLE_LOOK_MS);
  const ended = Promise.all([closed, admission.whenIdle()]);
  const over = new AbortController();
  const wait = (ms: number) => sleep(ms, undefined, { signal: over.signal }).catch(() => undefined);
  await Promise.race([ended, wait(graceMs * GRACE_SHARE)]);
  tellToStop();
  await Promise.race([ended, wait(graceMs * (1 - GRACE_SHARE))]);
  over.abort();
  server.closeAllConnections();
  await closed;
  clearInterval(idle);
}
