import type { Express } from 'express';
import type { Log } from '../platform/log.ts';
import { HARNESS_APP } from '../core/names.ts';
import { ABSENT_FOR_TOKENS } from '../platform/http/access/authorize.ts';
import { createHttpApp, type HttpAppOptions, type Unserved } from '../platform/http/http-app.ts';
import type { Components } from '../platform/http/openapi/document.ts';
import { cursorSchema } from '../platform/http/operation/cursor.ts';
import { onWire, type Operation } from '../platform/http/operation/operation.ts';
import { userPath } from '../platform/http/operation/parameters.ts';
import { type Aliases, listRoutes, pathPattern, withAliases } from '../platform/http/operation/paths.ts';
import {
  apiErrorSchema,
  httpValidationErrorSchema,
  validationErrorSchema,
} from '../platform/http/operation/request-errors.ts';
import { idempotent } from '../conversation/idempotency/idempotency.ts';
import { createLoginLimit, MAX_FAILED_LOGINS } from '../platform/http/limits/login-limit.ts';
import { createRateCounter, createRequestLimits } from '../platform/http/limits/caller-limits.ts';
import type { Feature } from '../platform/feature/feature.ts';
import type { Config } from './config.ts';
import { FEATURES, type FeatureContext, missingSetting } from './context.ts';

/** Further paths of operations, for clients that use them. They are served, but not published. */
export const ALIASES = Object.assign({}, ...FEATURES.map(({ aliases }) => aliases)) as Aliases;

interface Known {
  operation: Operation<FeatureContext>;
  /** How one has it served, if the settings leave it out. */
  unserved: string | undefined;
}

const servedWith = (setting: string | undefined) => setting && `It is served with ${setting}.`;

/** @param config Default: every setting that has operations served */
function listOperations(config?: Config, takesKeys = config?.auth.mode !== 'jwt'): Known[] {
  const known = FEATURES.flatMap((feature): Known[] => {
    const { door, operations = [], devOperations = [] } = feature;
    const own = door === undefined ? operations : onWire(door, operations);
    const missing = config && missingSetting(feature, config);
    const missingDev = config && missingForDevelopment(config);
    return [
      ...own.map((operation) => ({ operation, unserved: servedWith(missing) })),
      ...devOperations.map((operation) => ({ operation, unserved: servedWith(missingDev) })),
    ];
  });
  const judged = known.map(({ operation, unserved }) => ({
    operation,
    unserved: operation.isAbsentForTokens && !takesKeys ? ABSENT_FOR_TOKENS : unserved,
  }));
  const whole = withAliases(
    judged.map(({ operation }) => (operation.isIdempotent ? idempotent(operation) : operation)),
    ALIASES,
  );
  return judged.map(({ unserved }, at) => ({ operation: whole[at] as Known['operation'], unserved }));
}

const missingForDevelopment = ({ DEV_UI }: Config) => (DEV_UI ? undefined : 'DEV_UI=true');

const served = (known: Known[]) =>
  known.flatMap(({ operation, unserved }) => (unserved === undefined ? [operation] : []));

export const listAllOperations = ({ takesKeys = true } = {}) => served(listOperations(undefined, takesKeys));

export const COMPONENTS: Components = {
  schemas: Object.assign({}, ...FEATURES.map(({ schemas }) => schemas), {
    ApiError: apiErrorSchema,
    ValidationError: validationErrorSchema,
    HTTPValidationError: httpValidationErrorSchema,
  }) as Components['schemas'],
  parameters: Object.assign(
    { AppName: userPath.shape.appName, UserId: userPath.shape.userId, Cursor: cursorSchema },
    ...FEATURES.map(({ parameters }) => parameters),
  ) as Components['parameters'],
};

/** The name of `harness_agent` in AgentKit's command line; an alias unless an application has this name. */
const ALIAS = 'harness';

/** Alias of an application → its name. */
export const toAppAliases = (agents: Pick<FeatureContext['agents'], 'has'>): ReadonlyMap<string, string> =>
  new Map(agents.has(ALIAS) ? [] : [[ALIAS, HARNESS_APP]]);

/** @throws {Error} if operations contradict each other */
export function createApp(context: FeatureContext): Express {
  const { config, log } = context;
  const { auth, DEV_UI, ALLOWED_HOSTS, ALLOWED_ORIGINS, TRUSTED_PROXIES } = config;
  const known = listOperations(config);
  const pages = FEATURES.flatMap((feature) => [
    ...listPages(feature.pages, missingSetting(feature, config), context),
    ...listPages(feature.devPages, missingForDevelopment(config), context),
  ]);
  return createHttpApp<FeatureContext>({
    operations: served(known),
    unserved: [...known.flatMap(toUnserved), ...pages.flatMap(({ unserved }) => unserved ?? [])],
    context,
    appAliases: toAppAliases(context.agents),
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
    pages: pages.flatMap(({ pages: each, unserved }) => (unserved ? [] : [each])),
  });
}

const toUnserved = ({ operation, unserved: how }: Known): Unserved[] =>
  how === undefined
    ? []
    : listRoutes([operation]).map(({ path }) => ({ method: operation.method, pattern: pathPattern(path), how }));

function listPages(create: Feature<FeatureContext>['pages'], setting: string | undefined, context: FeatureContext) {
  if (!create) return [];
  const pages = create(context);
  const how = servedWith(setting);
  const pattern = new RegExp(`^${pages.home.slice(0, -1)}(/|$)`);
  return [{ pages, unserved: how === undefined ? undefined : { method: 'get', pattern, how } }];
}

/** Logs if a token issuer is unreachable, because requests fail only when the cached keys are an hour old. */
const withReport = (auth: Config['auth'], log: Log): HttpAppOptions['auth'] =>
  auth.issuers
    ? { ...auth, issuers: auth.issuers.map((issuer) => ({ ...issuer, onFailure: reportOf(issuer, log) })) }
    : auth;
const reportOf =
  ({ issuer }: { issuer: string }, log: Log) =>
  (err: unknown) =>
    log.warn({ err, issuer }, 'the keys of the issuer cannot be fetched');

function loginLimit({ database }: FeatureContext) {
  const points = MAX_FAILED_LOGINS;
  return createLoginLimit(points, createRateCounter(database, { name: 'login', points }));
}
