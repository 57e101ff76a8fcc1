import { createHash } from 'node:crypto';
import type { Response } from 'express';
import { toClientTools } from '../../../agent/definition/client-tools.ts';
import { NotFoundError } from '../../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../../core/session.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { findCurrent } from '../../../invocations/invocation-store.ts';
import { toInvocationOptions } from '../../../invocations/request.ts';
import { findRepeated } from '../../../invocations/retry.ts';
import { sendEvents, startTurn, type TurnCall } from '../start-turn.ts';
import type { RunInput } from './input.ts';
import { toMessages, toNewest } from './messages.ts';
import { toNewContent } from './new-content.ts';
import { findHistory, findPaused, type Run, toFrames } from './stream.ts';

/** Runs a thread with what is new in the input; the same run again is attached to the first. */
export async function startRun(context: InvocationContext, key: SessionKey, input: RunInput, sent: TurnCall) {
  const { runId, messages: given, resume, tools } = input;
  const named = createHash('sha256')
    .update(JSON.stringify([input.threadId, runId]))
    .digest('hex');
  const headers = { ...sent.headers, 'idempotency-key': sent.headers['idempotency-key'] ?? `ag-ui-${named}` };
  // Not the history: a client that tries again has some of the answer by now.
  const requested = [given.findLast(({ role }) => role === 'user'), resume];
  const history = await findHistory(context, key);
  const messages = toMessages(history?.events ?? []);
  const waiting = await findPaused(context, key, history);
  let added: ReturnType<typeof toNewContent>;
  try {
    added = toNewContent(input, { messages, waiting }, context.log);
  } catch (error) {
    const { idempotency } = toInvocationOptions(headers, [key, requested]);
    const repeated = idempotency && (await findRepeated(context, key, idempotency));
    if (!repeated) throw error;
    const { invocationId } = repeated;
    return send(context, { key, runId, history, invocationId, isRestored: true }, sent.response);
  }
  const clientTools = toClientTools(tools);
  const turn = { ...added, overrides: clientTools ? { clientTools } : {}, requested };
  const { invocationId } = await startTurn(context, key, turn, { ...sent, headers });
  const known = new Set(given.map(({ id }) => id));
  const isRestored = toNewest(messages).newest.some(({ id, role }) => role !== 'reasoning' && !known.has(id));
  return send(context, { key, runId, history, invocationId, isRestored }, sent.response);
}

/** Sends a thread as it is, and what runs in it to its end. @throws {NotFoundError} where there is nothing */
export async function connectRun(
  context: InvocationContext,
  key: SessionKey,
  runId: string | undefined,
  response: Response,
) {
  const invocationId = await findCurrent(context.database.db, key);
  const history = await findHistory(context, key);
  const last = history?.events.at(-1)?.invocationId ?? invocationId;
  if (!history || last === undefined) throw new NotFoundError(sessionNotFound(key.sessionId));
  return send(
    context,
    { key, runId: runId ?? invocationId ?? last, history, invocationId, isRestored: true },
    response,
  );
}

const send = (context: InvocationContext, run: Run, response: Response) =>
  sendEvents(
    context,
    response,
    (message) => ({ type: 'RUN_ERROR', code: 'unauthenticated', message }),
    (signal) => toFrames(context, run, signal),
  );
