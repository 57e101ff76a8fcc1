import type { Counter, Histogram, Meter, Observable } from '@opentelemetry/api';
import { type Metric, METRICS, type Metrics } from '../../platform/metrics.ts';

/** Lists the rows of the table of metrics. */
export const listMetrics = (): [name: string, metric: Metric][] => Object.entries(METRICS);

/** Returns a metric's Prometheus name, with its unit, as OpenTelemetry collectors write it. */
export function toPrometheusName(name: string, unit: string): string {
  const plain = name.replaceAll('.', '_');
  if (plain.startsWith('gen_ai_client_inference_usage_')) return `${plain}_total`;
  return unit === 's' && !plain.endsWith('_seconds') ? `${plain}_seconds` : plain;
}

export const toPrometheusLabel = (label: string): string => label.replaceAll('.', '_');

/** Creates the instruments of all metrics. */
export function createMetrics(meter: Meter): Metrics {
  const counters = new Map<string, Counter>();
  const histograms = new Map<string, Histogram>();
  const observables = new Map<string, Observable>();
  for (const [name, metric] of listMetrics()) {
    const { kind, source, unit, help: description, buckets } = metric;
    const options = { unit, description };
    if (source === 'recorded') {
      const advice = buckets && { explicitBucketBoundaries: [...buckets] };
      histograms.set(name, meter.createHistogram(name, { ...options, ...(advice && { advice }) }));
    } else if (source === 'counted') {
      const counter = meter.createCounter(name, options);
      for (const labels of initialLabels(metric)) counter.add(0, labels);
      counters.set(name, counter);
    } else {
      const create = kind === 'counter' ? 'createObservableCounter' : 'createObservableGauge';
      observables.set(name, meter[create](name, options));
    }
  }
  const levels = new Map<string, { level: number }>();
  const metrics: Metrics = {
    count: (name, labels, count = 1) => counters.get(name)?.add(count, labels),
    record: (name, value, labels) => histograms.get(name)?.record(value, labels),
    observe: (name, read) =>
      observables.get(name)?.addCallback((result) => {
        for (const [value, labels] of read()) result.observe(value, labels);
      }),
    raise(name, labels) {
      const key = JSON.stringify([name, labels]);
      const held = levels.get(key) ?? { level: 0 };
      if (!levels.has(key)) metrics.observe(name, () => [[held.level, labels]]);
      levels.set(key, held);
      held.level += 1;
      return () => {
        held.level -= 1;
      };
    },
  };
  return metrics;
}

/** Every combination of a counter's known label values. */
function initialLabels({ labels, startsUnlabelled }: Metric): Record<string, string>[] {
  if (startsUnlabelled) return [{}];
  return Object.entries(labels).reduce<Record<string, string>[]>(
    (all, [label, values]) => all.flatMap((each) => values.map((value) => ({ ...each, [label]: value }))),
    [{}],
  );
}
