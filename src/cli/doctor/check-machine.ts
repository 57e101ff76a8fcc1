import { existsSync, readFileSync } from 'node:fs';
import { access, constants, stat, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import type { Config } from '../../process/config.ts';
import { failing, fault, type FaultRule, type Finding, ok, skipped, toFindings, toReason } from './finding.ts';

/** Minimum free disk space in bytes, so that the embedded database has room to grow. */
const MIN_FREE_BYTES = 1024 ** 3;
/** Minimum memory in bytes. The runtime itself uses about 100 MiB, and requests may use half of the rest. */
const MIN_MEMORY_BYTES = 256 * 1024 ** 2;
const MIN_CPUS = 0.5;

/** Paths that this service alone answers so, by the setting of their port. */
const OWN_ANSWERS: Record<string, [path: string, answer: RegExp]> = {
  PORT: ['/version', /"language":"typescript"/],
  METRICS_PORT: ['/metrics', /^agent_runtime_/m],
};
/** Maximum time for an answer of what has a port, in milliseconds. */
const ANSWER_MS = 5_000;

/** Checks that the ports are free. That the service runs already is no fault. */
export async function checkPorts({ HOST, PORT, METRICS_HOST, METRICS_PORT }: Config): Promise<Finding[]> {
  const ports: [setting: string, host: string, port: number | undefined][] = [
    ['PORT', HOST, PORT],
    ['METRICS_PORT', METRICS_HOST, METRICS_PORT],
  ];
  const faults: string[] = [];
  const own: string[] = [];
  for (const [setting, host, port] of ports) {
    const failure = port === undefined ? undefined : await tryPort(host, port);
    if (port === undefined || failure === undefined) continue;
    if (failure === 'EADDRINUSE' && (await isOwn(setting, host, port))) own.push(`${setting} ${port}`);
    else faults.push(`${setting}: ${port} on ${host} cannot be had (${failure}); choose another ${setting}.`);
  }
  const fine = own.length === 0 ? 'free' : `in use by an agent runtime that runs already: ${own.join(', ')}`;
  return toFindings('ports', faults, fine);
}

async function isOwn(setting: string, host: string, port: number): Promise<boolean> {
  const [path, answer] = OWN_ANSWERS[setting] ?? ['/', /^$/];
  const address = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '[::1]' : host.includes(':') ? `[${host}]` : host;
  try {
    const response = await fetch(`http://${address}:${port}${path}`, { signal: AbortSignal.timeout(ANSWER_MS) });
    return answer.test(await response.text());
  } catch {
    return false;
  }
}

const tryPort = (host: string, port: number): Promise<string | undefined> =>
  new Promise((settle) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => settle(error.code ?? error.message));
    server.listen(port, host, () => server.close(() => settle(undefined)));
  });

/** Checks that the directory of the embedded database is writable and its disk has free space. */
export async function checkDisk({ DATABASE_URL, DATA_DIR }: Config): Promise<Finding> {
  if (DATABASE_URL !== undefined) return skipped('disk', 'DATABASE_URL says where the data is');
  try {
    let directory = resolve(DATA_DIR);
    // If the directory is missing, its closest existing parent must be writable.
    while (!existsSync(directory)) directory = dirname(directory);
    if (!(await stat(directory)).isDirectory()) return fault('disk', `DATA_DIR: ${directory} is no directory.`);
    await access(directory, constants.W_OK);
    const { bavail, bsize } = await statfs(directory);
    const free = Math.round((bavail * bsize) / 1024 ** 2);
    if (bavail * bsize >= MIN_FREE_BYTES) return ok('disk', `${free} MiB free`);
    return fault('disk', `${directory} has ${free} MiB left; set DATA_DIR to a disk with 1 GiB or more.`);
  } catch (error) {
    return fault('disk', `DATA_DIR: ${toReason(error)}; choose a directory that this user may write.`);
  }
}

/** Checks the memory and CPU limits of the container. @param root directory of these limits (cgroup v2) */
export function checkContainer(root = '/sys/fs/cgroup'): Finding[] {
  const read = (file: string) => (existsSync(join(root, file)) ? readFileSync(join(root, file), 'utf8').trim() : 'max');
  const [memory, [quota, period]] = [Number(read('memory.max')), read('cpu.max').split(' ').map(Number)];
  const cpus = (quota ?? Number.NaN) / (period ?? 1);
  const rules: FaultRule[] = [
    [
      memory < MIN_MEMORY_BYTES,
      `The container has ${Math.round(memory / 1024 ** 2)} MiB of memory; give it 256 MiB or more (docker run -m).`,
    ],
    [cpus < MIN_CPUS, `The container has ${cpus} CPUs; give it half a one or more (docker run --cpus).`],
  ];
  return toFindings('container', failing(rules), 'no limit that is too low');
}
