import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, test } from 'vitest';
import { createEmptyDatabase, testDatabase } from '../support/database.ts';
import { listMigrations } from '../support/migrations.ts';
import { startService as start } from '../support/service-process.ts';

/** The process as an operator runs it: what it prints, how it ends. */

const database = testDatabase();

describe('starting', () => {
  test('says where it listens, which database, model and mode, and what to try; SIGTERM ends it', async () => {
    const { child, end, until, ended } = start({
      DATABASE_URL: database.url,
      PORT: '0',
      RUNTIME_API_KEYS: '0123456789abcdef',
    });
    await until('curl');
    const { host, pathname } = new URL(database.url);
    const [, version, url] =
      /^Agent runtime (\d+\.\d+\.\d+) listens on (http:\/\/127\.0\.0\.1:\d+) /.exec(ended.out) ?? [];
    const body = {
      prompt: 'What is 17 * 23? Use the calculator.',
      harness_name: 'demo',
      run_agent_request: { user_id: 'u1', session_id: 's1' },
    };
    const headers = "-H 'content-type: application/json' -H 'authorization: Bearer <a key of RUNTIME_API_KEYS>'";
    // The whole of it, so there is no room for a key or for the password of the database.
    expect(ended.out).toBe(`Agent runtime ${version} listens on ${url} (documents: ${url}/docs)
  database  PostgreSQL at ${host}${pathname}
  model     offline
  mode      auth key
Try it:
  curl -s ${url}/harness/invoke ${headers} -d '${JSON.stringify(body)}'
`);
    const started = ended.out;
    child.kill('SIGTERM');
    const stopping = 'Stopping; running requests may finish. Once more to end at once.\n';
    expect(await end).toEqual({ code: 0, out: `${started}${stopping}`, error: '' });
  });

  test('with keys and the development UI it says that the pages can send none', async () => {
    const { child, end, until, ended } = start({
      DATABASE_URL: database.url,
      PORT: '0',
      RUNTIME_API_KEYS: '0123456789abcdef',
      DEV_UI: 'true',
    });
    await until('curl');
    expect(ended.out).toMatch(/\n {2}UI .*\/dev-ui\/ \(the development UI \(DEV_UI\) can send no credential/);
    child.kill('SIGTERM');
    await end;
  });

  test.each([
    [{ PORT: 'x' }, 'PORT: found "x"; allowed: a whole number from 0 to 65535.\n'],
    [{ SKILLS: 'nope' }, /^harness_agent: Skill `nope` failed to load: /],
  ])('%j ends it with a sentence and code 1', async (environment, message) => {
    const { end } = start({ DATABASE_URL: database.url, PORT: '0', ...environment });
    const { code, error, out } = await end;
    expect([code, out]).toEqual([1, '']);
    expect(error).toEqual(typeof message === 'string' ? message : expect.stringMatching(message));
  });

  test('where HOST is all addresses, agents are looked at and migrations applied without a key', async () => {
    const environment = { DATABASE_URL: database.url, HOST: '0.0.0.0' };
    const commands = [['check'], ['migrate'], ['migrate', '--check']];
    for (const command of commands) {
      const { code, error } = await start(environment, ...command).end;
      expect([command, code, error]).toEqual([command, 0, '']);
    }
    const { code, error } = await start({ ...environment, PORT: '0' }).end;
    expect([code, error]).toEqual([1, expect.stringMatching(/^HOST: found "0\.0\.0\.0"; AUTH_MODE local listens on/)]);
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

describe('other commands', () => {
  test('--help says what there is; an unknown option ends with code 2', async () => {
    const help = await start({}, '--help').end;
    expect([help.code, help.error]).toEqual([0, '']);
    for (const command of ['start', 'migrate', 'check', 'openapi']) expect(help.out).toContain(`\n  ${command} `);
    const unknown = await start({}, '--nope').end;
    expect([unknown.code, unknown.error.includes("unknown option '--nope'")]).toEqual([2, true]);
  });

  test('migrate applies the migrations, says which, and ends, also where nothing is to do', async () => {
    const empty = await createEmptyDatabase();
    const { host, pathname } = new URL(empty.url);
    const migrate = () => start({ DATABASE_URL: empty.url }, 'migrate').end;
    try {
      const applied = `PostgreSQL at ${host}${pathname}: applied ${listMigrations().join(', ')}.\n`;
      expect(await migrate()).toEqual({ code: 0, out: applied, error: '' });
      const done = `PostgreSQL at ${host}${pathname} has all that this version needs.\n`;
      expect(await migrate()).toEqual({ code: 0, out: done, error: '' });
    } finally {
      await empty.drop();
    }
  });

  test('check prints the effective agent', async () => {
    const { code, out } = await start({ TOOLS: 'calculator', SYSTEM_PROMPT: 'Be brief.' }, 'check').end;
    expect(code).toBe(0);
    expect(out).toMatch(/^# Applications: harness_agent\. Model: offline\.$/m);
    expect(out).toMatch(/^instruction: Be brief\.$/m);
  });
});
