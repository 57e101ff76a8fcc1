import { globSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { fileURLToPath } from 'node:url';
import { exportJWK, generateKeyPair } from 'jose';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Answer, client, startOn, testApp } from '../support/app.ts';
import { hostScript } from '../support/agents.ts';
import { startStrippingProxy } from '../support/stripping-proxy.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';

/** Where clients reach the service: the operator says it, never a request; a proxy may take a path off. */

const STRANGER = 'evil.example';
const KEY = { authorization: 'Bearer a-key-of-this-one-test' };
const CARD = '/a2a/harness_agent/.well-known/agent-card.json';
const PUBLIC_URL = 'https://agents.example.com/below';
const settings = {
  DOORS: 'a2a,mcp',
  RUNTIME_API_KEYS: 'a-key-of-this-one-test',
  DEV_UI: 'false',
  TRUSTED_PROXIES: '127.0.0.1',
};
const agents = () => hostScript([[{ text: 'Done.' }]]);

/** Sends a request that claims to have come to another host, in every header that can. */
const claim = (
  url: string,
  path: string,
  headers: Record<string, string> = {},
  method = 'GET',
  body = '',
): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const claimed = {
      host: STRANGER,
      'x-forwarded-host': STRANGER,
      'x-forwarded-proto': 'https',
      'x-forwarded-for': '192.0.2.1',
    };
    const { hostname, port } = new URL(url);
    const sending = request({ hostname, port, path, method, headers: { ...claimed, ...headers } }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on('data', (chunk: Buffer) => chunks.push(chunk));
      answer.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        const got = new Headers(Object.entries(answer.headers).map(([name, value]) => [name, String(value)]));
        resolve({ status: answer.statusCode ?? 0, headers: got, text, body: undefined });
      });
    });
    sending.on('error', reject);
    sending.end(body);
  });

const app = testApp({ ...settings, PUBLIC_URL: `${PUBLIC_URL}/` }, { agents: agents() });

describe('where the operator says the address', () => {
  test('every answer that names an address has that one, whatever host a request names', async () => {
    const rpc = (name: string, params: object) =>
      claim(
        app.url,
        '/a2a/harness_agent',
        { ...KEY, 'content-type': 'application/json', 'a2a-version': '1.0' },
        'POST',
        JSON.stringify({ jsonrpc: '2.0', id: 1, method: name, params }),
      );
    const answers = [
      await claim(app.url, CARD),
      await claim(app.url, CARD, { 'a2a-version': '1.0' }),
      await claim(app.url, '/.well-known/agent-card.json'),
      await claim(app.url, '/a2a/harness_agent/extendedAgentCard', KEY),
      await rpc('GetExtendedAgentCard', {}),
      await claim(app.url, '/openapi.json'),
    ];
    for (const { status, text, headers } of answers) {
      expect(status).toBe(200);
      expect(text).toContain(`"${PUBLIC_URL}`);
      expect(text + JSON.stringify([...headers])).not.toContain(STRANGER);
    }
    expect(JSON.parse(answers[0]?.text ?? '')).toMatchObject({ url: `${PUBLIC_URL}/a2a/harness_agent` });
    expect(answers[0]?.headers.get('cache-control')).toBe('public, max-age=300');
    expect(JSON.parse(answers[5]?.text ?? '')).toMatchObject({ servers: [{ url: PUBLIC_URL }] });
    const refused = await claim(app.url, '/mcp', { 'content-type': 'application/json' }, 'POST', '{}');
    expect(refused.status).toBe(401);
    expect(refused.headers.get('www-authenticate')).not.toContain(STRANGER);
  });

  test('an artifact of a task has it', async () => {
    const session = '/apps/harness_agent/users/user/sessions/with-artifact';
    await app.post(session, {}, KEY);
    const event = {
      author: 'harness_agent',
      invocationId: 'i1',
      content: { role: 'model', parts: [{ text: 'Saved.' }] },
      actions: { artifactDelta: { 'a.txt': 0 } },
    };
    const sent = {
      jsonrpc: '2.0',
      id: 1,
      method: 'SendMessage',
      params: {
        message: { messageId: 'm', contextId: 'with-artifact', role: 'ROLE_USER', parts: [{ text: 'Save.' }] },
      },
    };
    const headers = { ...KEY, 'content-type': 'application/json', 'a2a-version': '1.0' };
    const answer = JSON.parse(
      (await claim(app.url, '/a2a/harness_agent', headers, 'POST', JSON.stringify(sent))).text,
    ) as {
      result: { task: { id: string; metadata: { invocationId: string } } };
    };
    const { id, metadata } = answer.result.task;
    await app.post(`${session}/events`, { ...event, invocationId: metadata.invocationId }, KEY);
    const task = await claim(app.url, `/a2a/harness_agent/tasks/${id}`, { ...KEY, 'a2a-version': '1.0' });
    expect(task.text).toContain(`"${PUBLIC_URL}/apps/harness_agent/users/user/sessions/with-artifact/artifacts/a.txt`);
    expect(task.text).not.toContain(STRANGER);
  });

  test('clients of MCP find the metadata there', async () => {
    const issuer = await startTokenIssuer();
    onTestFinished(() => issuer.close());
    const { RUNTIME_API_KEYS: _, ...byToken } = settings;
    const started = await startOn(
      app.databaseUrl,
      { ...byToken, ...issuer.environment, PUBLIC_URL },
      { agents: agents() },
    );
    onTestFinished(() => started.close());
    const refused = await claim(started.url, '/mcp', { 'content-type': 'application/json' }, 'POST', '{}');
    const metadata = `${PUBLIC_URL}/.well-known/oauth-protected-resource/mcp`;
    expect(refused.headers.get('www-authenticate')).toContain(`resource_metadata="${metadata}"`);
    const found = await claim(started.url, '/.well-known/oauth-protected-resource/mcp');
    expect(JSON.parse(found.text)).toMatchObject({ resource: `${PUBLIC_URL}/mcp` });
  });

  test('a card is signed once: an anonymous request costs no signature', async () => {
    const { privateKey } = await generateKeyPair('ES256', { extractable: true });
    const A2A_CARD_KEY = JSON.stringify({ ...(await exportJWK(privateKey)), kid: 'k' });
    const started = await startOn(app.databaseUrl, { ...settings, PUBLIC_URL, A2A_CARD_KEY }, { agents: agents() });
    onTestFinished(() => started.close());
    // Each signature of ES256 is another one.
    const cards = await Promise.all(Array.from({ length: 8 }, () => claim(started.url, CARD)));
    expect(new Set(cards.map(({ text }) => text)).size).toBe(1);
    expect(cards[0]?.text).toContain('"signatures":[{');
    const plain = await client(started.url).get('/.well-known/agent-card.json');
    expect(plain.text).toBe(cards[0]?.text);
  });
});

