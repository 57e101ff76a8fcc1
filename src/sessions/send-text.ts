import { pipeline } from 'node:stream/promises';
import type { Response } from 'express';
import type { Answer } from '../http/operation/operation.ts';
import type { JsonStream } from './json-stream.ts';

/** Sends a text in parts, as fast as the client reads. That the client leaves in between is no error. */
export async function sendText(response: Response, { first, rest }: JsonStream): Promise<Answer> {
  if (!rest) return { kind: 'json', text: first };
  response.setHeader('content-type', 'application/json');
  response.write(first);
  await pipeline(rest, response).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  });
  return { kind: 'sent' };
}
