import { type SQL, and, asc, eq, getTableColumns, notInArray, sql } from 'drizzle-orm';
import type { Database, DatabasePool } from '../../../platform/db/database.ts';
import { escapeJson, escapeText, unescapeJson, unescapeValue } from '../../../platform/db/json-escape.ts';
import { evalCaseVersions, evalRunCases, evalRuns } from '../../../platform/db/schema/schema.ts';
import { EVAL_SESSION_ID_PREFIXES } from '../../../core/session.ts';
import { MAX_SCORES, withShortTexts } from '../sets/bounds.ts';
import type { ExecutionModes } from '../sets/eval-set.ts';
import type { EvalMetric } from '../metrics/criteria.ts';
import { isItsVersion, isOpen, isOpenCase } from './eval-run-store.ts';
import type { NewEvalRun, RunCase } from './eval-run.ts';
import type { ScoredCase } from '../scoring/score.ts';

const now = sql`clock_timestamp()`;
const expiry = (durationMs: number) => sql`${now} + ${durationMs} * interval '1 millisecond'`;
const newSessionId = sql`${EVAL_SESSION_ID_PREFIXES[0]} || gen_random_uuid()`;
const isLost = sql`(${evalRunCases.status} = 'running' and ${evalRunCases.leaseExpireTime} < ${now})`;
const isHeld = sql`(${evalRunCases.status} = 'running' and ${evalRunCases.leaseExpireTime} >= ${now})`;
const isClaimable = sql`(${evalRunCases.status} = 'waiting' or ${isLost})`;

/** A case of a run that this process holds as long as it renews the lease. */
export interface ClaimedCase
  extends Pick<NewEvalRun, 'appName' | 'runId' | 'evalSetId' | 'metrics' | 'userSimulator' | keyof ExecutionModes>,
    Pick<RunCase, 'place' | 'trial' | 'evalId' | 'userId'> {
  sessionId: string;
  /** Number of the case's sessions so far: one that was interrupted within a turn is replaced by a new one. */
  sessionCount: number;
  /** Number of processes that ended while they held the case. */
  losses: number;
  leaseToken: string;
  /** JSON text of the case at the time of the request. */
  caseText: string;
  /** True if the run only judges the stored turns of another run and does not call the agent. */
  isJudging: boolean;
  /** Sequence number of the case's last event in its session; null until the case's turns have ended. */
  lastSequence: number | null;
}

export interface ClaimLimits {
  slots: number;
  /** Cases that this process already holds, which are not claimed again even if their lease has expired. */
  held: readonly ClaimedCase[];
  appNames: string[];
  leaseMs: number;
}

/**
 * Cases of the requester with the fewest running cases come first, and of these the cases of the oldest run. Locks the
 * run, because all processes together must not exceed its parallelism. Skips rows locked by others.
 */
export async function claimEvalCases(database: DatabasePool, limits: ClaimLimits): Promise<ClaimedCase[]> {
  const cases: ClaimedCase[] = [];
  const lockedRunIds: string[] = [];
  while (cases.length < limits.slots) {
    const newCases = await database.transaction(async (tx) => {
      const run = await lockOpenRun(tx, limits.appNames, lockedRunIds);
      if (!run) return undefined;
      lockedRunIds.push(run.id);
      return claimRunCases(tx, run, { ...limits, slots: limits.slots - cases.length });
    });
    if (!newCases) return cases;
    cases.push(...newCases);
  }
  return cases;
}

type RunRow = typeof evalRuns.$inferSelect;

async function lockOpenRun(tx: Database, appNames: string[], except: string[]): Promise<RunRow | undefined> {
  const hasWork = sql`exists (select from ${evalRunCases} where ${evalRunCases.appName} = ${evalRuns.appName}
    and ${evalRunCases.runId} = ${evalRuns.id} and ${isClaimable})`;
  const running = sql`(select count(*) from ${evalRunCases} where ${evalRunCases.status} = 'running'
    and ${evalRunCases.ownerId} is not distinct from ${evalRuns.requestedBy})`;
  const isHosted = sql`${evalRuns.appName} = any(${sql.param(appNames)}::text[])`;
  const [run] = await tx
    .select(getTableColumns(evalRuns))
    .from(evalRuns)
    .where(and(isOpen, isHosted, except.length > 0 ? notInArray(evalRuns.id, except) : undefined, hasWork))
    .orderBy(running, asc(evalRuns.createTime))
    .limit(1)
    .for('update', { skipLocked: true });
  return run;
}

