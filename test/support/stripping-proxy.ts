import { createServer, request } from 'node:http';
import { close, listen } from './edge.ts';

/** A proxy that serves another service below a path, which it takes off: that service never sees it. */
export async function startStrippingProxy(
  target: string | (() => string),
  prefix: string,
): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer((incoming, outgoing) => {
    const { method, headers, url = '' } = incoming;
    if (!url.startsWith(`${prefix}/`)) {
      outgoing.writeHead(404).end(`${url} is not below ${prefix}`);
      return;
    }
    const { hostname, port } = new URL(typeof target === 'string' ? target : target());
    const sent = request({ hostname, port, method, headers, path: url.slice(prefix.length) }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(outgoing);
    });
    sent.on('error', () => outgoing.destroy());
    incoming.pipe(sent);
  });
  const url = `http://127.0.0.1:${await listen(server)}${prefix}`;
  return { url, close: () => close(server) };
}
