import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { vi } from 'vitest';
import { MINUTE } from './patience.ts';

/** A span as OTLP/JSON has it. */
interface WireSpan {
  name: string;
  kind: number;
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  attributes: { key: string; value: Record<string, unknown> }[];
  status: { code?: number };
  events?: { name: string; attributes: WireSpan['attributes'] }[];
  links?: { traceId: string; spanId: string; attributes: WireSpan['attributes'] }[];
}

/** Attributes by name, and how OTLP wrote each. */
interface Attributed {
  attributes: Record<string, unknown>;
  types: Record<string, string>;
}
/** A span with its events and links. */
export type CollectedSpan = Omit<WireSpan, 'attributes' | 'events' | 'links'> &
  Attributed & { events: (Attributed & { name: string })[]; links: (Attributed & WireIds)[] };
type WireIds = Pick<WireSpan, 'traceId' | 'spanId'>;

/** A metric as OTLP/JSON has it. */
interface WireMetric extends Record<'histogram' | 'sum' | 'gauge', { dataPoints: WirePoint[] } | undefined> {
  name: string;
  unit: string;
}
type WirePoint = { attributes: WireSpan['attributes']; explicitBounds?: number[] };

/** A metric with the attributes of its points. */
export interface CollectedMetric {
  name: string;
  unit: string;
  kind: string;
  bounds: number[] | undefined;
  points: Record<string, unknown>[];
}

/** A request to the collector. */
interface Export {
  path: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** A collector on loopback that keeps what it is sent. */
export interface Collector {
  url: string;
  exports: Export[];
  /** The spans of all requests in OTLP/JSON so far. */
  spans(): CollectedSpan[];
  /** Settles when a span of this name (and id) has come whose attributes say so; gives all of its trace. */
  trace(name: string, attribute: string, value: string, spanId?: string): Promise<CollectedSpan[]>;
  /** Attributes of what sent the spans and metrics of this service, once for each request. */
  resources(service: string): Record<string, unknown>[];
  /** Names of the metrics that have come. */
  metricNames(): Set<string>;
  /** The metrics that have come, as often as they have. */
  metrics(): CollectedMetric[];
  close(): Promise<void>;
}

type Resources = {
  resource: { attributes: WireSpan['attributes'] };
  scopeSpans?: { spans: WireSpan[] }[];
  scopeMetrics?: { metrics: WireMetric[] }[];
}[];

/** Starts a collector; with `answers: false` it takes requests and never answers. */
export async function startCollector({ answers = true } = {}): Promise<Collector> {
  const exports: Export[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      exports.push({ path: request.url ?? '', headers: request.headers, body: Buffer.concat(chunks) });
      if (answers) response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const sent = (path: string, member: string) =>
    exports
      .filter((each) => each.path === path && each.headers['content-type'] === 'application/json')
      .flatMap(({ body }) => (JSON.parse(body.toString()) as Record<string, Resources>)[member] ?? []);
  const spans = () =>
    sent('/v1/traces', 'resourceSpans')
      .flatMap(({ scopeSpans = [] }) => scopeSpans.flatMap((scope) => scope.spans))
      .map((span) => ({
        ...withTypes(span),
        events: (span.events ?? []).map(withTypes),
        links: (span.links ?? []).map(withTypes),
      }));
  const metrics = () =>
    sent('/v1/metrics', 'resourceMetrics').flatMap(({ scopeMetrics = [] }) =>
      scopeMetrics.flatMap((scope) => scope.metrics.map(toMetric)),
    );
  return {
    url: `http://127.0.0.1:${port}`,
    exports,
    spans,
    trace: (name, attribute, value, spanId) =>
      vi.waitUntil(
        () => {
          const all = spans();
          const found = all.find(
            (span) =>
              span.name === name &&
              span.attributes[attribute] === value &&
              (spanId === undefined || span.spanId === spanId),
          );
          return found && all.filter(({ traceId }) => traceId === found.traceId);
        },
        { timeout: MINUTE },
      ),
    resources: (service) =>
      [...sent('/v1/traces', 'resourceSpans'), ...sent('/v1/metrics', 'resourceMetrics')]
        .map(({ resource }) => toAttributes(resource.attributes))
        .filter((attributes) => attributes['service.name'] === service),
    metricNames: () => new Set(metrics().map(({ name }) => name)),
    metrics,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Values of OTLP say their type; lists are read as lists. */
const toAttributes = (attributes: WireSpan['attributes']) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, toValue(value)]));

const withTypes = <One extends { attributes: WireSpan['attributes'] }>(one: One) => ({
  ...one,
  attributes: toAttributes(one.attributes),
  types: Object.fromEntries(one.attributes.map(({ key, value }) => [key, Object.keys(value).join()])),
});

function toMetric({ name, unit, histogram, sum, gauge }: WireMetric): CollectedMetric {
  const kind = histogram ? 'histogram' : sum ? 'sum' : 'gauge';
  const points = (histogram ?? sum ?? gauge)?.dataPoints ?? [];
  return {
    name,
    unit,
    kind,
    bounds: points[0]?.explicitBounds,
    points: points.map(({ attributes }) => toAttributes(attributes)),
  };
}

function toValue(value: Record<string, unknown>): unknown {
  const { arrayValue } = value as { arrayValue?: { values: Record<string, unknown>[] } };
  return arrayValue ? arrayValue.values.map(toValue) : Object.values(value)[0];
}
