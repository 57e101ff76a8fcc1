import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Pool } from 'pg';
import type { TestApp } from './app.ts';
import { readBody } from './edge.ts';

/**
 * A writer of durable streams, for their suite: it makes its streams by writing and has paths of its own. A stream is
 * an invocation, a message an event with the message in its metadata; reads are those of the door, with the messages
 * taken out of the events, and of a stream that is no JSON joined.
 */

const USER = '/apps/harness_agent/users/user/sessions';
const INVOCATION = 'i';
interface Written {
  type: string;
  isClosed: boolean;
}
interface Message {
  event: { customMetadata: { message: unknown } };
}

export async function startWriter(
  app: TestApp,
  sql: Pick<Pool, 'query'>,
): Promise<{ url: string; close(): Promise<void> }> {
  const streams = new Map<string, Written>();
  const doorOf = (name: string) =>
    `${app.url}/durable-streams/harness_agent/sessions/${name}/invocations/${INVOCATION}`;
  const server = createServer((request, response) => {
    void answer(request, response).catch((error: unknown) => {
      if (!response.headersSent) response.writeHead(500);
      response.end(String(error));
    });
  });

  const append = async (name: string, { type }: Written, body: Buffer) => {
    const messages = type.startsWith('application/json')
      ? [JSON.parse(body.toString()) as unknown].flat(1)
      : [body.toString('base64')];
    for (const message of messages) {
      const event = { author: 'user', invocationId: INVOCATION, customMetadata: { message } };
      const { status, text } = await app.post(`${USER}/${name}/events`, event);
      if (status !== 200) throw new Error(text);
    }
    return messages.length;
  };
  const setStatus = (name: string, status: string) =>
    sql.query('update invocations set status = $2, end_time = now() where session_id = $1', [name, status]);
  const tailOf = async (name: string) =>
    (await fetch(doorOf(name), { method: 'HEAD' })).headers.get('stream-next-offset') ?? '';

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, search } = new URL(request.url ?? '/', 'http://writer');
    const name = decodeURIComponent(pathname.replace('/v1/stream/', '')).replaceAll('/', '~');
    response.setHeader('x-content-type-options', 'nosniff');
    const body = await readBody(request);
    const { method = '', headers } = request;
    const stream = streams.get(name);
    const type = headers['content-type'] ?? 'application/octet-stream';
    const isClosing = headers['stream-closed'] === 'true';
    const end = async (status: number, more: Record<string, string> = {}) => {
      const known = streams.get(name);
      const closed: Record<string, string> = known?.isClosed ? { 'stream-closed': 'true' } : {};
      const offset: Record<string, string> = known ? { 'stream-next-offset': await tailOf(name) } : {};
      response.writeHead(status, { ...offset, ...closed, ...more }).end();
    };
    const close = async (written: Written) => {
      written.isClosed = true;
      await setStatus(name, 'succeeded');
    };
    if (method === 'GET' || method === 'HEAD')
      return read(method, `${doorOf(name)}${search}`, stream, request, response);
    if (method === 'DELETE') {
      if (!streams.delete(name)) return end(404);
      await app.send('DELETE', `${USER}/${name}`);
      return end(204);
    }
    if (method === 'PUT') {
      const isSame = stream?.type.toLowerCase() === type.toLowerCase() && stream.isClosed === isClosing;
      if (stream) return end(isSame ? 200 : 409, { 'content-type': stream.type });
      const created: Written = { type, isClosed: false };
      await app.post(USER, { sessionId: name });
      await sql.query(
        `insert into invocations (app_name, user_id, session_id, id, status, lease_token, lease_expire_time, start_time)
         values ('harness_agent', 'user', $1, $2, 'running', gen_random_uuid(), now() + interval '1 day', now())`,
        [name, INVOCATION],
      );
      streams.set(name, created);
      if (body.length > 0) await append(name, created, body);
      if (isClosing) await close(created);
      return end(201, { location: `http://${headers.host}${pathname}`, 'content-type': type });
    }
    if (method !== 'POST') return end(405);
    if (!stream) return end(404);
    if (isClosing && body.length === 0) {
      if (!stream.isClosed) await close(stream);
      return end(204);
    }
    if (stream.isClosed) return end(409);
    if (body.length === 0 || headers['content-type'] === undefined) return end(400);
    if (type.split(';')[0]?.toLowerCase() !== stream.type.split(';')[0]?.toLowerCase()) return end(409);
    const count = await append(name, stream, body).catch((error: unknown) => (error instanceof SyntaxError ? 0 : -1));
    if (count <= 0) return end(count === 0 ? 400 : 413);
    if (isClosing) await close(stream);
    return end(204);
  }

  // On a busy machine a connection may be closed as idle just when the next request is on its way over it.
  server.keepAliveTimeout = 0;
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Answers a read with that of the door, in the type of the stream. */
async function read(
  method: string,
  url: string,
  stream: Written | undefined,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  const known = request.headers['if-none-match'];
  const headers: Record<string, string> = known === undefined ? {} : { 'if-none-match': known };
  const found = await fetch(url, { method, headers, signal: gone.signal });
  const isLive = found.headers.get('content-type')?.startsWith('text/event-stream') === true;
  const type = stream?.type ?? 'application/json';
  const isText = /^(text\/|application\/json)/i.test(type);
  for (const [name, value] of found.headers)
    if (!/^(content-(length|encoding)|transfer-encoding|connection|date|keep-alive)$/.test(name))
      response.setHeader(name, value);
  if (found.status === 200 && !isLive) response.setHeader('content-type', type);
  if (isLive && !isText) response.setHeader('stream-sse-data-encoding', 'base64');
  response.writeHead(found.status);
  if (!isLive) {
    const text = await found.text();
    response.end(found.status === 200 && method === 'GET' ? toBody(text, type) : text);
    return;
  }
  let rest = '';
  try {
    for await (const text of (found.body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream())) {
      const frames = (rest + text).split('\n\n');
      rest = frames.pop() ?? '';
      for (const frame of frames) response.write(`${toFrame(frame, type, isText)}\n\n`);
    }
  } catch {
    // The client has gone.
  }
  response.end();
}

const isJson = (type: string) => type.startsWith('application/json');
const messagesOf = (text: string) => (JSON.parse(text) as Message[]).map(({ event }) => event.customMetadata.message);

function toBody(text: string, type: string): string | Buffer {
  const messages = messagesOf(text);
  if (isJson(type)) return JSON.stringify(messages);
  return Buffer.concat(messages.map((message) => Buffer.from(message as string, 'base64')));
}

const toLine = (text: string) => (text.startsWith(' ') ? `data: ${text}` : `data:${text}`);

function toFrame(frame: string, type: string, isText: boolean): string {
  const [event = '', ...lines] = frame.split('\n');
  // Without the blank: the suite looks for it so, and it means nothing.
  if (event !== 'event: data') return [event, ...lines.map((line) => toLine(line.slice('data: '.length)))].join('\n');
  const body = toBody(lines.map((line) => line.slice('data: '.length)).join('\n'), type);
  const text = isText ? body.toString() : (body as Buffer).toString('base64');
  return [event, ...text.split(/\r\n|\r|\n/).map(toLine)].join('\n');
}