test('without an address of the operator what names the host of a request is for that request alone', async () => {
  const started = await startOn(app.databaseUrl, settings, { agents: agents() });
  onTestFinished(() => started.close());
  const { text, headers } = await claim(started.url, CARD);
  expect(text).toContain(`https://${STRANGER}/a2a/harness_agent`);
  expect(headers.get('cache-control')).toBe('no-store');
  expect(headers.get('vary')).toMatch(/Host/);
});

test('a proxy may take a path off: pages, their files and the API are found below it', async () => {
  const local = { DOORS: 'a2a', DEV_UI: 'true', CONSOLE: 'true' };
  const started = await startOn(app.databaseUrl, local, { agents: agents() });
  onTestFinished(() => started.close());
  const proxy = await startStrippingProxy(started.url, '/below/agents');
  onTestFinished(() => proxy.close());
  const load = async (address: string | URL) => {
    const response = await fetch(address, { redirect: 'manual' });
    return { response, text: await response.text() };
  };
  for (const page of ['console', 'dev-ui']) {
    const { response } = await load(`${proxy.url}/${page}?app=a`);
    expect(response.status).toBe(307);
    const location = new URL(response.headers.get('location') ?? '', `${proxy.url}/${page}`).href;
    expect(location).toBe(`${proxy.url}/${page}/?app=a`);
  }
  const pages = [
    '/',
    '/docs',
    '/console/',
    '/console/sessions',
    '/console/sessions/harness_agent/u/s',
    '/dev-ui/?app=a',
  ];
  for (const page of pages) {
    const address = `${proxy.url}${page}`;
    const { response, text } = await load(address);
    expect([page, response.status]).toEqual([page, 200]);
    const [, base = ''] = /<base href="([^"]*)">/.exec(text) ?? [];
    const found = [...text.matchAll(/(?:src|href)="([^"#]+)"|url\(([^)'"]+)\)/g)].map(
      ([, ref, url]) => ref ?? url ?? '',
    );
    const files = found.filter((ref) => !ref.endsWith('/') && !ref.startsWith('data:'));
    expect(files.length).toBeGreaterThan(2);
    for (const file of files) {
      const at = new URL(file, new URL(base, address));
      const { response: got } = await load(at);
      expect([page, at.href, got.ok]).toEqual([page, at.href, true]);
      // The console answers a path that is no file with its page.
      if (/\.(?:js|css|svg|png|woff2)$/.test(file)) expect(got.headers.get('content-type')).not.toContain('html');
    }
  }
});

test('one place of the code makes an address of what a request names', () => {
  const source = fileURLToPath(new URL('../../src/', import.meta.url));
  const naming = globSync('**/*.ts', { cwd: source }).filter((file) =>
    /\brequest\.(?:host|hostname|protocol)\b|\{[^{}]*\bprotocol\b[^{}]*\}: [^=]*\bRequest\b/.test(
      readFileSync(source + file, 'utf8'),
    ),
  );
  expect(naming).toEqual(['platform/http/operation/public-base.ts']);
});
