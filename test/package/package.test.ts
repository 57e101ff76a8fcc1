import { execFile, spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { publint } from 'publint';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import { type Command, findListings, isAsPrinted, readTranscript } from '../support/listings.ts';

/** The package as somebody installs it who has never seen this repository. */

const root = fileURLToPath(new URL('../../', import.meta.url));
const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-package-'));
const project = join(folder, 'my-agent');
// Nothing of this process but its Node: its variables and its node_modules belong to the clone.
const PATH = (process.env['PATH'] ?? '').split(':').filter((entry) => !entry.includes('node_modules'));
const environment: Record<string, string> = {
  HOME: process.env['HOME'] ?? folder,
  npm_config_update_notifier: 'false',
  npm_config_prefer_offline: 'true',
  // The certificates of a machine whose registry is behind a proxy.
  ...(process.env['NODE_EXTRA_CA_CERTS'] ? { NODE_EXTRA_CA_CERTS: process.env['NODE_EXTRA_CA_CERTS'] } : {}),
  PATH: [join(project, 'node_modules/.bin'), dirname(realpathSync(process.execPath)), ...PATH].join(':'),
};
const transcript: string[] = [];
let tarball = '';
/** Directory of the embedded PostgreSQL of the project. */
let database = '';

/** Runs a command in the new project and keeps what it printed for the transcript. */
async function shell(
  command: string,
  options: { cwd?: string; input?: string; env?: Record<string, string> } = {},
): Promise<string> {
  const { cwd = project, env } = options;
  const running = run('/bin/sh', ['-c', command], { cwd, env: { ...environment, ...env } });
  running.child.stdin?.end(options.input ?? '');
  const { stdout } = await running;
  transcript.push(`$ ${command}`, stdout.trimEnd());
  return stdout;
}

beforeAll(async () => {
  const { stdout } = await run('npm', ['run', '--silent', 'package', '--', '--json', '--pack-destination', folder], {
    cwd: root,
  });
  const [packed] = JSON.parse(stdout.slice(stdout.indexOf('['))) as { filename: string }[];
  tarball = join(folder, packed?.filename ?? '');
  await shell(`mkdir my-agent && cd my-agent && npm install --prefer-offline --silent ${tarball}`, { cwd: folder });
});
afterAll(() => {
  console.log(transcript.join('\n').replaceAll(folder, '/tmp'));
  rmSync(folder, { recursive: true, force: true });
});

test('its manifest and its types are right under every way of resolving', async () => {
  const { messages } = await publint({ pkgDir: join(project, 'node_modules/agent-runtime'), strict: true });
  expect(messages).toEqual([]);
  const result = await checkPackage(createPackageFromTarballData(readFileSync(tarball)));
  const problems = result.types === false ? ['no types'] : result.problems;
  // A package of modules cannot be required as CommonJS, nor be found by the resolution of Node 10; both are ended.
  const kinds = problems.map((each) => (typeof each === 'string' ? each : each.kind));
  expect(kinds.filter((kind) => kind !== 'CJSResolvesToESM' && kind !== 'NoResolution')).toEqual([]);
});

test('it takes at most 215 MB with all that it needs, its PostgreSQL included', async () => {
  const [megabytes] = (await shell('du -sm node_modules')).split('\t');
  expect(Number(megabytes)).toBeLessThanOrEqual(215);
});

test('the pages of its declarations are made without a warning', async () => {
  const { stdout, stderr } = await run('npm', ['run', '--silent', 'docs:api'], { cwd: root });
  expect(`${stdout}${stderr}`).not.toMatch(/warning\]|error\]/);
  const page = readFileSync(join(root, 'docs/api/pages/functions/index.defineTool.html'), 'utf8');
  expect(page).toContain('never reach <code>run</code>');
});

