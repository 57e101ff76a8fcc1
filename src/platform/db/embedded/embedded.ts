import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chown, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { AppError } from '../../../core/errors.ts';
import { chooseAccount, embeddedError, locateBinaries, prepareHome } from './binaries.ts';
import { livingPid, newProcessName } from './process-name.ts';
import {
  type Cluster,
  connectionUrl,
  describe,
  findServer,
  type LaunchedServer,
  launch,
  runProgram,
  signalServer,
  withClient,
} from './server.ts';

export interface EmbeddedDatabase {
  /** Connection URL. It contains the password: never log it. */
  url: string;
  /** Directory of cluster and log. It differs from the requested one if the server's account cannot reach that. */
  home: string;
  /** Stops the server. Never throws; takes up to about 15 s. */
  stop(): Promise<void>;
}

const DATABASE = 'agent_runtime';
const START_TIMEOUT_MS = 60_000;
const ELSEWHERE = 'Stop it, or choose another DATA_DIR for this process.';
/** Start-up failures that are retried: port in use, another process starting, backends of a killed server alive. */
const PASSING_FAILURE =
  /Address already in use|lock file "postmaster.pid" (already exists|is empty)|pre-existing shared memory block/;

/**
 * Starts the server of `dir`, which is created if missing; first stops a server that a killed process left. `url` names
 * the database `agent_runtime`; with `ephemeral`, the database `postgres` of a server without crash safety, whose
 * directory is deleted at the end.
 * @throws {ConfigError} if another process uses the directory, this machine has no embedded PostgreSQL, or it does not
 *   start
 */
export async function startEmbedded(options: { dir: string; ephemeral?: boolean }): Promise<EmbeddedDatabase> {
  try {
    const home = await prepareHome(options.dir, await chooseAccount(options.dir));
    const account = await chooseAccount(home);
    const binaries = await locateBinaries(account);
    return await startServer({
      home,
      data: join(home, 'data'),
      binaries,
      account,
      isEphemeral: options.ephemeral ?? false,
    });
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw embeddedError(`The embedded PostgreSQL in ${options.dir} did not start: ${describe(error)}.`, error);
  }
}

async function startServer(cluster: Cluster): Promise<EmbeddedDatabase> {
  await sweepHalfMade(cluster);
  if (!existsSync(join(cluster.data, 'PG_VERSION'))) await createCluster(cluster);
  const password = await readFile(join(cluster.data, '.password'), 'utf8');
  const server = await replaceAndLaunch(cluster, password);
  let stopped: Promise<void> | undefined;
  const stop = () => (stopped ??= server.stop());
  const admin = connectionUrl(server.port, password);
  if (cluster.isEphemeral) return { url: admin, home: cluster.home, stop };
  try {
    await createDatabase(admin);
    return { url: connectionUrl(server.port, password, DATABASE), home: cluster.home, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * Runs initdb in a temporary directory and renames it, so that a killed process leaves no partial cluster, and the
 * first of concurrent processes wins.
 */
async function createCluster(cluster: Cluster): Promise<void> {
  const { home, account } = cluster;
  const draft = join(home, `init-${newProcessName()}`);
  await mkdir(draft, { mode: 0o700 });
  const passwordFile = `${draft}.password`;
  await writeFile(passwordFile, randomBytes(18).toString('base64url'), { flag: 'wx', mode: 0o600, flush: true });
  if (account) for (const path of [draft, passwordFile]) await chown(path, account.uid, account.gid);
  // Built-in locale: independent of the locales installed and of LANG.
  const locale = ['--encoding=UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8', '--locale=C'];
  const access = ['--username=postgres', `--pwfile=${passwordFile}`, '--auth=scram-sha-256'];
  const args = ['-D', draft, ...access, ...locale, ...(cluster.isEphemeral ? ['--no-sync'] : [])];
  await runProgram(cluster, 'initdb', args);
  await rename(passwordFile, join(draft, '.password'));
  await rename(draft, cluster.data).catch(async (error: NodeJS.ErrnoException) => {
    await rm(draft, { recursive: true, force: true });
    if (!existsSync(join(cluster.data, 'PG_VERSION'))) throw error;
  });
}

/** Removes the temporary directories of processes that were killed during initdb. */
async function sweepHalfMade({ home }: Cluster): Promise<void> {
  const abandoned = (await readdir(home)).filter(
    (name) => name.startsWith('init-') && livingPid(name.slice('init-'.length)) === undefined,
  );
  const removals = abandoned.map((name) => rm(join(home, name), { recursive: true, force: true }));
  await Promise.allSettled(removals); // an orphaned initdb may still be writing there: the next start gets it
}

/** Launches a server after stopping one left by a killed process. */
async function replaceAndLaunch(cluster: Cluster, password: string): Promise<LaunchedServer> {
  let failure = 'it did not become ready';
  for (const until = Date.now() + START_TIMEOUT_MS; Date.now() < until; await sleep(50)) {
    const current = await findServer(cluster, password);
    if (current === 'pending') continue;
    if (current !== 'absent') {
      const pid = livingPid(current.owner);
      if (pid !== undefined)
        throw embeddedError(`Process ${pid} already uses the embedded PostgreSQL in ${cluster.home}. ${ELSEWHERE}`);
      await signalServer(cluster, current.pid, 'fast');
      continue;
    }
    const launched = await launch(cluster, password);
    if (typeof launched === 'object') return launched;
    failure = launched;
    if (!PASSING_FAILURE.test(failure)) break;
  }
  throw embeddedError(`The embedded PostgreSQL in ${cluster.home} did not start: ${failure}`);
}

async function createDatabase(adminUrl: string): Promise<void> {
  await withClient(adminUrl, async (client) => {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [DATABASE]);
    if (rowCount === 0) await client.query(`create database ${DATABASE}`);
  });
}
