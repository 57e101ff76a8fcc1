import { execFile } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { expect, test } from 'vitest';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { createEmptyDatabase } from '../support/database.ts';
import { dumpSchema } from '../support/schema-dump.ts';
import { report } from './support/faults.ts';

/**
 * While a new version is rolled out, the one before it serves on the new schema: its code passes its own tests of the
 * stores on the migrations of this version. A database that it made becomes one of this version. PREVIOUS_REF says which
 * version that is; the last tag without it.
 */

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));
const git = (...args: string[]) => run('git', args, { cwd: root }).then(({ stdout }) => stdout.trim());
/** These say what the schema of their own version is, and how it comes about. */
const ABOUT_SCHEMA = ['schema', 'migrations', 'start', 'plans', 'upgrade'];

const named = process.env['PREVIOUS_REF'];
const previous = named ?? (await git('describe', '--tags', '--abbrev=0').catch(() => undefined));
if (previous === undefined) {
  console.log('test/fault/previous-version.test.ts: skipped: there is no tag, and PREVIOUS_REF names no version');
}

/** Lends the tree of the previous version. */
async function withTree<T>(work: (tree: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'agent-runtime-previous-'));
  const tree = join(directory, 'tree');
  await git('worktree', 'add', '--detach', tree, previous ?? '');
  try {
    symlinkSync(join(root, 'node_modules'), join(tree, 'node_modules'));
    return await work(tree);
  } finally {
    await git('worktree', 'remove', '--force', tree);
    rmSync(directory, { recursive: true, force: true });
  }
}

test.skipIf(previous === undefined)('the version before this one passes its store tests on this schema', () =>
  withTree(async (tree) => {
    rmSync(join(tree, 'migrations'), { recursive: true });
    cpSync(join(root, 'migrations'), join(tree, 'migrations'), { recursive: true });
    // Named one by one, because a project of the configuration does not take `--exclude`.
    const files = globSync('test/store/*.test.ts', { cwd: tree }).filter(
      (file) => !ABOUT_SCHEMA.includes(basename(file, '.test.ts')),
    );
    const vitest = join(root, 'node_modules/vitest/vitest.mjs');
    const args = [vitest, 'run', ...files, '--reporter=json', '--outputFile=report.json'];
    const env = { ...process.env, VITEST: undefined, VITEST_POOL_ID: undefined, VITEST_WORKER_ID: undefined };
    const ended = await run(process.execPath, args, { cwd: tree, env, maxBuffer: 1e8 }).then(
      () => 'passed',
      (error: { stdout?: string; stderr?: string }) => `${error.stdout}\n${error.stderr}`,
    );
    const { default: result } = (await import(join(tree, 'report.json'), { with: { type: 'json' } })) as {
      default: { numPassedTests: number; numFailedTests: number };
    };
    const { numPassedTests, numFailedTests } = result;
    report('previous version', `${previous}: ${numPassedTests} store tests passed, ${numFailedTests} failed`);
    expect(ended).toBe('passed');
    expect(numPassedTests).toBeGreaterThan(50);
  }),
);

test.skipIf(previous === undefined)('a database of the version before this one, upgraded, is as a new one', () =>
  withTree(async (tree) => {
    const dumpOf = async (url: string) => {
      const client = new Client({ connectionString: url });
      await client.connect();
      const dump = await dumpSchema(client);
      await client.end();
      return dump;
    };
    const [upgraded, fresh] = await Promise.all([createEmptyDatabase(), createEmptyDatabase()]);
    try {
      const env = { ...process.env, DATABASE_URL: upgraded.url };
      await run(process.execPath, [join(tree, 'src/main.ts'), 'migrate'], { cwd: tree, env });
      const applied = await migrateDatabase({ url: upgraded.url });
      await migrateDatabase({ url: fresh.url });
      report('upgrade', `from ${previous}: ${applied.join(', ') || 'nothing to apply'}`);
      expect(await dumpOf(upgraded.url)).toBe(await dumpOf(fresh.url));
    } finally {
      await Promise.all([upgraded.drop(), fresh.drop()]);
    }
  }),
);
