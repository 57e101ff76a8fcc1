import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { Express } from 'express';
import { createApp, toAppAliases } from './app.ts';
import type { Config } from './config.ts';
import { type Context, FEATURES, type FeatureContext, toFeatureContext } from './context.ts';
import { type HostedSources, hostAgents, openAccess } from './host-agents.ts';
import { logInvocations, toKnownNames, openMetricsIfWanted, openTracingIfWanted } from './observability.ts';
import { VERSION } from '../platform/version.ts';
import { openAudit, type OpenAudit } from '../platform/http/audit/audit.ts';
import { mayChangeEntries } from '../platform/http/audit/audit-store.ts';
import { keepVersions } from '../conversation/apps/versions.ts';
import { openContentStore } from '../conversation/artifacts/s3-content.ts';
import { describeAnonymous } from '../config/access.ts';
import { openNotifications } from '../platform/db/notifications.ts';
import { AgentError } from '../core/errors.ts';
import { INPUT_LIMITS } from '../core/limits.ts';
import { createAdmission } from '../invocations/admission.ts';
import { createBodySlots, createSlots } from '../platform/http/limits/caller-limits.ts';
import { isWebSocketUpgrade, createSockets } from '../platform/http/operation/sockets.ts';
import { createInvokerList } from '../platform/http/access/key-ring.ts';
import { DeltaBatches } from '../invocations/delta-batches.ts';
import { SessionFeeds } from '../invocations/session-feed.ts';
import { renewPlaces } from '../invocations/queue-store.ts';
import { WaitQueue } from '../invocations/wait-queue.ts';
import {
  type DatabaseAccess,
  type DatabaseSource,
  findDatabase,
  migrate,
  openPool,
  openTools,
  toWaitMs,
} from './open-database.ts';
import { type CloseOptions, endWithin, listen } from './server.ts';
import { HistoryCache } from '../conversation/sessions/history.ts';
import { sweepRegularly } from './sweeper.ts';
import type { Log } from '../platform/log.ts';
import { observeInvocations } from '../observability/metrics/measure.ts';
import type { OpenMetrics } from '../observability/metrics/open-metrics.ts';

export interface Runtime {
  /** The service's address, e.g. `http://127.0.0.1:8000`. */
  url: string;
  /** The address of the database, without a password, to show to people. */
  database: string;
  /** The applications that this process serves, by name. */
  agents: Context['agents'];
  /** Names of the features that this process serves. */
  served: ReadonlySet<string>;
  /** The address of the metrics; `undefined` if metrics are not served. */
  metrics: string | undefined;
  /** Stops the service: takes no new work, waits a grace period for running work, then ends all work. Idempotent. */
  close(): Promise<void>;
}

/** The running service without an HTTP server. A server that the process already has passes requests to `app`. */
export interface OpenRuntime extends Omit<Runtime, 'url'> {
  app: Express;
  attach(server: Server): void;
  /** Stops the service like `close`, and stops the HTTP server by calling `end`. */
  closeWith(end: (options: CloseOptions) => Promise<void>): Promise<void>;
}

/** Options of a start. Tests replace members of the context by `overrides`. */
export interface RuntimeOptions extends HostedSources {
  config: Config;
  log: Log;
  overrides?: Partial<Context>;
}

/** Interval in milliseconds of Node's check for requests that take too long to arrive. Node's default: 30 s. */
const REQUEST_CHECK_MS = 1_000;

/**
 * Maximum number of a caller's refusals in the audit per minute, so that a client in a loop does not fill the table.
 */
const AUDITED_REFUSALS_PER_MINUTE = 60;
/** Maximum bytes of cached session histories as JSON; parsed they take about three times as much memory. */
const HISTORY_CACHE_BYTES = 16_777_216;
/** Maximum number of a caller's concurrent replays: each costs its invocation's CPU, but waits for no model. */
const REPLAYS_PER_USER = 2;
/** Starts embedded PostgreSQL, migrations, agents and HTTP server. @throws {ConfigError} with a remedy */
export async function startRuntime(options: RuntimeOptions): Promise<Runtime> {
  const runtime = await openRuntime(options);
  const shouldUpgradeCallback = isWebSocketUpgrade(FEATURES.flatMap(({ sockets }) => sockets ?? []));
  const server = createServer({ connectionsCheckingInterval: REQUEST_CHECK_MS, shouldUpgradeCallback }, runtime.app);
  runtime.attach(server);
  try {
    const listener = await listen(server, options.config);
    let closed: Promise<void> | undefined;
    const close = () => (closed ??= runtime.closeWith((end) => listener.close(end)));
    return { ...runtime, url: listener.url, close };
  } catch (error) {
    await runtime.close();
    throw error;
  }
}

