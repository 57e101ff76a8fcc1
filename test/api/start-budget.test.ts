import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testDatabase } from '../support/database.ts';
import { startService } from '../support/service-process.ts';

/** What a start loads, counted: the time that it takes depends on the machine, what it loads does not. */

const database = testDatabase();
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-start-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** Paths and bytes of what is loaded up to the first answer; of a package the name and the path in it. */
let modules: { path: string; package: string | undefined; bytes: number }[] = [];

beforeAll(async () => {
  const file = join(folder, 'modules');
  const counter = new URL('../support/loaded-modules.ts', import.meta.url).href;
  const { child, end, until, ended } = startService({
    DATABASE_URL: database.url,
    PORT: '0',
    NODE_OPTIONS: `--import ${counter}`,
    LOADED_MODULES: file,
  });
  await until('curl');
  const url = /listens on (\S+)/.exec(ended.out)?.[1] ?? '';
  const health = await fetch(`${url}/health`);
  if (!health.ok) throw new Error(`/health answered ${health.status}`);
  child.kill('SIGTERM');
  await end;
  modules = readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => /^(\d+) (.*)$/.exec(line) ?? [])
    .map(([, bytes, path = '']) => {
      const name = /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1];
      return { path, package: name, bytes: Number(bytes) };
    });
});

test('a start loads at most so many modules, and so many bytes of packages', () => {
  const packages = modules.filter((module) => module.package !== undefined);
  expect(modules.length - packages.length).toBeGreaterThan(100);
  expect(modules.length - packages.length).toBeLessThanOrEqual(470);
  expect(packages.length).toBeLessThanOrEqual(415);
  expect(packages.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(2_500_000);
});

test.each([
  [/^@ai-sdk\/|^@anthropic|^openai$/, 'the first call of a model'],
  [/^@aws-sdk\/|^@smithy\//, 'the first object of a bucket'],
  [/^@modelcontextprotocol\//, 'the first MCP server'],
  [/^@opentelemetry\//, 'somebody who wants traces or metrics'],
  [/^(?:ajv|ajv-formats)$/, 'the first arguments of a call'],
  [/^express-openapi-validator$|^@apidevtools\//, 'the first body'],
  [/^(?:htmlparser2|entities)$/, 'the first page'],
  [/^jose$/, 'the mode in which tokens are verified'],
  [/^rate-limiter-flexible$/, 'the first counted request'],
  [/^re2js$/, 'the first schema of a stranger'],
  [/^undici$/, 'the first request that leaves'],
  [/^ws$/, 'the first WebSocket'],
  [/^yaml$/, 'the first file in YAML'],
])('%s waits for %s', (name) => {
  expect(modules.filter((module) => name.test(module.package ?? '')).map(({ path }) => path)).toEqual([]);
});
