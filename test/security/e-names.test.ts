import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { beforeAll, describe, expect, test } from 'vitest';
import { getFunctionResponses, type Part } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import { hostScript } from '../support/agents.ts';
import { testApp } from '../support/app.ts';
import { send } from '../support/edge.ts';
import { startProcess } from '../support/service-process.ts';
import { callPart } from '../support/scripted-model.ts';

/** Names and ids that a URL, a terminal or a later request would read as something else. */

const APP = 'harness_agent';
const app = testApp({ DEV_UI: 'true', CRONJOBS: 'true', WEBHOOKS: 'true', EVALS: 'true' });
const user = (userId: string) => `/apps/${APP}/users/${userId}`;
const session = (userId: string, sessionId: string) => `${user(userId)}/sessions/${sessionId}`;
/** The status of a request whose path goes out as it is: `fetch` would resolve its dots. */
const raw = async (method: string, path: string, body?: unknown) =>
  (await send(Number(new URL(app.url).port), { method, path, headers: { host: new URL(app.url).host }, body })).status;

const DOTS = ['.', '..', 'a/../b', '../a', 'a/.', '%2e%2E', '.%2e', '..\\a', '.. ', '..?a', '..#'];
const UNSEEN = ['a\u007f', 'a\u0080b', 'a\u009f', 'a\u2028', '\u2029a'];
const NAMES = [...DOTS, ...UNSEEN];

const schedule = { type: 'daily', time: '08:00', timezone: 'UTC' };
const invoke = (request: object) => ({ prompt: 'hi', harness_name: 'h', run_agent_request: request });
/** What makes a thing of a name that the body has. */
const makers: [string, string, (name: string) => unknown][] = [
  ['a session', `${user('ann')}/sessions`, (sessionId) => ({ sessionId })],
  ['a fork', `${session('ann', 's')}/fork`, (sessionId) => ({ sessionId })],
  ['a session of a harness', '/harness/invoke', (session_id) => invoke({ user_id: 'ann', session_id })],
  ['a user of a harness', '/harness/invoke', (user_id) => invoke({ user_id, session_id: 's' })],
  ['a session of a cronjob', '/harness/cronjobs', (sessionId) => ({ name: 'n', prompt: 'p', schedule, sessionId })],
  ['the owner of a cronjob', '/harness/cronjobs', (ownerId) => ({ name: 'n', prompt: 'p', schedule, ownerId })],
  ['the owner of a webhook', '/harness/webhooks', (ownerId) => ({ url: 'https://example.com', ownerId })],
  ['an artifact', `${session('ann', 's')}/artifacts`, (filename) => ({ filename, artifact: { text: 'x' } })],
  ['an evaluation set', `/dev/apps/${APP}/eval-sets`, (eval_set_id) => ({ evalSet: { eval_set_id, eval_cases: [] } })],
  [
    'a case of a new set',
    `/dev/apps/${APP}/eval-sets`,
    (evalId) => ({
      evalSet: {
        eval_set_id: 'dots',
        eval_cases: [{ evalId, conversation: [{ userContent: { parts: [{ text: 'hi' }] } }] }],
      },
    }),
  ],
  [
    'a case of a session',
    `/dev/apps/${APP}/eval-sets/dots/add-session`,
    (evalId) => ({ evalId, userId: 'ann', sessionId: 's' }),
  ],
];

test.each(makers)('A3: %s does not get a name that URLs and terminals read as another', async (_what, path, toBody) => {
  const answers = [];
  for (const name of NAMES) answers.push([name, (await app.post(path, toBody(name))).status]);
  expect(answers).toEqual(NAMES.map((name) => [name, 422]));
});

test('A26: no label has such a name, and its value no control characters', async () => {
  await app.post(`${user('ann')}/sessions`, { sessionId: 'labelled' });
  const bodies = [...NAMES.map((name) => ({ [name]: 'x' })), { 'a/../b': 'x' }, ...UNSEEN.map((a) => ({ a }))];
  const answers = [];
  for (const body of bodies)
    answers.push([body, (await app.send('PATCH', `${session('ann', 'labelled')}/labels`, body)).status]);
  expect(answers).toEqual(bodies.map((body) => [body, 422]));
  const usual = { 'a/b.c': '..', '1..2': 'ä😀' };
  expect((await app.send('PATCH', `${session('ann', 'labelled')}/labels`, usual)).body).toEqual(usual);
});

test('A3: a path that makes something names it by the same rule', async () => {
  const answers = [];
  for (const name of ['..', '%2e%2e', 'a%2F..', 'a%C2%85', 'a%7F', 'a%E2%80%A8'])
    for (const path of [session('ann', name), `${user(name)}/sessions`]) answers.push(await raw('POST', path, {}));
  expect(answers).toEqual(answers.map(() => 422));
});

