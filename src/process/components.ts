import type { z } from 'zod';
import type { Components } from '../platform/http/openapi/document.ts';
import { idempotencyHeaders } from '../conversation/idempotency/operations.ts';
import { doorQuery } from '../features/doors/start-turn.ts';
import { invocationHeaders } from '../invocations/wire-request.ts';
import { cursorSchema } from '../platform/http/operation/cursor.ts';
import {
  appPath,
  artifactPath,
  cronjobPath,
  evalCasePath,
  evalRunPath,
  evalSetPath,
  eventPath,
  invocationPath,
  sessionPath,
  taskPath,
  userPath,
  webhookPath,
} from '../platform/http/operation/parameters.ts';
import { structureNodeSchema } from '../features/doors/adk/graph.ts';
import { spanSchema } from '../observability/traces/span.ts';
import { artifactVersionSchema, saveArtifactSchema } from '../conversation/artifacts/artifact-version.ts';
import { cronjobRunSchema, cronjobSchema } from '../features/cronjobs/cronjob.ts';
import { scheduleSchema } from '../features/cronjobs/schedule.ts';
import { budgetSchema, modelPriceSchema } from '../conversation/budgets/budget.ts';
import { evalCaseSchema, evalSetSchema } from '../features/evals/sets/eval-set.ts';
import { evalCaseResultSchema, evalRunSchema } from '../features/evals/runs/eval-run.ts';
import { evalMetricSchema } from '../features/evals/metrics/criteria.ts';
import { invocationSchema } from '../invocations/invocation.ts';
import { toolCallSchema } from '../invocations/tool-call.ts';
import { taskSchema } from '../invocations/waits/task.ts';
import { replayDifferenceSchema, replaySchema } from '../invocations/replay/replay-schema.ts';
import { openAiErrorSchema } from '../features/doors/openai/errors.ts';
import { contentSchema, partSchema } from '../core/content.ts';
import { eventActionsSchema, eventSchema } from '../core/event.ts';
import { deliverySchema, webhookSchema } from '../invocations/webhooks/webhook.ts';
import { groundingMetadataSchema, usageMetadataSchema } from '../core/model-metadata.ts';
import { createSessionSchema, sessionSchema, updateSessionSchema } from '../core/session.ts';
import {
  apiErrorSchema,
  httpValidationErrorSchema,
  validationErrorSchema,
} from '../platform/http/operation/request-errors.ts';

const schemas: Record<string, z.ZodType> = {
  Session: sessionSchema,
  Event: eventSchema,
  Content: contentSchema,
  Part: partSchema,
  EventActions: eventActionsSchema,
  UsageMetadata: usageMetadataSchema,
  GroundingMetadata: groundingMetadataSchema,
  ArtifactVersion: artifactVersionSchema,
  EvalCase: evalCaseSchema,
  EvalCaseResult: evalCaseResultSchema,
  EvalMetric: evalMetricSchema,
  EvalRun: evalRunSchema,
  EvalSet: evalSetSchema,
  Budget: budgetSchema,
  Invocation: invocationSchema,
  ModelPrice: modelPriceSchema,
  Task: taskSchema,
  ToolCall: toolCallSchema,
  Replay: replaySchema,
  ReplayDifference: replayDifferenceSchema,
  Span: spanSchema,
  Cronjob: cronjobSchema,
  CronjobRun: cronjobRunSchema,
  CronjobSchedule: scheduleSchema,
  Webhook: webhookSchema,
  OpenAiError: openAiErrorSchema,
  WebhookDelivery: deliverySchema,
  StructureNode: structureNodeSchema,
  CreateSessionRequest: createSessionSchema,
  UpdateSessionRequest: updateSessionSchema,
  SaveArtifactRequest: saveArtifactSchema,
  ApiError: apiErrorSchema,
  ValidationError: validationErrorSchema,
  HTTPValidationError: httpValidationErrorSchema,
};

/**
 * Parameters that operations reference in the OpenAPI document. A parameter with one of these names but another schema
 * is not replaced by a reference.
 */
const parameters: Record<string, z.ZodType> = {
  AppName: appPath.shape.appName,
  UserId: userPath.shape.userId,
  SessionId: sessionPath.shape.sessionId,
  EventId: eventPath.shape.eventId,
  InvocationId: invocationPath.shape.invocationId,
  ArtifactName: artifactPath.shape.artifactName,
  TaskId: taskPath.shape.taskId,
  CronjobId: cronjobPath.shape.jobId,
  WebhookId: webhookPath.shape.webhookId,
  EvalSetId: evalSetPath.shape.evalSetId,
  EvalId: evalCasePath.shape.evalId,
  EvalRunId: evalRunPath.shape.runId,
  DoorUserId: doorQuery.shape.user_id,
  Cursor: cursorSchema,
  IdempotencyKey: idempotencyHeaders.shape['idempotency-key'],
  XDoubleTexting: invocationHeaders.shape['x-double-texting'],
};

export const COMPONENTS: Components = { schemas, parameters };
