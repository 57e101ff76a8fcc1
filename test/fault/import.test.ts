import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { afterAll, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';
import { isLong } from './support/seed.ts';
import { startProcess } from '../support/service-process.ts';
import { MINUTE } from '../support/patience.ts';

/** An import that is killed in the middle goes on where it ended: nothing twice, nothing missing. */

const SESSIONS = isLong ? 10_000 : 400;
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const SAMPLE = fileURLToPath(new URL('../data/adk-stores/adk-2.7-database.sqlite', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-import-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const app = testApp({ DEV_UI: 'false' });

/** The sample's sessions again and again, each with an id of its own, and so its events. */
function makeStore(): { file: string; events: number } {
  const file = join(folder, 'store.sqlite');
  copyFileSync(SAMPLE, file);
  const store = new DatabaseSync(file);
  const [{ total }] = store.prepare('select count(*) as total from sessions').all() as [{ total: number }];
  store.exec(`
    create temp table copies as
      with recursive copies(n) as (select 1 union all select n + 1 from copies where n < ${SESSIONS / total})
      select n from copies;
    create temp table chosen as
      select s.app_name, s.user_id, s.id, s.id || '-' || c.n as new_id from sessions s cross join copies c
      order by c.n, s.user_id, s.id limit ${SESSIONS - total};
    insert into sessions select s.app_name, s.user_id, c.new_id, s.state, s.create_time, s.update_time
      from chosen c join sessions s using (app_name, user_id, id);
    insert into events select e.id, e.app_name, e.user_id, c.new_id, e.invocation_id, e.timestamp, e.event_data
      from chosen c join events e on e.app_name = c.app_name and e.user_id = c.user_id and e.session_id = c.id;`);
  const [{ events }] = store.prepare('select count(*) as events from events').all() as [{ events: number }];
  store.close();
  return { file, events };
}

test(`an import of ${SESSIONS} sessions is killed in the middle and run again`, async () => {
  const { file, events } = makeStore();
  const database = new Client({ connectionString: app.databaseUrl });
  await database.connect();
  const counts = async () => {
    const { rows } = await database.query<{ sessions: string; events: string; distinct: string }>(
      `select (select count(*) from sessions) as sessions, count(*) as events,
         count(distinct (user_id, session_id, id)) as distinct from events`,
    );
    return rows.map((row) => [Number(row.sessions), Number(row.events), Number(row.distinct)])[0] ?? [];
  };
  const args = [MAIN, '--url', app.url, '--json', 'import', file, '--as', 'harness_agent'];
  const first = startProcess(process.execPath, args, { NODE_NO_WARNINGS: '1' });
  await expect.poll(async () => (await counts())[0] ?? 0, { timeout: 10 * MINUTE }).toBeGreaterThan(SESSIONS / 2);
  first.child.kill('SIGKILL');
  await first.end;
  const [present = 0] = await counts();
  expect(present).toBeLessThan(SESSIONS);

  const second = await startProcess(process.execPath, args, { NODE_NO_WARNINGS: '1' }).end;
  const report = JSON.parse(second.out) as { imported: number; present: number; leftOut: object };
  // The last one before the kill may have been answered to nobody.
  expect(report).toEqual({ imported: SESSIONS - report.present, present: report.present, artifacts: 0, leftOut: {} });
  expect(report.present).toBeGreaterThanOrEqual(present);
  expect(report.present).toBeLessThanOrEqual(present + 1);
  expect(await counts()).toEqual([SESSIONS, events, events]);
  await database.end();
  console.log(
    `import: killed after ${report.present} of ${SESSIONS}, resumed with ${report.imported}; 0 twice, 0 missing`,
  );
});
