import { describe, expect, test } from 'vitest';
import { readConfig } from '../../src/process/config.ts';
import { openContentStore } from '../../src/conversation/artifacts/s3-content.ts';
import { startApp, testApp } from '../support/app.ts';
import { s3Environment, startS3 } from '../support/s3-server.ts';

const app = testApp();
const base = '/apps/harness_agent/users/u/sessions/s/artifacts';
const save = (body: unknown) => app.post(base, body);

describe('save and read metadata', () => {
  test('versions count up from 0 and keep what was given', async () => {
    const first = await save({ filename: 'report.txt', artifact: { text: 'one' } });
    expect([first.status, first.body]).toEqual([
      200,
      {
        version: 0,
        canonicalUri: 'postgres://apps/harness_agent/users/u/sessions/s/artifacts/report.txt/versions/0',
        customMetadata: {},
        createTime: expect.any(Number),
        mimeType: 'text/plain',
      },
    ]);
    const sent = {
      filename: 'report.txt',
      artifact: { inline_data: { data: 'AAE=', mime_type: 'a/b' } },
      custom_metadata: { k: null },
    };
    const second = await save(sent);
    expect(second.body).toMatchObject({ version: 1, mimeType: 'a/b', customMetadata: { k: null } });
    for (const { body } of [first, second]) {
      const { version } = body as { version: number };
      const metadata = await app.get(`${base}/report.txt/versions/${version}/metadata`);
      expect([metadata.status, metadata.body]).toEqual([200, body]);
    }
  });

  test.each([
    ['dir/sub/file.txt', 'dir/sub/file.txt'],
    ['dir/sub/file.txt', 'dir%2Fsub%2Ffile.txt'],
    ['user:profile', 'user:profile'],
    ['user:profile', 'user%3Aprofile'],
    ['a b%20ü', 'a%20b%2520%C3%BC'],
    ['versions/1/metadata', 'versions%2F1%2Fmetadata'],
    ['x/versions/3', 'x/versions/3'],
  ])('the name %s is found at %s', async (filename, path) => {
    const { body } = await save({ filename, artifact: { text: 'x' } });
    const { version } = body as { version: number };
    expect((await app.get(`${base}/${path}/versions/${version}/metadata`)).body).toEqual(body);
  });

  test('what does not exist is named, and a number no column can hold does not exist', async () => {
    for (const version of ['7', '-1', '99999999999999999999']) {
      const { status, body } = await app.get(`${base}/nope/versions/${version}/metadata`);
      expect([status, body]).toEqual([404, { detail: `Artifact version not found: nope version ${version}` }]);
    }
  });

  test.each(['abc', '1.5', '1e2', '0x1', 'latest', '%20'])(
    'the version %s is 422 before anything is looked up',
    async (version) => {
      const { status, body } = await app.get(`${base}/nope/versions/${version}/metadata`);
      expect([status, body]).toEqual([
        422,
        {
          detail: [
            {
              type: 'int_parsing',
              loc: ['path', 'version_id'],
              msg: 'Input should be a valid integer, unable to parse string as an integer',
              input: decodeURIComponent(version),
            },
          ],
        },
      ]);
    },
  );

  test('a part without content is 400', async () => {
    const { status, body } = await save({ filename: 'x', artifact: { thought: true } });
    expect([status, body]).toEqual([
      400,
      { detail: 'artifact carries no content: give inlineData, text or fileData.' },
    ]);
  });
});

