import { execFile } from 'node:child_process';
import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { chooseAccount } from '../../src/platform/db/embedded/binaries.ts';
import { client, startOn } from '../support/app.ts';
import { type PostgresCluster, startCluster } from './support/cluster.ts';

/** A server with a certificate of an authority of its own, as managed PostgreSQL has one: verified by default. */

const run = promisify(execFile);
const directory = mkdtempSync(join(tmpdir(), 'agent-runtime-tls-'));
const path = (name: string) => join(directory, name);
const hasOpenssl = await run('openssl', ['version']).then(
  () => true,
  () => false,
);
if (!hasOpenssl) console.log('test/fault/tls.test.ts: skipped: there is no openssl to make certificates with');

/** Makes a key and a certificate for a name, of the authority or, without one, one that vouches for itself. */
async function makeCertificate(name: string, subject: string, authority?: string): Promise<void> {
  const key = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const of = authority === undefined ? [] : ['-CA', path(`${authority}.crt`), '-CAkey', path(`${authority}.key`)];
  const names = authority === undefined ? [] : ['-addext', `subjectAltName=${subject}`];
  const files = ['-keyout', path(`${name}.key`), '-out', path(`${name}.crt`), '-subj', `/CN=${name}`];
  await run('openssl', [...key, ...of, ...names, ...files]);
}

describe.skipIf(!hasOpenssl)('TLS to the database', () => {
  let cluster: PostgresCluster;
  beforeAll(async () => {
    await makeCertificate('ours', '');
    await makeCertificate('theirs', '');
    await makeCertificate('server', 'DNS:localhost', 'ours');
    const account = await chooseAccount(directory);
    if (account) for (const name of ['', 'server.key', 'server.crt']) chownSync(path(name), account.uid, account.gid);
    const settings = { ssl: 'on', ssl_cert_file: path('server.crt'), ssl_key_file: path('server.key') };
    cluster = await startCluster({ settings });
  });
  afterAll(async () => {
    await cluster.close();
    rmSync(directory, { recursive: true });
  });

  const urlOf = (host: string, query: Record<string, string> = {}) => {
    const url = new URL(cluster.url);
    url.hostname = host;
    url.search = new URLSearchParams(query).toString();
    return url.href;
  };
  /** Whether the connections of a service are encrypted, or why it does not start. */
  async function start(url: string, environment: Record<string, string> = {}): Promise<boolean[] | string> {
    try {
      const runtime = await startOn(url, environment);
      await client(runtime.url).get('/ready');
      const sql = new Client({ connectionString: cluster.url });
      await sql.connect();
      const { rows } = await sql.query<{ ssl: boolean }>(
        `select distinct ssl from pg_stat_ssl join pg_stat_activity using (pid)
         where application_name like 'agent-runtime%'`,
      );
      await sql.end();
      await runtime.close();
      return rows.map(({ ssl }) => ssl);
    } catch (error) {
      return (error as Error).message;
    }
  }

  test('a CA file is enough: connections are encrypted, and the server is verified', async () => {
    expect(await start(urlOf('localhost'), { DATABASE_CA_FILE: path('ours.crt') })).toEqual([true]);
    expect(await start(urlOf('localhost', { sslmode: 'verify-full', sslrootcert: path('ours.crt') }))).toEqual([true]);
  });

  test.each(['require', 'verify-full'])('without the authority sslmode=%s refuses the server', async (sslmode) => {
    expect(await start(urlOf('localhost', { sslmode }))).toMatch(/unable to (get local issuer|verify the first) cert/);
  });

  test('the certificate of another authority is refused, and one for another name', async () => {
    expect(await start(urlOf('localhost'), { DATABASE_CA_FILE: path('theirs.crt') })).toMatch(
      /unable to .* certificate/,
    );
    expect(await start(urlOf('127.0.0.1'), { DATABASE_CA_FILE: path('ours.crt') })).toMatch(
      /IP: 127\.0\.0\.1 is not in the cert's list/,
    );
  });

  test('who wants no verification says so', async () => {
    expect(await start(urlOf('localhost', { sslmode: 'no-verify' }))).toEqual([true]);
    expect(await start(urlOf('localhost', { sslmode: 'no-verify' }), { DATABASE_CA_FILE: path('ours.crt') })).toBe(
      'DATABASE_URL: found sslmode=no-verify; allowed with DATABASE_CA_FILE: verify-full.',
    );
  });
});
