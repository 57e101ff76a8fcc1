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
import { hasOldNames, pairs, toOtlpOptions } from '../../config/observability.ts';
import type { Log } from '../../platform/log.ts';
import { listenAt } from '../../platform/net/network.ts';
import { toPrometheusName } from './instruments.ts';
import { createMeasures, type Measures } from './measure.ts';

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

/** Begins to measure, and serves `/metrics` where configured. @throws {ConfigError} when its port cannot be had */
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
  const measures = createMeasures(provider.getMeter('agent-runtime', version), hasOldNames(config));
  return {
    measures,
    url: server && `${server.url}/metrics`,
    async close() {
      await server?.close();
      // An unreachable collector does not delay the end of the process.
      const ended = provider.shutdown().catch(() => undefined);
      await Promise.race([ended, sleep(CLOSE_MS, undefined, { ref: false })]);
      measures.close();
    },
  };
}

/** Returns the metrics under their names for Prometheus; the collector gets the same ones under their own. */
function withPrometheusNames({ resourceMetrics, errors }: CollectionResult): CollectionResult {
  const scopeMetrics = resourceMetrics.scopeMetrics.map((each) => ({
    ...each,
    metrics: each.metrics.map((metric) => ({
      ...metric,
      descriptor: { ...metric.descriptor, name: toPrometheusName(metric.descriptor) },
    })),
  }));
  return { errors, resourceMetrics: { ...resourceMetrics, scopeMetrics } };
}

/** Tells this process from other replicas, whose series would be the same. */
const INSTANCE_ID = randomUUID();

/** Returns the resource that sends metrics and traces; its name by OTEL_SERVICE_NAME comes before the one in a list. */
export const toResource = ({ OTEL_SERVICE_NAME: name, variables }: Config, version: string): Resource =>
  resourceFromAttributes({
    'service.name': name,
    'service.version': version,
    'service.instance.id': INSTANCE_ID,
    ...pairs.safeParse(variables['OTEL_RESOURCE_ATTRIBUTES']).data,
    ...(variables['OTEL_SERVICE_NAME'] === undefined ? {} : { 'service.name': name }),
  });

/** Sends the metrics to the collector now and then; `undefined` where there is none. */
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

/** How long a collector may take to send its request. */
const REQUEST_TIMEOUT_MS = 5_000;
/** Connections at once; a collector needs one. */
const MAX_CONNECTIONS = 20;

/** The server of `/metrics`. */
interface MetricsServer {
  /** Where it listens, e.g. `http://127.0.0.1:9464`. */
  url: string;
  close(): Promise<void>;
}

/**
 * Serves `GET /metrics` and nothing else on a port of its own, without a login. Names of hosts are checked, so that a
 * page in a browser cannot reach it by DNS rebinding.
 * @param allowedHosts allowed names beside addresses, `localhost` and names without a dot
 * @throws {ConfigError} when it cannot listen, with a remedy
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

/** A name that DNS rebinding can use has a dot. */
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
