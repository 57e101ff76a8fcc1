import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type EmbeddedDatabase, startEmbedded } from '../../../../../src/platform/db/embedded/embedded.ts';
import { SYSTEM_DIR } from '../../../../../src/platform/db/embedded/binaries.ts';
import { newProcessName } from '../../../../../src/platform/db/embedded/process-name.ts';
import { type EmbeddedProcess, endProcess, spawnEmbedded } from '../../../../support/embedded-process.ts';

const NOBODY = { uid: 65534, gid: 65534 };
const isRoot = process.getuid?.() === 0;

let base: string;
const children = new Set<ChildProcess>();

beforeAll(async () => {
  const parent = isRoot && !(await canNobodyEnter(tmpdir())) ? '/tmp' : tmpdir();
  base = await mkdtemp(join(parent, 'embedded test '));
  await chmod(base, 0o755);
});

afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
  for (const dir of await readdir(base)) await killServer(join(base, dir)); // left where a test failed
  await rm(base, { recursive: true, force: true });
});

describe('one cluster through starts, kills and restarts', () => {
  let dir: string;
  let first: EmbeddedDatabase;

  beforeAll(async () => {
    dir = join(base, 'one cluster');
    first = await startEmbedded({ dir });
    await query(first.url, 'create table kept (value text)');
    await query(first.url, "insert into kept values ('a')");
  });
  afterAll(() => first.stop());

  test('the first start makes a UTF-8 database on the loopback address only', async () => {
    expect(first.home).toBe(dir);
    expect(new URL(first.url)).toMatchObject({ hostname: '127.0.0.1', pathname: '/agent_runtime' });
    const [settings] = await query(
      first.url,
      `select current_setting('server_encoding') as encoding, current_setting('listen_addresses') as addresses,
         current_setting('unix_socket_directories') as sockets, current_setting('fsync') as fsync`,
    );
    expect(settings).toEqual({ encoding: 'UTF8', addresses: '127.0.0.1', sockets: '', fsync: 'on' });
  });

  test('a wrong password is refused', async () => {
    const url = new URL(first.url);
    url.password = 'wrong';
    await expect(query(url.href, 'select 1')).rejects.toMatchObject({ code: '28P01' });
  });

  test('a second start of the directory says which process holds it and what to do', async () => {
    const sentence =
      `Process ${process.pid} already uses the embedded PostgreSQL in ${dir}. Stop it, or choose another DATA_DIR ` +
      'for this process. Or set DATABASE_URL=postgres://user:password@host:5432/database to use a PostgreSQL of ' +
      'your own.';
    await expect(startEmbedded({ dir })).rejects.toMatchObject({ code: 'config', message: sentence });
    await expect(spawnEmbedded(dir)).rejects.toThrow(sentence);
    expect(await isUp(first.url)).toBe(true);
  });

  test('after its end another process may have the directory, and finds what was kept', async () => {
    await first.stop();
    await first.stop();
    expect(await isUp(first.url)).toBe(false);
    const other = await spawnEmbedded(dir);
    children.add(other.process);
    expect(await query(other.url, 'select value from kept')).toEqual([{ value: 'a' }]);
    await expect(startEmbedded({ dir })).rejects.toThrow(`Process ${other.process.pid} already uses`);
    await endProcess(other.process, 'SIGTERM');
    expect(await isUp(other.url)).toBe(false);
    first = await startEmbedded({ dir });
  });

  test('kill -9 of node: the next start ends the server that was left and launches its own', async () => {
    await first.stop();
    const killed = await spawnEmbedded(dir);
    await endProcess(killed.process, 'SIGKILL');
    expect(await isUp(killed.url)).toBe(true);
    const left = await serverPid(dir);
    first = await startEmbedded({ dir });
    expect(await serverPid(dir)).not.toBe(left);
    expect(await isUp(killed.url)).toBe(false);
    expect(await query(first.url, 'select value from kept')).toEqual([{ value: 'a' }]);
  });

  test('a process that ends in the middle of something takes its server along', async () => {
    await first.stop();
    const { process: owner, url } = await spawnEmbedded(dir);
    await endProcess(owner, 'SIGUSR2'); // the process calls process.exit without stopping anything
    await expect.poll(() => isUp(url)).toBe(false);
    first = await startEmbedded({ dir });
  });

  test('kill -9 of node and server: the next start recovers what was committed', async () => {
    await first.stop();
    const killed = await spawnEmbedded(dir);
    await query(killed.url, "insert into kept values ('b')");
    await endProcess(killed.process, 'SIGKILL');
    process.kill(await serverPid(dir), 'SIGKILL');
    first = await startEmbedded({ dir });
    expect(await query(first.url, 'select value from kept order by 1')).toEqual([{ value: 'a' }, { value: 'b' }]);
  });

  test('a pid file that names a living stranger stops neither the start nor the stranger', async () => {
    const pidFile = join(dir, 'data', 'postmaster.pid');
    const { uid, gid } = await stat(pidFile);
    const stranger = spawn('sleep', ['600'], { uid, gid, stdio: 'ignore' });
    children.add(stranger);
    await once(stranger, 'spawn');
    const text = await readFile(pidFile, 'utf8');
    await first.stop();
    await writeFile(pidFile, text.replace(/^\d+/, String(stranger.pid)), { mode: 0o600 });
    await chown(pidFile, uid, gid);
    first = await startEmbedded({ dir });
    expect(await query(first.url, 'select count(*)::int as count from kept')).toEqual([{ count: 2 }]);
    expect(await serverPid(dir)).not.toBe(stranger.pid);
    expect(stranger.exitCode ?? stranger.signalCode).toBeNull();
  });

  test('what a process killed during initdb left is removed, what a living one works on is not', async () => {
    await first.stop();
    const dead = spawn('true', { stdio: 'ignore' });
    await once(dead, 'exit');
    const abandoned = join(dir, `init-${dead.pid}-1-00000000`);
    const current = join(dir, `init-${newProcessName()}`);
    for (const draft of [abandoned, current]) await mkdir(draft);
    first = await startEmbedded({ dir });
    expect([existsSync(abandoned), existsSync(current)]).toEqual([false, true]);
  });
});

