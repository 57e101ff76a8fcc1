import type { HostedAgent } from '../../conversation/apps/hosted-agent.ts';
import type { Config } from '../../config/config.ts';
import { NotFoundError } from '../../core/errors.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { visibleTo } from '../../platform/http/operation/own-user.ts';
import type { Principal } from '../../platform/http/operation/principal.ts';
import { type CronjobRow, type CronjobWithRun, findCronjob, lockCronjob } from './cronjob-store.ts';

/** What the operations on cronjobs need. */
export interface CronjobContext {
  database: DatabasePool;
  agents: ReadonlyMap<string, HostedAgent>;
  newId: () => string;
  config: Pick<Config, 'CRONJOBS_MAX_PER_USER' | 'CRONJOBS_MIN_INTERVAL_SECONDS' | 'WEBHOOKS'>;
}

/** The 404 of a cronjob; a foreign one gets the same bytes. */
const cronjobNotFound = (jobId: string): NotFoundError => new NotFoundError(`Cronjob not found: ${jobId}`);

/** A cronjob that the caller may see. @throws {NotFoundError} */
export async function getCronjob(db: Database, principal: Principal, jobId: string): Promise<CronjobWithRun> {
  const found = await findCronjob(db, jobId, visibleTo(principal));
  if (!found) throw cronjobNotFound(jobId);
  return found;
}

/** As {@link getCronjob}, and locks it until the transaction ends. */
export async function getLockedCronjob(tx: Database, principal: Principal, jobId: string): Promise<CronjobRow> {
  const found = await lockCronjob(tx, jobId, visibleTo(principal));
  if (!found) throw cronjobNotFound(jobId);
  return found;
}
