import type { Response } from 'express';
import { HandedOverError } from '../../../core/errors.ts';
import type { JsonObject } from '../../../core/content.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { readTurn } from '../turn.ts';
import type { ResponseRef } from './ids.ts';
import { type ResponseEvent, ResponseWriter } from './writer.ts';

/** Yields the events of a response, the same each time. Without a last one it goes on elsewhere. */
export async function* readEvents(
  context: InvocationContext,
  ref: ResponseRef,
  signal: AbortSignal,
  reading: { withText?: boolean; isSoFar?: boolean } = {},
  writer = new ResponseWriter(ref),
): AsyncGenerator<ResponseEvent> {
  for await (const step of readTurn(context, { ...ref, ...reading }, signal)) {
    yield* writer.take(step);
    if (writer.isOver) return;
  }
}

/** Reads a response as far as it has come. */
export async function readSoFar(context: InvocationContext, ref: ResponseRef): Promise<ResponseWriter> {
  const writer = new ResponseWriter(ref);
  for await (const _ of readEvents(context, ref, new AbortController().signal, { isSoFar: true }, writer));
  return writer;
}

/** Waits for the end of a response. @throws {HandedOverError} where this process stops before */
export async function waitForEnd(
  context: InvocationContext,
  ref: ResponseRef,
  response: Response,
): Promise<JsonObject> {
  const left = new AbortController();
  response.once('close', () => left.abort());
  const writer = new ResponseWriter(ref);
  const until = AbortSignal.any([left.signal, context.draining]);
  for await (const _ of readEvents(context, ref, until, { withText: false }, writer));
  if (!writer.isOver) throw new HandedOverError(ref.invocationId);
  return writer.response;
}
