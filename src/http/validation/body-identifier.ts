import { MAX_IDENTIFIER_BYTES } from '../../core/session.ts';
import { ValidationFailedError, valueError } from '../operation/request-errors.ts';

/**
 * An identifier of a body, if it is not too long in bytes: a rule that JSON Schema cannot say, and an index row has a size limit
 * (see `session.ts`). Those of a path are checked by `parameters.ts`.
 * @throws {ValidationFailedError}
 */
export function checkBodyIdentifier(member: string, text: string): string {
  if (Buffer.byteLength(text) <= MAX_IDENTIFIER_BYTES) return text;
  const words = `at most ${MAX_IDENTIFIER_BYTES} bytes of UTF-8 are allowed`;
  throw new ValidationFailedError([valueError(['body', member], words, text)]);
}