test('A3: usual names stay what they were', async () => {
  const names = ['.env', '..a', 'a..b', 'a.b/c..', '...', 'a/.../b', 'user:dir/a.md', 'a b', 'ä😀', 'x\'"<>|'];
  await app.post(`${user('ann')}/sessions`, { sessionId: 'usual' });
  for (const filename of names) {
    const path = `${session('ann', 'usual')}/artifacts`;
    expect([filename, (await app.post(path, { filename, artifact: { text: 'x' } })).status]).toEqual([filename, 200]);
    expect((await app.get(`${path}/${encodeURIComponent(filename)}`)).status).toBe(200);
    expect((await app.send('DELETE', `${path}/${encodeURIComponent(filename)}`)).status).toBe(200);
  }
});

test('A3: no DELETE answers to a slash at its end, also where dots led there', async () => {
  await app.post(`${user('bob')}/sessions`, { sessionId: 's' });
  await app.post(`${session('bob', 's')}/artifacts`, { filename: 'a', artifact: { text: 'x' } });
  expect(await raw('DELETE', `${session('bob', 's')}/`)).toBe(404);
  expect(await raw('DELETE', `${session('bob', 's')}/artifacts/a/`)).toBe(404);
  expect(await raw('DELETE', `${user('bob')}/`)).toBe(404);
  // As `fetch` sends them for an artifact and for a session of this name.
  expect((await app.send('DELETE', `${session('bob', 's')}/artifacts/..`)).status).toBe(404);
  expect((await app.send('DELETE', `${session('bob', 's')}/artifacts/%2e%2e`)).status).toBe(404);
  expect((await app.send('DELETE', session('bob', '..'))).status).toBe(404);
  expect((await app.get(session('bob', 's'))).status).toBe(200);
  expect((await app.get(`${session('bob', 's')}/artifacts/a`)).status).toBe(200);
  expect((await app.get(`${session('bob', 's')}/`)).status).toBe(200);
});

describe('A3: a model that names a file', () => {
  const save = (name: string) => callPart('save_artifact', { name, text: 'x' });
  const filing = testApp({}, { agents: hostScript([DOTS.map(save), [{ text: 'ok' }]]) });

  test('A3: gets no such name either', async () => {
    await filing.post(`${user('tim')}/sessions`, { sessionId: 's' });
    const newMessage = { role: 'user', parts: [{ text: 'save' }] };
    const harness = { tools: 'save_artifact' };
    const answer = await filing.post('/run', { appName: APP, userId: 'tim', sessionId: 's', newMessage, harness });
    const [, saved] = answer.body as Event[];
    const responses = getFunctionResponses(saved?.content).map(({ response }) => response?.['error']);
    expect(responses).toEqual(DOTS.map(() => expect.stringContaining('The artifact cannot have this name')));
    expect((await filing.get(`${session('tim', 's')}/artifacts`)).body).toEqual([]);
  });
});

describe('what got such a name before', () => {
  const OLD = ['..', 'a/../b', 'a\u007f', 'a\u0085', 'a\u2028'];

  test('A26: is listed by pages, read and deleted', async () => {
    const client = new Client({ connectionString: app.databaseUrl });
    await client.connect();
    for (const id of OLD)
      await client.query(
        `insert into sessions (app_name, user_id, id, labels) values ('${APP}', 'old', $1, '{"a": "b\u0085"}')`,
        [id],
      );
    await client.end();
    const listed: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const page = await app.get(`${user('old')}/sessions?limit=1${cursor && `&cursor=${cursor}`}`);
      listed.push(...(page.body as { id: string }[]).map(({ id }) => id));
      cursor = page.headers.get('x-next-cursor');
    }
    expect(listed.toSorted()).toEqual(OLD.toSorted());
    const labelled = await app.get(`${user('old')}/sessions?label=${encodeURIComponent('a=b\u0085')}`);
    expect(labelled.body).toHaveLength(OLD.length);
    for (const id of OLD) {
      const path = session('old', encodeURIComponent(id));
      const other = encodeURIComponent(id);
      expect([id, await raw('GET', path)]).toEqual([id, 200]);
      expect([id, await raw('GET', `${session('old', 'a%2F..%2Fb')}/diff?other=${other}`)]).not.toEqual([id, 422]);
      if (id !== 'a/../b') expect([id, await raw('DELETE', path)]).toEqual([id, 200]);
    }
  });
});

