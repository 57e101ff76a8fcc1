import { toMembers } from '../../core/content.ts';
import { AgentError } from '../../core/errors.ts';

/** Kinds of failed model calls. Each is also the code of an `AgentError`. */
export type ModelFailureCode = keyof typeof SENTENCES;

/** What says which model is called, in the words of who set it: `MODEL_BASE_URL`, or `baseUrl` of an agent's model. */
export interface ModelOrigin {
  provider: string;
  name: string;
  apiKey: string;
  /** Absent for the provider's public address. */
  baseUrl?: string | undefined;
}

const SENTENCES = {
  model_unauthorized: ({ apiKey }: ModelOrigin) =>
    `refused the key. Check ${apiKey} and that the key may use this model.`,
  model_not_found: ({ name, baseUrl }: ModelOrigin) => `does not know this model. Check ${toList(name, baseUrl)}.`,
  model_rejected: () => 'refused the request.',
  model_rate_limited: () => 'limits the rate of calls or the quota is used up. Try again later.',
  model_unavailable: ({ baseUrl }: ModelOrigin) =>
    `is not available or could not be reached. Try again later${baseUrl === undefined ? '' : `, or check ${baseUrl}`}.`,
  model_timeout: () => 'sent nothing for too long.',
  model_bad_response: ({ provider, baseUrl }: ModelOrigin) =>
    `answered in a form that cannot be read. Check ${toList(provider, baseUrl)}.`,
  model_stream_cut: () => 'broke off in the middle of its answer. Try again.',
};

const toList = (...names: (string | undefined)[]) => names.filter((name) => name !== undefined).join(' and ');

