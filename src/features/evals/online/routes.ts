import { z } from 'zod';
import { ConflictError, InvalidError, NotFoundError } from '../../../core/errors.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { findWebhook } from '../../../invocations/webhooks/webhook-store.ts';
import { runAsSystem } from '../../../platform/context.ts';
import { operation } from '../../../platform/http/operation/operation.ts';
import { appPath, scoreRulePath } from '../../../platform/http/operation/parameters.ts';
import { checkMetrics } from '../scoring/score-case.ts';
import { checkMetricsSize } from '../sets/bounds.ts';
import type { EvalContext } from '../sets/context.ts';
import { deleteRule, listRules, saveRule } from './rule-store.ts';
import { MAX_RULES, scoreRuleSchema, shownRuleSchema } from './score-rule.ts';
import { RULES_TOPIC } from './score-worker.ts';
import { verdictOperations } from './verdict-routes.ts';

const RULES_PATH = '/apps/{app_name}/score-rules';
const RULE_PATH = `${RULES_PATH}/{rule_id}`;
const exampleRule = {
  evalMetrics: [{ metricName: 'safety_v1', threshold: 1 }],
  share: 0.1,
  labels: ['env=prod'],
  maxPerDay: 1_000,
  maxTokensPerDay: 1_000_000,
};

/** Rules are about the sessions of all users: for keys that act for all of them. */
const forDevelopers = { scope: 'develop', isForKeys: true, owner: 'service' } as const;

const saveOne = operation({
  method: 'put',
  path: RULE_PATH,
  operationId: 'saveScoreRule',
  ...forDevelopers,
  summary: 'Score sessions as users have them',
  description:
    'Makes or replaces a rule: ended invocations, or sessions that have become quiet, are scored in the background ' +
    'within its bounds of a day. Judges spend from the rule and from the budget of the application, from no user. ' +
    `At most ${MAX_RULES} of an application.`,
  parameters: { path: scoreRulePath },
  body: { schema: scoreRuleSchema, required: true, example: exampleRule },
  errors: {
    400: 'The webhook is none of the application.',
    409: 'There are as many rules as there may be, or the database is a cluster.',
  },
  handler: async ({ database, notifications, agents }: EvalContext, { path: { appName, ruleId }, body }) => {
    checkMetricsSize(body.evalMetrics);
    if (database.db.isOnCluster) throw new ConflictError('There are no rules where the database is a cluster.');
    const rule = scoreRuleSchema.parse(withoutKnownNulls(scoreRuleSchema, body));
    checkMetrics(rule.evalMetrics, { own: agents.get(appName)?.evals?.metrics });
    await runAsSystem(async () => {
      const { webhookId } = rule;
      const webhook = webhookId ? await findWebhook(database.db, webhookId, undefined) : undefined;
      if (webhookId && webhook?.appName !== appName) throw new InvalidError(`Webhook not found: ${webhookId}`);
      await database.transaction((tx) => saveRule(tx, appName, ruleId, rule));
    });
    notifications.publish(RULES_TOPIC);
  },
});

const listAll = operation({
  method: 'get',
  path: RULES_PATH,
  operationId: 'listScoreRules',
  ...forDevelopers,
  load: 'read',
  summary: 'List the rules that score sessions',
  parameters: { path: appPath },
  success: {
    schema: z.array(shownRuleSchema),
    description: 'The rules by id, with what was done by each today.',
    example: [{ ...exampleRule, ruleId: 'safe', today: { scored: 12, tokens: 40_000, cost: 0.02 }, skipped: 0 }],
  },
  handler: async ({ database }: EvalContext, { path }) => ({
    kind: 'value',
    value: await listRules(database.reads, path.appName),
  }),
});

const deleteOne = operation({
  method: 'delete',
  path: RULE_PATH,
  operationId: 'deleteScoreRule',
  ...forDevelopers,
  summary: 'Delete a rule that scores sessions',
  description: 'With what is due by it; what it has scored stays.',
  parameters: { path: scoreRulePath },
  errors: { 404: 'No such rule.' },
  handler: async ({ database }: EvalContext, { path: { appName, ruleId } }) => {
    const isDeleted = await runAsSystem(() => database.transaction((tx) => deleteRule(tx, appName, ruleId)));
    if (!isDeleted) throw new NotFoundError(`Rule not found: ${ruleId}`);
  },
});

/** Scores of sessions as users have them: rules, and what people say beside them. */
export const onlineOperations = [saveOne, listAll, deleteOne, ...verdictOperations];
