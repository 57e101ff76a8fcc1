import { A2A_ERROR_CODE as CODES, A2A_ERROR_DOMAIN as domain, ERROR_INFO_TYPE } from '@a2a-js/sdk/errors';
import { VERSION } from '../../../agent/a2a/wire.ts';
import { InvalidError } from '../../../core/errors.ts';
import type { ToRefusal } from '../../../platform/http/operation/operation.ts';

/** An error with one of the reasons that the A2A specification defines. */
export class A2aError extends InvalidError {
  readonly reason: keyof typeof CODES;

  constructor(reason: keyof typeof CODES, message: string) {
    super(message);
    this.reason = reason;
  }
}

/** Clients see `status` over HTTP+JSON, and `code` over JSON-RPC. */
type ErrorView = { status: number; code: number; message: string; reason: string };

export const refusal = { type: 'object', properties: {}, description: 'An error of JSON-RPC, or of HTTP+JSON.' };

/** Names of HTTP statuses that error responses of HTTP+JSON contain. */
const NAMES: Record<number, string> = {
  400: 'INVALID_ARGUMENT',
  401: 'UNAUTHENTICATED',
  403: 'PERMISSION_DENIED',
  404: 'NOT_FOUND',
  409: 'ABORTED',
  429: 'RESOURCE_EXHAUSTED',
  503: 'UNAVAILABLE',
};

export const showError = ({ reason, message }: A2aError): ErrorView => ({
  status: reason === 'TASK_NOT_FOUND' ? 404 : 400,
  code: CODES[reason],
  message,
  reason,
});

const toDetails = (reason: string) => [{ '@type': ERROR_INFO_TYPE, reason, domain }];

/** @param isOld - true for A2A 0.3: `data` is an object, because some clients of that version accept nothing else */
export const toRpcError = (id: unknown, { code, message, reason }: ErrorView, isOld: boolean) => ({
  jsonrpc: '2.0',
  id,
  error: { code, message, data: isOld ? toDetails(reason)[0] : toDetails(reason) },
});

/** True if the request is of A2A 0.3, which is also assumed if the request names no version. */
export function speaksOld({ headers, query }: Partial<Pick<Parameters<ToRefusal>[2], 'headers' | 'query'>>): boolean {
  const version = headers?.['a2a-version'] ?? query?.['A2A-Version'];
  return typeof version !== 'string' || !version.startsWith(VERSION);
}

export const toRestError = ({ status, message, reason }: ErrorView) => ({
  error: { code: status, status: NAMES[status] ?? 'INTERNAL', message, details: toDetails(reason) },
});

/** Formats an error as JSON-RPC or HTTP+JSON, depending on the path of the request. */
export const toRefusal: ToRefusal = ({ status: plain, detail, limit }, error, request) => {
  const { path } = request;
  const isOld = speaksOld(request);
  const toBody = (shown: ErrorView) => ({
    status: shown.status,
    body: /^\/a2a\/[^/]+\/?$/.test(path) ? toRpcError(null, shown, isOld) : toRestError(shown),
  });
  if (error instanceof A2aError) return toBody(showError(error));
  const status = plain === 422 ? 400 : plain;
  const [first] = typeof detail === 'string' ? [] : detail;
  const place = first?.loc.slice(1).join('.') || 'request';
  const message = typeof detail === 'string' ? detail : `${place}: ${first?.msg ?? 'not valid'}`;
  if (status === 415) return toBody({ ...showError(new A2aError('CONTENT_TYPE_NOT_SUPPORTED', message)), status });
  const code = status >= 500 ? CODES.INTERNAL_ERROR : status === 400 ? CODES.INVALID_PARAMS : CODES.INVALID_REQUEST;
  return toBody({ status, code, message, reason: limit ?? NAMES[status] ?? 'INTERNAL' });
};
