import { createHash } from 'node:crypto';
import type { Request, Response } from 'express';
import type { z } from 'zod';
import { toClientTools } from '../../../agent/definition/client-tools.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import { findFirstSequence } from '../../../conversation/sessions/event-store.ts';
import type { SessionHistory } from '../../../conversation/sessions/history-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import type { Invocation } from '../../../invocations/invocation.ts';
import { listInvocationsText } from '../../../invocations/invocation-store.ts';
import { type invocationHeaders, toInvocationOptions } from '../../../invocations/request.ts';
import { findRepeated } from '../../../invocations/retry.ts';
import { NOT_VALID_ANY_MORE } from '../../../platform/http/operation/principal.ts';
import { openEventStream } from '../../../platform/http/operation/server-sent-events.ts';
import { startTurn } from '../start-turn.ts';
import type { RunInput } from './input.ts';
import { findWaiting, toMessages } from './messages.ts';
import { toNewContent } from './new-content.ts';
import { type Run, toFrames } from './stream.ts';

const EXPIRED = { type: 'RUN_ERROR', code: 'unauthenticated', message: NOT_VALID_ANY_MORE };

/** Most invocations of a thread of which the one that runs is searched. */
const NEWEST = 100;

interface Sent {
  headers: z.output<typeof invocationHeaders>;
  request: Request;
  response: Response;
}

/** Runs a thread with what is new in the input; the same run again is attached to the first. */
export async function startRun(context: InvocationContext, key: SessionKey, input: RunInput, sent: Sent) {
  const named = createHash('sha256')
    .update(JSON.stringify([input.threadId, input.runId]))
    .digest('hex');
  const headers = { ...sent.headers, 'idempotency-key': sent.headers['idempotency-key'] ?? `ag-ui-${named}` };
  // Not the history: a client that tries again has some of the answer by now.
  const requested = [input.messages.findLast(({ role }) => role === 'user'), input.resume];
  const { idempotency } = toInvocationOptions(headers, [key, requested]);
  const repeated = idempotency && (await findRepeated(context, key, idempotency));
  const history = await context.histories.find(context.database.db, key);
  const { runId } = input;
  if (repeated) {
    const { invocationId } = repeated;
    const turn = { invocationId, after: await findBeginning(context, key, invocationId, input, history) };
    const before = history && { ...history, events: history.events.slice(0, turn.after) };
    return send(context, { key, runId, history: before, turn, isRestored: true }, sent.response);
  }
  const messages = toMessages(history?.events ?? []);
  const waiting = history && (await findPaused(context, key, history));
  const { content, resumed } = toNewContent(input, { messages, waiting }, context.log);
  const clientTools = toClientTools(input.tools);
  const overrides = clientTools ? { clientTools } : {};
  const started = await startTurn(context, key, { content, resumed, overrides, requested }, { ...sent, headers });
  const place = history?.events.length ?? 0;
  const turn = { ...started, after: resumed === undefined ? started.after : place };
  const known = new Set(input.messages.map(({ id }) => id));
  const isRestored = messages.some(({ id, role }) => role !== 'reasoning' && !known.has(id));
  return send(context, { key, runId, history, turn, isRestored }, sent.response);
}

/** Sends a thread as it is, and what runs in it to its end. @throws {NotFoundError} where there is nothing */
export async function connectRun(
  context: InvocationContext,
  key: SessionKey,
  runId: string | undefined,
  response: Response,
) {
  const active = await findActive(context, key);
  const history = await context.histories.find(context.database.db, key);
  if (!history || (history.events.length === 0 && !active)) throw new NotFoundError(sessionNotFound(key.sessionId));
  const turn = active && { invocationId: active.id, after: history.events.length };
  const name = runId ?? active?.id ?? history.events.at(-1)?.invocationId ?? key.sessionId;
  return send(context, { key, runId: name, history, turn, isRestored: true }, response);
}

async function send(context: InvocationContext, run: Run, response: Response): Promise<{ kind: 'sent' }> {
  const expired = `data: ${JSON.stringify(EXPIRED)}\n\n`;
  const stream = openEventStream(response, { comments: true, expired });
  const signal = AbortSignal.any([stream.signal, context.draining]);
  for await (const frame of toFrames(context, run, signal)) await stream.send(JSON.stringify(frame));
  stream.end();
  return { kind: 'sent' };
}

/** Finds the last event before a run: before its prompt, or before the answers with which it goes on. */
async function findBeginning(
  { database }: InvocationContext,
  key: SessionKey,
  invocationId: string,
  input: RunInput,
  history: SessionHistory | undefined,
): Promise<number> {
  const ids = new Set(input.resume?.map(({ interruptId }) => interruptId));
  const answer = history?.events.findLastIndex(
    (event) =>
      event.author === 'user' &&
      event.invocationId === invocationId &&
      event.content?.parts?.some(({ functionResponse }) => functionResponse && ids.has(functionResponse.id ?? '')),
  );
  if (answer !== undefined && answer >= 0) return answer;
  return Math.max((await findFirstSequence(database.db, key, invocationId)) - 1, 0);
}

async function findPaused(context: InvocationContext, key: SessionKey, history: SessionHistory) {
  const waiting = findWaiting(history);
  const invocation = waiting && (await context.feeds.readInvocation(key, waiting.invocationId));
  return invocation?.status === 'paused' ? waiting : undefined;
}

async function findActive({ database }: InvocationContext, key: SessionKey): Promise<Invocation | undefined> {
  const newest = JSON.parse(await listInvocationsText(database.db, key, NEWEST)) as Invocation[];
  return newest.find(({ status }) => status === 'running') ?? newest.findLast(({ status }) => status === 'queued');
}
