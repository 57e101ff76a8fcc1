import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { examine } from '../../src/cli/doctor/doctor.ts';
import { SHORT_LEASE } from '../../src/invocations/settings.ts';
import { createLog } from '../../src/platform/log.ts';
import { startOn } from '../support/app.ts';
import { createEmptyDatabase, createTestDatabase, type TestDatabase } from '../support/database.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';
import { type FakeMcp, startMcpServer } from '../support/mcp-server.ts';

let database: TestDatabase;
let empty: TestDatabase;
let admin: Client;
let directory: string;
let provider: Server;
let mcp: FakeMcp;
const portOf = (server: Server) => String((server.address() as AddressInfo).port);
const providerUrl = () => `http://127.0.0.1:${portOf(provider)}/v1`;

beforeAll(async () => {
  [database, empty, directory, mcp] = await Promise.all([
    createTestDatabase(),
    createEmptyDatabase(),
    mkdtemp(join(tmpdir(), 'doctor-')),
    startMcpServer([{ name: 'look' }]),
  ]);
  admin = new Client({ connectionString: database.url });
  await admin.connect();
  provider = createServer(({ url, headers }, response) => {
    const status = headers.authorization !== 'Bearer right-key' ? 401 : url === '/v1/models' ? 200 : 404;
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ data: [{ id: 'known' }] }));
  });
  await new Promise<void>((resolve) => provider.listen(0, '127.0.0.1', resolve));
});
afterEach(() => vi.useRealTimers());
afterAll(async () => {
  await admin.end();
  await Promise.all([database.drop(), empty.drop(), mcp.close()]);
  provider.close();
  await rm(directory, { recursive: true });
});

const compatible = (more: Record<string, string> = {}) => ({
  MODEL_PROVIDER: 'openai-compatible',
  MODEL_BASE_URL: providerUrl(),
  MODEL_NAME: 'known',
  MODEL_API_KEY: 'right-key',
  ...more,
});
/** What is wrong, as `check: sentence`; a container without limits unless the test says where they stand. */
async function faultsOf(more: Record<string, string> = {}, cgroup = directory): Promise<string[]> {
  const findings = await examine({ DATABASE_URL: database.url, PORT: '0', ...more }, { cgroup });
  return findings.filter(({ status }) => status === 'fault').map(({ check, detail }) => `${check}: ${detail}`);
}
const one = (text: string) => [expect.stringMatching(new RegExp(`^${text}$`)) as unknown];
/** The database with a setting of its own, as long as the work takes. */
async function withSetting(setting: string, work: () => Promise<void>): Promise<void> {
  const { rows } = await admin.query<{ name: string }>('select quote_ident(current_database()) as name');
  const name = rows[0]?.name ?? '';
  await admin.query(`alter database ${name} set ${setting}`);
  try {
    await work();
  } finally {
    await admin.query(`alter database ${name} reset ${setting.split('=')[0] ?? ''}`);
  }
}

test('a variable that resembles a setting is named', async () => {
  expect(await faultsOf({ RUNTIME_API_KEY: 'x', AUDT: 'writes' })).toEqual([
    'settings: RUNTIME_API_KEY is no setting and has no effect; did you mean RUNTIME_API_KEYS?',
    'settings: AUDT is no setting and has no effect; did you mean AUDIT?',
  ]);
});

test('nothing is wrong where nothing is', async () => {
  const MCP_SERVERS = JSON.stringify([{ name: 'far', url: mcp.url }]);
  // The machine's PostgreSQL may have older time zones; test/unit/cli/doctor-zones.test.ts is about that.
  const findings = (await examine({ DATABASE_URL: database.url, PORT: '0', MCP_SERVERS, ...compatible() })).filter(
    ({ detail }) => !detail.startsWith('The clocks of'),
  );
  expect(findings).toEqual([
    { check: 'settings', status: 'ok', detail: 'no contradiction' },
    { check: 'access', status: 'ok', detail: 'mode local' },
    { check: 'database', status: 'ok', detail: 'reachable, up to date, with the rights it needs' },
    { check: 'model', status: 'ok', detail: 'openai-compatible knows known' },
    { check: 'agents', status: 'ok', detail: 'harness_agent' },
    { check: 'collector', status: 'skipped', detail: 'OTEL_EXPORTER_OTLP_ENDPOINT names none' },
    { check: 'ports', status: 'ok', detail: 'free' },
    { check: 'disk', status: 'skipped', detail: 'DATABASE_URL says where the data is' },
    { check: 'container', status: 'ok', detail: 'no limit that is too low' },
  ]);
});

