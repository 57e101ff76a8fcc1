import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { Client, escapeIdentifier } from 'pg';
import type { TestProject } from 'vitest/node';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { joinNodes, listNodes, onServers, toTemplate, withDatabase } from './citus.ts';
import { FILES_NOT_FOR_CLUSTERS } from './citus-exceptions.ts';
import { startEphemeral } from './ephemeral-server.ts';
import { MINUTE } from './patience.ts';
import { startPooler } from './pooler.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** The URL of a database on the test server that may create others. */
    adminUrl: string;
    /** The migrated database that `test/support/database.ts` clones. */
    templateDatabase: string;
    /** The database without anything in it that is cloned; on a cluster one that knows its nodes. */
    emptyDatabase: string;
    /** How a database is cloned there: a clause of `create database`. */
    cloneStrategy: string;
    /** As `adminUrl`, on each other node of the cluster of `CITUS_URL`. */
    workerUrls: string[];
    /** Port of a PgBouncer in front of the test server, with `TEST_POOLER=1`. */
    poolerPort: string | undefined;
  }
}

interface Server {
  url: string;
  name: string;
  /** The other nodes of a cluster. */
  workers?: string[];
  stop(): Promise<unknown>;
}

const TYPE_THIS =
  'Start one with: docker run --rm -p 5432:5432 -e POSTGRES_PASSWORD=postgres postgres:18\n' +
  'and type: TEST_DATABASE_URL=postgres://postgres:postgres@127.0.0.1:5432/postgres npm test\n' +
  'or npm test alone, for a PostgreSQL that the tests start by themselves.';
/** The class of the advisory lock that a living test process holds; the second key is its own. */
const LIVE_LOCK = 7_240_002;

