import { cpSync, globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { afterAll, describe, expect, test } from 'vitest';
import { startProcess } from '../support/service-process.ts';
import { testApp } from '../support/app.ts';
import { createEmptyDatabase } from '../support/database.ts';

/**
 * Stores written by the real ADK Python 2.7.1 (test/data/adk-stores/README.md), or those of the folder that
 * `ADK_STORES` names: over HTTP every session is what ADK's own store answered.
 */

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const folder = process.env['ADK_STORES'] ?? fileURLToPath(new URL('../data/adk-stores', import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), 'agent-runtime-import-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

type Session = Record<string, unknown> & { id: string; userId: string; events: Record<string, unknown>[] };
interface Expected {
  app: string;
  sessions: Record<string, Session>;
}
const stores = globSync('*.expected.json', { cwd: folder })
  .toSorted()
  .map((name) => name.replace('.expected.json', ''));
const pathOf = ({ userId, id }: Session) =>
  `/apps/harness_agent/users/${encodeURIComponent(userId)}/sessions/${encodeURIComponent(id)}`;

/**
 * What differs from the store's own answer, each with its reason.
 * - `lastUpdateTime`: when the session was last written here, the import included. It never goes back, and clients that
 *   ask with `updatedAfter` for what is new must find what was imported since.
 */
const DIFFERENCES = ({ lastUpdateTime }: Session) => ({ lastUpdateTime });

/** An SQL dump is loaded into a database of its own; a file is a source as it is. */
async function toSource(store: string): Promise<{ place: string; drop: () => Promise<void> }> {
  const file = join(folder, store);
  if (!file.endsWith('.sql')) return { place: file, drop: async () => undefined };
  const database = await createEmptyDatabase();
  const client = new Client({ connectionString: database.url });
  await client.connect();
  await client.query(readFileSync(file, 'utf8'));
  await client.end();
  return { place: database.url, drop: () => database.drop() };
}

const importInto = async (url: string, ...args: string[]) => {
  const { code, out, error } = await startProcess(process.execPath, [MAIN, '--url', url, 'import', ...args], {
    NODE_NO_WARNINGS: '1',
  }).end;
  return { code, out, error };
};

describe.each(stores)('%s', (store) => {
  const app = testApp();
  const { sessions } = JSON.parse(readFileSync(join(folder, `${store}.expected.json`), 'utf8')) as Expected;
  const expected = Object.entries(sessions).map(([key, session]) => ({ ...session, userId: key.split('|')[0] ?? '' }));
  const as = ['--as', 'harness_agent'];

  test('a dry run writes nothing; sessions are what the store answered; a second run finds them all', async () => {
    const source = await toSource(store);
    const count = expected.length;
    const line = (imported: number, present: number, verb = 'imported') =>
      `sessions of ADK Python: ${imported} ${verb}, ${present} were there, 0 versions of artifacts.\n`;
    expect(await importInto(app.url, source.place, ...as, '--dry-run')).toEqual({
      code: 0,
      out: line(count, 0, 'would be imported'),
      error: '',
    });
    expect(await importInto(app.url, source.place, ...as)).toEqual({ code: 0, out: line(count, 0), error: '' });
    for (const session of expected as Session[]) {
      const { status, body } = await app.get(pathOf(session));
      expect([status, body]).toEqual([200, { ...session, ...DIFFERENCES(body as Session), appName: 'harness_agent' }]);
    }
    expect(await importInto(app.url, source.place, ...as)).toEqual({ code: 0, out: line(0, count), error: '' });
    await source.drop();
  });
});

describe('other sources', () => {
  const app = testApp({ DEV_UI: 'true' });
  const file = (name: string, text: string) => {
    writeFileSync(join(scratch, name), text);
    return join(scratch, name);
  };

  test('what export has written, and another server; the reason stands where one is left out', async () => {
    const event = {
      id: 'e1',
      invocationId: 'i1',
      author: 'user',
      timestamp: 1,
      content: { role: 'user', parts: [{ text: 'Hi' }] },
    };
    const session = { id: 's1', appName: 'harness_agent', userId: 'u1', state: { a: 1 }, events: [event] };
    const wrong = { id: 's2', appName: 'nowhere', userId: 'u1', state: {}, events: [] };
    const lines = file('sessions.jsonl', `${JSON.stringify(session)}\n${JSON.stringify(wrong)}\n`);
    expect(await importInto(app.url, lines)).toEqual({
      code: 1,
      out:
        `sessions of ${lines}: 1 imported, 0 were there, 0 versions of artifacts.\n` +
        'Left out: nowhere/u1/s2: App not found: nowhere\n',
      error: '',
    });
    // The service is its own source here: what it holds is there already.
    expect(await importInto(app.url, app.url, '--users', 'u1')).toMatchObject({
      code: 0,
      out: `sessions of u1 at ${app.url}: 0 imported, 1 were there, 0 versions of artifacts.\n`,
    });
    const { body } = await app.get('/apps/harness_agent/users/u1/sessions/s1');
    expect(body).toMatchObject({ state: { a: 1 }, events: [event] });
  });

  test('artifacts of the file service, both of a session and of its user, each version once', async () => {
    const session = { id: 's3', appName: 'harness_agent', userId: 'u1', state: {}, events: [] };
    const lines = file('one.jsonl', JSON.stringify(session));
    const user = join(scratch, 'files/apps/harness_agent/users/u1');
    const version = (path: string, n: number, bytes: string, mimeType: string | null) => {
      const place = join(user, path, 'versions', String(n));
      mkdirSync(place, { recursive: true });
      writeFileSync(join(place, path.split('/').at(-1) ?? ''), bytes);
      writeFileSync(
        join(place, 'metadata.json'),
        JSON.stringify({ fileName: path, mimeType, version: n, customMetadata: { n } }),
      );
    };
    version('sessions/s3/artifacts/images/photo.png', 0, 'one', 'image/png');
    version('sessions/s3/artifacts/images/photo.png', 1, 'two', 'image/png');
    version('artifacts/note.txt', 0, 'text', null);
    const args = [lines, '--artifacts', join(scratch, 'files')];
    expect(await importInto(app.url, ...args)).toMatchObject({
      code: 0,
      out: expect.stringContaining(' 3 versions of'),
    });
    expect(await importInto(app.url, ...args)).toMatchObject({
      code: 0,
      out: expect.stringContaining(' 0 versions of'),
    });
    const artifacts = '/apps/harness_agent/users/u1/sessions/s3/artifacts';
    expect((await app.get(artifacts)).body).toEqual(['images/photo.png', 'user:note.txt']);
    expect((await app.get(`${artifacts}/images%2Fphoto.png?version=1`)).body).toEqual({
      inlineData: { mimeType: 'image/png', data: Buffer.from('two').toString('base64') },
    });
    expect((await app.get(`${artifacts}/user:note.txt`)).body).toEqual({ text: 'text' });
  });

  test('an evaluation set', async () => {
    const turn = { user_content: { parts: [{ text: 'Hi' }] } };
    const set = { eval_set_id: 'kept', eval_cases: [{ eval_id: 'c1', conversation: [turn] }] };
    expect(await importInto(app.url, file('kept.evalset.json', JSON.stringify(set)))).toEqual({
      code: 0,
      out: 'Evaluation set kept: 1 case imported. Run it: agent-runtime eval run kept\n',
      error: '',
    });
    expect((await app.get('/dev/apps/harness_agent/eval_sets/kept/evals')).body).toEqual(['c1']);
  });

  test('what cannot be read is exit code 2, with the reason', async () => {
    const old = join(scratch, 'old.sqlite');
    const database = new DatabaseSync(old);
    database.exec('create table sessions (id text); create table events (id text, actions blob)');
    database.close();
    const empty = join(scratch, 'empty.sqlite');
    new DatabaseSync(empty).exec('create table other (id text)');
    cpSync(empty, join(scratch, 'copy.sqlite'));
    for (const [place, reason] of [
      [
        old,
        `${old} was written by ADK 1.x (schema 0), which keeps Python objects in its events. ADK brings it to ` +
          'schema 1: `adk migrate session --source_db_url <this database> --dest_db_url <a new one>`. ' +
          'Then import the new one.',
      ],
      [empty, `${empty} holds no sessions of ADK: there is no table \`events\`.`],
      [join(scratch, 'nowhere'), `There is no file ${join(scratch, 'nowhere')} that can be read.`],
      [
        file('none.jsonl', 'x\n'),
        `${join(scratch, 'none.jsonl')}:1: this is no session; \`sessions export\` writes one a line.`,
      ],
    ] as const)
      expect(await importInto(app.url, place)).toEqual({ code: 2, out: '', error: `${reason}\n` });
  });
});