test('install, init, start, the printed curl, chat, test', async () => {
  cpSync(tarball, join(project, basename(tarball)));
  expect(await runPrinted('$ npm install agent-runtime-')).toMatch(
    /An agent is in .*\nAdded: scripts\.start of package\.json, .*agents\/harness_agent\/agent\.ts/,
  );
  const port = await freePort();
  const { printed, stop } = await serve('npm start', project, { PORT: String(port) });
  try {
    [, database = ''] = /embedded PostgreSQL in (\S+)/.exec(printed) ?? [];
    const [, curl = ''] = /(curl -s .*)/.exec(printed) ?? [];
    expect(JSON.parse(await shell(curl))).toEqual({
      harness_name: 'demo',
      overwrite: false,
      output: 'The tool `forecast` answered: {"city":"Berlin","sky":"cloudy","celsius":14}',
      error: null,
    });
    const chat = await shell(`PORT=${port} npx agent-runtime chat --session s1`, {
      input: 'forecast {"city":"Lima"}\nHello.\n',
    });
    expect(chat).toContain('→ forecast {"city":"Lima"}\n← forecast {');
    expect(chat).toContain('The tool `forecast` answered: ');
    const resumed = await shell(`PORT=${port} npx agent-runtime sessions show s1`);
    expect(resumed).toContain('user: forecast {"city":"Lima"}\n');
    expect(resumed).toContain('user: Hello.\n');
  } finally {
    await stop();
  }
  await shell('npm test');
  await shell('npm run typecheck');
  // An npm that asks about install scripts finds an answer for each, and Node the type of further files.
  expect(readJson('my-agent', 'package.json')['type']).toBe('module');
  const locked = Object.entries((readJson('my-agent', 'package-lock.json') as unknown as Lock).packages);
  const scripted = locked.filter(([, { hasInstallScript }]) => hasInstallScript);
  const names = scripted.map(([path]) => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length));
  expect(names).toContain('@scarf/scarf');
  expect(Object.keys(readJson('my-agent', 'package.json')['allowScripts'] ?? {})).toEqual(
    expect.arrayContaining(names),
  );
});

const composed = parse(readFileSync(join(root, 'template/docker-compose.yml'), 'utf8')) as {
  services: { agent: { command: string } };
};
const [, inContainer = ''] = /^sh -c ".* && (exec .*)"$/.exec(composed.services.agent.command) ?? [];

test.each([
  ['npm start', ['npm', 'start']],
  ['npm run dev', ['npm', 'run', 'dev']],
  ['npx', ['npx', 'agent-runtime', 'start']],
  ['the shell of the compose file', ['sh', '-c', `true && ${inContainer}`]],
])('SIGTERM to %s alone ends Node and its PostgreSQL', async (_, [program = '', ...args]) => {
  const env = { ...environment, PORT: String(await freePort()), BROWSER: 'none' };
  const service = spawn(program, args, { cwd: project, env, detached: true });
  onTestFinished(() => {
    try {
      process.kill(-(service.pid ?? 0), 'SIGKILL');
    } catch (error) {
      expect((error as NodeJS.ErrnoException).code).toBe('ESRCH');
    }
  });
  let printed = '';
  service.stdout.on('data', (chunk: Buffer) => (printed += chunk.toString()));
  await expect.poll(() => printed).toContain('listens on');
  const lock = join(database, 'data/postmaster.pid');
  const postgres = Number.parseInt(readFileSync(lock, 'utf8'), 10);
  service.kill('SIGTERM');
  // What was started shares the output, so it is closed when the last of it has ended.
  await new Promise((resolve) => service.once('close', resolve));
  expect(existsSync(lock)).toBe(false);
  expect(() => process.kill(postgres, 0)).toThrow('ESRCH');
});

test('what few need is not installed: the error names its package', async () => {
  const start = `PORT=${await freePort()} ARTIFACT_STORE=s3://bucket npx agent-runtime start 2>&1 || true`;
  expect(await shell(start)).toContain('npm install @aws-sdk/client-s3');
});

