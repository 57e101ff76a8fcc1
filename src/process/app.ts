import type { Express } from 'express';
import type { Log } from '../platform/log.ts';
import { HARNESS_APP } from '../core/names.ts';
import { createHttpApp, type HttpAppOptions } from '../platform/http/http-app.ts';
import type { Components } from '../platform/http/openapi/document.ts';
import { cursorSchema } from '../platform/http/operation/cursor.ts';
import { onWire, type Operation } from '../platform/http/operation/operation.ts';
import { userPath } from '../platform/http/operation/parameters.ts';
import { type Aliases, withAliases } from '../platform/http/operation/paths.ts';
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
import { FEATURES, type FeatureContext, isServed } from './context.ts';

/** Further paths of operations, for clients that use them. They are served, but not published. */
export const ALIASES = Object.assign({}, ...FEATURES.map(({ aliases }) => aliases)) as Aliases;

interface Mode {
  isServed: (feature: Feature<FeatureContext>) => boolean;
  isDevelopment: boolean;
  isJwt: boolean;
}

function listOperations({ isServed: isWanted, isDevelopment, isJwt }: Mode): Operation<FeatureContext>[] {
  const operations = FEATURES.flatMap((feature) => {
    const { door, operations: own = [], devOperations = [] } = feature;
    return [
      ...(isWanted(feature) ? (door === undefined ? own : onWire(door, own)) : []),
      ...(isDevelopment ? devOperations : []),
    ];
  });
  const offered = operations.filter(({ isAbsentInJwt }) => !isJwt || !isAbsentInJwt);
  return withAliases(
    offered.map((each) => (each.isIdempotent ? idempotent(each) : each)),
    ALIASES,
  );
}

export const listAllOperations = (isJwt = false) =>
  listOperations({ isServed: () => true, isDevelopment: true, isJwt });

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

/** @throws {Error} if operations contradict each other */
export function createApp(context: FeatureContext): Express {
  const { config, log } = context;
  const { auth, DEV_UI, ALLOWED_HOSTS, ALLOWED_ORIGINS, TRUSTED_PROXIES } = config;
  const isWanted = (feature: Feature<FeatureContext>) => isServed(feature, config);
  return createHttpApp<FeatureContext>({
    operations: listOperations({ isServed: isWanted, isDevelopment: DEV_UI, isJwt: auth.mode === 'jwt' }),
    context,
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
    pages: [
      ...FEATURES.filter(isWanted).flatMap(({ pages }) => pages?.(context) ?? []),
      ...FEATURES.flatMap(({ devPages }) => (DEV_UI && devPages?.(context)) || []),
    ],
  });
}

/** Logs if the token issuer is unreachable, because requests fail only when the cached keys are an hour old. */
const withReport = (auth: Config['auth'], log: Log): HttpAppOptions['auth'] =>
  auth.mode === 'jwt'
    ? { ...auth, onFailure: (err) => log.warn({ err }, 'the keys of the issuer cannot be fetched') }
    : auth;

function loginLimit({ database }: FeatureContext) {
  const points = MAX_FAILED_LOGINS;
  return createLoginLimit(points, createRateCounter(database, { name: 'login', points }));
}
