/** A metric that cannot be evaluated, with the reason in words: the metric is then NOT_EVALUATED, others go on. */
export class MetricError extends Error {
  override name = 'MetricError';
}