test('the printed import of a store of ADK', async () => {
  cpSync(join(root, 'test/data/adk-stores/adk-2.7-database.sqlite'), join(project, 'sessions.sqlite'));
  cpSync(join(root, 'examples/agents/weather'), join(project, 'agents/weather'), { recursive: true });
  // Where no service answers the command runs one.
  environment['PORT'] = String(await freePort());
  expect(await runPrinted('$ npx agent-runtime import sessions.sqlite')).toContain(': 48 imported, ');
});

/** Starts a service with a command, and waits for the request that it proposes. */
async function serve(command: string, cwd: string, env: Record<string, string>) {
  const service = spawn('/bin/sh', ['-c', `exec ${command}`], { cwd, env: { ...environment, ...env }, detached: true });
  const closed = new Promise((resolve) => service.once('close', resolve));
  let printed = '';
  await new Promise<void>((resolve, reject) => {
    service.stdout.on(
      'data',
      (chunk: Buffer) => ((printed += chunk.toString()), printed.includes('curl') && resolve()),
    );
    service.once('exit', () => reject(new Error(`it ended: ${printed}`)));
  });
  const stop = () => (process.kill(-(service.pid ?? 0), 'SIGINT'), closed);
  return { printed, stop };
}

test('the first agent: each file and each command as it is printed', async () => {
  const here = join(folder, 'first');
  const port = String(await freePort());
  const env = { PORT: port, CURL_HOME: here };
  mkdirSync(here);
  cpSync(tarball, join(here, basename(tarball)));
  writeFileSync(join(here, '.curlrc'), `connect-to = "::127.0.0.1:${port}"\n`);
  let stop: (() => Promise<unknown>) | undefined;
  let id = '';
  const type = async ({ command, printed }: Command) => {
    if (command === 'npm run dev') {
      const service = await serve(command, here, env);
      ({ stop } = service);
      return service.printed.replaceAll(`:${port}`, ':8000');
    }
    // What is printed in short is an id that a command before has shown.
    const answer = await shell(command.replace(/\b[\da-f]{4}…/, id), { cwd: here, env });
    id = /[\da-f]{8}-[\da-f-]{27}/.exec(answer)?.[0] ?? id;
    return printed === '' ? '' : answer;
  };
  try {
    const page = readFileSync(join(root, 'docs/first-agent.md'), 'utf8');
    let blocks = 0;
    for (const [, lead = '', language, text = ''] of page.matchAll(/((?:.+\n)+)\n```(\w+)\n([^]*?)^(?=```$)/gm)) {
      blocks += 1;
      const [, file] = /^(?:Replace|Write) `([^`]+)`/.exec(lead) ?? [];
      if (file) writeFileSync(join(here, file), text);
      // The file of the package is there.
      if (language !== 'console' || text.includes('npm run package')) continue;
      for (const command of readTranscript(text)) {
        let answer = await type(command);
        // What a person has said yes to goes on in the background.
        if (command.command.includes(' show '))
          await expect.poll(async () => isAsPrinted(command.printed, (answer = await type(command)))).toBe(true);
        if (!isAsPrinted(command.printed, answer)) expect([command.command, answer]).toEqual(Object.values(command));
      }
    }
    expect(blocks).toBe((page.match(/^```/gm)?.length ?? 0) / 2);
    await shell('npm run typecheck', { cwd: here });
  } finally {
    await stop?.();
  }
  expect(id).not.toBe('');
});

/** Runs what docs/package.md prints, and compares what it says. @returns all of that */
async function runPrinted(beginning: string): Promise<string> {
  const listing = findListings().find(({ page, text }) => page === 'docs/package.md' && text.startsWith(beginning));
  let said = '';
  for (const { command, printed } of readTranscript(listing?.text ?? '')) {
    const answer = await shell(command);
    const wanted = printed.replace('/home/you/my-agent', project);
    if (!isAsPrinted(`…${wanted}…`, answer)) expect([command, answer]).toEqual([command, printed]);
    said += answer;
  }
  return said;
}

