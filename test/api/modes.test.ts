import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const KEY = 'a-runtime-key-of-32-characters-x';
const MODES = {
  local: { DEV_UI: 'false' },
  'local with development UI': { DEV_UI: 'true' },
  key: { DEV_UI: 'false', RUNTIME_API_KEYS: `${KEY},another-key-of-32-characters-yy` },
  'key with development UI': { DEV_UI: 'true', RUNTIME_API_KEYS: KEY },
  jwt: { DEV_UI: 'false', JWT_ISSUER: 'http://127.0.0.1:9', JWT_AUDIENCE: 'runtime' },
  'key+jwt': { DEV_UI: 'false', RUNTIME_API_KEYS: KEY, JWT_ISSUER: 'http://127.0.0.1:9', JWT_AUDIENCE: 'runtime' },
} satisfies Record<string, Record<string, string>>;
type Mode = keyof typeof MODES;

const always: Mode[] = ['local', 'local with development UI', 'key', 'key with development UI', 'jwt', 'key+jwt'];
const development: Mode[] = ['local with development UI', 'key with development UI'];
const user = '/apps/harness_agent/users/u';

/** Which operations exist in which mode (specification: Endpoints; design §5). */
const OPERATIONS: [method: string, path: string, template: string, modes: Mode[]][] = [
  ['GET', `${user}/sessions`, '/apps/{app_name}/users/{user_id}/sessions', always],
  ['GET', `${user}/sessions/s`, '/apps/{app_name}/users/{user_id}/sessions/{session_id}', always],
  [
    'GET',
    `${user}/sessions/s/artifacts/a/versions/0/metadata`,
    '/apps/{app_name}/users/{user_id}/sessions/{session_id}/artifacts/{artifact_name}/versions/{version_id}/metadata',
    always,
  ],
  ['POST', '/harness/invoke', '/harness/invoke', always.filter((mode) => mode !== 'jwt')],
  [
    'POST',
    '/dev/apps/harness_agent/eval-sets/e/add-session',
    '/dev/apps/{app_name}/eval-sets/{eval_set_id}/add-session',
    development,
  ],
  [
    'GET',
    '/dev/apps/harness_agent/eval_sets/e/evals',
    '/dev/apps/{app_name}/eval_sets/{eval_set_id}/evals',
    development,
  ],
];

describe.each(Object.entries(MODES))('mode %s', (mode, environment) => {
  const app = testApp(environment);

  test.each(OPERATIONS)('%s %s', async (method, path, template, modes) => {
    const exists = modes.includes(mode as Mode);
    const document = (await app.get('/openapi.json')).body as { paths: Record<string, Record<string, unknown>> };
    expect(document.paths[template]?.[method.toLowerCase()] !== undefined).toBe(exists);
    const { status, body } = await app.send(method, path, method === 'POST' ? {} : undefined, {
      authorization: `Bearer ${KEY}`,
    });
    const detail = path.startsWith('/dev/')
      ? 'Not Found. It is served with DEV_UI=true.'
      : 'Not Found. It is there for runtime keys; POST /run runs an agent with a token.';
    if (!exists) expect([status, body]).toEqual([404, { detail }]);
    else expect((body as { detail?: unknown }).detail).not.toEqual(expect.stringMatching(/^Not Found/));
  });

  test('/ is a page for people', async () => {
    const { status, headers, text } = await app.get('/');
    expect([status, headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
    expect(headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(text).toMatch(/Agent runtime \d+\.\d+\.\d+/);
    expect(text).toContain(`in mode ${mode.split(' ')[0]}.`);
    expect(text).not.toContain('<script');
    expect(text).not.toContain(KEY);
    const links = [...text.matchAll(/<a href="([^"]+)"/g)].map(([, link = '']) => `/${link}`);
    const console = mode.startsWith('local') ? ['/console/'] : [];
    const ui = [...console, ...(development.includes(mode as Mode) ? ['/dev-ui/'] : [])];
    expect(links).toEqual([...ui, '/docs', '/openapi.json', '/health']);
    for (const link of links) expect((await app.get(link)).status).toBe(200);
    expect(await app.send('HEAD', '/')).toMatchObject({ status: 200, text: '' });
    expect((await app.post('/', {})).status).toBe(405);
  });

  test('the document says what credential is asked for, and requests without one are treated so', async () => {
    const document = (await app.get('/openapi.json')).body as {
      security: unknown;
      paths: Record<string, Record<string, { security?: unknown }>>;
      components: { securitySchemes: unknown };
    };
    const credential = { RuntimeBearer: [] };
    const optional = mode.startsWith('local');
    const both = mode === 'key+jwt';
    const token = { UserToken: [] };
    expect(document.security).toEqual(optional ? [{}, credential] : both ? [credential, token] : [credential]);
    const scheme = expect.objectContaining({ type: 'http', scheme: 'bearer' });
    expect(document.components.securitySchemes).toEqual({ RuntimeBearer: scheme, ...(both && { UserToken: scheme }) });
    expect(document.paths['/users/{user_id}/apps']?.['get']?.security).toEqual(both ? [credential] : undefined);
    expect(document.paths['/harness/invoke']?.['post']?.security).toEqual(both ? [credential] : undefined);
    const { status, headers, body } = await app.get(`${user}/sessions`);
    if (optional) expect([status, body]).toEqual([200, []]);
    else {
      expect([status, body]).toEqual([401, { detail: 'authentication required' }]);
      expect(headers.get('www-authenticate')).toBe('Bearer');
    }
  });
});

describe('keys', () => {
  const app = testApp({ ...MODES.key, MODEL_API_KEY: 'the-key-of-the-model-provider' });

  test.each([
    [`Bearer ${KEY}`, 200],
    ['Bearer another-key-of-32-characters-yy', 200],
    [`bearer ${KEY}`, 200],
    [`Bearer ${KEY}x`, 401],
    [`Bearer ${KEY.slice(1)}`, 401],
    ['Bearer ', 401],
    [`Basic ${KEY}`, 401],
    [KEY, 401],
    ['Bearer the-key-of-the-model-provider', 401],
  ])('Authorization %j is %i', async (authorization, expected) => {
    expect((await app.get(`${user}/sessions`, { authorization })).status).toBe(expected);
  });
});