/** Vitest's global set-up: finds or starts a PostgreSQL, migrates the template database, and leaves nothing behind. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const startedAt = performance.now();
  const server = await findServer();
  try {
    const readyAt = performance.now();
    const template = await createTemplate(server);
    project.provide('adminUrl', server.url);
    project.provide('templateDatabase', template.name);
    project.provide('emptyDatabase', template.empty);
    project.provide('cloneStrategy', template.cloneStrategy);
    project.provide('workerUrls', server.workers ?? []);
    const pooler = process.env['TEST_POOLER'] === '1' ? await startPooler(server.url) : undefined;
    project.provide('poolerPort', pooler && new URL(pooler.urlOf(server.url)).port);
    const [serverMs, templateMs] = [readyAt - startedAt, performance.now() - readyAt].map(Math.round);
    const through = pooler ? ', through PgBouncer in transaction mode' : '';
    for (const [file, reason] of Object.entries(server.workers ? FILES_NOT_FOR_CLUSTERS : {})) {
      console.log(`not on a cluster: ${file}: ${reason}`);
    }
    console.log(`test database: ${server.name}${through}, server ${serverMs} ms, template ${templateMs} ms`);
    return async () => {
      await pooler?.close();
      await template.drop();
      await server.stop();
    };
  } catch (error) {
    await server.stop();
    throw error;
  }
}

async function findServer(): Promise<Server> {
  const cluster = process.env['CITUS_URL'];
  if (cluster) {
    const [url = cluster, ...workers] = await listNodes(cluster);
    return { url, name: `Citus with ${workers.length} workers`, workers, stop: async () => undefined };
  }
  const url = process.env['TEST_DATABASE_URL'];
  if (url) return { url, name: 'TEST_DATABASE_URL', stop: async () => undefined };
  if (await doesDockerAnswer()) {
    try {
      return await startContainer();
    } catch (error) {
      console.warn(
        `test database: Docker answers, but postgres:18-alpine did not start (${String(error)}); embedded instead`,
      );
    }
  }
  try {
    return { name: 'embedded', ...(await startEphemeral()) };
  } catch (error) {
    throw new Error(`The tests need a PostgreSQL and found none.\n${TYPE_THIS}`, { cause: error });
  }
}

/** Asked first and with a limit: on an engine that accepts and never answers testcontainers waits past 90 s. */
function doesDockerAnswer(): Promise<boolean> {
  const engine = process.env['DOCKER_HOST'] ?? 'unix:///var/run/docker.sock';
  const address = engine.startsWith('unix://')
    ? { socketPath: engine.slice('unix://'.length) }
    : { host: new URL(engine).hostname, port: new URL(engine).port || '2375' };
  return new Promise((resolve) => {
    const ping = request({ ...address, path: '/_ping', signal: AbortSignal.timeout(1500) }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    ping.once('error', () => resolve(false));
    ping.end();
  });
}

async function startContainer(): Promise<Server> {
  const { GenericContainer, Wait } = await import('testcontainers'); // 0.3 s, so only where there is an engine
  const password = randomBytes(12).toString('hex');
  const container = await new GenericContainer('postgres:18-alpine')
    .withEnvironment({ POSTGRES_PASSWORD: password })
    .withCommand(['postgres', '-c', 'fsync=off', '-c', 'max_connections=200'])
    .withExposedPorts(5432)
    // The first is initdb's own server.
    .withWaitStrategy(Wait.forLogMessage(/database system is ready to accept connections/, 2))
    .withStartupTimeout(120_000)
    .start();
  const url = `postgres://postgres:${password}@${container.getHost()}:${container.getMappedPort(5432)}/postgres`;
  return { url, name: 'testcontainers', stop: () => container.stop() };
}

/**
 * Creates and migrates the template. Its clones are named `<template>_…`, so that a later process can sweep what a
 * killed one left.
 */
async function createTemplate(server: Server) {
  const client = await connect(server);
  // Copying files is a quarter of the work of logging each page, where nothing is synced to the disk.
  const { rows } = await client.query<{ prefix: string; cloneStrategy: string }>(
    `select left(current_database(), 20) || '_test_' as prefix,
            case when current_setting('fsync') = 'off' and current_setting('server_version_num')::int >= 150000
            then 'strategy file_copy' else '' end as "cloneStrategy"`,
  );
  const { prefix = '', cloneStrategy = '' } = rows[0] ?? {};
  await sweepAbandoned(client, server, prefix);
  const key = randomBytes(4).toString('hex');
  const name = `${prefix}${key}`;
  await client.query('select pg_advisory_lock($1, $2)', [LIVE_LOCK, lockKey(key)]); // held as long as this connection
  const { url, workers = [] } = server;
  const nodes = [url, ...workers];
  const create = async (database: string) => {
    await onServers(nodes, (node) => node.query(`create database ${escapeIdentifier(database)}`));
    if (workers.length > 0) await joinNodes(nodes, database);
  };
  const empty = workers.length > 0 ? `${name}_empty` : 'template0';
  if (workers.length > 0) {
    await create(empty);
    await toTemplate(nodes, empty);
  }
  await create(name);
  await migrateDatabase({ url: withDatabase(url, name) });
  await toTemplate(nodes, name);
  return {
    name,
    empty,
    cloneStrategy,
    async drop() {
      await onServers(workers, (node) => dropDatabases(node, name));
      await dropDatabases(client, name);
      await client.end();
    },
  };
}

async function connect(server: Server): Promise<Client> {
  const client = new Client({ connectionString: server.url, connectionTimeoutMillis: MINUTE });
  client.on('error', () => undefined); // the server may be stopped under the tests; queries then fail by themselves
  await client.connect().catch((error: NodeJS.ErrnoException) => {
    const { host, pathname } = new URL(server.url);
    throw new Error(
      `${server.name} (${host}${pathname}) does not answer: ${error.code ?? error.message}.\n${TYPE_THIS}`,
      {
        cause: error,
      },
    );
  });
  return client;
}

const lockKey = (hex: string) => Number.parseInt(hex, 16) | 0;

/** Drops the databases of test processes that were killed: their lock is free. */
async function sweepAbandoned(client: Client, server: Server, prefix: string): Promise<void> {
  const { rows } = await client.query<{ name: string; key: string }>(
    `select datname as name, substr(datname, length($1) + 1) as key from pg_database
     where starts_with(datname, $1) and substr(datname, length($1) + 1) ~ '^[0-9a-f]{8}$' order by 1`,
    [prefix],
  );
  for (const { name, key } of rows) {
    const lock = [LIVE_LOCK, lockKey(key)];
    const result = await client.query<{ dead: boolean }>('select pg_try_advisory_lock($1, $2) as dead', lock);
    if (!result.rows[0]?.dead) continue;
    await onServers(server.workers ?? [], (node) => dropDatabases(node, name));
    await dropDatabases(client, name);
    await client.query('select pg_advisory_unlock($1, $2)', lock);
  }
}

/** The clones first, the template last: while it is there, a sweep that was cut short is taken up by the next one. */
async function dropDatabases(client: Client, template: string): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    'select datname as name from pg_database where starts_with(datname, $1) order by length(datname) desc',
    [template],
  );
  for (const { name } of rows) {
    if (name === template || name.endsWith('_empty'))
      await client.query(`alter database ${escapeIdentifier(name)} with is_template false`);
    await client.query(`drop database if exists ${escapeIdentifier(name)} with (force)`);
  }
}