describe('load, list, delete', () => {
  const own = (sessionId: string) => `/apps/harness_agent/users/loader/sessions/${sessionId}/artifacts`;

  test('the latest version, one by its number in both spellings, all numbers, all metadata', async () => {
    const image = { inlineData: { data: 'AAE=', mimeType: 'image/png', displayName: 'i.png' } };
    const saved = [
      await app.post(own('s'), { filename: 'dir/a b.txt', artifact: { text: 'one' } }),
      await app.post(own('s'), { filename: 'dir/a b.txt', artifact: image, customMetadata: { k: null } }),
    ];
    for (const name of ['dir/a%20b.txt', 'dir%2Fa%20b.txt']) {
      const at = `${own('s')}/${name}`;
      const answers: [string, unknown][] = [
        [at, image],
        [`${at}?version=0`, { text: 'one' }],
        [`${at}?version=1`, image],
        [`${at}/versions/0`, { text: 'one' }],
        [`${at}/versions/1`, image],
        [`${at}/versions`, [0, 1]],
        [`${at}/versions/metadata`, saved.map(({ body }) => body)],
        [`${at}/versions/1/metadata`, saved[1]?.body],
      ];
      for (const [path, expected] of answers) {
        const { status, body } = await app.get(path);
        expect([path, status, body]).toEqual([path, 200, expected]);
      }
    }
  });

  test('names are listed by code point, those of the user in every session', async () => {
    for (const filename of ['b', 'a/x', 'B', 'user:shared', 'é']) {
      await app.post(own('names'), { filename, artifact: { text: 'x' } });
    }
    const { status, body } = await app.get(own('names'));
    expect([status, body]).toEqual([200, ['B', 'a/x', 'b', 'user:shared', 'é']]);
    expect((await app.get(own('elsewhere'))).body).toEqual(['user:shared']);
    expect((await app.get(`${own('elsewhere')}/user:shared`)).body).toEqual({ text: 'x' });
    expect((await app.get('/apps/harness_agent/users/stranger/sessions/names/artifacts')).body).toEqual([]);
    expect((await app.get('/apps/other/users/loader/sessions/names/artifacts')).body).toEqual([]);
  });

  test('deleting answers null, twice; the numbers go on', async () => {
    for (const text of ['one', 'two']) await app.post(own('gone'), { filename: 'f', artifact: { text } });
    for (const _ of [1, 2]) {
      const { status, text } = await app.send('DELETE', `${own('gone')}/f`);
      expect([status, text]).toEqual([200, 'null']);
    }
    expect((await app.get(own('gone'))).body).not.toContain('f');
    const { status, body } = await app.get(`${own('gone')}/f`);
    expect([status, body]).toEqual([404, { detail: 'Artifact not found: f' }]);
    expect((await app.get(`${own('gone')}/f/versions`)).body).toEqual([]);
    expect((await app.get(`${own('gone')}/f/versions/metadata`)).body).toEqual([]);
    const again = await app.post(own('gone'), { filename: 'f', artifact: { text: 'three' } });
    expect(again.body).toMatchObject({ version: 2 });
  });

  test('what does not exist is 404 and named', async () => {
    await app.post(own('s'), { filename: 'f', artifact: { text: 'x' } });
    const expected: [string, string][] = [
      ['nope', 'Artifact not found: nope'],
      ['nope?version=1', 'Artifact version not found: nope version 1'],
      ['f?version=7', 'Artifact version not found: f version 7'],
      ['f?version=-1', 'Artifact version not found: f version -1'],
      ['f/versions/7', 'Artifact version not found: f version 7'],
      ['f/versions/-1', 'Artifact version not found: f version -1'],
      ['f/versions/99999999999999999999', 'Artifact version not found: f version 99999999999999999999'],
    ];
    for (const [path, detail] of expected) {
      const { status, body } = await app.get(`${own('s')}/${path}`);
      expect([path, status, body]).toEqual([path, 404, { detail }]);
    }
  });

  test.each(['f?version=x', 'f?version=1.5', 'f?version=2147483648', 'f/versions/latest', 'f/versions/%00', '%00'])(
    '%s is 422',
    async (path) => {
      expect((await app.get(`${own('s')}/${path}`)).status).toBe(422);
    },
  );

  test.each(['__proto__', '..a%2F...%2Fetc', "'; drop table artifacts; --", 'versions', 'a'.repeat(256)])(
    'the name %s is a name',
    async (filename) => {
      const path = `${own('hostile')}/${encodeURIComponent(decodeURIComponent(filename))}`;
      const saved = await app.post(own('hostile'), {
        filename: decodeURIComponent(filename),
        artifact: { text: filename },
      });
      expect(saved.status).toBe(200);
      expect((await app.get(path)).body).toEqual({ text: filename });
      expect((await app.send('DELETE', path)).text).toBe('null');
      expect((await app.get(path)).status).toBe(404);
    },
  );

  test('a name too long in bytes is 422, as it is in a path', async () => {
    const filename = '𝕏'.repeat(200);
    const { status, body } = await app.post(own('s'), { filename, artifact: { text: 'x' } });
    expect([status, body]).toEqual([
      422,
      {
        detail: [
          {
            type: 'value_error',
            loc: ['body', 'filename'],
            msg: 'Value error, at most 512 bytes of UTF-8 are allowed',
            input: filename,
            ctx: { error: {} },
          },
        ],
      },
    ]);
    expect((await app.get(`${own('s')}/${encodeURIComponent(filename)}`)).status).toBe(422);
  });
});

