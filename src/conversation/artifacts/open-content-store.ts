import type { Config } from '../../config/config.ts';
import { ConfigError } from '../../core/errors.ts';
import { type ContentStore, rowContent } from './content-store.ts';
import { openS3Content, type S3Settings } from './s3-content.ts';

/**
 * The content store that the settings name: the database itself, or an S3-compatible store.
 * @throws {ConfigError} when the store cannot be used.
 */
export async function openContentStore(config: Config): Promise<ContentStore> {
  const { MAX_ARTIFACT_BYTES: maxBytes, ARTIFACT_STORE, AWS_ENDPOINT_URL: endpoint } = config;
  if (ARTIFACT_STORE === undefined) return rowContent(maxBytes);
  const [bucket = '', ...prefix] = ARTIFACT_STORE.slice('s3://'.length).split('/').filter(Boolean);
  return openS3Content({
    bucket,
    prefix: prefix.map((segment) => `${segment}/`).join(''),
    region: config.AWS_REGION,
    endpoint,
    forcePathStyle: (config.ARTIFACT_STORE_PATH_STYLE ?? String(endpoint !== undefined)) === 'true',
    credentials: toCredentials(config),
    maxBytes,
  });
}

function toCredentials(config: Config): S3Settings['credentials'] {
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey, AWS_SESSION_TOKEN } = config;
  if (accessKeyId === undefined && secretAccessKey === undefined) return undefined;
  if (accessKeyId === undefined || secretAccessKey === undefined) {
    const missing = accessKeyId === undefined ? 'AWS_ACCESS_KEY_ID' : 'AWS_SECRET_ACCESS_KEY';
    throw new ConfigError(`${missing}: found nothing; a credential is AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.`);
  }
  return {
    accessKeyId,
    secretAccessKey,
    ...(AWS_SESSION_TOKEN === undefined ? {} : { sessionToken: AWS_SESSION_TOKEN }),
  };
}
