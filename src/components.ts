import type { z } from 'zod';
import { structureNodeSchema } from './apps/graph-routes.ts';
import { spanSchema } from './traces/span.ts';
import { artifactVersionSchema, saveArtifactSchema } from './artifacts/artifact-version.ts';
import { cronjobRunSchema, cronjobSchema } from './cronjobs/cronjob.ts';
import { scheduleSchema } from './cronjobs/schedule.ts';
import { budgetSchema, modelPriceSchema } from './budgets/budget.ts';
import { evalCaseSchema, evalSetSchema } from './evals/eval-set.ts';
import { evalCaseResultSchema, evalMetricSchema, evalRunSchema } from './evals/run-schemas.ts';
import { invocationSchema } from './invocations/invocation.ts';
import { replayDifferenceSchema, replaySchema } from './invocations/replay/replay-schema.ts';
import { contentSchema, partSchema } from './core/content.ts';
import { eventActionsSchema, eventSchema } from './core/event.ts';
import { deliverySchema, webhookSchema } from './webhooks/webhook.ts';
import { usageMetadataSchema } from './core/model-metadata.ts';
import { groundingMetadataSchema } from './core/grounding.ts';
import { createSessionSchema, sessionSchema, updateSessionSchema } from './core/session.ts';
import { apiErrorSchema, httpValidationErrorSchema, validationErrorSchema } from './http/operation/error-bodies.ts';

/**
 * The named schemas of the OpenAPI document. A schema that is not here is written out wherever it is used; one that
 * contains itself must be here.
 */
export const COMPONENTS: Record<string, z.ZodType> = {
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
  Replay: replaySchema,
  ReplayDifference: replayDifferenceSchema,
  Span: spanSchema,
  Cronjob: cronjobSchema,
  CronjobRun: cronjobRunSchema,
  CronjobSchedule: scheduleSchema,
  Webhook: webhookSchema,
  WebhookDelivery: deliverySchema,
  StructureNode: structureNodeSchema,
  CreateSessionRequest: createSessionSchema,
  UpdateSessionRequest: updateSessionSchema,
  SaveArtifactRequest: saveArtifactSchema,
  ApiError: apiErrorSchema,
  ValidationError: validationErrorSchema,
  HTTPValidationError: httpValidationErrorSchema,
};
