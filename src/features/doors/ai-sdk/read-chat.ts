import type { Response } from 'express';
import { getFunctionResponses } from '../../../core/content.ts';
import { NotFoundError } from '../../../core/errors.ts';
import type { Event } from '../../../core/event.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { findCurrent, findInvocationText } from '../../../invocations/invocation-store.ts';
import type { InvocationRef } from '../handle.ts';
import { sendEvents } from '../start-turn.ts';
import { readTurn } from '../turn.ts';
import { type AiVersion, ChunkWriter, type UiChunk } from './chunks.ts';

/** Returns the id of a run, which alone says what to stream. */
function toRunId({ key, invocationId, answered }: InvocationRef): string {
  const names = [key.sessionId, invocationId, ...(answered === undefined ? [] : [answered])];
  return `run.${names.map((name) => Buffer.from(name).toString('base64url')).join('.')}`;
}

/** Reads the id of a run; `undefined` for the id of a chat. */
export function parseRunId({ appName, userId }: Omit<SessionKey, 'sessionId'>, id: string): InvocationRef | undefined {
  if (!/^run(\.[\w-]+){2,3}$/.test(id)) return undefined;
  const names = id.split('.').map((name) => Buffer.from(name, 'base64url').toString());
  const [, sessionId = '', invocationId = '', answered] = names;
  return { key: { appName, userId, sessionId }, invocationId, answered };
}

/**
 * Finds what the id of a chat or of a run names: of a chat what runs, or where `isAny` the newest. `undefined` where
 * there is nothing. @throws {NotFoundError} for a run that does not exist
 */
export async function findRun(
  { database }: Pick<InvocationContext, 'database'>,
  key: SessionKey,
  isAny = false,
): Promise<InvocationRef | undefined> {
  const run = parseRunId(key, key.sessionId);
  if (run) {
    if ((await findInvocationText(database.db, run.key, run.invocationId)) !== undefined) return run;
    throw new NotFoundError(sessionNotFound(key.sessionId));
  }
  const invocationId = await findCurrent(database.db, key, isAny);
  return invocationId === undefined ? undefined : { key, invocationId };
}

/**
 * Sends a run as a UI message stream. Without `finish` it was left: the client comes back, here or elsewhere.
 * @param startIndex - the first chunk to send; negative: so many before the last one [the first]
 */
export async function sendRun(
  context: InvocationContext,
  run: InvocationRef,
  { version, startIndex = 0 }: { version: AiVersion; startIndex?: number | undefined },
  response: Response,
): Promise<{ kind: 'sent' }> {
  let from = startIndex;
  if (startIndex < 0) {
    let count = 0;
    const soFar = readChunks(context, { ...run, isSoFar: true }, version, new AbortController().signal);
    for await (const _ of soFar) count += 1;
    response.setHeader('x-workflow-stream-tail-index', count - 1);
    from = Math.max(count + startIndex, 0);
  }
  response.setHeader('x-vercel-ai-ui-message-stream', 'v1');
  response.setHeader('x-workflow-run-id', toRunId(run));
  const toExpired = (errorText: string) => ({ type: 'error', errorText });
  return sendEvents(context, response, toExpired, async function* (signal) {
    let index = 0;
    for await (const chunk of readChunks(context, run, version, signal)) {
      // How it ended, whatever the client has counted: it asks until it has the last of these.
      if (index >= from || END.has(chunk.type)) yield chunk;
      if (chunk.type === 'finish') yield '[DONE]';
      index += 1;
    }
  });
}

const END = new Set(['error', 'abort', 'finish']);

async function* readChunks(
  context: InvocationContext,
  run: InvocationRef & { isSoFar?: boolean },
  version: AiVersion,
  signal: AbortSignal,
): AsyncGenerator<UiChunk> {
  const writer = new ChunkWriter(version);
  let isShown = run.answered === undefined;
  yield { type: 'start', messageId: run.invocationId };
  for await (const step of readTurn(context, run, signal)) {
    isShown ||= step.kind === 'event' && isAnswerTo(step.event, run.answered);
    for (const chunk of writer.take(step)) {
      if (isShown) yield chunk;
      if (isShown && chunk.type === 'finish') return;
    }
  }
}

const isAnswerTo = ({ author, content }: Event, callId: string | undefined) =>
  author === 'user' && getFunctionResponses(content).some(({ id }) => id === callId);