interface Lock {
  packages: Record<string, { hasInstallScript?: boolean }>;
}

/** Reads a JSON file of a folder below the temporary one. */
const readJson = (...path: string[]) =>
  JSON.parse(readFileSync(join(folder, ...path), 'utf8')) as Record<string, object>;

test('npx, from the tarball: a project in an empty folder, whose dependency can be installed', async () => {
  const said = await shell(`npx --yes --package ${tarball} agent-runtime init fresh`, { cwd: folder });
  expect(said).toMatch(/Added: package\.json, .*\nNow: cd fresh && npm install && npm start\n$/);
  const manifest = readJson('fresh', 'package.json');
  expect(manifest['dependencies']).toEqual({ 'agent-runtime': `file:../${basename(tarball)}` });
  const { devDependencies: ours = {} } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    devDependencies?: Record<string, string>;
  };
  expect(manifest['devDependencies']).toEqual({ '@types/node': ours['@types/node'], typescript: ours['typescript'] });
  await shell('npm install --prefer-offline --silent && npm run typecheck', {
    cwd: join(folder, 'fresh'),
  });
});

test('a folder with a package.json keeps it and its files; a second run changes nothing', async () => {
  const here = join(folder, 'shop');
  mkdirSync(here);
  const own = { name: 'shop', scripts: { start: 'node shop.js', build: 'make' }, dependencies: { zod: '4.6.7' } };
  writeFileSync(join(here, 'package.json'), JSON.stringify({ ...own, type: 'commonjs' }));
  writeFileSync(join(here, 'README.md'), 'The shop.');
  const init = `npx --yes --package ${tarball} agent-runtime init`;
  expect(await shell(init, { cwd: here })).toContain('\nKept as it was: scripts.start, README.md\n');
  const manifest = readJson('shop', 'package.json');
  expect(manifest).toMatchObject({
    ...own,
    type: 'commonjs',
    scripts: { ...own.scripts, dev: 'exec agent-runtime dev' },
  });
  expect(Object.keys(manifest['dependencies'] ?? {})).toEqual(['zod', 'agent-runtime']);
  expect(readFileSync(join(here, 'README.md'), 'utf8')).toBe('The shop.');
  const texts = () => globSync('**/*', { cwd: here }).map((file) => [file, statSync(join(here, file)).mtimeMs]);
  const before = texts();
  expect(await shell(init, { cwd: here })).not.toContain('Added:');
  expect(texts()).toEqual(before);
  const install = 'npm install --omit=optional --prefer-offline --silent';
  expect(await shell(`${install} && npx agent-runtime check`, { cwd: here })).toContain('  - forecast\n');
});

test.each(['node16', 'bundler'])('the project type-checks under moduleResolution %s', async (resolution) => {
  // What an editor shows where a tool is written wrong.
  cpSync(join(root, 'test/package/wrong-tools.ts'), join(project, 'agents/harness_agent/wrong-tools.ts'));
  const config = join(project, `tsconfig.${resolution}.json`);
  const kind = resolution === 'bundler' ? 'esnext' : 'node16';
  const compilerOptions = { module: kind, moduleResolution: resolution, skipLibCheck: false, types: ['node'] };
  writeFileSync(config, JSON.stringify({ extends: './tsconfig.json', compilerOptions, include: ['agents'] }));
  cpSync(join(root, 'node_modules/@types/node'), join(project, 'node_modules/@types/node'), { recursive: true });
  cpSync(join(root, 'node_modules/undici-types'), join(project, 'node_modules/undici-types'), { recursive: true });
  const { stdout } = await run(join(root, 'node_modules/.bin/tsc'), ['-p', config], { cwd: project }).catch(
    (error: { stdout: string }) => error,
  );
  expect(stdout).toBe('');
});

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}
