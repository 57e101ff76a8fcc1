import { z } from 'zod';

const MAX_CHARACTERS = 1_000;
const MAX_WORDS = 64;

/** A memory search. Words are limited, because each costs the database as much as a search of its own. */
export const memoryQuerySchema = z
  .string()
  .max(MAX_CHARACTERS)
  .refine(
    (query) => (query.match(/[\p{L}\p{N}]+/gu)?.length ?? 0) <= MAX_WORDS,
    `at most ${MAX_WORDS} words are allowed`,
  )
  .describe(`Words to look for, at most ${MAX_WORDS}.`);
