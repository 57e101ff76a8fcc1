import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { describe, expect, test } from 'vitest';
import { resolveByPlace } from '../../../src/process/module-loading.ts';

const SOURCES = fileURLToPath(new URL('../../../src/', import.meta.url));
const PACKAGES = fileURLToPath(new URL('../../../node_modules/', import.meta.url));
const IMPORT = /^(?:import|export)\b[^'"]*['"](\.\.?\/[^'"]+)['"]/gm;

describe.each([
  ['drizzle-orm', '{*,pg-core/**,node-postgres/**,sql/**,cache/**}.js'],
  ['zod', '{*,v4/**/*}.js'],
])('the files of %s', (name, pattern) => {
  const folder = join(PACKAGES, name);

  test('are modules that name each other in full, in one package', () => {
    expect(JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))).toMatchObject({ type: 'module' });
    const others = globSync('**/package.json', { cwd: folder }).filter((path) => path !== 'package.json');
    for (const path of others) {
      const { type = 'commonjs' } = JSON.parse(readFileSync(join(folder, path), 'utf8')) as { type?: string };
      expect([path, type]).toEqual([path, 'module']);
    }
    let found = 0;
    for (const file of globSync(pattern, { cwd: folder })) {
      const parent = pathToFileURL(join(folder, file)).href;
      for (const [, specifier = ''] of readFileSync(join(folder, file), 'utf8').matchAll(IMPORT)) {
        const { url, format } = resolveByPlace(specifier, parent) ?? {};
        const exists = url !== undefined && existsSync(fileURLToPath(url));
        expect([file, specifier, format, exists]).toEqual([file, specifier, 'module', true]);
        found++;
      }
    }
    expect(found).toBeGreaterThan(100);
  });
});

test('our own files are found by their names', () => {
  const parent = pathToFileURL(join(SOURCES, 'cli/start.ts')).href;
  const runtime = pathToFileURL(join(SOURCES, 'runtime.ts')).href;
  expect(resolveByPlace('../runtime.ts', parent)).toEqual({ url: runtime, format: 'module-typescript' });
  expect(resolveByPlace('./a.js', parent)?.format).toBe('module');
});

test('other imports are left to Node', () => {
  const parent = pathToFileURL(join(PACKAGES, 'drizzle-orm/index.js')).href;
  expect(resolveByPlace('pg', parent)).toBeUndefined();
  expect(resolveByPlace('./index.cjs', parent)).toBeUndefined();
  expect(resolveByPlace('./index.js', import.meta.url)).toBeUndefined();
  expect(resolveByPlace('./index.js', pathToFileURL(join(PACKAGES, 'pg/lib/index.js')).href)).toBeUndefined();
  expect(resolveByPlace('./index.js', undefined)).toBeUndefined();
});
