import { describe, expect, test } from 'vitest';
import { toArtifactContent } from '../../src/artifacts/artifact-content.ts';
import {
  type ArtifactKey,
  findArtifact,
  findArtifactVersionText,
  saveArtifactVersion,
} from '../../src/artifacts/store.ts';
import { InvalidError } from '../../src/errors.ts';
import type { Part } from '../../src/sessions/content.ts';
import { newKey, statementsOf, testPool } from '../support/store.ts';

const store = testPool(20);
const newArtifact = (artifactName = 'a/b.txt'): ArtifactKey => ({ ...newKey(), artifactName });
const save = async (key: ArtifactKey, part: Part, metadata = {}) =>
  JSON.parse(await saveArtifactVersion(store.pool.db, key, toArtifactContent(part), metadata)) as Record<
    string,
    unknown
  >;

describe('versions', () => {
  test('32 concurrent saves of one artifact get the versions 0 to 31', async () => {
    const key = newArtifact();
    const saved = await Promise.all(Array.from({ length: 32 }, (_, n) => save(key, { text: `content ${n}` })));
    const versions = saved.map(({ version }) => Number(version)).toSorted((a, b) => a - b);
    expect(versions).toEqual(Array.from({ length: 32 }, (_, n) => n));
    for (const [n, { version }] of saved.entries()) {
      expect(await findArtifact(store.pool.db, key, Number(version))).toEqual({ text: `content ${n}` });
    }
  });

  test('the metadata is what was given, nulls inside custom metadata included, and reading it is one statement', async () => {
    const key = newArtifact();
    const saved = await save(key, { inlineData: { data: 'AAEC', mimeType: 'image/png' } }, { a: null, b: [1] });
    expect(saved).toEqual({
      version: 0,
      canonicalUri: `postgres://apps/${key.appName}/users/${key.userId}/sessions/${key.sessionId}/artifacts/a%2Fb.txt/versions/0`,
      customMetadata: { a: null, b: [1] },
      createTime: expect.any(Number),
      mimeType: 'image/png',
    });
    expect(Math.abs(Number(saved['createTime']) - Date.now() / 1000)).toBeLessThan(3600);
    const statements = await statementsOf(async () => {
      expect(JSON.parse((await findArtifactVersionText(store.pool.db, key, 0)) ?? '')).toEqual(saved);
    });
    expect(statements).toHaveLength(1);
  });

  test('a version that cannot exist is absent, however large its number', async () => {
    const key = newArtifact();
    await save(key, { text: 'x' });
    for (const version of [1, -1, 0.5, 2 ** 31, 1e20]) {
      expect(await findArtifactVersionText(store.pool.db, key, version)).toBeUndefined();
      expect(await findArtifact(store.pool.db, key, version)).toBeUndefined();
    }
  });

  test('a name with user: is one artifact in all sessions of the user, any other is one per session', async () => {
    const key = newArtifact('user:profile');
    const elsewhere = { ...key, sessionId: 'another' };
    await save(key, { text: 'one' });
    expect(await save(elsewhere, { text: 'two' })).toMatchObject({ version: 1 });
    expect(await findArtifact(store.pool.db, key)).toEqual({ text: 'two' });
    await save({ ...key, artifactName: 'profile' }, { text: 'own' });
    expect(await findArtifact(store.pool.db, { ...elsewhere, artifactName: 'profile' })).toBeUndefined();
  });
});

describe('content', () => {
  const parts: Part[] = [
    { text: '' },
    { text: 'ünï\u0000code' },
    { text: 'lone \uD800' },
    {
      inlineData: { data: Buffer.from([0, 255, 128]).toString('base64'), mimeType: 'a/b', displayName: 'd' },
      extra: 1,
    },
    { inlineData: { data: '', mimeType: 'text/plain' } },
    { fileData: { fileUri: 'gs://bucket/x', mimeType: 'image/png' } },
    { text: 'with more', partMetadata: { k: 'v' } },
  ];

  test.each(parts)('%j comes back as it was saved', async (part) => {
    const key = newArtifact();
    await save(key, part);
    expect(await findArtifact(store.pool.db, key)).toEqual(part);
  });

  test('a part without content, or with data that is not base64, is refused', () => {
    expect(() => toArtifactContent({ thought: true })).toThrow(
      new InvalidError('artifact carries no content: give inlineData, text or fileData.'),
    );
    expect(() => toArtifactContent({ inlineData: { data: 'nö' } })).toThrow(
      new InvalidError('artifact.inlineData.data is not base64.'),
    );
  });
});
