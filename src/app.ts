import type { Express } from 'express';
import { serviceRoutes } from './service/routes.ts';
import { artifactRoutes } from './artifacts/routes.ts';
import { COMPONENTS } from './components.ts';
import type { Config } from './core/config.ts';
import { debugRoutes } from './traces/routes.ts';
import { devUiPages } from './devui/routes.ts';
import { evalRoutes } from './evals/routes.ts';
import { harnessRoutes } from './invocations/routes/harness-invoke.ts';
import { createEdge } from './http/http-app.ts';
import type { Operation } from './http/operation/operation.ts';
import { idempotentRoutes } from './idempotency/operations.ts';
import type { InvocationContext } from './invocations/context.ts';
import { invocationRoutes } from './invocations/routes/invocations.ts';
import { runRoutes } from './invocations/routes/run.ts';
import { deleteMemories } from './memory/memory-store.ts';
import { memoryRoutes } from './memory/routes.ts';
import { sessionRoutes } from './sessions/routes.ts';

/** All that the application needs; tests give their own. */
export interface Context extends InvocationContext {
  config: Config;
  /** Version of the runtime. */
  version: string;
  /** False from the moment on that the process is told to stop. */
  isAccepting: () => boolean;
}

/** The route table: every operation that exists in this mode. */
export function listOperations(context: Context): Operation[] {
  const { DEV_UI, auth } = context.config;
  return [
    ...serviceRoutes(context),
    ...idempotentRoutes({ ...context, deleteMemories }, sessionRoutes),
    ...idempotentRoutes(context, artifactRoutes),
    ...idempotentRoutes(context, memoryRoutes),
    ...runRoutes(context),
    ...invocationRoutes(context),
    // The specification: deployments with shared OAuth do not expose the harness operation.
    ...(auth.mode === 'jwt' ? [] : harnessRoutes(context)),
    ...(DEV_UI ? [...idempotentRoutes(context, evalRoutes), ...debugRoutes(context)] : []),
  ];
}

/** The HTTP application. @throws Error when the operations do not make a valid OpenAPI document. */
export function createApp(context: Context): Promise<Express> {
  const { config, log } = context;
  const { auth, DEV_UI, ALLOW_ANONYMOUS, ALLOWED_HOSTS, ALLOWED_ORIGINS, MAX_BODY_BYTES } = config;
  return createEdge({
    operations: listOperations(context),
    components: COMPONENTS,
    auth,
    origins: {
      loopbackOnly: DEV_UI || (auth.mode === 'local' && !ALLOW_ANONYMOUS),
      allowedHosts: ALLOWED_HOSTS,
      allowedOrigins: ALLOWED_ORIGINS,
    },
    log,
    maxBodyBytes: MAX_BODY_BYTES,
    pages: DEV_UI ? devUiPages() : [],
  });
}
