import { DrizzleQueryError } from 'drizzle-orm';
import { DatabaseError } from 'pg';
import { expect, test } from 'vitest';
import { createLog } from '../../../src/platform/log.ts';

/** A log and the lines that it wrote. */
function openLog() {
  const lines: Record<string, unknown>[] = [];
  const log = createLog('warn', { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) });
  return { log, lines };
}

/** What drizzle throws around an error of the driver. */
const failed = (code: string, message: string) =>
  Object.assign(new Error('Failed query: select secret', { cause: databaseError(code, message) }), { query: 'select' });
const databaseError = (code: string, message: string) =>
  Object.assign(new DatabaseError(message, message.length, 'error'), { code, severity: 'FATAL' });

test.each([
  ['08006', 'connection failure'],
  ['28P01', 'password authentication failed for user "u"'],
  ['3D000', 'database "x" does not exist'],
  ['53300', 'sorry, too many clients already'],
  ['57P01', 'terminating connection due to administrator command'],
])('why a database cannot be used is said: %s', (code, reason) => {
  const { log, lines } = openLog();
  log.warn({ err: failed(code, reason) }, 'request failed');
  expect(lines).toMatchObject([{ msg: 'request failed', err: { code, reason } }]);
  expect(JSON.stringify(lines)).not.toContain('secret');
});

test('what else PostgreSQL says may quote values, and is not said', () => {
  const { log, lines } = openLog();
  log.warn({ err: failed('23505', 'Key (id)=(secret) already exists.') }, 'request failed');
  expect(lines).toMatchObject([{ err: { code: '23505' } }]);
  expect(JSON.stringify(lines)).not.toContain('secret');
});

test.each([
  [`select * from create_session(p_app => $1) as t where 'secret' = $2`, 'create_session'],
  ['select extract(epoch from "s"."time"), 1 is distinct from 2 from "sessions" "s"', 'sessions'],
  ['insert into "events" ("id") values ($1)', 'events'],
  ['with "x" as (update "cronjobs" set "name" = $1 returning 1) select from "x"', 'cronjobs'],
  ['delete from "app"."holds" where "id" = $1', 'holds'],
  ['select assert_session_size($1)', 'assert_session_size'],
  ['secret', undefined],
])('a statement that fails is known by its function or table alone: %s', (query, statement) => {
  const { log, lines } = openLog();
  const cause = databaseError('23505', 'Key (id)=(secret) already exists.');
  log.error({ err: new DrizzleQueryError(query, ['secret'], cause) }, 'request failed');
  const [{ err } = {}] = lines as { err?: object }[];
  expect(err).toMatchObject({ code: '23505' });
  expect((err as { statement?: string }).statement).toBe(statement);
  expect(JSON.stringify(lines)).not.toContain('secret');
});

test('one reason is one line a second, with the count of those that were left out; others go on', async () => {
  const { log, lines } = openLog();
  const error = new Error('Connection terminated unexpectedly');
  for (let n = 0; n < 50; n++) log.warn({ err: error }, 'notifications broke');
  log.warn({ err: failed('57P01', 'terminating connection') }, 'notifications broke');
  log.error({ reason: 'another', route: '/x' }, 'request failed');
  log.error({ err: new TypeError('a bug') }, 'invocation failed');
  log.error({ err: new TypeError('a bug') }, 'invocation failed');
  expect(lines).toHaveLength(5);
  await expect.poll(() => lines.length).toBe(6);
  expect(lines.at(-1)).toMatchObject({ msg: 'notifications broke', err: { reason: error.message }, repeated: 49 });
});

test('the line of many failures names their requests, a hundred at most', async () => {
  const { log, lines } = openLog();
  for (let n = 0; n < 150; n++) log.error({ requestId: `r${n}`, reason: 'away' }, 'request failed');
  await expect.poll(() => lines.length).toBe(2);
  const requestIds = Array.from({ length: 100 }, (_, n) => `r${n + 1}`);
  expect(lines).toMatchObject([{ requestId: 'r0' }, { requestId: 'r149', repeated: 149, requestIds }]);
});
