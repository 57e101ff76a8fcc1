import type { Response } from 'express';
import type { Part } from '../../core/content.ts';
import type { SessionKey } from '../../core/session.ts';
import type { InvocationContext } from '../../invocations/context.ts';
import type { InvocationRef } from './handle.ts';
import { startTurn, type TurnCall, type TurnRequest } from './start-turn.ts';
import { readTurn, type TurnStep, type WholeTurn } from './turn.ts';

/**
 * One call at a door. The protocol's own code reads its request as an {@link Asked}, {@link begin} starts or resumes the
 * invocation, and the protocol's own code writes the answer: whole ({@link answerWhole}), or in frames as the steps come
 * (`sendEvents`). A client that comes back gives the invocation itself and only reads.
 */
export interface DoorCall extends TurnCall {
  context: InvocationContext;
}

/** What a request asks for: a turn to start or resume, or the invocation that an earlier request started. */
export type Asked = { key: SessionKey; turn: TurnRequest; headers?: TurnCall['headers'] } | InvocationRef;

export async function begin(call: DoorCall, asked: Asked): Promise<InvocationRef> {
  if (!('turn' in asked)) return asked;
  const { key, turn, headers = call.headers } = asked;
  return startTurn(call.context, key, turn, { ...call, headers });
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
