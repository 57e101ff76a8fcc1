import { execFile } from 'node:child_process';
import { chown, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { chooseAccount, locateBinaries } from '../../../src/db/embedded/binaries.ts';
import { migrateDatabase } from '../../../src/db/migrate.ts';

const run = promisify(execFile);

/** A crash-safe PostgreSQL of a test's own, on one port for its whole life. */
export interface PostgresCluster {
  /** A migrated database. */
  url: string;
  /** Ends the server as a power cut would: no checkpoint, every connection breaks. */
  stopImmediately(): Promise<void>;
  /** Starts it again; settles when it takes connections. */
  start(): Promise<void>;
  /** Ends it and deletes its files. */
  close(): Promise<void>;
}

/**
 * Makes a cluster in the directory for temporary files. Its tables are in `tablesIn` where that is given; its log of
 * changes is not: PostgreSQL itself ends when that has no room.
 */
export async function startCluster(tablesIn?: string): Promise<PostgresCluster> {
  const home = await mkdtemp(join(tmpdir(), 'agent-runtime-cluster-'));
  const account = await chooseAccount(home);
  const binaries = await locateBinaries(account);
  const data = join(tablesIn ?? home, 'data');
  await mkdir(data, { mode: 0o700 });
  if (account) for (const path of [home, data]) await chown(path, account.uid, account.gid);
  const options = { cwd: home, env: { PATH: '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }, ...account };
  const call = (program: string, args: string[]) => run(join(binaries, 'bin', program), args, options);
  await call('initdb', [
    '-D',
    data,
    '--username=postgres',
    '--auth=trust',
    '--encoding=UTF8',
    '--locale=C',
    '--no-sync',
    '-X',
    join(home, 'wal'),
  ]);
  const all: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    port: String(await freePort()),
    max_connections: '200',
    shared_buffers: '32MB',
  };
  const flags = Object.entries(all)
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');
  const start = async () =>
    void (await call('pg_ctl', ['start', '-D', data, '-w', '-s', '-l', join(home, 'log'), '-o', flags]));
  const stopImmediately = async () => void (await call('pg_ctl', ['stop', '-D', data, '-m', 'immediate', '-w', '-s']));
  await start();
  const url = `postgres://postgres@127.0.0.1:${all['port']}/postgres?sslmode=disable`;
  await migrateDatabase(url);
  return {
    url,
    start,
    stopImmediately,
    async close() {
      await stopImmediately().catch(() => undefined);
      await rm(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
