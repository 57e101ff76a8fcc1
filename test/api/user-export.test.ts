import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { afterAll, expect, test } from 'vitest';
import { type TestApp, testApp } from '../support/app.ts';
import { startProcess } from '../support/service-process.ts';

/** All data of a user goes from one service to another, and is the same bytes over HTTP there. */

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const settings = { CRONJOBS: 'true', WEBHOOKS: 'true', TOOLS: 'calculator' };
const [here, there] = [testApp(settings), testApp(settings)];
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-export-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const USER = '/apps/harness_agent/users/u%C3%A41';
const content = (text: string) => ({ role: 'user', parts: [{ text }] });

async function ask(app: TestApp, method: string, path: string, body?: object | string): Promise<string> {
  const answer = await app.send(method, path, body);
  expect([path, answer.status < 300, answer.text]).toEqual([path, true, answer.text]);
  return answer.text;
}

const type = async (app: TestApp, ...args: string[]) => {
  const { code, out, error } = await startProcess(process.execPath, [MAIN, '--url', app.url, ...args], {}).end;
  return { code, out, error };
};

async function fill(app: TestApp): Promise<void> {
  const state = { 'user:likes': 'tea', big: '1.10', nul: 'a\u0000b' };
  await ask(app, 'POST', `${USER}/sessions`, { sessionId: 's1', state });
  // A number keeps its digits, whatever they are.
  const delta = '{"author":"user","actions":{"stateDelta":{"n":12345678901234567890.10}}}';
  await ask(app, 'POST', `${USER}/sessions/s1/events`, delta);
  const prompt = 'What is 17 * 23? Use the calculator.';
  const run = { appName: 'harness_agent', userId: 'uä1', sessionId: 's1', newMessage: content(prompt) };
  await ask(app, 'POST', '/run', run);
  const events = Array.from({ length: 230 }, (_, n) => ({ author: 'user', content: content(`line ${n}`) }));
  await ask(app, 'POST', `${USER}/sessions`, { sessionId: 's2', events });
  for (const text of ['first', 'second'])
    await ask(app, 'POST', `${USER}/sessions/s1/artifacts`, { filename: 'a/b.txt', artifact: { text } });
  const data = Buffer.from([0, 255, 10, 13]).toString('base64');
  const artifact = { inlineData: { mimeType: 'application/octet-stream', data } };
  await ask(app, 'POST', `${USER}/sessions/s1/artifacts`, { filename: 'user:bytes', artifact });
  await ask(app, 'PATCH', `${USER}/memory`, { sessionId: 's2' });
  const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
  await ask(app, 'POST', '/harness/webhooks', { ownerId: 'uä1', url: 'https://hook.example/' });
  await ask(app, 'POST', '/harness/cronjobs', {
    ownerId: 'uä1',
    name: 'n',
    prompt: 'p',
    schedule,
    webhookUrl: 'https://hook.example/',
  });
}

const SAME = [
  `${USER}/sessions`,
  `${USER}/sessions/s1`,
  `${USER}/sessions/s2`,
  `${USER}/sessions/s1/events?limit=3`,
  `${USER}/sessions/s1/invocations`,
  `${USER}/sessions/s1/artifacts`,
  `${USER}/sessions/s1/artifacts/a%2Fb.txt/versions`,
  `${USER}/sessions/s1/artifacts/a%2Fb.txt/versions/0`,
  `${USER}/sessions/s1/artifacts/user:bytes`,
  `${USER}/sessions/s1/artifacts/user:bytes/versions/0/metadata`,
  `${USER}/memory?query=line`,
];

const bytesOf = async (app: TestApp) =>
  Object.fromEntries(
    await Promise.all(SAME.map(async (path) => [path, (await app.get(path)).text.replaceAll(/"score":[\d.]+/g, '')])),
  ) as Record<string, string>;

test('an export that is imported elsewhere is the same bytes over HTTP', async () => {
  await fill(here);
  const exported = await type(here, 'users', 'export', 'uä1');
  expect([exported.code, exported.error]).toEqual([0, '']);
  const file = join(folder, 'user.jsonl');
  writeFileSync(file, exported.out);
  const rows = exported.out.trim().split('\n').length - 2;
  expect(exported.out.trim().split('\n').at(-1)).toBe(JSON.stringify({ kind: 'end', lines: rows }));
  expect(rows).toBeGreaterThan(480);

  expect((await type(there, 'import', file, '--dry-run')).out).toBe(`${file}: ${rows} rows would be imported.\n`);
  const line = (imported: number, present: number) => ({
    code: 0,
    out: `${file}: ${imported} rows imported, ${present} were there.\n`,
    error: '',
  });
  expect(await type(there, 'import', file)).toEqual(line(rows, 0));
  expect(await bytesOf(there)).toEqual(await bytesOf(here));
  expect(await type(there, 'import', file)).toEqual(line(0, rows));

  // Exported again it is the same, but for what must not go on there, and what only the runtime says.
  const again = await ask(there, 'GET', `${USER}/export`);
  const isPlain = (text: string) => !text.startsWith('{"table":"cronjobs"');
  const plain = (text: string) =>
    text
      .split('\n')
      .filter(isPlain)
      .map((each) => each.replaceAll(/"(?:event_bytes|bytes|is_from_runtime|lease_[a-z_]+|is_silent)" : [^,}]*/g, ''));
  expect(plain(again)).toEqual(plain(exported.out));
  const { body } = await there.get('/harness/cronjobs?ownerId=u%C3%A41');
  expect(body).toMatchObject({ items: [{ name: 'n', enabled: false, disabledReason: 'imported' }] });

  // The session goes on there.
  const run = { appName: 'harness_agent', userId: 'uä1', sessionId: 's1', newMessage: content('hello') };
  await ask(there, 'POST', '/run', run);
});

