import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';
import { startProcess } from '../support/service-process.ts';

/** The commands that talk to a service, as people type them and as scripts read them. */

const app = testApp({ TOOLS: 'calculator' });
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-command-line-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const type = async (...args: string[]) => {
  const { code, out, error } = await startProcess(process.execPath, [MAIN, '--url', app.url, ...args], {}).end;
  return { code, out, error };
};

test('a message, its session, and its replay', async () => {
  const output = 'The tool `calculator` answered: 391';
  const sent = await type('invoke', '--session', 's1', 'What is 17 * 23? Use the calculator.');
  expect(sent).toEqual({ code: 0, out: `${output}\n`, error: '' });
  expect((await type('sessions', 'show', 's1')).out).toBe(
    'user: What is 17 * 23? Use the calculator.\n' +
      'harness_agent → calculator {"expression":"17 * 23"}\n' +
      'harness_agent ← calculator {"result":391}\n' +
      `harness_agent: ${output}\n`,
  );
  const listed = await type('--json', 'sessions', 'list');
  expect(JSON.parse(listed.out)).toEqual([expect.objectContaining({ id: 's1', userId: 'user', events: [] })]);

  const same = await type('replay', 's1');
  expect([same.code, same.error]).toEqual([0, '']);
  expect(same.out).toMatch(/^e-[\w-]+: same\. 3 events compared, 0 live model calls, 0 of tools\.\n/);
  const changed = await type('replay', 's1', '--system-prompt', 'Be brief.');
  expect(changed.code).toBe(1);
  expect(changed.out).toContain('\nFirst difference: event 1, /request/instruction\n');
  expect(changed.out).toContain('\n  after   "Be brief.');
});

test('sessions are labelled, found, forked and compared', async () => {
  const json = async (...args: string[]) => JSON.parse((await type('--json', 'sessions', ...args)).out) as unknown;
  await type('invoke', '--session', 'long', 'What is 2 * 3? Use the calculator.');
  const labelled = await type('sessions', 'label', 'long', 'kind=sum', 'by=me', '--remove', 'absent');
  expect(labelled).toEqual({ code: 0, out: 'by=me\nkind=sum\n', error: '' });
  const listed = await type('sessions', 'list', '--label', 'kind=sum', '--text', 'what IS');
  expect(listed.out).toMatch(/^session +last update +labels +first text\nlong .* by=me kind=sum {2}What is 2 \* 3\? U/);
  expect(await json('list', '--label', 'kind=other')).toEqual([]);

  const fork = await type('sessions', 'fork', 'long', '--at', '1', '--id', 'fork', '--label', 'kind=try');
  expect(fork).toEqual({ code: 0, out: 'fork\n', error: '' });
  expect((await type('sessions', 'show', 'long', '--at', '1')).out).toBe((await type('sessions', 'show', 'fork')).out);
  expect((await type('sessions', 'diff', 'long', 'fork', '--at', '1')).code).toBe(0);
  const differ = await type('sessions', 'diff', 'long', 'fork');
  expect([differ.code, differ.error]).toEqual([1, '']);
  expect(differ.out).toMatch(
    /^1 events are the same, then 3 differ; 0 keys of the state differ\.\nevent 2\n- \{.*\n\+ null\n/,
  );
  expect(await json('diff', 'long', 'fork')).toMatchObject({ sameEvents: 1, differingEvents: 3 });
  expect(await type('sessions', 'diff', 'long', 'nope')).toEqual({
    code: 2,
    out: '',
    error: 'Session not found: nope\n',
  });
  expect(await type('sessions', 'fork', 'long', '--at', 'x')).toMatchObject({ code: 2, out: '' });
  expect(await type('sessions', 'label', 'long', 'x')).toMatchObject({ code: 2, out: '' });
});

test('an artifact goes in and comes out as it was', async () => {
  const file = join(folder, 'note.txt');
  writeFileSync(file, 'hello');
  expect(await type('artifacts', 'put', 's1', file, '--type', 'text/plain')).toEqual({
    code: 0,
    out: 'note.txt, version 0\n',
    error: '',
  });
  expect((await type('artifacts', 'list', 's1')).out).toBe('note.txt\n');
  expect((await type('artifacts', 'get', 's1', 'note.txt')).out).toBe('hello');
});

test('what is wrong is said in a sentence: 1 for what failed, 2 for what could not be begun', async () => {
  expect(await type('sessions', 'show', 'nope')).toEqual({ code: 1, out: '', error: 'Session not found: nope\n' });
  expect(await type('replay', 'nope')).toMatchObject({ code: 2, out: '' });
  expect(await type('sessions', 'list', '--limit', 'x')).toEqual({
    code: 2,
    out: '',
    error: '--limit is a whole number from 1.\n',
  });
  const away = await startProcess(process.execPath, [MAIN, '--url', 'http://127.0.0.1:1', 'sessions', 'list'], {}).end;
  expect([away.code, away.error]).toEqual([2, expect.stringMatching(/^http:\/\/127\.0\.0\.1:1 cannot be reached: /)]);
});
