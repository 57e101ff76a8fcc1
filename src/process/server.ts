import type { Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import type { Config } from './config.ts';
import { answerClientError, answerStopped } from '../platform/http/error-handler.ts';
import { limitConnections } from '../platform/http/limits/connection-limit.ts';
import { listenAt } from '../platform/net/network.ts';

/** Share of the grace period that running invocations have to end. The rest is for storing their interruption. */
const GRACE_SHARE = 0.9;
/** Maximum time for the headers of a request to arrive, in milliseconds. */
const MAX_HEADERS_MS = 10_000;
/** Number of connections that may wait to be accepted: Node's default backlog. */
const BACKLOG = 511;
/** Maximum time in which the last answers of a stopping server leave it, in milliseconds. */
const FLUSH_MS = 1_000;
/** Interval at which a stopping server closes idle connections, in milliseconds. */
const IDLE_POLL_MS = 20;

export interface Listener {
  /** The address of the server, e.g. `http://127.0.0.1:8000`. */
  url: string;
  /**
   * Stops the server. For `drainMs` it serves requests, each of whose responses closes its connection; then it accepts
   * no connections. Running requests and invocations are interrupted when most of the grace period is over. Those that
   * have no answer at its end get 503, and all connections are closed.
   */
  close(options: CloseOptions): Promise<void>;
}

export interface CloseOptions {
  /** Milliseconds in which the server still accepts connections, until load balancers notice that it is not ready. */
  drainMs: number;
  graceMs: number;
  /** Returns a promise that settles when no background work runs. */
  whenEnded: () => Promise<void>;
  interrupt: () => void;
}

/** Starts listening at HOST and PORT. @throws {ConfigError} if the address is not available */
export async function listen(server: Server, config: Config): Promise<Listener> {
  const { HOST, PORT, REQUEST_TIMEOUT_MS, KEEP_ALIVE_TIMEOUT_MS } = config;
  // Clients that send slowly must not occupy sockets. Responses may take as long as an invocation.
  server.headersTimeout = Math.min(MAX_HEADERS_MS, REQUEST_TIMEOUT_MS);
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.keepAliveTimeout = KEEP_ALIVE_TIMEOUT_MS;
  limitConnections(server, config.fairness.MAX_CONNECTIONS_PER_ADDRESS, config.TRUSTED_PROXIES);
  server.on('clientError', answerClientError);
  const connections = new Connections(server);
  // Node's time-out measures when bytes last left the process, not when they were written (`net.Socket`, `_onTimeout`).
  server.setTimeout(REQUEST_TIMEOUT_MS, (socket) => connections.endSilent(socket));
  return {
    url: await listenAt(server, HOST, PORT, whyNotListening),
    async close({ drainMs, graceMs, whenEnded, interrupt }) {
      connections.refuseKeepAlive();
      await sleep(drainMs);
      // Node accepts one connection in each turn of the event loop, and resets those that wait when the server closes.
      for (let accepted = -1, n = 0; accepted < connections.accepted && n < BACKLOG; n += 1) {
        accepted = connections.accepted;
        await setImmediate();
      }
      // Calls `close` of `net.Server`, because that of the HTTP server ends every idle connection at once.
      const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()));
      const idle = setInterval(() => connections.endIdle(drainMs), IDLE_POLL_MS);
      await endWithin({ graceMs, ended: Promise.all([closed, whenEnded()]), interrupt });
      connections.endAll();
      await Promise.race([closed, sleep(FLUSH_MS, undefined, { ref: false })]);
      connections.destroyAll();
      await closed;
      clearInterval(idle);
    },
  };
}

/** Waits for running work, interrupts it when most of the grace period is over, and gives up at the end. */
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
  /** When the connection became idle, by `performance.now()`; `undefined` during a request. */
  idleSince: number | undefined;
  responses: ServerResponse[];
}

/**
 * The open connections of a server, each with a list of its responses. A single growing set retained each response
 * until the next major garbage collection, because its tables point to each other.
 */
class Connections {
  readonly #open = new Map<Socket, OpenConnection>();
  /** The connections that the last call of `endIdle` found idle for long enough. */
  #candidates = new Set<Socket>();
  #isRefusing = false;
  accepted = 0;

  constructor(server: Server) {
    server.on('connection', (socket) => {
      this.accepted += 1;
      this.#open.set(socket, { idleSince: performance.now(), responses: [] });
      socket.once('close', () => this.#open.delete(socket));
    });
    // A WebSocket never counts as idle. It ends itself when the service stops.
    server.prependListener('upgrade', ({ socket }) => this.#begin(socket));
    // The listener is added before the application's, because that may respond at once.
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
    // The connection is not idle if, with HTTP pipelining, the next request has arrived already.
    if (responses.length === 0) connection.idleSince = performance.now();
  }

  /** Ends a connection that had no traffic for the time-out, unless its response has not begun. */
  endSilent(socket: Socket): void {
    const connection = this.#open.get(socket);
    const isWaiting = connection !== undefined && connection.idleSince === undefined;
    if (!isWaiting || socket.writableLength > 0) socket.destroy();
  }

  /** Makes each response close its connection, so that the client connects to another process. */
  refuseKeepAlive(): void {
    this.#isRefusing = true;
    const responses = [...this.#open.values()].flatMap((connection) => connection.responses);
    for (const response of responses) if (!response.headersSent) response.setHeader('connection', 'close');
  }

  /**
   * Ends all connections, including WebSockets, which Node's HTTP server does not count. A request without an answer
   * gets one: on a busy machine it may have been interrupted too late to answer itself.
   */
  endAll(): void {
    for (const [socket, { responses }] of this.#open) {
      const [response] = responses;
      if (response?.headersSent === false) answerStopped(socket, response.req);
      else socket.destroy();
    }
  }

  destroyAll(): void {
    for (const socket of this.#open.keys()) socket.destroy();
  }

  /**
   * Ends a connection that two consecutive calls find idle. The event loop reads what has arrived in between, so a busy
   * process does not mistake its own delay for an idle connection.
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
