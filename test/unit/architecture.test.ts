import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';

/** Imports only go downward: the ranks of the README's "Where things live". */

const source = fileURLToPath(new URL('../../src/', import.meta.url));
const files = globSync('**/*.ts', { cwd: source }).toSorted();
const STRANGERS = new Set(['db', 'http', 'agent']);
const PROCESS: Record<string, number> = { 'app.ts': 6, 'runtime.ts': 7, 'main.ts': 8 };

/** What a file imports from this project, as paths below `src/`. */
const importsOf = (file: string): string[] =>
  [...readFileSync(join(source, file), 'utf8').matchAll(/(?:from|import)\s*\(?'(\.[^']+)'/g)].map(([, path = '']) =>
    relative(source, join(source, dirname(file), path)),
  );

/** A noun is rank 1 (types, schemas, pure rules); a file of a feature that reaches for a store, the agent or the database is a story. */
function rankOf(file: string): number {
  if (!file.includes('/')) return PROCESS[file] ?? 0;
  if (STRANGERS.has(file.split('/')[0] ?? '')) return 2;
  if (file.endsWith('/routes.ts')) return 5;
  if (file.endsWith('/store.ts')) return 3;
  return importsOf(file).some((imported) => rankOf(imported) >= 2) ? 4 : 1;
}

describe('imports', () => {
  test.each(files)('%s imports only what stands below it', (file) => {
    const rank = rankOf(file);
    const [area = ''] = file.split('/');
    for (const imported of importsOf(file)) {
      const [importedArea = ''] = imported.split('/');
      const lower = rankOf(imported) < rank;
      // Nouns may build on nouns, stories on stories; a stranger only on itself; nothing else on its own rank.
      const same = rankOf(imported) === rank && ([0, 1, 4].includes(rank) || (rank === 2 && importedArea === area));
      expect([file, imported, lower || same]).toEqual([file, imported, true]);
    }
  });

  test('a store knows the database and the words, a feature never the edge but in its routes', () => {
    for (const file of files.filter((name) => name.endsWith('/store.ts'))) {
      const areas = importsOf(file)
        .filter((imported) => rankOf(imported) === 2)
        .map((imported) => imported.split('/')[0]);
      expect([file, ...new Set(areas)]).toEqual([file, 'db']);
    }
    const users = files.filter(
      (file) => importsOf(file).some((name) => name.startsWith('http/')) && !file.startsWith('http/'),
    );
    expect(users.filter((file) => !file.endsWith('/routes.ts') && file.includes('/'))).toEqual([]);
  });

  test('the environment is read in one file, SQL is written below the stores only', () => {
    const texts = files.map((file) => [file, readFileSync(join(source, file), 'utf8')] as const);
    expect(texts.filter(([, text]) => text.includes('process.env')).map(([file]) => file)).toEqual(['config.ts']);
    const withSql = texts.filter(([, text]) => /from 'drizzle-orm'/.test(text)).map(([file]) => file);
    expect(withSql.filter((file) => !file.startsWith('db/') && !file.endsWith('/store.ts'))).toEqual([]);
  });
});
