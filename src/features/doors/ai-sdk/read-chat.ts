import type { Response } from 'express';
import { NotFoundError } from '../../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import { requestCancel } from '../../../invocations/cancel.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { findCurrent, findInvocationText, findLastTaken } from '../../../invocations/invocation-store.ts';
import { sendEvents } from '../door.ts';
import type { InvocationRef } from '../handle.ts';
import { Part, readTurn } from '../turn.ts';
import { type AiVersion, ChunkWriter, type UiChunk } from './chunks.ts';

/** The id contains everything that is needed to stream the run. */
function toRunId({ key, invocationId, answeredCallId }: InvocationRef): string {
  const names = [key.sessionId, invocationId, ...(answeredCallId === undefined ? [] : [answeredCallId])];
  return `run.${names.map((name) => Buffer.from(name).toString('base64url')).join('.')}`;
}

/** @returns `undefined` if the id is that of a chat */
export function parseRunId({ appName, userId }: Omit<SessionKey, 'sessionId'>, id: string): InvocationRef | undefined {
  if (!/^run(\.[\w-]+){2,3}$/.test(id)) return undefined;
  const names = id.split('.').map((name) => Buffer.from(name, 'base64url').toString());
  const [, sessionId = '', invocationId = '', answeredCallId] = names;
  return { key: { appName, userId, sessionId }, invocationId, answeredCallId };
}

/**
 * Finds a run by its id, or the active run of a chat; with `isAny` the newest run of a chat. If the run took messages, it
 * is the part of it that answers the last one.
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
  if (invocationId === undefined) return undefined;
  // The messages show what answers a message that steered as its own answer: what was said before is there already.
  return { key, invocationId: (await findLastTaken(database.db, key, invocationId)) ?? invocationId };
}

/** Stops a run; of a message that steered, what took it. @returns false where nothing ran */
export async function stopRun(context: InvocationContext, { key, invocationId }: InvocationRef): Promise<boolean> {
  const invocation = await context.feeds.readInvocation(key, invocationId);
  if (!invocation) return false;
  return (await requestCancel(context, key, invocation.steeredInto ?? invocationId)) !== undefined;
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
    for await (const chunk of chunks.read(new AbortController().signal, true)) {
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
  readonly #part: Part;
  #hasBegun = false;
  #isOver = false;
  #after: number | undefined;

  constructor(context: InvocationContext, run: InvocationRef, version: AiVersion) {
    this.#context = context;
    this.#run = run;
    this.#writer = new ChunkWriter(version);
    this.#part = new Part(run);
  }

  /** Goes on after the chunks that were read before. */
  async *read(signal: AbortSignal, isSoFar = false): AsyncGenerator<UiChunk> {
    if (!this.#hasBegun) yield { type: 'start', messageId: this.#run.invocationId };
    this.#hasBegun = true;
    if (this.#isOver) return;
    const turn = { ...this.#run, isSoFar, after: this.#after };
    for await (const step of readTurn(this.#context, turn, signal)) {
      if (step.kind === 'event') this.#after = step.sequence;
      const isShown = this.#part.take(step) !== 'before';
      // The client has the message whose answer it reads.
      if (step.kind === 'event' && step.event.id === this.#run.invocationId) continue;
      for (const chunk of this.#writer.take(step)) {
        if (isShown) yield chunk;
        this.#isOver ||= isShown && chunk.type === 'finish';
        if (this.#isOver) return;
      }
    }
  }
}
