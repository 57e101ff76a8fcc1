import { readFileSync } from 'node:fs';
import { Client } from 'pg';

/** A text of test/data/memory, or a question with the text that answers it. */
export interface Meaning {
  text?: string;
  question?: string;
  answer?: string;
  vector: number[];
}

/** The texts and questions with their vectors. */
export const meanings: Meaning[] = readFileSync(new URL('../data/memory/meaning.jsonl', import.meta.url), 'utf8')
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Meaning);

/**
 * Gives a database pgvector, or, where the server has none, the two things that the service uses of it in plain SQL.
 * `TEST_DATABASE_URL` of a server that has it tries the extension itself. @returns what it was
 */
export async function installVectors(url: string): Promise<'pgvector' | 'plain SQL in its place'> {
  const client = new Client(url);
  await client.connect();
  try {
    const { rows } = await client.query(`select from pg_available_extensions where name = 'vector'`);
    await client.query('create schema meaning; grant usage on schema meaning to public');
    if (rows.length > 0) {
      await client.query('create extension vector schema meaning');
      return 'pgvector';
    }
    await client.query(`
      create domain meaning.vector as real[];
      create function meaning.distance(a real[], b real[]) returns float8 language sql immutable as $$
        select 1 - sum(x * y) / sqrt(sum(x * x) * sum(y * y)) from unnest(a, b) as t(x, y) $$;
      create operator meaning.<=> (leftarg = real[], rightarg = real[], function = meaning.distance);
      insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
      select 4294000000, 'vector', 10, oid, false, '0' from pg_namespace where nspname = 'meaning'`);
    return 'plain SQL in its place';
  } finally {
    await client.end();
  }
}
