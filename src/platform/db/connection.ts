import { readFile } from 'node:fs/promises';
import { ConfigError } from '../../core/errors.ts';

/** A way to the database: where, and how its connections are set up. */
export interface DatabaseAddress {
  /** One server or several, as `DATABASE_URL` takes them. */
  url: string;
  /** Schema of the tables [the first of the role's `search_path`]. */
  schema?: string | undefined;
  /** True where a pooler in transaction mode stands between: it keeps nothing that is set for a connection. */
  isPooled?: boolean | undefined;
  /** File with the password, where the URL has none; it is read for each connection, so the password may change. */
  passwordFile?: string | undefined;
  /** File with the certificates of the authorities that the server's is verified with [those of Node]. */
  caFile?: string | undefined;
  /** The setting that holds the URL, for errors [`DATABASE_URL`]. */
  setting?: string | undefined;
}

/** One server of a `DATABASE_URL`, as node-postgres takes it. */
export interface ServerAddress {
  connectionString: string;
  /** Settings of the session, as `postgres -c` takes them. */
  options: string;
  /** True where a server that refuses writes by default, but is no standby, counts as one that takes them. */
  isAnyPrimary: boolean;
  /** Reads the password [the one of the URL]. */
  readPassword?: () => Promise<string>;
}

/** Settings of connections that wait: a database that ends idle ones would end them under the next request. */
export const STAY_OPEN = { idle_session_timeout: '0' };

/** Scheme and credentials, the servers with commas between them, and the rest of a `DATABASE_URL`. */
const URL_PARTS = /^(\w+:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/s;
const VERIFY = 'verify-full';
/** Values of `sslmode` that node-postgres 8 takes for `verify-full` and warns of: the next version verifies less. */
const VERIFYING = new Set(['prefer', 'require', 'verify-ca', VERIFY]);
/** Values of libpq's `target_session_attrs` that a service can have that writes. */
const ATTRIBUTES = ['any', 'read-write', 'primary'];

/**
 * The servers of a `DATABASE_URL` in its order. `options` of the URL stay, with `settings` behind them: node-postgres
 * would take those of the URL alone. @throws {ConfigError} for a URL that is none, or wants a server without writes.
 */
export function listServers(
  { url, schema, isPooled = false, passwordFile, caFile, setting = 'DATABASE_URL' }: DatabaseAddress,
  settings: Record<string, string> = {},
): [ServerAddress, ...ServerAddress[]] {
  const [, start = url, hosts = '', rest = ''] = URL_PARTS.exec(url) ?? [];
  const all = isPooled ? {} : { ...settings, ...(schema === undefined ? {} : { search_path: schema }) };
  const ours = Object.entries(all).map(([name, value]) => `-c ${name}=${value.replace(/[\\ ]/g, '\\$&')}`);
  const toServer = (host: string): ServerAddress => {
    const text = `${start}${host}${rest}`;
    if (!URL.canParse(text) || (host === '' && hosts !== '')) throw new ConfigError(`${setting}: ${WRONG_URL}`);
    const server = new URL(text);
    const given = server.searchParams.get('options');
    const attributes = server.searchParams.get('target_session_attrs') ?? 'any';
    if (!ATTRIBUTES.includes(attributes))
      throw new ConfigError(`${setting}: found target_session_attrs=${attributes}; allowed: ${ATTRIBUTES.join(', ')}.`);
    for (const name of ['options', 'target_session_attrs']) server.searchParams.delete(name);
    if (caFile !== undefined) addAuthority(server, caFile, setting);
    const mode = server.searchParams.get('sslmode') ?? '';
    if (!server.searchParams.has('uselibpqcompat') && VERIFYING.has(mode)) server.searchParams.set('sslmode', VERIFY);
    return {
      ...(passwordFile === undefined || server.password ? {} : { readPassword: () => readPasswordFile(passwordFile) }),
      connectionString: server.href,
      options: [given, ...ours].filter(Boolean).join(' '),
      isAnyPrimary: attributes === 'primary',
    };
  };
  const [first = '', ...others] = hosts.split(',');
  return [toServer(first), ...others.map(toServer)];
}

/** A file of authorities is for a connection that is encrypted and whose server is verified, by its name too. */
function addAuthority(server: URL, caFile: string, setting: string): void {
  const mode = server.searchParams.get('sslmode') ?? VERIFY;
  if (!VERIFYING.has(mode))
    throw new ConfigError(`${setting}: found sslmode=${mode}; allowed with DATABASE_CA_FILE: ${VERIFY}.`);
  server.searchParams.set('sslmode', mode);
  server.searchParams.set('sslrootcert', caFile);
}

/** @throws {Error} with the SQLSTATE of a connection that could not be made: the file may be there the next time. */
async function readPasswordFile(file: string): Promise<string> {
  try {
    return (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    throw Object.assign(new Error(`DATABASE_PASSWORD_FILE cannot be read (${code})`), { code: '08001' });
  }
}

const WRONG_URL = 'found a wrong value; allowed: postgres://user:password@host:port/database.';

/** The servers of a `DATABASE_URL` and its database, for people: without credentials. */
export function shownAddress(url: string): { hosts: string; database: string } {
  const [, , hosts = '', rest = ''] = URL_PARTS.exec(url) ?? [];
  return { hosts, database: rest.split(/[?#]/)[0] ?? '' };
}
