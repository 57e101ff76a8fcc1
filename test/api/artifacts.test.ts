import { describe, expect, test } from 'vitest';
import { testApp } from '../support/app.ts';

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
