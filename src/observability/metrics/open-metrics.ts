import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { isIP } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { PrometheusExporter } from '@opentelemetry/exporter-prometheus';
import { type Resource, resourceFromAttributes } from '@opentelemetry/resources';
import {
  type CollectionResult,
  MeterProvider,
  type MetricReader,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import type { Config } from '../../config/config.ts';
import { pairs, toOtlpOptions } from '../../config/observability.ts';
import type { Log } from '../../platform/log.ts';
import type { Metrics } from '../../platform/metrics.ts';
import { listenAt } from '../../platform/net/network.ts';
import { createMetrics, toPrometheusName } from './instruments.ts';
import { observeProcess } from './measure.ts';

const TIMEOUT_MS = 5_000;
/** Maximum wait for the collector when the process stops, in milliseconds. */
const CLOSE_MS = 2_000;
/** `ExportResultCode.SUCCESS` of @opentelemetry/core, which is not a dependency of this project. */
const SUCCESS = 0;

export interface OpenMetrics {
  metrics: Metrics;
  /** URL of `/metrics`; `undefined` if metrics are not served. */
  url: string | undefined;
  /** Stops serving and pushing metrics. Never throws. */
  close(): Promise<void>;
}

/** Starts recording metrics, and serves `/metrics` if configured. @throws {ConfigError} if the port is unavailable */
export async function openMetrics(config: Config, version: string, log: Log): Promise<OpenMetrics> {
  const { METRICS_PORT: port, METRICS_HOST: host, ALLOWED_HOSTS: allowedHosts } = config;
  const exporter =
    port === undefined ? undefined : new PrometheusExporter({ preventServerStart: true, withoutScopeInfo: true });
  const collect = exporter?.collect.bind(exporter);
  if (exporter && collect) exporter.collect = async (options) => withPrometheusNames(await collect(options));
  const pushing = await createPushReader(config, log);
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
  const metrics = createMetrics(provider.getMeter('agent-runtime', version));
  const stopObserving = observeProcess(metrics);
  return {
    metrics,
    url: server && `${server.url}/metrics`,
    async close() {
      await server?.close();
      // The error is ignored, because an unreachable collector must not delay the stop.
      const ended = provider.shutdown().catch(() => undefined);
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
      stopObserving();
    },
  };
}

/** Renames metrics to their Prometheus names for `/metrics`; the collector receives the OpenTelemetry names. */
function withPrometheusNames({ resourceMetrics, errors }: CollectionResult): CollectionResult {
  const scopeMetrics = resourceMetrics.scopeMetrics.map((each) => ({
    ...each,
    metrics: each.metrics.map((metric) => ({
      ...metric,
      descriptor: { ...metric.descriptor, name: toPrometheusName(metric.descriptor.name, metric.descriptor.unit) },
    })),
  }));
  return { errors, resourceMetrics: { ...resourceMetrics, scopeMetrics } };
}

/** Value of `service.instance.id`, which distinguishes the metrics of replicas. */
const INSTANCE_ID = randomUUID();

/**
 * The OpenTelemetry resource of metrics and traces. OTEL_SERVICE_NAME takes precedence over OTEL_RESOURCE_ATTRIBUTES.
 */
export const toResource = ({ OTEL_SERVICE_NAME: name, variables }: Config, version: string): Resource =>
  resourceFromAttributes({
    'service.name': name,
    'service.version': version,
    'service.instance.id': INSTANCE_ID,
    ...pairs.safeParse(variables['OTEL_RESOURCE_ATTRIBUTES']).data,
    ...(variables['OTEL_SERVICE_NAME'] === undefined ? {} : { 'service.name': name }),
  });

/** Creates a reader that sends metrics to the collector at intervals; `undefined` without a collector. */
async function createPushReader(config: Config, log: Log): Promise<MetricReader | undefined> {
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

/** Maximum time for a scraper to send its request, in milliseconds. */
const REQUEST_TIMEOUT_MS = 5_000;
/** Maximum number of open connections; a scraper needs one. */
const MAX_CONNECTIONS = 20;

interface MetricsServer {
  url: string;
  close(): Promise<void>;
}

/**
 * Serves `GET /metrics` on a separate port, without authentication. The Host header is checked, so that a web page
 * cannot read the metrics by DNS rebinding.
 * @param allowedHosts - host names allowed besides IP addresses, `localhost` and names without a dot
 * @throws {ConfigError} with a remedy, if the port is unavailable
 */
async function serveMetrics(
  { host, port, allowedHosts }: { host: string; port: number; allowedHosts: readonly string[] },
  respond: RequestListener,
): Promise<MetricsServer> {
  const server = createServer((request, response) => {
    const status = !isOwnName(request, allowedHosts) ? 403 : !isMetrics(request) ? 404 : 200;
    if (status === 200) return respond(request, response);
    response.writeHead(status, { 'content-type': 'text/plain' }).end(status === 403 ? 'Forbidden\n' : 'Not Found\n');
  });
  server.headersTimeout = REQUEST_TIMEOUT_MS;
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.maxConnections = MAX_CONNECTIONS;
  return { url: await listenAt(server, host, port, whyNot), close: () => close(server) };
}

const isMetrics = ({ method, url = '' }: IncomingMessage) =>
  (method === 'GET' || method === 'HEAD') && url.split('?')[0] === '/metrics';

/** Checks the Host header. Names without a dot are allowed, because DNS rebinding needs a name with a dot. */
function isOwnName({ headers }: IncomingMessage, allowedHosts: readonly string[]): boolean {
  const host = (headers.host ?? '').toLowerCase();
  const name = host.replace(/:\d{1,5}$/, '');
  const isAddress = isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
  return (
    isAddress || !name.includes('.') || allowedHosts.some((allowed) => [host, name].includes(allowed.toLowerCase()))
  );
}

function whyNot({ code, message }: NodeJS.ErrnoException, host: string, port: number): string {
  if (code === 'EADDRINUSE') return `METRICS_PORT: ${port} is taken on ${host}; choose another.`;
  return `METRICS_HOST: cannot listen on ${host} for /metrics: ${message}.`;
}

async function close(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeAllConnections();
  await closed;
}
