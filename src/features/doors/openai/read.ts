import { getFunctionResponses } from '../../../core/content.ts';
import { HandedOverError } from '../../../core/errors.ts';
import type { JsonObject } from '../../../core/content.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { readTurn, type TurnStep } from '../turn.ts';
import type { ResponseRef } from './ids.ts';
import { type ResponseEvent, ResponseWriter } from './writer.ts';

/** How much of a response is read. */
interface Reading {
  /** True: what there is by now. */
  isSoFar?: boolean;
  /** True: text as it comes. */
  withText?: boolean;
}

/** Yields the steps of a response: of its invocation those behind the answer it begins with, up to the next one. */
export async function* readSteps(
  context: Pick<InvocationContext, 'feeds' | 'database'>,
  { answered, ...turn }: ResponseRef,
  reading: Reading,
  signal: AbortSignal,
): AsyncGenerator<{ step: TurnStep; isShown: boolean }> {
  let isShown = answered === undefined;
  let hasBegun = false;
  for await (const step of readTurn(context, { ...turn, ...reading }, signal)) {
    const answers =
      step.kind === 'event' && step.event.author === 'user' ? getFunctionResponses(step.event.content) : [];
    if (answers.length > 0 && hasBegun) {
      const { event } = step as TurnStep & { kind: 'event' };
      const end = { status: 'paused', endTime: event.timestamp } as (TurnStep & { kind: 'end' })['invocation'];
      yield { step: { kind: 'end', invocation: end }, isShown };
      return;
    }
    isShown ||= answers.some(({ id }) => id === answered);
    hasBegun ||= isShown;
    yield { step, isShown };
  }
}

/** Yields the events of a response, the same each time. Without a last one it goes on elsewhere. */
export async function* readEvents(
  context: Pick<InvocationContext, 'feeds' | 'database'>,
  ref: ResponseRef,
  signal: AbortSignal,
  withText = true,
): AsyncGenerator<ResponseEvent> {
  const writer = new ResponseWriter(ref);
  for await (const { step, isShown } of readSteps(context, ref, { withText }, signal)) {
    if (!isShown) writer.note(step);
    else
      for (const event of writer.take(step)) {
        yield event;
        if (event.type === 'error') return;
      }
  }
}

/** Returns a response as far as it has come. */
export async function readSoFar(
  context: Pick<InvocationContext, 'feeds' | 'database'>,
  ref: ResponseRef,
  isQueued: boolean,
): Promise<JsonObject> {
  const found = await collect(context, ref, { isSoFar: true }, new AbortController().signal);
  return found.response ?? found.writer.toResponse(isQueued ? 'queued' : 'in_progress');
}

/** Waits for the end of a response. @throws {HandedOverError} where this process stops before */
export async function waitForEnd(
  context: InvocationContext,
  ref: ResponseRef,
  signal: AbortSignal,
): Promise<JsonObject> {
  const { response } = await collect(context, ref, { withText: false }, AbortSignal.any([signal, context.draining]));
  if (!response) throw new HandedOverError(ref.invocationId);
  return response;
}

async function collect(
  context: Pick<InvocationContext, 'feeds' | 'database'>,
  ref: ResponseRef,
  reading: Reading,
  signal: AbortSignal,
): Promise<{ writer: ResponseWriter; response?: JsonObject }> {
  const writer = new ResponseWriter(ref);
  for await (const { step, isShown } of readSteps(context, ref, reading, signal)) {
    if (!isShown) writer.note(step);
    else
      for (const { response } of writer.take(step))
        if (step.kind === 'end') return { writer, response: response as JsonObject };
  }
  return { writer };
}