/** A failed model call. `detail` is the provider's status and error code, or a short text without markup. */
export class ModelFailure extends Error {
  readonly code: ModelFailureCode;
  readonly detail: string;
  /** Time to wait before a retry, in milliseconds; `undefined` if a retry is useless. */
  readonly retryAfterMs: number | undefined;
  constructor(code: ModelFailureCode, options: { detail?: string; retryAfterMs?: number; cause?: unknown } = {}) {
    super(code, { cause: options.cause });
    this.code = code;
    this.detail = options.detail ?? '';
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Makes the error for the client. Its message names provider, model and failure, but no API key and no prompt. */
export function toModelError(
  failure: ModelFailure,
  provider: string,
  modelName: string,
  origin: ModelOrigin,
): AgentError {
  const detail = failure.detail === '' ? '' : ` (${failure.detail})`;
  const text = `The model \`${modelName}\` of ${provider} ${SENTENCES[failure.code](origin)}${detail}`;
  return new AgentError(failure.code, text, { cause: failure.cause });
}

interface CallError {
  name?: string;
  statusCode?: number;
  responseHeaders?: Record<string, string>;
  responseBody?: string;
  isRetryable?: boolean;
  data?: unknown;
}

/** `hasAnswered`: output had arrived before the error. `key` is the API key, which is removed from `detail`. */
export function toFailure(error: unknown, hasAnswered: boolean, key?: string): ModelFailure {
  if (error instanceof ModelFailure) return error;
  const call = (typeof error === 'object' && error !== null ? error : {}) as CallError;
  const status = call.name === 'AI_APICallError' ? call.statusCode : undefined;
  // True for a network error with a success status: the connection broke after the status had arrived.
  const isBroken = status !== undefined && status < 400 && call.isRetryable === true;
  if (status !== undefined && !isBroken) return fromStatus(call, status, key);
  const isUnreadable = call.name === 'AI_JSONParseError' || call.name === 'AI_TypeValidationError';
  if (isUnreadable || call.name === 'AI_EmptyResponseBodyError')
    return new ModelFailure('model_bad_response', { cause: error });
  if (call.name === 'AI_UnsupportedFunctionalityError')
    return new ModelFailure('model_rejected', { detail: 'it does not take this kind of content', cause: error });
  // Error of the AI SDK package for OpenAI-compatible servers, if a stream ends without a finish reason.
  if (hasAnswered || call.name === 'AI_InvalidResponseDataError')
    return new ModelFailure('model_stream_cut', { cause: error });
  return new ModelFailure('model_unavailable', { detail: findWord(call), retryAfterMs: 0, cause: error });
}

function fromStatus(call: CallError, status: number, key: string | undefined): ModelFailure {
  const body = readBody(call);
  const word = typeof body === 'string' ? '' : findWord(body);
  // No text is quoted for the statuses 401 and 403, because such errors often contain the API key.
  const detailText = word === '' && status !== 401 && status !== 403 ? toDetail(body, key) : word;
  const detail = `HTTP ${status}${detailText === '' ? '' : `, ${detailText}`}`;
  const options = { detail, cause: call };
  if (status === 401 || status === 403) return new ModelFailure('model_unauthorized', options);
  if (status === 404) return new ModelFailure('model_not_found', options);
  const retryable = { ...options, retryAfterMs: retryAfter(call.responseHeaders) ?? toWait(body) ?? 0 };
  if (status === 429) return new ModelFailure('model_rate_limited', isUsedUp(body, word) ? options : retryable);
  // Groq's error code for a malformed tool call by the model; a retry may succeed.
  if (status === 400 && word === 'tool_use_failed') return new ModelFailure('model_rejected', retryable);
  if (isOfTemplate(body, status)) return new ModelFailure('model_rejected', options);
  if (status >= 500 || status === 408 || status === 409) return new ModelFailure('model_unavailable', retryable);
  if (status >= 400) return new ModelFailure('model_rejected', options);
  return new ModelFailure('model_bad_response', options);
}

/**
 * Classifies errors within a stream by the provider's error code. `passes`: a retry may help. An unknown error is
 * retried, because most failures after a success status are temporary.
 */
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

/** Classifies an error, an object or a text, that came within a stream after a success status. */
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

/** The body of an error response: parsed JSON, whatever its media type (of a list the first element), else text. */
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

/** Reads `retry-after-ms`, or `retry-after` in seconds or as a date; returns milliseconds, if either is present. */
function retryAfter(headers: Record<string, string> | undefined): number | undefined {
  const ms = Number(headers?.['retry-after-ms'] ?? Number.NaN);
  if (ms >= 0) return ms;
  const after = headers?.['retry-after'];
  if (after === undefined || after.trim() === '') return undefined;
  const seconds = Number(after);
  if (!Number.isNaN(seconds)) return seconds >= 0 ? seconds * 1_000 : undefined;
  // The date in `retry-after` is compared with the server's clock if the response has a `date` header.
  const serverTime = Date.parse(headers?.['date'] ?? '');
  const wait = Date.parse(after) - (Number.isNaN(serverTime) ? Date.now() : serverTime);
  return Number.isNaN(wait) ? undefined : Math.max(wait, 0);
}

const detailsOf = (body: unknown): Record<string, unknown>[] => {
  const { details } = toMembers(toMembers(body)['error']);
  return Array.isArray(details) ? details.map(toMembers) : [];
};

/** Reads the time to wait that Gemini sends in the body, `retryDelay: "45.8s"`; returns milliseconds. */
function toWait(body: unknown): number | undefined {
  const delay = detailsOf(body).find(({ retryDelay }) => typeof retryDelay === 'string')?.['retryDelay'];
  const seconds = /^(\d+(?:\.\d+)?)s$/.exec(String(delay))?.[1];
  return seconds === undefined ? undefined : Math.ceil(Number(seconds) * 1_000);
}

/** True if a quota is used up and is not renewed soon enough for a retry. */
const isUsedUp = (body: unknown, word: string): boolean =>
  word === 'insufficient_quota' ||
  detailsOf(body).some(({ violations }) => /PerDay/.test(JSON.stringify(violations ?? '')));

/** True if llama.cpp rejects the chat template or the context size: a retry after this status 500 cannot succeed. */
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
 * Returns the provider's error code, such as `context_length_exceeded`. Only a short identifier counts, because longer
 * texts may quote a secret. Gateways put the body of the provider behind them into a string, which is searched too.
 */
function findWord(value: unknown, depth = 0): string {
  const body = toMembers(value);
  const error = toMembers(body['error']);
  const raw = parse(toMembers(error['metadata'])['raw']) ?? parse(error['message']);
  const inner = raw !== undefined && depth < 3 ? findWord(raw, depth + 1) : '';
  if (inner !== '') return inner;
  return [error['code'], error['status'], error['type'], body['code'], body['status'], body['type']].find(isWord) ?? '';
}

/** Maximum length of text that is quoted from a provider's error, in characters. */
const MAX_DETAIL = 200;

/**
 * Returns the text of an error that has no error code: the body, or its member `error` or `detail`. HTML pages are not
 * quoted, and anything that looks like an API key is masked.
 */
function toDetail(body: unknown, key: string | undefined): string {
  const { error, detail } = toMembers(body);
  const first = toMembers(Array.isArray(detail) ? detail[0] : undefined);
  const text = [body, error, detail, first['msg']].find((one) => typeof one === 'string' && one.trim() !== '');
  if (typeof text !== 'string' || /<!doctype|<html/i.test(text)) return '';
  const plain = (key ? text.replaceAll(key, '…') : text)
    .replaceAll(/[\p{Cc}\s]+/gu, ' ')
    .replaceAll(/\b(?:sk|pk|key|gsk|xai|AIza)[-_]?[A-Za-z0-9_-]{6,}|\bbearer\s+\S+/gi, '…')
    .trim();
  return plain.length > MAX_DETAIL ? `${plain.slice(0, MAX_DETAIL).toWellFormed()}…` : plain;
}
