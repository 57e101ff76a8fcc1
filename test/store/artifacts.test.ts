import { sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ContentStore, rowContent, toArtifactContent } from '../../src/conversation/artifacts/artifact.ts';
import { deleteArtifact, loadArtifact, saveArtifact } from '../../src/conversation/artifacts/artifacts.ts';
import { openS3Content } from '../../src/conversation/artifacts/s3-content.ts';
import {
  type ArtifactKey,
  deleteArtifactVersions,
  findArtifactVersionText,
  listArtifactNames,
  listArtifactVersions,
  listArtifactVersionsText,
} from '../../src/conversation/artifacts/artifact-store.ts';
import { ConfigError, InvalidError, TooLargeError, UnavailableError } from '../../src/core/errors.ts';
import { createLog } from '../../src/platform/log.ts';
import type { Part } from '../../src/core/content.ts';
import { collect } from '../../src/platform/json-stream.ts';
import { MINUTE } from '../support/patience.ts';
import { type S3Server, startS3 } from '../support/s3-server.ts';
import { newKey, statementsOf, testPool } from '../support/store.ts';

const store = testPool(20);
const newArtifact = (artifactName = 'a/b.txt'): ArtifactKey => ({ ...newKey(), artifactName });
const rows = rowContent(1_000_000);
const save = async (key: ArtifactKey, part: Part, metadata = {}, content: ContentStore = rows) =>
  JSON.parse(await saveArtifact(store.pool.db, content, key, part, metadata)) as Record<string, unknown>;
const load = async (key: ArtifactKey, version?: number, content: ContentStore = rows) =>
  (await loadArtifact(store.pool.db, content, key, version))?.part;

