import { spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
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

/** A program of util-linux that makes a terminal around a command. */
const TERMINAL = 'script';

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

test('a reader that has seen enough ends a command without a word', async () => {
  const { out, error } = await startProcess('/bin/sh', ['-c', `"${process.execPath}" "${MAIN}" --help | true`], {}).end;
  expect([out, error]).toEqual(['', '']);
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

test('a conversation says how it goes on: with the same user, application and service', async () => {
  const chat = startProcess(process.execPath, [MAIN, '--url', app.url, 'chat', '--user', "d'Or x"], {});
  chat.child.stdin?.end('Hello.\n');
  const { code, out } = await chat.end;
  expect([code, /Go on with: (.*) --session \S+\n/.exec(out)?.[1]]).toEqual([
    0,
    `agent-runtime chat --user 'd'\\''Or x' --url ${app.url}`,
  ]);
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

test('a user is counted, erased, and then has nothing; what is on hold ends it with a sentence', async () => {
  const erase = (...args: string[]) => type(...args.slice(0, -1), 'users', 'erase', args.at(-1) ?? '');
  const path = '/apps/harness_agent/users/gone';
  await app.post(`${path}/sessions`, { sessionId: 's', events: [{ author: 'user' }, { author: 'user' }] });
  const counts = '  events  2\n  sessions  1\n';
  expect(await type('users', 'erase', 'gone', '--dry-run')).toEqual({
    code: 0,
    out: `harness_agent: 3 would be deleted\n${counts}`,
    error: '',
  });
  expect((await app.get(`${path}/sessions/s`)).status).toBe(200);
  await app.send('PUT', `${path}/hold`, { reason: 'Case 4711' });
  const held = await erase('gone');
  expect([held.code, held.out, held.error]).toEqual([1, '', expect.stringContaining('hold')]);
  await app.send('DELETE', `${path}/hold`);
  expect(await erase('gone')).toEqual({ code: 0, out: `harness_agent: 3 deleted\n${counts}`, error: '' });
  expect((await app.get(`${path}/sessions/s`)).status).toBe(404);
  const again = await erase('--json', 'gone');
  expect([again.code, JSON.parse(again.out)]).toEqual([0, { app: 'harness_agent', status: 'done', counts: {} }]);
  expect(await type('users', 'erase', 'gone', '--all-apps')).toEqual({ code: 0, out: '', error: '' });
  await app.post(`${path}/sessions`, { sessionId: 's' });
  const all = await type('users', 'erase', 'gone', '--all-apps');
  expect(all).toEqual({ code: 0, out: 'harness_agent: 1 deleted\n  sessions  1\n', error: '' });
});

test('an erasure that takes several requests says in a terminal how far it is', async (context) => {
  const answers = [
    { status: 'running', counts: { events: 1000 } },
    { status: 'running', counts: { events: 2000 } },
    { status: 'done', counts: { events: 2500 } },
  ];
  const server = createServer((_request, response) => {
    response
      .writeHead(200, { 'content-type': 'application/json', 'x-request-id': 'r1' })
      .end(JSON.stringify(answers.shift()));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const command = [process.execPath, MAIN, '--url', url, 'users', 'erase', 'u'].join(' ');
  const found = spawnSync(TERMINAL, ['--version'], { encoding: 'utf8' });
  const hasTerminal = found.error === undefined && found.stdout.includes('util-linux');
  context.skip(!hasTerminal, 'skipped: there is no util-linux script to make a terminal');
  const { code, out } = await startProcess(TERMINAL, ['--quiet', '--return', '--command', command, '/dev/null'], {})
    .end;
  server.close();
  const clear = '\r\u001b[K';
  expect([code, out]).toEqual([
    0,
    `\r1000 rows${clear}\r2000 rows${clear}harness_agent: 2500 deleted\r\n  events  2500\r\n`,
  ]);
});

test('retention is counted, and nothing is deleted by it', async () => {
  const line = '0 sessions, 0 versions of artifacts would be deleted\n';
  expect(await type('retention')).toEqual({ code: 0, out: line, error: '' });
  expect(await type('retention', '--dry-run')).toEqual({ code: 0, out: line, error: '' });
  expect((await type('--json', 'retention')).out).toBe('{"sessions":0,"artifactVersions":0}\n');
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
