import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

const PATHS = [
  '/dev-ui',
  '/dev-ui/',
  '/dev-ui/index.html',
  '/dev-ui/config',
  '/dev-ui/adk_favicon.svg',
  '/dev-ui/assets/config/runtime-config.json',
  '/dev/apps/harness_agent/build_graph',
  '/dev/apps/harness_agent/debug/trace/session/s',
  '/debug/trace/session/s',
];

describe('development UI mode', () => {
  const app = testApp({ DEV_UI: 'true' });

  test.each([
    ['/dev-ui', 'dev-ui/'],
    ['/dev-ui?app=a&session=s%2F1', 'dev-ui/?app=a&session=s%2F1'],
  ])('%s leads to %s', async (path, location) => {
    const { status, headers, text } = await app.get(path);
    expect([status, headers.get('location'), text]).toEqual([307, location, '']);
  });

  test.each(['/dev-ui/', '/dev-ui/index.html', '/dev-ui/?app=harness_agent&session=s'])(
    '%s is the page',
    async (path) => {
      const { status, headers, text } = await app.get(path);
      expect([status, headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
      expect(headers.get('cache-control')).toBe('no-store');
      expect(text).toContain('<base href="./">');
      expect(text).toContain('<app-root>');
    },
  );

  test('the page loads and runs nothing from elsewhere, and nothing inline', async () => {
    const { headers, text } = await app.get('/dev-ui/');
    const loaded = [...text.matchAll(/(?:src|href)="([^"]*)"|url\(([^)]*)\)/g)].map(([, one, other]) => one ?? other);
    expect(loaded.filter((address) => /^(?:\w+:)?\/\//.test(address ?? ''))).toEqual([]);
    expect(text).not.toMatch(/<[^>]* on\w+=/);
    const policy = headers.get('content-security-policy') ?? '';
    const directives = new Map(policy.split('; ').map((each) => [each.split(' ')[0], each.split(' ').slice(1)]));
    expect(directives.get('default-src')).toEqual(["'none'"]);
    expect(directives.get('script-src')).toEqual(["'self'", "'wasm-unsafe-eval'"]);
    expect(directives.get('connect-src')).toEqual(["'self'"]);
    const sources = new Set([...directives.values()].flat());
    expect([...sources].filter((source) => !/^'|^data:$|^blob:$/.test(source))).toEqual([]);
  });

  test('every file of the page is there, with the type that browsers insist on', async () => {
    const { text } = await app.get('/dev-ui/');
    const files = [...text.matchAll(/(?:src|href)="(\.?\/?[^"]+\.(?:js|css|svg))"/g)].map(([, file]) => file ?? '');
    expect(files.length).toBeGreaterThan(5);
    const types = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' } as Record<string, string>;
    for (const file of files) {
      const { status, headers } = await app.get(new URL(file, 'http://x/dev-ui/').pathname);
      expect([file, status, headers.get('content-type')?.split(';')[0]]).toEqual([
        file,
        200,
        types[file.split('.').at(-1) ?? ''],
      ]);
    }
  });

  test('the font of the icons, named by the page, is there', async () => {
    const font = /url\((fonts\/[^)]+)\)/.exec((await app.get('/dev-ui/')).text)?.[1] ?? '';
    const { status, headers, text } = await app.get(`/dev-ui/${font}`);
    expect([status, headers.get('content-type'), text.slice(0, 4)]).toEqual([200, 'font/woff2', 'wOF2']);
    expect(headers.get('cache-control')).toBe('no-cache');
  });

  test('files with a hash in their name are kept, others are asked for again', async () => {
    const { text } = await app.get('/dev-ui/');
    const script = /src="\.\/(main-\w+\.js)"/.exec(text)?.[1];
    const kept = await app.get(`/dev-ui/${script}`);
    expect(kept.headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
    const asked = await app.get('/dev-ui/adk_favicon.svg');
    expect(asked.headers.get('cache-control')).toBe('no-cache');
    // Without a cache-control of its own fetch sends no-cache, which asks for the whole file.
    const again = await app.get('/dev-ui/adk_favicon.svg', {
      'if-none-match': asked.headers.get('etag') ?? '',
      'cache-control': 'max-age=0',
    });
    expect([again.status, again.text]).toEqual([304, '']);
  });

  test('the configuration is ours: this origin, no telemetry, our name and not that of another product', async () => {
    const runtime = await app.get('/dev-ui/assets/config/runtime-config.json');
    expect([runtime.status, runtime.headers.get('content-type')]).toEqual([200, 'application/json']);
    expect(runtime.body).toEqual({
      backendUrl: '',
      telemetry: false,
      logo: { text: 'Agent runtime', imageUrl: expect.stringMatching(/^data:image\/svg/) },
    });
    expect((await app.get('/dev-ui/config')).body).toEqual({ logo_text: null, logo_image_url: null });
  });

  test('the style sheets of code, which the package lacks', async () => {
    for (const theme of ['light', 'dark']) {
      const { status, headers, text } = await app.get(`/dev-ui/prism-${theme}.css`);
      expect([status, headers.get('content-type')]).toEqual([200, 'text/css; charset=utf-8']);
      expect(text).toContain('.token.keyword');
    }
  });

  test.each([
    '/dev-ui/none.js',
    '/dev-ui/none',
    '/dev-ui/.version',
    '/dev-ui/..%2f..%2fpackage.json',
    '/dev-ui/%2e%2e/%2e%2e/package.json',
    '/dev-ui/..%5c..%5cpackage.json',
    '/dev-ui//etc/passwd',
    '/Dev-UI/',
  ])('%s is not there', async (path) => {
    const { status, body } = await app.get(path);
    expect([status, body]).toEqual([404, { detail: 'Not Found' }]);
  });

  test.each(['/dev-ui', '/dev-ui/', '/dev-ui/adk_favicon.svg'])('POST %s is not a way to read', async (path) => {
    const { status, headers, body } = await app.post(path, {});
    expect([status, headers.get('allow'), body]).toEqual([405, 'GET, HEAD', { detail: 'Method Not Allowed' }]);
  });

  test('HEAD of the page has its length and no body', async () => {
    const { text } = await app.get('/dev-ui/');
    const head = await app.send('HEAD', '/dev-ui/');
    expect([head.status, head.headers.get('content-length'), head.text]).toEqual([
      200,
      String(Buffer.byteLength(text)),
      '',
    ]);
  });

  test('pages of another origin get nothing', async () => {
    const { status, body } = await app.get('/dev-ui/', { origin: 'https://evil.example' });
    expect([status, body]).toEqual([403, { detail: 'Forbidden: origin not allowed' }]);
  });
});

describe('API mode', () => {
  const app = testApp({ DEV_UI: 'false' });

  // `/` is a page of its own there.
  test.each(PATHS)('%s does not exist', async (path) => {
    const { status, headers, body } = await app.get(path);
    const detail = 'Not Found. It is served with DEV_UI=true.';
    expect([status, headers.get('content-type'), body]).toEqual([404, 'application/json', { detail }]);
  });
});
