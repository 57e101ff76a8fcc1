import type { Express } from 'express';
import { graphOperations } from '../features/doors/adk/graph-routes.ts';
import { appOperations } from '../features/doors/adk/app-routes.ts';
import { versionOperations } from '../conversation/apps/version-routes.ts';
import { artifactOperations } from '../conversation/artifacts/routes.ts';
import { credentialOperations } from '../conversation/credentials/routes.ts';
import type { CredentialContext } from '../conversation/credentials/credentials.ts';
import { budgetOperations } from '../conversation/budgets/routes.ts';
import { COMPONENTS } from './components.ts';
import type { Config } from '../config/config.ts';
import { DOOR_NAMES, type DoorName } from '../config/features.ts';
import type { Log } from '../platform/log.ts';
import { HARNESS_APP } from '../core/names.ts';
import { consolePages } from '../features/console/routes.ts';
import { cronjobOperations } from '../features/cronjobs/routes.ts';
import { ALIASES } from '../features/doors/adk/aliases.ts';
import { adkEvalOperations } from '../features/doors/adk/eval-routes.ts';
import { telemetryOperations } from '../features/doors/adk/telemetry-routes.ts';
import { devUiPages } from '../features/doors/adk/web-ui.ts';
import { a2aOperations } from '../features/doors/a2a/routes.ts';
import { agUiOperations } from '../features/doors/ag-ui/routes.ts';
import { aiSdkOperations } from '../features/doors/ai-sdk/routes.ts';
import { mcpOperations } from '../features/doors/mcp/routes.ts';
import { openAiOperations } from '../features/doors/openai/routes.ts';
import { durableStreamOperations } from '../features/doors/durable-streams/routes.ts';
import { appEvalOperations, evalOperations } from '../features/evals/routes.ts';
import { createHttpApp, type HttpAppOptions } from '../platform/http/http-app.ts';
import type { Audit } from '../platform/http/audit/audit.ts';
import type { Sockets } from '../platform/http/operation/sockets.ts';
import { onWire, type Operation } from '../platform/http/operation/operation.ts';
import { withAliases } from '../platform/http/operation/paths.ts';
import { idempotent } from '../conversation/idempotency/operations.ts';
import type { InvocationContext } from '../invocations/context.ts';
import { holdOperations } from '../conversation/holds/routes.ts';
import { harnessInvoke } from '../invocations/routes/harness-invoke.ts';
import { invocationOperations } from '../invocations/routes/invocations.ts';
import { toolCallOperations } from '../invocations/routes/tool-calls.ts';
import { invokeLegacy } from '../features/doors/adk/invoke-legacy.ts';
import type { LiveLimits } from '../invocations/live/live-socket.ts';
import { replayOperations } from '../invocations/replay/routes.ts';
import { signalOperations } from '../invocations/waits/signal-routes.ts';
import { taskOperations } from '../invocations/waits/task-routes.ts';
import { runLive } from '../features/doors/adk/run-live.ts';
import { runOperations } from '../features/doors/adk/run-routes.ts';
import { createSessionWithId } from '../features/doors/adk/session-routes.ts';
import { sessionEventOperations } from '../invocations/routes/session-events.ts';
import { createForgetSessions, type ForgetSessions } from './forget-session.ts';
import { createLoginLimit, MAX_FAILED_LOGINS } from '../platform/http/limits/login-limit.ts';
import { createRateCounter, createRequestLimits } from '../platform/http/limits/caller-limits.ts';
import { usageOperations } from '../invocations/routes/usage.ts';
import { storageOperations } from '../conversation/storage/routes.ts';
import { memoryOperations } from '../conversation/memory/routes.ts';
import { operatorOperations } from '../features/service/operator-routes.ts';
import { serviceOperations } from '../features/service/routes.ts';
import { sessionOperations } from '../conversation/sessions/routes.ts';
import type { SessionContext } from '../conversation/sessions/session-context.ts';
import { copyArtifacts } from '../conversation/artifacts/copy-artifacts.ts';
import { traceOperations } from '../features/doors/adk/trace-routes.ts';
import * as evaluations from '../features/evals/erase-store.ts';
import { userOperations } from '../features/users/routes.ts';
import { webhookOperations } from '../invocations/webhooks/routes.ts';

/** The services that all operations and background jobs of this process use. Tests replace some of them. */
export interface Context extends InvocationContext {
  config: Config;
  version: string;
  isAccepting: () => boolean;
  /** Maximum interval between two searches for invocations of processes that died, in milliseconds. */
  sweepIntervalMs: number;
  /** When each clean-up job of the sweeper last succeeded in this process, by the monotonic clock, in milliseconds. */
  sweeps: Map<string, number>;
  /** The settings with which users grant an application access to MCP servers. */
  grants: CredentialContext['grants'];
  /** Records the decision on each request; `undefined` if the audit is off. */
  audit?: Audit | undefined;
  sockets: Sockets;
  liveLimits: LiveLimits;
}

/** Dependencies of all operations: the context, and functions of one feature that another feature may not import. */
interface OperationContext extends Context {
  /** Deletes the copies of a session's data in other features, which the sessions' operations may not import. */
  forgetSessions: ForgetSessions;
  copyArtifacts: SessionContext['copyArtifacts'];
  evaluations: typeof evaluations;
}

