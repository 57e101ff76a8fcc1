import { setTimeout as sleep } from 'node:timers/promises';
import type { z } from 'zod';
import { ConflictError, InvalidError, NotFoundError, UnavailableError } from '../../../core/errors.ts';
import { TEST_USER } from '../../../core/names.ts';
import { identifierSchema } from '../../../core/session.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { SHARED_STATE_DEMAND, writtenCallDemands } from '../../../platform/http/operation/demands.ts';
import { mayActFor, requireScope } from '../../../platform/http/access/authorize.ts';
import type { Database } from '../../../platform/db/database.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { Wakeup } from '../../../platform/work/poll-loop.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { type EvalSetKey, evalSetNotFound } from '../sets/eval-set-store.ts';
import { checkMetricsSize, MAX_CASES } from '../sets/bounds.ts';
import { toExecutionMode } from '../sets/eval-set.ts';
import { type EndedPage, findEndedCases, insertEvalRun, listEvalRuns } from './eval-run-store.ts';
import {
  DEFAULT_JUDGE_TOKENS,
  DEFAULT_PARALLELISM,
  type EvalRun,
  type EvalRunKey,
  MAX_PARALLELISM,
  runEvalSchema,
  runTopic,
} from './eval-run.ts';
import { findRunnableSet, type RunnableCase } from '../cases/eval-case-store.ts';
import { readSimulatedUser } from './simulated-user.ts';
import { checkMetrics } from '../scoring/score-case.ts';
import { type EvalContext, getRequester } from '../sets/context.ts';

/** Maximum open runs of a requester in an application, reached only by a client that does not wait for its runs. */
export const MAX_OPEN_RUNS = 100;

/** Maximum pause between polls of a run, because notifications may be lost. */
const POLL_MS = 1_000;
/** Minimum pause between polls of a run. Each poll of a follower counts all cases of the run. */
const PAUSE_MS = 50;

/**
 * @returns the id of the run; `undefined` if the set has no cases.
 * @throws {NotFoundError} if the set or a named case does not exist, or the caller may not act for a case's user.
 * @throws {InvalidError} if a case names another application, there are too many cases, or the settings of the
 *   simulated user are invalid.
 * @throws {ForbiddenError} if a case writes `app:` state and the caller lacks the scope for it, or if the model's
 *   answers come from the case while tools are live, and the caller lacks the scope to override the agent.
 * @throws {ConflictError} if too many runs are open. @throws {TooLargeError} if the metrics are too large.
 * @throws {ValidationFailedError} if a metric is unknown or its criterion invalid. Unknown metrics for which `isOther`
 *   returns true are accepted and not evaluated.
 */
export async function startRun(
  { database, agents, newId }: EvalContext,
  key: EvalSetKey,
  body: z.input<typeof runEvalSchema>,
  principal: Principal,
  isOther?: Parameters<typeof checkMetrics>[2],
): Promise<string | undefined> {
  const agent = agents.get(key.appName);
  if (!agent) throw new NotFoundError(`App not found: ${key.appName}`);
  const requestedBy = getRequester(principal);
  const set = await findRunnableSet(database.db, { ...key, ownerId: requestedBy });
  if (!set) throw new NotFoundError(evalSetNotFound(key));
  const { userSimulatorConfig: userSimulator, parallelism, maxJudgeTokens } = body;
  const metrics = withoutKnownNulls(runEvalSchema, body).evalMetrics;
  readSimulatedUser(userSimulator);
  checkMetricsSize(metrics, userSimulator);
  checkMetrics(metrics, agent, isOther);
  const evalIds = body.evalCaseIds?.length ? body.evalCaseIds : (body.evalIds ?? []);
  const cases = chooseCases(key, set.cases, evalIds);
  if (cases.length === 0) return undefined;
  if (cases.some(({ writesSharedState }) => writesSharedState)) requireScope(principal, SHARED_STATE_DEMAND);
  const modelExecutionMode = toExecutionMode(body.modelExecutionMode, set.modelExecutionMode);
  const toolExecutionMode = toExecutionMode(body.toolExecutionMode, set.toolExecutionMode);
  const modes = { modelExecutionMode, toolExecutionMode };
  for (const demand of writtenCallDemands(modes)) requireScope(principal, demand);
  const trials = body.trials ?? 1;
  const total = cases.length * trials;
  if (total > MAX_CASES)
    throw new InvalidError(`The run has ${total} cases, trials counted; the maximum is ${MAX_CASES}.`);
  const runId = newId();
  const run = {
    ...key,
    runId,
    requestedBy,
    metrics,
    userSimulator,
    ...modes,
    trials,
    parallelism: Math.min(parallelism ?? DEFAULT_PARALLELISM, MAX_PARALLELISM),
    maxJudgeTokens: maxJudgeTokens ?? DEFAULT_JUDGE_TOKENS,
    agentHash: agent.version.digest,
    modelName: agent.describe().model,
    cases: cases.map((one) => ({ ...one, userId: chooseUser(key, one, principal) })),
  };
  await insertEvalRun(database.db, run, MAX_OPEN_RUNS);
  return runId;
}

