import { z } from 'zod';
import { textFormat } from '../../core/text-format.ts';

const MAX_CHARACTERS = 1_000;
const MAX_WORDS = 64;

/** A memory query has few words, because each costs the database as much as a separate search. */
export const memoryQuerySchema = textFormat(
  'memory-query',
  wordsError,
  z.string().max(MAX_CHARACTERS, { abort: true }),
).describe(`Words to look for, at most ${MAX_WORDS}.`);

function wordsError(query: string): string | undefined {
  const words = query.match(/[\p{L}\p{N}]+/gu)?.length ?? 0;
  return words > MAX_WORDS ? `at most ${MAX_WORDS} words are allowed` : undefined;
}
