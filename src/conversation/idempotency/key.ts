import { createHash } from 'node:crypto';
import { z } from 'zod';

const MAX_KEY_CHARACTERS = 255;

/** The header of every operation that changes something. */
export const idempotencyHeaders = z.object({
  'idempotency-key': z
    .string()
    .min(1)
    .max(MAX_KEY_CHARACTERS)
    .optional()
    .describe('The same key and request give the same answer and are done once, for 24 hours.'),
});

/** The `Idempotency-Key` of a request and the SHA-256 of what it asks for. */
export interface IdempotentRequest {
  idempotencyKey: string;
  hash: string;
}

/** A request with its key; `undefined` without one. `requested` is all that makes two requests the same. */
export function fingerprint(idempotencyKey: string | undefined, requested: unknown): IdempotentRequest | undefined {
  if (idempotencyKey === undefined) return undefined;
  return { idempotencyKey, hash: createHash('sha256').update(JSON.stringify(requested)).digest('hex') };
}
