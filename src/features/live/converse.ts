import type { WebSocket } from 'ws';
import { z } from 'zod';
import type { LiveInput } from '../../agent/definition/model.ts';
import { findSession } from '../../conversation/sessions/session-store.ts';
import { base64Error } from '../../core/base64.ts';
import { type Content, contentSchema } from '../../core/content.ts';
import { AgentError, AppError, HandedOverError, NotFoundError, toClientText } from '../../core/errors.ts';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { JsonRefusedError, parseJson } from '../../core/parse-json.ts';
import { sessionNotFound } from '../../core/session.ts';
import { NOT_VALID_ANY_MORE, type Principal, whenEnded } from '../../platform/http/operation/principal.ts';
import { currentContext } from '../../platform/context.ts';
import type { InvocationContext } from '../../invocations/context.ts';
import { type EventFrame, newInvocationId } from '../../invocations/request.ts';
import { toAgentError, turnEnd } from '../../invocations/invocation.ts';
import { invoke } from '../../invocations/invoke.ts';
import { type CallOptions, LiveCall } from './live-call.ts';
import { CLOSE, type LiveLimits, LiveSocket, STOPPING } from './live-socket.ts';

/** Error message that is sent when the live session ends during a turn that another process completes. */
const GOES_ON = 'The service is stopping, and another process goes on with this turn. Its events come to the session.';
const NO_AUDIO = 'This model has no live API: audio and video cannot be used. Send text instead.';

interface LiveSessionRequest extends Omit<CallOptions, 'modality'> {
  /** The modalities that the client asked for. `undefined`: audio if the model has a live API, else text. */
  modalities: string[] | undefined;
  limits: LiveLimits;
  /** The authenticated caller. The session ends when the caller's credential expires. */
  principal: Principal;
}

/**
 * Runs a live session until the socket is closed. In a text session, each `content` frame of the client is one ordinary
 * invocation: its events are sent as they come, then `turnComplete`. An audio session is run by a {@link LiveCall}.
 */
export async function converse(
  context: InvocationContext,
  socket: WebSocket,
  request: LiveSessionRequest,
): Promise<void> {
  const disconnected = new AbortController();
  const live = new LiveSocket(socket, request.limits, currentContext().caller ?? request.key.userId);
  const isText = request.modalities?.every((modality) => modality === 'TEXT') === true;
  let call: LiveCall | undefined;
  const openCall = async () => {
    const agent = context.agents.get(request.key.appName);
    if (!agent?.hasLiveApi) return;
    call = await LiveCall.open(
      context,
      live,
      agent,
      { ...request, modality: isText ? 'TEXT' : 'AUDIO' },
      disconnected.signal,
    );
    // The client has disconnected meanwhile.
    if (socket.readyState !== socket.OPEN) call.end();
  };
  const take = async (bytes: Buffer) => {
    const frame = toLiveFrame(bytes);
    if (frame.kind === 'excessive') live.fail(CLOSE.policy, frame.error);
    else if (frame.kind === 'invalid') {
      // An invalid frame counts as a turn, because parsing it costs as much as starting a turn.
      await request.countTurn();
      live.send({ error: frame.error });
    } else if (frame.kind === 'close') live.close(CLOSE.normal, '');
    else if (frame.kind === 'content' && call) call.say(frame.content, bytes.length);
    else if (frame.kind === 'content') await takeTurn(context, live, request, frame.content, disconnected.signal);
    else if (frame.kind === 'media') {
      if (!call) await openCall();
      if (call) call.send(frame.input);
      else if (frame.input.kind === 'blob') live.close(CLOSE.failed, NO_AUDIO);
    }
    if (context.draining.aborted && !live.isBusy()) live.close(CLOSE.goingAway, STOPPING);
  };
  const failWith = (error: unknown) => {
    const reason = toAgentError(error);
    if (reason instanceof AppError) return live.fail(CLOSE.failed, reason.message);
    context.log.error({ err: error }, 'a live session failed');
    live.fail(CLOSE.failed, 'The runtime failed.');
  };
  live.onFrame = (bytes) => take(bytes).catch(failWith);
  const closed = live.hold(context.draining);
  const cancel = whenEnded(request.principal, () => live.fail(CLOSE.policy, NOT_VALID_ANY_MORE));
  try {
    const refusal = await toRefusal(context, request, isText);
    if (!refusal && !isText) await openCall();
    if (refusal) live.close(...refusal);
    else live.start(context.draining);
  } catch (error) {
    failWith(error);
  }
  await closed;
  cancel();
  if (context.cancelOnDisconnect)
    disconnected.abort(new AgentError('cancelled', 'The invocation was cancelled: its client left.'));
  call?.end();
}