describe('versions', () => {
  test('32 concurrent saves of one artifact get the versions 0 to 31', async () => {
    const key = newArtifact();
    const saved = await Promise.all(Array.from({ length: 32 }, (_, n) => save(key, { text: `content ${n}` })));
    const versions = saved.map(({ version }) => Number(version)).toSorted((a, b) => a - b);
    expect(versions).toEqual(Array.from({ length: 32 }, (_, n) => n));
    for (const [n, { version }] of saved.entries()) {
      expect(await load(key, Number(version))).toEqual({ text: `content ${n}` });
    }
  });

  test('the metadata is what was given, nulls inside custom metadata too, and one statement reads it', async () => {
    const key = newArtifact();
    const saved = await save(key, { inlineData: { data: 'AAEC', mimeType: 'image/png' } }, { a: null, b: [1] });
    const sessionUri = `postgres://apps/${key.appName}/users/${key.userId}/sessions/${key.sessionId}`;
    expect(saved).toEqual({
      version: 0,
      canonicalUri: `${sessionUri}/artifacts/a%2Fb.txt/versions/0`,
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
      expect(await load(key, version)).toBeUndefined();
    }
  });

  test('lists are sorted, deleting takes all versions along, and numbers go on rising', async () => {
    const key = newArtifact('b');
    const { db } = store.pool;
    for (const artifactName of ['b', 'a', 'user:c', 'B', 'b']) await save({ ...key, artifactName }, { text: 'x' });
    expect(await listArtifactNames(db, key)).toEqual(['B', 'a', 'b', 'user:c']);
    expect(await listArtifactVersions(db, key)).toEqual([0, 1]);
    const metadata = JSON.parse(await collect(await listArtifactVersionsText(db, key))) as { version: number }[];
    expect(metadata.map(({ version }) => version)).toEqual([0, 1]);

    expect(await deleteArtifactVersions(db, key)).toEqual([]);
    expect(await deleteArtifactVersions(db, key)).toEqual([]);
    expect(await listArtifactNames(db, key)).toEqual(['B', 'a', 'user:c']);
    expect([
      await load(key),
      await listArtifactVersions(db, key),
      await collect(await listArtifactVersionsText(db, key)),
    ]).toEqual([undefined, [], '[]']);
    expect(await save(key, { text: 'again' })).toMatchObject({ version: 2 });
  });

  test('a name with user: is one artifact in all sessions of the user, any other is one per session', async () => {
    const key = newArtifact('user:profile');
    const elsewhere = { ...key, sessionId: 'another' };
    await save(key, { text: 'one' });
    expect(await save(elsewhere, { text: 'two' })).toMatchObject({ version: 1 });
    expect(await load(key)).toEqual({ text: 'two' });
    await save({ ...key, artifactName: 'profile' }, { text: 'own' });
    expect(await load({ ...elsewhere, artifactName: 'profile' })).toBeUndefined();
  });
});

describe('content in an object store', () => {
  const log = createLog('silent');
  let s3: S3Server;
  let content: ContentStore;
  const settings = () => ({
    bucket: s3.bucket,
    prefix: 'p/',
    region: 'eu-test-1',
    endpoint: s3.url,
    forcePathStyle: true,
    maxBytes: 1_000,
    timeoutMs: MINUTE,
  });
  beforeAll(async () => {
    s3 = await startS3();
    content = await openS3Content(settings());
  });
  afterAll(() => s3.close());

  test('the bytes are in the bucket under a key of their own, the row names them', async () => {
    const key = newArtifact();
    const part = { inlineData: { data: 'AAEC', mimeType: 'a/b' }, extra: 1 };
    const saved = [await save(key, part, {}, content), await save(key, part, {}, content)];
    const uris = [...s3.objects.keys()].map((name) => `s3://artifacts/${name}`);
    expect(saved.map(({ version, canonicalUri }) => [version, canonicalUri])).toEqual(
      uris.map((uri, version) => [version, uri]),
    );
    expect(uris[0]).toMatch(/^s3:\/\/artifacts\/p\/[0-9a-f-]{36}$/);
    expect([...s3.objects.values()]).toEqual([Buffer.from([0, 1, 2]), Buffer.from([0, 1, 2])]);
    expect([await load(key, 0, content), await load(key, undefined, content)]).toEqual([part, part]);
    const { rows: stored } = await store.pool.db.execute(
      sql`select content, size_bytes from artifact_versions where user_id = ${key.userId} order by version`,
    );
    expect(stored).toEqual([
      { content: null, size_bytes: 3 },
      { content: null, size_bytes: 3 },
    ]);

    await deleteArtifact({ db: store.pool.db, contentStore: content, log }, key);
    expect([s3.objects.size, await load(key, undefined, content)]).toEqual([0, undefined]);
  });

  test('what was saved in rows stays readable, a reference has no object', async () => {
    const [inRow, reference] = [newArtifact(), newArtifact()];
    const before = s3.requests.length;
    await save(inRow, { text: 'row' });
    await save(reference, { fileData: { fileUri: 'gs://b/x' } }, {}, content);
    expect(await load(inRow, undefined, content)).toEqual({ text: 'row' });
    expect(await load(reference, undefined, content)).toEqual({ fileData: { fileUri: 'gs://b/x' } });
    expect(s3.requests.length).toBe(before);
  });

  test('a save that ends between the object and the row leaves no version', async () => {
    const key = newArtifact();
    await save(key, { text: 'first' }, {}, content);
    const before = s3.objects.size;
    const halfway: ContentStore = {
      ...content,
      save: async (bytes) => {
        await content.save(bytes);
        throw new Error('the process died');
      },
    };
    await expect(save(key, { text: 'second' }, {}, halfway)).rejects.toThrow('the process died');
    expect(s3.objects.size).toBe(before + 1);
    expect([await load(key, undefined, content), await listArtifactVersions(store.pool.db, key)]).toEqual([
      { text: 'first' },
      [0],
    ]);
    expect(await save(key, { text: 'third' }, {}, content)).toMatchObject({ version: 1 });
  });

  test('a store that is away or silent is unavailable, one that refuses is an error; nothing is visible', async () => {
    const key = newArtifact();
    const unavailable = new UnavailableError('The artifact store is not available for now.');
    // Whose check of the bucket may take too long for it.
    const impatient = await vi.waitFor(() => openS3Content({ ...settings(), timeoutMs: 20 }), MINUTE);
    for (const fault of ['overloaded', 'silent'] as const) {
      s3.fault = fault;
      await expect(save(key, { text: 'x' }, {}, impatient)).rejects.toEqual(unavailable);
    }
    s3.fault = 'forbidden';
    await expect(save(key, { text: 'x' }, {}, content)).rejects.toThrow(
      expect.objectContaining({ name: 'AccessDenied' }),
    );
    s3.fault = undefined;
    expect(await load(key)).toBeUndefined();
  });

  test('an object that is lost or altered is an error and not an answer', async () => {
    const key = newArtifact();
    await save(key, { text: 'true' }, {}, content);
    const [name = ''] = [...s3.objects.keys()].slice(-1);
    s3.objects.set(name, Buffer.from('false'));
    await expect(load(key, undefined, content)).rejects.toThrow(`the object ${name} is not what was saved`);
    s3.objects.delete(name);
    await expect(load(key, undefined, content)).rejects.toThrow(expect.objectContaining({ name: 'NoSuchKey' }));
    await expect(load(key)).rejects.toThrow('ARTIFACT_STORE is not set');
  });

  test('a bucket that does not exist or a store that is silent ends the start; no right to ask does not', async () => {
    await expect(openS3Content({ ...settings(), bucket: 'other' })).rejects.toEqual(
      new ConfigError('ARTIFACT_STORE: the bucket "other" cannot be used: there is none. Check AWS_ENDPOINT_URL.'),
    );
    s3.fault = 'silent';
    await expect(openS3Content({ ...settings(), timeoutMs: 20 })).rejects.toThrow('the store does not answer');
    s3.fault = 'forbidden';
    await expect(openS3Content(settings())).resolves.toBeDefined();
    s3.fault = undefined;
  });

  test('objects that could not be removed do not keep an artifact alive', async () => {
    const key = newArtifact();
    await save(key, { text: 'x' }, {}, content);
    s3.fault = 'forbidden';
    await deleteArtifact({ db: store.pool.db, contentStore: content, log }, key);
    s3.fault = undefined;
    expect(await load(key, undefined, content)).toBeUndefined();
  });

  test('more bytes than allowed are refused before they are sent', async () => {
    const before = s3.requests.length;
    const tooLarge = new TooLargeError('The artifact has 1001 bytes; at most 1000 are allowed.');
    for (const back of [content, rowContent(1_000)]) {
      await expect(save(newArtifact(), { text: 'x'.repeat(1_001) }, {}, back)).rejects.toEqual(tooLarge);
      expect(await save(newArtifact(), { text: 'x'.repeat(1_000) }, {}, back)).toMatchObject({ version: 0 });
    }
    expect(s3.requests.length).toBe(before + 1);
  });
});

describe('content', () => {
  const parts: Part[] = [
    { text: '' },
    { text: 'ünï\u0000code' },
    { text: 'lone \uD800' },
    { inlineData: { data: Buffer.from([0, 255, 128]).toString('base64'), mimeType: 'a/b', displayName: 'd' } },
    { inlineData: { data: '', mimeType: 'text/plain' } },
    { fileData: { fileUri: 'gs://bucket/x', mimeType: 'image/png' } },
    { text: 'with more', partMetadata: { k: 'v' } },
  ];

  test.each(parts)('%j comes back as it was saved', async (part) => {
    const key = newArtifact();
    await save(key, part);
    expect(await load(key)).toEqual(part);
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
