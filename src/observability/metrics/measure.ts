import { monitorEventLoopDelay } from 'node:perf_hooks';
import { getBreak } from '../../agent/loop/prefix.ts';
import type { InvocationObserver, ObservedStep } from '../../agent/loop/run.ts';
import type { JsonObject } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { Labels, Metrics } from '../../platform/metrics.ts';
import { toProviderName, toTokens } from '../tokens.ts';

/** Names of the deployed agents, models and tools; other names never become label values. */
export interface KnownNames {
  agents: ReadonlySet<string>;
  models: ReadonlySet<string>;
  tools: ReadonlySet<string>;
}

const LOOP_RESOLUTION_MS = 10;
const NANOSECONDS = 1e9;
/** Label value for names that are not deployed, because a request, a model or a tool server chose them. */
const OTHER = 'other';

/** @returns a function that stops watching the event loop */
export function observeProcess(metrics: Metrics): () => void {
  const delay = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
  delay.enable();
  metrics.observe('agent_runtime_event_loop_delay_seconds', () => {
    const percentiles = [
      ['50', delay.percentile(50)],
      ['99', delay.percentile(99)],
      ['100', delay.max],
    ] as const;
    delay.reset();
    // The histogram measures timer intervals; the part beyond the resolution is the event loop's delay.
    const toSeconds = (ns: number) => Math.max(0, ns / NANOSECONDS - LOOP_RESOLUTION_MS / 1000);
    return percentiles.map(([percentile, ns]) => [toSeconds(ns), { percentile }]);
  });
  metrics.observe('process_cpu_seconds_total', () => {
    const { user, system } = process.cpuUsage();
    return [[(user + system) / 1e6, {}]];
  });
  metrics.observe('process_resident_memory_bytes', () => [[process.memoryUsage.rss(), {}]]);
  const startedAt = Math.round(Date.now() / 1000 - process.uptime());
  metrics.observe('process_start_time_seconds', () => [[startedAt, {}]]);
  return () => delay.disable();
}

/** @returns a function that creates the observer of one invocation */
export function observeInvocations(metrics: Metrics, names: KnownNames): () => InvocationObserver {
  const toLabel = (name: string, all: ReadonlySet<string>) => (all.has(name) ? name : OTHER);
  return () => {
    const elapsed = stopwatch();
    const agents = new Map<string, { elapsed: () => number; seconds: number }>();
    let latest: string | undefined;
    const note = (name: string) => {
      const timing = agents.get(name) ?? { elapsed: stopwatch(), seconds: 0 };
      agents.set((latest = name), { ...timing, seconds: timing.elapsed() });
    };
    return {
      modelCall: ({ name, model }, { modelName }): ObservedStep<Event> => {
        note(name);
        const callElapsed = stopwatch();
        const labels = {
          'gen_ai.operation.name': 'chat',
          'gen_ai.provider.name': toProviderName(model.provider),
          'gen_ai.request.model': toLabel(modelName, names.models),
        };
        return {
          begin: () => metrics.record('gen_ai.client.inference.time_to_first_chunk', callElapsed(), labels),
          passOver: () => metrics.count('agent_runtime_answer_parts_passed_over_total', { provider: model.provider }),
          end(event) {
            recordCall(metrics, callElapsed(), labels, event);
            note(name);
          },
        };
      },
      toolCall: (name, call): ObservedStep<JsonObject> => {
        note(name);
        const callElapsed = stopwatch();
        const labels = {
          'gen_ai.agent.name': toLabel(name, names.agents),
          'gen_ai.tool.name': toLabel(call.name, names.tools),
          'gen_ai.tool.type': 'function',
        };
        return {
          end(response) {
            const error = typeof response?.['error'] === 'string' ? { 'error.type': 'tool_error' } : {};
            if (response) metrics.record('gen_ai.execute_tool.duration', callElapsed(), { ...labels, ...error });
            note(name);
          },
        };
      },
      end: (ending) => {
        const error = ending ? ending.error?.code : 'lost';
        const outcome = error ?? (ending?.paused ? 'paused' : 'succeeded');
        metrics.record('agent_runtime_invocation_duration_seconds', elapsed(), { outcome });
        for (const [name, { seconds }] of agents) {
          const labels = { 'gen_ai.agent.name': toLabel(name, names.agents) };
          const failed = error && name === latest ? { 'error.type': error } : {};
          metrics.record('gen_ai.invoke_agent.duration', seconds, { ...labels, ...failed });
        }
      },
    };
  };
}

/** Records the duration and tokens of a model call; a failed call counts 0 tokens. */
function recordCall(
  metrics: Metrics,
  seconds: number,
  labels: Labels<'gen_ai.client.inference.time_to_first_chunk'>,
  event: Event | undefined,
): void {
  const code = event ? event.errorCode : 'cut_off';
  const withError = { ...labels, ...(code ? { 'error.type': code } : {}) };
  const tokens = toTokens(event ?? {});
  metrics.record('gen_ai.client.inference.duration', seconds, withError);
  metrics.record('gen_ai.client.inference.operation.input_tokens', tokens.input_tokens, withError);
  metrics.record('gen_ai.client.inference.operation.output_tokens', tokens.output_tokens, withError);
  const broken = event && getBreak(event);
  if (broken) metrics.count('agent_runtime_prompt_breaks_total', { part: broken.part });
  const withModality = { ...labels, 'gen_ai.token.modality': 'unknown' };
  for (const kind of Object.keys(tokens) as (keyof typeof tokens)[])
    metrics.count(`gen_ai.client.inference.usage.${kind}`, withModality, tokens[kind]);
}

function stopwatch(): () => number {
  const startedAt = performance.now();
  return () => (performance.now() - startedAt) / 1000;
}
