import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from 'pg';
import type { Account } from './binaries.ts';
import { isPidAlive, newProcessName } from './process-name.ts';

export interface Cluster {
  home: string;
  data: string;
  binaries: string;
  /** Account that runs PostgreSQL's programs; `undefined`: the current account. */
  account: Account | undefined;
  /** True: the cluster has no crash safety and is deleted when the server stops. */
  isEphemeral: boolean;
}

export interface RunningServer {
  pid: number;
  /** Name of the process that launched the server (process-name.ts); empty if a person launched it. */
  owner: string;
}

export interface LaunchedServer {
  port: number;
  /**
   * Stops the server; never throws. After 10 s without a clean stop it stops immediately, and its next start recovers.
   */
  stop(): Promise<void>;
}

const run = promisify(execFile);
const START_TIMEOUT_MS = 60_000;
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
  shared_buffers: '64MB',
};
const EPHEMERAL_SETTINGS = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' };
const LOG_FLAGS = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | (constants.O_NOFOLLOW ?? 0);
/** Server setting that stores the name of the launching process. */
const OWNER = 'agent_runtime.owner';
/** No process can have this pid (Linux: at most 2^22). */
const NO_PID = '2147483646';

/** `sslmode` is explicit, because otherwise the variable PGSSLMODE would apply. */
export function connectionUrl(port: number, password: string, database = 'postgres'): string {
  return `postgres://postgres:${password}@127.0.0.1:${port}/${database}?sslmode=disable`;
}

/** @throws Error with the program's output */
export async function runProgram(cluster: Cluster, name: string, args: string[], timeoutMs = 0): Promise<void> {
  await run(join(cluster.binaries, 'bin', name), args, { ...spawnOptions(cluster), timeout: timeoutMs });
}

/** Options for PostgreSQL's programs. PGDATA or an unknown locale of this process must not reach their environment. */
function spawnOptions(cluster: Cluster) {
  const env = process.platform === 'win32' ? {} : { env: { PATH: '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' } };
  return { cwd: cluster.home, ...env, ...cluster.account };
}

/**
 * Finds the cluster's server by logging in. `pending`: it starts or stops; `absent`: a new one may be launched. `pg_ctl
 * status` would also report a foreign process that reused the pid.
 */
export async function findServer(cluster: Cluster, password: string): Promise<RunningServer | 'pending' | 'absent'> {
  const file = await readPidFile(cluster);
  if (!file || !isPidAlive(file.pid)) return 'absent'; // a file with a dead pid is replaced by PostgreSQL itself
  if (!(await mayBeServer(file.pid, cluster.data))) {
    await disownPidFile(cluster, file.text);
    return 'absent';
  }
  const owner = file.isReady ? await readOwner(connectionUrl(file.port, password), cluster.data) : undefined;
  return owner === undefined ? 'pending' : { pid: file.pid, owner };
}

const pidFile = (cluster: Cluster) => join(cluster.data, 'postmaster.pid');

async function readPidFile(cluster: Cluster) {
  const text = await readFile(pidFile(cluster), 'utf8').catch(() => '');
  const lines = text.split('\n'); // line 1: pid, line 4: port, line 8: status
  const pid = Number(lines[0]);
  return pid > 0 ? { text, pid, port: Number(lines[3]), isReady: lines[7]?.trim() === 'ready' } : undefined;
}

/** False only for a process that is certainly no server of this cluster: a zombie, or with another command line. */
export async function mayBeServer(pid: number, data: string): Promise<boolean> {
  if (process.platform === 'win32') return true;
  if (process.platform === 'linux') {
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => undefined);
    return command === undefined || command.split('\0').includes(data);
  }
  return run('ps', ['-o', 'command=', '-p', String(pid)]).then(
    ({ stdout }) => stdout.includes(data),
    () => true,
  );
}

/**
 * Makes a stale pid file harmless. PostgreSQL refuses to start while the pid in it is alive, even as that of a foreign
 * process. The pid is replaced and the file kept, because the file's shared memory key lets PostgreSQL detect surviving
 * backends of the killed server. The file is moved aside first, so that one written by a starting server is noticed and
 * restored.
 */
async function disownPidFile(cluster: Cluster, staleText: string): Promise<void> {
  const path = pidFile(cluster);
  const aside = `${path}.${newProcessName()}`;
  await rename(path, aside).catch(() => undefined);
  const text = await readFile(aside, 'utf8').catch(() => undefined);
  if (text === undefined) return;
  if (text !== staleText) return rename(aside, path);
  const disowned = writeFile(path, text.replace(/^\d+/, NO_PID), { flag: 'wx', mode: 0o644 });
  await disowned.catch(() => undefined); // a server that started meanwhile has made its own
  await rm(aside);
}

