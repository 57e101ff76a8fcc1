import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, test } from 'vitest';
import { findListings, ROOT } from '../support/listings.ts';
import { scriptedModel, startTestRuntime } from '../../src/process/testing.ts';
import { startProcess } from '../support/service-process.ts';

/** The TypeScript that the documents print, and the course that they lead to: what is pasted from there must run. */

// In the repository, whose packages and tsconfig they are compiled with.
const folder = mkdtempSync(join(ROOT, '.listings-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const listings = findListings()
  // Those of the tutorial stand in files of their own, and test/package/package.test.ts runs them.
  .filter(({ language, page }) => language === 'ts' && page !== 'docs/first-agent.md')
  .map(({ page, text }, index) => ({ text, name: `${page.replaceAll(/\W/g, '_')}_${index}` }));
const COURSE = 'agents/harness_agent/agent.ts';
const readCourse = (path: string) => readFileSync(join(ROOT, 'examples/course', path), 'utf8');
const agents = [
  ...listings.filter(({ text }) => text.includes('export const agent =')),
  { name: 'docs_agents_course', text: readCourse(COURSE) },
];

function write(path: string, text: string): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
}

test('every listing is complete, and its types are right', async () => {
  expect([listings.length, agents.length]).toEqual([18, 9]);
  for (const { name, text } of [...listings, ...agents]) write(`${name}.ts`, text);
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

test('every agent of the course answers as it is printed, with a model that says what its form wants', async () => {
  const offer = JSON.stringify({ answer: 'Done.', total: null });
  const model = scriptedModel([({ outputSchema }) => [{ text: outputSchema ? offer : 'Done.' }]]);
  const course = agents.filter(({ name }) => /^docs_(?:agents|hooks)/.test(name));
  for (const { name, text } of course) write(`course-apps/${name}/agent.ts`, text);
  const runtime = await startTestRuntime({ model, settings: { AGENTS_DIR: join(folder, 'course-apps') } });
  try {
    for (const { name, text } of course) {
      const { output, value, error } = await runtime.ask('Hello', { app: name });
      expect([output, error]).toEqual([text.includes('outputSchema') ? offer : 'Done.', undefined]);
      if (text.includes('outputSchema')) expect(value).toEqual(JSON.parse(offer));
    }
  } finally {
    await runtime.close();
  }
});

test('the test of the course passes', async () => {
  const from = join(ROOT, 'src/process');
  for (const path of ['test.ts', COURSE]) {
    const text = readCourse(path);
    write(
      join('course', path),
      text.replace(/'agent-runtime(\/testing)?'/, (_, kit) => `'${from}/${kit ? 'testing' : 'index'}.ts'`),
    );
  }
  const { error, code } = await startProcess(process.execPath, [join(folder, 'course/test.ts')], {}).end;
  expect([error, code]).toEqual(['', 0]);
});
