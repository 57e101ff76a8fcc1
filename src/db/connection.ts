import { ConfigError } from '../core/errors.ts';

/** A way to the database: where, and how its connections are set up. */
export interface DatabaseAddress {
  /** One server or several, as `DATABASE_URL` takes them. */
  url: string;
  /** Schema of the tables [the first of the role's `search_path`]. */
  schema?: string | undefined;
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
}

/**
 * For connections that wait: a database that ends idle ones would end them under the request that takes one up, which
 * then is a 503. The pool gives its own back after ten seconds.
 */
export const STAY_OPEN = { idle_session_timeout: '0' };

/** Scheme and credentials, the servers with commas between them, and the rest of a `DATABASE_URL`. */
const URL_PARTS = /^(\w+:\/\/(?:[^/?#]*@)?)([^/?#@]*)(.*)$/s;
/** Values of libpq's `target_session_attrs` that a service can have that writes. */
const ATTRIBUTES = ['any', 'read-write', 'primary'];

/**
 * The servers of a `DATABASE_URL` in its order. `options` of the URL stay, with `settings` behind them: node-postgres
 * would take those of the URL alone. @throws {ConfigError} for a URL that is none, or wants a server without writes.
 */
export function listServers(
  { url, schema, setting = 'DATABASE_URL' }: DatabaseAddress,
  settings: Record<string, string> = {},
): [ServerAddress, ...ServerAddress[]] {
  const [, start = url, hosts = '', rest = ''] = URL_PARTS.exec(url) ?? [];
  const ours = Object.entries({ ...settings, ...(schema === undefined ? {} : { search_path: schema }) }).map(
    ([name, value]) => `-c ${name}=${value.replace(/[\\ ]/g, '\\$&')}`,
  );
  const toServer = (host: string): ServerAddress => {
    const text = `${start}${host}${rest}`;
    if (!URL.canParse(text) || (host === '' && hosts !== '')) throw new ConfigError(`${setting}: ${WRONG_URL}`);
    const server = new URL(text);
    const given = server.searchParams.get('options');
    const attributes = server.searchParams.get('target_session_attrs') ?? 'any';
    if (!ATTRIBUTES.includes(attributes)) {
      throw new ConfigError(`${setting}: found target_session_attrs=${attributes}; allowed: ${ATTRIBUTES.join(', ')}.`);
    }
    for (const name of ['options', 'target_session_attrs']) server.searchParams.delete(name);
    return {
      connectionString: server.href,
      options: [given, ...ours].filter(Boolean).join(' '),
      isAnyPrimary: attributes === 'primary',
    };
  };
  const [first = '', ...others] = hosts.split(',');
  return [toServer(first), ...others.map(toServer)];
}

const WRONG_URL = 'found a wrong value; allowed: postgres://user:password@host:port/database.';

/** The servers of a `DATABASE_URL` and its database, for people: without credentials. */
export function shownAddress(url: string): { hosts: string; database: string } {
  const [, , hosts = '', rest = ''] = URL_PARTS.exec(url) ?? [];
  return { hosts, database: rest.split(/[?#]/)[0] ?? '' };
}
