import { versionFeature } from '../conversation/apps/versions.ts';
import { artifactFeature } from '../conversation/artifacts/routes.ts';
import { budgetFeature } from '../features/budgets/routes.ts';
import { usageFeature } from '../conversation/budgets/budget-store.ts';
import { credentialFeature } from '../conversation/credentials/routes.ts';
import { holdFeature } from '../conversation/holds/routes.ts';
import { idempotencyFeature } from '../conversation/idempotency/idempotency.ts';
import { memoryFeature } from '../features/memory/routes.ts';
import { sessionFeature } from '../conversation/sessions/routes.ts';
import { storageFeature } from '../conversation/storage/routes.ts';
import { consoleFeature } from '../features/console/routes.ts';
import { cronjobFeature } from '../features/cronjobs/feature.ts';
import { a2aDoor } from '../features/doors/a2a/routes.ts';
import { adkFeature } from '../features/doors/adk/feature.ts';
import { agUiDoor } from '../features/doors/ag-ui/routes.ts';
import { aiSdkDoor } from '../features/doors/ai-sdk/routes.ts';
import { durableStreamDoor } from '../features/doors/durable-streams/routes.ts';
import { mcpDoor } from '../features/doors/mcp/routes.ts';
import { openAiDoor } from '../features/doors/openai/routes.ts';
import { evalFeature } from '../features/evals/feature.ts';
import { liveFeature } from '../features/live/run-live.ts';
import { serviceFeature } from '../features/service/routes.ts';
import { userFeature } from '../features/users/feature.ts';
import { replayFeature } from '../invocations/replay/routes.ts';
import { invocationFeature } from '../invocations/routes/feature.ts';
import { waitFeature } from '../invocations/waits/feature.ts';
import { webhookFeature } from '../features/webhooks/feature.ts';
import { outboxFeature } from '../invocations/webhooks/delivery-store.ts';
import { traceFeature } from '../observability/traces/span-store.ts';
import { auditFeature } from '../platform/http/audit/audit-store.ts';

/**
 * All features, each behind those that it builds upon. The OpenAPI document and the sweeper have this order, an erasure
 * the reverse one. A feature below `src/features` is removed with its folder, its line here and its import above.
 */
export const features = [
  auditFeature,
  versionFeature,
  usageFeature,
  budgetFeature,
  credentialFeature,
  holdFeature,
  storageFeature,
  idempotencyFeature,
  traceFeature,
  sessionFeature,
  artifactFeature,
  memoryFeature,
  invocationFeature,
  waitFeature,
  outboxFeature,
  webhookFeature,
  replayFeature,
  serviceFeature,
  userFeature,
  cronjobFeature,
  evalFeature,
  consoleFeature,
  adkFeature,
  liveFeature,
  a2aDoor,
  agUiDoor,
  aiSdkDoor,
  durableStreamDoor,
  mcpDoor,
  openAiDoor,
] as const;
