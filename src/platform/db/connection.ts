import { readFile } from 'node:fs/promises';
import { ConfigError } from '../../core/errors.ts';

export interface DatabaseAddress {
  /** A server or several servers, in the format of `DATABASE_URL`. */
  url: string;
  /** Schema of the tables. Default: the first schema in the role's `search_path`. */
  schema?: string | undefined;
  /** True behind a pooler in transaction mode, which keeps no session settings. */
  isPooled?: boolean | undefined;
  /** File with the password, if the URL has none. It is read for each connection, so the password may change. */
  passwordFile?: string | undefined;
  /** File with CA certificates that verify the server's certificate. Default: Node's certificates. */
  caFile?: string | undefined;
  /** Name of the setting in error messages. Default: `DATABASE_URL`. */
  setting?: string | undefined;
}

export interface ServerAddress {
  connectionString: string;
  /** Session settings in the format of `postgres -c`. */
  options: string;
  /** True: a server that refuses writes by default, but is no standby, counts as the primary. */
  isAnyPrimary: boolean;
  /** Reads the password; absent if the URL has one. */
  readPassword?: () => Promise<string>;
}

/** Session settings: the server must not close an idle connection just when a request starts to use it. */
export const STAY_OPEN = { idle_session_timeout: '0' };

/** Parts of a `DATABASE_URL`: scheme and credentials, comma-separated servers, the rest. */
const URL_PARTS = /^(\w+:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/s;
const VERIFY = 'verify-full';
/**
 * Values of `sslmode` that node-postgres 8 treats as `verify-full`, with a warning. They are replaced by it, because
 * the next major version verifies less for them.
 */
const VERIFYING = new Set(['prefer', 'require', 'verify-ca', VERIFY]);
/** Values of libpq's `target_session_attrs` that connect to a writable server. */
const ATTRIBUTES = ['any', 'read-write', 'primary'];

/**
 * Splits a `DATABASE_URL` into its servers. Appends `settings` to the URL's `options`, beside which node-postgres would
 * ignore them.
 * @throws {ConfigError} for an invalid URL, or a URL that requests a read-only server
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
    const urlOptions = server.searchParams.get('options');
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
      options: [urlOptions, ...ours].filter(Boolean).join(' '),
      isAnyPrimary: attributes === 'primary',
    };
  };
  const [first = '', ...others] = hosts.split(',');
  return [toServer(first), ...others.map(toServer)];
}

/** Adds a CA file to a server's URL, and requires an encrypted connection with full verification. */
function addAuthority(server: URL, caFile: string, setting: string): void {
  const mode = server.searchParams.get('sslmode') ?? VERIFY;
  if (!VERIFYING.has(mode))
    throw new ConfigError(`${setting}: found sslmode=${mode}; allowed with DATABASE_CA_FILE: ${VERIFY}.`);
  server.searchParams.set('sslmode', mode);
  server.searchParams.set('sslrootcert', caFile);
}

/** @throws {Error} with SQLSTATE 08001 (no connection), which is retried: the password file may exist by then */
async function readPasswordFile(file: string): Promise<string> {
  try {
    return (await readFile(file, 'utf8')).replace(/\r?\n$/, '');
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    throw Object.assign(new Error(`DATABASE_PASSWORD_FILE cannot be read (${code})`), { code: '08001' });
  }
}

const WRONG_URL = 'found a wrong value; allowed: postgres://user:password@host:port/database.';

/** Returns servers and database of a `DATABASE_URL` for display, without credentials. */
export function shownAddress(url: string): { hosts: string; database: string } {
  const [, , hosts = '', rest = ''] = URL_PARTS.exec(url) ?? [];
  return { hosts, database: rest.split(/[?#]/)[0] ?? '' };
}
