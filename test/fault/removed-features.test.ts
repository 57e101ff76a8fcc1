import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testDatabase } from '../support/database.ts';
import { startProcess } from '../support/service-process.ts';

/**
 * Removes each feature from a copy of the sources, and then all of them: the folder, and what the list of features says
 * of it. The types hold, and the service starts and answers.
 */

const root = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);
const database = testDatabase();
// One copy for all, so that the compiler looks only at what a removal changes, and Node at what it has not compiled yet.
const copy = mkdtempSync(join(tmpdir(), 'agent-runtime-removed-'));
afterAll(() => rmSync(copy, { recursive: true }));

const LIST = 'src/process/features.ts';
const folders = globSync(['src/features/*/', 'src/features/doors/*/'], { cwd: root })
  .map((folder) => folder.replace(/\/$/, ''))
  .filter((folder) => folder !== 'src/features/doors');

/** The list of features without one: its import, and its line. */
function withoutFeature(list: string, folder: string): string {
  const [line = '', name = ''] =
    new RegExp(`import \\{ (\\w+) \\} from '\\.\\./${folder.replace('src/', '')}/[^']+';\\n`).exec(list) ?? [];
  expect(name).not.toBe('');
  return list.replace(line, '').replace(`  ${name},\n`, '');
}

beforeAll(() => {
  for (const name of ['node_modules', 'migrations', 'package.json']) symlinkSync(join(root, name), join(copy, name));
  const { compilerOptions } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8')) as {
    compilerOptions: object;
  };
  const incremental = { incremental: true, tsBuildInfoFile: join(copy, 'types.json') };
  const options = { ...compilerOptions, ...incremental };
  writeFileSync(join(copy, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, include: ['src'] }));
});

function writeWithout(removed: readonly string[]): void {
  rmSync(join(copy, 'src'), { recursive: true, force: true });
  const left = new Set(removed.map((folder) => join(root, folder)));
  cpSync(join(root, 'src'), join(copy, 'src'), { recursive: true, filter: (source) => !left.has(source) });
  writeFileSync(join(copy, LIST), removed.reduce(withoutFeature, readFileSync(join(root, LIST), 'utf8')));
}

test.each([...folders.map((folder): [string, string[]] => [folder, [folder]]), ['all of them', folders]])(
  'without %s the types hold, and the service answers an invocation',
  async (_name, removed) => {
    writeWithout(removed);
    // The failure of the compiler is its output.
    await run(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', copy]).catch(
      ({ stdout }: { stdout: string }) => expect.fail(stdout),
    );
    const { child, end, until, ended } = startProcess(process.execPath, [join(copy, 'src/main.ts')], {
      DATABASE_URL: database.url,
      PORT: '0',
      DEV_UI: 'true',
    });
    try {
      await until('curl');
      const url = /listens on (\S+)/.exec(ended.out)?.[1] ?? '';
      const response = await fetch(`${url}/harness/invoke`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          prompt: 'What is 17 * 23? Use the calculator.',
          harness_name: 'demo',
          run_agent_request: { user_id: 'u1', session_id: randomUUID() },
        }),
      });
      expect(await response.json()).toMatchObject({ output: 'The tool `calculator` answered: 391', error: null });
    } finally {
      child.kill('SIGTERM');
      await end;
    }
  },
);
