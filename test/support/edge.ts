import { type IncomingHttpHeaders, type IncomingMessage, type Server, createServer, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { COMPONENTS } from '../../src/process/app.ts';
import { type HttpAppOptions, createHttpApp } from '../../src/platform/http/http-app.ts';
import { answerClientError } from '../../src/platform/http/error-handler.ts';

/**
 * One request as bytes on a real socket: `fetch` would clean up paths and headers that a test sends broken on purpose.
 */
export interface Sent {
  method?: string;
  path: string;
  headers?: Record<string, string | string[]>;
  /** A value is sent as JSON with its media type; text and bytes are sent as they are. */
  body?: unknown;
}

interface Received {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
}

export interface StartedEdge {
  port: number;
  /** Everything that was logged, in order. */
  logged: { fields: Record<string, unknown>; message: string }[];
  send(sent: Sent): Promise<Received>;
  /** Sends these bytes and gives back all that comes until the server closes the connection. */
  sendRaw(text: string): Promise<string>;
  close(): Promise<void>;
}

/** Starts an edge on a free loopback port; anything goes into `logged`. */
export async function startEdge(
  options: Partial<HttpAppOptions> & Pick<HttpAppOptions, 'operations'>,
): Promise<StartedEdge> {
  const logged: StartedEdge['logged'] = [];
  const app = createHttpApp({
    context: undefined,
    components: COMPONENTS,
    auth: { mode: 'local' },
    origins: { ownNamesOnly: false },
    proxies: { trusted: [], refusesOthers: false },
    log: {
      error: (fields, message) => logged.push({ fields, message }),
      warn: (fields, message) => logged.push({ fields, message }),
    },
    maxBodyBytes: 1_000_000,
    ...options,
  });
  const server = createServer(app);
  server.on('clientError', answerClientError);
  const port = await listen(server);
  return {
    port,
    logged,
    send: (sent) => send(port, sent),
    sendRaw: (text) => sendRaw(port, text),
    close: () => close(server),
  };
}

/** Listens on a free loopback port and returns it. */
export function listen(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
}

/** Closes a server and every connection it still has. */
export function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

/** Reads the body of a request. Never settles for a client that leaves within it: there is nobody to answer. */
export function readBody(incoming: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  return new Promise((resolve) => {
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk)).on('end', () => resolve(Buffer.concat(chunks)));
  });
}

function sendRaw(port: number, text: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    let answer = '';
    socket.on('data', (chunk) => (answer += chunk.toString()));
    // Refused bytes that the server has not read reset the connection behind its answer.
    socket.on('error', () => undefined).on('close', () => resolve(answer));
  });
}

/** Sends one request as bytes to a loopback port. */
export function send(port: number, { method = 'GET', path, headers = {}, body }: Sent): Promise<Received> {
  const isRaw = body === undefined || typeof body === 'string' || Buffer.isBuffer(body);
  const bytes = isRaw ? body : JSON.stringify(body);
  const length = bytes === undefined ? {} : { 'content-length': String(Buffer.byteLength(bytes)) };
  const type = isRaw ? {} : { 'content-type': 'application/json' };
  return new Promise((resolve, reject) => {
    const sending = request({ port, host: '127.0.0.1', method, path, headers: { ...length, ...type, ...headers } });
    sending.on('error', reject);
    sending.on('response', (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text: Buffer.concat(chunks).toString(),
        });
      });
    });
    sending.end(bytes);
  });
}