function chooseCases({ evalSetId }: EvalSetKey, cases: RunnableCase[], evalIds: string[]): RunnableCase[] {
  if (evalIds.length === 0) return cases;
  const existingIds = new Set(cases.map(({ evalId }) => evalId));
  const unknownIds = [...new Set(evalIds)].filter((evalId) => !existingIds.has(evalId));
  if (unknownIds.length > 0) {
    const list = unknownIds.map((evalId) => `\`${evalId}\``).join(', ');
    throw new NotFoundError(`Eval case ${list} not found in eval set \`${evalSetId}\`.`);
  }
  const requestedIds = new Set(evalIds);
  return cases.filter(({ evalId }) => requestedIds.has(evalId));
}

/** A case's user: the caller must be allowed to act for it, because the agent may read the user's memories. */
function chooseUser({ appName, evalSetId }: EvalSetKey, one: RunnableCase, principal: Principal): string {
  if (one.appName !== null && one.appName !== appName) {
    const message = `The session input of eval case \`${one.evalId}\` names the app ${one.appName}, not ${appName}.`;
    throw new InvalidError(message);
  }
  const userId = one.userId ?? (principal.kind === 'user' ? principal.userId : TEST_USER);
  if (!mayActFor(principal, userId))
    throw new NotFoundError(`Eval case \`${one.evalId}\` not found in eval set \`${evalSetId}\`.`);
  if (identifierSchema.safeParse(userId).success) return userId;
  throw new InvalidError(`The session input of eval case \`${one.evalId}\` names a user that cannot be one.`);
}

export async function findRun(
  db: Database,
  { appName, runId }: EvalRunKey,
  principal: Principal,
): Promise<EvalRun | undefined> {
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(runId)) return undefined;
  return (await listEvalRuns(db, { appName, runId, requestedBy: getRequester(principal) }))[0];
}

type FollowContext = Pick<InvocationContext, 'database' | 'notifications'>;

/** Yields the run now and after each change, until it has ended or `signal` aborts; nothing without a run. */
export const followRun = (
  context: FollowContext,
  key: EvalRunKey,
  principal: Principal,
  signal: AbortSignal,
): AsyncGenerator<EvalRun> => follow(context, key, () => findRun(context.database.db, key, principal), signal);

/** @param isNew - the run has just begun, so that the first read comes after the first notification */
async function* follow<Run extends { status: EvalRun['status'] | undefined }>(
  { notifications }: FollowContext,
  { runId }: EvalRunKey,
  find: () => Promise<Run | undefined>,
  signal: AbortSignal,
  isNew = false,
): AsyncGenerator<Run> {
  const wakeup = new Wakeup();
  const unsubscribe = notifications.subscribe(runTopic(runId), wakeup.wake);
  try {
    if (isNew) await wakeup.wait(POLL_MS, signal);
    for (let before = ''; !signal.aborted; ) {
      wakeup.reset();
      const run = await find();
      if (run?.status === undefined) return;
      const now = JSON.stringify(run);
      if (now !== before) yield run;
      before = now;
      if (run.status !== 'queued' && run.status !== 'running') return;
      await sleep(PAUSE_MS, undefined, { signal }).catch(() => undefined);
      await wakeup.wait(POLL_MS, signal);
    }
  } finally {
    unsubscribe();
  }
}

/**
 * Waits for a run's end.
 * @returns the first page of its cases; `undefined` if `signal` aborts first, because the client has disconnected
 */
export async function waitForRun(
  context: InvocationContext,
  key: EvalRunKey,
  isNew: boolean,
  signal: AbortSignal,
): Promise<EndedPage | undefined> {
  const either = AbortSignal.any([signal, context.draining]);
  const find = () => findEndedCases(context.database.db, key, undefined, true);
  for await (const page of follow(context, key, find, either, isNew)) {
    if (page.status === 'done') return page;
    if (page.status === 'cancelled') throw new ConflictError(`The evaluation run ${key.runId} was cancelled.`);
  }
  if (!context.draining.aborted) return undefined;
  throw new UnavailableError(`This process stops; the evaluation run ${key.runId} goes on elsewhere.`);
}
