import type { DatabasePool } from '../../src/platform/db/database.ts';
import { type ClaimedDelivery, toClaimedDelivery, toJobLimits } from '../../src/invocations/webhooks/delivery-store.ts';
import { DELIVERY_JOB } from '../../src/invocations/webhooks/webhook-store.ts';
import { claimJobs } from '../../src/platform/jobs/job-store.ts';

/** Claims deliveries as a process with free slots does. */
export async function claimDeliveries(
  { db }: DatabasePool,
  { slots, leaseMs, ...limits }: { slots: number; leaseMs: number; perHost: number; perUser: number },
): Promise<ClaimedDelivery[]> {
  const claim = { kind: DELIVERY_JOB, slots, leaseMs, limits: toJobLimits(limits), work: 'delivery_work' };
  return (await claimJobs(db, claim)).claimed.map(toClaimedDelivery);
}

/** Statement that makes the waiting jobs of a kind due, of one user or of all. */
export const makesDue = (kind: string, user?: string): string => {
  const isOf = `kind = '${kind}' ${user === undefined ? '' : `and user_id = '${user}'`}`;
  return `with due as (update jobs set due_time = now() where ${isOf} and lease_token is null)
    update job_lanes set turn_time = now() where ${isOf}`;
};
