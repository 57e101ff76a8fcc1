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

/** Builds the id of a run. The id contains everything that is needed to stream the run. */
function toRunId({ key, invocationId, answeredCallId }: InvocationRef): string {
  const names = [key.sessionId, invocationId, ...(answeredCallId === undefined ? [] : [answeredCallId])];
  return `run.${names.map((name) => Buffer.from(name).toString('base64url')).join('.')}`;
}

/** Decodes the id of a run. Returns `undefined` if the id is that of a chat. */
export function parseRunId({ appName, userId }: Omit<SessionKey, 'sessionId'>, id: string): InvocationRef | undefined {
  if (!/^run(\.[\w-]+){2,3}$/.test(id)) return undefined;
  const names = id.split('.').map((name) => Buffer.from(name, 'base64url').toString());
  const [, sessionId = '', invocationId = '', answeredCallId] = names;
  return { key: { appName, userId, sessionId }, invocationId, answeredCallId };
}

/**
 * Finds a run by its id, or the active run of a chat; with `isAny` the newest run of a chat.
 * @throws {NotFoundError} if a run id names no run
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
 * If the stream ends without a `finish` chunk, the client reconnects to any replica.
 * @param startIndex - index of the first chunk to send; negative: counted from the end; default: 0
 */
export async function sendRun(
  context: InvocationContext,
  run: InvocationRef,
  { version, startIndex = 0 }: { version: AiVersion; startIndex?: number | undefined },
  response: Response,
): Promise<{ kind: 'sent' }> {
  const chunks = new RunReader(context, run, version);
  const isFromEnd = startIndex < 0;
  const last: UiChunk[] = [];
  const ends: UiChunk[] = [];
  let count = 0;
  // Existing chunks come first, because a negative index is counted from their end.
  if (isFromEnd)
    for await (const chunk of chunks.readSoFar()) {
      last.push(chunk);
      const before = last.length > -startIndex ? last.shift() : undefined;
      if (before && END.has(before.type)) ends.push(before);
      count += 1;
    }
  if (isFromEnd) response.setHeader('x-workflow-stream-tail-index', count - 1);
  response.setHeader('x-vercel-ai-ui-message-stream', 'v1');
  response.setHeader('x-workflow-run-id', toRunId(run));
  const toExpired = (errorText: string) => ({ type: 'error', errorText });
  return sendEvents(context, response, toExpired, async function* (signal) {
    for (const chunk of [...ends, ...last]) yield* withDone(chunk);
    let index = count;
    for await (const chunk of chunks.read(signal)) {
      // Terminal chunks are sent even below `startIndex`, because the client polls until it gets one.
      if (index >= startIndex || END.has(chunk.type)) yield* withDone(chunk);
      index += 1;
    }
  });
}

function* withDone(chunk: UiChunk): Generator<UiChunk | string> {
  yield chunk;
  if (chunk.type === 'finish') yield '[DONE]';
}

const END = new Set(['error', 'abort', 'finish']);

class RunReader {
  readonly #context: InvocationContext;
  readonly #run: InvocationRef;
  readonly #writer: ChunkWriter;
  #isShown: boolean;
  #hasBegun = false;
  #isOver = false;
  #after: number | undefined;

  constructor(context: InvocationContext, run: InvocationRef, version: AiVersion) {
    this.#context = context;
    this.#run = run;
    this.#writer = new ChunkWriter(version);
    this.#isShown = run.answeredCallId === undefined;
  }

  readSoFar(): AsyncGenerator<UiChunk> {
    return this.#read(true, new AbortController().signal);
  }

  read(signal: AbortSignal): AsyncGenerator<UiChunk> {
    return this.#read(false, signal);
  }

  async *#read(isSoFar: boolean, signal: AbortSignal): AsyncGenerator<UiChunk> {
    if (!this.#hasBegun) yield { type: 'start', messageId: this.#run.invocationId };
    this.#hasBegun = true;
    if (this.#isOver) return;
    const turn = { ...this.#run, isSoFar, after: this.#after };
    for await (const step of readTurn(this.#context, turn, signal)) {
      if (step.kind === 'event') this.#after = step.sequence;
      this.#isShown ||= step.kind === 'event' && isAnswerTo(step.event, this.#run.answeredCallId);
      for (const chunk of this.#writer.take(step)) {
        if (this.#isShown) yield chunk;
        this.#isOver ||= this.#isShown && chunk.type === 'finish';
        if (this.#isOver) return;
      }
    }
  }
}

const isAnswerTo = ({ author, content }: Event, callId: string | undefined) =>
  author === 'user' && getFunctionResponses(content).some(({ id }) => id === callId);