/** Starts the whole service except an HTTP server. @throws {ConfigError} with a remedy */
export async function openRuntime(options: RuntimeOptions): Promise<OpenRuntime> {
  const { config, log } = options;
  if (config.misspelt.length > 0) log.warn(config.misspelt.join(' '));
  const anonymous = describeAnonymous(config);
  if (anonymous !== undefined) log.warn(anonymous);
  const resources = await openResources(options);
  const stops = { draining: new AbortController(), stopping: new AbortController() };
  let tools: Context['tools'];
  try {
    const opened = await toContext(options, resources, stops);
    tools = opened.tools;
    const context = toFeatureContext(opened);
    await Promise.all(FEATURES.map(async (feature) => feature.open?.(context)));
    observeServices(context);
    const app = createApp(context);
    const background = startBackground(context, resources.source.access, stops.draining.signal);
    const closeWith: OpenRuntime['closeWith'] = async (end) => {
      stops.draining.abort();
      const reason = new AgentError('interrupted', 'The invocation was interrupted: the service is stopping.');
      const interrupt = () => stops.stopping.abort(reason);
      const { DRAIN_DELAY_MS: drainMs, SHUTDOWN_GRACE_MS: graceMs } = config;
      const whenEnded = async () => void (await Promise.all([resources.admission.whenIdle(), background.worked]));
      await end({ drainMs, graceMs, whenEnded, interrupt });
      await background.swept;
      await tools?.close();
      await resources.close();
    };
    let closed: Promise<void> | undefined;
    const close = () =>
      (closed ??= closeWith(({ graceMs, whenEnded, interrupt }) =>
        endWithin({ graceMs, ended: whenEnded(), interrupt }),
      ));
    const attach = (server: Server) => context.sockets.attach(server, app);
    const shown = { database: resources.source.shown, metrics: resources.metrics?.url };
    return { app, attach, agents: context.agents, served: context.served, ...shown, close, closeWith };
  } catch (error) {
    await tools?.close();
    await resources.close();
    throw error;
  }
}

/** Starts all workers and the sweeper. `worked` settles when no job runs any more, `swept` after the last sweep. */
function startBackground(
  context: FeatureContext,
  { serving, direct: address = serving }: DatabaseAccess,
  signal: AbortSignal,
) {
  const connection = { address, connectTimeoutMs: toWaitMs(context.config) };
  const workers = FEATURES.flatMap((feature) => feature.workers ?? []);
  return {
    worked: Promise.all(workers.map(async (work) => work(context))),
    swept: sweepRegularly({ ...context, ...connection }, context.sweepIntervalMs, signal),
  };
}

interface Resources extends Pick<Context, 'database' | 'notifications' | 'admission' | 'tracing' | 'audit'> {
  source: DatabaseSource;
  metrics: OpenMetrics | undefined;
  close(): Promise<void>;
}

async function openResources({ config, log }: RuntimeOptions): Promise<Resources> {
  const source = await findDatabase(config);
  let metrics: OpenMetrics | undefined;
  const database = await migrate(source.access, config.MIGRATE, config)
    .then(async () => (metrics = await openMetricsIfWanted(config, log)))
    .then(() => openPool(config, source.access.serving, log, metrics?.metrics))
    .catch(async (error: unknown) => {
      await metrics?.close();
      await source.stop();
      throw error;
    });
  const { serving, direct = serving } = source.access;
  const notifications = openNotifications(direct, (error) => log.warn({ err: error }, 'notifications broke'));
  const tracing = await openTracingIfWanted(config, database.db, log);
  const audit = await openAuditLog(config, database, log);
  const close = async () => {
    // Metrics and tracing close concurrently, because a collector that does not respond delays each of them.
    await Promise.all([metrics?.close(), tracing?.close()]);
    await audit?.close();
    await notifications.close();
    await database.close();
    await source.stop();
  };
  const most = { invocations: config.MAX_INVOCATIONS, perUser: config.fairness.MAX_INVOCATIONS_PER_USER };
  const admission = createAdmission(most, createBodySlots(config.fairness, config.MAX_BODY_BYTES));
  return { source, database, notifications, tracing, metrics, admission, audit, close };
}

