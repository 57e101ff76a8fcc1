import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { fill, TRIAL } from '../../bench/growth-fill.ts';
import { freePort } from '../../bench/postgres.ts';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { type PostgresCluster, startCluster } from '../fault/support/cluster.ts';
import { findPostgresPrograms } from '../fault/support/postgres-programs.ts';
import { type Command, findListings, isAsPrinted, type Listing, readTranscript, ROOT } from '../support/listings.ts';
import { type ServiceProcess, startProcess } from '../support/service-process.ts';

/** The shell and SQL that the documents print, word for word, on an empty database and on one that is used. */

const NEEDS_A_CLUSTER = 'it needs Kubernetes; test/unit/deploy-kubernetes.test.ts checks and builds the manifests';

/** Blocks and pages that no test can run, or that another one runs, each with its reason. */
const NOT_RUN: Record<string, string> = {
  'README.md: $ npm ci && npm start': 'npm ci would replace the packages that run the tests; .ci/run types it',
  'README.md: $ npm ci && npm test': 'it is this suite; .ci/run types it',
  'docs/package.md: $ npm install agent-runtime-0.1.0.tgz && npx agent-runtime init && npm install':
    'test/package/package.test.ts runs it with the packed file',
  'docs/package.md: $ npx agent-runtime import sessions.sqlite --as weather --dry-run':
    'test/package/package.test.ts runs it in an installed project',
  'docs/deploy.md: $ kubectl create secret generic agent-runtime --from-env-file=agent-runtime.env': NEEDS_A_CLUSTER,
  'docs/deploy.md: $ kubectl delete job agent-runtime-migrate --ignore-not-found': NEEDS_A_CLUSTER,
  "docs/deploy.md: $ kubectl create secret generic agent-runtime-autoscaling --from-literal=DATABASE_URL='postgres://agents_scaler:…@db.example.com/agents?options=-c%20agent_runtime.all_users%3Don'":
    NEEDS_A_CLUSTER,
  'docs/deploy.md: $ sudo cp deploy/agent-runtime.service /etc/systemd/system/':
    'it changes this machine; test/unit/deploy-kubernetes.test.ts has systemd read the unit',
  'docs/admin-sql.md: $ PGPASSWORD=$(cat .data/data/.password) psql -h 127.0.0.1 -p "$(sed -n 4p .data/data/postmaster.pid)" -U postgres agent_runtime':
    'it needs an embedded database and psql; a person tries it before a release',
  'docs/first-agent.md': 'test/package/package.test.ts runs the page in a new project',
  "docs/durability.md: $ curl -s 'localhost:8000/apps/harness_agent/users/u1/tool-calls?state=unknown'":
    'it needs a call whose process died; the tests of unknown outcomes make one',
  'docs/front-ends.md: claude mcp add --transport http agents http://127.0.0.1:8000/mcp':
    'it changes the settings of another program, which is not installed here',
  'docs/operations.md: $ docker compose build':
    'it replaces containers that run; a person with an engine tries it before a release',
  'docs/replay.md: $ npx agent-runtime replay s1 --cache':
    'it needs a session that breaks its cache; test/api/replay-cache.test.ts makes one',
  'docs/replay.md: $ npx agent-runtime replay --since 7d --junit replay.xml':
    'it needs 200 stored invocations; test/api/replay-gate.test.ts makes them',
  'docs/reliability.md: $ npx vitest run --project fault': 'it is the fault suite, and hours of it',
  'template/README.md: $ npx agent-runtime start           # the service, with a PostgreSQL of its own in .data/':
    'test/package/package.test.ts runs these scripts in an installed project',
};

/** Text that is no program. */
const NO_PROGRAM = new Set(['http', 'js', 'json', 'text', 'ts', 'yaml']);
const listings = findListings();
const programs = listings.filter(({ language }) => !NO_PROGRAM.has(language));
const isRun = ({ name, page }: Listing) => !(name in NOT_RUN || page in NOT_RUN);
const pages = [...new Set(programs.filter(isRun).map(({ page }) => page))];
const PATIENCE_MS = 20_000;

