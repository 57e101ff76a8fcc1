import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8');
const journal = JSON.parse(read('meta/_journal.json')) as { entries: { tag: string }[] };

/** The text of 0001_functions.sql: the files of `functions/`, in the order of their names. */
export const joinFunctions = (): string =>
  readdirSync(new URL('functions/', import.meta.url))
    .toSorted()
    .map((name) => read(`functions/${name}`))
    .join('--> statement-breakpoint\n');

/** The SHA-256 of each migration by its name, as hashes.json has them. */
export const hashMigrations = (): Record<string, string> =>
  Object.fromEntries(
    journal.entries.map(({ tag }) => [
      tag,
      createHash('sha256')
        .update(read(`${tag}.sql`))
        .digest('hex'),
    ]),
  );

// npm run db:functions. From the first tag on 0001 stays as it is, and a changed function is a migration of its own.
if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(new URL('0001_functions.sql', import.meta.url), joinFunctions());
  writeFileSync(new URL('hashes.json', import.meta.url), `${JSON.stringify(hashMigrations(), null, 2)}\n`);
}
