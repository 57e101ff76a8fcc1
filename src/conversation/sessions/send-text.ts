import { once } from 'node:events';
import type { Response } from 'express';
import type { Answer } from '../../platform/http/operation/operation.ts';
import type { JsonStream } from './json-stream.ts';

/** Maximum characters of a text that is sent as a string; a longer one would take three times its size in memory. */
const MAX_SHORT = 16_384;

/** Sends a text in pieces at the client's reading speed. If the client disconnects, it returns without an error. */
export async function sendText(response: Response, { first, rest }: JsonStream): Promise<Answer> {
  const length = first.reduce((sum, text) => sum + text.length, 0);
  if (!rest && length <= MAX_SHORT) return { kind: 'json', text: first.join('') };
  response.setHeader('content-type', 'application/json');
  const bytes = toBytes(first);
  const size = bytes.reduce((sum, { byteLength }) => sum + byteLength, 0);
  if (!rest) response.setHeader('content-length', size);
  await write(response, bytes);
  for await (const texts of rest ?? []) {
    if (response.destroyed) return { kind: 'sent' };
    await write(response, toBytes(texts));
  }
  response.end();
  return { kind: 'sent' };
}

/** Converts the texts to bytes and empties the list, to free memory. */
const toBytes = (texts: string[]) => texts.splice(0).map((text) => Buffer.from(text));

/** Writes all pieces, then waits until the client has read them or has disconnected. */
async function write(response: Response, pieces: Buffer[]): Promise<void> {
  response.cork();
  for (const piece of pieces.splice(0)) response.write(piece);
  response.uncork();
  if (!response.writableNeedDrain) return;
  const disconnection = new AbortController();
  const onClose = () => disconnection.abort();
  response.once('close', onClose);
  await once(response, 'drain', { signal: disconnection.signal }).catch(() => undefined);
  response.off('close', onClose);
}
