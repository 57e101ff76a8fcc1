import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { close, listen, readBody } from './edge.ts';

/** What the server does instead of its work. */
type S3Fault = 'overloaded' | 'forbidden' | 'silent' | 'flood';

/**
 * A server that speaks as much of S3's wire as the runtime does: buckets in the path, PUT, GET, HEAD and DELETE of
 * objects.
 */
export interface S3Server {
  url: string;
  bucket: string;
  /** By key. */
  objects: Map<string, Buffer>;
  /** Method and path of each request, in order. */
  requests: string[];
  fault: S3Fault | undefined;
  /** Megabytes that a flood, of at most 256, has sent. */
  flooded: number;
  /** Awaited before a request is done; it may return a fault for this one. */
  before?: (method: string) => Promise<S3Fault | undefined>;
  close(): Promise<void>;
}

const ACCESS_KEY = 'test-access-key';

/** Settings of a runtime that uses this server. */
export const s3Environment = ({ url, bucket }: S3Server, prefix = 'some/prefix'): Record<string, string> => ({
  ARTIFACT_STORE: `s3://${bucket}/${prefix}`,
  AWS_ENDPOINT_URL: url,
  AWS_REGION: 'eu-test-1',
});

/** Starts an empty bucket on a free loopback port. Its credentials are where AWS's SDK looks: in the environment. */
export async function startS3(bucket = 'artifacts'): Promise<S3Server> {
  Object.assign(process.env, { AWS_ACCESS_KEY_ID: ACCESS_KEY, AWS_SECRET_ACCESS_KEY: 'test-secret-key' });
  const state = { bucket, objects: new Map<string, Buffer>(), requests: [] as string[], fault: undefined, flooded: 0 };
  const started: S3Server = { ...state, url: '', close: () => close(server) };
  const server = createServer((request, response) => void serve(started, request, response));
  started.url = `http://127.0.0.1:${await listen(server)}`;
  return started;
}

async function serve(s3: S3Server, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method = '', headers } = request;
  const { pathname } = new URL(request.url ?? '', s3.url);
  s3.requests.push(`${method} ${pathname}`);
  const body = await readBody(request);
  const fault = (await s3.before?.(method)) ?? s3.fault;
  if (fault === 'silent') return;
  if (fault === 'flood') return pipeline(flood(s3), response).catch(() => undefined);
  if (fault === 'overloaded') return refuse(response, 503, 'SlowDown');
  const signed = headers.authorization?.startsWith(`AWS4-HMAC-SHA256 Credential=${ACCESS_KEY}/`);
  if (!signed || fault === 'forbidden') return refuse(response, 403, 'AccessDenied');
  const [, bucket, ...segments] = decodeURIComponent(pathname).split('/');
  if (bucket !== s3.bucket) return refuse(response, 404, 'NoSuchBucket');
  const key = segments.join('/');
  if (method === 'PUT') s3.objects.set(key, body);
  if (method === 'DELETE') s3.objects.delete(key);
  const object = s3.objects.get(key);
  if (method === 'GET' && !object) return refuse(response, 404, 'NoSuchKey');
  response.writeHead(method === 'DELETE' ? 204 : 200, { 'content-type': 'application/octet-stream' });
  response.end(method === 'GET' ? object : undefined);
}

async function* flood(s3: S3Server): AsyncGenerator<Buffer> {
  for (; s3.flooded < 256; s3.flooded += 1) yield Buffer.alloc(1_048_576);
}

function refuse(response: ServerResponse, status: number, code: string): void {
  const xml = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${code}</Code><Message>refused</Message></Error>`;
  response.writeHead(status, { 'content-type': 'application/xml' }).end(xml);
}
