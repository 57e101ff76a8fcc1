import { hash } from 'node:crypto';
import { listChosenSessions } from '../../../conversation/sessions/choose-sessions.ts';
import { AppError, isPassingFailure, LeaseLostError } from '../../../core/errors.ts';
import { findInvocationText, listInvocationsText } from '../../../invocations/invocation-store.ts';
import { insertDelivery } from '../../../invocations/webhooks/delivery-store.ts';
import { findWebhook, type WebhookRow } from '../../../invocations/webhooks/webhook-store.ts';
import { persist } from '../../../invocations/persist.ts';
import type { Database } from '../../../platform/db/database.ts';
import { type Claim, type ClaimRequest, pauseUntil, runLeasedQueue } from '../../../platform/work/leased-queue.ts';
import type { EvalMetric } from '../metrics/criteria.ts';
import type { EvalStatus } from '../metrics/status.ts';
import type { ScoredCase } from '../scoring/score.ts';
import { scoreSession, toUnscored } from '../scoring/score-case.ts';
import { saveSessionScore } from '../scoring/session-score-store.ts';
import type { EvalContext } from '../sets/context.ts';
import { claimJobs, endJob, findNextDueMs, renewJobs, type ScoreJob, skipDue, takeBackJobLoss } from './job-store.ts';
import { countScore, countSkipped } from './rule-store.ts';
import { toPayer } from './score-rule.ts';

/** Topic of the notification that a score rule was created or changed. */
export const RULES_TOPIC = 'score-rules';
/** Maximum sessions scored at once, and of one rule, because others need slots too. Most slots wait for a judge. */
const MAX_SCORES = 8;
const MAX_PER_RULE = 4;
/** A process claims at most 20 jobs per second, because requests of users need the processor. */
const PER_CLAIM = 2;
const MIN_PAUSE_MS = 100;
/** The pause after a claim is 20 times as long as it, because a slow claim means that the database is under load. */
const REST = 20;
const MAX_REST_MS = 1_000;
/** Maximum pauses with and without rules. Workers poll, because no notification tells that a job becomes due. */
const MAX_PAUSE_MS = 5_000;
const IDLE_PAUSE_MS = 60_000;

/** Scores due jobs until the process drains. @returns a promise that settles after the last score */
export async function runScoreRules(context: EvalContext): Promise<void> {
  const { database, leaseTimes, agents } = context;
  const { db } = database;
  if (db.isOnCluster) return;
  const leaseMs = leaseTimes.durationMs;
  let restsUntil = 0;
  const claim = async ({ slots, held }: ClaimRequest<ScoreJob>): Promise<Claim<ScoreJob>> => {
    const startedAt = performance.now();
    if (startedAt < restsUntil) return { jobs: [], pauseMs: restsUntil - startedAt };
    const places = Map.groupBy(held, ({ appName, ruleId }) => JSON.stringify([appName, ruleId]));
    const full = [...places.values()].flatMap((jobs): [string, string][] =>
      jobs[0] && jobs.length >= MAX_PER_RULE ? [[jobs[0].appName, jobs[0].ruleId]] : [],
    );
    const limits = { slots: Math.min(slots, PER_CLAIM), appNames: [...agents.keys()], full, leaseMs };
    const jobs = slots > 0 ? await claimJobs(db, limits) : [];
    restsUntil = performance.now() + Math.min(MAX_REST_MS, REST * (performance.now() - startedAt));
    if (jobs.length > 0) return { jobs, pauseMs: 0 };
    const dueMs = await findNextDueMs(db);
    return { jobs, pauseMs: dueMs === undefined ? IDLE_PAUSE_MS : pauseUntil(MAX_PAUSE_MS, dueMs ?? undefined) };
  };
  await runLeasedQueue<ScoreJob>(context, {
    name: 'scores',
    topic: RULES_TOPIC,
    maxJobs: MAX_SCORES,
    minPauseMs: MIN_PAUSE_MS,
    claim,
    lease: {
      renewalMs: leaseTimes.renewalMs,
      cancelTopic: RULES_TOPIC,
      renew: async (jobs, stop) => {
        const validTokens = await renewJobs(db, jobs, leaseMs);
        const lostJobs = jobs.filter(({ leaseToken }) => !validTokens.has(leaseToken));
        for (const job of lostJobs) stop(job, new LeaseLostError('The session goes on, or the rule is gone.'));
        return lostJobs;
      },
    },
    losses: {
      count: ({ losses }) => losses,
      giveUp: (job, reason) => save(context, job, 0, toUnscored(job.rule.evalMetrics, reason)),
      takeBack: (job) => takeBackJobLoss(db, job),
    },
    run: (job, signal) => scoreJob(context, job, signal),
    toLogFields: ({ appName, ruleId }) => ({ appName, ruleId }),
  });
}

