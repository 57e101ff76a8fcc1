import { hash } from 'node:crypto';
import { z } from 'zod';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { jsonObject } from '../../../core/content.ts';
import { identifierSchema, storedIdentifierSchema } from '../../../core/session.ts';
import { readableUsers } from '../../../platform/http/access/authorize.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { NEXT_CURSOR_HEADER, nextCursorHeader, pageQuery, readPage } from '../../../platform/http/operation/cursor.ts';
import { appPath } from '../../../platform/http/operation/parameters.ts';
import { type ChosenSession, listChosenSessions } from '../../../conversation/sessions/session-list.ts';
import { labelCondition, MAX_LABELS } from '../../../conversation/sessions/labels.ts';
import { addSessions } from '../cases/add-sessions.ts';
import { type EvalMetric, evalMetricSchema, exampleMetrics } from '../metrics/criteria.ts';
import { STATUS_NUMBERS } from '../metrics/status.ts';
import { toMetricResult, toEfficiencyView } from './score.ts';
import { DEV_APP_PATH, type EvalContext, evalSet, room, toDisconnectSignal, toOwnKey } from '../sets/context.ts';
import { checkMetricName, checkMetrics, scoreSession } from './score-case.ts';
import { hasScore, isUnscored, listSessionScores, saveSessionScore, type SessionScore } from './session-score-store.ts';
import { listMetrics, PLAIN_METRICS } from './metrics-info.ts';
import { looseObject, optional } from '../../../core/members.ts';

/** Maximum sessions per request, because scoring may call a judge for each turn of each session. */
const MAX_COPIED = 200;
const MAX_SCORED = 50;

const seconds = (meaning: string) => z.number().min(0).max(9e12).nullish().describe(`${meaning}, Unix seconds.`);
export const sessionFilter = {
  users: z.array(identifierSchema).max(MAX_COPIED).nullish().describe('Only sessions of these users.'),
  sessions: z
    .array(
      z.looseObject({
        userId: identifierSchema.describe('Owner of the session.'),
        sessionId: identifierSchema.describe('The session that is wanted.'),
      }),
    )
    .max(MAX_COPIED)
    .nullish()
    .describe('Only these.'),
  updatedFrom: seconds('Only sessions updated at or after'),
  updatedBefore: seconds('Only sessions updated before'),
  tool: identifierSchema.nullish().describe('Only sessions in which an agent called this tool.'),
  hasError: z.boolean().nullish().describe('Only sessions with an event of an error, or without any.'),
  labels: optional(
    z.array(labelCondition).max(MAX_LABELS),
    'Only sessions with all of these labels: `name=value`, or `name` for whatever value.',
  ),
  score: z
    .looseObject({
      metricName: identifierSchema.describe('The metric.'),
      atLeast: z.number().default(0).describe('Least score [0].'),
      atMost: z.number().default(1).describe('Greatest score [1].'),
    })
    .nullish()
    .describe('Only sessions whose newest score in a metric lies in this range.'),
};
const limited = (maximum: number) =>
  z.int().min(1).max(maximum).nullish().describe(`Maximum number of sessions, last updated first [${maximum}].`);
const copySchema = looseObject('Which sessions become cases.', { ...sessionFilter, limit: limited(MAX_COPIED) });
type Filter = z.input<z.ZodObject<typeof sessionFilter>>;

const scoreSchema = looseObject('Which sessions are scored, and by what.', {
  ...sessionFilter,
  evalMetrics: z.array(evalMetricSchema).min(1).max(50).describe('What the turns are scored by.'),
  limit: limited(MAX_SCORED),
});
const sessionScoreSchema = looseObject('A session with its scores.', {
  userId: z.string().describe('Owner of the session.'),
  sessionId: z.string().describe('The session.'),
  lastSequence: z.int().describe('The last event of the session when it was scored.'),
  finalEvalStatus: z.int().describe('1 passed, 2 failed, 3 not evaluated.'),
  overallEvalMetricResults: z.array(jsonObject).describe('What each metric says.'),
  efficiency: jsonObject.describe('Calls, tokens and times of the turns, from the stored events: the means.'),
  cost: z.number().optional().describe('What the models cost by the present prices; absent where that is not known.'),
  ruleId: z.string().optional().describe('The rule that asked for it; absent where a request did.'),
  invocationId: z.string().optional().describe('The invocation whose turn it is of; absent for the whole session.'),
});
const exampleScore = {
  userId: 'u1',
  sessionId: 's1',
  lastSequence: 4,
  finalEvalStatus: 1,
  overallEvalMetricResults: [{ metricName: 'safety_v1', threshold: 1, score: 1, evalStatus: 1 }],
  efficiency: { toolCallCount: 1, inferenceCallCount: 2, tokenUsage: { totalTokens: 60 }, invocationDuration: {} },
};

const score = room.resource({
  noun: 'score',
  id: 'SessionScore',
  path: `${DEV_APP_PATH}/session-scores`,
  within: appPath,
  schema: sessionScoreSchema,
  example: exampleScore,
});

function choose(
  { database, agents }: EvalContext,
  appName: string,
  wanted: Filter,
  principal: Principal,
  limit: number,
  unscoredBy?: string,
): Promise<ChosenSession[]> {
  const { atLeast = 0, atMost = 1, metricName } = wanted.score ?? {};
  if (metricName !== undefined) checkMetricName(metricName, agents.get(appName), ['score', 'metricName']);
  return listChosenSessions(database.reads, {
    ...wanted,
    appName,
    userIds: readableUsers(principal, wanted.users ?? undefined),
    keys: wanted.sessions,
    also: [
      metricName === undefined ? undefined : hasScore(metricName, atLeast, atMost),
      unscoredBy === undefined ? undefined : isUnscored(unscoredBy),
    ],
    limit,
  });
}

