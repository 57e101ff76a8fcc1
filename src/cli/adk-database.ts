import { existsSync } from 'node:fs';
import { Client } from 'pg';
import { CommandError } from './output.ts';
import { type SessionSource, type SourceSession, toBody } from './import-source.ts';
import { parseExactJson } from '../core/exact-json.ts';

/** Parameters are `$1`, `$2` and `$3`, which PostgreSQL and SQLite both accept. */
type Query = (text: string, values?: string[]) => Promise<Record<string, string>[]>;

/** A read-only connection to ADK's database. */
interface Connection {
  query: Query;
  close(): Promise<void>;
  /** Returns an SQL expression for the text of a column that holds JSON. */
  toText: (column: string) => string;
  /** SQL after `order by timestamp`: events with the same timestamp keep the order of their insertion. */
  order: string;
}

/**
 * Opens the database of ADK Python's `DatabaseSessionService` (or `SqliteSessionService`), schema 1, on PostgreSQL or
 * SQLite.
 * @throws {CommandError} for any other database; also for schema 0, whose events contain pickled Python objects
 */
export async function openAdkDatabase(place: string): Promise<SessionSource> {
  const connection = /^postgres(ql)?:/.test(place) ? await openPostgres(place) : await openSqlite(place);
  try {
    await checkSchema(connection, place);
    const [row] = await connection.query('select count(*) as total from sessions');
    return {
      name: 'sessions of ADK Python',
      total: Number(row?.['total']),
      sessions: () => readSessions(connection),
      close: () => connection.close(),
    };
  } catch (error) {
    await connection.close();
    throw error;
  }
}

async function checkSchema({ query }: Connection, place: string): Promise<void> {
  const shown = place.replace(/\/\/[^@/]*@/, '//');
  const isAnswered = (text: string) =>
    query(text).then(
      () => true,
      () => false,
    );
  if (!(await isAnswered('select id from events limit 0')))
    throw new CommandError(`${shown} holds no sessions of ADK: there is no table \`events\`.`, 2);
  if (await isAnswered('select event_data from events limit 0')) return;
  throw new CommandError(
    `${shown} was written by ADK 1.x (schema 0), which keeps Python objects in its events. ADK brings it to ` +
      'schema 1: `adk migrate session --source_db_url <this database> --dest_db_url <a new one>`. ' +
      'Then import the new one.',
    2,
  );
}

async function* readSessions(connection: Connection): AsyncGenerator<SourceSession, void, void> {
  const { query, toText } = connection;
  const apps = await readStates(query(`select app_name as id, ${toText('state')} as state from app_states`), 'app:');
  const users = await readStates(
    query(`select app_name || '/' || user_id as id, ${toText('state')} as state from user_states`),
    'user:',
  );
  const rows = await query('select app_name, user_id, id from sessions order by update_time, app_name, user_id, id');
  for (const { app_name: appName = '', user_id: userId = '', id: sessionId = '' } of rows) {
    const shared = [...(apps.get(appName) ?? []), ...(users.get(`${appName}/${userId}`) ?? [])];
    const body = () => readBody(connection, [appName, userId, sessionId], shared);
    yield { appName, userId, sessionId, body };
  }
}

/** All applications' or users' states by owner, as `"key":value` members of JSON. `prefix` is `app:` or `user:`. */
async function readStates(reading: Promise<Record<string, string>[]>, prefix: string): Promise<Map<string, string[]>> {
  const rows = await reading;
  return new Map(rows.map(({ id = '', state = '{}' }) => [id, toMembers(state, prefix)]));
}

const toMembers = (state: string, prefix: string): string[] =>
  Object.entries(parseExactJson(state) as object).map(([name, value]) =>
    [JSON.stringify(prefix + name), JSON.stringify(value)].join(':'),
  );

async function readBody({ query, toText, order }: Connection, key: string[], shared: string[]): Promise<string> {
  const of = 'app_name = $1 and user_id = $2';
  const [session] = await query(`select ${toText('state')} as state from sessions where ${of} and id = $3`, key);
  const events = await query(
    `select ${toText('event_data')} as event from events where ${of} and session_id = $3 order by timestamp${order}`,
    key,
  );
  const state = [...toMembers(session?.['state'] ?? '{}', ''), ...shared];
  return toBody(
    key[2] ?? '',
    `{${state.join(',')}}`,
    events.map(({ event = '{}' }) => event),
  );
}

async function openPostgres(url: string): Promise<Connection> {
  const client = new Client({ connectionString: url, application_name: 'agent-runtime import' });
  await client.connect().catch((error: Error) => {
    throw new CommandError(`The database cannot be reached: ${error.message}.`, 2);
  });
  await client.query('set default_transaction_read_only = on');
  return {
    query: async (text, values) => (await client.query<Record<string, string>>(text, values)).rows,
    close: () => client.end(),
    toText: (column) => `${column}::text`,
    order: '',
  };
}

async function openSqlite(path: string): Promise<Connection> {
  if (!existsSync(path)) throw new CommandError(`There is no file ${path}.`, 2);
  const { DatabaseSync } = await import('node:sqlite');
  const database = new DatabaseSync(path, { readOnly: true });
  return {
    query: async (text, values = []) => database.prepare(text.replaceAll(/\$(\d)/g, '?$1')).all(...values) as never,
    close: async () => database.close(),
    toText: (column) => column,
    order: ', rowid',
  };
}
