import { createHash, randomUUID } from 'node:crypto';
import type { GetObjectCommand, S3Client, S3ServiceException } from '@aws-sdk/client-s3';
import { z } from 'zod';
import type { Config } from '../../config/config.ts';
import { choice, documented, type SettingValues, textOr, url } from '../../config/setting-schemas.ts';
import { ConfigError, UnavailableError } from '../../core/errors.ts';
import { checkContentSize, type ContentStore, rowContent } from './artifact.ts';

interface S3Settings {
  bucket: string;
  /** Prefix of all object keys; empty or ends with `/`. */
  prefix: string;
  region: string;
  /** URL of the store; `undefined` for Amazon S3. */
  endpoint: string | undefined;
  /** True: addresses are `endpoint/bucket/key` instead of `bucket.endpoint/key`. */
  forcePathStyle: boolean;
  maxBytes: number;
  /** Time-out for a store that does not respond, in milliseconds. Default: 30,000. */
  timeoutMs?: number;
}

const CONNECT_TIMEOUT_MS = 3_000;
const DEFAULT_TIMEOUT_MS = 30_000;
/** Maximum number of attempts, including the first. */
const MAX_ATTEMPTS = 3;
const REMOVED_AT_ONCE = 10;

/**
 * Stores bytes in an S3-compatible object store. Each version gets a new key, so objects are never overwritten; a
 * version becomes visible only with its row. Versions that were saved in rows earlier stay readable.
 * @throws {ConfigError} if the bucket does not exist, or the store does not respond
 */
export async function openS3Content(settings: S3Settings): Promise<ContentStore> {
  const { bucket, prefix, maxBytes } = settings;
  const sdk = await loadSdk();
  const client = new sdk.S3Client(clientOptions(settings));
  await checkBucket(() => client.send(new sdk.HeadBucketCommand({ Bucket: bucket })), bucket);
  return {
    isBucket: true,
    async save(bytes) {
      checkContentSize(bytes, maxBytes);
      const key = `${prefix}${randomUUID()}`;
      await unlessAway(client.send(new sdk.PutObjectCommand({ Bucket: bucket, Key: key, Body: bytes })));
      return { key, uri: `s3://${bucket}/${key}` };
    },
    async load({ content, objectKey, bytes, sha256 }) {
      if (objectKey === undefined) return content;
      const command = new sdk.GetObjectCommand({ Bucket: bucket, Key: objectKey });
      const read = await unlessAway(readObject(client, command, bytes));
      if (createHash('sha256').update(read).digest().equals(sha256)) return read;
      throw new Error(`the object ${objectKey} is not what was saved`);
    },
    async remove(objectKeys) {
      for (let from = 0; from < objectKeys.length; from += REMOVED_AT_ONCE) {
        const keys = objectKeys.slice(from, from + REMOVED_AT_ONCE);
        await Promise.all(
          keys.map((key) => unlessAway(client.send(new sdk.DeleteObjectCommand({ Bucket: bucket, Key: key })))),
        );
      }
    },
  };
}

/** Loads the SDK, an optional peer of the package, because few use a bucket and it costs 0.3 s and 20 MB. */
async function loadSdk() {
  try {
    return await import('@aws-sdk/client-s3');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new ConfigError(
      'ARTIFACT_STORE: a bucket needs a package that is not installed: npm install @aws-sdk/client-s3',
      { cause: error },
    );
  }
}

function clientOptions({ region, endpoint, forcePathStyle, timeoutMs }: S3Settings) {
  return {
    region,
    forcePathStyle,
    maxAttempts: MAX_ATTEMPTS,
    requestHandler: {
      connectionTimeout: CONNECT_TIMEOUT_MS,
      requestTimeout: timeoutMs ?? DEFAULT_TIMEOUT_MS,
      throwOnRequestTimeout: true,
    },
    // The SDK adds no checksums, because stores other than Amazon's may not support them. The row has the SHA-256
    // anyway.
    requestChecksumCalculation: 'WHEN_REQUIRED' as const,
    responseChecksumValidation: 'WHEN_REQUIRED' as const,
    ...(endpoint === undefined ? {} : { endpoint }),
  };
}

