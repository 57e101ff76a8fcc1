import { randomUUID } from 'node:crypto';
import { symlinkSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type ServiceProcess, startProcess } from '../support/service-process.ts';
import { startHeldProvider } from '../support/held-provider.ts';
import { client } from '../support/app.ts';

/**
 * `npm start` as a newcomer types it, with an embedded PostgreSQL: npm hands on every signal that the terminal has
 * already sent.
 */

const root = fileURLToPath(new URL('../../', import.meta.url));
let home: string;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'agent-runtime-npm-'));
  // The project without the `.env` and `harness.yaml` that the developer may keep beside it.
  for (const name of ['package.json', 'bin', 'src', 'migrations', 'node_modules'])
    symlinkSync(join(root, name), join(home, name));
});
afterAll(() => rm(home, { recursive: true, force: true }));

/** A pseudo-terminal around a shell command: what is written to it is typed, byte 3 is Ctrl-C. */
function findTerminal(): ((command: string) => [string, string[]]) | undefined {
  const answers = (program: string, args: string[], text: string) => {
    const { error, stdout } = spawnSync(program, args, { encoding: 'utf8' });
    return error === undefined && stdout.includes(text);
  };
  if (answers('script', ['--version'], 'util-linux')) {
    return (command) => ['script', ['--quiet', '--return', '--flush', '--command', command, '/dev/null']];
  }
  const python = 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(["sh", "-c", sys.argv[1]])))';
  return answers('python3', ['-c', 'import pty; print("pty")'], 'pty')
    ? (command) => ['python3', ['-c', python, command]]
    : undefined;
}
const terminal = findTerminal();

/** Starts it with a model that answers when it is let, and one invocation that waits for the model. */
async function startBusy(run: (environment: Record<string, string>) => ServiceProcess) {
  const provider = await startHeldProvider();
  onTestFinished(() => provider.close());
  const service = run({
    HOME: home,
    // One for all tests: each finds the database that the one before has stopped.
    DATA_DIR: join(home, 'data'),
    PORT: '0',
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'held',
    MODEL_BASE_URL: provider.baseUrl,
    SHUTDOWN_GRACE_MS: '600000',
    npm_config_update_notifier: 'false',
  });
  onTestFinished(async () => {
    service.child.kill('SIGKILL');
    const pid = await postgresPid(service);
    if (pid !== undefined) process.kill(pid, 'SIGQUIT');
  });
  await service.until('curl');
  const [, url = ''] = /listens on (\S+)/.exec(service.ended.out) ?? [];
  const answer = client(url).post('/harness/invoke', {
    prompt: 'Wait.',
    harness_name: 'demo',
    // One of its own: that of a service which was killed is taken by its lease.
    run_agent_request: { user_id: 'u1', session_id: randomUUID() },
  });
  answer.catch(() => undefined); // a forced end breaks the connection
  await provider.requested;
  expect(await postgresPid(service)).toEqual(expect.any(Number));
  return { ...service, provider, answer };
}

const inGroup = (environment: Record<string, string>) =>
  startProcess('npm', ['start'], environment, { cwd: home, detached: true });
const inTerminal = (environment: Record<string, string>) => {
  const [program, args] = terminal?.('exec npm start') ?? expect.unreachable();
  const service = startProcess(program, args, { ...environment, SHELL: '/bin/sh' }, { cwd: home, detached: true });
  service.child.stdin?.on('error', (error: NodeJS.ErrnoException) => expect(error.code).toBe('EPIPE'));
  return service;
};

/** Whoever presses again and again may do so just after the last process of the group, or the terminal, has ended. */
const signalGroup = ({ child }: ServiceProcess) => {
  try {
    process.kill(-(child.pid ?? 0), 'SIGINT');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
};
const typeCtrlC = ({ child }: ServiceProcess) => void child.stdin?.write('\x03');

/** The server whose directory the service has printed; undefined when it has ended and removed its file. */
async function postgresPid({ ended }: ServiceProcess): Promise<number | undefined> {
  const [, directory = ''] = /embedded PostgreSQL in ([^\r\n]+)/.exec(ended.out) ?? [];
  const text = await readFile(join(directory, 'data', 'postmaster.pid'), 'utf8').catch(() => undefined);
  return text === undefined ? undefined : Number.parseInt(text, 10);
}

describe.each([
  ['a process group', inGroup, signalGroup],
  ['a terminal', inTerminal, typeCtrlC],
] as const)('Ctrl-C on npm start in %s', (place, run, interrupt) => {
  const isSkipped = place === 'a terminal' && terminal === undefined;
  const reason = 'neither script of util-linux nor the pty module of Python is there to make a terminal with';

  test('drains: what runs may finish, then the service and its PostgreSQL end', async (context) => {
    context.skip(isSkipped, reason);
    const service = await startBusy(run);
    interrupt(service);
    await service.until('Stopping');
    service.provider.release();
    expect(await service.answer).toMatchObject({ status: 200, body: { output: 'At last.', error: null } });
    expect(await service.end).toMatchObject({ code: 0 });
    expect(await postgresPid(service)).toBeUndefined();
  });

  test('pressed again after a second ends at once, and PostgreSQL too', async (context) => {
    context.skip(isSkipped, reason);
    const service = await startBusy(run);
    const firstAt = performance.now();
    const pressing = setInterval(() => interrupt(service), 200);
    onTestFinished(() => clearInterval(pressing));
    const { code } = await service.end.finally(() => clearInterval(pressing));
    // Without a code npm itself was ended by a press, between the end of its script and its own.
    expect([130, null]).toContain(code);
    expect(performance.now() - firstAt).toBeGreaterThan(1000);
    await expect.poll(() => postgresPid(service)).toBeUndefined();
  });
});