test('the collector is sent an export without a trace, as the protocol has it', async () => {
  const asked: [string | undefined, string | undefined, string | undefined][] = [];
  let status = 200;
  const collector = createServer(({ url, method, headers }, response) => {
    asked.push([`${method} ${url}`, headers['content-type'], headers['x-key'] as string | undefined]);
    response.writeHead(status).end('{}');
  });
  await new Promise<void>((resolve) => collector.listen(0, '127.0.0.1', resolve));
  const host = `127.0.0.1:${portOf(collector)}`;
  const settings = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://${host}`, OTEL_EXPORTER_OTLP_HEADERS: 'x-key=k' };
  expect(await faultsOf(settings)).toEqual([]);
  expect(await faultsOf({ ...settings, OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json' })).toEqual([]);
  expect(asked).toEqual([
    ['POST /v1/traces', 'application/x-protobuf', 'k'],
    ['POST /v1/traces', 'application/json', 'k'],
  ]);
  status = 401;
  expect(await faultsOf(settings)).toEqual([
    `collector: The collector at ${host} refuses the headers (HTTP 401); change OTEL_EXPORTER_OTLP_HEADERS.`,
  ]);
  status = 404;
  expect(await faultsOf(settings)).toEqual(
    one(`collector: The collector at ${host} answered HTTP 404 to /v1/traces; .*`),
  );
  await new Promise((resolve) => collector.close(resolve));
  expect(await faultsOf(settings)).toEqual(one(`collector: The collector at ${host} cannot be reached: .*`));
});

test('a lease that ends within a statement is said', async () => {
  const settings = { SESSION_LEASE_MS: '9999', DATABASE_STATEMENT_TIMEOUT_MS: '10000' };
  expect(await faultsOf(settings)).toEqual([`settings: ${SHORT_LEASE}`]);
  expect(await faultsOf({ ...settings, SESSION_LEASE_MS: '10000' })).toEqual([]);
});

test('a pooler without a way past it is a choice, and no fault', async () => {
  const settings = { DATABASE_URL: database.url, DATABASE_POOLER: 'transaction', PORT: '0' };
  const found = (await examine(settings, { cgroup: directory })).find(({ check }) => check === 'database');
  const detail =
    'reachable, up to date, with the rights it needs; ' +
    'news of other processes comes within a second, at once with DATABASE_DIRECT_URL';
  expect(found).toEqual({ check: 'database', status: 'ok', detail });
});

describe('a planted fault is named with the setting to change', () => {
  test('settings: a wrong value, and two of them at once', async () => {
    expect(await faultsOf({ PORT: 'x', MAX_INVOCATIONS: '-1' })).toEqual([
      expect.stringMatching(/^settings: PORT: found "x"; allowed: a whole number/),
      expect.stringMatching(/^settings: MAX_INVOCATIONS: found "-1"; allowed: a whole number/),
    ]);
  });

  test('settings: of two modes of access', async () => {
    const faults = await faultsOf({ AUTH_MODE: 'local', RUNTIME_API_KEYS: 'a-key-0123456789abcdef' });
    expect(faults).toEqual(one('settings: AUTH_MODE: found local, in which RUNTIME_API_KEYS would have no effect.*'));
  });

  test('access: an issuer that has no keys, one that cannot be reached, and a file of keys that is none', async () => {
    const [fine, keyless] = [await startTokenIssuer(), await startTokenIssuer()];
    keyless.issuer.keys = [];
    const file = join(directory, 'keys');
    await writeFile(file, '{"id":"i"}');
    const issuers = [
      { issuer: fine.issuer.url, audience: 'a' },
      { issuer: keyless.issuer.url, audience: 'a', userPrefix: 'e:' },
      { issuer: 'http://127.0.0.1:1', audience: 'a', userPrefix: 'n:' },
    ];
    try {
      const keys = { RUNTIME_API_KEYS: 'a-key-0123456789abcdef' };
      const findings = await examine({ DATABASE_URL: database.url, PORT: '0', ...keys, ...fine.environment });
      expect(findings).toContainEqual({ check: 'access', status: 'ok', detail: 'mode key+jwt' });
      expect(await faultsOf({ JWT_ISSUERS: JSON.stringify(issuers), RUNTIME_API_KEYS_FILE: file })).toEqual([
        expect.stringMatching(/^access: RUNTIME_API_KEYS_FILE: found line 1 of .* to be no key: /),
        `access: ${keyless.issuer.url} has no keys, so no token of it is valid.`,
        expect.stringMatching(/^access: The keys of http:\/\/127\.0\.0\.1:1 cannot be fetched: .*JWT_ISSUER/),
      ]);
    } finally {
      await fine.close();
      await keyless.close();
    }
  });

  test.each([
    [{ MODEL_TIMEOUT_MS: '700000' }, 'MODEL_TIMEOUT_MS is longer than INVOCATION_TIMEOUT_MS'],
    [{ MAX_EVENT_BYTES: '50000000' }, 'MAX_EVENT_BYTES is larger than MAX_SESSION_BYTES'],
  ])('settings: %j', async (settings, sentence) => {
    expect(await faultsOf(settings)).toEqual(one(`settings: ${sentence}.*`));
  });

  test('database: nobody answers', async () => {
    const faults = await faultsOf({ DATABASE_URL: 'postgres://u:p@127.0.0.1:1/none' });
    expect(faults).toEqual(one('database: The database at 127.0.0.1:1 cannot be used: .*Check DATABASE_URL.'));
  });

  test('database: without its tables', async () => {
    expect(await faultsOf({ DATABASE_URL: empty.url })).toEqual(
      one('database: .*its schema public has no tables of this service. Apply the migrations: npm run db:migrate.*'),
    );
  });

  test('database: of another encoding', async () => {
    const name = `doctor_${randomUUID()}`;
    await admin.query(`create database "${name}" template template0 encoding 'SQL_ASCII' locale 'C'`);
    try {
      const url = new URL(database.url);
      url.pathname = `/${name}`;
      expect(await faultsOf({ DATABASE_URL: url.href })).toEqual(one('database: .*its encoding is SQL_ASCII.*UTF8.*'));
    } finally {
      await admin.query(`drop database "${name}" with (force)`);
    }
  });

  test('database: read-only', async () => {
    await withSetting('default_transaction_read_only = on', async () => {
      expect(await faultsOf()).toEqual(one('database: The server takes no writes; let DATABASE_URL name the primary.'));
    });
  });

  test('database: ends statements too soon', async () => {
    await withSetting('statement_timeout = 500', async () => {
      expect(await faultsOf()).toEqual(one('database: The role or the database ends statements after 500 ms.*'));
    });
  });

  test('database: a role without rights, and one without room for connections', async () => {
    const role = `doctor_${process.pid}`;
    await admin.query(`create role ${role} login password 'p' connection limit 5`);
    await admin.query(`grant select on agent_runtime_migrations, agent_runtime_repeatables to ${role}`);
    const url = new URL(database.url);
    Object.assign(url, { username: role, password: 'p' });
    try {
      expect(await faultsOf({ DATABASE_URL: url.href })).toEqual(one(`database: .*the role ${role} lacks .*`));
      for (const what of ['tables', 'functions']) {
        await admin.query(`grant all on all ${what} in schema public to ${role}`);
      }
      expect(await faultsOf({ DATABASE_URL: url.href })).toEqual(
        one('database: The server has room for 5 connections and this process wants 12; lower DATABASE_POOL_SIZE.*'),
      );
    } finally {
      await admin.query(`drop owned by ${role}`);
      await admin.query(`drop role ${role}`);
    }
  });

  test('database: another time than here', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_600_000 });
    expect(await faultsOf()).toEqual(
      one('database: The clocks of this machine and of the database differ by 3[56]\\d\\d s; let both follow .*NTP.*'),
    );
  });

  test('model: no key, one that is refused, a name that nobody knows, a provider that is away', async () => {
    expect(await faultsOf({ MODEL_PROVIDER: 'openai', MODEL_NAME: 'm' })).toEqual([
      'model: The provider openai needs a key; set MODEL_API_KEY.',
    ]);
    expect(await faultsOf(compatible({ MODEL_API_KEY: 'wrong-key' }))).toEqual([
      'model: The provider openai-compatible refuses the key (HTTP 401); change MODEL_API_KEY.',
    ]);
    expect(await faultsOf(compatible({ MODEL_NAME: 'no-such' }))).toEqual([
      'model: The provider openai-compatible does not know the model no-such; change MODEL_NAME.',
    ]);
    expect(await faultsOf(compatible({ MODEL_PROVIDER: 'openai', MODEL_NAME: 'no-such' }))).toEqual([
      'model: The provider openai does not know the model no-such; change MODEL_NAME.',
    ]);
    expect(await faultsOf(compatible({ MODEL_BASE_URL: 'http://127.0.0.1:1/v1' }))).toEqual(
      one('model: The provider openai-compatible at 127.0.0.1:1 cannot be reached: .*; see MODEL_BASE_URL.'),
    );
  });

  test('agents: each MCP server that does not answer, and a tool that does not exist', async () => {
    const far = (name: string, url: string) => ({ name, url, on_failure: 'skip' });
    const servers = [far('a', 'http://127.0.0.1:1/mcp'), far('fine', mcp.url), far('b', 'http://127.0.0.1:1/mcp')];
    expect(await faultsOf({ MCP_SERVERS: JSON.stringify(servers) })).toEqual(
      ['a', 'b'].map(
        (name) =>
          expect.stringMatching(`^agents: harness_agent: MCP server \`${name}\` could not be reached`) as unknown,
      ),
    );
    expect(await faultsOf({ TOOLS: 'no_such_tool' })).toEqual(one('agents: harness_agent: .*no_such_tool.*'));
  });

  test('ports: taken, both of them', async () => {
    const [PORT, METRICS_PORT] = [portOf(provider), new URL(mcp.url).port];
    expect(await faultsOf({ PORT, METRICS_PORT })).toEqual([
      `ports: PORT: ${PORT} on 127.0.0.1 cannot be had (EADDRINUSE); choose another PORT.`,
      `ports: METRICS_PORT: ${METRICS_PORT} on 127.0.0.1 cannot be had (EADDRINUSE); choose another METRICS_PORT.`,
    ]);
    expect(await faultsOf({ PORT, METRICS_PORT: PORT })).toContain(
      `settings: METRICS_PORT is PORT, ${PORT}; choose another METRICS_PORT.`,
    );
  });

  test('ports: those of the service that runs are no fault', async () => {
    const running = await startOn(database.url, { METRICS_PORT: '0' });
    const [PORT, METRICS_PORT] = [running.url, running.metrics ?? ''].map((url) => new URL(url).port) as [
      string,
      string,
    ];
    const findings = await examine({ DATABASE_URL: database.url, PORT, METRICS_PORT }, { cgroup: directory });
    const detail = `in use by an agent runtime that runs already: PORT ${PORT}, METRICS_PORT ${METRICS_PORT}`;
    expect(findings).toContainEqual({ check: 'ports', status: 'ok', detail });
    await running.close();
  });

  test('agents: a model of its own without a key, and a fallback', async () => {
    const AGENTS_DIR = join(directory, 'without-keys');
    await mkdir(join(AGENTS_DIR, 'writer'), { recursive: true });
    await writeFile(
      join(AGENTS_DIR, 'writer', 'agent.ts'),
      `export const agent = { instruction: 'x', model: { provider: 'anthropic', name: 'm',
         fallbacks: [{ provider: 'openai', name: 'n' }, { provider: 'openai', name: 'n', apiKey: 'k' }] } };`,
    );
    const sentence = (of: string) =>
      `agents: writer: no key is set for its model of ${of}, so each call of it fails; set \`api_key\` of that model, in code \`apiKey\`.`;
    expect(await faultsOf({ AGENTS_DIR })).toEqual([sentence('anthropic'), sentence('openai')]);
  });

  test('disk: no directory', async () => {
    const file = join(directory, 'file');
    await writeFile(file, '');
    expect(await faultsOf({ DATABASE_URL: '', DATA_DIR: file })).toEqual([`disk: DATA_DIR: ${file} is no directory.`]);
  });

  test('container: too little memory, too few CPUs', async () => {
    const cgroup = await mkdtemp(join(directory, 'cgroup-'));
    await writeFile(join(cgroup, 'memory.max'), '134217728\n');
    await writeFile(join(cgroup, 'cpu.max'), '20000 100000\n');
    expect(await faultsOf({}, cgroup)).toEqual([
      'container: The container has 128 MiB of memory; give it 256 MiB or more (docker run -m).',
      'container: The container has 0.2 CPUs; give it half a one or more (docker run --cpus).',
    ]);
  });
});

