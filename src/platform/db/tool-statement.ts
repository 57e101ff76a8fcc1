import { createHash } from 'node:crypto';
import type { QueryResult } from 'pg';
import { BoundedCache } from '../work/bounded-cache.ts';
import type { Database } from './database.ts';

type Send = (text: string, values?: unknown[]) => Promise<QueryResult>;

/**
 * First words of allowed statements, only for a clear message: PREPARE verifies that the text is one such statement.
 */
const FIRST_WORD = /^[\s(]*(?:select|insert|update|delete|merge|with|values|table)\b/i;
const ONLY = 'Only select, insert, update, delete and merge are sent, one each, and no setting is changed';

/**
 * Volatile functions of PostgreSQL without effects beyond their statement. All others are refused: they could change
 * settings, execute other text, take locks that others wait for, or end the calls of others.
 */
const HARMLESS = [
  'array_sample',
  'array_shuffle',
  'clock_timestamp',
  'currval',
  'gen_random_uuid',
  'lastval',
  'nextval',
  'random',
  'random_normal',
  'setval',
  'timeofday',
  'uuidv4',
  'uuidv7',
  'pg_sleep',
  'pg_sleep_for',
  'pg_sleep_until',
];
/**
 * Functions that are not volatile, but reveal other sessions' statements or read tables that a statement does not name.
 */
const SHOWING = ['pg_stat_get_activity', 'pg_stat_get_backend_activity', '%_to_xml%'];
/** Views that allow changing settings, or reveal the statements of other sessions. */
const REFUSED_VIEWS = ['pg_settings', 'pg_stat_activity'];

const NAME = 'agent_runtime_look';
/**
 * Lists a statement's functions and views that tools may not use, by PostgreSQL's parse tree, so that no spelling can
 * hide them. The tools' schema is allowed, because the operator wrote it.
 */
const REFUSED = `
  with tree as (
    select prosqlbody::text as text from pg_proc where proname = '${NAME}' and pronamespace = pg_my_temp_schema()),
  called as (
    select distinct m[1]::oid as oid from tree, regexp_matches(text, ':(?:\\w*funcid|aggfnoid|winfnoid) (\\d+)', 'g') m),
  used as (select distinct m[1]::oid as oid from tree, regexp_matches(text, ':relid (\\d+)', 'g') m)
  select p.oid::regprocedure::text as name from called join pg_proc p using (oid) join pg_namespace n on n.oid = p.pronamespace
  where n.nspname <> $1 and (p.provolatile = 'v' and not (n.nspname = 'pg_catalog' and p.proname = any($2))
                             or n.nspname = 'pg_catalog' and p.proname like any($3))
  union all
  select c.relname from used join pg_class c using (oid) join pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'pg_catalog' and c.relname = any($4)
  order by name`;

/** Hash of a statement's text → result of its check; '' means allowed. */
const results = new BoundedCache<string>();

/**
 * Refuses a statement that could do more than read and write rows. It is not executed: PostgreSQL parses it as the body
 * of a function, which is rolled back. Invalid statements fail as they would when executed.
 * @param schema - the tools' schema
 * @throws {Error} that names the function or view that is not allowed
 */
export async function checkStatement(tx: Database, text: string, schema: string): Promise<void> {
  if (!FIRST_WORD.test(text)) throw new Error(`${ONLY}.`);
  const key = createHash('sha256').update(`${schema} ${text}`).digest('hex');
  let refused = results.get(key);
  if (refused === undefined) results.set(key, (refused = await findRefused(toSend(tx), text, schema)));
  if (refused !== '') throw new Error(`${ONLY}: ${refused} is not for tools.`);
}

/** Each batch of messages is one round trip; after a failure the rest of the batch fails too. */
async function findRefused(send: Send, text: string, schema: string): Promise<string> {
  const [, { rows: parameters }] = await Promise.all([
    send(`prepare ${NAME} as ${text}`),
    send(`select unnest(parameter_types)::text as type from pg_prepared_statements where name = '${NAME}'`),
    send(`deallocate ${NAME}`),
  ]);
  const types = (parameters as { type: string }[]).map(({ type }) => type).join(', ');
  const [, , { rows }] = await Promise.all([
    send(`savepoint ${NAME}`),
    send(`create function pg_temp.${NAME}(${types}) returns void language sql begin atomic ${text}\n; end`),
    send(REFUSED, [schema, HARMLESS, SHOWING, REFUSED_VIEWS]),
    send(`rollback to savepoint ${NAME}`),
  ]);
  return (rows as { name: string }[])[0]?.name ?? '';
}

/** Sends a statement by the extended protocol, which accepts a single statement, even without values. */
const toSend =
  (tx: Database): Send =>
  (text, values = []) => {
    const statement = { text, values, queryMode: 'extended' };
    return tx.$client.query(statement);
  };

/** Settings that restrict a tool transaction or identify its user. */
const BOUNDS = [
  'role',
  'session_authorization',
  'search_path',
  'row_security',
  'transaction_read_only',
  'transaction_isolation',
  'statement_timeout',
  'lock_timeout',
  'idle_in_transaction_session_timeout',
  'transaction_timeout',
  'agent_runtime.user',
  'agent_runtime.groups',
  'agent_runtime.all_users',
];
const LOOK = `select name, current_setting(name, true) as value from unnest($1::text[]) name`;

/** Guards the settings of a tool transaction, which even the tools' own functions may not change. */
export class Bounds {
  readonly #tx: Database;
  #first: string[] | undefined;
  #failure: Error | undefined;

  constructor(tx: Database) {
    this.#tx = tx;
  }

  /**
   * Runs a statement, if given, and reads the settings in the same round trip.
   * @throws {Error} if a setting differs from the first reading; also on all later calls
   */
  async hold(text?: string, values?: unknown[]): Promise<QueryResult> {
    const send = toSend(this.#tx);
    const statement = text === undefined ? undefined : send(text, values);
    const [result, look] = await Promise.all([statement, send(LOOK, [BOUNDS])]);
    const settings = (look.rows as { name: string; value: string | null }[]).map(
      ({ name, value }) => `${name} = ${value}`,
    );
    this.#first ??= settings;
    const changed = settings.find((each, place) => each !== this.#first?.[place]);
    if (changed !== undefined)
      this.#failure ??= new Error(
        `A setting was changed, so nothing of this call is kept: ${changed.split(' = ', 1)[0]}.`,
      );
    if (this.#failure) throw this.#failure;
    return result ?? look;
  }
}