/** The tool without which a block cannot run, or nothing. */
function findMissingTool(commands: Command[]): string | undefined {
  return commands
    .map(({ command }) => /^(?:[A-Z_]+=(?:'[^']*'|"[^"]*"|\S)* )*(\S+)/.exec(command)?.[1] ?? '')
    .find((tool) => tool !== 'export' && spawnSync('sh', ['-c', `command -v "${tool}"`]).status !== 0);
}

const home = findPostgresPrograms();
const OWNER = 'pages_owner';
let cluster: PostgresCluster;
const urlOf = (database: string, user = OWNER) => {
  const url = new URL(cluster.url);
  [url.username, url.pathname] = [user, `/${database}`];
  return url.href;
};

async function query(url: string, ...statements: string[]): Promise<Record<string, string>[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    let rows: Record<string, string>[] = [];
    for (const statement of statements) ({ rows } = await client.query<Record<string, string>>(statement));
    return rows;
  } finally {
    await client.end();
  }
}

async function fillDatabase(database: string): Promise<void> {
  const client = new Client({ connectionString: urlOf(database, 'postgres') });
  await client.connect();
  await fill(client, TRIAL.large);
  // The user of the pages has nothing yet.
  await client.query(`delete from sessions where user_id = 'u1'`);
  await client.end();
}

beforeAll(async () => {
  cluster = await startCluster({ ...(home && { binaries: home }) });
  await query(
    cluster.url,
    `create role ${OWNER} login createdb`,
    `create role agent_runtime_tools`,
    `grant agent_runtime_tools to ${OWNER}`,
    `create database used owner ${OWNER}`,
  );
  await migrateDatabase({ url: urlOf('used') });
  await fillDatabase('used');
});
afterAll(() => cluster.close());

/** What a reader has to know before a command, from the database. */
const ASKED: Record<string, string> = {
  INVOCATION_ID: `select id from invocations where user_id = 'u1' and session_id = 's1' order by create_time desc`,
  TASK_ID: `select id from tasks where user_id = 'u1' order by create_time desc`,
  JOB_ID: `select id from cronjobs where user_id = 'u1' order by create_time desc`,
};

/** What stands for the names of others: servers of a provider, of which there is one here, without TLS. */
const withOwnHosts = (text: string) =>
  text.replaceAll(
    /(?:db|pgbouncer)\.example\.com(?::6432)?\/agents(?:\?sslmode=verify-full)?/g,
    `${new URL(cluster.url).host}/agents`,
  );

/** A directory with the clone, a database and at most one service, as a reader of a page has them. */
interface Reader {
  folder: string;
  environment: Record<string, string>;
  service?: ServiceProcess | undefined;
  /** Whether the first page of all has been followed. */
  knowsFirstPage: boolean;
}

function write(folder: string, name: string, text: string): void {
  mkdirSync(dirname(join(folder, name)), { recursive: true });
  writeFileSync(join(folder, name), text);
}

/** Writes the agent that the page prints above a block. */
function writeAgent(folder: string, block: Listing): void {
  const above = listings.slice(0, listings.indexOf(block)).filter(({ page }) => page === block.page);
  const { text } = above.findLast((one) => one.text.includes('export const agent =')) ?? {};
  if (text) write(folder, 'agents/harness_agent/agent.ts', text);
}

async function openReader(page: string, database: string, template: string): Promise<Reader> {
  const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-pages-'));
  const port = await freePort();
  for (const name of ['package.json', 'bin', 'src', 'migrations', 'node_modules', 'examples'])
    symlinkSync(join(ROOT, name), join(folder, name));
  for (const [name, text] of Object.entries({
    'skills/refunds/SKILL.md': '---\nname: refunds\ndescription: How to refund.\n---\nRefund.\n',
    'mine.yaml': 'tools: [calculator]\n\nsystem_promt: Help.\n',
    '.curlrc': `connect-to = "::127.0.0.1:${port}"\nfail-with-body\nretry = 5\n`,
  }))
    write(folder, name, text);
  await query(
    urlOf('postgres', 'postgres'),
    `create database ${database} template ${template} owner ${OWNER}`,
    `create database ${database}_new owner ${OWNER}`,
  );
  const environment = {
    HOME: folder,
    CURL_HOME: folder,
    PATH: [...(home ? [join(home, 'bin')] : []), process.env['PATH'] ?? ''].join(':'),
    PORT: String(port),
    DATABASE_URL: urlOf(database),
    NEW_DATABASE_URL: urlOf(`${database}_new`),
    npm_config_update_notifier: 'false',
  };
  return { folder, environment, knowsFirstPage: page === 'README.md' };
}

async function stop(reader: Reader): Promise<void> {
  if (reader.service?.child.pid) process.kill(-reader.service.child.pid, 'SIGTERM');
  await reader.service?.end;
  reader.service = undefined;
}

/** Starts a service by a printed command, in place of the one before. */
async function start(reader: Reader, command = 'npm start'): Promise<void> {
  await stop(reader);
  reader.service = startProcess('sh', ['-ec', command], reader.environment, { cwd: reader.folder, detached: true });
  await reader.service.until('listens on');
  if (reader.knowsFirstPage) return;
  reader.knowsFirstPage = true;
  const first = programs.find(({ text }) => text.startsWith('$ curl -s localhost:8000/harness/invoke'));
  await answer(reader, readTranscript(first?.text ?? '')[0] as Command);
}

/** Runs a command, and keeps the variables that it exports. It may fail in the printed words only. */
async function answer(reader: Reader, { command, printed }: Command): Promise<string> {
  const { folder, environment } = reader;
  for (const [name, statement] of Object.entries(ASKED)) {
    if (!command.includes(`$${name}`)) continue;
    const database = new URL(environment['DATABASE_URL'] ?? '').pathname.slice(1);
    environment[name] = (await query(urlOf(database, 'postgres'), statement))[0]?.['id'] ?? '';
  }
  const script = `${command}\nenv -0 > variables`;
  type Failed = Error & { stdout: string; stderr: string };
  const run = promisify(execFile)('sh', ['-ec', script], { cwd: folder, env: environment });
  const { stdout, stderr } = await run.catch((error: Failed) => {
    if (printed !== '' && isAsPrinted(printed, error.stdout + error.stderr)) return error;
    throw new Error(`${command}\n${error.stdout}${error.stderr}`);
  });
  const variables = readFileSync(join(folder, 'variables'), 'utf8').split('\0');
  reader.environment = Object.fromEntries(
    variables.filter(Boolean).map((text) => [text.slice(0, text.indexOf('=')), text.slice(text.indexOf('=') + 1)]),
  );
  return stdout + stderr;
}

async function runTranscript(reader: Reader, text: string, isFresh: boolean): Promise<void> {
  const commands = readTranscript(text);
  for (const each of commands) {
    const { command, printed } = each;
    if (command.endsWith('npm start')) {
      await start(reader, command);
      continue;
    }
    if (/:8000|"\$DATABASE_URL/.test(command) && !reader.service) await start(reader);
    let said = await answer(reader, each);
    // What goes on in the background is asked again until it is as it is printed.
    const isRead = command.startsWith('curl') && !/ -[dX] /.test(command);
    const until = performance.now() + PATIENCE_MS;
    while (isFresh && isRead && printed && !isAsPrinted(printed, said) && performance.now() < until) {
      await sleep(200);
      said = await answer(reader, each);
    }
    if (isFresh && printed && !isAsPrinted(printed, said)) expect([command, said]).toEqual([command, printed]);
  }
  // Settings alone say nothing yet.
  if (commands.every(({ command }) => command.startsWith('export '))) await start(reader);
}

async function runSql(reader: Reader, text: string, isFresh: boolean): Promise<void> {
  if (text.startsWith('create table ')) {
    write(reader.folder, 'agents/harness_agent/migrations/0001.sql', text);
    return start(reader);
  }
  const creates = text.includes('create database');
  if (!creates && !reader.service) await start(reader);
  const database = creates ? 'postgres' : new URL(reader.environment['DATABASE_URL'] ?? '').pathname.slice(1);
  const statements = text.split(/;\n/).filter((statement) => statement.trim() !== '');
  // A server that is used has the roles, by the page before; its database is made anew, and filled.
  const isUsed = creates && !isFresh;
  const again = ['drop database agents with (force)', ...statements.slice(-1)];
  // A role outlives its database too.
  const roles = statements.filter((statement) => statement.trimStart().startsWith('create role'));
  const wanted = isFresh ? statements : statements.filter((statement) => creates || !roles.includes(statement));
  await query(urlOf(database, 'postgres'), ...(isUsed ? again : wanted));
  if (!isUsed) return;
  await migrateDatabase({ url: urlOf('agents', 'agents_owner') });
  await fillDatabase('agents');
}

test('blocks that are not run are there, and every other one is of a language that is known', () => {
  expect(Object.keys(NOT_RUN).filter((name) => !programs.some((one) => [one.name, one.page].includes(name)))).toEqual(
    [],
  );
  const isKnown = (one: Listing) => !isRun(one) || ['console', 'sql'].includes(one.language);
  expect(programs.filter((one) => !isKnown(one)).map(({ name }) => name)).toEqual([]);
  expect(new Set(listings.map(({ name }) => name)).size).toBe(listings.length);
  for (const [name, reason] of Object.entries(NOT_RUN)) console.log(`not run: ${name}: ${reason}`);
});

describe.each(['fresh', 'used'])('on a %s database', (state) => {
  describe.each(pages)('%s', (page) => {
    let reader: Reader;
    beforeAll(async () => {
      const database = `${state}_${page.replaceAll(/\W/g, '_').toLowerCase()}`;
      reader = await openReader(page, database, state === 'fresh' ? 'template0' : 'used');
    });
    afterAll(async () => {
      await stop(reader);
      rmSync(reader.folder, { recursive: true, force: true });
    });

    const ofPage = programs.filter((one) => one.page === page && isRun(one));
    test.for(ofPage)('$name', async (block, { skip }) => {
      const { language, text, name } = block;
      writeAgent(reader.folder, block);
      const own = withOwnHosts(text);
      if (language === 'sql') {
        await expect(runSql(reader, own, state === 'fresh')).resolves.toBeUndefined();
        return;
      }
      const missing = findMissingTool(readTranscript(own));
      if (missing) console.log(`skipped: ${name}: there is no ${missing}`);
      skip(missing !== undefined, `there is no ${missing}`);
      await expect(runTranscript(reader, own, state === 'fresh')).resolves.toBeUndefined();
    });
  });
});
