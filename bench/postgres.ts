import { execFile } from 'node:child_process';
import { chown, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client, escapeIdentifier } from 'pg';
import { chooseAccount, locateBinaries } from '../src/platform/db/embedded/binaries.ts';

const run = promisify(execFile);

/** The database server of a benchmark: durable commits, one for all that is measured. */
export interface Postgres {
  version: string;
  pid: number;
  /** Makes a database; its URL. */
  createDatabase(name: string): Promise<string>;
  stop(): Promise<void>;
}

const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
  shared_buffers: '256MB',
  // Otherwise a checkpoint falls into the round of one of them.
  max_wal_size: '8GB',
  checkpoint_timeout: '30min',
  shared_preload_libraries: 'pg_stat_statements',
};

/** Signals that end a benchmark, with the exit codes that shells expect. */
const SIGNALS = [
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const;

/** Starts a PostgreSQL of the benchmark's own in the directory for temporary files. */
export async function startPostgres(): Promise<Postgres> {
  const home = await mkdtemp(join(tmpdir(), 'agent-runtime-bench-'));
  const account = await chooseAccount(home);
  const binaries = await locateBinaries(account);
  const data = join(home, 'data');
  await mkdir(data, { mode: 0o700 });
  if (account) for (const path of [home, data]) await chown(path, account.uid, account.gid);
  const options = { cwd: home, env: { PATH: '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }, ...account };
  const call = (program: string, args: string[]) => run(join(binaries, 'bin', program), args, options);
  await call('initdb', ['-D', data, '--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C']);
  const port = await freePort();
  const flags = Object.entries({ ...SETTINGS, port: String(port) }).map(([name, value]) => `-c ${name}=${value}`);
  await call('pg_ctl', ['start', '-D', data, '-w', '-s', '-l', join(home, 'log'), '-o', flags.join(' ')]);
  const urlOf = (database: string) => `postgres://postgres@127.0.0.1:${port}/${database}?sslmode=disable`;
  // What template1 has, each database gets.
  const template = new Client({ connectionString: urlOf('template1') });
  await template.connect();
  await template.query('create extension pg_stat_statements');
  await template.end();
  const admin = new Client({ connectionString: urlOf('postgres') });
  await admin.connect();
  const { rows } = await admin.query<{ version: string }>(`select current_setting('server_version') as version`);
  const end = async () => {
    await admin.end();
    await call('pg_ctl', ['stop', '-D', data, '-m', 'immediate', '-w', '-s']);
    await rm(home, { recursive: true, force: true, maxRetries: 5 });
  };
  let ended: Promise<void> | undefined;
  const stop = () => (ended ??= end());
  // A benchmark that is ended leaves no server behind; those that it measures end with its process.
  for (const [signal, code] of SIGNALS) process.once(signal, () => void stop().finally(() => process.exit(code)));
  return {
    version: rows[0]?.version ?? '',
    pid: Number((await readFile(join(data, 'postmaster.pid'), 'utf8')).split('\n')[0]),
    async createDatabase(name) {
      await admin.query(`create database ${escapeIdentifier(name)}`);
      return urlOf(name);
    },
    stop,
  };
}

/** A port of loopback that nobody listens on. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
