import type { Response } from 'express';
import { getFunctionResponses } from '../../../core/content.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import { findFirstSequence } from '../../../conversation/sessions/event-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { findInvocationText, listInvocationsText } from '../../../invocations/invocation-store.ts';
import { openEventStream } from '../../../platform/http/operation/server-sent-events.ts';
import { NOT_VALID_ANY_MORE } from '../../../platform/http/operation/principal.ts';
import { readTurn, type TurnStep } from '../turn.ts';
import { type AiVersion, ChunkWriter, type UiChunk } from './chunks.ts';

/** An answer to stream: an invocation, or the rest of one after the answer to a call. */
export interface ChatRun {
  key: SessionKey;
  invocationId: string;
  /** Id of the call with whose answer the stream begins [all of the invocation]. */
  answered?: string | undefined;
}

/** Invocations of a session, newest first, among which the one that runs is found. */
const NEWEST = 100;
const RUN_ID = /^run((?:\.[\w-]+){2,3})$/;

/** Returns the id of a run, which alone says what to stream. */
const toRunId = ({ key, invocationId, answered }: ChatRun): string =>
  ['run', key.sessionId, invocationId, ...(answered === undefined ? [] : [answered])]
    .map((name, place) => (place === 0 ? name : Buffer.from(name).toString('base64url')))
    .join('.');

/** Reads the id of a run; `undefined` for the id of a chat. */
export function parseRunId({ appName, userId }: Omit<SessionKey, 'sessionId'>, id: string): ChatRun | undefined {
  const names = RUN_ID.exec(id)?.[1]?.split('.').slice(1);
  const [sessionId, invocationId, answered] = (names ?? []).map((name) => Buffer.from(name, 'base64url').toString());
  return sessionId && invocationId ? { key: { appName, userId, sessionId }, invocationId, answered } : undefined;
}

/**
 * Finds what the id of a chat or of a run names: of a chat what runs, or where `isAny` the newest. `undefined` where
 * there is nothing. @throws {NotFoundError} for a run that does not exist
 */
export async function findRun(
  { database }: Pick<InvocationContext, 'database'>,
  key: SessionKey,
  isAny = false,
): Promise<ChatRun | undefined> {
  const run = parseRunId(key, key.sessionId);
  if (run) {
    if ((await findInvocationText(database.db, run.key, run.invocationId)) !== undefined) return run;
    throw new NotFoundError(sessionNotFound(key.sessionId));
  }
  const found = JSON.parse(await listInvocationsText(database.db, key, NEWEST)) as Invocation[];
  const running =
    found.find(({ status }) => status === 'running') ?? found.findLast(({ status }) => status === 'queued');
  const { id: invocationId } = running ?? (isAny ? found[0] : undefined) ?? {};
  return invocationId === undefined ? undefined : { key, invocationId };
}

/** Options of a stream. */
export interface StreamOptions {
  version: AiVersion;
  /** The first chunk to send; negative: so many before the last one [the first]. */
  startIndex?: number | undefined;
}

const EXPIRED_FRAME = `data: ${JSON.stringify({ type: 'error', errorText: NOT_VALID_ANY_MORE })}\n\n`;

/** Sends a run as a UI message stream. Without `finish` it was left: the client comes back, here or elsewhere. */
export async function sendRun(
  context: InvocationContext,
  run: ChatRun,
  { version, startIndex = 0 }: StreamOptions,
  response: Response,
): Promise<void> {
  const after = Math.max((await findFirstSequence(context.database.db, run.key, run.invocationId)) - 1, 0);
  const turn = { ...run, after };
  let from = startIndex;
  if (startIndex < 0) {
    let count = 0;
    const { signal } = new AbortController();
    for await (const _ of readChunks(context, { ...turn, isSoFar: true }, version, signal)) count += 1;
    response.setHeader('x-workflow-stream-tail-index', count - 1);
    from = Math.max(count + startIndex, 0);
  }
  response.setHeader('x-vercel-ai-ui-message-stream', 'v1');
  response.setHeader('x-workflow-run-id', toRunId(run));
  const stream = openEventStream(response, { comments: true, expired: EXPIRED_FRAME });
  const signal = AbortSignal.any([stream.signal, context.draining]);
  let index = 0;
  for await (const chunk of readChunks(context, turn, version, signal)) {
    // A client asks until it has this one.
    const isFinish = chunk.type === 'finish';
    if (index >= from || isFinish) await stream.send(JSON.stringify(chunk));
    if (isFinish) await stream.send('[DONE]');
    index += 1;
  }
  stream.end();
}

async function* readChunks(
  context: InvocationContext,
  turn: ChatRun & { after: number; isSoFar?: boolean },
  version: AiVersion,
  signal: AbortSignal,
): AsyncGenerator<UiChunk> {
  const writer = new ChunkWriter(version);
  let isShown = turn.answered === undefined;
  yield { type: 'start', messageId: turn.invocationId };
  for await (const step of readTurn(context, turn, signal)) {
    isShown ||= isAnswer(step, turn.answered);
    for (const chunk of writer.take(step)) {
      if (isShown) yield chunk;
      if (isShown && chunk.type === 'finish') return;
    }
  }
}

const isAnswer = (step: TurnStep, callId: string | undefined) =>
  step.kind === 'event' &&
  step.event.author === 'user' &&
  getFunctionResponses(step.event.content).some(({ id }) => id === callId);
