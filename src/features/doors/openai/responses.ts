import type { Response } from 'express';
import type { JsonObject } from '../../../core/content.ts';
import { ConflictError } from '../../../core/errors.ts';
import type { SessionKey } from '../../../core/session.ts';
import { forkAt } from '../../../conversation/sessions/fork-routes.ts';
import { findForkPoint } from '../../../conversation/sessions/fork-store.ts';
import { askToCancel } from '../../../invocations/fence.ts';
import { listInvocationsText } from '../../../invocations/invocation-store.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { sendEvents } from '../start-turn.ts';
import { RequestError } from './errors.ts';
import { parseConversationId, parseResponseId, type ResponseRef } from './ids.ts';
import { toInputItems, toTimeline } from './input.ts';
import { type Page, toPage } from './page.ts';
import { readEvents, readSoFar, waitForEnd } from './read.ts';
import type { CreateResponse } from './schemas.ts';
import { findAnswer, type OpenAiCall, type OpenAiContext, removeTemporary, startAnswer } from './start.ts';
import { type ResponseEvent, toBrokenEvent } from './writer.ts';

const ENDS = /^response\.(?:completed|failed|incomplete)$|^error$/;

/** Answers a request of the Responses API: at the end, at once, or as a stream. */
export async function createResponse(context: OpenAiContext, call: OpenAiCall<CreateResponse>): Promise<Answer> {
  const { body, response } = call;
  const { stream, background, conversation, previous_response_id: previous } = body;
  const isTemporary = body.store === false;
  if (isTemporary && (background === true || conversation != null || previous != null))
    throw new RequestError('What runs in the background, or goes on, is stored: leave `store` out.', {
      param: 'store',
    });
  const timeline = toTimeline(body.input, 'input');
  const streaming = stream === true || background === true;
  const start = async () =>
    startAnswer(context, { timeline, key: await findSession(context, call), streaming, isTemporary }, call);
  const ref = (await findAnswer(context, call, timeline)) ?? (await start());
  try {
    if (stream === true) return await sendResponse(context, ref, response);
    if (background !== true) return { kind: 'value', value: await waitForEnd(context, ref, response) };
    return { kind: 'value', value: (await readSoFar(context, ref)).response };
  } finally {
    if (isTemporary) await removeTemporary(context, ref);
  }
}

/** Finds the session that a request goes on with; `undefined` for a new one. @throws {RequestError} */
async function findSession(
  context: OpenAiContext,
  { body, userId }: OpenAiCall<CreateResponse>,
): Promise<SessionKey | undefined> {
  const { model, conversation, previous_response_id: previous } = body;
  if (conversation != null && previous != null)
    throw new RequestError('Name a conversation or a previous response, not both.', { param: 'previous_response_id' });
  if (conversation == null && previous == null) return undefined;
  const param = conversation == null ? 'previous_response_id' : 'conversation';
  const id = previous ?? (typeof conversation === 'string' ? conversation : (conversation?.id ?? ''));
  const ref = parseResponseId(id);
  const key = conversation == null ? ref?.key : parseConversationId(id);
  const isThere =
    key?.userId === userId &&
    (ref
      ? await context.feeds.readInvocation(key, ref.invocationId)
      : await findForkPoint(context.database.db, key, 0));
  if (!key || !isThere)
    throw new RequestError(`There is no ${id}.`, { param, code: `${param.replace('_id', '')}_not_found`, status: 404 });
  if (key.appName !== model)
    throw new RequestError(`This conversation is one with ${key.appName}, not with ${model}.`, { param: 'model' });
  return ref ? goOnFrom(context, ref) : key;
}

/** Returns the session of a response that is its last, else a copy of it up to there: a conversation may branch. */
async function goOnFrom(context: OpenAiContext, ref: ResponseRef): Promise<SessionKey> {
  const { isOver, lastSequence: atSequence } = await readSoFar(context, ref);
  const point = isOver && (await findForkPoint(context.database.db, ref.key, atSequence));
  if (!point || point.reached <= atSequence) return ref.key;
  const sessionId = context.newId();
  await forkAt(context, ref.key, { sessionId, atSequence });
  return { ...ref.key, sessionId };
}

/** Sends a response as a stream from an event on; a client that comes back names the last one it has. */
function sendResponse(context: OpenAiContext, ref: ResponseRef, response: Response, after = -1): Promise<Answer> {
  const toExpired = (message: string) => ({ type: 'error', code: 'invalid_api_key', message, param: null });
  const read = async function* (signal: AbortSignal) {
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
  };
  return sendEvents(context, response, toExpired, read, (event) => (event as ResponseEvent).type);
}

/** The request of an operation about one response. */
type OneCall = Pick<Call<{ responseId: string }, never, never, never>, 'path' | 'notFound' | 'response'>;

/** Answers a response as it stands, or its events. @throws {NotFoundError} */
export async function getResponse(
  context: OpenAiContext,
  { query, ...call }: OneCall & { query: { stream: boolean; starting_after?: number | undefined } },
): Promise<Answer> {
  const ref = await findResponse(context, call);
  if (query.stream) return sendResponse(context, ref, call.response, query.starting_after);
  return { kind: 'value', value: (await readSoFar(context, ref)).response };
}

async function findResponse({ feeds }: OpenAiContext, { path, notFound }: OneCall): Promise<ResponseRef> {
  const ref = parseResponseId(path.responseId);
  if (!ref || !(await feeds.readInvocation(ref.key, ref.invocationId))) throw notFound();
  return ref;
}

/** Cancels a response that runs, on whatever replica; one that is over stays as it is. */
export async function cancelResponse(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const ref = await findResponse(context, call);
  await askToCancel(context, ref.key, ref.invocationId);
  return (await readSoFar(context, ref)).response;
}

/** Deletes a response with its conversation. @throws {ConflictError} where that has others: no event goes alone */
export async function deleteResponse(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const ref = await findResponse(context, call);
  const invocations = JSON.parse(await listInvocationsText(context.database.db, ref.key, 2)) as unknown[];
  if (invocations.length > 1)
    throw new ConflictError('It is part of a conversation, which goes as a whole: DELETE /v1/conversations/{id}.');
  await removeTemporary(context, ref);
  return { id: call.path.responseId, object: 'response', deleted: true };
}

/** Lists what the user said for a response. */
export async function listInput(
  context: OpenAiContext,
  { query, ...call }: OneCall & { query: Page },
): Promise<JsonObject> {
  const { said } = await readSoFar(context, await findResponse(context, call));
  return toPage(said.flatMap(toInputItems), query);
}
