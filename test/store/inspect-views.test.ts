import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { testDatabase } from '../support/database.ts';
import { findListings, ROOT } from '../support/listings.ts';
import { EXPECTED, OUTLINES } from './support/inspect-rows.ts';

/** Each view for people: its columns and what they mean, by the rows of a known fixture. */

const database = testDatabase();
let client: Client;
beforeAll(async () => {
  client = new Client({ connectionString: database.url });
  await client.connect();
  await client.query(`set time zone 'UTC'; set agent_runtime.all_users = 'on'`);
  await client.query(readFileSync(new URL('support/inspect-fixture.sql', import.meta.url), 'utf8'));
});
afterAll(() => client.end());

/** Columns that tell a time until now. */
const UNTIL_NOW: Record<string, string[]> = {
  open_invocations: ['age', 'running_for'],
  queue: ['waited'],
  invocations: ['duration'],
};

/** All rows of a view; a time until now is `past`. Without `offset` the row of a cluster's view lacks its names. */
async function rowsOf(schema: string, view: string): Promise<Record<string, unknown>[]> {
  const { rows } = await client.query<{ row: Record<string, unknown> }>(
    `select to_jsonb(v) as row from (select * from ${schema}.${view} offset 0) v
     order by (to_jsonb(v) - $1::text[])::text collate "C"`,
    [UNTIL_NOW[view] ?? []],
  );
  for (const { row } of rows) {
    for (const column of UNTIL_NOW[view] ?? []) {
      if (row['end_time'] == null && /^\d+(?: days? [\d:.]+|:[\d:.]+)$/.test(String(row[column]))) row[column] = 'past';
    }
  }
  return rows.map(({ row }) => row);
}

async function viewsOf(schema: string): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `select relname as name from pg_class where relkind = 'v' and relnamespace = $1::regnamespace order by 1`,
    [schema],
  );
  return rows.map(({ name }) => name);
}

test('every view has a contract here, and a variant without content', async () => {
  expect(await viewsOf('inspect')).toEqual(Object.keys(EXPECTED).toSorted());
  expect(await viewsOf('inspect_outline')).toEqual(Object.keys(EXPECTED).toSorted());
});

test.each(Object.keys(EXPECTED))('inspect.%s', async (view) => {
  expect(await rowsOf('inspect', view)).toEqual(EXPECTED[view]);
});

test.each(Object.keys(EXPECTED))('inspect_outline.%s is the same without content', async (view) => {
  const { without = [], added = [] } = OUTLINES[view] ?? {};
  const rows = (EXPECTED[view] ?? []).map((row, position) => {
    const kept = Object.entries(row).filter(([name]) => !without.includes(name));
    return { ...Object.fromEntries(kept), ...added[position] };
  });
  const found = await rowsOf('inspect_outline', view);
  const sorted = (all: object[]) =>
    all.map((row) => JSON.stringify(Object.entries(row).toSorted(([a], [b]) => (a < b ? -1 : 1)))).toSorted();
  expect(sorted(found)).toEqual(sorted(rows));
});

test('no text of the fixture that somebody said, named or got as an error is in an outline', async () => {
  for (const view of Object.keys(EXPECTED)) {
    const text = JSON.stringify(await rowsOf('inspect_outline', view));
    expect([view, /SECRET/.exec(text)?.[0]]).toEqual([view, undefined]);
  }
  const shown = await Promise.all(Object.keys(EXPECTED).map((view) => rowsOf('inspect', view)));
  expect(JSON.stringify(shown)).toContain('SECRET');
});

test.each(['admin-sql', 'runbook'])('the statements of docs/%s.md find what there is', async (page) => {
  const isOfPage = (one: { page: string; language: string }) =>
    one.page === `docs/${page}.md` && one.language === 'sql';
  const text = findListings()
    .filter(isOfPage)
    .map((one) => one.text)
    .join('\n');
  const statements = text.replaceAll('harness_agent', 'a').replaceAll("'u1'", "'u'").split(/;\n/);
  await client.query('begin');
  // What they look for was today.
  await client.query(`update invocations set create_time = now(), end_time = now() where end_time is not null;
    update eval_session_scores set create_time = now();
    update budget_uses set day = (now() at time zone 'utc')::date;
    update budgets set max_invocations = 0;
    update budget_reservations set expire_time = now() + interval '1 minute'`);
  const empty: string[] = [];
  const found = statements.filter((each) => each.trim() !== '');
  for (const statement of found) {
    const { rowCount } = await client.query(statement);
    // There is no standby here.
    if (rowCount === 0 && !statement.includes('pg_replication_slots')) empty.push(statement);
  }
  await client.query('rollback');
  expect(found.length).toBeGreaterThan(10);
  expect(empty).toEqual([]);
});

