import { Client } from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { client, testApp } from '../support/app.ts';
import { send, type Sent } from '../support/edge.ts';
import { startMcpServer } from '../support/mcp-server.ts';

/** What a web page, a proxy or a client with two minds sends to a service without a login. */

const SESSIONS = '/apps/harness_agent/users/u/sessions';
const SENTENCE_FOR_PROXIES =
  'Forbidden: the request came through a proxy, and AUTH_MODE local has no login. Set RUNTIME_API_KEYS or ' +
  'JWT_ISSUER behind a proxy, or name a proxy that may pass requests on without one in TRUSTED_PROXIES.';
const KEY = 'a-runtime-key-of-32-characters-x';

/** A runtime as docker-compose.yml starts it, and one that trusts the proxy beside it. */
const audit = { AUDIT: 'writes' };
const anonymous = { HOST: '0.0.0.0', ALLOW_ANONYMOUS: 'true', ALLOWED_HOSTS: 'runtime' };
const compose = testApp({ DEV_UI: 'false', ...anonymous, ...audit });
const proxied = testApp({ DEV_UI: 'false', TRUSTED_PROXIES: '127.0.0.0/8', ALLOWED_HOSTS: 'runtime.example' });
const keyed = testApp({ DEV_UI: 'false', RUNTIME_API_KEYS: KEY, ALLOWED_ORIGINS: 'https://app.example.com' });

const portOf = (url: string) => Number(new URL(url).port);
/** The status and the JSON of a request as bytes. */
const ask = async (app: { url: string }, sent: Sent) => {
  const { status, text } = await send(portOf(app.url), sent);
  return [status, JSON.parse(text)] as const;
};
const own = (app: { url: string }) => ({ host: `localhost:${portOf(app.url)}` });

describe('ALLOW_ANONYMOUS means no login and nothing else', () => {
  test.each(['evil.example', 'rebind.evil.example:8000', '192.0.2.7:8000', 'runtime.evil.example'])(
    'DNS rebinding: Host %s is refused',
    async (host) => {
      expect(await ask(compose, { path: SESSIONS, headers: { host } })).toEqual([
        403,
        { detail: 'Forbidden: host not allowed' },
      ]);
    },
  );

  test.each(['localhost:8000', '127.0.0.1:8000', 'runtime:8000', 'runtime'])('Host %s is ours', async (host) => {
    expect(await ask(compose, { path: SESSIONS, headers: { host } })).toEqual([200, []]);
  });

  test.each(['https://evil.example', 'null', 'http://localhost:3000'])('Origin %s is refused', async (origin) => {
    const sent = { method: 'POST', path: SESSIONS, headers: { ...own(compose), origin }, body: {} };
    expect(await ask(compose, sent)).toEqual([403, { detail: 'Forbidden: origin not allowed' }]);
    expect((await client(compose.url.replace('0.0.0.0', '127.0.0.1')).get(SESSIONS)).body).toEqual([]);
  });
});

test('ALLOW_ANONYMOUS does not let callers reach what listens on loopback for itself', async () => {
  const mcp = await startMcpServer([]);
  const harness = { mcp_servers: [mcp.url] };
  const run_agent_request = { user_id: 'u', session_id: 's-egress' };
  const body = { prompt: 'hello', harness_name: 'h', run_agent_request, harness };
  expect(await ask(compose, { method: 'POST', path: '/harness/invoke', headers: own(compose), body })).toEqual([
    200,
    {
      harness_name: 'h',
      overwrite: false,
      output: '',
      error: expect.stringContaining('may be called by https only'),
    },
  ]);
  expect(mcp.headers).toEqual([]);
  await mcp.close();
});

describe('a form or a script without a preflight writes nothing', () => {
  const simple = ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x'];
  const detail = 'The body must be application/json.';
  const textDetail =
    'The body must be application/json, or come with a header that no form can send, such as X-Requested-With.';

  test.each(simple)('%s is refused where a body is text of any type', async (type) => {
    const headers = { ...own(compose), 'content-type': type };
    for (const body of ['prompt=hello', '']) {
      expect(await ask(compose, { method: 'POST', path: '/invoke', headers, body })).toEqual([
        415,
        { detail: textDetail },
      ]);
      expect(await ask(compose, { method: 'POST', path: SESSIONS, headers, body })).toEqual([415, { detail }]);
    }
  });

  test('text passes with a header that no form can send', async () => {
    const headers = { ...own(compose), 'content-type': 'text/plain', user_id: 'u', session_id: 's-text' };
    const { status, text } = await send(portOf(compose.url), {
      method: 'POST',
      path: '/invoke',
      headers,
      body: 'hello',
    });
    expect([status, text.startsWith('data: {')]).toEqual([200, true]);
  });

  test('a POST without a body passes from a command line and from the own page, not with a simple type', async () => {
    const [status] = await ask(compose, { method: 'POST', path: `${SESSIONS}/line`, headers: own(compose) });
    expect(status).toBe(200);
    const origin = `http://${own(compose).host}`;
    const fromUi = { method: 'POST', path: `${SESSIONS}/ui`, headers: { ...own(compose), origin } };
    expect((await ask(compose, fromUi))[0]).toBe(200);
    const withType = { ...fromUi, headers: { ...fromUi.headers, 'content-type': 'text/plain' } };
    expect(await ask(compose, withType)).toEqual([415, { detail }]);
  });
});

