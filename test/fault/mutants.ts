/**
 * Breaks the product one line at a time, in a copy, and runs the tests that must notice: a test that cannot fail proves
 * nothing. `npm run test:mutants [part of a name]` tries all of them, `-- --part=2/3` the second third, and
 * `-- --part=today/6` another sixth each day. Prints a table; exit code 1 when a mutant survives.
 */
import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { startEphemeral } from '../support/ephemeral-server.ts';
import { applyChanges, textOf } from './support/find-place.ts';
import { findTest, type Mutant } from './support/mutant.ts';
import { MUTANTS } from './support/mutants.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const COPIED = [
  'src',
  'test',
  'migrations',
  'package.json',
  'README.md',
  'ARCHITECTURE.md',
  'docs',
  'examples',
  'vitest.config.ts',
  'vitest.fault.config.ts',
  'tsconfig.json',
];
/** Copies that are tried at once. */
const LANES = 2;

interface Outcome {
  mutant: string;
  tests: string;
  result: 'killed' | 'SURVIVED';
  seconds: number;
}

const testsOf = ({ tests, only }: Mutant) => `${tests.join(' ')}${only ? ` (${only})` : ''}`;

const isFault = (path: string) => path.startsWith('test/fault/');

/** Runs test files in a copy, all of one configuration; true when they are green. */
function isGreen(copy: string, databaseUrl: string, { tests, only }: Pick<Mutant, 'tests' | 'only'>): Promise<boolean> {
  const paths = tests.map(findTest);
  const config = paths.some(isFault) ? 'vitest.fault.config.ts' : 'vitest.config.ts';
  const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
  const args = [vitest, 'run', '--config', config, '--bail', '1', ...paths, ...(only ? ['-t', only] : [])];
  const env = { ...process.env, TEST_DATABASE_URL: databaseUrl, FAULT_SEED: '1' };
  const child = spawn(process.execPath, args, { cwd: copy, env, stdio: 'ignore' });
  return new Promise((resolve) => child.once('exit', (code) => resolve(code === 0)));
}

function makeCopy(): string {
  const copy = mkdtempSync(join(tmpdir(), 'agent-runtime-mutants-'));
  for (const name of COPIED) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

async function tryMutant(copy: string, databaseUrl: string, mutant: Mutant): Promise<Outcome> {
  const startedAt = performance.now();
  const changed = applyChanges(mutant.changes);
  for (const [path, text] of changed) writeFileSync(join(copy, path), text);
  const green = await isGreen(copy, databaseUrl, mutant);
  for (const path of changed.keys()) writeFileSync(join(copy, path), textOf(path));
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  return { mutant: mutant.name, tests: testsOf(mutant), result: green ? 'SURVIVED' : 'killed', seconds };
}

/** Does work with each of a list, one at a time in each copy. */
async function inEach<T, R>(copies: string[], list: T[], work: (copy: string, item: T) => Promise<R>): Promise<R[]> {
  const waiting = [...list];
  const results: R[] = [];
  const lanes = copies.map(async (copy) => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) results.push(await work(copy, next));
  });
  await Promise.all(lanes);
  return results;
}

/** The tests without a mutant: a red one would kill everything. All at once, and one by one to name what is red. */
async function findRed(copies: string[], databaseUrl: string, chosen: Mutant[]): Promise<string[]> {
  const names = [...new Set(chosen.flatMap(({ tests }) => tests))];
  const halves = [true, false].map((fault) => names.filter((name) => isFault(findTest(name)) === fault));
  const whole = await inEach(
    copies,
    halves,
    async (copy, some) => !some.length || isGreen(copy, databaseUrl, { tests: some }),
  );
  if (whole.every(Boolean)) return [];
  const tests = [...new Map(chosen.map((mutant) => [testsOf(mutant), mutant])).values()];
  const tried = await inEach(copies, tests, async (copy, mutant) => ({
    tests: testsOf(mutant),
    green: await isGreen(copy, databaseUrl, mutant),
  }));
  return tried.filter(({ green }) => !green).map(({ tests: red }) => red);
}

/** Those of one part: `<number>/<parts>`, or `today/<parts>` for another one each day. */
function partOf(mutants: Mutant[], part: string): Mutant[] {
  const [, number, parts] = /^(\d+|today)\/(\d+)$/.exec(part) ?? [];
  if (!number) throw new Error(`--part: found "${part}"; allowed: a number or "today", a slash, and how many parts.`);
  const index = number === 'today' ? Math.floor(Date.now() / 86_400_000) : Number(number) - 1;
  return mutants.filter((_, position) => position % Number(parts) === index % Number(parts));
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    options: { part: { type: 'string', default: '1/1' } },
    allowPositionals: true,
  });
  const chosen = partOf(MUTANTS, values.part).filter(({ name }) => name.includes(positionals[0] ?? ''));
  const server = await startEphemeral();
  const copies = Array.from({ length: LANES }, makeCopy);
  try {
    const red = await findRed(copies, server.url, chosen);
    if (red.length > 0) console.error(`red without a mutant, so they prove nothing: ${red.join(', ')}`);
    const tried = chosen.filter((mutant) => !red.includes(testsOf(mutant)));
    const outcomes = await inEach(copies, tried, (copy, mutant) => tryMutant(copy, server.url, mutant));
    console.table(outcomes);
    const killed = outcomes.filter(({ result }) => result === 'killed').length;
    console.log(`mutants: ${killed}/${chosen.length} killed (part ${values.part} of ${MUTANTS.length})`);
    process.exitCode = killed === chosen.length ? 0 : 1;
  } finally {
    for (const copy of copies) rmSync(copy, { recursive: true, force: true });
    await server.stop();
  }
}

await main();
