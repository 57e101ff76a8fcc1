import { isUtf8 } from 'node:buffer';
import express, { type Request, type RequestHandler, type Response } from 'express';
import { TooLargeError } from '../../../core/errors.ts';
import { INPUT_LIMITS } from '../../../core/limits.ts';
import { JsonRefusedError, LARGE_BYTES, parseJson } from '../../../core/parse-json.ts';
import { ownTurn } from '../../work/loop-turns.ts';
import { getBodyBytes } from '../limits/caller-limits.ts';
import type { Noted } from '../operation/operation.ts';
import { RequestRefusedError, ValidationFailedError, valueError } from '../operation/request-errors.ts';

/** @throws the error for the response */
export type ReadBody = (request: Request, response: Response) => Promise<void>;

/**
 * Parses a request's JSON body, if any, into `request.body`. Refuses a body that is not `application/json` in UTF-8,
 * then one over `maxBytes` after decompression, then everything that {@link parseJson} refuses.
 */
export const readJsonBody = (maxBytes: number): ReadBody => readBody(maxBytes, requireJson, parseBody);

/** Reads a body of any media type into `request.body` as a string; `undefined` if there is none. */
export const readTextBody = (maxBytes: number): ReadBody => readBody(maxBytes, undefined, toText);

function readBody(
  maxBytes: number,
  check: ((request: Request) => void) | undefined,
  parseBytes: (bytes: Buffer) => unknown,
): ReadBody {
  const toBytes = express.raw({ type: () => true, limit: maxBytes });
  return async (request, response) => {
    if (getBodyBytes(request) === 0) return;
    check?.(request);
    await runHandler(toBytes, request, response);
    const sent: unknown = request.body;
    const bytes = Buffer.isBuffer(sent) && sent.length > 0 ? sent : undefined;
    const { caller = '' } = response.locals as Noted;
    if (bytes && bytes.length > LARGE_BYTES) await ownTurn(caller);
    request.body = bytes && parseBytes(bytes);
  };
}

/** Runs a handler until it calls `next`. @throws the error that it passes on */
export const runHandler = (handler: RequestHandler, request: Request, response: Response): Promise<void> =>
  new Promise((resolve, reject) => {
    void handler(request, response, (error?: unknown) => (error === undefined ? resolve() : reject(error)));
  });

function requireJson(request: Request): void {
  const [mediaType = '', ...parameters] = (request.headers['content-type'] ?? '').split(';');
  if (mediaType.trim().toLowerCase() !== 'application/json')
    throw new RequestRefusedError('unsupported_media_type', 'The body must be application/json.');
  for (const parameter of parameters) {
    const [name = '', value = ''] = parameter.split('=');
    const charset = value.trim().replaceAll('"', '').toLowerCase();
    if (name.trim().toLowerCase() === 'charset' && charset !== 'utf-8' && charset !== 'utf8')
      throw new RequestRefusedError('unsupported_media_type', 'The body must be UTF-8.');
  }
}

function toText(sent: Buffer): string {
  if (!isUtf8(sent)) throw new RequestRefusedError('malformed_text', 'The body is not UTF-8.');
  return sent.toString();
}

/** Parses the JSON of a body, or of a text inside a body, within the size limits. @throws the error for the response */
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
  const detail = { type: 'json_invalid' as const, loc: ['body', place], msg: 'JSON decode error', input: {} };
  return new ValidationFailedError([{ ...detail, ctx: { error } }]);
}

/** The first syntax error of a JSON text, with the message of Python's `json` up to version 3.12, as in FastAPI. */
interface JsonError {
  error: string;
  /** Position of the error in Unicode characters. */
  place: number;
}

const BLANKS = /[ \t\n\r]*/y;
const SCALAR = /null|true|false|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING_STOP = /["\\\u0000-\u001f]/g;
/** Matches several escapes at once for speed. Python requires a character after the digits of the last escape. */
const ESCAPES = /(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4}(?=[^]))){1,256}/y;
const NAME = 'Expecting property name enclosed in double quotes';

/**
 * Finds the first error in a text that `JSON.parse` has refused. `NaN` and `Infinity` are errors, although Python
 * accepts them. Recursive, so the nesting depth must be limited before.
 */
function findJsonError(text: string): JsonError {
  try {
    return fail('Extra data', skip(BLANKS, text, readValue(text, skip(BLANKS, text, 0))));
  } catch (error) {
    const { message, cause } = error as Error;
    if (typeof cause !== 'number') throw error;
    return { error: message, place: countCharacters(text, cause) };
  }
}

function fail(error: string, at: number): never {
  throw new Error(error, { cause: at });
}

/** @returns the position after the value */
function readValue(text: string, start: number): number {
  const opening = text.charAt(start);
  if (opening === '"') return readString(text, start);
  if (opening === '{' || opening === '[') return readMembers(text, start, opening === '{');
  const end = skip(SCALAR, text, start);
  if (end === start) fail('Expecting value', start);
  return end;
}

/** @returns the position after the object or array */
function readMembers(text: string, start: number, isObject: boolean): number {
  const closing = isObject ? '}' : ']';
  let at = skip(BLANKS, text, start + 1);
  if (text.charAt(at) === closing) return at + 1;
  for (;;) {
    at = skip(BLANKS, text, readValue(text, isObject ? readName(text, at) : at));
    if (text.charAt(at) === closing) return at + 1;
    if (text.charAt(at) !== ',') fail("Expecting ',' delimiter", at);
    at = skip(BLANKS, text, at + 1);
  }
}

/** @returns the position of the member's value */
function readName(text: string, start: number): number {
  if (text.charAt(start) !== '"') fail(NAME, start);
  const at = skip(BLANKS, text, readString(text, start));
  if (text.charAt(at) !== ':') fail("Expecting ':' delimiter", at);
  return skip(BLANKS, text, at + 1);
}

function readString(text: string, start: number): number {
  for (let at = start + 1; ; ) {
    STRING_STOP.lastIndex = at;
    const stop = STRING_STOP.exec(text);
    if (!stop || (stop[0] === '\\' && stop.index === text.length - 1)) fail('Unterminated string starting at', start);
    if (stop[0] === '"') return stop.index + 1;
    if (stop[0] !== '\\') fail('Invalid control character at', stop.index);
    at = skip(ESCAPES, text, stop.index);
    if (at > stop.index) continue;
    const isUnicode = text.charAt(at + 1) === 'u';
    fail(isUnicode ? String.raw`Invalid \uXXXX escape` : String.raw`Invalid \escape`, at + Number(isUnicode));
  }
}

/** Returns the position after a match at `at`; `at` itself if nothing matches there. */
function skip(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}

function countCharacters(text: string, end: number): number {
  let count = 0;
  for (let at = 0; at < end; at++) if ((text.charCodeAt(at) & 0xfc00) !== 0xdc00) count += 1;
  return count;
}
