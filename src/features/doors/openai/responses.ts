import type { Response } from 'express';
import type { JsonObject } from '../../../core/content.ts';
import { ConflictError } from '../../../core/errors.ts';
import type { SessionKey } from '../../../core/session.ts';
import { forkAt } from '../../../conversation/sessions/fork-routes.ts';
import { findForkPoint } from '../../../conversation/sessions/fork-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { askToCancel } from '../../../invocations/fence.ts';
import { listInvocationsText } from '../../../invocations/invocation-store.ts';
import { toInvocationOptions } from '../../../invocations/request.ts';
import { findRepeated } from '../../../invocations/retry.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { sendEvents } from '../start-turn.ts';
import { withEcho } from './echo.ts';
import { RequestError } from './errors.ts';
import { parseConversationId, parseResponseId, type ResponseRef } from './ids.ts';
import { toInputItems, toTimeline } from './input.ts';
import { type Page, toPage } from './page.ts';
import { readEvents, readSoFar, waitForEnd } from './read.ts';
import type { CreateResponse } from './schemas.ts';
import { deleteTemporary, type OpenAiCall, type OpenAiContext, startAnswer, toOverrides } from './start.ts';
import { type ResponseEvent, toBrokenEvent } from './writer.ts';

const ENDS = /^response\.(?:completed|failed|incomplete)$|^error$/;

/** Answers a request of the Responses API: at the end, at once, or as a stream. */
export async function createResponse(
  context: OpenAiContext,
  { body, userId, ...call }: { body: CreateResponse; userId: string } & OpenAiCall,
): Promise<Answer> {
  const isStream = body.stream === true;
  const isTemporary = body.store === false;
  if (isTemporary && body.background === true)
    throw new RequestError('What runs in the background is stored: leave `store` out.', { param: 'store' });
  const ref = await startAnswer(
    context,
    {
      timeline: toTimeline(body.input),
      param: 'input',
      key: await findSession(context, body, userId, call),
      appName: body.model,
      userId,
      overrides: toOverrides(body),
      streaming: isStream || body.background === true,
      isTemporary,
      requested: body,
      note: (parts) => withEcho(parts, body),
    },
    call,
  );
  if (isStream) return sendResponse(context, ref, { isTemporary, response: call.response });
  if (body.background === true) return { kind: 'value', value: await readOne(context, ref) };
  const left = new AbortController();
  call.response.once('close', () => left.abort());
  try {
    const { ended } = await waitForEnd(context, ref, left.signal);
    return { kind: 'value', value: ended };
  } finally {
    if (isTemporary) await deleteTemporary(context, ref);
  }
}

/** Finds the session that a request goes on with; `undefined` for a new one. @throws {RequestError} */
async function findSession(
  context: OpenAiContext,
  { model, conversation, previous_response_id: previous, ...body }: CreateResponse,
  userId: string,
  { headers }: OpenAiCall,
): Promise<SessionKey | undefined> {
  const requested = { model, conversation, previous_response_id: previous, ...body };
  if (conversation != null && previous != null)
    throw new RequestError('Name a conversation or a previous response, not both.', { param: 'previous_response_id' });
  if (conversation != null) {
    const id = typeof conversation === 'string' ? conversation : conversation.id;
    const key = parseConversationId(id);
    if (key?.userId !== userId || !(await findForkPoint(context.database.db, key, 0)))
      throw missing(`Conversation not found: ${id}`, 'conversation', 'conversation_not_found');
    checkModel(key, model);
    return key;
  }
  if (previous == null) return undefined;
  const ref = parseResponseId(previous);
  const found = ref?.key.userId === userId ? ref : undefined;
  const status = found && (await context.feeds.readInvocation(found.key, found.invocationId))?.status;
  if (!found || !status)
    throw missing(`Response not found: ${previous}`, 'previous_response_id', 'previous_response_not_found');
  checkModel(found.key, model);
  const { idempotency } = toInvocationOptions(headers, [found.key, requested]);
  const isRepeated = idempotency && (await findRepeated(context, found.key, idempotency).catch(() => undefined));
  if (status === 'running' || status === 'queued' || isRepeated) return found.key;
  return goOnFrom(context, found);
}

const missing = (message: string, param: string, code: string) =>
  new RequestError(message, { param, code, status: 404 });

