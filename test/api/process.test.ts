import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { testDatabase } from '../support/database.ts';

/** The process as `npm start` runs it: what it prints, how it ends. */

const database = testDatabase();
/** An empty directory: no `.env`, no `harness.yaml`, no `agents`. */
const elsewhere = mkdtempSync(join(tmpdir(), 'agent-runtime-process-'));
const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

interface Ended {
  code: number | null;
  out: string;
  error: string;
}

/** Starts the process from a directory that is not the project's; `until` settles when it has printed the text. */
function start(environment: Record<string, string>, ...args: string[]) {
  const child: ChildProcess = spawn(process.execPath, [main, ...args], {
    cwd: elsewhere,
    env: { PATH: process.env['PATH'] ?? '', ...environment },
  });
  const ended: Ended = { code: null, out: '', error: '' };
  const waiting: { text: string; found: () => void }[] = [];
  child.stdout?.on('data', (chunk: Buffer) => {
    ended.out += chunk.toString();
    for (const { text, found } of waiting) if (ended.out.includes(text)) found();
  });
  child.stderr?.on('data', (chunk: Buffer) => (ended.error += chunk.toString()));
  const end = new Promise<Ended>((resolve) => child.on('close', (code) => resolve({ ...ended, code })));
  const until = (text: string) =>
    Promise.race([
      new Promise<void>((found) => {
        waiting.push({ text, found });
        if (ended.out.includes(text)) found();
      }),
      end.then(({ error }) => Promise.reject(new Error(`it ended: ${error}`))),
    ]);
  return { child, end, until, ended };
}

describe('starting', () => {
  test('says in a few lines where it listens, which database, model and mode, and what to try', async () => {
    const { child, end, until, ended } = start({
      DATABASE_URL: database.url,
      PORT: '0',
      RUNTIME_API_KEYS: 'k'.repeat(16),
    });
    await until('curl');
    const { host, pathname, password } = new URL(database.url);
    const [title, ...lines] = ended.out.trim().split('\n');
    expect(title).toMatch(/^Agent runtime \d+\.\d+\.\d+ listens on http:\/\/127\.0\.0\.1:\d+ \(documents: .*\/docs\)$/);
    expect(lines.slice(0, 4)).toEqual([
      `  database  PostgreSQL at ${host}${pathname}`,
      '  model     offline',
      '  mode      auth key',
      'Try it:',
    ]);
    expect(`${ended.out}${ended.error}`).not.toContain('k'.repeat(16));
    if (password) expect(`${ended.out}${ended.error}`).not.toContain(password);
    child.kill('SIGTERM');
    expect(await end).toMatchObject({ code: 0, error: '' });
  });

  test.each([
    [{ PORT: 'x' }, 'PORT: found "x"; allowed: a whole number from 0 to 65535.\n'],
    [{ HARNESS_FILE: '/nowhere.yaml' }, 'HARNESS_FILE: there is no file /nowhere.yaml.\n'],
    [{ MODEL_PROVIDER: 'openai' }, 'MODEL_NAME: found nothing; the provider openai needs the name of a model.\n'],
    [{ TOOLS: 'nope' }, /^harness_agent: Tool `nope` is not a supported built-in tool\. Available: calculator, /],
    [{ SKILLS: 'nope' }, /^harness_agent: Skill `nope` failed to load: /],
  ])('%j ends it with a sentence and code 1', async (environment, message) => {
    const { end } = start({ DATABASE_URL: database.url, PORT: '0', ...environment });
    const { code, error, out } = await end;
    expect([code, out]).toEqual([1, '']);
    expect(error).toEqual(typeof message === 'string' ? message : expect.stringMatching(message));
  });

  test('a database that is not there is named without its password', async () => {
    const { end } = start({ DATABASE_URL: 'postgres://u:geheim@127.0.0.1:1/x', PORT: '0' });
    const { code, error } = await end;
    expect(code).toBe(1);
    expect(error).toMatch(/^The database at 127\.0\.0\.1:1 cannot be used: .*Check DATABASE_URL\.\n$/);
    expect(error).not.toContain('geheim');
  });

  test('a port that is taken is named, and another one suggested', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => taken.on('listening', resolve));
    const { port } = taken.address() as AddressInfo;
    const { end } = start({ DATABASE_URL: database.url, PORT: String(port) });
    expect(await end).toEqual({
      code: 1,
      out: '',
      error: `PORT: ${port} is taken on 127.0.0.1; choose another, for example PORT=${port + 1}.\n`,
    });
    taken.close();
  });
});

describe('ending', () => {
  test.each(['SIGTERM', 'SIGINT'] as const)('%s drains and ends with code 0', async (signal) => {
    const { child, end, until } = start({ DATABASE_URL: database.url, PORT: '0' });
    await until('curl');
    child.kill(signal);
    const { code, out } = await end;
    expect([code, out.includes('Stopping; running requests may finish.')]).toEqual([0, true]);
  });
});

describe('other commands', () => {
  test('--help says what there is; an unknown option ends with code 1', async () => {
    const help = await start({}, '--help').end;
    expect([help.code, help.error]).toEqual([0, '']);
    for (const option of ['--migrate', '--check', '--print-openapi']) expect(help.out).toContain(option);
    const unknown = await start({}, '--nope').end;
    expect([unknown.code, unknown.error.includes("Unknown option '--nope'")]).toEqual([1, true]);
  });

  test('--migrate applies the migrations and ends, also where nothing is to do', async () => {
    expect(await start({ DATABASE_URL: database.url }, '--migrate').end).toEqual({ code: 0, out: '', error: '' });
  });

  test('--check prints the effective agent', async () => {
    const { code, out } = await start({ TOOLS: 'calculator', SYSTEM_PROMPT: 'Be brief.' }, '--check').end;
    expect(code).toBe(0);
    expect(out).toMatch(/^# Applications: harness_agent\. Model: offline\.$/m);
    expect(out).toMatch(/^instruction: Be brief\.$/m);
  });
});
