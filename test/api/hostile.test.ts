import { Client } from 'pg';
import { expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

/** Hostile input to each operation: the right status and body, nothing stored, no 5xx. */

const app = testApp();
const long = 'x'.repeat(5_000);
const deep = `${'['.repeat(1_000)}${']'.repeat(1_000)}`;
const sessions = '/apps/harness_agent/users/u/sessions';
const artifacts = `${sessions}/s/artifacts`;
const addSession = '/dev/apps/harness_agent/eval-sets/e/add-session';
const evals = (evalSetId: string) => `/dev/apps/harness_agent/eval_sets/${evalSetId}/evals`;
const metadata = (name: string, version: string) => `${artifacts}/${name}/versions/${version}/metadata`;

interface Case {
  name: string;
  method: string;
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
  status: number;
}
const get = (name: string, path: string, status: number): Case => ({ name, method: 'GET', path, status });
const post = (name: string, path: string, body: unknown, status: number, type?: string): Case => ({
  name,
  method: 'POST',
  path,
  body,
  status,
  ...(type === undefined ? {} : { headers: { 'content-type': type } }),
});

/** What may be wrong with any JSON body; `valid` is a body that would be accepted. */
const bodies = (path: string, valid: Record<string, unknown>): Case[] => [
  post('body is cut', path, '{"a":', 422),
  post('body is no JSON', path, 'hello', 422),
  post('body is an array', path, [], 422),
  post('body is a string', path, '"text"', 422),
  post('body is a number', path, '1', 422),
  post('body is text/plain', path, JSON.stringify(valid), 415, 'text/plain'),
  post('body is a form', path, 'a=b', 415, 'application/x-www-form-urlencoded'),
  post('body has no such charset', path, JSON.stringify(valid), 415, 'application/json; charset=utf-16'),
  post('body is too large', path, JSON.stringify({ ...valid, more: 'x'.repeat(11_000_000) }), 413),
  post('body is 1,000 deep', path, `{"more":${deep}}`, 422),
  post('body has a number beyond all numbers', path, `{"more":1e400}`, 422),
];

const invoke = { prompt: 'p', harness_name: 'h', run_agent_request: { user_id: 'u', session_id: 's' } };
const invokeAs = (more: Record<string, unknown>) => ({ ...invoke, ...more });
const request = (more: Record<string, unknown>) => ({
  ...invoke,
  run_agent_request: { ...invoke.run_agent_request, ...more },
});
const add = { evalId: 'c', sessionId: 's', userId: 'u' };
const saved = { filename: 'f', artifact: { text: 'x' } };

const cases: Case[] = [
  get('user id is NUL', '/apps/harness_agent/users/%00/sessions', 422),
  get('user id has a control character', '/apps/harness_agent/users/a%0Ab/sessions', 422),
  get('user id is too long', `/apps/harness_agent/users/${long}/sessions`, 422),
  get('user id is too many bytes', `/apps/harness_agent/users/${encodeURIComponent('𝕏'.repeat(200))}/sessions`, 422),
  get('user id is no UTF-8', '/apps/harness_agent/users/%ff/sessions', 400),
  get('user id is half an escape', '/apps/harness_agent/users/%E0%A4%A/sessions', 400),
  get('user id is SQL', `/apps/harness_agent/users/${encodeURIComponent("' or 1=1 --")}/sessions`, 200),
  get('user id is __proto__', '/apps/harness_agent/users/__proto__/sessions', 200),
  get('user id is a path', '/apps/harness_agent/users/..%2F..%2Fetc/sessions', 200),
  get('session id is NUL', `${sessions}/%00`, 422),
  get('session id is too long', `${sessions}/${long}`, 422),
  get('session id is __proto__', `${sessions}/__proto__`, 404),
  get('session id is SQL', `${sessions}/${encodeURIComponent("'; drop table events; --")}`, 404),
  get('session id is a lone escape', `${sessions}/%`, 400),
  get('session id is empty', `${sessions}/`, 200),
  get('version is a word', metadata('a', 'abc'), 422),
  get('version is a fraction', metadata('a', '1.5'), 422),
  get('version has an exponent', metadata('a', '1e2'), 422),
  get('version is hexadecimal', metadata('a', '0x10'), 422),
  get('version is negative', metadata('a', '-1'), 404),
  get('version has 20 digits', metadata('a', '99999999999999999999'), 404),
  get('version is over integer', metadata('a', '2147483648'), 404),
  get('version is NUL', metadata('a', '%00'), 422),
  get('artifact name is NUL', metadata('%00', '0'), 422),
  get('artifact name is too long', metadata(long, '0'), 422),
  get('artifact name climbs', metadata('..%2F..%2Fpasswd', '0'), 404),
  get('artifact name is __proto__', metadata('__proto__', '0'), 404),
  get('evaluation set is NUL', evals('%00'), 422),
  get('evaluation set is too long', evals(long), 422),
  get('evaluation set is __proto__', evals('__proto__'), 404),
  get('evaluation set is SQL', evals(encodeURIComponent("' or ''='")), 404),

  ...bodies('/harness/invoke', invoke),
  post('invoke: nothing', '/harness/invoke', undefined, 422),
  post('invoke: null', '/harness/invoke', 'null', 422),
  post('invoke: empty', '/harness/invoke', {}, 422),
  post('invoke: prompt is a number', '/harness/invoke', invokeAs({ prompt: 1 }), 422),
  post('invoke: prompt is null', '/harness/invoke', invokeAs({ prompt: null }), 422),
  post('invoke: name is a list', '/harness/invoke', invokeAs({ harness_name: ['h'] }), 422),
  post('invoke: request is text', '/harness/invoke', invokeAs({ run_agent_request: 'a' }), 422),
  post('invoke: camelCase', '/harness/invoke', invokeAs({ run_agent_request: { userId: 'u', sessionId: 's' } }), 422),
  post('invoke: user id is empty', '/harness/invoke', request({ user_id: '' }), 422),
  post('invoke: user id is NUL', '/harness/invoke', request({ user_id: '\u0000' }), 422),
  post('invoke: session id is a lone surrogate', '/harness/invoke', request({ session_id: '\ud800' }), 422),
  post('invoke: session id is too long', '/harness/invoke', request({ session_id: long }), 422),
  post('invoke: session id is too many bytes', '/harness/invoke', request({ session_id: '𝕏'.repeat(200) }), 422),
  post('invoke: limit is 0', '/harness/invoke', request({ max_llm_calls: 0 }), 422),
  post('invoke: limit is a fraction', '/harness/invoke', request({ max_llm_calls: 1.5 }), 422),
  post('invoke: limit is text', '/harness/invoke', request({ max_llm_calls: '5 calls' }), 422),
  post('invoke: harness is a list', '/harness/invoke', invokeAs({ harness: [] }), 422),
  post('invoke: tools is a number', '/harness/invoke', invokeAs({ harness: { tools: 1 } }), 422),
  post('invoke: servers is an object', '/harness/invoke', invokeAs({ harness: { mcp_servers: {} } }), 422),

  post(
    'run: notes that all events would repeat',
    '/run',
    {
      appName: 'harness_agent',
      userId: 'u',
      sessionId: 's',
      newMessage: { role: 'user', parts: [{ text: 'Hello' }] },
      customMetadata: { note: 'x'.repeat(16_384) },
    },
    413,
  ),

  ...bodies(addSession, add),
  post('add: nothing', addSession, undefined, 422),
  post('add: empty', addSession, {}, 422),
  post('add: case id is a number', addSession, { ...add, evalId: 1 }, 422),
  post('add: case id is null', addSession, { ...add, evalId: null }, 422),
  post('add: case id is NUL', addSession, { ...add, evalId: '\u0000' }, 422),
  post('add: case id is too long', addSession, { ...add, evalId: long }, 422),
  post('add: session is absent', addSession, add, 404),
  post('add: user id is a list', addSession, { ...add, userId: ['u'] }, 422),
  post('add: set is NUL', addSession.replace('/e/', '/%00/'), add, 422),

  ...bodies(sessions, {}),
  post('create: state is a list', sessions, { state: [] }, 422),
  post('create: events is an object', sessions, { events: {} }, 422),
  post('create: an event is text', sessions, { events: ['x'] }, 422),
  post('create: an event id is too long', sessions, { events: [{ id: long }] }, 422),
  post('create: content is text', sessions, { events: [{ content: 'x' }] }, 422),
  post('create: timestamp is text', sessions, { events: [{ timestamp: 'now' }] }, 422),
  post('create: id is too long', sessions, { sessionId: long }, 422),
  post('create: id is NUL', sessions, { sessionId: 'a\u0000b' }, 422),
  post('create: user id is NUL', '/apps/harness_agent/users/%00/sessions', {}, 422),

  ...bodies(artifacts, saved),
  post('save: nothing', artifacts, undefined, 422),
  post('save: name is empty', artifacts, { ...saved, filename: '' }, 422),
  post('save: name is a lone surrogate', artifacts, { ...saved, filename: '\udfff' }, 422),
  post('save: name is too long', artifacts, { ...saved, filename: long }, 422),
  post('save: no part', artifacts, { filename: 'f' }, 422),
  post('save: empty part', artifacts, { ...saved, artifact: {} }, 400),
  post('save: no base64', artifacts, { ...saved, artifact: { inlineData: { data: '*' } } }, 422),
  post('save: metadata is a list', artifacts, { ...saved, customMetadata: [] }, 422),
];

test.each(cases)('$name: $method is $status', async ({ method, path, body, headers, status }) => {
  const answer = await app.send(method, path, body, headers);
  expect([answer.status, answer.text.slice(0, 500)]).toEqual([status, answer.text.slice(0, 500)]);
  expect(answer.headers.get('content-type')).toBe('application/json');
  const { detail } = answer.body as { detail?: unknown };
  if (status === 422) {
    const entry = { loc: expect.any(Array), msg: expect.any(String), type: expect.any(String) };
    expect(detail).toEqual(expect.arrayContaining([expect.objectContaining(entry)]));
  } else if (status >= 400) expect(answer.body).toEqual({ detail: expect.any(String) });
  expect(answer.text).not.toMatch(/node_modules|\bat .+:\d+:\d+|select |insert |DOCTYPE/);
  expect(await storedRows()).toBe(0);
});

async function storedRows(): Promise<number> {
  const database = new Client({ connectionString: app.databaseUrl });
  await database.connect();
  const tables = [
    'sessions',
    'events',
    'app_states',
    'user_states',
    'invocations',
    'artifacts',
    'artifact_versions',
    'eval_sets',
    'eval_cases',
  ];
  const counts = tables.map((table) => `(select count(*) from ${table})`).join(' + ');
  const { rows } = await database.query<{ rows: string }>(`select ${counts} as rows`);
  await database.end();
  return Number(rows[0]?.rows);
}
