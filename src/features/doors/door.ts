import type { Request, Response } from 'express';
import type { z } from 'zod';
import type { Content, Part } from '../../core/content.ts';
import type { SessionKey } from '../../core/session.ts';
import { startOnce } from '../../invocations/background.ts';
import { requestCancel } from '../../invocations/cancel.ts';
import type { InvocationContext } from '../../invocations/context.ts';
import { type InvocationRequest, newInvocationId } from '../../invocations/request.ts';
import { LocalRun } from '../../invocations/local-run.ts';
import { disconnectSignal, type invocationHeaders, toInvocationOptions } from '../../invocations/wire-request.ts';
import { getBodyBytes } from '../../platform/http/limits/caller-limits.ts';
import { NOT_VALID_ANY_MORE } from '../../platform/http/operation/principal.ts';
import { openEventStream } from '../../platform/http/operation/server-sent-events.ts';
import type { InvocationRef } from './handle.ts';
import { readTurn, type TurnStep, type WholeTurn } from './turn.ts';

/**
 * One call at a door. The protocol's own code reads its request as an {@link Asked}, {@link begin} starts or resumes the
 * invocation, and the protocol's own code writes the answer: whole ({@link answerWhole}), or in frames as the steps come
 * (`sendEvents`). A client that comes back gives the invocation itself and only reads.
 */
export interface DoorCall {
  context: InvocationContext;
  headers: z.output<typeof invocationHeaders>;
  request: Request;
  response: Response;
  /** True: a client that leaves before its response is complete cancels the turn that its request began. */
  leavingCancels?: boolean;
}

/** A prompt, or answers to the calls of a paused invocation. */
export interface TurnRequest extends Pick<InvocationRequest, 'overrides' | 'stateDelta'> {
  content: Content;
  /** Id of the paused invocation to resume; default: start a new one. */
  resumedId?: string | undefined;
  /** Id for the new invocation; default: a generated one. */
  invocationId?: string;
  /** Value that must be equal in a retry with the same idempotency key; default: session and content. */
  identity?: unknown;
  /** True (default): create a missing session. False: it must exist. `new`: it must not exist. */
  createSession?: boolean | 'new';
  /** `false`: do not store partial text; default: `true`. */
  streaming?: boolean;
}

/** What a request asks for: a turn to start or resume, or the invocation that an earlier request started. */
export type Asked = { key: SessionKey; turn: TurnRequest; headers?: DoorCall['headers'] } | InvocationRef;

export function toRun(
  context: Pick<InvocationContext, 'newId'>,
  key: SessionKey,
  { identity, ...turn }: TurnRequest,
  headers: DoorCall['headers'],
): InvocationRequest {
  const { content, resumedId, invocationId = resumedId ?? newInvocationId(context), overrides, stateDelta } = turn;
  const { createSession = true, streaming = true } = turn;
  return {
    key,
    invocationId,
    resumes: resumedId !== undefined,
    content,
    overrides,
    stateDelta,
    createSession,
    streaming,
    inBackground: true,
    ...toInvocationOptions(headers, identity ?? [key, content, resumedId, overrides]),
  };
}

/**
 * Starts an invocation that continues if this process ends, and also if the client disconnects, unless `leavingCancels`
 * or the setting `ON_DISCONNECT` cancels it. A retry with the same idempotency key attaches to the first invocation.
 */
export async function begin(
  { context, headers, request, response, leavingCancels = false }: DoorCall,
  asked: Asked,
): Promise<InvocationRef> {
  if (!('turn' in asked)) return asked;
  const { key, turn } = asked;
  const run = toRun(context, key, turn, asked.headers ?? headers);
  const { cancelOnDisconnect } = context;
  const signal = disconnectSignal({ cancelOnDisconnect: cancelOnDisconnect || leavingCancels }, response);
  const localRun = new LocalRun(run.resumes === true);
  response.once('close', () => localRun.drop());
  const invocationId = await startOnce(context, run, getBodyBytes(request), localRun);
  const cancel = () =>
    requestCancel(context, key, invocationId).catch((err: unknown) =>
      context.log.error({ err, invocationId }, 'an invocation whose client left could not be cancelled'),
    );
  const isOwn = invocationId === run.invocationId;
  if (cancelOnDisconnect || isOwn) {
    if (signal?.aborted) await cancel();
    else signal?.addEventListener('abort', () => void cancel(), { once: true });
  }
  nameInvocation(response, invocationId);
  return { key, invocationId, run: localRun.before === undefined ? undefined : localRun };
}

/** Says which invocation answers, also where an earlier request has begun it. */
export function nameInvocation(response: Response, invocationId: string): void {
  if (!response.headersSent) response.setHeader('x-invocation-id', invocationId);
}

/** A reply has no idempotency key, because the paused invocation's row keeps that of the request that started it. */
export const toReply = (
  { key, invocationId: resumedId }: InvocationRef,
  parts: Part[],
  more: Partial<TurnRequest> = {},
): Asked => ({ key, headers: {}, turn: { content: { role: 'user', parts }, resumedId, overrides: {}, ...more } });

/** How a protocol shows an invocation to a client that waits for it. */
interface Shown<Whole> {
  /** Converts the invocation at its end, or at a pause. */
  whole: (turn: WholeTurn) => Whole | Promise<Whole>;
  /** Converts an invocation that goes on: this process stops, or the client has left. `isGone`: its session was deleted. */
  left: (isGone: boolean) => Whole | Promise<Whole>;
  onEvent?: (step: TurnStep & { kind: 'event' }) => Promise<void>;
}

/** Aborts when the client leaves or has its response, or this process stops. */
export function untilGone({ draining }: Pick<InvocationContext, 'draining'>, response: Response): AbortSignal {
  const gone = new AbortController();
  // A client that left while the call began has closed the response already.
  if (response.closed || response.destroyed) gone.abort();
  else response.once('close', () => gone.abort());
  return AbortSignal.any([gone.signal, draining]);
}

/** Waits until an invocation ends or pauses. */
export async function answerWhole<Whole>(
  { context, response }: DoorCall,
  ref: InvocationRef,
  { whole, left, onEvent }: Shown<Whole>,
): Promise<Whole> {
  const events: WholeTurn['events'] = [];
  let sequence: number | undefined;
  const signal = untilGone(context, response);
  for await (const step of readTurn(context, { ...ref, withText: false }, signal)) {
    if (step.kind === 'end') return whole({ ...ref, invocation: step.invocation, events, sequence });
    if (step.kind !== 'event') continue;
    events.push(step.event);
    sequence = step.sequence;
    await onEvent?.(step);
  }
  return left(!signal.aborted);
}

/**
 * Sends data as server-sent events until they end, the client disconnects or this process drains.
 * @param toExpired - builds the last event, which is sent if the credential becomes invalid
 * @param toName - returns the name of an event; default: no name
 */
export async function sendEvents(
  { draining }: Pick<InvocationContext, 'draining'>,
  response: Response,
  toExpired: (message: string) => object,
  read: (signal: AbortSignal) => AsyncIterable<object | string>,
  toName: (data: object) => string | undefined = () => undefined,
): Promise<{ kind: 'sent' }> {
  const toData = (data: object | string) => (typeof data === 'string' ? data : JSON.stringify(data));
  const expired = `data: ${toData(toExpired(NOT_VALID_ANY_MORE))}\n\n`;
  const stream = openEventStream(response, { comments: true, isJoined: true, expired });
  for await (const data of read(AbortSignal.any([stream.signal, draining])))
    await stream.send(toData(data), undefined, typeof data === 'string' ? undefined : toName(data));
  stream.end();
  return { kind: 'sent' };
}