describe('docs/inspect-columns.txt, the contract of the views', () => {
  const PAGE = 'docs/inspect-columns.txt';
  const linesOf = (page: string) => page.trim().split('\n');
  const promised = linesOf(readFileSync(`${ROOT}${PAGE}`, 'utf8'));
  /** What was promised and is not there; a new version may leave things out, and its first line says so. */
  const findBroken = ([was = '', ...before]: string[], [is = '', ...now]: string[]) =>
    was === is ? before.filter((line) => !now.includes(line)) : [];

  test('has the version and every column with its type; new columns are written at their place', async () => {
    const { rows } = await client.query<{ line: string }>(
      `select format('%s.%s.%s %s', n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod)) as line
       from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
       where n.nspname in ('inspect', 'inspect_outline') and c.relkind = 'v' and a.attnum > 0`,
    );
    const version = (await client.query<{ version: number }>('select version from inspect.version')).rows[0]?.version;
    const found = [`version ${version}`, ...rows.map(({ line }) => line).toSorted()];
    const hint = 'A column is gone or has another type: put it back, or raise inspect.version and the first line.';
    expect([hint, findBroken(promised, found)]).toEqual([hint, []]);
    expect(promised).toEqual(found);
  });

  test('keeps what the last tag had, or has another version', () => {
    const git = (...args: string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' });
    const last = process.env['PREVIOUS_REF'] ?? git('tag', '--list', '--sort=-creatordate').split('\n')[0];
    const before = last ? linesOf(git('show', `${last}:${PAGE}`)) : promised;
    expect(findBroken(before, promised)).toEqual([]);
  });

  test('a column that is dropped, renamed or retyped breaks it; one more does not, nor does another version', () => {
    const before = ['version 1', 'v.a text', 'v.b bigint'];
    expect(findBroken(before, ['version 1', 'v.a text', 'v.b bigint', 'v.c text'])).toEqual([]);
    expect(findBroken(before, ['version 1', 'v.a text'])).toEqual(['v.b bigint']);
    expect(findBroken(before, ['version 1', 'v.a text', 'v.b2 bigint'])).toEqual(['v.b bigint']);
    expect(findBroken(before, ['version 1', 'v.a text', 'v.b text'])).toEqual(['v.b bigint']);
    expect(findBroken(before, ['version 2', 'v.a text'])).toEqual([]);
  });
});

describe('the roles for people, which the migrator makes', () => {
  const readable = async (role: string, schema: string) => {
    await client.query(`set role ${role}`);
    try {
      for (const view of Object.keys(EXPECTED)) await client.query(`select from ${schema}.${view}`);
      return true;
    } catch (error) {
      return (error as Error).message;
    } finally {
      await client.query('reset role');
    }
  };
  const REFUSED = 'permission denied for schema';

  test('agent_runtime_reader reads inspect; agent_runtime_outline_reader the outlines; neither a table', async () => {
    const [reader, outline] = ['agent_runtime_reader', 'agent_runtime_outline_reader'];
    expect(await readable(reader, 'inspect')).toBe(true);
    expect(await readable(reader, 'inspect_outline')).toBe(`${REFUSED} inspect_outline`);
    expect(await readable(outline, 'inspect_outline')).toBe(true);
    expect(await readable(outline, 'inspect')).toBe(`${REFUSED} inspect`);
    for (const role of [reader, outline]) {
      const { rows } = await client.query(
        `select c.oid::regclass::text from pg_class c
         where relkind = 'r' and relnamespace = 'public'::regnamespace
           and has_table_privilege($1, c.oid, 'select, insert, update, delete, truncate')`,
        [role],
      );
      expect([role, rows]).toEqual([role, []]);
    }
  });

  test('they cannot log in until an operator lets them, and see all users when they do', async () => {
    const { rows } = await client.query(
      `select rolname as role, rolcanlogin as logs, rolconfig as config from pg_roles
       where rolname in ('agent_runtime_reader', 'agent_runtime_outline_reader') order by 1`,
    );
    const config = ['agent_runtime.all_users=on'];
    expect(rows).toEqual([
      { role: 'agent_runtime_outline_reader', logs: false, config },
      { role: 'agent_runtime_reader', logs: false, config },
    ]);
  });
});
