import { once } from 'node:events';
import type { Response } from 'express';

/** Time between comments that keep an idle stream open through proxies. */
const KEEP_ALIVE_MS = 15_000;

/**
 * A stream of server-sent events (WHATWG HTML, 9.2). One frame per write: ADK's UI drops what follows a frame cut in
 * two.
 */
export interface EventStream {
  /** Aborted when the client has gone. */
  signal: AbortSignal;
  /**
   * Writes one frame; `data` is one line of JSON, `type` what a browser dispatches instead of `message`. Waits while
   * the client reads more slowly than we write.
   */
  send(data: string, id?: number, type?: string): Promise<void>;
  end(): void;
}

/** Begins a stream on a response. Comments go out while nothing else does, unless `comments` is false. */
export function openEventStream(response: Response, { comments }: { comments: boolean }): EventStream {
  const gone = new AbortController();
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    connection: 'keep-alive',
    'x-accel-buffering': 'no',
  });
  response.flushHeaders();
  const timer = comments ? setInterval(() => response.write(': ping\n\n'), KEEP_ALIVE_MS) : undefined;
  response.on('close', () => {
    clearInterval(timer);
    gone.abort();
  });
  return {
    signal: gone.signal,
    async send(data, id, type) {
      if (gone.signal.aborted) return;
      const fields = [...(type === undefined ? [] : [`event: ${type}`]), ...(id === undefined ? [] : [`id: ${id}`])];
      if (!response.write(`${[...fields, `data: ${data}`].join('\n')}\n\n`))
        await once(response, 'drain', { signal: gone.signal }).catch(() => undefined);
    },
    end: () => response.end(),
  };
}
