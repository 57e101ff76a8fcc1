import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';
import { readBody } from './edge.ts';

/** A request as a receiver got it. */
export interface Received {
  path: string;
  id: string;
  headers: IncomingHttpHeaders;
  body: string;
  /** The body as JSON. */
  message: { type: string; timestamp: string; data: Record<string, unknown> };
}

/** What a receiver answers to a request: a status, or all of it. */
type Reply = number | { status: number; headers?: Record<string, string>; body?: string };

/** A receiver of webhooks on a port of its own. */
export interface Receiver {
  origin: string;
  received: Received[];
  /** Those of one path. */
  at(path: string): Received[];
  /** What is answered from now on, for the n-th request of a path (from 1) [204]. */
  reply(path: string, answer: (n: number) => Reply | Promise<Reply>): void;
  /** Settles when a path has got so many requests. */
  until(path: string, count: number): Promise<Received[]>;
  close(): Promise<void>;
}

/** Starts a receiver on loopback. */
export async function startReceiver(): Promise<Receiver> {
  const received: Received[] = [];
  const replies = new Map<string, (n: number) => Reply | Promise<Reply>>();
  let came = Promise.withResolvers<void>();
  const at = (path: string) => received.filter((each) => each.path === path);
  const take = async (request: IncomingMessage, response: ServerResponse) => {
    const body = (await readBody(request)).toString();
    const path = request.url ?? '';
    const message = JSON.parse(body) as Received['message'];
    received.push({ path, id: String(request.headers['webhook-id']), headers: request.headers, body, message });
    came.resolve();
    came = Promise.withResolvers();
    const reply = (await replies.get(path)?.(at(path).length)) ?? 204;
    const { status, headers = {}, body: text } = typeof reply === 'number' ? { status: reply } : reply;
    response.writeHead(status, headers).end(text);
  };
  const server = createServer((request, response) => void take(request, response));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received,
    at,
    reply: (path, answer) => void replies.set(path, answer),
    async until(path, count) {
      while (at(path).length < count) await came.promise;
      return at(path);
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** True where a secret verifies a request. */
export function verifies(secret: string, { headers, body }: Received): boolean {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>);
    return true;
  } catch {
    return false;
  }
}
