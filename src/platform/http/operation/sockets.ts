import { type IncomingMessage, type RequestListener, type Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { WebSocket, WebSocketServer } from 'ws';
import { UnavailableError } from '../../../core/errors.ts';
import { IGNORED_MEMBERS } from './operation.ts';
import { RequestRefusedError } from './request-errors.ts';

const NO_UPGRADE = 'This address speaks WebSocket: the request must ask for an upgrade.';

/** The WebSockets of a server. */
export interface Sockets {
  /** Lets the application judge every upgrade as any request: what it refuses gets its HTTP answer and no socket. */
  attach(server: Server, app: RequestListener): void;
  /**
   * Accepts the upgrade of a request that the application has let through.
   * @throws {RequestRefusedError} for a request that is none. @throws {UnavailableError} when there are too many.
   */
  accept(request: IncomingMessage, response: ServerResponse): Promise<WebSocket>;
  /** How many are open. */
  count(): number;
}

/**
 * True for a request that asks for a WebSocket at a path. For any other offer to change the protocol, as Java's client
 * makes one with each request (`h2c`), Node would leave the body unread.
 */
export const isWebSocketUpgrade =
  (path: string) =>
  ({ method, headers, url = '' }: IncomingMessage): boolean =>
    method === 'GET' &&
    headers.upgrade?.toLowerCase() === 'websocket' &&
    url.split('?')[0]?.replace(/\/$/, '') === path;

/** @param limits `frameBytes` of one message, `sockets` that may be open at once */
export function createSockets(limits: { frameBytes: number; sockets: number }): Sockets {
  /** Made with the first WebSocket, which loads the package. */
  let webSockets: WebSocketServer | undefined;
  const upgrades = new WeakMap<IncomingMessage, { socket: Duplex; head: Buffer; ignored?: string }>();
  return {
    count: () => webSockets?.clients.size ?? 0,
    attach(server, app) {
      server.on('upgrade', (request, socket, head) => {
        const response = new ServerResponse(request);
        response.shouldKeepAlive = false;
        response.assignSocket(request.socket);
        // The socket is no longer read: ended from our side alone it would stay, also when its client has gone.
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
        // What a client compresses may be a thousand times as large.
        perMessageDeflate: false,
        maxPayload: limits.frameBytes,
      }).on('headers', (lines: string[], incoming: IncomingMessage) => {
        const { ignored } = upgrades.get(incoming) ?? {};
        if (ignored !== undefined) lines.push(`${IGNORED_MEMBERS}: ${ignored}`);
      });
      const opened = webSockets;
      // An upgrade has headers of its own; of those of the response it needs this one.
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
