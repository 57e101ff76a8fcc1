import { z } from 'zod';
import type { HostedAgent } from '../../conversation/apps/hosted-agent.ts';
import type { DatabasePool } from '../../platform/db/database.ts';

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
