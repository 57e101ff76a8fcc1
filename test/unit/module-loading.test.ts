import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, test } from 'vitest';
import { resolveInDrizzle } from '../../src/module-loading.ts';

const DRIZZLE = fileURLToPath(new URL('../../node_modules/drizzle-orm/', import.meta.url));
const IMPORT = /^(?:import|export)\b[^'"]*['"](\.[^'"]+)['"]/gm;

test('the files of drizzle are modules that name each other in full, in one package', () => {
  expect(JSON.parse(readFileSync(join(DRIZZLE, 'package.json'), 'utf8'))).toMatchObject({ type: 'module' });
  expect(globSync('**/package.json', { cwd: DRIZZLE })).toEqual(['package.json']);
  let found = 0;
  for (const file of globSync('{*,pg-core/**,node-postgres/**,sql/**,cache/**}.js', { cwd: DRIZZLE })) {
    const parent = pathToFileURL(join(DRIZZLE, file)).href;
    for (const [, specifier = ''] of readFileSync(join(DRIZZLE, file), 'utf8').matchAll(IMPORT)) {
      const url = resolveInDrizzle(specifier, parent);
      expect([file, specifier, url !== undefined && existsSync(fileURLToPath(url))]).toEqual([file, specifier, true]);
      found++;
    }
  }
  expect(found).toBeGreaterThan(100);
});

test('other imports are left to Node', () => {
  const parent = pathToFileURL(join(DRIZZLE, 'index.js')).href;
  expect(resolveInDrizzle('pg', parent)).toBeUndefined();
  expect(resolveInDrizzle('./index.cjs', parent)).toBeUndefined();
  expect(resolveInDrizzle('./index.js', import.meta.url)).toBeUndefined();
  expect(resolveInDrizzle('./index.js', undefined)).toBeUndefined();
});
