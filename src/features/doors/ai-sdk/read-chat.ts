import type { Response } from 'express';
import { getFunctionResponses } from '../../../core/content.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { findCurrent, findInvocationText } from '../../../invocations/invocation-store.ts';
import { sendEvents } from '../start-turn.ts';
import { readTurn, type TurnStep } from '../turn.ts';
import { type AiVersion, ChunkWriter, type UiChunk } from './chunks.ts';

/** An answer to stream: an invocation, or the rest of one after the answer to a call. */
export interface ChatRun {
  key: SessionKey;
  invocationId: string;
  /** Id of the call with whose answer the stream begins [all of the invocation]. */
  answered?: string | undefined;
}

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
  const invocationId = await findCurrent(database.db, key, isAny);
  return invocationId === undefined ? undefined : { key, invocationId };
}

/** Options of a stream. */
export interface StreamOptions {
  version: AiVersion;
  /** The first chunk to send; negative: so many before the last one [the first]. */
  startIndex?: number | undefined;
}

/** Sends a run as a UI message stream. Without `finish` it was left: the client comes back, here or elsewhere. */
export async function sendRun(
  context: InvocationContext,
  run: ChatRun,
  { version, startIndex = 0 }: StreamOptions,
  response: Response,
): Promise<{ kind: 'sent' }> {
  let from = startIndex;
  if (startIndex < 0) {
    let count = 0;
    for await (const _ of readChunks(context, { ...run, isSoFar: true }, version, new AbortController().signal))
      count += 1;
    response.setHeader('x-workflow-stream-tail-index', count - 1);
    from = Math.max(count + startIndex, 0);
  }
  response.setHeader('x-vercel-ai-ui-message-stream', 'v1');
  response.setHeader('x-workflow-run-id', toRunId(run));
  const toExpired = (errorText: string) => ({ type: 'error', errorText });
  return sendEvents(context, response, toExpired, async function* (signal) {
    let index = 0;
    for await (const chunk of readChunks(context, run, version, signal)) {
      // A client asks until it has this one.
      const isFinish = chunk.type === 'finish';
      if (index >= from || isFinish) yield chunk;
      if (isFinish) yield '[DONE]';
      index += 1;
    }
  });
}

async function* readChunks(
  context: InvocationContext,
  run: ChatRun & { isSoFar?: boolean },
  version: AiVersion,
  signal: AbortSignal,
): AsyncGenerator<UiChunk> {
  const writer = new ChunkWriter(version);
  let isShown = run.answered === undefined;
  yield { type: 'start', messageId: run.invocationId };
  for await (const step of readTurn(context, run, signal)) {
    isShown ||= isAnswer(step, run.answered);
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
