import { once } from 'node:events';
import type { Response } from 'express';
import { NOT_VALID_ANY_MORE, type Principal, whenEnded } from './principal.ts';

/** Time between comments that keep an idle stream open through proxies. */
const KEEP_ALIVE_MS = 15_000;

/** A stream of server-sent events (WHATWG HTML, 9.2). */
export interface EventStream {
  /** Aborted when the client has gone. */
  signal: AbortSignal;
  /** Writes one frame of JSON on one line, with `type` as the event's name, and waits while the client reads slowly. */
  send(data: string, id?: number | string, type?: string): Promise<void>;
  end(): void;
}

/** How a stream behaves. */
interface StreamOptions {
  /** True: comments go out while nothing else does. */
  comments: boolean;
  /** True: frames of one moment go out in one write [each in its own: ADK's UI drops the rest of a cut frame]. */
  isJoined?: boolean;
  /** The last frame of a stream whose credential has expired or was revoked. */
  expired?: string;
}

const EXPIRED_FRAME = `event: expired\ndata: ${JSON.stringify({ detail: NOT_VALID_ANY_MORE })}\n\n`;

/** Begins a stream on a response; it ends when the credential of the request does, with a frame that says so. */
export function openEventStream(response: Response, options: StreamOptions): EventStream {
  const { comments, isJoined = false, expired = EXPIRED_FRAME } = options;
  const gone = new AbortController();
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    connection: 'keep-alive',
    'x-accel-buffering': 'no',
  });
  response.flushHeaders();
  const timer = comments ? setInterval(() => response.write(': ping\n\n'), KEEP_ALIVE_MS) : undefined;
  const stop = () => {
    clearInterval(timer);
    gone.abort();
  };
  const cancel = whenEnded((response.locals.principal ?? {}) as Partial<Principal>, () => {
    stop();
    response.end(expired);
  });
  response.on('close', () => {
    cancel();
    stop();
  });
  return {
    signal: gone.signal,
    async send(data, id, type) {
      if (gone.signal.aborted) return;
      const fields = [...(type === undefined ? [] : [`event: ${type}`]), ...(id === undefined ? [] : [`id: ${id}`])];
      const isRead = response.write(`${[...fields, `data: ${data}`].join('\n')}\n\n`);
      // At once: Node holds it back until all streams of the session have made their frames (p50 of 1,000: -25 %).
      if (!isJoined) response.socket?.uncork();
      if (!isRead) await once(response, 'drain', { signal: gone.signal }).catch(() => undefined);
    },
    end: () => response.end(),
  };
}