async function toRefusal(
  { agents, database }: InvocationContext,
  { key, modalities }: LiveSessionRequest,
  isText: boolean,
): Promise<[code: number, reason: string] | undefined> {
  const agent = agents.get(key.appName);
  if (!agent) return [CLOSE.policy, `App not found: ${key.appName}`];
  if (modalities && !isText && !agent.hasLiveApi) return [CLOSE.failed, NO_AUDIO];
  const session = await findSession(database.reads, key, { numRecentEvents: 0 });
  return session ? undefined : [CLOSE.sessionNotFound, 'Session not found'];
}

/** Runs one text turn as an invocation. A failure of the agent is sent as an event, and the session continues. */
async function takeTurn(
  context: InvocationContext,
  live: LiveSocket,
  { key, countTurn }: LiveSessionRequest,
  content: Content,
  disconnected: AbortSignal,
): Promise<void> {
  const invocationId = newInvocationId(context);
  let hasEnded = false;
  const send = ({ text, event }: EventFrame) => {
    hasEnded ||= event.turnComplete === true;
    live.sendText(text);
  };
  const request = { key, invocationId, content, overrides: {}, createSession: false, streaming: true, isLive: true };
  try {
    await countTurn();
    await invoke(context, { ...request, signal: disconnected }, send);
    // If the invocation failed or pauses, its last event already marks the end of the turn and must stay the last.
    if (!hasEnded) live.send({ ...turnEnd(invocationId, key.appName, context.newId), timestamp: context.now() });
  } catch (error) {
    if (error instanceof HandedOverError) return live.fail(CLOSE.goingAway, GOES_ON);
    if (error instanceof NotFoundError) return live.close(CLOSE.sessionNotFound, sessionNotFound(key.sessionId));
    if (!(error instanceof AppError)) context.log.error({ err: error, invocationId }, 'invocation failed');
    live.send({ error: toClientText(error, 'The runtime failed while it ran the agent.') });
  }
}

const blobSchema = z
  .looseObject({ mime_type: z.string().nullish(), mimeType: z.string().nullish(), data: z.string().default('') })
  .refine(({ data }) => base64Error(data) === undefined, { path: ['data'], message: 'not base64' });

/** A JSON frame of a client of a live text session. Unknown members are ignored. */
const liveFrameSchema = z.looseObject({
  content: contentSchema.nullish(),
  blob: blobSchema.nullish(),
  activity_start: z.unknown().optional(),
  activity_end: z.unknown().optional(),
  close: z.boolean().nullish(),
});

type LiveFrame =
  | { kind: 'content'; content: Content }
  | { kind: 'media'; input: LiveInput }
  | { kind: 'close' | 'nothing' }
  /** `excessive`: over the JSON parser's limits. It ends the session: no regular client sends such frames. */
  | { kind: 'invalid' | 'excessive'; error: string };

/** Of the members close, activity_start, activity_end, blob and content the first in this order counts, as in ADK. */
function toLiveFrame(bytes: Buffer): LiveFrame {
  let frame: unknown;
  try {
    frame = parseJson(bytes, INPUT_LIMITS.liveFrame, { exact: true });
  } catch (error) {
    if (!(error instanceof JsonRefusedError)) throw error;
    const { kind, path, message } = error;
    const place = path.length > 0 ? ` at ${path.join('.')}` : '';
    if (kind === 'inexact') return { kind: 'invalid', error: `The frame is not valid${place}: ${message}.` };
    return { kind: kind === 'syntax' ? 'invalid' : 'excessive', error: `The frame ${message}.` };
  }
  const parsed = liveFrameSchema.safeParse(frame);
  if (!parsed.success) return { kind: 'invalid', error: firstIssue(parsed.error) };
  const { content, blob, close, activity_start: start, activity_end: end } = parsed.data;
  if (close === true) return { kind: 'close' };
  if (start != null) return { kind: 'media', input: { kind: 'activityStart' } };
  if (end != null) return { kind: 'media', input: { kind: 'activityEnd' } };
  if (!blob) return content ? { kind: 'content', content } : { kind: 'nothing' };
  // Google's live API accepts standard base64 only; ADK clients also send the URL alphabet.
  const data = blob.data.replaceAll('-', '+').replaceAll('_', '/');
  return { kind: 'media', input: { kind: 'blob', blob: { mimeType: blob.mime_type ?? blob.mimeType ?? '', data } } };
}

function firstIssue({ issues }: z.ZodError): string {
  const [issue] = issues;
  const place = issue?.path.join('.') ?? '';
  return `The frame is not valid${place === '' ? '' : ` at ${place}`}: ${issue?.message ?? 'unknown member'}.`;
}