test('four first starts at once: one gets the directory, the others are told which', async () => {
  const dir = join(base, 'four');
  const four = await Promise.allSettled(Array.from({ length: 4 }, () => spawnEmbedded(dir)));
  const started = four.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  for (const each of started) children.add(each.process);
  expect(started).toHaveLength(1);
  const [{ process: holder, url }] = started as [EmbeddedProcess];
  for (const each of four) {
    if (each.status === 'rejected') expect(String(each.reason)).toContain(`Process ${holder.pid} already uses`);
  }
  expect((await readdir(dir)).sort()).toEqual(['data', 'postgres.log']);
  await endProcess(holder, 'SIGTERM');
  expect(await isUp(url)).toBe(false);
});

test('an ephemeral server takes its directory with it', async () => {
  const dir = join(base, 'ephemeral');
  const server = await startEmbedded({ dir, ephemeral: true });
  expect(await query(server.url, `select current_setting('fsync') as fsync, current_database() as database`)).toEqual([
    { fsync: 'off', database: 'postgres' },
  ]);
  await server.stop();
  expect([await isUp(server.url), existsSync(dir)]).toEqual([false, false]);
});

test('a machine without embedded PostgreSQL is told to set DATABASE_URL', async () => {
  const otherMachine = 'data:text/javascript,Object.defineProperty(process, "arch", { value: "sparc" })';
  const start = spawnEmbedded(join(base, 'none'), { nodeArguments: ['--import', otherMachine] });
  await expect(start).rejects.toThrow(
    /is not installed\. Install it with: npm ci --include=optional Or set DATABASE_URL=postgres:/,
  );
});

test('a directory that cannot be made is named', async () => {
  const file = join(base, 'file');
  await writeFile(file, '');
  await expect(startEmbedded({ dir: join(file, 'db') })).rejects.toMatchObject({
    code: 'config',
    message: expect.stringContaining(`The embedded PostgreSQL in ${join(file, 'db')} did not start: ENOTDIR`),
  });
});

test.runIf(isRoot)('root keeps the data of a directory closed to the server in a directory of its own', async () => {
  const closed = join(base, 'closed');
  await mkdir(closed, { mode: 0o700 });
  const server = await startEmbedded({ dir: join(closed, 'db'), ephemeral: true });
  try {
    expect(server.home.startsWith(`${SYSTEM_DIR}/db-`)).toBe(true);
    expect(await isUp(server.url)).toBe(true);
  } finally {
    await server.stop();
  }
  expect(existsSync(server.home)).toBe(false);
});

test('a normal user', async (context) => {
  context.skip(!isRoot, 'every other test of this file already ran as a normal user');
  context.skip(
    !(await canNobodyEnter(dirname(process.execPath))),
    'the project lies below a directory closed to others',
  );
  const own = join(base, 'nobody');
  await mkdir(own);
  await chown(own, NOBODY.uid, NOBODY.gid);
  const server = await spawnEmbedded(join(own, 'data dir'), NOBODY);
  children.add(server.process);
  expect((await stat(join(server.home, 'data'))).uid).toBe(NOBODY.uid);
  expect(await isUp(server.url)).toBe(true);
  await query(server.url, "create table kept as select 'nobody' as value");
  await endProcess(server.process, 'SIGTERM');
  expect(await isUp(server.url)).toBe(false);
  const root = await startEmbedded({ dir: join(own, 'data dir') });
  expect(await query(root.url, 'select value from kept')).toEqual([{ value: 'nobody' }]);
  await root.stop();
});

async function query(url: string, text: string): Promise<unknown[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

function isUp(url: string): Promise<boolean> {
  return query(url, 'select 1').then(
    () => true,
    () => false,
  );
}

async function serverPid(dir: string): Promise<number> {
  return Number.parseInt(await readFile(join(dir, 'data', 'postmaster.pid'), 'utf8'), 10);
}

async function killServer(dir: string): Promise<void> {
  const pid = await serverPid(dir).catch(() => undefined);
  if (pid !== undefined) process.kill(pid, 'SIGQUIT');
}

async function canNobodyEnter(dir: string): Promise<boolean> {
  const shell = spawn('sh', ['-c', 'cd "$0"', dir], { ...NOBODY, cwd: '/', stdio: 'ignore' });
  const [code] = await once(shell, 'exit');
  return code === 0;
}
