import { z } from 'zod';
import { HandedOverError, InvalidError } from '../../../core/errors.ts';
import { looseObject } from '../../../core/members.ts';
import type { ToRefusal } from '../../../platform/http/operation/operation.ts';
import { RequestRefusedError } from '../../../platform/http/operation/request-errors.ts';

interface Reason {
  param?: string;
  code?: string | undefined;
  status?: 400 | 404 | 409 | 500;
}

export class RequestError extends InvalidError {
  readonly reason: Reason;

  constructor(message: string, reason: Reason = {}) {
    super(message);
    this.reason = reason;
  }
}

export const openAiErrorSchema = looseObject('A refusal in the form of the OpenAI APIs.', {
  error: looseObject('What is wrong.', {
    message: z.string().describe('A sentence for people.'),
    type: z.string().describe('The kind of error.'),
    param: z.string().nullable().describe('The member of the request that is wrong.'),
    code: z.string().nullable().describe('A stable code.'),
  }),
});

const KINDS: Record<number, [type: string, code: string | null]> = {
  400: ['invalid_request_error', 'invalid_value'],
  401: ['authentication_error', 'invalid_api_key'],
  403: ['permission_error', null],
  404: ['not_found', 'not_found'],
  409: ['invalid_request_error', 'conflict'],
  413: ['invalid_request_error', 'request_too_large'],
  429: ['too_many_requests', null],
};

/** Formats the path of a parameter as OpenAI does: `tools[0].name`. */
export const toPlace = (keys: readonly PropertyKey[]): string => keys.join('.').replaceAll(/\.(\d+)/g, '[$1]');

export const toRefusal: ToRefusal = (
  { status: originalStatus, detail: originalDetail, limit },
  error,
  { method, path },
) => {
  const isUnknown = error instanceof RequestRefusedError && error.isUnmatched;
  const detail = isUnknown ? `There is no ${method} ${path} here.` : originalDetail;
  const reason: Reason = error instanceof RequestError ? error.reason : {};
  const status = reason.status ?? (originalStatus === 422 ? 400 : originalStatus);
  const [first] = typeof detail === 'string' ? [] : detail;
  const place = first && toPlace(first.loc.slice(1));
  const message = typeof detail === 'string' ? detail : `${place || 'request'}: ${first?.msg ?? 'not valid'}`;
  const isModel = status === 404 && message.startsWith('App not found');
  const [type, defaultCode] = KINDS[status] ?? [status >= 500 ? 'server_error' : 'invalid_request_error', null];
  const code = reason.code ?? (isModel ? 'model_not_found' : (limit ?? defaultCode));
  const param = reason.param ?? (isModel ? 'model' : (place ?? null));
  // OpenAI's client library retries failed requests. It is told not to retry if the first attempt may have started an
  // invocation.
  const hasBegun = status === 409 || status === 500 || error instanceof HandedOverError;
  const headers = method === 'POST' && hasBegun ? { 'x-should-retry': 'false' } : {};
  return { status, body: { error: { message, type, param, code } }, headers };
};
