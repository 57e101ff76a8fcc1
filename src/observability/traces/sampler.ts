import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace-base';
import type { SamplerName } from '../../config/observability.ts';

/** Which invocations are traced, by OpenTelemetry's name; `ratio` is the share of traces, from 0 to 1. */
export function toSampler(name: SamplerName, ratio: number): Sampler {
  const [, isParentBased, rule] = /^(parentbased_)?(.*)$/.exec(name) ?? [];
  const root =
    rule === 'always_on'
      ? new AlwaysOnSampler()
      : rule === 'always_off'
        ? new AlwaysOffSampler()
        : new TraceIdRatioBasedSampler(ratio);
  return isParentBased === undefined ? root : new ParentBasedSampler({ root });
}
