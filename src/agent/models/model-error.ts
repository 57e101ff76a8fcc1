import { AgentError } from '../../core/errors.ts';

/** Kinds of failed model calls; each is the code of an `AgentError`. */
export type ModelFailureCode = keyof typeof SENTENCES;

const SENTENCES = {
  model_unauthorized: 'refused the key. Check MODEL_API_KEY and that the key may use this model.',
  model_not_found: 'does not know this model. Check MODEL_NAME and MODEL_BASE_URL.',
  model_rejected: 'refused the request.',
  model_rate_limited: 'limits the rate of calls or the quota is used up. Try again later.',
  model_unavailable: 'is not available or could not be reached. Try again later, or check MODEL_BASE_URL.',
  model_timeout: 'sent nothing for too long.',
  model_bad_response: 'answered in a form that cannot be read. Check MODEL_PROVIDER and MODEL_BASE_URL.',
  model_stream_cut: 'broke off in the middle of its answer. Try again.',
};

/** A failed model call before anyone is notified; `detail` holds only a status and a code word of the provider. */
export class ModelFailure extends Error {
  readonly code: ModelFailureCode;
  readonly detail: string;
  /** Wait before a retry in milliseconds; `undefined`: the failure is no passing one. */
  readonly retryAfterMs: number | undefined;
  constructor(code: ModelFailureCode, options: { detail?: string; retryAfterMs?: number; cause?: unknown } = {}) {
    super(code, { cause: options.cause });
    this.code = code;
    this.detail = options.detail ?? '';
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** The failure as a sentence: names provider and model, never the key, the prompt or the provider's own words. */
export function toModelError(failure: ModelFailure, provider: string, modelName: string): AgentError {
  const detail = failure.detail === '' ? '' : ` (${failure.detail})`;
  const text = `The model \`${modelName}\` of ${provider} ${SENTENCES[failure.code]}${detail}`;
  return new AgentError(failure.code, text, { cause: failure.cause });
}

/** The members of an `AI_APICallError` that are read here. */
interface CallError {
  name?: string;
  statusCode?: number;
  responseHeaders?: Record<string, string>;
  isRetryable?: boolean;
  data?: unknown;
}

/** Sorts an error of a provider package, of the network or of a stream; `hasAnswered`: some of the answer had come. */
export function toFailure(error: unknown, hasAnswered: boolean): ModelFailure {
  if (error instanceof ModelFailure) return error;
  const call = (typeof error === 'object' && error !== null ? error : {}) as CallError;
  const status = call.name === 'AI_APICallError' ? call.statusCode : undefined;
  // A good status and a network error is a connection that broke, before or after the first words.
  const isBroken = status !== undefined && status < 400 && call.isRetryable === true;
  if (status !== undefined && !isBroken) return fromStatus(call, status);
  const isUnreadable = call.name === 'AI_JSONParseError' || call.name === 'AI_TypeValidationError';
  if (isUnreadable || call.name === 'AI_EmptyResponseBodyError')
    return new ModelFailure('model_bad_response', { cause: error });
  if (call.name === 'AI_UnsupportedFunctionalityError')
    return new ModelFailure('model_rejected', { detail: 'it does not take this kind of content', cause: error });
  // The OpenAI-compatible package reports a stream without a finish reason so.
  if (hasAnswered || call.name === 'AI_InvalidResponseDataError')
    return new ModelFailure('model_stream_cut', { cause: error });
  return new ModelFailure('model_unavailable', { detail: codeWord(call), retryAfterMs: 0, cause: error });
}

function fromStatus(call: CallError, status: number): ModelFailure {
  const word = codeWord(call.data);
  const detail = `HTTP ${status}${word === '' ? '' : `, ${word}`}`;
  const options = { detail, cause: call };
  if (status === 401 || status === 403) return new ModelFailure('model_unauthorized', options);
  if (status === 404) return new ModelFailure('model_not_found', options);
  const passing = { ...options, retryAfterMs: retryAfter(call.responseHeaders) };
  if (status === 429) return new ModelFailure('model_rate_limited', passing);
  if (status >= 500 || status === 408 || status === 409) return new ModelFailure('model_unavailable', passing);
  if (status >= 400) return new ModelFailure('model_rejected', options);
  return new ModelFailure('model_bad_response', options);
}

/** Kinds of errors within a stream, by the providers' code words; any other passes, as most do once they answer. */
const WORDS: [RegExp, ModelFailureCode, passes: boolean][] = [
  [/insufficient_quota|billing/i, 'model_rate_limited', false],
  [/rate_?limit|resource_exhausted|too_many_requests|throttl/i, 'model_rate_limited', true],
  [/authenti|api_key|permission|unauthenticated|unauthorized|forbidden/i, 'model_unauthorized', false],
  [/model_not_found|not_found/i, 'model_not_found', false],
  [
    /invalid|context|too_large|bad_?request|failed_precondition|content_filter|policy|unsupported/i,
    'model_rejected',
    false,
  ],
];

/** Sorts an error that came within a stream, after a good status: an object, or words. */
export function fromStreamError(error: unknown): ModelFailure {
  const { code, status } = (typeof error === 'object' && error !== null ? error : {}) as Record<string, unknown>;
  const asStatus = [code, status].map(Number).find((number) => number >= 400 && number < 600);
  if (asStatus !== undefined) {
    const failure = fromStatus({ data: { error } }, asStatus);
    return new ModelFailure(failure.code, { detail: failure.detail.replace('HTTP ', ''), ...toRetry(failure) });
  }
  const word = codeWord({ error });
  const [, kind, passes] = WORDS.find(([pattern]) => pattern.test(word)) ?? [/^/, 'model_unavailable' as const, true];
  return new ModelFailure(kind, { detail: word, cause: error, ...(passes && { retryAfterMs: 0 }) });
}

const toRetry = ({ retryAfterMs, cause }: ModelFailure) => ({
  cause,
  ...(retryAfterMs !== undefined && { retryAfterMs }),
});

/** `retry-after-ms` or `retry-after` in seconds, else 0. */
function retryAfter(headers: Record<string, string> | undefined): number {
  const ms = Number(headers?.['retry-after-ms'] ?? Number.NaN);
  if (ms >= 0) return ms;
  const seconds = Number(headers?.['retry-after'] ?? Number.NaN);
  return seconds >= 0 ? seconds * 1_000 : 0;
}

/** The provider's code word such as `context_length_exceeded`; only a short identifier: messages may quote a secret. */
function codeWord(data: unknown): string {
  const body = data as {
    error?: { code?: unknown; type?: unknown; status?: unknown };
    code?: unknown;
    type?: unknown;
  } | null;
  const { code, type, status } = { ...body, ...body?.error } as Record<string, unknown>;
  const word = [code, status, type].find(
    (one) => typeof one === 'string' && /^[A-Za-z][A-Za-z0-9_.-]{1,63}$/.test(one),
  );
  return typeof word === 'string' && !/^sk-|key-/.test(word) ? word : '';
}