/** Claims by a statement of its own after the run's lock, because it sees only what was committed before. */
async function claimRunCases(tx: Database, run: RunRow, { slots, held, leaseMs }: ClaimLimits): Promise<ClaimedCase[]> {
  const c = evalRunCases;
  const ownCases = held.filter(({ appName, runId }) => appName === run.appName && runId === run.id);
  const isOwn = sql`(${c.place}, ${c.trial}) in (
    select * from unnest(${sql.param(ownCases.map(({ place }) => place))}::int[],
                         ${sql.param(ownCases.map(({ trial }) => trial))}::int[]))`;
  const isOfRun = sql`${c.appName} = ${run.appName} and ${c.runId} = ${run.id}`;
  const ofRun = {
    appName: run.appName,
    runId: run.id,
    evalSetId: run.evalSetId,
    metrics: unescapeValue(run.metrics) as EvalMetric[],
    userSimulator: unescapeValue(run.userSimulator),
    isJudging: run.judgedRunId !== null,
    modelExecutionMode: run.modelExecutionMode,
    toolExecutionMode: run.toolExecutionMode,
  };
  const { rows } = await tx.execute<Omit<ClaimedCase, keyof typeof ofRun>>(sql`
    with chosen as (
      select ${c.place} as place, ${c.trial} as trial from ${c}
      where ${isOfRun} and ${isClaimable} and not ${isOwn} order by ${c.place}, ${c.trial}
      limit least(${slots}::int, greatest(0, ${run.parallelism}::int -
                  (select count(*)::int from ${c} where ${isOfRun} and ${isHeld})))
      for update skip locked)
    update ${c} set
      status = 'running', lease_token = gen_random_uuid(), lease_expire_time = ${expiry(leaseMs)},
      session_id = coalesce(${c.sessionId}, ${newSessionId}), session_count = greatest(${c.sessionCount}, 1),
      start_time = coalesce(${c.startTime}, ${now}), losses = ${c.losses} + (${c.status} = 'running')::int
    from chosen, ${evalCaseVersions}
    where ${isOfRun} and ${c.place} = chosen.place and ${c.trial} = chosen.trial and ${isItsVersion}
    returning ${c.place} as place, ${c.trial} as trial, ${c.evalId} as "evalId", ${c.sessionUserId} as "userId",
              ${c.sessionId} as "sessionId", ${c.sessionCount} as "sessionCount", ${c.losses} as losses,
              ${c.leaseToken} as "leaseToken", ${c.lastSequence} as "lastSequence",
              ${evalCaseVersions.payload}::text as "caseText"`);
  if (rows.length > 0 && run.status === 'queued') {
    const isThisRun = and(eq(evalRuns.appName, run.appName), eq(evalRuns.id, run.id));
    await tx.update(evalRuns).set({ status: 'running' }).where(isThisRun);
  }
  return rows.map((row) => ({ ...row, ...ofRun, caseText: unescapeJson(row.caseText) }));
}

type Claim = Pick<ClaimedCase, 'appName' | 'runId' | 'place' | 'trial' | 'leaseToken'>;

const isCase = ({ appName, runId, place, trial }: Claim): SQL => sql`
  ${evalRunCases.appName} = ${appName} and ${evalRunCases.runId} = ${runId} and ${evalRunCases.place} = ${place}
  and ${evalRunCases.trial} = ${trial}`;
const isMine = (claim: Claim): SQL => sql`
  ${isCase(claim)} and ${evalRunCases.status} = 'running' and ${evalRunCases.leaseToken} = ${claim.leaseToken}`;

/** Renews leases. @returns the tokens that are still valid; the others were taken over */
export async function renewEvalCases(db: Database, leaseTokens: string[], leaseMs: number): Promise<string[]> {
  const rows = await db
    .update(evalRunCases)
    .set({ leaseExpireTime: expiry(leaseMs) })
    .where(
      and(eq(evalRunCases.status, 'running'), sql`${evalRunCases.leaseToken} = any(${sql.param(leaseTokens)}::uuid[])`),
    )
    .returning({ leaseToken: evalRunCases.leaseToken });
  return rows.flatMap(({ leaseToken }) => leaseToken ?? []);
}

/** Outcome of a case: the scores, or the reason why the case could not be completed. */
export interface CaseOutcome {
  /** Sequence of the case's last event in its session. */
  lastSequence: number;
  scored?: ScoredCase | undefined;
  error?: { message: string; failedTurn: number } | undefined;
}

const noLease = { leaseToken: null, leaseExpireTime: null };

/** Ends a claimed case. @returns false, and writes nothing, if another process has taken the case over */
export async function finishEvalCase(
  db: Database,
  claim: Claim,
  { lastSequence, scored, error }: CaseOutcome,
): Promise<boolean> {
  const rows = await db
    .update(evalRunCases)
    .set({
      ...noLease,
      status: error ? 'error' : 'done',
      lastSequence,
      failedTurn: error?.failedTurn ?? null,
      error: error ? escapeText(error.message) : null,
      result: scored ? sql`${escapeJson(withShortTexts(scored, MAX_SCORES))}::jsonb` : null,
      endTime: now,
    })
    .where(isMine(claim))
    .returning({ place: evalRunCases.place });
  return rows.length > 0;
}

export async function releaseEvalCase(db: Database, claim: Claim): Promise<void> {
  const changes = { ...noLease, status: 'waiting' as const };
  await db.update(evalRunCases).set(changes).where(isMine(claim));
}

/** Decrements the number of crashes, because the process that had lost the case's lease is alive. */
export async function takeBackCaseLoss(db: Database, claim: Claim): Promise<void> {
  const { losses, leaseToken } = evalRunCases;
  await db
    .update(evalRunCases)
    .set({ losses: sql`${losses} - 1` })
    .where(and(isCase(claim), isOpenCase, sql`(${leaseToken} = ${claim.leaseToken} or ${losses} > 0)`));
}

/** Gives the case a new session; `undefined` if it has a newer one, or another process has taken it over. */
export async function restartEvalCase(db: Database, claim: ClaimedCase): Promise<string | undefined> {
  const [row] = await db
    .update(evalRunCases)
    .set({ sessionId: newSessionId, sessionCount: sql`${evalRunCases.sessionCount} + 1` })
    .where(and(isMine(claim), eq(evalRunCases.sessionCount, claim.sessionCount)))
    .returning({ sessionId: evalRunCases.sessionId });
  return row?.sessionId ?? undefined;
}

/** Milliseconds until a running case's first lease expires, negative if it has; `undefined` if no case runs. */
export async function findNextLeaseEnd(db: Database): Promise<number | undefined> {
  const [row] = await db
    .select({
      ms: sql<string | null>`ceil(extract(epoch from min(${evalRunCases.leaseExpireTime}) - ${now}) * 1000)`,
    })
    .from(evalRunCases)
    .where(eq(evalRunCases.status, 'running'));
  return row?.ms == null ? undefined : Number(row.ms);
}
