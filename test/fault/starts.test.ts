import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, cpSync, existsSync, globSync, readFileSync, statSync, symlinkSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { chooseAccount } from '../../src/platform/db/embedded/binaries.ts';
import { client } from '../support/app.ts';
import { testDatabase } from '../support/database.ts';
import { type ServiceProcess, startProcess, startService } from '../support/service-process.ts';
import { freePort } from './support/cluster.ts';
import { eventBody, listPath, sessionPath } from './support/faults.ts';

/**
 * Starts in surroundings that operators have. That a role which owns nothing serves from a schema of its own, beside a
 * foreign table `sessions`, is a test of `test/api/managed-database.test.ts`.
 */

const root = fileURLToPath(new URL('../../', import.meta.url));
const database = testDatabase();
const LISTENS = 'listens on ';
const KEY = 'a-key-of-this-test-only';

/** A directory for this test. */
async function newHome(): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), 'agent-runtime-starts-'));
  onTestFinished(() => rm(home, { recursive: true, force: true }));
  return home;
}

/** The URL of a process that listens; it is stopped with the test, and has to end well. */
async function urlOf(service: ServiceProcess): Promise<string> {
  onTestFinished(async () => {
    service.child.kill('SIGTERM');
    expect((await service.end).code).toBe(0);
  });
  await service.until(LISTENS);
  const [, url = ''] = /listens on (\S+)/.exec(service.ended.out) ?? [];
  return url;
}

/** Makes a session, and reads it. */
async function use(url: string, headers: Record<string, string> = {}): Promise<void> {
  const { get, post } = client(url);
  expect((await post(listPath('u'), { sessionId: 's' }, headers)).status).toBe(200);
  const { status, body } = await get(sessionPath('u', 's'), headers);
  expect([status, body]).toMatchObject([200, { id: 's', userId: 'u' }]);
}

test('a normal user, from a checkout that nobody may write to, with a database of its own', async (context) => {
  const home = await newHome();
  const account = await chooseAccount(home);
  const [checkout, data] = [join(home, 'checkout'), join(home, 'data')];
  await mkdir(checkout);
  for (const name of ['package.json', 'src', 'migrations']) {
    cpSync(join(root, name), join(checkout, name), { recursive: true });
  }
  symlinkSync(join(root, 'node_modules'), join(checkout, 'node_modules'));
  await chmod(home, 0o755);
  await mkdir(data, { mode: 0o700 });
  if (account) chownSync(data, account.uid, account.gid);
  const files = globSync('**', { cwd: checkout, exclude: ['node_modules/**'] }).filter(
    (name) => name !== 'node_modules',
  );
  for (const name of files.toReversed()) {
    const path = join(checkout, name);
    chmodSync(path, statSync(path).isDirectory() ? 0o555 : 0o444);
  }
  chmodSync(checkout, 0o555);
  onTestFinished(() => {
    for (const name of [...files, '']) chmodSync(join(checkout, name), 0o755);
  });
  const canRead = spawnSync(process.execPath, ['-e', `require('fs').readFileSync('${root}package.json')`], {
    ...account,
  });
  context.skip(canRead.status !== 0, 'skipped: a normal user of this machine may not read this checkout');
  const whoami = spawnSync('id', ['-u'], { ...account, encoding: 'utf8' });
  expect(Number(whoami.stdout)).toBeGreaterThan(0);

  const environment = { HOME: data, DATA_DIR: join(data, 'database'), PORT: '0', HOST: '127.0.0.1' };
  const options = { cwd: checkout, ...account };
  await use(await urlOf(startProcess(process.execPath, ['src/main.ts'], environment, options)));
  expect(existsSync(join(data, 'database'))).toBe(true);
  expect(
    globSync('**', { cwd: checkout, exclude: ['node_modules/**'] }).filter((name) => name !== 'node_modules'),
  ).toEqual(files);
});

test('IPv6', async (context) => {
  const isThere = await new Promise((resolve) => {
    const server = createServer().once('error', () => resolve(false));
    server.listen(0, '::1', () => server.close(() => resolve(true)));
  });
  context.skip(isThere !== true, 'skipped: this machine has no address ::1');
  const url = await urlOf(startService({ DATABASE_URL: database.url, HOST: '::1', PORT: '0' }));
  expect(url).toMatch(/^http:\/\/\[::1\]:\d+$/);
  await use(url);
});

/** nginx, from the variable `NGINX` or where packages put it. */
function findNginx(): string | undefined {
  const directories = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin'];
  return process.env['NGINX'] ?? directories.map((each) => join(each, 'nginx')).find((path) => existsSync(path));
}

/** Starts nginx as `deploy/nginx.conf` sets it up, in front of one service. @returns its URL */
async function startNginx(program: string, service: string): Promise<string> {
  const home = await newHome();
  const port = await freePort();
  const text = readFileSync(join(root, 'deploy/nginx.conf'), 'utf8')
    .replace('set $runtime replicas', `set $runtime ${new URL(service).hostname}`)
    .replace('$runtime:8000', `$runtime:${new URL(service).port}`)
    .replace('listen 8080', `listen 127.0.0.1:${port}`)
    .replaceAll('/tmp/', `${home}/`);
  await writeFile(join(home, 'nginx.conf'), text);
  const args = ['-c', join(home, 'nginx.conf'), '-e', join(home, 'error.log'), '-g', 'daemon off;'];
  const nginx = startProcess(program, args, {});
  onTestFinished(async () => {
    nginx.child.kill('SIGTERM');
    await nginx.end;
  });
  const url = `http://127.0.0.1:${port}`;
  const answers = () =>
    fetch(`${url}/health`).then(
      ({ status }) => status === 200,
      () => false,
    );
  while (!(await answers())) if (nginx.child.exitCode !== null) throw new Error((await nginx.end).error);
  return url;
}

test('behind nginx as deploy/nginx.conf sets it up: requests, and a stream as it happens', async (context) => {
  const program = findNginx();
  context.skip(program === undefined, 'skipped: nginx is neither in NGINX, on PATH nor in /usr/sbin');
  const environment = { DATABASE_URL: database.url, PORT: '0', RUNTIME_API_KEYS: KEY, TRUSTED_PROXIES: '127.0.0.1' };
  const url = await startNginx(program ?? '', await urlOf(startService(environment)));
  const headers = { authorization: `Bearer ${KEY}` };
  const session = sessionPath('proxied', 's');
  const { get, post } = client(url);
  expect((await get(listPath('proxied'))).status).toBe(401);
  expect((await post(listPath('proxied'), { sessionId: 's' }, { ...headers, origin: url })).status).toBe(200);

  // It never ends by itself, so what arrives was not held back.
  const leaving = new AbortController();
  const stream = await fetch(`${url}${session}/events/stream`, { headers, signal: leaving.signal });
  expect((await post(`${session}/events`, eventBody('as it happens'), headers)).status).toBe(200);
  let seen = '';
  const decoder = new TextDecoder();
  for await (const chunk of stream.body ?? []) {
    seen += decoder.decode(chunk as Uint8Array, { stream: true });
    if (seen.includes('as it happens')) break;
  }
  leaving.abort();
  expect(seen).toContain('as it happens');
});
