import { z } from 'zod';
import { ACCESS } from './access.ts';
import { AGENT } from './agent.ts';
import { DATABASE } from './database.ts';
import { CRONJOBS, DOORS, EVALUATION, WEBHOOKS } from './features.ts';
import { INVOCATIONS } from './invocations.ts';
import { LIMITS } from './limits.ts';
import { LIVE, MODEL } from './model.ts';
import { OBSERVABILITY } from './observability.ts';
import { ARTIFACTS, AUDIT, RETENTION } from './retention.ts';
import { SERVER } from './server.ts';

/** The settings by subject, in the order in which `docs/configuration.md` lists them. */
export const SETTING_GROUPS: readonly [heading: string, settings: Record<string, z.ZodType>][] = [
  ['Server', SERVER],
  ['Database', DATABASE],
  ['Access', ACCESS],
  ['Limits of one user', LIMITS],
  ['Model', MODEL],
  ['Agent', AGENT],
  ['Invocations and limits', INVOCATIONS],
  ['Live sessions', LIVE],
  ['Cronjobs', CRONJOBS],
  ['Webhooks', WEBHOOKS],
  ['Doors', DOORS],
  ['Evaluation', EVALUATION],
  ['Artifacts', ARTIFACTS],
  ['Retention', RETENTION],
  ['Audit', AUDIT],
  ['Logs, metrics and traces', OBSERVABILITY],
];

export const environmentSchema = z.object({
  ...SERVER,
  ...DATABASE,
  ...ACCESS,
  ...LIMITS,
  ...MODEL,
  ...AGENT,
  ...INVOCATIONS,
  ...LIVE,
  ...CRONJOBS,
  ...WEBHOOKS,
  ...DOORS,
  ...EVALUATION,
  ...ARTIFACTS,
  ...RETENTION,
  ...AUDIT,
  ...OBSERVABILITY,
});