describe('bytes', () => {
  const files = '/apps/harness_agent/users/bytes/sessions/s/artifacts';
  const page = '<script>alert(1)</script>';
  const download = async (path: string, accept = '*/*') => {
    const response = await fetch(`${app.url}${files}/${path}`, { headers: { accept } });
    return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
  };

  test('are a download that no browser shows as a page', async () => {
    const artifact = { inlineData: { data: Buffer.from(page).toString('base64'), mimeType: 'text/html' } };
    await app.post(files, { filename: 'user:dir/sëite.html', artifact });
    for (const path of ['user:dir/s%C3%ABite.html?alt=media', 'user:dir/s%C3%ABite.html/versions/0?alt=media']) {
      const { status, headers, bytes } = await download(path);
      expect([status, bytes.toString()]).toEqual([200, page]);
      expect(Object.fromEntries(headers)).toMatchObject({
        'content-type': 'text/html',
        'content-length': String(page.length),
        'content-disposition': `attachment; filename="s?ite.html"; filename*=UTF-8''s%C3%ABite.html`,
        'x-content-type-options': 'nosniff',
        'content-security-policy': "sandbox; default-src 'none'; frame-ancestors 'none'",
      });
    }
  });

  test('come where their type is preferred to JSON', async () => {
    const artifact = { inlineData: { data: 'AAEC', mimeType: 'image/png' } };
    await app.post(files, { filename: 'i.png', artifact });
    for (const accept of ['image/png', 'image/*', 'application/octet-stream', 'image/png, application/json;q=0.5']) {
      const { headers, bytes } = await download('i.png', accept);
      expect([accept, headers.get('content-type'), bytes]).toEqual([accept, 'image/png', Buffer.from([0, 1, 2])]);
    }
    for (const accept of ['*/*', 'application/json', 'application/json, text/plain, */*', 'text/html', 'nonsense']) {
      const { headers, bytes } = await download('i.png', accept);
      expect([accept, headers.get('content-type')]).toEqual([accept, 'application/json']);
      expect(JSON.parse(bytes.toString())).toEqual(artifact);
    }
  });

  test.each(['x\r\nx-evil: 1', 'no type', '', 'text/html; charset=utf-8', '\u0000/\u0000'])(
    'of the type %j come with a type that a header can carry',
    async (mimeType) => {
      await app.post(files, { filename: 'odd', artifact: { inlineData: { data: 'AAEC', mimeType } } });
      const { status, headers, bytes } = await download('odd?alt=media');
      const type = mimeType.startsWith('text/html') ? 'text/html' : 'application/octet-stream';
      expect([status, headers.get('content-type'), headers.get('x-evil'), bytes.length]).toEqual([200, type, null, 3]);
    },
  );

  test('of a text are its UTF-8; a reference to a file elsewhere has none', async () => {
    await app.post(files, { filename: 't', artifact: { text: 'ünï' } });
    const { headers, bytes } = await download('t?alt=media');
    expect([headers.get('content-type'), bytes.toString()]).toEqual(['text/plain', 'ünï']);
    const artifact = { fileData: { fileUri: 'gs://b/x', mimeType: 'image/png' } };
    await app.post(files, { filename: 'r', artifact });
    expect((await app.get(`${files}/r`, { accept: 'image/png' })).body).toEqual(artifact);
    const { status, body } = await app.get(`${files}/r?alt=media`);
    expect([status, body]).toEqual([
      404,
      { detail: 'Artifact not found: r: it is a reference to a file elsewhere and has no bytes here' },
    ]);
  });
});

describe('size and object store', () => {
  test('an artifact over MAX_BODY_BYTES is 413; bytes in an object store read like others', async () => {
    const s3 = await startS3();
    // A request's body is larger than its artifact, so only the store has the limit.
    const contentStore = await openContentStore(readConfig({ ...s3Environment(s3), MAX_BODY_BYTES: '1024' }));
    const small = await startApp({}, { contentStore });
    try {
      const tooLarge = await small.post(base, { filename: 'f', artifact: { text: 'x'.repeat(1_025) } });
      expect([tooLarge.status, tooLarge.body]).toEqual([
        413,
        { detail: 'The artifact has 1025 bytes; at most 1024 are allowed.' },
      ]);
      expect((await small.get(base)).body).toEqual([]);

      const { body } = await small.post(base, { filename: 'f', artifact: { text: 'x'.repeat(1_024) } });
      const [key] = s3.objects.keys();
      expect(key).toMatch(/^some\/prefix\/[0-9a-f-]{36}$/);
      expect(body).toMatchObject({ version: 0, canonicalUri: `s3://artifacts/${key}`, mimeType: 'text/plain' });
      expect((await small.get(`${base}/f`)).body).toEqual({ text: 'x'.repeat(1_024) });
      expect((await small.get(`${base}/f?alt=media`)).text).toBe('x'.repeat(1_024));

      s3.fault = 'overloaded';
      const away = await small.get(`${base}/f`);
      expect([away.status, away.body]).toEqual([503, { detail: 'The artifact store is not available for now.' }]);
      expect(away.headers.get('retry-after')).toBe('1');
      s3.fault = undefined;
      expect((await small.send('DELETE', `${base}/f`)).text).toBe('null');
      expect(s3.objects.size).toBe(0);
    } finally {
      await small.close();
      await s3.close();
    }
  });
});
