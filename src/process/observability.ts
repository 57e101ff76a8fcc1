import { type HostedAgent, listAgents } from '../conversation/apps/hosted-agent.ts';
import type { Config } from './config.ts';
import type { Log } from '../platform/log.ts';
import type { Database } from '../platform/db/database.ts';
import type { InvocationContext } from '../invocations/context.ts';
import type { KnownNames } from '../observability/metrics/measure.ts';
import type { OpenMetrics } from '../observability/metrics/open-metrics.ts';
import type { Tracing } from '../observability/traces/tracing.ts';
import { VERSION } from '../platform/version.ts';

/** Opens the metrics. Returns `undefined`, and loads nothing, if metrics are neither served nor exported. */
export async function openMetricsIfWanted(config: Config, log: Log): Promise<OpenMetrics | undefined> {
  if (config.METRICS_PORT === undefined && config.OTEL_EXPORTER_OTLP_ENDPOINT === undefined) return undefined;
  // Imported on demand, because OpenTelemetry's packages take 15 MB and a quarter of a second.
  const { openMetrics } = await import('../observability/metrics/open-metrics.ts');
  return openMetrics(config, VERSION, log);
}

/** Opens tracing. Returns `undefined` if there is neither a development UI nor a collector of traces. */
export async function openTracingIfWanted(config: Config, db: Database, log: Log): Promise<Tracing | undefined> {
  const { DEV_UI, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint } = config;
  if (!DEV_UI && endpoint === undefined) return undefined;
  // Imported on demand, because the OpenTelemetry SDK takes 50 to 100 ms of the start.
  const { createTracing } = await import('../observability/traces/tracing.ts');
  if (endpoint === undefined) return createTracing(db, log);
  const [{ createOtlpProcessor, toSampler }, { toResource }] = await Promise.all([
    import('../observability/traces/otlp.ts'),
    import('../observability/metrics/open-metrics.ts'),
  ]);
  return createTracing(DEV_UI ? db : undefined, log, {
    exporting: await createOtlpProcessor({ ...config, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }, log),
    keepsContent: DEV_UI || config.OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT,
    resource: toResource(config, VERSION),
    // With the development UI every invocation is sampled, because the UI shows all of them and uses the same tracer.
    ...(DEV_UI ? {} : { sampler: toSampler(config.OTEL_TRACES_SAMPLER, config.OTEL_TRACES_SAMPLER_ARG) }),
  });
}

/** Logs at level `info` how each invocation ended, without the texts of users, models and tools. */
export function logInvocations(log: Log): InvocationContext['observers'][number] | undefined {
  if (!log.isLevelEnabled('info')) return undefined;
  return ({ key, invocationId }) => {
    const startedAt = performance.now();
    const counts = { modelCalls: 0, toolCalls: 0 };
    const count = (name: keyof typeof counts) => () => {
      counts[name] += 1;
      return undefined;
    };
    return {
      modelCall: count('modelCalls'),
      toolCall: count('toolCalls'),
      end: (ending) => {
        const outcome = ending ? (ending.error?.code ?? (ending.paused ? 'paused' : 'succeeded')) : 'lost';
        const ms = Math.round(performance.now() - startedAt);
        const { appName, sessionId } = key;
        log.info({ appName, sessionId, invocationId, outcome, ms, ...counts }, 'invocation ended');
      },
    };
  };
}

export function toKnownNames(agents: ReadonlyMap<string, Pick<HostedAgent, 'describe'>>): KnownNames {
  const described = [...agents.values()].flatMap((agent) => listAgents(agent.describe()));
  return {
    agents: new Set(described.map(({ name }) => name)),
    models: new Set(described.map(({ model }) => model)),
    tools: new Set(described.flatMap(({ tools }) => tools.map(({ name }) => name))),
  };
}