const toShown = ({ scored, cost, ruleId, invocationId, ...session }: SessionScore) => ({
  ...session,
  ...(ruleId == null ? {} : { ruleId }),
  ...(invocationId == null ? {} : { invocationId }),
  finalEvalStatus: STATUS_NUMBERS[scored.finalStatus],
  overallEvalMetricResults: scored.overall.map(toMetricResult),
  efficiency: toEfficiencyView(scored.efficiency),
  ...(cost === null ? {} : { cost }),
});

const metricSchema = z.looseObject({
  metricName: z.string().describe('What a run asks for it by.'),
  description: z.string().describe('What it measures.'),
  metricValueInfo: looseObject('What its values are like.', {
    interval: looseObject('Where its values lie.', {
      minValue: z.number().describe('Smallest value.'),
      openAtMin: z.boolean().describe('True: the smallest value itself is never reached.'),
      maxValue: z.number().describe('Largest value.'),
      openAtMax: z.boolean().describe('True: the largest value itself is never reached.'),
    }),
  }),
  requiresThreshold: z.boolean().describe('True: without a threshold it is not evaluated.'),
});

const metricsInfoSchema = looseObject('The metrics of evaluations.', {
  metricsInfo: z.array(metricSchema).describe('One entry for each metric.'),
});

export const scoringOperations = [
  evalSet.action('add-sessions')({
    operationId: 'addSessionsToEvalSet',
    summary: 'Add stored sessions as evaluation cases',
    description:
      'Those that the caller may read and all filters choose. The `mask` of the application, where it has one, sees ' +
      'each case before it is stored. All of them are added, or none.',
    body: { schema: copySchema, example: { tool: 'calculator', hasError: true, limit: 20 } },
    success: {
      schema: z.looseObject({ evalIds: z.array(z.string()).describe('The new cases.') }),
      description: 'The cases that were made.',
      example: { evalIds: ['s1'] },
    },
    errors: {
      400: 'The mask made something else than a case.',
      404: 'The set is another’s.',
      409: 'The set has one of the cases.',
    },
    run: async (context, { path, body, principal }) => {
      const chosen = await choose(context, path.appName, body, principal, body.limit ?? MAX_COPIED);
      return { evalIds: await addSessions(context, toOwnKey(path, principal), chosen) };
    },
  }),
  score.create({
    operationId: 'scoreSessions',
    summary: 'Score stored sessions',
    description:
      'Those that the caller may read, all filters choose, and these metrics have not scored as they are now: one that ' +
      'goes on is scored again, one that is deleted meanwhile is left out. The agent is not called. Metrics that ' +
      'need an expected conversation say so.',
    body: { schema: scoreSchema, example: { evalMetrics: exampleMetrics, tool: 'calculator' } },
    success: {
      status: 200,
      schema: z.array(sessionScoreSchema),
      description: 'What was scored.',
      example: [exampleScore],
    },
    run: async (context, { path: { appName }, body, principal, response }) => {
      const metrics = withoutKnownNulls(scoreSchema, body).evalMetrics as EvalMetric[];
      checkMetrics(metrics, context.agents.get(appName));
      const metricsHash = hash('sha256', JSON.stringify(metrics));
      const signal = toDisconnectSignal(response);
      const scores: SessionScore[] = [];
      for (const one of await choose(context, appName, body, principal, body.limit ?? MAX_SCORED, metricsHash)) {
        if (signal.aborted) break;
        const key = { appName, userId: one.userId, sessionId: one.sessionId };
        const scored = await scoreSession(context, key, one.lastSequence, metrics, signal);
        // A session that was deleted after its selection is omitted from the result.
        const saved = scored && (await saveSessionScore(context.database.db, key, { ...one, scored }, metricsHash));
        if (!saved) continue;
        scores.push({ ...one, ...saved, scored });
        context.tracing?.traceScore?.({ key, invocationId: '', results: scored.overall });
      }
      return scores.map(toShown);
    },
  }),
  score.list({
    summary: 'List the scores of stored sessions',
    query: pageQuery('scores').extend({
      userId: storedIdentifierSchema.optional().describe('Only sessions of this user.'),
      sessionId: storedIdentifierSchema.optional().describe('Only this session.'),
      ruleId: storedIdentifierSchema.optional().describe('Only those that this rule asked for.'),
    }),
    success: { description: 'The scores, newest first.', headers: nextCursorHeader },
    run: async ({ database }, { path: { appName }, query, principal, response }) => {
      const { userId, sessionId, ruleId, limit, cursor } = query;
      const userIds = readableUsers(principal, userId === undefined ? undefined : [userId]);
      const { items, nextCursor } = await readPage({ limit, cursor }, (most, after) =>
        listSessionScores(database.reads, appName, { userIds, sessionId, ruleId, limit: most, after }),
      );
      if (nextCursor) response.setHeader(NEXT_CURSOR_HEADER, nextCursor);
      return items.map(toShown);
    },
  }),
  room.operation({
    method: 'get',
    path: `${DEV_APP_PATH}/metrics-info`,
    operationId: 'getMetricsInfo',
    wire: 'ADK',
    summary: 'List the metrics of evaluations',
    owner: 'service',
    parameters: { path: appPath },
    success: {
      schema: metricsInfoSchema,
      description: 'Each metric with the interval of its values.',
      example: { metricsInfo: PLAIN_METRICS },
    },
    handler: async ({ agents }, { path }) => ({
      kind: 'value',
      value: { metricsInfo: await listMetrics(agents, path.appName) },
    }),
  }),
];
