import { setTimeout as sleep } from 'node:timers/promises';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { type Resource, resourceFromAttributes } from '@opentelemetry/resources';
import { MeterProvider, type MetricReader, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import type { Config } from '../../config/config.ts';
import type { Log } from '../../platform/log.ts';
import { toOtlpOptions } from '../../config/observability.ts';
import { createMeasures, type Measures } from './measure.ts';
import { serveMetrics } from './metrics-server.ts';

/** Maximum time of a request to the collector. */
const TIMEOUT_MS = 5_000;
/** Longest wait for a collector when the process ends. */
const CLOSE_MS = 2_000;
/** `ExportResultCode.SUCCESS` of @opentelemetry/core, which only OpenTelemetry's packages need. */
const SUCCESS = 0;

/** The metrics of a process and where they can be read. */
export interface OpenMetrics {
  measures: Measures;
  /** Where `/metrics` is. */
  url: string | undefined;
  /** Ends it. Never throws. */
  close(): Promise<void>;
}

/**
 * Begins to measure, and serves `/metrics` where the settings say so. Loaded only where somebody reads the metrics.
 * @throws {ConfigError} when its port cannot be had
 */
export async function openMetrics(config: Config, version: string, log: Log): Promise<OpenMetrics> {
  const { METRICS_PORT: port, METRICS_HOST: host, ALLOWED_HOSTS: allowedHosts } = config;
  const exporter =
    port === undefined ? undefined : new PrometheusExporter({ preventServerStart: true, withoutScopeInfo: true });
  const pushing = await pushingReader(config, log);
  const provider = new MeterProvider({
    resource: toResource(config, version),
    readers: [exporter, pushing].filter((reader) => reader !== undefined),
  });
  const server =
    exporter && port !== undefined
      ? await serveMetrics({ host, port, allowedHosts }, (request, response) =>
          exporter.getMetricsRequestHandler(request, response),
        )
      : undefined;
  const measures = createMeasures(provider.getMeter('agent-runtime', version));
  return {
    measures,
    url: server && `${server.url}/metrics`,
    async close() {
      await server?.close();
      // A collector that is away keeps nobody from ending.
      const ended = provider.shutdown().catch(() => undefined);
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
      measures.close();
    },
  };
}

/** The resource that sends metrics and traces. */
export const toResource = ({ OTEL_SERVICE_NAME: name }: Pick<Config, 'OTEL_SERVICE_NAME'>, version: string): Resource =>
  resourceFromAttributes({ 'service.name': name, 'service.version': version });

/** Sends the metrics to the collector now and then; `undefined` where there is none. */
async function pushingReader(config: Config, log: Log): Promise<MetricReader | undefined> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_METRIC_EXPORT_INTERVAL: intervalMs } = config;
  if (endpoint === undefined) return undefined;
  const { OTLPMetricExporter } =
    config.OTEL_EXPORTER_OTLP_PROTOCOL === 'http/json'
      ? await import('@opentelemetry/exporter-metrics-otlp-http')
      : await import('@opentelemetry/exporter-metrics-otlp-proto');
  const options = toOtlpOptions({ ...config, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }, 'metrics');
  const exporter = new OTLPMetricExporter({ ...options, timeoutMillis: TIMEOUT_MS });
  const send = exporter.export.bind(exporter);
  exporter.export = (metrics, done) =>
    send(metrics, ({ error }) => {
      if (error) log.warn({ reason: 'no answer of the collector' }, 'metrics could not be exported');
      done({ code: SUCCESS });
    });
  const exportTimeoutMillis = Math.min(TIMEOUT_MS, intervalMs);
  return new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: intervalMs, exportTimeoutMillis });
}
