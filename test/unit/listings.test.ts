import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, test } from 'vitest';
import { findListings, ROOT } from '../support/listings.ts';
import { startProcess } from '../support/service-process.ts';

/** The TypeScript that the documents print: what is pasted from there must run. */

// In the repository, whose packages and tsconfig they are compiled with.
const folder = mkdtempSync(join(ROOT, '.listings-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const listings = findListings()
  .filter(({ language }) => language === 'ts')
  .map(({ page, text }, index) => ({ text, name: `${page.replaceAll(/\W/g, '_')}_${index}` }));
const agents = listings.filter(({ text }) => text.includes('export const agent ='));

function write(path: string, text: string): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
}

test('every listing is complete, and its types are right', async () => {
  expect([listings.length, agents.length]).toEqual([8, 4]);
  for (const { name, text } of listings) write(`${name}.ts`, text);
  // The listings beside an agent import the one that stands above them.
  write('agents/harness_agent/agent.ts', agents.find(({ name }) => name.startsWith('docs_package'))?.text ?? '');
  write('tsconfig.json', JSON.stringify({ extends: '../tsconfig.json', include: ['**/*.ts'], exclude: [] }));
  const { stdout } = await promisify(execFile)(join(ROOT, 'node_modules/.bin/tsc'), ['-p', folder]).catch(
    (error: { stdout: string }) => error,
  );
  expect(stdout).toBe('');
});

test('every agent is loaded as it is printed', async () => {
  for (const { name, text } of agents) write(`apps/${name}/agent.ts`, text);
  const main = join(ROOT, 'src/main.ts');
  const { out, error } = await startProcess(process.execPath, [main, 'check'], { AGENTS_DIR: join(folder, 'apps') })
    .end;
  expect(error).toBe('');
  expect(out).toContain(
    `# Applications: harness_agent, ${agents
      .map(({ name }) => name)
      .toSorted()
      .join(', ')}. `,
  );
});
