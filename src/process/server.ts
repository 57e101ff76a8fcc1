import type { Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config/config.ts';
import { answerClientError } from '../platform/http/error-handler.ts';
import { limitConnections } from '../platform/http/limits/connection-limit.ts';
import { listenAt } from '../platform/net/network.ts';

/** Share of the grace period for running invocations; the rest is for storing their interruption. */
const GRACE_SHARE = 0.9;
/** Maximum time in which the headers of a request arrive. */
const MAX_HEADERS_MS = 10_000;
/** Node's default backlog of connections to accept. */
const BACKLOG = 511;
/** Interval at which a stopping server closes idle connections. */
const IDLE_POLL_MS = 20;

export interface Listener {
  /** E.g. `http://127.0.0.1:8000`. */
  url: string;
  /**
   * Stops. It serves for `drainMs` more, each answer closing its connection, and then accepts no connections. Requests
   * and invocations may finish. They are interrupted when most of the grace period is over, and cut off at its end.
   */
  close(options: CloseOptions): Promise<void>;
}

export interface CloseOptions {
  /** Time during which it still accepts connections, until load balancers notice that it is not ready. */
  drainMs: number;
  graceMs: number;
  /** Settles when no background work runs. */
  whenEnded: () => Promise<void>;
  interrupt: () => void;
}

/** @throws {ConfigError} if the address is not available */
export async function listen(server: Server, config: Config): Promise<Listener> {
  const { HOST, PORT, REQUEST_TIMEOUT_MS, KEEP_ALIVE_TIMEOUT_MS } = config;
  // Slow senders must not hold sockets (reliability B12); answers may take as long as an invocation.
  server.headersTimeout = Math.min(MAX_HEADERS_MS, REQUEST_TIMEOUT_MS);
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.keepAliveTimeout = KEEP_ALIVE_TIMEOUT_MS;
  limitConnections(server, config.fairness.MAX_CONNECTIONS_PER_ADDRESS, config.TRUSTED_PROXIES);
  server.on('clientError', answerClientError);
  const connections = new Connections(server);
  // Node's time-out counts bytes that have left the process, not written ones (`net.Socket`, `_onTimeout`).
  server.setTimeout(REQUEST_TIMEOUT_MS, (socket) => connections.endSilent(socket));
  return {
    url: await listenAt(server, HOST, PORT, whyNotListening),
    async close({ drainMs, graceMs, whenEnded, interrupt }) {
      connections.refuseKeepAlive();
      await sleep(drainMs);
      // After the phase of the event loop that accepts one connection, because waiting ones would be reset.
      for (let accepted = -1, n = 0; accepted < connections.accepted && n < BACKLOG; n += 1) {
        accepted = connections.accepted;
        await setImmediate();
      }
      // Not `close` of the HTTP server, which ends every idle connection at once.
      const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()));
      const idle = setInterval(() => connections.endIdle(drainMs), IDLE_POLL_MS);
      await endWithin({ graceMs, ended: Promise.all([closed, whenEnded()]), interrupt });
      connections.endAll();
      await closed;
      clearInterval(idle);
    },
  };
}

/** Waits for running work, interrupts it when most of the grace period is over, and stops waiting at its end. */
export async function endWithin(options: {
  graceMs: number;
  ended: Promise<unknown>;
  interrupt: () => void;
}): Promise<void> {
  const { graceMs, ended, interrupt } = options;
  const over = new AbortController();
  const wait = (ms: number) => sleep(ms, undefined, { signal: over.signal }).catch(() => undefined);
  await Promise.race([ended, wait(graceMs * GRACE_SHARE)]);
  interrupt();
  await Promise.race([ended, wait(graceMs * (1 - GRACE_SHARE))]);
  over.abort();
}

function whyNotListening({ code, message }: NodeJS.ErrnoException, host: string, port: number): string {
  if (code === 'EADDRINUSE') return `PORT: ${port} is taken on ${host}; choose another, for example PORT=${port + 1}.`;
  if (code === 'EACCES') return `PORT: ${port} needs more rights than this user has; choose one above 1023.`;
  return `HOST: cannot listen on ${host}: ${message}.`;
}

interface OpenConnection {
  /** Begin of its idle time, by `performance.now`; `undefined` during a request. */
  idleSince: number | undefined;
  responses: ServerResponse[];
}

/**
 * Each connection has a list of its requests. One set of all requests, whose tables point to each other as it grows,
 * retained every request until the next major garbage collection.
 */
class Connections {
  readonly #open = new Map<Socket, OpenConnection>();
  /** The connections that the last `endIdle` found idle for long enough. */
  #candidates = new Set<Socket>();
  #isRefusing = false;
  /** Count of all connections so far. */
  accepted = 0;

  constructor(server: Server) {
    server.on('connection', (socket) => {
      this.accepted += 1;
      this.#open.set(socket, { idleSince: performance.now(), responses: [] });
      socket.once('close', () => this.#open.delete(socket));
    });
    // A WebSocket ends itself when the service stops, and is never idle.
    server.prependListener('upgrade', ({ socket }) => this.#begin(socket));
    // Before the application's listener, which may answer at once.
    server.prependListener('request', ({ socket }, response) => {
      this.#begin(socket, response);
      if (this.#isRefusing) response.setHeader('connection', 'close');
      response.once('close', () => this.#end(socket, response));
    });
  }

  #begin(socket: Socket, response?: ServerResponse): void {
    const connection = this.#open.get(socket);
    if (!connection) return;
    connection.idleSince = undefined;
    if (response) connection.responses.push(response);
  }

  #end(socket: Socket, response: ServerResponse): void {
    const connection = this.#open.get(socket);
    if (!connection) return;
    const { responses } = connection;
    responses.splice(responses.indexOf(response), 1);
    // With pipelining the next request may have come already.
    if (responses.length === 0) connection.idleSince = performance.now();
  }

  /** Ends a connection without traffic for its time-out, unless its answer has not begun. */
  endSilent(socket: Socket): void {
    const connection = this.#open.get(socket);
    const isWaiting = connection !== undefined && connection.idleSince === undefined;
    if (!isWaiting || socket.writableLength > 0) socket.destroy();
  }

  /** Makes each answer end its connection, so that the client connects to another process. */
  refuseKeepAlive(): void {
    this.#isRefusing = true;
    const responses = [...this.#open.values()].flatMap((connection) => connection.responses);
    for (const response of responses) if (!response.headersSent) response.setHeader('connection', 'close');
  }

  /** Ends all connections, also upgraded ones, which the server itself does not count. */
  endAll(): void {
    for (const socket of this.#open.keys()) socket.destroy();
  }

  /**
   * Ends connections at the second call that finds them idle, because what has arrived is read between two calls: a
   * busy process must not mistake its own delay for silence.
   */
  endIdle(forMs: number): void {
    const before = performance.now() - forMs;
    const idle = [...this.#open].flatMap(([socket, { idleSince }]) =>
      idleSince !== undefined && idleSince <= before ? [socket] : [],
    );
    for (const socket of idle) if (this.#candidates.has(socket)) socket.destroySoon();
    this.#candidates = new Set(idle);
  }
}
