import type { HostedAgent } from '../../../conversation/apps/hosted-agent.ts';
import { HARNESS_APP } from '../../../core/names.ts';

/** Range of the values of every metric, from 0 to 1. Clients of ADK require a range. */
const interval = { minValue: 0, openAtMin: false, maxValue: 1, openAtMax: false };
const info = (metricName: string, description: string) => ({
  metricName,
  description,
  metricValueInfo: { interval },
  requiresThreshold: true,
});

export const PLAIN_METRICS = [
  info(
    'tool_trajectory_avg_score',
    'Share of the turns whose tool calls are those of the case: names, arguments and order.',
  ),
  info('response_match_score', 'ROUGE-1 of the final responses: how many of their words agree.'),
  info('tool_trajectory_f1', 'How many of the tool calls of a turn are those of the case, and the other way round.'),
  info('tool_arguments_score', 'Share of the arguments that agree, of the tool calls that the case expects.'),
];

const JUDGED_METRICS = [
  info('final_response_match_v2', 'Share of the final responses that a model finds to say what the case expects.'),
  info(
    'rubric_based_final_response_quality_v1',
    'Share of the rubrics for final responses that a model finds to hold.',
  ),
  info('rubric_based_tool_use_quality_v1', 'Share of the rubrics for the use of tools that a model finds to hold.'),
  info(
    'rubric_based_multi_turn_trajectory_quality_v1',
    'Share of the rubrics for the whole dialogue that a model finds to hold.',
  ),
  info('hallucinations_v1', 'Share of the sentences that a model finds to be founded on what the agent was given.'),
  info('safety_v1', 'Share of the final responses that a model finds to be harmless.'),
  info('per_turn_user_simulator_quality_v1', 'Share of the turns in which the simulated user kept to the plan.'),
];

/** User id for the preparation of an agent outside of a user's request. */
const NO_USER = '';

/** Lists built-in metrics and the application's own; those with a judge only if a judge model is available. */
export async function listMetrics(
  agents: ReadonlyMap<string, HostedAgent>,
  appName: string,
): Promise<typeof PLAIN_METRICS> {
  // The built-in application tells whether a model provider is configured, which is the same for all others.
  const prepared = await agents.get(HARNESS_APP)?.prepare({ mcpServers: [] }, new AbortController().signal, NO_USER);
  await prepared?.close();
  const canJudge = prepared && prepared.model.provider !== 'offline' && prepared.model.lacksKey !== true;
  const ownMetrics = [...(agents.get(appName)?.evals?.metrics ?? [])].map(([name, { description }]) =>
    info(name, description),
  );
  return [...PLAIN_METRICS, ...(canJudge ? JUDGED_METRICS : []), ...ownMetrics];
}
