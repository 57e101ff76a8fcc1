import { ConflictError, InvalidError } from '../../../core/errors.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { findWebhook } from '../../../invocations/webhooks/webhook-store.ts';
import { REFUSED_ON_CLUSTER } from '../../../platform/db/cluster.ts';
import { runAsSystem } from '../../../platform/context.ts';
import { area } from '../../../platform/http/operation/area.ts';
import { appPath, scoreRulePath } from '../../../platform/http/operation/parameters.ts';
import { checkMetrics } from '../scoring/score-case.ts';
import { checkMetricsSize } from '../sets/bounds.ts';
import type { EvalContext } from '../sets/context.ts';
import { deleteRule, listRules, saveRule } from './rule-store.ts';
import { MAX_RULES, scoreRuleSchema, ruleViewSchema } from './score-rule.ts';
import { RULES_TOPIC } from './score-worker.ts';
import { verdictOperations } from './verdict-routes.ts';

const exampleRule = {
  evalMetrics: [{ metricName: 'safety_v1', threshold: 1 }],
  share: 0.1,
  labels: ['env=prod'],
  maxPerDay: 1_000,
  maxTokensPerDay: 1_000_000,
};

/** Score rules apply to the sessions of all users. Therefore only API keys that act for all users may change rules. */
const room = area<EvalContext>('Agent execution', {
  read: 'develop',
  write: 'develop',
  owner: 'service',
  isForKeys: true,
});

const rule = room.resource({
  noun: 'rule',
  id: 'ScoreRule',
  path: '/apps/{app_name}/score-rules',
  within: appPath,
  key: scoreRulePath,
  schema: ruleViewSchema,
  example: { ...exampleRule, ruleId: 'safe', today: { scored: 12, tokens: 40_000, cost: 0.02 }, skipped: 0 },
});

export const onlineOperations = [
  rule.save({
    summary: 'Score sessions as users have them',
    description:
      'Makes or replaces a rule: ended invocations, or sessions that have become quiet, are scored in the background ' +
      'within its bounds of a day. Judges spend from the rule and from the budget of the application, from no user. ' +
      `At most ${MAX_RULES} of an application.`,
    body: { schema: scoreRuleSchema, example: exampleRule },
    errors: {
      400: 'The webhook is none of the application.',
      409: 'There are as many rules as there may be, or the database is a cluster.',
    },
    run: async ({ database, notifications, agents }, { path: { appName, ruleId }, body }) => {
      checkMetricsSize(body.evalMetrics);
      if (database.db.isOnCluster) throw new ConflictError(REFUSED_ON_CLUSTER.scoreRules);
      const sent = scoreRuleSchema.parse(withoutKnownNulls(scoreRuleSchema, body));
      checkMetrics(sent.evalMetrics, agents.get(appName));
      await runAsSystem(async () => {
        const { webhookId } = sent;
        const webhook = webhookId ? await findWebhook(database.db, webhookId, undefined) : undefined;
        if (webhookId && webhook?.appName !== appName) throw new InvalidError(`Webhook not found: ${webhookId}`);
        await database.transaction((tx) => saveRule(tx, appName, ruleId, sent));
      });
      notifications.publish(RULES_TOPIC);
    },
  }),
  rule.list({
    summary: 'List the rules that score sessions',
    success: { description: 'The rules by id, with what was done by each today.' },
    run: ({ database }, { path }) => listRules(database.reads, path.appName),
  }),
  rule.remove({
    summary: 'Delete a rule that scores sessions',
    description: 'With what is due by it; what it has scored stays.',
    run: ({ database }, { path: { appName, ruleId } }) =>
      runAsSystem(() => database.transaction((tx) => deleteRule(tx, appName, ruleId))),
  }),
  ...verdictOperations,
];
