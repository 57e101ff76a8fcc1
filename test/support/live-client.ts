import { afterEach } from 'vitest';
import { WebSocket } from 'ws';
import type { Event } from '../../src/core/event.ts';

/** A frame of a live session: an event, or an error. */
export type Frame = Event & { error?: string };

/** One socket as its client sees it. */
export interface LiveClient {
  socket: WebSocket;
  frames: Frame[];
  closed: Promise<[code: number, reason: string]>;
  send(value: unknown): void;
  /** The frames up to the n-th for which this holds. @throws if the session ends before */
  until(isLast: (frame: Frame) => boolean, n?: number): Promise<Frame[]>;
}

const sockets: WebSocket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.terminate();
});

/** Opens a live session, which ends with the test. @throws the handshake's refusal */
export async function openLive(
  to: { url: string },
  query: Record<string, string>,
  headers: Record<string, string> = {},
): Promise<LiveClient> {
  const url = `${to.url.replace('http', 'ws')}/run_live?${new URLSearchParams(query).toString()}`;
  const socket = new WebSocket(url, { headers });
  sockets.push(socket);
  const frames: Frame[] = [];
  let changed = Promise.withResolvers<void>();
  socket.on('message', (data: Buffer) => {
    frames.push(JSON.parse(data.toString()) as Frame);
    changed.resolve();
    changed = Promise.withResolvers();
  });
  let end: [code: number, reason: string] | undefined;
  const closed = new Promise<[number, string]>((resolve) =>
    socket.once('close', (code, reason) => {
      end = [code, reason.toString()];
      resolve(end);
      changed.resolve();
    }),
  );
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
  });
  return {
    socket,
    frames,
    closed,
    send: (value) => socket.send(typeof value === 'string' ? value : JSON.stringify(value)),
    async until(isLast, n = 1) {
      while (frames.filter(isLast).length < n) {
        if (end) throw new Error(`The session ended with ${end.join(' ')} after ${frames.length} frames.`);
        await changed.promise;
      }
      return frames;
    },
  };
}

/** A frame with a text of the user. */
export const say = (text: string) => ({ content: { role: 'user', parts: [{ text }] } });
export const isEnd = ({ turnComplete }: Frame): boolean => turnComplete === true;
