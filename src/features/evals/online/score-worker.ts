import { hash } from 'node:crypto';
import { listChosenSessions } from '../../../conversation/sessions/session-list.ts';
import { isBusy } from '../../../conversation/sessions/session-row.ts';
import { AppError, isPassingFailure } from '../../../core/errors.ts';
import { findInvocationText, listInvocationsText } from '../../../invocations/invocation-store.ts';
import { insertDelivery } from '../../../invocations/webhooks/delivery-store.ts';
import { findWebhook } from '../../../invocations/webhooks/webhook-store.ts';
import { persist } from '../../../invocations/persist.ts';
import type { Database } from '../../../platform/db/database.ts';
import { endJob } from '../../../platform/jobs/job-store.ts';
import { type JobEnd, runJobs } from '../../../platform/jobs/run-jobs.ts';
import type { RunEnd } from '../../../platform/work/leased-queue.ts';
import type { EvalMetric } from '../metrics/criteria.ts';
import type { EvalStatus } from '../metrics/status.ts';
import type { ScoredCase } from '../scoring/score.ts';
import { scoreSession, toUnscored } from '../scoring/score-case.ts';
import { saveSessionScore } from '../scoring/session-score-store.ts';
import type { EvalContext } from '../sets/context.ts';
import { countScore, countSkipped, type DueScore, SCORE_JOB, skipDue, toDueScore } from './rule-store.ts';
import { toPayer } from './score-rule.ts';

/** Topic of the notification that a score rule was created or changed. */
export const RULES_TOPIC = 'score-rules';
/** Maximum sessions scored at once. Most wait for a judge. */
const MAX_SCORES = 8;
/** Maximum sessions of one rule that are scored at once, over all processes, because other rules need slots too. */
const MAX_PER_RULE = 4;
/** Maximum pause between polls, because no notification tells that a score is due. */
const MAX_PAUSE_MS = 5_000;
/** Pause in milliseconds before another look at a session in which an invocation runs. */
const BUSY_PAUSE_MS = 5_000;
/** Milliseconds of retrying to store a score, because judges would have to be asked again. */
const PATIENCE_MS = 60_000;

/** Scores due jobs until the process drains. @returns a promise that settles after the last score */
export async function runScoreRules(context: EvalContext): Promise<void> {
  await runJobs<DueScore>(context, {
    kind: SCORE_JOB,
    appNames: [...context.agents.keys()],
    name: 'scores',
    topic: RULES_TOPIC,
    maxJobs: MAX_SCORES,
    limits: { lane: MAX_PER_RULE },
    maxPauseMs: MAX_PAUSE_MS,
    yields: true,
    work: 'score_work',
    toWork: toDueScore,
    run: (due, signal) => scoreDue(context, due, signal),
    giveUp: (due, reason) => save(context, due, 0, toUnscored(due.rule.evalMetrics, reason)),
  });
}

async function scoreDue(context: EvalContext, due: DueScore, signal: AbortSignal): Promise<JobEnd> {
  const { db } = context.database;
  const { appName, ruleId, rule } = due;
  if (due.invocationId === '' && (await isBusy(db, due))) return { againInMs: BUSY_PAUSE_MS };
  const [session] = await listChosenSessions(db, { ...rule, appName, keys: [due], limit: 1 });
  const isOfRule = rule.agentVersion == null || (await isOfVersion(db, due, rule.agentVersion));
  if (!session || !isOfRule) return 'done';
  if (!(await countScore(db, appName, ruleId, rule.maxPerDay))) {
    const skippedCount = await skipDue(db, due);
    await countSkipped(db, appName, ruleId, skippedCount);
    context.metrics?.count('agent_runtime_scores_total', { outcome: 'skipped' }, skippedCount);
    return 'over';
  }
  const result = await scoreOrSayWhy(context, due, session.lastSequence, signal);
  return result ? save(context, due, session.lastSequence, result) : 'done';
}

/** True if this version answered the invocation or, for a whole session, the session's last invocation. */
async function isOfVersion(db: Database, due: DueScore, version: string): Promise<boolean> {
  const { invocationId } = due;
  const one = async () => `[${(await findInvocationText(db, due, invocationId)) ?? ''}]`;
  const text = await (invocationId === '' ? listInvocationsText(db, due, 1) : one());
  const [last] = JSON.parse(text) as { agentVersion?: string }[];
  return last?.agentVersion?.startsWith(version) === true;
}

/** Scores a session, or returns why not. @throws errors after which a retry in any process may succeed */
async function scoreOrSayWhy(
  context: EvalContext,
  due: DueScore,
  lastSequence: number,
  signal: AbortSignal,
): Promise<ScoredCase | undefined> {
  const metrics = due.rule.evalMetrics as EvalMetric[];
  const by = { payer: toPayer(due.ruleId), invocationId: due.invocationId };
  try {
    return await scoreSession(context, due, lastSequence, metrics, signal, by);
  } catch (error) {
    if (signal.aborted || isPassingFailure(error)) throw error;
    const isExpected = error instanceof AppError;
    if (!isExpected) context.log.error({ err: error }, 'a session could not be scored');
    return toUnscored(metrics, isExpected ? error.message : 'The runtime failed while it scored the session.');
  }
}

/** Saves a score, ends its job and notifies the rule's webhook of a failed score, in one transaction. */
async function save(context: EvalContext, due: DueScore, lastSequence: number, scored: ScoredCase): Promise<RunEnd> {
  const { job, ruleId, invocationId, rule } = due;
  const metricsHash = hash('sha256', JSON.stringify([ruleId, invocationId, rule.evalMetrics]));
  const score = { lastSequence, scored, ruleId, invocationId: invocationId || null };
  const saveOnce = async (tx: Database) => {
    const end = await endJob(tx, SCORE_JOB, job);
    const isSaved = await saveSessionScore(tx, due, score, metricsHash);
    if (isSaved && scored.finalStatus === 'FAILED') await tell(tx, due, lastSequence, scored);
    return end;
  };
  const end = await persist(() => context.database.transaction(saveOnce), PATIENCE_MS);
  context.metrics?.count('agent_runtime_scores_total', { outcome: OUTCOMES[scored.finalStatus] });
  context.tracing?.traceScore?.({ key: due, invocationId, results: scored.overall });
  return end;
}

const OUTCOMES = {
  PASSED: 'passed',
  FAILED: 'failed',
  NOT_EVALUATED: 'not_evaluated',
  INFORMATIONAL: 'not_evaluated',
} as const satisfies Record<EvalStatus, string>;

/** Queues a delivery of a failed score to the rule's webhook, if it has one: with ids and scores but no content. */
async function tell(tx: Database, due: DueScore, lastSequence: number, { overall }: ScoredCase): Promise<void> {
  const { appName, userId, sessionId, ruleId, invocationId, rule } = due;
  const webhook = rule.webhookId ? await findWebhook(tx, rule.webhookId, undefined) : undefined;
  if (webhook?.appName !== appName) return;
  const scores = overall.flatMap(({ metricName, score, threshold, status }) =>
    status === 'FAILED' ? [{ metricName, score, threshold }] : [],
  );
  const data = { appName, userId, sessionId, ruleId, invocationId: invocationId || null, lastSequence, scores };
  await insertDelivery(tx, webhook, 'score.low', data);
}
