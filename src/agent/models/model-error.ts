import { toMembers } from '../../core/content.ts';
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

/** A failed model call before anyone is notified; `detail` holds a status and a code word, or a plain text, of the provider. */
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
  responseBody?: string;
  isRetryable?: boolean;
  data?: unknown;
}

/**
 * Sorts an error of a provider package, of the network or of a stream; `hasAnswered`: some of the answer had come;
 * `key`: is never told, whatever the provider says.
 */
export function toFailure(error: unknown, hasAnswered: boolean, key?: string): ModelFailure {
  if (error instanceof ModelFailure) return error;
  const call = (typeof error === 'object' && error !== null ? error : {}) as CallError;
  const status = call.name === 'AI_APICallError' ? call.statusCode : undefined;
  // A good status and a network error is a connection that broke, before or after the first words.
  const isBroken = status !== undefined && status < 400 && call.isRetryable === true;
  if (status !== undefined && !isBroken) return fromStatus(call, status, key);
  const isUnreadable = call.name === 'AI_JSONParseError' || call.name === 'AI_TypeValidationError';
  if (isUnreadable || call.name === 'AI_EmptyResponseBodyError')
    return new ModelFailure('model_bad_response', { cause: error });
  if (call.name === 'AI_UnsupportedFunctionalityError')
    return new ModelFailure('model_rejected', { detail: 'it does not take this kind of content', cause: error });
  // The OpenAI-compatible package reports a stream without a finish reason so.
  if (hasAnswered || call.name === 'AI_InvalidResponseDataError')
    return new ModelFailure('model_stream_cut', { cause: error });
  return new ModelFailure('model_unavailable', { detail: findWord(call), retryAfterMs: 0, cause: error });
}

function fromStatus(call: CallError, status: number, key: string | undefined): ModelFailure {
  const body = readBody(call);
  const word = typeof body === 'string' ? '' : findWord(body);
  // Refusals of a key like to quote it.
  const said = word === '' && status !== 401 && status !== 403 ? toSaid(body, key) : word;
  const detail = `HTTP ${status}${said === '' ? '' : `, ${said}`}`;
  const options = { detail, cause: call };
  if (status === 401 || status === 403) return new ModelFailure('model_unauthorized', options);
  if (status === 404) return new ModelFailure('model_not_found', options);
  const passing = { ...options, retryAfterMs: retryAfter(call.responseHeaders) ?? toWait(body) ?? 0 };
  if (status === 429) return new ModelFailure('model_rate_limited', isUsedUp(body, word) ? options : passing);
  // Groq says so of a call that the model got wrong: the next one may be right.
  if (status === 400 && word === 'tool_use_failed') return new ModelFailure('model_rejected', passing);
  if (isOfTemplate(body, status)) return new ModelFailure('model_rejected', options);
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
    const failure = fromStatus({ data: { error } }, asStatus, undefined);
    return new ModelFailure(failure.code, { detail: failure.detail.replace('HTTP ', ''), ...toRetry(failure) });
  }
  const word = findWord({ error });
  const [, kind, passes] = WORDS.find(([pattern]) => pattern.test(word)) ?? [/^/, 'model_unavailable' as const, true];
  return new ModelFailure(kind, { detail: word, cause: error, ...(passes && { retryAfterMs: 0 }) });
}

const toRetry = ({ retryAfterMs, cause }: ModelFailure) => ({
  cause,
  ...(retryAfterMs !== undefined && { retryAfterMs }),
});

/** The body of a refusal: JSON whatever its media type, the only one of a list, or the text that it is. */
function readBody({ responseBody, data }: CallError): unknown {
  const parsed = parse(responseBody) ?? data;
  const body: unknown = Array.isArray(parsed) && parsed.length > 0 ? parsed[0] : parsed;
  return body ?? responseBody ?? '';
}