test('the command prints a line for each check and ends with 1 where there is a fault; --json prints all', async () => {
  const run = (settings: Record<string, string>, ...args: string[]) =>
    promisify(execFile)(process.execPath, ['src/main.ts', 'doctor', ...args], {
      env: { PATH: process.env['PATH'], DATABASE_URL: database.url, PORT: '0', ...settings },
    }).then(
      ({ stdout }) => ({ code: 0, stdout }),
      ({ code, stdout }: { code: number; stdout: string }) => ({ code, stdout }),
    );
  const [fine, faulty] = await Promise.all([run({}), run({ MODEL_PROVIDER: 'google', MODEL_NAME: 'm' }, '--json')]);
  expect(fine.stdout).toContain('✓ database   reachable');
  expect(fine.code).toBe(0);
  expect(JSON.parse(faulty.stdout)).toContainEqual({
    check: 'model',
    status: 'fault',
    detail: 'The provider google needs a key; set MODEL_API_KEY.',
  });
  expect(faulty.code).toBe(1);
});

describe('a service that asks nobody for a credential', () => {
  const warned = async (settings: Record<string, string>) => {
    const lines: string[] = [];
    const log = createLog('warn', { write: (line) => void lines.push(line) });
    const runtime = await startOn(database.url, { DEV_UI: 'false', ...settings }, { log });
    await runtime.close();
    return lines.filter((line) => line.includes('without a credential')).length;
  };
  const open = { HOST: '0.0.0.0', ALLOW_ANONYMOUS: 'true' };
  const keyed = { ...open, RUNTIME_API_KEYS: 'kw7Jt2Qz9xL4mNs8Vb3c' };

  test.each([
    ['beyond loopback', open, 1],
    ['beyond loopback, where the development UI alone asks for none', { ...keyed, DEV_UI: 'true' }, 1],
    ['on loopback', { ALLOW_ANONYMOUS: 'true' }, 0],
    ['with keys', keyed, 0],
  ] as const)('says so at its start: %s', async (_, settings, times) => {
    expect(await warned(settings)).toBe(times);
  });

  test('is a warning of the doctor, and no fault', async () => {
    const findings = await examine(
      { DATABASE_URL: database.url, PORT: '0', MODEL_PROVIDER: 'offline', ...open },
      { cgroup: directory },
    );
    const detail = expect.stringMatching(/^everybody who reaches 0\.0\.0\.0 may use the runtime/) as unknown;
    expect(findings).toContainEqual({ check: 'settings', status: 'warning', detail });
    expect(findings).toContainEqual({ check: 'settings', status: 'ok', detail: 'no contradiction' });
  });
});