function checkModel({ appName }: SessionKey, model: string): void {
  if (appName !== model)
    throw new RequestError(`This conversation is one with ${appName}, not with ${model}.`, { param: 'model' });
}

/** Returns the session of a response that is its last, else a copy of it up to there: a conversation may branch. */
async function goOnFrom(context: OpenAiContext, ref: ResponseRef): Promise<SessionKey> {
  const { lastSequence: atSequence } = await readSoFar(context, ref);
  const point = await findForkPoint(context.database.db, ref.key, atSequence);
  if (!point || point.reached <= atSequence) return ref.key;
  const sessionId = context.newId();
  await forkAt(context, ref.key, { sessionId, atSequence });
  return { ...ref.key, sessionId };
}

/** Sends a response as a stream from an event on; a client that comes back names the last one it has. */
export async function sendResponse(
  context: OpenAiContext,
  ref: ResponseRef,
  {
    response,
    after = -1,
    isTemporary = false,
  }: { response: Response; after?: number | undefined; isTemporary?: boolean },
): Promise<Answer> {
  const toExpired = (message: string) => ({ type: 'error', code: 'invalid_api_key', message, param: null });
  try {
    return await sendEvents(
      context,
      response,
      toExpired,
      async function* (signal) {
        let isKnown = after < 0;
        for await (const event of readEvents(context, ref, signal)) {
          const { type, sequence_number: number } = event;
          isKnown ||= number === after;
          if (number <= after && !ENDS.test(type)) continue;
          // What the client has was taken back while it was away.
          yield isKnown ? event : toBrokenEvent(number);
          if (!isKnown) break;
        }
        if (!signal.aborted) yield '[DONE]';
      },
      (event) => (event as ResponseEvent).type,
    );
  } finally {
    if (isTemporary) await deleteTemporary(context, ref);
  }
}

/** The request of an operation about one response. */
type OneCall = Pick<Call<{ responseId: string }, never, never, never>, 'path' | 'notFound'>;

/** Answers a response as it stands, or its events. @throws {NotFoundError} */
export async function getResponse(
  context: OpenAiContext,
  {
    query,
    response,
    ...call
  }: OneCall & { query: { stream: boolean; starting_after?: number | undefined }; response: Response },
): Promise<Answer> {
  const { ref } = await findResponse(context, call);
  if (query.stream) return sendResponse(context, ref, { response, after: query.starting_after });
  return { kind: 'value', value: await readOne(context, ref) };
}

async function findResponse({ feeds }: Pick<InvocationContext, 'feeds'>, { path, notFound }: OneCall) {
  const ref = parseResponseId(path.responseId);
  const invocation = ref && (await feeds.readInvocation(ref.key, ref.invocationId));
  if (!ref || !invocation) throw notFound();
  return { ref, invocation };
}

async function readOne(context: OpenAiContext, ref: ResponseRef): Promise<JsonObject> {
  const invocation = await context.feeds.readInvocation(ref.key, ref.invocationId);
  const writer = await readSoFar(context, ref);
  return writer.ended ?? writer.toResponse(invocation?.status === 'queued' ? 'queued' : 'in_progress');
}

/** Cancels a response that runs, on whatever replica; one that is over stays as it is. */
export async function cancelResponse(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const { ref, invocation } = await findResponse(context, call);
  await askToCancel(context, ref.key, invocation.id);
  return readOne(context, ref);
}

/** Deletes a response with its conversation. @throws {ConflictError} where that has others: no event goes alone */
export async function deleteResponse(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const { ref } = await findResponse(context, call);
  const invocations = JSON.parse(await listInvocationsText(context.database.db, ref.key, 2)) as unknown[];
  if (invocations.length > 1)
    throw new ConflictError('It is part of a conversation, which goes as a whole: DELETE /v1/conversations/{id}.');
  await deleteTemporary(context, ref);
  return { id: call.path.responseId, object: 'response', deleted: true };
}

/** Lists what the user said for a response. */
export async function listInput(
  context: OpenAiContext,
  { query, ...call }: OneCall & { query: Page },
): Promise<JsonObject> {
  const { ref } = await findResponse(context, call);
  const { said } = await readSoFar(context, ref);
  return toPage(said.flatMap(toInputItems), query);
}