test('what ran when it was exported does not run where it is imported', async () => {
  await ask(here, 'POST', '/apps/harness_agent/users/u2/sessions', { sessionId: 's1' });
  const client = new Client({ connectionString: here.databaseUrl });
  await client.connect();
  await client.query(`
    update sessions set lease_token = gen_random_uuid() where user_id = 'u2';
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time)
    select app_name, user_id, id, 'e-1', 'running', lease_token, clock_timestamp() + interval '1 hour'
    from sessions where user_id = 'u2';
    insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, request)
    values ('harness_agent', 'u2', 's1', 'e-2', 'queued', gen_random_uuid(), 'infinity', '{}')`);
  const lines = await ask(here, 'GET', '/apps/harness_agent/users/u2/export');
  await client.query(`delete from sessions where user_id = 'u2'`);
  await client.end();
  await there.post('/apps/harness_agent/users/u2/import', lines, { 'content-type': 'application/x-ndjson' });
  const { body } = await there.get('/apps/harness_agent/users/u2/sessions/s1/invocations');
  expect((body as { status: string }[]).map(({ status }) => status)).toEqual(['interrupted', 'interrupted']);
  const run = { appName: 'harness_agent', userId: 'u2', sessionId: 's1', newMessage: content('hello') };
  await ask(there, 'POST', '/run', run);
});

test('a file that was cut off is imported as far as it goes, and said to be; a strange line is named', async () => {
  const file = join(folder, 'cut.jsonl');
  const lines = readFileSync(join(folder, 'user.jsonl'), 'utf8').split('\n').slice(0, 3);
  writeFileSync(file, lines.join('\n'));
  const cut = await type(there, 'import', file);
  expect([cut.code, cut.error]).toEqual([1, `${file} has 2 rows of 0: it was cut off.\n`]);
  for (const line of ['no JSON', 'null', '12', '{"table":"model_prices","row":{}}', '{"table":"sessions"}']) {
    const { status, body } = await there.post(`${USER}/import`, line, { 'content-type': 'application/x-ndjson' });
    expect([status, body]).toEqual([400, { detail: 'Line 1 is none of an export of a user.' }]);
  }
});

test('an export of another format is refused with what to do, and nothing of it is kept', async () => {
  const lines = readFileSync(join(folder, 'user.jsonl'), 'utf8').replace('"version":2', '"version":1');
  const before = await there.get(`${USER}/sessions`);
  const { status, body } = await there.post(`${USER}/import`, lines, { 'content-type': 'application/x-ndjson' });
  expect([status, body]).toEqual([
    400,
    {
      detail:
        'Line 1: the export has the format 1, and this service reads 2. Import it with the release that wrote it, or ' +
        'export again with this one.',
    },
  ]);
  expect((await there.get(`${USER}/sessions`)).text).toBe(before.text);
});

test('a row that its table does not take is named by its lines, and nothing of the request is kept', async () => {
  const lines = readFileSync(join(folder, 'user.jsonl'), 'utf8').split('\n');
  const line = (table: string, members: object) => {
    const { row } = JSON.parse(lines.find((each) => each.startsWith(`{"table":"${table}"`)) ?? '{}') as { row: object };
    return JSON.stringify({ table, row: { ...row, ...members } });
  };
  const good = line('sessions', { id: 's9' });
  const [path, headers] = ['/apps/harness_agent/users/u9/import', { 'content-type': 'application/x-ndjson' }] as const;
  for (const bad of [
    line('sessions', { last_sequence: 'x' }),
    line('sessions', { labels: { a: 86 } }),
    line('sessions', { last_sequence: 1e300 }),
    line('sessions', { create_time: null }),
    line('sessions', { id: 'x'.repeat(300_000) }),
    line('sessions', { create_time: 'never' }),
    line('sessions', { create_time: 'infinity' }),
    line('sessions', { update_time: '290000-01-01T00:00:00Z' }),
    line('events', { session_id: 'nobody' }),
    line('memories', { search_vector: "'" }),
    JSON.stringify({ table: 'artifact_versions', row: {}, content: 12 }),
  ]) {
    const { status, body } = await there.post(path, `${good}\n${bad}`, headers);
    expect([bad.slice(0, 200), status, body]).toEqual([
      bad.slice(0, 200),
      400,
      { detail: expect.stringMatching(/^Lines? [12]/) },
    ]);
  }
  expect((await there.get('/apps/harness_agent/users/u9/sessions')).body).toEqual([]);
  expect((await there.post(path, good, headers)).body).toEqual({ imported: 1, present: 0 });
});
