import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../../process/config.ts';
import type { DatabaseAddress } from '../../platform/db/connection.ts';
import { connect, type ServerClient } from '../../platform/db/client.ts';
import { findDatabase, migrate } from '../../process/open-database.ts';
import { offsetAt } from '../../core/time-zones.ts';
import { failing, fault, type FaultRule, type Finding, skipped, toFindings, toReason, warning } from './finding.ts';

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
    const zones = describeZones(await readOffsets(serving));
    return [
      ...toFindings('database', faults, isPolled ? `${FINE}; ${POLLED}` : FINE),
      ...(zones === undefined ? [] : [warning('database', zones)]),
    ];
  } catch (error) {
    return [fault('database', toReason(error))];
  }
}

/** Zones whose law has changed in the last years, and some that many use. */
const ZONES = [
  'Africa/Cairo',
  'Africa/Casablanca',
  'America/Asuncion',
  'America/Mexico_City',
  'America/New_York',
  'America/Vancouver',
  'Asia/Almaty',
  'Asia/Amman',
  'Asia/Tehran',
  'Asia/Tokyo',
  'Australia/Sydney',
  'Europe/Berlin',
];
const HALF_YEAR_SECONDS = 15_778_800;

/** Offset of a zone from UTC at a moment, in seconds; `offset` is null if the database does not know the zone. */
interface ZoneOffset {
  zone: string;
  at: number;
  offset: number | null;
}

/** Reads the database's offsets of some zones, now and in the next half-years. */
async function readOffsets(address: DatabaseAddress): Promise<ZoneOffset[]> {
  const client = await connect(address, CHECKING, { acceptsReadOnly: true });
  try {
    const { rows } = await client.query<ZoneOffset>(
      `select w.zone, m.at::float8 as at, case when n.name is not null then
           extract(epoch from (to_timestamp(m.at) at time zone n.name) - (to_timestamp(m.at) at time zone 'UTC'))::float8
         end as offset
       from unnest($1::text[]) w(zone) left join pg_timezone_names n on n.name = w.zone
       cross join (select floor(extract(epoch from now())) + h * $2::int from generate_series(0, 4) h) m(at)
       order by w.zone, m.at`,
      [ZONES, HALF_YEAR_SECONDS],
    );
    return rows;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** A sentence about zones in which the database's clocks and Node's differ; `undefined` if they agree. */
export function describeZones(offsets: ZoneOffset[]): string | undefined {
  const differing = offsets.filter(
    ({ zone, at, offset }) => offset === null || offsetAt(at * 1000, zone) !== offset * 1000,
  );
  const zones = [...new Set(differing.map(({ zone }) => zone))];
  if (zones.length === 0) return undefined;
  const since = new Date(Math.min(...differing.map(({ at }) => at * 1000))).toISOString().slice(0, 10);
  return (
    `The clocks of ${zones.join(', ')} in the database differ from those of this Node (${process.versions.tz}), ` +
    `first on ${since}. Schedules and sleep_until go by Node's, SQL of your own by the database's: update the older one.`
  );
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
