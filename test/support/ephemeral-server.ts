import { lstat, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbedded } from '../../src/platform/db/embedded/embedded.ts';
import { SYSTEM_DIR } from '../../src/platform/db/embedded/binaries.ts';
import { livingPid, newProcessName } from '../../src/platform/db/embedded/process-name.ts';
import { mayBeServer } from '../../src/platform/db/embedded/server.ts';

const PREFIX = 'agent-runtime-test-';

/** A throw-away embedded server, after sweeping those whose test process was killed. */
export async function startEphemeral(): Promise<{ url: string; stop(): Promise<void> }> {
  const parent = tmpdir();
  for (const dir of new Set([parent, SYSTEM_DIR])) await sweep(dir);
  const dir = await mkdtemp(join(parent, `${PREFIX}${newProcessName()}-`));
  const server = await startEmbedded({ dir, ephemeral: true });
  return {
    url: server.url,
    async stop() {
      await server.stop();
      await rm(dir, { recursive: true, force: true }); // left when the server had to live elsewhere
    },
  };
}

async function sweep(parent: string): Promise<void> {
  const names = await readdir(parent).catch(() => []);
  for (const name of names) {
    if (!name.startsWith(PREFIX) || livingPid(name.slice(PREFIX.length)) !== undefined) continue;
    const dir = join(parent, name);
    if ((await lstat(dir).catch(() => undefined))?.uid !== process.getuid?.()) continue; // somebody else's tests
    await killServer(join(dir, 'data'));
    await rm(dir, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** SIGQUIT is PostgreSQL's immediate shutdown: also right for a server whose files go away next. */
async function killServer(data: string): Promise<void> {
  const pid = Number.parseInt(await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '0'), 10);
  if (pid > 0 && (await mayBeServer(pid, data))) process.kill(pid, 'SIGQUIT');
}
