import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import { isIP, type AddressInfo } from 'node:net';
import { ConfigError } from '../../core/errors.ts';

/** How long a collector may take to send its request. */
const REQUEST_TIMEOUT_MS = 5_000;
/** Connections at once; a collector needs one. */
const MAX_CONNECTIONS = 20;

/** The server of `/metrics`. */
export interface MetricsServer {
  /** Where it listens, e.g. `http://127.0.0.1:9464`. */
  url: string;
  close(): Promise<void>;
}

/**
 * Serves `GET /metrics` on a port of its own and nothing else. It has no login: whoever reaches the port may read it,
 * and a web page in somebody's browser is not to reach it by a name of its own (DNS rebinding).
 * @param allowedHosts further names that it answers to: every address, `localhost` and names without a dot are
 * @throws {ConfigError} when the address cannot be had, with what to do about it
 */
export async function serveMetrics(
  { host, port, allowedHosts }: { host: string; port: number; allowedHosts: readonly string[] },
  respond: RequestListener,
): Promise<MetricsServer> {
  const server = createServer((request, response) => {
    const status = !isOwnName(request, allowedHosts) ? 403 : !isMetrics(request) ? 404 : 200;
    if (status === 200) return respond(request, response);
    response.writeHead(status, { 'content-type': 'text/plain' }).end(status === 403 ? 'Forbidden\n' : 'Not Found\n');
  });
  server.headersTimeout = REQUEST_TIMEOUT_MS;
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.maxConnections = MAX_CONNECTIONS;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(new ConfigError(whyNot(error, host, port))));
    server.listen(port, host, resolve);
  });
  return { url: urlOf(server), close: () => close(server) };
}

const isMetrics = ({ method, url = '' }: IncomingMessage) =>
  (method === 'GET' || method === 'HEAD') && url.split('?')[0] === '/metrics';

/** A name that DNS rebinding can use has a dot. */
function isOwnName({ headers }: IncomingMessage, allowedHosts: readonly string[]): boolean {
  const host = (headers.host ?? '').toLowerCase();
  const name = host.replace(/:\d{1,5}$/, '');
  const isAddress = isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0;
  return (
    isAddress || !name.includes('.') || allowedHosts.some((allowed) => [host, name].includes(allowed.toLowerCase()))
  );
}

function whyNot({ code, message }: NodeJS.ErrnoException, host: string, port: number): string {
  if (code === 'EADDRINUSE') return `METRICS_PORT: ${port} is taken on ${host}; choose another.`;
  return `METRICS_HOST: cannot listen on ${host} for /metrics: ${message}.`;
}

function urlOf(server: Server): string {
  const { address, port, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

async function close(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeAllConnections();
  await closed;
}
