import { isUtf8 } from 'node:buffer';
import express, { type Request, type RequestHandler } from 'express';
import { TooLargeError } from '../../../core/errors.ts';
import { countMembers, findInexact } from '../../../core/exact-json.ts';
import { scanJson } from './json-scan.ts';
import { RequestRefusedError, ValidationFailedError, valueError } from '../operation/request-errors.ts';

/** Deepest nesting of a body: far above any real event, far below the 3,000 levels that break JSON.stringify. */
const MAX_DEPTH = 64;
const BYTE_ORDER_MARK = Buffer.from([0xef, 0xbb, 0xbf]);

/**
 * Reads and parses the JSON body of a request into `request.body`; `undefined` when there is none. Refuses, in this
 * order: a body that is not `application/json` in UTF-8, one over `maxBytes` after inflating, bytes that are not UTF-8,
 * nesting over 64 levels or more than `maxValues` values, text that is not JSON, and what would not come back as sent.
 */
export function readJsonBody(options: { maxBytes: number; maxValues: number }): RequestHandler {
  return readBody(options, requireJson, (bytes) => parseJson(bytes, options.maxValues));
}

/** Reads a request's body into `request.body` as text, whatever its media type; `undefined` when there is none. */
export function readTextBody(options: { maxBytes: number }): RequestHandler {
  return readBody(options, () => undefined, toText);
}

function readBody(
  { maxBytes }: { maxBytes: number },
  check: (request: Request) => void,
  parseBytes: (bytes: Buffer) => unknown,
): RequestHandler {
  const toBytes = express.raw({ type: () => true, limit: maxBytes });
  return (request, response, next) => {
    if (!hasBody(request)) return next();
    check(request);
    toBytes(request, response, (error?: unknown) => {
      if (error !== undefined) return next(error);
      const bytes: unknown = request.body;
      try {
        request.body = Buffer.isBuffer(bytes) && bytes.length > 0 ? parseBytes(bytes) : undefined;
      } catch (refusal) {
        return next(refusal);
      }
      next();
    });
  };
}

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

function parseJson(sent: Buffer, maxValues: number): unknown {
  if (!isUtf8(sent)) throw new RequestRefusedError('malformed_text', 'The body is not UTF-8.');
  const bytes = sent.subarray(0, 3).equals(BYTE_ORDER_MARK) ? sent.subarray(3) : sent;
  const scan = scanJson(bytes, { maxDepth: MAX_DEPTH, maxValues });
  if (scan.isTooDeep) {
    throw new ValidationFailedError([valueError(['body'], `at most ${MAX_DEPTH} levels of nesting are allowed`)]);
  }
  if (scan.hasTooMany) throw new TooLargeError(`The body has more than ${maxValues} values.`);
  const text = bytes.toString();
  const value = parse(text);
  // Only where something shows that there may be an inexact value is every character examined for its place.
  const inexact = scan.mayOverflow || countMembers(value) !== scan.members ? findInexact(text) : undefined;
  if (inexact) throw new ValidationFailedError([valueError(['body', ...inexact.path], inexact.reason)]);
  return value;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    const detail = { type: 'json_invalid', loc: ['body', 0], msg: 'JSON decode error', input: {} };
    throw new ValidationFailedError([{ ...detail, ctx: { error: 'The body is not valid JSON' } }]);
  }
}