test('the host of a target that is a whole URL counts as Host does', async () => {
  const refused = [403, { detail: 'Forbidden: host not allowed' }];
  for (const target of ['http://evil.example', 'HTTPS://evil.example:8000', 'http://localhost@evil.example'])
    expect(await ask(compose, { path: `${target}${SESSIONS}`, headers: own(compose) })).toEqual(refused);
  expect((await ask(compose, { path: `http://runtime${SESSIONS}`, headers: own(compose) }))[0]).toBe(200);
});

test('a body is read also where its sender offers another protocol, as Java’s client does', async () => {
  const offer = { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'AAMAAABkAARAAAAAAAIAAAAA' };
  const headers = { ...own(compose), ...offer };
  const sent = { method: 'POST', path: SESSIONS, headers, body: { sessionId: 'of-java', state: { a: 1 } } };
  expect(await ask(compose, sent)).toMatchObject([200, { id: 'of-java', state: { a: 1 } }]);
});

describe('Sec-Fetch-Site: cross-site', () => {
  const cross = { 'sec-fetch-site': 'cross-site' };
  const refused = [403, { detail: 'Forbidden: request of another site' }];

  test.each(['GET', 'POST', 'DELETE'])('%s is refused in every mode', async (method) => {
    for (const app of [compose, keyed]) {
      const headers = { ...own(app), authorization: `Bearer ${KEY}` };
      for (const site of ['cross-site', 'Cross-Site', ['none', 'cross-site']])
        expect(
          await ask(app, { method, path: `${SESSIONS}/s`, headers: { ...headers, 'sec-fetch-site': site } }),
        ).toEqual(refused);
    }
  });

  test('passes for an allowed origin, and for a link that a reader follows', async () => {
    const headers = { ...cross, authorization: `Bearer ${KEY}`, origin: 'https://app.example.com' };
    expect(await ask(keyed, { path: SESSIONS, headers })).toEqual([200, []]);
    const link = { ...own(compose), ...cross, 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' };
    expect((await ask(compose, { path: '/health', headers: link }))[0]).toBe(200);
    expect(await ask(compose, { method: 'POST', path: SESSIONS, headers: link })).toEqual(refused);
    const frame = { ...link, 'sec-fetch-dest': 'iframe' };
    expect(await ask(compose, { path: '/health', headers: frame })).toEqual(refused);
  });
});

describe('proxies', () => {
  const FORWARDED = {
    forwarded: 'for=203.0.113.9',
    'x-forwarded-for': '203.0.113.9',
    'x-forwarded-host': 'runtime.example',
    'x-forwarded-proto': 'https',
    via: '1.1 proxy',
  };

  test.each(Object.entries(FORWARDED))('mode local refuses %s and names the modes for proxies', async (name, value) => {
    expect(await ask(compose, { path: SESSIONS, headers: { ...own(compose), [name]: value } })).toEqual([
      403,
      { detail: SENTENCE_FOR_PROXIES },
    ]);
  });

  test('mode local takes them from a proxy in TRUSTED_PROXIES, mode key from any', async () => {
    const headers = { host: 'runtime.example', ...FORWARDED };
    expect(await ask(proxied, { path: SESSIONS, headers })).toEqual([200, []]);
    const withKey = { ...FORWARDED, authorization: `Bearer ${KEY}` };
    expect(await ask(keyed, { path: SESSIONS, headers: withKey })).toEqual([200, []]);
  });
});

describe('headers', () => {
  test('two Authorization headers are refused, the right one first or last', async () => {
    for (const [first, last] of [
      [KEY, 'wrong-key-of-some-length'],
      ['wrong-key-of-some-length', KEY],
    ]) {
      const headers = { authorization: [`Bearer ${first}`, `Bearer ${last}`] };
      expect(await ask(keyed, { path: SESSIONS, headers })).toEqual([
        400,
        { detail: 'The request has more than one authorization header.' },
      ]);
    }
  });

  test.each(['-1', '1.5', 'x', '9007199254740993', '2147483648', '1e3', ' ', '0x10', 'NaN', '1, 2'])(
    'Last-Event-ID %j is refused with its place',
    async (value) => {
      const path = `${SESSIONS}/none/events/stream`;
      const [status, body] = await ask(compose, { path, headers: { ...own(compose), 'last-event-id': value } });
      expect([status, body.detail[0]?.loc]).toEqual([422, ['header', 'last-event-id']]);
    },
  );
});

test('what the edge refuses is in the audit, each for its reason', async () => {
  const form = { 'content-type': 'text/plain' };
  const sent: [string, Record<string, string | string[]>, operation: string | null][] = [
    ['Forbidden: host not allowed', { host: 'evil.example' }, null],
    ['Forbidden: origin not allowed', { ...own(compose), origin: 'https://evil.example' }, null],
    ['Forbidden: request of another site', { ...own(compose), 'sec-fetch-site': 'cross-site' }, null],
    [SENTENCE_FOR_PROXIES, { ...own(compose), via: '1.1 proxy' }, null],
    ['The body must be application/json.', { ...own(compose), ...form }, 'createSession'],
    ['The request has more than one authorization header.', { ...own(compose), authorization: ['a', 'b'] }, null],
  ];
  const database = new Client({ connectionString: compose.databaseUrl });
  await database.connect();
  onTestFinished(() => database.end());
  for (const [index, [reason, headers, operation]] of sent.entries()) {
    const id = `edge-${index}`;
    await ask(compose, { method: 'POST', path: SESSIONS, headers: { ...headers, 'x-request-id': id }, body: 'a=b' });
    const kept = async () =>
      (await database.query('select decision, reason, operation from audit_log where request_id = $1', [id])).rows;
    await expect.poll(kept).toEqual([{ decision: 'refused', reason, operation }]);
  }
});
