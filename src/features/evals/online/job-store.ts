import { and, eq, type SQL, sql } from 'drizzle-orm';
import { isSession } from '../../../conversation/sessions/session-key.ts';
import { getSession } from '../../../conversation/sessions/session-lease.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import { unescapeValue } from '../../../platform/db/json-escape.ts';
import { scoreJobs, scoreRules } from '../../../platform/db/schema/schema.ts';
import { getKey, names } from '../../../platform/db/sql.ts';
import type { ScoreRule } from './score-rule.ts';

const j = scoreJobs;
const now = sql`clock_timestamp()`;
const leaseEnd = (leaseMs: number) => sql`${now} + ${leaseMs} * interval '1 millisecond'`;

export interface ScoreJob extends SessionKey {
  ruleId: string;
  /** Invocation whose turn is scored; empty for the whole session. */
  invocationId: string;
  leaseToken: string;
  losses: number;
  rule: ScoreRule;
}

export interface JobLimits {
  slots: number;
  appNames: string[];
  /** Rules that already use all slots that a rule may have in this process, by application and id. */
  full: [appName: string, ruleId: string][];
  leaseMs: number;
}

/**
 * Claims due scoring jobs in one statement, round-robin over the rules; none of a session with a running invocation.
 */
export async function claimJobs(db: Database, { slots, appNames, full, leaseMs }: JobLimits): Promise<ScoreJob[]> {
  const session = getSession(j);
  const key = sql.join(getKey(j), sql`, `);
  const keyNames = getKey(j).map((column) => names(column));
  const column = (place: 0 | 1) => sql`${sql.param(full.map((each) => each[place]))}::text[]`;
  const { rows } = await db.execute<Omit<ScoreJob, 'rule'> & { definition: unknown }>(sql`
    with due as (
      select job.*, r.definition, row_number() over (partition by r.app_name, r.id order by job.due_time) as turn
      from ${scoreRules} r cross join lateral (
        select ${key}, ${j.dueTime} from ${j} left join ${session.table} on ${session.on}
        where ${j.appName} = r.app_name and ${j.ruleId} = r.id and ${j.dueTime} <= ${now}
          and (${j.invocationId} <> '' or ${session.isFree})
        order by ${j.dueTime} limit ${slots} for update of ${j} skip locked) job
      where r.app_name = any(${sql.param(appNames)}::text[])
        and (r.app_name, r.id) not in (select * from unnest(${column(0)}, ${column(1)}))
      order by turn, job.due_time limit ${slots})
    update ${j} set lease_token = gen_random_uuid(), due_time = ${leaseEnd(leaseMs)},
                    losses = ${j.losses} + (${j.leaseToken} is not null)::int
    from due where (${key}) = (${sql.join(
      keyNames.map((name) => sql`due.${name}`),
      sql`, `,
    )})
    returning ${j.appName} as "appName", ${j.userId} as "userId", ${j.sessionId} as "sessionId",
              ${j.ruleId} as "ruleId", ${j.invocationId} as "invocationId", ${j.leaseToken} as "leaseToken",
              ${j.losses} as losses, due.definition as definition`);
  return rows.map(({ definition, ...job }) => ({ ...job, rule: unescapeValue(definition) as ScoreRule }));
}

/** Milliseconds until a job is due, negative if overdue; null without jobs, `undefined` without rules. */
export async function findNextDueMs(db: Database): Promise<number | null | undefined> {
  const { rows } = await db.execute<{ rules: number; ms: string | null }>(sql`
    select count(*)::int as rules, ceil(extract(epoch from min((
      select ${j.dueTime} from ${j} where ${j.appName} = ${scoreRules.appName} and ${j.ruleId} = ${scoreRules.id}
      order by ${j.dueTime} limit 1)) - ${now}) * 1000) as ms
    from ${scoreRules}`);
  const [row] = rows;
  if (!row?.rules) return undefined;
  return row.ms === null ? null : Number(row.ms);
}

const hasToken = (...tokens: string[]): SQL => sql`${j.leaseToken} = any(${sql.param(tokens)}::uuid[])`;

/** Renews leases of jobs. @returns the lease tokens that are still valid; other processes have the other jobs */
export async function renewJobs(db: Database, jobs: ScoreJob[], leaseMs: number): Promise<Set<string | null>> {
  const isHeld = hasToken(...jobs.map(({ leaseToken }) => leaseToken));
  const renewal = db
    .update(j)
    .set({ dueTime: leaseEnd(leaseMs) })
    .where(isHeld);
  return new Set((await renewal.returning({ token: j.leaseToken })).map(({ token }) => token));
}

/** @returns false, and deletes nothing, if another process has taken the job over or the session has continued */
export async function endJob(db: Database, { leaseToken }: ScoreJob): Promise<boolean> {
  return (await db.delete(j).where(hasToken(leaseToken)).returning({ ruleId: j.ruleId })).length > 0;
}

/** Deletes a job and all due jobs of the same rule. @returns the number of deleted jobs */
export async function skipDue(db: Database, { appName, ruleId, leaseToken }: ScoreJob): Promise<number> {
  const isDue = sql`(${j.leaseToken} is null and ${j.dueTime} <= ${now} or ${hasToken(leaseToken)})`;
  const { rowCount } = await db.delete(j).where(and(eq(j.appName, appName), eq(j.ruleId, ruleId), isDue));
  return rowCount ?? 0;
}

/** Decrements the number of crashes, because the process that had lost the job's lease is alive. */
export async function takeBackJobLoss(db: Database, job: ScoreJob): Promise<void> {
  const isRule = and(eq(j.ruleId, job.ruleId), eq(j.invocationId, job.invocationId));
  await db
    .update(j)
    .set({ losses: sql`${j.losses} - 1` })
    .where(and(isSession(job, j), isRule, sql`(${j.losses} > 0 or ${hasToken(job.leaseToken)})`));
}
