import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));

/** What a file imports when it is loaded: neither types nor what `import()` brings later. */
const importsOf = (file: string): string[] =>
  [...readFileSync(join(root, file), 'utf8').matchAll(/^(?:import|export) (?!type )([^;]*?from )?'([^']+)';/gm)]
    .filter(([, clause = '']) => !/^\{(?:\s*type [\w ]+,?)+\s*\} from $/.test(clause))
    .map(([, , source = '']) => source);

/** Every package and every file that the start of the service loads. */
function loadedBy(file: string, seen = new Set<string>()): Set<string> {
  for (const source of importsOf(file)) {
    const target = source.startsWith('.') ? join(dirname(file), source) : source;
    if (seen.has(target)) continue;
    seen.add(target);
    if (source.startsWith('.') && existsSync(join(root, target))) loadedBy(target, seen);
  }
  return seen;
}

test('the start loads no package of OpenTelemetry: only a setting does', () => {
  const loaded = [...loadedBy('src/cli/start.ts')];
  expect(loaded).toContain('src/invocations/invoke.ts');
  expect(loaded.filter((each) => /opentelemetry|^src\/metrics\/|tracing\.ts$/.test(each))).toEqual([]);
});