const DOOR_OPERATIONS: Record<DoorName, Operation<OperationContext>[]> = {
  a2a: onWire('A2A', a2aOperations),
  'ag-ui': onWire('AG-UI', agUiOperations),
  'ai-sdk': onWire('AI SDK', aiSdkOperations),
  'durable-streams': onWire('Durable Streams', durableStreamOperations),
  mcp: onWire('MCP', mcpOperations),
  openai: onWire('OpenAI', openAiOperations),
};

/** @param mode `isShared`: many users log in with tokens (AUTH_MODE `jwt`) */
function listOperations(mode: {
  isDevelopment: boolean;
  isShared: boolean;
  hasCronjobs: boolean;
  hasWebhooks: boolean;
  hasEvals: boolean;
  doors: ReadonlySet<DoorName>;
}): Operation<OperationContext>[] {
  const operations: Operation<OperationContext>[] = [
    ...serviceOperations,
    ...telemetryOperations,
    ...operatorOperations,
    ...appOperations,
    ...versionOperations,
    ...budgetOperations,
    ...credentialOperations,
    ...holdOperations,
    ...storageOperations,
    ...usageOperations,
    ...userOperations,
    ...sessionOperations,
    createSessionWithId,
    ...artifactOperations,
    ...memoryOperations,
    ...taskOperations,
    ...(mode.hasCronjobs ? cronjobOperations : []),
    ...(mode.hasWebhooks ? webhookOperations : []),
    ...(mode.hasEvals ? appEvalOperations : []),
    ...runOperations,
    runLive,
    invokeLegacy,
    ...invocationOperations,
    ...toolCallOperations,
    ...signalOperations,
    ...replayOperations,
    ...sessionEventOperations,
    // By the specification, deployments whose users log in by a shared OAuth server do not have this operation.
    ...(mode.isShared ? [] : [harnessInvoke]),
    ...(mode.isDevelopment ? [...evalOperations, ...adkEvalOperations, ...traceOperations, ...graphOperations] : []),
    ...DOOR_NAMES.flatMap((name) => (mode.doors.has(name) ? DOOR_OPERATIONS[name] : [])),
  ];
  const served = operations.map((each) => (each.isIdempotent ? idempotent(each) : each));
  return withAliases(served, ALIASES);
}

export const listAllOperations = (isShared = false) =>
  listOperations({
    isDevelopment: true,
    isShared,
    hasCronjobs: true,
    hasWebhooks: true,
    hasEvals: true,
    doors: new Set(DOOR_NAMES),
  });

/** The name of `harness_agent` in AgentKit's command line; an alias unless an application has this name. */
const ALIAS = 'harness';

/** @throws {Error} if operations contradict each other */
export function createApp(context: Context): Express {
  const { config, log } = context;
  const { auth, CRONJOBS, DEV_UI, EVALS, WEBHOOKS, ALLOWED_HOSTS, ALLOWED_ORIGINS, TRUSTED_PROXIES } = config;
  const operations = listOperations({
    isDevelopment: DEV_UI,
    isShared: auth.mode === 'jwt',
    hasCronjobs: CRONJOBS,
    hasWebhooks: WEBHOOKS,
    hasEvals: EVALS,
    doors: config.doors,
  });
  return createHttpApp<OperationContext>({
    operations,
    context: {
      ...context,
      forgetSessions: createForgetSessions(context.tracing),
      copyArtifacts: (source, point, write) =>
        copyArtifacts({ db: context.database.db, contentStore: context.contentStore }, source, point, write),
      evaluations,
    },
    appAliases: new Map(context.agents.has(ALIAS) ? [] : [[ALIAS, HARNESS_APP]]),
    apps: context.agents,
    components: COMPONENTS,
    auth: withReport(auth, log),
    publicUrl: config.PUBLIC_URL,
    origins: {
      ownNamesOnly: DEV_UI || auth.mode === 'local',
      allowedHosts: ALLOWED_HOSTS,
      allowedOrigins: ALLOWED_ORIGINS,
    },
    proxies: { trusted: TRUSTED_PROXIES, refusesOthers: auth.mode === 'local' },
    log,
    metrics: context.metrics,
    maxBodyBytes: config.MAX_BODY_BYTES,
    limits: createRequestLimits(context.database, config.fairness, config.MAX_BODY_BYTES),
    logins: loginLimit(context),
    audit: context.audit,
    version: context.version,
    pages: listPages(context),
  });
}

/** The console is first, because it is the page for people who visit the service's root address. */
function listPages({ config, version }: Context) {
  const { auth, CRONJOBS, DEV_UI, EVALS, WEBHOOKS } = config;
  const features = { devUi: DEV_UI, cronjobs: CRONJOBS, webhooks: WEBHOOKS, evals: EVALS };
  const console = { version, auth, clientId: config.CONSOLE_CLIENT_ID, features };
  return [...(config.hasConsole ? [consolePages(console)] : []), ...(DEV_UI ? [devUiPages(config.PUBLIC_URL)] : [])];
}

/** Logs if the token issuer is unreachable, because requests fail only when the cached keys are an hour old. */
const withReport = (auth: Config['auth'], log: Log): HttpAppOptions['auth'] =>
  auth.mode === 'jwt'
    ? { ...auth, onFailure: (err) => log.warn({ err }, 'the keys of the issuer cannot be fetched') }
    : auth;

function loginLimit({ database }: Context) {
  const points = MAX_FAILED_LOGINS;
  return createLoginLimit(points, createRateCounter(database, { name: 'login', points }));
}
