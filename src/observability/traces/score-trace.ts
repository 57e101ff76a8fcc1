import { type Attributes, ROOT_CONTEXT, type Tracer } from '@opentelemetry/api';
import type { SessionKey } from '../../core/session.ts';
import { invocationAttributes, SCORE_SPAN } from './span.ts';

export interface TracedScore {
  key: SessionKey;
  invocationId: string;
  results: { metricName: string; score: number | null; status: string; explanation?: string | undefined }[];
}

/** Evaluation status → value of `gen_ai.evaluation.score.label`. Other statuses mean that nothing was evaluated. */
const LABELS: Record<string, string> = { PASSED: 'pass', FAILED: 'fail' };

/** Sends evaluation scores as events of a span in a separate trace, because the invocation's trace has ended. */
export function traceScore(tracer: Tracer, { key, invocationId, results }: TracedScore, keepsContent: boolean): void {
  const span = tracer.startSpan(SCORE_SPAN, { attributes: invocationAttributes(key, invocationId) }, ROOT_CONTEXT);
  for (const { metricName, score, status, explanation } of results) {
    const label = LABELS[status];
    const attributes: Attributes = {
      'gen_ai.evaluation.name': metricName,
      ...(label === undefined ? { 'error.type': 'not_evaluated' } : { 'gen_ai.evaluation.score.label': label }),
      ...(score === null ? {} : { 'gen_ai.evaluation.score.value': score }),
      ...(keepsContent && explanation !== undefined ? { 'gen_ai.evaluation.explanation': explanation } : {}),
    };
    span.addEvent('gen_ai.evaluation.result', attributes);
  }
  span.end();
}
