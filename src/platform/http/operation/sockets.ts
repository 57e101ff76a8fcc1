import { type IncomingMessage, type RequestListener, type Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { WebSocket, WebSocketServer } from 'ws';
import { UnavailableError } from '../../../core/errors.ts';
import { IGNORED_MEMBERS } from './operation.ts';
import { RequestRefusedError } from './request-errors.ts';

const NO_UPGRADE = 'This address speaks WebSocket: the request must ask for an upgrade.';

export interface Sockets {
  /** Passes upgrade requests through the application like any other. A refused one gets an HTTP response. */
  attach(server: Server, app: RequestListener): void;
  /**
   * Accepts an upgrade request that the application has admitted.
   * @throws {RequestRefusedError} if the request is no upgrade
   * @throws {UnavailableError} if too many WebSockets are open
   */
  accept(request: IncomingMessage, response: ServerResponse): Promise<WebSocket>;
  count(): number;
}

/**
 * True for a request to open a WebSocket at one of these paths. Other upgrade offers, such as `h2c` in each request of Java's
 * client, must be ignored, because Node would leave their bodies unread.
 */
export const isWebSocketUpgrade =
  (paths: readonly string[]) =>
  ({ method, headers, url = '' }: IncomingMessage): boolean =>
    method === 'GET' &&
    headers.upgrade?.toLowerCase() === 'websocket' &&
    paths.includes(url.split('?')[0]?.replace(/\/$/, '') ?? '');

/** @param limits `frameBytes`: maximum size of a message; `sockets`: maximum number of open WebSockets */
export function createSockets(limits: { frameBytes: number; sockets: number }): Sockets {
  /** The server is created with the first WebSocket, because it loads the package `ws`. */
  let webSockets: WebSocketServer | undefined;
  const upgrades = new WeakMap<IncomingMessage, { socket: Duplex; head: Buffer; ignored?: string }>();
  return {
    count: () => webSockets?.clients.size ?? 0,
    attach(server, app) {
      server.on('upgrade', (request, socket, head) => {
        const response = new ServerResponse(request);
        response.shouldKeepAlive = false;
        response.assignSocket(request.socket);
        // The socket is no longer read: closed from our side only, it would stay after its client has disconnected.
        response.on('finish', () => request.socket.destroySoon());
        socket.on('error', () => socket.destroy());
        upgrades.set(request, { socket, head });
        app(request, response);
      });
    },
    async accept(request, response) {
      const upgrade = upgrades.get(request);
      if (!upgrade || request.headers.upgrade?.toLowerCase() !== 'websocket')
        throw new RequestRefusedError('upgrade_required', NO_UPGRADE, { upgrade: 'websocket', connection: 'upgrade' });
      const { WebSocketServer: Sockets } = await import('ws');
      webSockets ??= new Sockets({
        noServer: true,
        // Compression is off, because a compressed message may expand a thousandfold.
        perMessageDeflate: false,
        maxPayload: limits.frameBytes,
      }).on('headers', (lines: string[], incoming: IncomingMessage) => {
        const { ignored } = upgrades.get(incoming) ?? {};
        if (ignored !== undefined) lines.push(`${IGNORED_MEMBERS}: ${ignored}`);
      });
      const opened = webSockets;
      // An upgrade's response has its own headers; of those set before, only `X-Ignored-Members` is passed on.
      const ignored = response.getHeader(IGNORED_MEMBERS);
      if (typeof ignored === 'string') upgrade.ignored = ignored;
      if (opened.clients.size >= limits.sockets)
        throw new UnavailableError(`The service has ${limits.sockets} live sessions already. Try again later.`);
      response.detachSocket(request.socket);
      return await new Promise((resolve) =>
        opened.handleUpgrade(request, upgrade.socket, upgrade.head, (socket) => resolve(socket)),
      );
    },
  };
}
