/**
 * All tables, a file per feature. Keys of user data begin with (app_name, user_id), because erasure, row-level security
 * and distribution need that. The migrator writes the comments on tables and columns into the database, for operators.
 */
export { auditLog, rateLimits } from './access.ts';
export { budgetAlerts, budgetReservations, budgets, budgetTotals, budgetUses, modelPrices } from './budgets.ts';
export {
  appStates,
  artifacts,
  artifactVersions,
  eventDeltas,
  events,
  idempotencyKeys,
  legalHolds,
  memories,
  sessions,
  userErasures,
  userStates,
  userStorage,
} from './conversation.ts';
export { userCredentials } from './credentials.ts';
export { cronjobRuns, cronjobs, skippedRuns } from './cronjobs.ts';
export {
  evalCases,
  evalCaseVersions,
  evalRunCases,
  evalRuns,
  evalSessionScores,
  evalSets,
  evalVerdicts,
  scoreRules,
  sessionVerdicts,
} from './evals.ts';
export { agentPrompts, agentVersions, invocations, spans, toolCalls } from './invocations.ts';
export { jobLanes, jobs } from './jobs.ts';
export { inspectSchema, outlineSchema, repeatables } from './migrations.ts';
export { signals, tasks } from './waits.ts';
export { webhookDeliveries, webhooks } from './webhooks.ts';