function parse(text: unknown): unknown {
  if (typeof text !== 'string' || !/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** `retry-after-ms`, or `retry-after` in seconds or as a date; `undefined` where neither says when. */
function retryAfter(headers: Record<string, string> | undefined): number | undefined {
  const ms = Number(headers?.['retry-after-ms'] ?? Number.NaN);
  if (ms >= 0) return ms;
  const after = headers?.['retry-after'];
  if (after === undefined || after.trim() === '') return undefined;
  const seconds = Number(after);
  if (!Number.isNaN(seconds)) return seconds >= 0 ? seconds * 1_000 : undefined;
  // By the clock of the server where it tells it.
  const told = Date.parse(headers?.['date'] ?? '');
  const wait = Date.parse(after) - (Number.isNaN(told) ? Date.now() : told);
  return Number.isNaN(wait) ? undefined : Math.max(wait, 0);
}

const detailsOf = (body: unknown): Record<string, unknown>[] => {
  const { details } = toMembers(toMembers(body)['error']);
  return Array.isArray(details) ? details.map(toMembers) : [];
};

/** Gemini says in the body how long to wait: `retryDelay: "45.8s"`. */
function toWait(body: unknown): number | undefined {
  const delay = detailsOf(body).find(({ retryDelay }) => typeof retryDelay === 'string')?.['retryDelay'];
  const seconds = /^(\d+(?:\.\d+)?)s$/.exec(String(delay))?.[1];
  return seconds === undefined ? undefined : Math.ceil(Number(seconds) * 1_000);
}

/** True for a quota that is not back within the time of a request. */
const isUsedUp = (body: unknown, word: string): boolean =>
  word === 'insufficient_quota' ||
  detailsOf(body).some(({ violations }) => /PerDay/.test(JSON.stringify(violations ?? '')));

/** llama.cpp answers 500 where the model's template or the context does not take the request: it never will. */
function isOfTemplate(body: unknown, status: number): boolean {
  const error = toMembers(toMembers(body)['error']);
  const { code, type, message } = error;
  if (type === 'exceed_context_size_error') return true;
  if (status !== 500 || type !== 'server_error' || typeof code !== 'number') return false;
  return /jinja|template|roles? must|system message|context size|unsupported content/i.test(String(message));
}

const isWord = (one: unknown): one is string =>
  typeof one === 'string' && /^[A-Za-z][A-Za-z0-9_.-]{1,63}$/.test(one) && !/^sk-|key-/.test(one);

/**
 * The provider's code word such as `context_length_exceeded`; only a short identifier: messages may quote a secret.
 * Gateways carry the body of the provider behind them as text.
 */
function findWord(given: unknown, depth = 0): string {
  const body = toMembers(given);
  const error = toMembers(body['error']);
  const raw = parse(toMembers(error['metadata'])['raw']) ?? parse(error['message']);
  const inner = raw !== undefined && depth < 3 ? findWord(raw, depth + 1) : '';
  if (inner !== '') return inner;
  return [error['code'], error['status'], error['type'], body['code'], body['status'], body['type']].find(isWord) ?? '';
}

/** Maximum length of what a provider's own words are told of. */
const MAX_SAID = 200;

/**
 * What a provider says that has no code word: plain text, or `error` or `detail` as a text. Neither a page of
 * HTML nor anything that looks like a key is told.
 */
function toSaid(body: unknown, key: string | undefined): string {
  const { error, detail } = toMembers(body);
  const first = toMembers(Array.isArray(detail) ? detail[0] : undefined);
  const text = [body, error, detail, first['msg']].find((one) => typeof one === 'string' && one.trim() !== '');
  if (typeof text !== 'string' || /<!doctype|<html/i.test(text)) return '';
  const plain = (key ? text.replaceAll(key, '…') : text)
    .replaceAll(/[\p{Cc}\s]+/gu, ' ')
    .replaceAll(/\b(?:sk|pk|key|gsk|xai|AIza)[-_]?[A-Za-z0-9_-]{6,}|\bbearer\s+\S+/gi, '…')
    .trim();
  return plain.length > MAX_SAID ? `${plain.slice(0, MAX_SAID).toWellFormed()}…` : plain;
}
