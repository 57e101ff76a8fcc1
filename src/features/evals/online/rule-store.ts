import { and, asc, eq, sql } from 'drizzle-orm';
import { listDayUses, saveBudget } from '../../../conversation/budgets/budget-store.ts';
import { ConflictError } from '../../../core/errors.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import { scoreRules } from '../../../platform/db/schema/schema.ts';
import { excluded } from '../../../platform/db/sql.ts';
import { deleteDueJobs, deleteLanes, endJob, type Job } from '../../../platform/jobs/job-store.ts';
import { MAX_RULES, type ScoreRule, toPayer } from './score-rule.ts';

const r = scoreRules;
const today = sql`(statement_timestamp() at time zone 'utc')::date`;
const isRule = (appName: string, id: string) => and(eq(r.appName, appName), eq(r.id, id));
const scoredToday = sql<number>`case when ${r.day} = ${today} then ${r.scored} else 0 end`;

/** Kind of the jobs that score a session or a turn of it, as in `add_score_jobs`. */
export const SCORE_JOB = 'score';
/** The lane of a rule's jobs, as in `add_score_jobs`. */
const toLane = (appName: string, ruleId: string) => ({ kind: SCORE_JOB, appName, lane: `${appName} ${ruleId}` });

/** A score that is due by a rule. */
export interface DueScore extends SessionKey {
  job: Job;
  ruleId: string;
  /** Invocation whose turn is scored; empty for the whole session. */
  invocationId: string;
  rule: ScoreRule;
}

export function toDueScore(job: Job): DueScore {
  const [ruleId, sessionId, invocationId] = JSON.parse(job.id) as [string, string, string];
  const { appName, userId } = job;
  return { job, appName, userId, sessionId, ruleId, invocationId, rule: job.work as ScoreRule };
}

/** Ends a job and deletes all due jobs of the same rule. @returns the number of these jobs */
export async function skipDue(db: Database, { job, appName, ruleId }: DueScore): Promise<number> {
  await endJob(db, SCORE_JOB, job);
  return 1 + (await deleteDueJobs(db, toLane(appName, ruleId)));
}

const toBudget = (id: string, rule?: ScoreRule) => ({
  appliesTo: 'user' as const,
  forUser: toPayer(id),
  period: 'day' as const,
  maxTokens: rule?.maxTokensPerDay ?? null,
  maxCost: rule?.maxCostPerDay ?? null,
});

/** Saves a score rule and its budget. @throws {ConflictError} if the application has the maximum number of rules */
export async function saveRule(tx: Database, appName: string, id: string, rule: ScoreRule): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`score rules of ${appName}`}, 0))`);
  const others = await tx.$count(r, and(eq(r.appName, appName), sql`${r.id} <> ${id}`));
  if (others >= MAX_RULES) throw new ConflictError(`${appName} has ${others} rules, as many as it may: delete one.`);
  const columns = {
    share: rule.share,
    quietMinutes: rule.quietMinutes ?? null,
    definition: rule,
  };
  await tx
    .insert(r)
    .values({ appName, id, ...columns })
    .onConflictDoUpdate({ target: [r.appName, r.id], set: { ...columns, updateTime: excluded(r.updateTime) } });
  await saveBudget(tx, appName, toBudget(id, rule));
}

/** Deletes a score rule and its jobs. Scores stay stored. @returns false if the rule does not exist */
export async function deleteRule(tx: Database, appName: string, id: string): Promise<boolean> {
  const rows = await tx.delete(r).where(isRule(appName, id)).returning({ id: r.id });
  await deleteLanes(tx, toLane(appName, id));
  await saveBudget(tx, appName, toBudget(id));
  return rows.length > 0;
}

export async function listRules(db: Database, appName: string) {
  const { id, definition, skipped } = r;
  const rows = await db
    .select({ id, definition, skipped, scored: scoredToday })
    .from(r)
    .where(eq(r.appName, appName))
    .orderBy(asc(id));
  const uses = await listDayUses(
    db,
    appName,
    rows.map((row) => toPayer(row.id)),
  );
  return rows.map((row) => ({
    ...(row.definition as ScoreRule),
    ruleId: row.id,
    today: { scored: row.scored, ...(uses.get(toPayer(row.id)) ?? { tokens: 0, cost: 0 }) },
    skipped: row.skipped,
  }));
}

/** Counts a score of today. @returns false, and counts nothing, if the rule has reached its daily maximum */
export async function countScore(db: Database, appName: string, id: string, maxPerDay: number): Promise<boolean> {
  const rows = await db
    .update(r)
    .set({ scored: sql`${scoredToday} + 1`, day: today })
    .where(and(isRule(appName, id), sql`${scoredToday} < ${maxPerDay}::int`))
    .returning({ id: r.id });
  return rows.length > 0;
}

export async function countSkipped(db: Database, appName: string, id: string, count: number): Promise<void> {
  await db
    .update(r)
    .set({ skipped: sql`${r.skipped} + ${count}` })
    .where(isRule(appName, id));
}