/** Reads an object, at most `bytes` of it, so that an object that was replaced by a larger one is not read whole. */
async function readObject(client: S3Client, command: GetObjectCommand, bytes: number): Promise<Buffer> {
  const { Body } = await client.send(command);
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of (Body ?? []) as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    length += chunk.length;
    if (length > bytes) break;
  }
  return Buffer.concat(chunks);
}

/** The check of the bucket ignores 403, because credentials that may read and write objects may lack HeadBucket. */
async function checkBucket(send: () => Promise<unknown>, bucket: string): Promise<void> {
  try {
    await send();
  } catch (error) {
    if (getStatus(error) === 403) return;
    const reason = getStatus(error) === 404 ? 'there is none' : `the store does not answer (${getName(error)})`;
    throw new ConfigError(`ARTIFACT_STORE: the bucket "${bucket}" cannot be used: ${reason}. Check AWS_ENDPOINT_URL.`, {
      cause: error,
    });
  }
}

const getStatus = (error: unknown): number | undefined =>
  (error as Partial<S3ServiceException> | undefined)?.$metadata?.httpStatusCode;
const getName = (error: unknown) => (error instanceof Error ? error.name : 'unknown');

/** Turns temporary failures into 503. Permanent ones, such as a missing permission, are rethrown and logged. */
async function unlessAway<T>(request: Promise<T>): Promise<T> {
  try {
    return await request;
  } catch (error) {
    const status = getStatus(error);
    if (status !== undefined && status < 500 && status !== 429) throw error;
    throw new UnavailableError('The artifact store is not available for now.', { cause: error });
  }
}

export const ARTIFACT_SETTINGS = {
  ARTIFACT_STORE: documented(
    z
      .string()
      .regex(/^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:\/[\w./-]{0,512})?$/, 's3://bucket or s3://bucket/prefix')
      .optional(),
    "Bucket for the bytes of artifacts, Amazon S3 or compatible. AWS's SDK finds its credentials: " +
      '`AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` in the environment, else those of the machine. ' +
      'The npm package needs `npm install @aws-sdk/client-s3` for it.',
    '`s3://bucket/prefix`',
    'in the database',
  ),
  ARTIFACT_STORE_PATH_STYLE: choice(
    ['true', 'false'],
    "Whether the bucket's name stands in the path instead of the host name.",
    '`true` if `AWS_ENDPOINT_URL` is set',
  ),
  AWS_REGION: textOr('us-east-1', 'Region of the bucket.'),
  AWS_ENDPOINT_URL: url('Address of a store that is not Amazon S3.', 'Amazon S3'),
};

type ArtifactSettings = SettingValues<typeof ARTIFACT_SETTINGS> & Pick<Config, 'MAX_BODY_BYTES'>;

/** Opens the configured artifact store. @throws {ConfigError} if it cannot be used */
export async function openContentStore(config: ArtifactSettings): Promise<ContentStore> {
  const { MAX_BODY_BYTES: maxBytes, ARTIFACT_STORE, AWS_ENDPOINT_URL: endpoint } = config;
  if (ARTIFACT_STORE === undefined) return rowContent(maxBytes);
  const [bucket = '', ...prefix] = ARTIFACT_STORE.slice('s3://'.length).split('/').filter(Boolean);
  return openS3Content({
    bucket,
    prefix: prefix.map((segment) => `${segment}/`).join(''),
    region: config.AWS_REGION,
    endpoint,
    forcePathStyle: (config.ARTIFACT_STORE_PATH_STYLE ?? String(endpoint !== undefined)) === 'true',
    maxBytes,
  });
}