/** Observes services that are opened after the metrics. */
function observeServices({ metrics, database, admission, sockets }: Context): void {
  metrics?.observe('agent_runtime_invocations_active', () => [[admission.count(), {}]]);
  metrics?.observe('agent_runtime_streams', () => [[sockets.count(), { operation: 'runLive' }]]);
  metrics?.observe('agent_runtime_db_connections', () =>
    database.use().flatMap(({ pool, open, idle }) => [
      [open - idle, { pool, state: 'used' }],
      [idle, { pool, state: 'idle' }],
    ]),
  );
  metrics?.observe('agent_runtime_db_waiting', () => database.use().map(({ pool, waiting }) => [waiting, { pool }]));
}

async function openAuditLog(config: Config, database: Context['database'], log: Log): Promise<OpenAudit | undefined> {
  if (config.AUDIT === 'off') return undefined;
  if (await mayChangeEntries(database.db).catch(() => false)) {
    log.warn(
      'the audit is append-only by a trigger alone: the role of DATABASE_URL owns the tables, or is a superuser, and ' +
        'can drop it; let another role own them (DATABASE_MIGRATION_URL)',
    );
  }
  const settings = { readsToo: config.AUDIT === 'all', refusalsPerMinute: AUDITED_REFUSALS_PER_MINUTE };
  return openAudit(database, settings, log);
}

async function toContext(
  { config, log, overrides, ...sources }: RuntimeOptions,
  { source, database, notifications, admission, tracing, metrics, audit }: Resources,
  { draining, stopping }: Record<'draining' | 'stopping', AbortController>,
): Promise<Context> {
  const { open, ...access } = openAccess(config, database);
  const renewalMs = config.SESSION_LEASE_MS / 3;
  const agents = overrides?.agents ?? (await hostAgents(config, (text) => log.warn(text), sources, open));
  await keepVersions(database.db, agents);
  return {
    config,
    log,
    version: VERSION,
    ...access,
    notifications,
    admission,
    tracing,
    histories: new HistoryCache(HISTORY_CACHE_BYTES),
    feeds: new SessionFeeds({ database, notifications }),
    deltas: new DeltaBatches(database),
    waitQueue: new WaitQueue((leases) => renewPlaces(database.db, leases, config.SESSION_LEASE_MS), renewalMs, log),
    metrics: metrics?.metrics,
    observers: [
      tracing?.startInvocation,
      metrics && observeInvocations(metrics.metrics, toKnownNames(agents)),
      logInvocations(log),
    ].filter((observe) => observe !== undefined),
    audit,
    contentStore: await openContentStore(config),
    agents,
    tools: await openTools(config, source.access, log, agents),
    listInvokers: createInvokerList(config.RUNTIME_API_KEYS_FILE, toAppAliases(agents)),
    newId: randomUUID,
    now: () => Date.now() / 1000,
    replays: createSlots('MAX_REPLAYS_PER_USER', REPLAYS_PER_USER, 'replays running'),
    leaseTimes: { durationMs: config.SESSION_LEASE_MS, renewalMs, waitMs: config.SESSION_WAIT_MS },
    sweepIntervalMs: renewalMs,
    limits: {
      timeoutMs: config.INVOCATION_TIMEOUT_MS,
      toolCalls: config.MAX_TOOL_CALLS,
      eventBytes: config.MAX_EVENT_BYTES,
      queueDepth: config.SESSION_QUEUE_DEPTH,
      backgroundRuns: Math.ceil(config.MAX_INVOCATIONS / 2),
      runs: 0,
      runsPerUser: 0,
      attempts: config.INVOCATION_ATTEMPTS,
      ...Object.assign({}, ...FEATURES.map(({ limits }) => limits?.(config))),
    },
    busyPolicy: config.DOUBLE_TEXTING,
    cancelOnDisconnect: config.ON_DISCONNECT === 'cancel',
    draining: draining.signal,
    stopping: stopping.signal,
    isAccepting: () => !draining.signal.aborted,
    sweeps: new Map(),
    sockets: createSockets({
      frameBytes: Math.min(INPUT_LIMITS.liveFrame.bytes, config.MAX_BODY_BYTES),
      sockets: Math.ceil(config.MAX_INVOCATIONS / 2),
    }),
    ...overrides,
  };
}
