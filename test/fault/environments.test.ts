import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { migrateDatabase } from '../../src/platform/db/migrate.ts';
import { migrate } from '../../src/process/open-database.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { client, startOn } from '../support/app.ts';
import { type PostgresCluster, startCluster } from './support/cluster.ts';
import { type Environment, ENVIRONMENTS, type Place } from './support/environments.ts';
import { listPath, sessionPath } from './support/faults.ts';
import { installVersion, type InstalledVersion, OTHER_VERSIONS } from './support/postgres-versions.ts';
import { isLong } from './support/seed.ts';
import { followStream } from './support/stream-follower.ts';

const EVENTS = 2_300;
/** The one that the service brings, then the others. */
const versions = [undefined, ...(isLong ? OTHER_VERSIONS : [])];
const chosen = ENVIRONMENTS.filter(({ isShort = false }) => isLong || isShort);
/** What became of each environment, by version. */
const outcomes: Record<string, Record<string, string>> = {};

afterAll(() => {
  console.table(outcomes);
  const all = Object.values(outcomes).flatMap((row) => Object.values(row));
  const count = (outcome: string) => all.filter((each) => each === outcome).length;
  console.log(`  environments: ${all.length}, ${count('works')} work, ${count('refused')} refused with their sentence`);
});

describe.each(versions.map((version) => ({ version, name: version ?? 'as shipped' })))(
  'PostgreSQL $name',
  ({ version }) => {
    let installed: InstalledVersion | undefined;
    let cluster: PostgresCluster;
    let admin: Client;
    let major = 0;

    beforeAll(async () => {
      installed = version === undefined ? undefined : await installVersion(version);
      cluster = await startCluster(installed ? { binaries: installed.binaries } : {});
      admin = await connect(cluster.url);
      const { rows } = await admin.query<{ major: number }>(
        `select current_setting('server_version_num')::int / 10000 as major`,
      );
      major = rows[0]?.major ?? 0;
    });
    afterAll(async () => {
      await admin.end();
      await cluster.close();
      await installed?.remove();
    });

    test.each(chosen.map((environment, n) => ({ ...environment, n })))('$name', async (environment) => {
      const { name, since = 14, settings = {}, n } = environment;
      const note = (outcome: string) => {
        (outcomes[name] ??= {})[major] = outcome;
      };
      if (major < since) {
        note(`from ${since}`);
        return;
      }
      const place = { database: `environment_${n}`, role: `role_${n}` };
      note('fails');
      const url = await make(cluster.url, admin, environment, place);
      const refused = environment.refused?.(place);
      if (refused === undefined) await smoke(url, settings);
      else {
        const { host } = new URL(url);
        const sentence = await migrate({ serving: { url } }).then(
          () => 'it starts',
          (error: Error) => error.message,
        );
        expect(sentence).toBe(`The database at ${host} cannot be used: ${refused}`);
      }
      note(refused === undefined ? 'works' : 'refused');
      await admin.query(`drop database ${place.database} with (force)`);
    });
  },
);

/** Makes the environment. @returns the URL for the service. */
async function make(clusterUrl: string, admin: Client, environment: Environment, place: Place): Promise<string> {
  const clause = environment.create ?? '';
  const locale = clause.includes('locale') ? '' : `locale 'C'`;
  await admin.query(`create database ${place.database} template template0 ${clause} ${locale}`);
  await admin.query(`create role ${place.role} login`);
  const url = new URL(clusterUrl);
  url.pathname = `/${place.database}`;
  if (environment.isMigrated) await migrateDatabase({ url: url.href });
  const inside = await connect(url.href);
  await inside.query(environment.sql?.(place) ?? '');
  await inside.end();
  if (environment.asRole) url.username = place.role;
  if (environment.options !== undefined) url.searchParams.set('options', environment.options);
  return url.href;
}

async function connect(url: string): Promise<Client> {
  const connected = new Client({ connectionString: url });
  await connected.connect();
  return connected;
}

/** Creates, invokes, reads many events, streams, and finds all of it after a restart. */
async function smoke(url: string, settings: Record<string, string>): Promise<void> {
  let runtime: Runtime = await startOn(url, settings);
  try {
    let app = client(runtime.url);
    const events = Array.from({ length: EVENTS }, (_, n) => ({
      id: `e-${n}`,
      content: { parts: [{ text: `Ünï ${n}` }] },
    }));
    const path = sessionPath('u', 's');
    expect((await app.post(listPath('u'), { sessionId: 's', state: { 'user:k': [null] }, events })).status).toBe(200);
    const { body } = await app.post('/harness/invoke', {
      prompt: 'What is 17 * 23? Use the calculator.',
      harness_name: 'h',
      run_agent_request: { user_id: 'u', session_id: 's' },
    });
    expect(body).toMatchObject({ output: 'The tool `calculator` answered: 391', error: null });
    const stored = async () => (await app.get(path)).body as { state: object; events: { id: string }[] };
    const before = await stored();
    expect([before.state, before.events.length]).toEqual([{ 'user:k': [null] }, EVENTS + 4]);
    let isOver = false;
    const { followed, ended } = followStream(
      () => `${runtime.url}${path}/events/stream`,
      () => isOver,
    );
    await expect.poll(() => followed.ids.length).toBe(EVENTS + 4);
    expect((await app.post(`${path}/events`, { id: 'last' })).status).toBe(200);
    await expect.poll(() => followed.ids.length).toBe(EVENTS + 5);
    isOver = true;
    await ended;
    expect([followed.ids, followed.violations]).toEqual([[...before.events.map(({ id }) => id), 'last'], []]);
    const after = await stored();
    await runtime.close();
    runtime = await startOn(url, settings);
    app = client(runtime.url);
    expect(await stored()).toEqual(after);
  } finally {
    await runtime.close();
  }
}
