import { randomBytes } from 'node:crypto';
import { type DatabaseError, escapeIdentifier } from 'pg';
import { afterAll, beforeAll, inject } from 'vitest';
import { onServers, withDatabase } from './citus.ts';

/** SQLSTATE of a database that somebody else is connected to. */
const IS_IN_USE = '55006';

/** A database of one's own. */
export interface TestDatabase {
  url: string;
  drop(): Promise<void>;
}

/** Clones the migrated template (40 ms); the caller drops it, also under open connections. */
export const createTestDatabase = (): Promise<TestDatabase> => createDatabase(inject('templateDatabase'));

/** A database without anything in it, as {@link createTestDatabase} otherwise. */
export const createEmptyDatabase = (): Promise<TestDatabase> => createDatabase(inject('emptyDatabase'));

/** A copy of a database of the test server, on every node of a cluster. */
export async function createDatabase(template: string): Promise<TestDatabase> {
  // Named after the migrated template, so that a later run sweeps what a killed one left.
  const name = `${inject('templateDatabase')}_${randomBytes(4).toString('hex')}`;
  await administer(
    `create database ${escapeIdentifier(name)} template ${escapeIdentifier(template)} ${inject('cloneStrategy')}`,
  );
  const drop = () => administer(`drop database if exists ${escapeIdentifier(name)} with (force)`);
  return { url: withDatabase(inject('adminUrl'), name), drop };
}

/** One migrated, empty database for the tests of the calling file or `describe`; `url` is there from `beforeAll` on. */
export function testDatabase(): { readonly url: string } {
  let database: TestDatabase | undefined;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database?.drop());
  return {
    get url() {
      if (!database) throw new TypeError('the test database exists from beforeAll on');
      return database.url;
    },
  };
}

/** On every node of a cluster, where the extension's own process may come back to a database that is being dropped. */
const administer = (statement: string): Promise<void> =>
  onServers([inject('adminUrl'), ...inject('workerUrls')], async (client) => {
    for (let failures = 0; ; failures++) {
      try {
        return await client.query(statement);
      } catch (error) {
        if ((error as DatabaseError).code !== IS_IN_USE || failures === 20) throw error;
      }
    }
  });

/**
 * The URL of a test database through the pooler of `TEST_POOLER=1`, which signs in as the user of the tests;
 * `undefined` without it, and for other servers and users.
 */
export function throughPooler(databaseUrl: string): string | undefined {
  const port = inject('poolerPort');
  if (port === undefined) return undefined;
  const [admin, url] = [new URL(inject('adminUrl')), new URL(databaseUrl)];
  if (url.host !== admin.host || url.username !== admin.username || url.search) return undefined;
  [url.hostname, url.port] = ['127.0.0.1', port];
  return url.href;
}