describe('A19: names of skills', () => {
  const ask = (skills: unknown, sessionId = 's') =>
    app.post('/run', { ...ids, sessionId, newMessage: { role: 'user', parts: [{ text: 'hi' }] }, harness: { skills } });
  const ids = { appName: APP, userId: 'sky' };

  test('A19: are at most 64 of at most 64 characters, in a list and in a text', async () => {
    await app.post(`${user('sky')}/sessions`, { sessionId: 's' });
    const many = Array.from({ length: 65 }, (_, index) => `s${index}`);
    const absurd = 'a,'.repeat(400_000);
    const long = 'x'.repeat(9_000_000);
    const sent = [
      many,
      many.join(','),
      ['x'.repeat(65)],
      'x'.repeat(65),
      absurd,
      absurd.split(',').slice(0, 90_000),
      long,
      [long],
    ];
    const answers = [];
    for (const skills of sent) {
      const { status, text } = await ask(skills);
      answers.push([status, text.length < 10_000]);
    }
    expect(answers).toEqual(sent.map(() => [422, true]));
    const tools = await app.post('/harness/invoke', {
      prompt: 'hi',
      harness_name: 'h',
      run_agent_request: { user_id: 'sky', session_id: 's' },
      harness: { tools: many },
    });
    expect(tools.status).toBe(422);
    expect((await app.get(session('sky', 's'))).body).toMatchObject({ events: [] });
  });

  test('A19: the rest is looked for, and what does not exist is said', async () => {
    await app.post(`${user('sky')}/sessions`, { sessionId: 'rest' });
    for (const skills of [Array.from({ length: 64 }, (_, index) => `s${index}`), ' s0 , s1,', 's0']) {
      const { status, body } = await ask(skills, 'rest');
      expect([status, (body as Event[]).at(-1)?.errorCode]).toEqual([200, 'unknown_skill']);
    }
  });

  test('A19: the text of an error is short, whatever it repeats', async () => {
    await app.post(`${user('sky')}/sessions`, { sessionId: 'errors' });
    const mcp_servers = [{ name: 'm'.repeat(200), url: `https://example.invalid/${'u'.repeat(100_000)}` }];
    const body = { ...ids, sessionId: 'errors', newMessage: { role: 'user', parts: [{ text: 'hi' }] } };
    const events = await app.post('/run', { ...body, harness: { mcp_servers } });
    expect(events.text.length).toBeLessThan(5_000);
    const key = 'k'.repeat(1_000_000);
    const refused = await app.post(`${user('sky')}/sessions`, { events: [{ content: { [key]: 1 } }] });
    expect([refused.status, refused.text.length < 10_000]).toEqual([422, true]);
  });
});

describe('A23: words of users and models on the terminal of an operator', () => {
  /** Fills the clipboard, clears the screen, colours the rest, and turns the direction of writing. */
  const HOSTILE = '\u001b]52;c;bWFs\u0007\u001b[2Ja\u009b31mb\u007f\rc\u202e';
  const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
  const type = (...args: string[]) => {
    const { child, end } = startProcess(process.execPath, [MAIN, '--url', app.url, '--user', 'eve', ...args], {});
    child.stdin?.end('hello\n');
    return end;
  };
  const content = (parts: Part[]) => ({ role: 'model', parts });

  beforeAll(async () => {
    const { text } = { text: `${HOSTILE}\n\tnext line` };
    const calls = [
      { functionCall: { name: HOSTILE, args: { a: HOSTILE } } },
      { functionResponse: { name: HOSTILE, response: {} } },
    ];
    const events = [
      { author: 'user', content: { role: 'user', parts: [{ text }] } },
      { author: HOSTILE, content: content([{ text }, ...calls]), errorCode: HOSTILE, errorMessage: HOSTILE },
    ];
    await app.post(`${user('eve')}/sessions`, { sessionId: 's', events, state: { [HOSTILE]: HOSTILE } });
    await app.post(`${user('eve')}/sessions`, { sessionId: 'other' });
    const client = new Client({ connectionString: app.databaseUrl });
    await client.connect();
    await client.query(`update sessions set labels = $1 where user_id = 'eve'`, [{ a: '\u009b31m' }]);
    await app.post(`${session('eve', 's')}/artifacts`, { filename: 'a', artifact: { text: 'x' } });
    for (const [table, column] of [
      ['artifacts', 'name'],
      ['artifact_versions', 'artifact_name'],
    ])
      await client.query(
        `insert into ${table} select (jsonb_populate_record(t, jsonb_build_object('${column}', $1::text))).*
         from ${table} t where user_id = 'eve' and ${column} = 'a'`,
        [HOSTILE],
      );
    await client.end();
  });

  test.each([
    [['sessions', 'show', 's'], 's'],
    [['sessions', 'list'], 's'],
    [['sessions', 'label', 's'], 'a='],
    [['sessions', 'diff', 's', 'other'], 'state'],
    [['artifacts', 'list', 's'], '31m'],
    [['chat', '--session', 's'], 'next line'],
    [['invoke', '--session', 's', HOSTILE], 'bWFs'],
    [['sessions', 'show', HOSTILE], 'control characters'],
    [['--json', 'sessions', 'show', 's'], 'bWFs'],
    [['--json', 'artifacts', 'list', 's'], '31m'],
  ])('A23: %j shows what a terminal would obey', async (args, word) => {
    const { out, error } = await type(...args);
    expect(out + error).toContain(word);
    // eslint-disable-next-line no-control-regex
    expect((out + error).replaceAll(/[\n\t]/g, '')).not.toMatch(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/u);
    if (args[0] === '--json') expect(JSON.stringify(JSON.parse(out))).toContain('\u009b');
    if (args[1] === 'show' && args[2] === 's')
      expect(out).toContain('\\x1b]52;c;bWFs\\x07\\x1b[2Ja\\u009b31mb\\u007f\\x0dc\\u202e\n\tnext line');
  });
});