/** Reads which process launched the server at `url`; `undefined` if its data directory is not `data`. */
async function readOwner(url: string, data: string): Promise<string | undefined> {
  try {
    return await withClient(url, async (client) => {
      const { rows } = await client.query<{ data: string; owner: string | null }>(
        "select current_setting('data_directory') as data, current_setting($1, true) as owner",
        [OWNER],
      );
      return rows[0]?.data === data ? (rows[0].owner ?? '') : undefined;
    });
  } catch {
    return undefined;
  }
}

/**
 * Launches a server that Ctrl-C does not reach, and that stops with this process, unless this process is killed.
 * @returns the reason if the server does not start
 */
export async function launch(cluster: Cluster, password: string): Promise<LaunchedServer | string> {
  const [port, owner] = [await freePort(), newProcessName()];
  const settings = {
    ...SETTINGS,
    port: String(port),
    [OWNER]: owner,
    ...(cluster.isEphemeral ? EPHEMERAL_SETTINGS : {}),
  };
  const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const log = await open(join(cluster.home, 'postgres.log'), LOG_FLAGS, 0o600);
  const { size: logStart } = await log.stat();
  try {
    const stdio: ['ignore', number, number] = ['ignore', log.fd, log.fd];
    const program = join(cluster.binaries, 'bin', 'postgres');
    const server = spawn(program, ['-D', cluster.data, ...args], { ...spawnOptions(cluster), detached: true, stdio });
    const end: { reason?: string } = {};
    server.once('error', (error) => (end.reason = describe(error)));
    server.once('exit', (code, signal) => (end.reason ??= `it ended with ${signal ?? code}`));
    server.unref();
    endWithProcess(server);
    for (const until = Date.now() + START_TIMEOUT_MS; end.reason === undefined && Date.now() < until; await sleep(20)) {
      const current = await findServer(cluster, password);
      if (typeof current === 'object' && current.owner === owner)
        return { port, stop: () => stopServer(cluster, server) };
    }
    const { buffer, bytesRead } = await log.read(Buffer.alloc(4096), 0, 4096, logStart);
    return `${end.reason ?? 'it did not become ready'}\n${buffer.toString('utf8', 0, bytesRead).trim()}\n`;
  } finally {
    await log.close();
  }
}

/** Stops the server when this process exits, even by `process.exit` or a fatal error. */
function endWithProcess(server: ChildProcess): void {
  const end = () => void server.kill('SIGINT'); // PostgreSQL's fast shutdown, which needs no waiter
  process.once('exit', end);
  server.once('exit', () => process.off('exit', end));
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === 'string') throw new TypeError('a TCP server has an address and a port');
  return address.port;
}

export async function withClient<T>(url: string, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5000, query_timeout: 30_000 });
  client.on('error', () => undefined); // a broken connection also fails the query, which is where it is handled
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function stopServer(cluster: Cluster, server: ChildProcess): Promise<void> {
  const exited = once(server, 'exit');
  const ways: ['fast' | 'immediate', number][] = [
    ['fast', 10_000],
    ['immediate', 2_000],
  ];
  for (const [mode, timeoutMs] of cluster.isEphemeral ? ways.slice(1) : ways) {
    if (server.pid === undefined || server.exitCode !== null || server.signalCode !== null) break;
    await signalServer(cluster, server.pid, mode);
    const waiting = new AbortController();
    await Promise.race([exited, sleep(timeoutMs, undefined, { signal: waiting.signal }).catch(() => undefined)]);
    waiting.abort();
  }
  if (cluster.isEphemeral) await rm(cluster.home, { recursive: true, force: true, maxRetries: 3 });
}

/**
 * Signals the server to stop; never waits or throws. `pg_ctl kill` works on Windows too. It takes a pid, whereas
 * `pg_ctl stop` might stop a server that another process launched meanwhile.
 */
export async function signalServer(cluster: Cluster, pid: number, mode: 'fast' | 'immediate'): Promise<void> {
  const args = ['kill', mode === 'fast' ? 'INT' : 'QUIT', String(pid)];
  await runProgram(cluster, 'pg_ctl', args, 5_000).catch(() => undefined);
}

/** Formats an error as a single line; for a failed program, its output without the command line. */
export function describe(error: unknown): string {
  const { stderr, message } = error as { stderr?: string; message?: string };
  return (stderr?.trim() || message || String(error)).replaceAll('\n', ' ').slice(0, 500);
}
