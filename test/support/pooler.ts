import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { chooseAccount } from '../../src/platform/db/embedded/binaries.ts';

/** A PgBouncer in transaction mode, as its package sets it up: it refuses settings of connections. */
export interface Pooler {
  /** The URL of a database of the server, through the pooler. */
  urlOf(databaseUrl: string): string;
  close(): Promise<void>;
}

/** Said where there is none; Debian's package is `pgbouncer`. */
export const NO_POOLER = 'skipped: there is no pgbouncer on PATH or in /usr/sbin, and PGBOUNCER names none';

/** The program, from the variable `PGBOUNCER` or where packages put it. */
export function findPgBouncer(): string | undefined {
  const named = process.env['PGBOUNCER'];
  if (named) return named;
  const directories = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin'];
  return directories.map((directory) => join(directory, 'pgbouncer')).find((path) => existsSync(path));
}

/**
 * Starts one in front of a server. It signs in as the user of `serverUrl`, whoever its client says to be.
 * @param settings lines of its section `[pgbouncer]` beside ours
 */
export async function startPooler(serverUrl: string, settings: Record<string, string> = {}): Promise<Pooler> {
  const program = findPgBouncer();
  if (program === undefined) throw new Error(NO_POOLER);
  const home = await mkdtemp(join(tmpdir(), 'agent-runtime-pooler-'));
  const account = await chooseAccount(home);
  const server = new URL(serverUrl);
  const port = await freePort();
  const file = join(home, 'pgbouncer.ini');
  const lines = { ...OURS, ...settings, listen_port: String(port), logfile: join(home, 'log') };
  const target = [
    `host=${server.hostname}`,
    `port=${server.port || 5432}`,
    `user=${decodeURIComponent(server.username)}`,
    `password='${decodeURIComponent(server.password).replaceAll("'", "''")}'`,
  ];
  const text = Object.entries(lines).map(([name, value]) => `${name} = ${value}`);
  await writeFile(file, `[databases]\n* = ${target.join(' ')}\n[pgbouncer]\n${text.join('\n')}\n`, { mode: 0o600 });
  // It refuses to run as root.
  if (account) for (const path of [home, file]) await chown(path, account.uid, account.gid);
  const child = spawn(program, ['-q', file], { stdio: 'ignore', cwd: home, ...account });
  const ended = once(child, 'exit');
  await untilListening(port, () => child.exitCode);
  return {
    urlOf(databaseUrl) {
      const url = new URL(databaseUrl);
      [url.hostname, url.port, url.search] = ['127.0.0.1', String(port), ''];
      return url.href;
    },
    async close() {
      child.kill('SIGKILL');
      await ended;
      await rm(home, { recursive: true, force: true });
    },
  };
}

const OURS = {
  listen_addr: '127.0.0.1',
  unix_socket_dir: '',
  auth_type: 'any',
  pool_mode: 'transaction',
  default_pool_size: '15',
  max_client_conn: '2000',
  server_idle_timeout: '5',
};

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

async function untilListening(port: number, exitCode: () => number | null): Promise<void> {
  for (;;) {
    if (exitCode() !== null) throw new Error(`pgbouncer ended with ${exitCode()} instead of starting`);
    const socket = connect(port, '127.0.0.1');
    const isOpen = await once(socket, 'connect').then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isOpen) return;
    await sleep(20);
  }
}
