import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../../process/config.ts';
import type { DatabaseAddress } from '../../platform/db/connection.ts';
import { connect, type ServerClient } from '../../platform/db/client.ts';
import { findDatabase, migrate } from '../../process/open-database.ts';
import { failing, fault, type FaultRule, type Finding, skipped, toFindings, toReason } from './finding.ts';

const CHECKING = { application_name: 'agent-runtime doctor', connectionTimeoutMillis: 5_000, query_timeout: 5_000 };
/** Minimum `server_version_num` of the server: PostgreSQL 14, the oldest version with which the runtime is tested. */
const MIN_VERSION = 140_000;
/** Maximum milliseconds between this machine's and the database's clock: tokens and schedules depend on both. */
const MAX_CLOCK_DIFFERENCE_MS = 5_000;
/** Minimum of the role's or database's `statement_timeout`, which applies if a pooler drops the service's own. */
const MIN_STATEMENT_TIMEOUT_MS = 1_000;
const NOTICE_MS = 2_000;
const CHANNEL = 'agent_runtime_doctor';

const FINE = 'reachable, up to date, with the rights it needs';
const POLLED = 'news of other processes comes within a second, at once with DATABASE_DIRECT_URL';

/** Checks that the database can be used. Changes nothing in it. */
export async function checkDatabase(config: Config): Promise<Finding[]> {
  if (config.DATABASE_URL === undefined) return [skipped('database', 'embedded; it starts with the service')];
  try {
    const { access } = await findDatabase(config);
    await migrate(access, 'check');
    const { serving, direct = serving } = access;
    // A pooler without DATABASE_DIRECT_URL is valid: the service then polls every second instead of using LISTEN.
    const isPolled = direct.isPooled === true;
    const faults = [...(await checkServer(config, serving)), ...(isPolled ? [] : await checkListen(direct))];
    return toFindings('database', faults, isPolled ? `${FINE}; ${POLLED}` : FINE);
  } catch (error) {
    return [fault('database', toReason(error))];
  }
}

async function checkServer(config: Config, address: DatabaseAddress): Promise<string[]> {
  const client = await connect(address, CHECKING, {
    acceptsReadOnly: true,
    settings: { 'agent_runtime.doctor': 'on' },
  });
  try {
    const sentMs = Date.now();
    const server = await inspect(client);
    const differenceMs = Math.abs(server.clockMs - (sentMs + Date.now()) / 2);
    const connections = config.DATABASE_POOL_SIZE + 2;
    const rules: FaultRule[] = [
      [server.version < MIN_VERSION, 'The server is older than PostgreSQL 14; DATABASE_URL needs a newer one.'],
      [client.isReadOnly, 'The server takes no writes; let DATABASE_URL name the primary.'],
      [
        differenceMs > MAX_CLOCK_DIFFERENCE_MS,
        `The clocks of this machine and of the database differ by ${Math.round(differenceMs / 1000)} s; ` +
          'let both follow a time server (NTP).',
      ],
      [
        server.room < connections,
        `The server has room for ${server.room} connections and this process wants ${connections}; ` +
          'lower DATABASE_POOL_SIZE or raise max_connections or the limit of the role.',
      ],
      [
        server.statementTimeoutMs > 0 && server.statementTimeoutMs < MIN_STATEMENT_TIMEOUT_MS,
        `The role or the database ends statements after ${server.statementTimeoutMs} ms, migrations too; ` +
          'alter role … reset statement_timeout (DATABASE_STATEMENT_TIMEOUT_MS is for the service).',
      ],
      [
        server.setting !== 'on' && address.isPooled !== true,
        'What connections set does not arrive: a pooler stands between. Set DATABASE_POOLER=transaction, and ' +
          'DATABASE_DIRECT_URL past it.',
      ],
    ];
    return failing(rules);
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function inspect(client: ServerClient) {
  const { rows } = await client.query<Record<'version' | 'clock' | 'room' | 'timeout' | 'setting', string | null>>(`
    select current_setting('server_version_num') as version, extract(epoch from clock_timestamp()) * 1000 as clock,
      current_setting('agent_runtime.doctor', true) as setting,
      (select reset_val from pg_settings where name = 'statement_timeout') as timeout,
      least(current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
          - (select count(*) from pg_stat_activity where backend_type = 'client backend'),
        (select nullif(rolconnlimit, -1) from pg_roles where rolname = current_user)
          - (select count(*) from pg_stat_activity where usename = current_user)) + 1 as room`);
  const [row] = rows;
  return {
    version: Number(row?.version),
    clockMs: Number(row?.clock),
    room: Number(row?.room),
    statementTimeoutMs: Number(row?.timeout),
    setting: row?.setting ?? null,
  };
}

/** Checks that LISTEN works. A pooler in transaction mode accepts LISTEN, but delivers no notifications. */
async function checkListen(address: DatabaseAddress): Promise<string[]> {
  const [listener, notifier] = await Promise.all([
    connect(address, CHECKING, { acceptsReadOnly: true }),
    connect(address, CHECKING, { acceptsReadOnly: true }),
  ]);
  try {
    // A standby does not accept LISTEN. Another check reports that the server accepts no writes.
    if (listener.isReadOnly) return [];
    const heard = new Promise<boolean>((resolve) => listener.once('notification', () => resolve(true)));
    await listener.query(`listen ${CHANNEL}`);
    await notifier.query(`notify ${CHANNEL}`);
    const isHeard = await Promise.race([heard, sleep(NOTICE_MS, false, { ref: false })]);
    return isHeard ? [] : ['LISTEN brings nothing: set DATABASE_DIRECT_URL to an address past the pooler.'];
  } finally {
    await Promise.all([listener, notifier].map((client) => client.end().catch(() => undefined)));
  }
}
