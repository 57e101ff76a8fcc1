import { z } from 'zod';
import type { HostedAgent } from '../../../conversation/apps/hosted-agent.ts';
import type { DatabasePool } from '../../../platform/db/database.ts';
import type { Config } from '../../../config/config.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import type { InvocationContext } from '../../../invocations/context.ts';

/** What the evaluation operations need. */
export interface EvalContext {
  database: DatabasePool;
  agents: ReadonlyMap<string, HostedAgent>;
}

export const area = 'Evaluation (development server)';
export const DEV_APP_PATH = '/dev/apps/{app_name}';
export const SET_PATH = `${DEV_APP_PATH}/eval-sets/{eval_set_id}`;
/** ADK's older spellings: underscores, and in ADK 1.x no `/dev` in front. */
export const OLD_SET_PATHS = [`${DEV_APP_PATH}/eval_sets/{eval_set_id}`, '/apps/{app_name}/eval_sets/{eval_set_id}'];

/** A list of identifiers as the older spellings answer it. */
export const idsSchema = z.array(z.string());
export const exampleIds = ['arithmetic', 'small_talk'];

/** What runs need of the process. */
export interface EvalRunContext extends InvocationContext {
  config: Pick<Config, 'EVALS_MAX_CASES' | 'EVALS_MAX_OPEN_RUNS' | 'EVALS_PARALLELISM' | 'EVALS_JUDGE_MODEL'>;
}

/**
 * Whose runs a caller sees: those of its user, or those of a key that acts for some users only, which no user can be
 * called as (control characters are refused in identifiers); `undefined` for a caller who may see all.
 */
export function requesterOf(principal: Principal): string | undefined {
  if (principal.kind === 'user') return principal.userId;
  return principal.kind === 'key' && principal.users ? `\u0001key ${principal.id ?? ''}` : undefined;
}