async function scoreJob(context: EvalContext, job: ScoreJob, signal: AbortSignal): Promise<void> {
  const { db } = context.database;
  const { appName, ruleId, rule } = job;
  const [session] = await listChosenSessions(db, { ...rule, appName, keys: [job], limit: 1 });
  const isOfRule = rule.agentVersion == null || (await isOfVersion(db, job, rule.agentVersion));
  if (!session || !isOfRule) {
    await endJob(db, job);
  } else if (await countScore(db, appName, ruleId, rule.maxPerDay)) {
    const result = await scoreOrSayWhy(context, job, session.lastSequence, signal);
    if (result) await save(context, job, session.lastSequence, result);
  } else {
    const skippedCount = await skipDue(db, job);
    await countSkipped(db, appName, ruleId, skippedCount);
    context.metrics?.scored('skipped', skippedCount);
  }
}

/** True if this version answered the job's invocation or, for a whole session, the session's last invocation. */
async function isOfVersion(db: Database, job: ScoreJob, version: string): Promise<boolean> {
  const { invocationId } = job;
  const one = async () => `[${(await findInvocationText(db, job, invocationId)) ?? ''}]`;
  const text = await (invocationId === '' ? listInvocationsText(db, job, 1) : one());
  const [last] = JSON.parse(text) as { agentVersion?: string }[];
  return last?.agentVersion?.startsWith(version) === true;
}

/** Scores a session, or returns why not. @throws errors after which a retry in any process may succeed */
async function scoreOrSayWhy(
  context: EvalContext,
  job: ScoreJob,
  lastSequence: number,
  signal: AbortSignal,
): Promise<ScoredCase | undefined> {
  const metrics = job.rule.evalMetrics as EvalMetric[];
  const by = { payer: toPayer(job.ruleId), invocationId: job.invocationId };
  try {
    return await scoreSession(context, job, lastSequence, metrics, signal, by);
  } catch (error) {
    if (signal.aborted || isPassingFailure(error)) throw error;
    const isExpected = error instanceof AppError;
    if (!isExpected) context.log.error({ err: error }, 'a session could not be scored');
    return toUnscored(metrics, isExpected ? error.message : 'The runtime failed while it scored the session.');
  }
}

/** Saves a score, ends its job and notifies the rule's webhook of a failed score, in one transaction. */
async function save(context: EvalContext, job: ScoreJob, lastSequence: number, scored: ScoredCase): Promise<void> {
  const { ruleId, invocationId, rule } = job;
  const metricsHash = hash('sha256', JSON.stringify([ruleId, invocationId, rule.evalMetrics]));
  const score = { lastSequence, scored, ruleId, invocationId: invocationId || null };
  const saveOnce = async (tx: Database) => {
    if (!(await endJob(tx, job))) throw new LeaseLostError('The session is scored elsewhere, goes on, or is gone.');
    if (!(await saveSessionScore(tx, job, score, metricsHash)) || scored.finalStatus !== 'FAILED') return;
    const webhook = rule.webhookId ? await findWebhook(tx, rule.webhookId, undefined) : undefined;
    if (webhook?.appName === job.appName) await tell(tx, webhook, job, lastSequence, scored);
  };
  await persist(() => context.database.transaction(saveOnce), context.leaseTimes.durationMs);
  context.metrics?.scored(OUTCOMES[scored.finalStatus]);
  context.tracing?.traceScore?.({ key: job, invocationId, results: scored.overall });
}

const OUTCOMES = {
  PASSED: 'passed',
  FAILED: 'failed',
  NOT_EVALUATED: 'not_evaluated',
  INFORMATIONAL: 'not_evaluated',
} as const satisfies Record<EvalStatus, string>;

/** Queues a notification of a failed score for a webhook. It contains ids and scores but no content. */
function tell(tx: Database, webhook: WebhookRow, job: ScoreJob, lastSequence: number, { overall }: ScoredCase) {
  const { appName, userId, sessionId, ruleId, invocationId } = job;
  const scores = overall.flatMap(({ metricName, score, threshold, status }) =>
    status === 'FAILED' ? [{ metricName, score, threshold }] : [],
  );
  const data = { appName, userId, sessionId, ruleId, invocationId: invocationId || null, lastSequence, scores };
  return insertDelivery(tx, webhook, 'score.low', data);
}
