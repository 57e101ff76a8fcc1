import { execFile } from 'node:child_process';
import { chown, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { chooseAccount, locateBinaries } from '../../../src/platform/db/embedded/binaries.ts';
import { migrateDatabase } from '../../../src/platform/db/migrate.ts';

const run = promisify(execFile);

/** A crash-safe PostgreSQL of a test's own, on one port for its whole life. */
export interface PostgresCluster {
  /** A migrated database. */
  url: string;
  /** Ends the server as a power cut would: no checkpoint, every connection breaks. */
  stopImmediately(): Promise<void>;
  /** Starts it again; settles when it takes connections. */
  start(): Promise<void>;
  /** A server that follows this one, from a copy of its files; this one is away for that moment. */
  addStandby(): Promise<PostgresStandby>;
  /** A copy of its files, taken while it serves; the server has to keep its log of changes in `archive`. */
  takeBase(archive: string): Promise<BaseBackup>;
  /** Ends it and deletes its files. */
  close(): Promise<void>;
}

/** A copy of a server's files, from which servers of any later time can be made. */
interface BaseBackup {
  /** Starts a server as it was at a restore point of that name; settles when it takes writes. */
  recoverTo(restorePoint: string): Promise<PostgresCluster>;
}

/** A server in recovery that streams from a primary, under the name `standby`. */
export interface PostgresStandby extends PostgresCluster {
  /** Makes it a primary; settles when it takes writes. */
  promote(): Promise<void>;
}

/** What may differ between clusters. */
export interface ClusterOptions {
  /** Where its tables are; its log of changes is not: PostgreSQL itself ends when that has no room. */
  tablesIn?: string;
  /** Directory with `bin`, `lib` and `share` of another version [the one that the service brings]. */
  binaries?: string;
  /** Settings beside ours. */
  settings?: Record<string, string>;
}

/** A directory with a cluster in it, and how its programs are called. */
interface Place {
  binaries: string;
  home: string;
  data: string;
  port: number;
  settings: Record<string, string>;
  call: (program: string, args: string[]) => Promise<unknown>;
}

/** Makes a cluster in the directory for temporary files, and migrates its database. */
export async function startCluster(options: ClusterOptions = {}): Promise<PostgresCluster> {
  const place = await choosePlace(options);
  await place.call('initdb', [
    '-D',
    place.data,
    '--username=postgres',
    '--auth=trust',
    '--encoding=UTF8',
    '--locale=C',
    '--no-sync',
    '-X',
    join(place.home, 'wal'),
  ]);
  const cluster = inPlace(place);
  try {
    await cluster.start();
    await migrateDatabase({ url: cluster.url });
    return cluster;
  } catch (error) {
    await cluster.close();
    throw error;
  }
}

async function choosePlace({ tablesIn, binaries, settings = {} }: ClusterOptions): Promise<Place> {
  const home = await mkdtemp(join(tmpdir(), 'agent-runtime-cluster-'));
  const account = await chooseAccount(home);
  const directory = binaries ?? (await locateBinaries(account));
  const data = join(tablesIn ?? home, 'data');
  await mkdir(data, { mode: 0o700 });
  if (account) for (const path of [home, data]) await chown(path, account.uid, account.gid);
  const options = { cwd: home, env: { PATH: '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }, ...account };
  const call = (program: string, args: string[]) => run(join(directory, 'bin', program), args, options);
  return { binaries: directory, home, data, port: await freePort(), settings, call };
}

function inPlace(place: Place): PostgresCluster {
  const { home, data, port, call } = place;
  const all: Record<string, string> = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    port: String(port),
    max_connections: '200',
    shared_buffers: '32MB',
    ...place.settings,
  };
  const flags = Object.entries(all)
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');
  const start = async () =>
    void (await call('pg_ctl', ['start', '-D', data, '-w', '-s', '-l', join(home, 'log'), '-o', flags]));
  const stop = async (mode: 'fast' | 'immediate') =>
    void (await call('pg_ctl', ['stop', '-D', data, '-m', mode, '-w', '-s']));
  return {
    url: `postgres://postgres@127.0.0.1:${port}/postgres?sslmode=disable`,
    start,
    stopImmediately: () => stop('immediate'),
    async addStandby() {
      const target = await choosePlace(place);
      await stop('fast');
      // The log of changes is behind a link; the copy has it inside.
      await run('cp', ['-RLp', `${data}/.`, target.data]);
      await start();
      const primary = `host=127.0.0.1 port=${port} user=postgres application_name=standby`;
      await writeFile(join(target.data, 'postgresql.auto.conf'), `primary_conninfo = '${primary}'\n`);
      await writeFile(join(target.data, 'standby.signal'), '');
      const standby = inPlace(target);
      await standby.start();
      return {
        ...standby,
        promote: async () => void (await target.call('pg_ctl', ['promote', '-D', target.data, '-w', '-s'])),
      };
    },
    async takeBase(archive) {
      const target = await choosePlace({ ...place, settings: {} });
      await target.call('pg_basebackup', [
        '-D',
        target.data,
        '-d',
        `postgres://postgres@127.0.0.1:${port}`,
        '-c',
        'fast',
      ]);
      const recoverTo = async (restorePoint: string) => {
        const lines = [
          `restore_command = 'cp "${archive}/%f" "%p"'`,
          `recovery_target_name = '${restorePoint}'`,
          `recovery_target_action = 'promote'`,
        ];
        await writeFile(join(target.data, 'postgresql.auto.conf'), `${lines.join('\n')}\n`);
        await writeFile(join(target.data, 'recovery.signal'), '');
        const cluster = inPlace(target);
        try {
          await cluster.start();
          await untilPrimary(cluster.url);
          return cluster;
        } catch (error) {
          await cluster.close();
          throw error;
        }
      };
      return { recoverTo };
    },
    async close() {
      await stop('immediate').catch(() => undefined);
      await rm(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

async function untilPrimary(url: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  while ((await client.query<{ is: boolean }>('select pg_is_in_recovery() as is')).rows[0]?.is) await sleep(50);
  await client.end();
}

/** A port that nobody listens at. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
