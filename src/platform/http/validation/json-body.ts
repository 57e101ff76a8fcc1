import { isUtf8 } from 'node:buffer';
import express, { type Request, type RequestHandler, type Response } from 'express';
import { TooLargeError } from '../../../core/errors.ts';
import { INPUT_LIMITS } from '../../../core/limits.ts';
import { JsonRefusedError, LARGE_BYTES, parseJson } from '../../../core/parse-json.ts';
import { ownTurn } from '../../work/loop-turns.ts';
import { findJsonError } from './json-error.ts';
import { RequestRefusedError, ValidationFailedError, valueError } from '../operation/request-errors.ts';

/** Reads the body of a request. @throws what answers why it is refused */
export type ReadBody = (request: Request, response: Response) => Promise<void>;

/**
 * Reads and parses the JSON body of a request into `request.body`; `undefined` when there is none. Refuses, in this
 * order: a body that is not `application/json` in UTF-8, one over `maxBytes` after inflating, and what
 * {@link parseJson} refuses.
 */
export const readJsonBody = (maxBytes: number): ReadBody => readBody(maxBytes, requireJson, parseBody);

/** Reads a request's body into `request.body` as text, whatever its media type; `undefined` when there is none. */
export const readTextBody = (maxBytes: number): ReadBody => readBody(maxBytes, () => undefined, toText);

function readBody(
  maxBytes: number,
  check: (request: Request) => void,
  parseBytes: (bytes: Buffer) => unknown,
): ReadBody {
  const toBytes = express.raw({ type: () => true, limit: maxBytes });
  return async (request, response) => {
    if (!hasBody(request)) return;
    check(request);
    await runMiddleware(toBytes, request, response);
    const sent: unknown = request.body;
    const bytes = Buffer.isBuffer(sent) && sent.length > 0 ? sent : undefined;
    const { caller = '' } = response.locals as { caller?: string };
    if (bytes && bytes.length > LARGE_BYTES) await ownTurn(caller);
    request.body = bytes && parseBytes(bytes);
  };
}

/** Runs a middleware to its end. */
const runMiddleware = (handler: RequestHandler, request: Request, response: Response): Promise<void> =>
  new Promise((resolve, reject) => {
    void handler(request, response, (error?: unknown) => (error === undefined ? resolve() : reject(error)));
  });

/** Angular posts `null` as a body of length 0 without a media type: that is no body (interface inventory §0.3). */
function hasBody(request: Request): boolean {
  if (request.headers['transfer-encoding'] !== undefined) return true;
  return Number(request.headers['content-length'] ?? 0) > 0;
}

function requireJson(request: Request): void {
  const [mediaType = '', ...parameters] = (request.headers['content-type'] ?? '').split(';');
  if (mediaType.trim().toLowerCase() !== 'application/json') {
    throw new RequestRefusedError('unsupported_media_type', 'The body must be application/json.');
  }
  for (const parameter of parameters) {
    const [name = '', value = ''] = parameter.split('=');
    const charset = value.trim().replaceAll('"', '').toLowerCase();
    if (name.trim().toLowerCase() === 'charset' && charset !== 'utf-8' && charset !== 'utf8') {
      throw new RequestRefusedError('unsupported_media_type', 'The body must be UTF-8.');
    }
  }
}

function toText(sent: Buffer): string {
  if (!isUtf8(sent)) throw new RequestRefusedError('malformed_text', 'The body is not UTF-8.');
  return sent.toString();
}

/** Parses a body, or the text in one, within the bounds of bodies. @throws what answers why it is refused */
export function parseBody(sent: Buffer): unknown {
  try {
    return parseJson(sent, INPUT_LIMITS.requestBody, { exact: true });
  } catch (error) {
    throw error instanceof JsonRefusedError ? toRefusal(error, sent) : error;
  }
}

function toRefusal({ kind, message, path }: JsonRefusedError, sent: Buffer): Error {
  if (kind === 'encoding') return new RequestRefusedError('malformed_text', `The body ${message}.`);
  if (kind === 'values') return new TooLargeError(`The body ${message}.`);
  if (kind === 'inexact') return new ValidationFailedError([valueError(['body', ...path], message)]);
  const { depth } = INPUT_LIMITS.requestBody;
  if (kind === 'depth')
    return new ValidationFailedError([valueError(['body'], `at most ${depth} levels of nesting are allowed`)]);
  const { error, place } = findJsonError(sent.toString().replace(/^\ufeff/, ''));
  const detail = { type: 'json_invalid', loc: ['body', place], msg: 'JSON decode error', input: {} };
  return new ValidationFailedError([{ ...detail, ctx: { error } }]);
}
