import { createHash } from 'node:crypto';
import type { QueryResult } from 'pg';
import { BoundedCache } from '../work/bounded-cache.ts';
import type { Database } from './database.ts';

type Send = (text: string, values?: unknown[]) => Promise<QueryResult>;

/** What a statement may begin with. That it is one of these and the only one is up to PREPARE; this gives the words. */
const FIRST_WORD = /^[\s(]*(?:select|insert|update|delete|merge|with|values|table)\b/i;
const ONLY = 'Only select, insert, update, delete and merge are sent, one each, and no setting is changed';

/**
 * Functions of PostgreSQL that are volatile and do nothing beyond their statement. All others are refused: by them a
 * statement changes settings, runs another text, takes locks that others wait for, or ends the calls of others.
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
/** Functions that are not volatile, and show what others send, or read what a statement does not name. */
const SHOWING = ['pg_stat_get_activity', 'pg_stat_get_backend_activity', '%_to_xml%'];
/** Views of PostgreSQL by which settings are changed, or that show what others send. */
const REFUSED_VIEWS = ['pg_settings', 'pg_stat_activity'];

const NAME = 'agent_runtime_look';
/**
 * The functions and views of a statement that tools may not use. They are those of the tree that PostgreSQL itself made
 * of the text, so no spelling hides one. What is in the schema of the tools is the operator's, who answers for it.
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

/** Refusals of texts [''] by their hash: the same text means the same again. */
const known = new BoundedCache<string>();

/**
 * Refuses a statement that could do more than read and write rows. It is not carried out for that: PostgreSQL parses
 * it as the body of a function, which is rolled back. A statement that it does not take fails as it would if it ran.
 * @param schema the schema of the tools @throws {Error} which function or view it may not use
 */
export async function checkStatement(tx: Database, text: string, schema: string): Promise<void> {
  if (!FIRST_WORD.test(text)) throw new Error(`${ONLY}.`);
  const key = createHash('sha256').update(`${schema} ${text}`).digest('hex');
  let refused = known.get(key);
  if (refused === undefined) known.set(key, (refused = await findRefused(toSend(tx), text, schema)));
  if (refused !== '') throw new Error(`${ONLY}: ${refused} is not for tools.`);
}

/** Each batch is one round trip: where a statement fails, so do those behind it. */
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

/** The extended protocol takes one statement, also where there are no values. */
const toSend =
  (tx: Database): Send =>
  (text, values = []) => {
    const statement = { text, values, queryMode: 'extended' };
    return tx.$client.query(statement);
  };

/** What bounds a transaction of tools, and names its user. */
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

/** The settings of a transaction of tools, which their functions may not change either. */
export class Bounds {
  readonly #tx: Database;
  #first: string[] | undefined;
  #failure: Error | undefined;

  constructor(tx: Database) {
    this.#tx = tx;
  }

  /**
   * Carries out a statement [none] and looks at the settings in the same round trip.
   * @throws {Error} which one is not what it was at the first look; again from then on
   */
  async hold(text?: string, values?: unknown[]): Promise<QueryResult> {
    const send = toSend(this.#tx);
    const sent = text === undefined ? undefined : send(text, values);
    const [result, look] = await Promise.all([sent, send(LOOK, [BOUNDS])]);
    const found = (look.rows as { name: string; value: string | null }[]).map(
      ({ name, value }) => `${name} = ${value}`,
    );
    this.#first ??= found;
    const changed = found.find((each, place) => each !== this.#first?.[place]);
    if (changed !== undefined)
      this.#failure ??= new Error(
        `A setting was changed, so nothing of this call is kept: ${changed.split(' = ', 1)[0]}.`,
      );
    if (this.#failure) throw this.#failure;
    return result ?? look;
  }
}
