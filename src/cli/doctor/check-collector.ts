import type { Config } from '../../process/config.ts';
import { toOtlpOptions } from '../../config/observability.ts';
import { fault, type Finding, ok, skipped, toReason } from './finding.ts';

const TIMEOUT_MS = 5_000;

/** Checks that the OpenTelemetry collector accepts traces, by an export without any spans. */
export async function checkCollector(config: Config): Promise<Finding> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL: protocol } = config;
  if (!OTEL_EXPORTER_OTLP_ENDPOINT) return skipped('collector', 'OTEL_EXPORTER_OTLP_ENDPOINT names none');
  const { url, headers } = toOtlpOptions({ ...config, OTEL_EXPORTER_OTLP_ENDPOINT }, 'traces');
  // An empty Protocol Buffers message has no bytes.
  const [type, body] = protocol === 'http/json' ? ['application/json', '{}'] : ['application/x-protobuf', ''];
  const { host } = new URL(url);
  const failed = (what: string) => fault('collector', `The collector at ${host} ${what}.`);
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const request = { method: 'POST', headers: { ...headers, 'content-type': type }, body, signal };
    const { status } = await fetch(url, { ...request, redirect: 'manual' });
    if (status >= 200 && status < 300) return ok('collector', `${host} takes traces`);
    if (status === 401 || status === 403)
      return failed(`refuses the headers (HTTP ${status}); change OTEL_EXPORTER_OTLP_HEADERS`);
    return failed(`answered HTTP ${status} to /v1/traces; see OTEL_EXPORTER_OTLP_ENDPOINT and …_PROTOCOL`);
  } catch (error) {
    const cause = error instanceof Error && error.cause ? error.cause : error;
    return failed(`cannot be reached: ${toReason(cause)}; see OTEL_EXPORTER_OTLP_ENDPOINT`);
  }
}
