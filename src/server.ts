import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from './core/config.ts';
import { ConfigError } from './core/errors.ts';
import { answerClientError } from './http/error-handler.ts';

/**
 * Share of the grace period that running invocations have to end in by themselves; the rest is for storing their
 * interruption.
 */
const GRACE_SHARE = 0.9;
/** Time between two looks for idle connections of a stopping server. */
const IDLE_LOOK_MS = 20;

/**
 * Listens as configured, with limits for senders that are slow on purpose.
 * @throws {ConfigError} when the address cannot be had, with what to do about it.
 */
export function listen(server: Server, { HOST, PORT }: Config): Promise<Server> {
  // Slow senders must not hold sockets (reliability B12); answers may take as long as an invocation.
  server.headersTimeout = 10_000;
  server.requestTimeout = 60_000;
  server.keepAliveTimeout = 65_000;
  server.on('clientError', answerClientError);
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(new ConfigError(whyNotListening(error, HOST, PORT))));
    server.listen(PORT, HOST, () => resolve(server));
  });
}

function whyNotListening({ code, message }: NodeJS.ErrnoException, host: string, port: number): string {
  if (code === 'EADDRINUSE') return `PORT: ${port} is taken on ${host}; choose another, for example PORT=${port + 1}.`;
  if (code === 'EACCES') return `PORT: ${port} needs more rights than this user has; choose one above 1023.`;
  return `HOST: cannot listen on ${host}: ${message}.`;
}

/** Where a server listens, e.g. `http://127.0.0.1:8000`. */
export function urlOf(server: Server): string {
  const { address, port, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/**
 * Ends a server: running requests and invocations may finish, are told to stop when most of the grace period is over,
 * and their connections are cut at its end.
 * @param idle settles when no work is left beside the requests.
 */
export async function closeServer(
  server: Server,
  idle: Promise<unknown>,
  graceMs: number,
  interrupt: () => void,
): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // A kept-alive connection becomes idle when its last answer has gone out, which may be later.
  const looking = setInterval(() => server.closeIdleConnections(), IDLE_LOOK_MS);
  const ended = Promise.all([closed, idle]);
  const over = new AbortController();
  const wait = (ms: number) => sleep(ms, undefined, { signal: over.signal }).catch(() => undefined);
  await Promise.race([ended, wait(graceMs * GRACE_SHARE)]);
  interrupt();
  await Promise.race([ended, wait(graceMs * (1 - GRACE_SHARE))]);
  over.abort();
  server.closeAllConnections();
  await closed;
  clearInterval(looking);
}
