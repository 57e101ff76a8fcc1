import { createHash } from 'node:crypto';
import type { Request } from 'express';
import type { HeaderParameter } from '../http/operation/operation.ts';
import { ValidationFailedError, valueError } from '../http/operation/request-errors.ts';

const MOST_KEY_CHARACTERS = 255;

/** The header of every operation that changes something. */
export const IDEMPOTENCY_HEADER: HeaderParameter = {
  name: 'idempotency-key',
  schema: { type: 'string', maxLength: MOST_KEY_CHARACTERS },
  description: 'The same key and request give the same answer and are done once, for 24 hours.',
};

/** The `Idempotency-Key` of a request and the SHA-256 of what it asks for. */
export interface KeyedRequest {
  idempotencyKey: string;
  hash: string;
}

/** A request with its key; `undefined` without one. `asked` is all that makes two requests the same. */
function toKeyedRequest(idempotencyKey: string | undefined, asked: unknown): KeyedRequest | undefined {
  if (idempotencyKey === undefined) return undefined;
  return { idempotencyKey, hash: createHash('sha256').update(JSON.stringify(asked)).digest('hex') };
}

/** The `Idempotency-Key` of a request with the hash of what it asks for; `undefined` without one. */
export const readKeyedRequest = (request: Request, asked: unknown): KeyedRequest | undefined =>
  toKeyedRequest(readKey(request), asked);

/** @throws {ValidationFailedError} for a key that is empty or over 255 characters. */
function readKey(request: Request): string | undefined {
  const key = request.get('idempotency-key');
  if (key === undefined || (key.length > 0 && key.length <= MOST_KEY_CHARACTERS)) return key;
  throw new ValidationFailedError([valueError(['header', 'idempotency-key'], 'a key has 1 to 255 characters', null)]);
}
