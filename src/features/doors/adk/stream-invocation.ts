import type { Response } from 'express';
import { AppError, HandedOverError, QueuedError, RepeatedInvocationError, toClientText } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import { NOT_VALID_ANY_MORE } from '../../../platform/http/operation/principal.ts';
import { type EventStream, openEventStream } from '../../../platform/http/operation/server-sent-events.ts';
import { findPlaceBefore } from '../../../conversation/sessions/event-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import type { EventFrame, InvocationRequest } from '../../../invocations/request.ts';
import { followSession, formatPosition, type Position } from '../../../invocations/follow.ts';
import { invoke } from '../../../invocations/invoke.ts';
import type { KeyedInvocation } from '../../../invocations/invocation-store.ts';
import { isActive } from '../../../invocations/invocation.ts';
import { abandonedError, findAnswering, findPresent, findRepeated } from '../../../invocations/retry.ts';
import { requestCancel } from '../../../invocations/cancel.ts';
import { disconnectSignal } from '../../../invocations/wire-request.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

/** Maximum characters of frames that wait for a slow client. If more would wait, the connection is closed. */
const MAX_WAITING = 8_388_608;

/** Frame that is sent when the caller's credential expires during the stream. The invocation continues. */
const EXPIRED_FRAME = `data: ${JSON.stringify({ error: NOT_VALID_ANY_MORE })}\n\n`;

interface FrameOptions {
  /** True: a client can resume the stream, as frames have ids, and text is sent only after it was stored. */
  withIds: boolean;
  /** Position at which a retry resumes. Default: the beginning of the invocation. */
  from?: Position | undefined;
  /** True: an event with content and artifacts is sent as two frames, as ADK's clients expect. */
  split: boolean;
}

/**
 * Before its start a refused invocation gets an HTTP error. A later failure is a frame `{error}`, even if an event
 * has already reported it, because many clients know only that frame. A retry attaches to the first request's
 * invocation: it gets the stored events and then new events.
 */
export async function streamInvocation(
  context: InvocationContext,
  run: InvocationRequest,
  response: Response,
  options: FrameOptions,
): Promise<void> {
  const signal = disconnectSignal(context, response);
  let stream: EventStream | undefined;
  const open = () => (stream ??= openEventStream(response, { comments: true, expired: EXPIRED_FRAME }));
  // Frames are written in order, as fast as the client reads. The invocation does not wait for the client.
  let written = Promise.resolve();
  let waiting = 0;
  const sendNext = async (frame: EventFrame) => {
    await sendFrame(open(), frame, options);
    waiting -= frame.text.length;
  };
  const write = (frame: EventFrame) => {
    waiting += frame.text.length;
    // Disconnects a client that reads too slowly. It can read the missed events from the session.
    if (waiting > MAX_WAITING) {
      response.destroy();
      return;
    }
    written = written.then(() => sendNext(frame));
  };
  try {
    const asItComes = (frame: EventFrame) => frame.sequence !== undefined && write(frame);
    const listeners = options.withIds ? { onDelta: write } : {};
    const request = { ...run, signal, onAccepted: open, ...listeners };
    const { error } = await invoke(context, request, options.withIds ? asItComes : write);
    if (error) written = written.then(() => sendError(open(), error.message));
  } catch (error) {
    if (error instanceof RepeatedInvocationError || error instanceof QueuedError) {
      const isQueued = error instanceof QueuedError;
      const start = isQueued ? error : await findFirst(context, run);
      if (isQueued) cancelAtEnd(context, start, signal);
      await attach(context, start, run.streaming, open, options);
    } else if (stream === undefined) throw error;
    // Sends no error if another process took over: the client resumes with the last frame's id, or retries.
    else if (!(error instanceof HandedOverError)) {
      const message = toClientText(error, 'The runtime failed while it ran the agent.');
      if (!(error instanceof AppError))
        context.log.error({ err: error, invocationId: run.invocationId }, 'invocation failed');
      written = written.then(() => sendError(open(), message));
    }
  }
  await written;
  open().end();
}

/** Cancels a message that still waits if its client leaves, or has left already. */
function cancelAtEnd(
  context: InvocationContext,
  { key, invocationId }: Pick<KeyedInvocation, 'key' | 'invocationId'>,
  signal: AbortSignal | undefined,
): void {
  const cancel = () =>
    void requestCancel(context, key, invocationId).catch((err: unknown) =>
      context.log.error({ err, invocationId }, 'a message whose client left could not be cancelled'),
    );
  if (signal?.aborted) cancel();
  else signal?.addEventListener('abort', cancel, { once: true });
}

/** The invocation that the first request with the key started. */
async function findFirst(context: InvocationContext, { key, idempotency }: InvocationRequest) {
  const earlier = idempotency && (await findRepeated(context, key, idempotency));
  if (!earlier) throw abandonedError();
  return earlier;
}

/** Follows what answers an invocation that this process did not begin, or the message that waits in its row. */
async function attach(
  context: InvocationContext,
  start: Pick<KeyedInvocation, 'key' | 'invocationId'>,
  withText: boolean,
  open: () => EventStream,
  options: FrameOptions,
): Promise<void> {
  const stream = open();
  const signal = AbortSignal.any([stream.signal, context.draining]);
  const answering = await findAnswering(context, start, signal).catch(async (error: unknown) => {
    if (!(error instanceof AppError)) throw error;
    // A client that has no frame yet sends its request again if this process stops.
    if (!signal.aborted) await sendError(stream, error.message);
  });
  if (!answering) return;
  const { key, invocationId, after } = answering;
  let last: KeyedInvocation | undefined;
  const isOver = async () => {
    last = await findPresent(context, answering);
    return !last || !isActive(last);
  };
  const first = after ?? (await findPlaceBefore(context.database.db, key, invocationId));
  const { from } = options;
  const isInside = from && from.sequence >= first;
  const steps = followSession(context, key, isInside ? from : { sequence: first, delta: 0 }, signal, {
    withText,
    until: { invocationId, isOver },
  });
  for await (const step of steps) {
    const { kind, text, position } = step;
    const event = parseExactJson(text) as Event;
    const isWanted = kind === 'void' || (event.invocationId === invocationId && event.author !== 'user');
    if (isWanted) await sendFrame(stream, { text, event, ...position }, options);
  }
  if (last?.error && !signal.aborted) await sendError(stream, last.error.message);
}

const sendError = (stream: EventStream, error: string) => stream.send(JSON.stringify({ error }));

async function sendFrame(
  stream: EventStream,
  { text, event, sequence, delta = 0 }: EventFrame,
  options: FrameOptions,
): Promise<void> {
  const id = options.withIds && sequence !== undefined ? formatPosition({ sequence, delta }) : undefined;
  const savesArtifacts = Object.keys(event.actions?.artifactDelta ?? {}).length > 0;
  if (!options.split || !savesArtifacts || !event.content?.parts?.length) return stream.send(text, id);
  const { content, ...rest } = parseExactJson(text) as Event;
  await stream.send(JSON.stringify({ ...rest, content, actions: { ...rest.actions, artifactDelta: {} } }), id);
  await stream.send(JSON.stringify(rest), id);
}
