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
/** Connections that Node lets wait to be accepted. */
const BACKLOG = 511;
/** Interval at which a stopping server closes idle connections. */
const IDLE_POLL_MS = 20;

/** A server that listens. */
export interface Listener {
  /** Its address, e.g. `http://127.0.0.1:8000`. */
  url: string;
  /**
   * Stops: it serves on for `drainMs`, each answer closing its connection, then accepts no more connections. Requests
   * and invocations may finish, are interrupted when most of the grace period is over, and cut off at its end.
   */
  close(options: CloseOptions): Promise<void>;
}

/** The times and actions of a stop. */
export interface CloseOptions {
  /** Time in which it still accepts connections, so that load balancers notice that it is not ready. */
  drainMs: number;
  graceMs: number;
  /** Settles when no background work runs. */
  whenEnded: () => Promise<void>;
  /** Called to interrupt running work. */
  interrupt: () => void;
}

/** Listens as configured, with limits for slow senders. @throws {ConfigError} when the address cannot be had. */
export async function listen(server: Server, config: Config): Promise<Listener> {
  const { HOST, PORT, REQUEST_TIMEOUT_MS, KEEP_ALIVE_TIMEOUT_MS } = config;
  // Slow senders must not hold sockets (reliability B12); answers may take as long as an invocation.
  server.headersTimeout = Math.min(MAX_HEADERS_MS, REQUEST_TIMEOUT_MS);
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.keepAliveTimeout = KEEP_ALIVE_TIMEOUT_MS;
  limitConnections(server, config.fairness.MAX_CONNECTIONS_PER_ADDRESS, config.TRUSTED_PROXIES);
  server.on('clientError', answerClientError);
  const connections = new Connections(server);
  // Node looks at what has left the process, not at what was written (`net.Socket`, `_onTimeout`).
  server.setTimeout(REQUEST_TIMEOUT_MS, (socket) => connections.endSilent(socket));
  return {
    url: await listenAt(server, HOST, PORT, whyNotListening),
    async close({ drainMs, graceMs, whenEnded, interrupt }) {
      connections.refuseKeepAlive();
      await sleep(drainMs);
      // Behind the phase of the event loop that accepts one connection: those that wait for it would be reset.
      for (let accepted = -1, n = 0; accepted < connections.accepted && n < BACKLOG; n += 1) {
        accepted = connections.accepted;
        await setImmediate();
      }
      // Not the method of an HTTP server: that one ends every idle connection at once.
      const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()));
      const idle = setInterval(() => connections.endIdle(drainMs), IDLE_POLL_MS);
      await endWithin({ graceMs, ended: Promise.all([closed, whenEnded()]), interrupt });
      connections.endAll();
      await closed;
      clearInterval(idle);
    },
  };
}

/** Waits for running work, interrupts it when most of the grace period is over, and gives up at its end. */
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

/** A connection, and what is under way on it. */
interface OpenConnection {
  /** Since when it has had no request, in the time of `performance.now`; `undefined` while it has one. */
  idleSince: number | undefined;
  responses: ServerResponse[];
}

/**
 * The connections of a server. Requests stand in a list of their connection: one set of all, whose tables point to each
 * other as it grows, kept every request until the next large collection.
 */
class Connections {
  readonly #open = new Map<Socket, OpenConnection>();
  /** The connections that the last look found idle for long enough. */
  #candidates = new Set<Socket>();
  #isRefusing = false;
  /** Connections so far. */
  accepted = 0;

  constructor(server: Server) {
    server.on('connection', (socket) => {
      this.accepted += 1;
      this.#open.set(socket, { idleSince: performance.now(), responses: [] });
      socket.once('close', () => this.#open.delete(socket));
    });
    // A WebSocket ends itself when the service stops; it is never idle as a connection for requests is.
    server.prependListener('upgrade', ({ socket }) => this.#begin(socket));
    // Before the application, which may answer at once.
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
    // A client may send the next request before it has this answer.
    if (responses.length === 0) connection.idleSince = performance.now();
  }

  /** Ends a connection on which nothing has moved for its time-out, unless its answer is not there yet. */
  endSilent(socket: Socket): void {
    const connection = this.#open.get(socket);
    const isWaiting = connection !== undefined && connection.idleSince === undefined;
    if (!isWaiting || socket.writableLength > 0) socket.destroy();
  }

  /** From now on an answer ends its connection, so that its client opens the next one elsewhere. */
  refuseKeepAlive(): void {
    this.#isRefusing = true;
    const responses = [...this.#open.values()].flatMap((connection) => connection.responses);
    for (const response of responses) if (!response.headersSent) response.setHeader('connection', 'close');
  }

  /** Ends what is left, also what was upgraded, which the server itself does not count. */
  endAll(): void {
    for (const socket of this.#open.keys()) socket.destroy();
  }

  /**
   * Ends the connections that have been idle for so long. Between two calls what has arrived is read, so a connection
   * is ended by the second one that finds it idle: a process that was busy must not take a late look for a silence.
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
