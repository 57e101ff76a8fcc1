import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';

/** A message of a client of Google's live API. */
export interface LiveClientMessage {
  setup?: Record<string, unknown>;
  clientContent?: { turns: { role: string; parts: object[] }[]; turnComplete: boolean };
  realtimeInput?: { audio?: { mimeType: string; data: string }; video?: object } & Record<string, unknown>;
  toolResponse?: { functionResponses: { id: string; name: string; response: object }[] };
}

/** What a connection may be told by its script. */
export interface LiveSide {
  send(message: object): void;
  close(code: number, reason: string): void;
}

export interface LiveServer {
  /** As `MODEL_BASE_URL` has it. */
  baseUrl: string;
  /** Of all connections, in order. */
  messages: LiveClientMessage[];
  handshakes: { path: string; headers: IncomingHttpHeaders }[];
  /** Settles when a message came for which this holds. */
  received(is: (message: LiveClientMessage) => boolean): Promise<LiveClientMessage>;
  /** Number of connections that are open. */
  open(): number;
  close(): Promise<void>;
}

/**
 * A server on loopback that speaks Google's live API: JSON in binary messages. It answers a set-up with
 * `setupComplete`; what follows says the script. Requests of the other API are answered with `typedAnswer`.
 */
export async function startLiveServer(
  script: (message: LiveClientMessage, side: LiveSide) => void,
  typedAnswer = 'Typed.',
): Promise<LiveServer> {
  const messages: LiveClientMessage[] = [];
  const handshakes: LiveServer['handshakes'] = [];
  let changed = Promise.withResolvers<void>();
  const server = createServer((_request, response) => {
    const content = { role: 'model', parts: [{ text: typedAnswer }] };
    const answer = { candidates: [{ index: 0, content, finishReason: 'STOP' }], modelVersion: 'typed' };
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: ${JSON.stringify(answer)}\n\n`);
  });
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (socket: WebSocket, { url = '', headers }) => {
    handshakes.push({ path: url, headers });
    const side: LiveSide = {
      send: (message) => socket.send(Buffer.from(JSON.stringify(message))),
      close: (code, reason) => socket.close(code, reason),
    };
    socket.on('message', (data: Buffer) => {
      const message = JSON.parse(data.toString()) as LiveClientMessage;
      messages.push(message);
      changed.resolve();
      changed = Promise.withResolvers();
      script(message, side);
      if (message.setup && socket.readyState === socket.OPEN) side.send({ setupComplete: {} });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    messages,
    handshakes,
    async received(is) {
      for (;;) {
        const found = messages.find(is);
        if (found) return found;
        await changed.promise;
      }
    },
    open: () => [...sockets.clients].filter((socket) => socket.readyState === socket.OPEN).length,
    async close() {
      for (const socket of sockets.clients) socket.terminate();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
