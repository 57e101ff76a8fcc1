import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { MeterProvider } from '@opentelemetry/sdk-metrics';
import type { Config } from '../core/config.ts';
import { createMeasures, type Measures } from './measure.ts';
import { serveMetrics } from './metrics-server.ts';

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
export async function openMetrics(config: Config, version: string): Promise<OpenMetrics> {
  const { METRICS_PORT: port, METRICS_HOST: host, ALLOWED_HOSTS: allowedHosts } = config;
  const exporter =
    port === undefined ? undefined : new PrometheusExporter({ preventServerStart: true, withoutScopeInfo: true });
  const provider = new MeterProvider({
    resource: resourceFromAttributes({ 'service.name': 'agent-runtime', 'service.version': version }),
    readers: exporter ? [exporter] : [],
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
      await provider.shutdown().catch(() => undefined);
      measures.close();
    },
  };
}
