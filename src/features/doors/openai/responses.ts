import type { Response } from 'express';
import type { ResponseStreamEvent } from 'openai/resources/responses/responses';
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
import { toTimeline } from './input.ts';
import { type Page, toPage } from './items.ts';
import { readResponse, waitForEnd } from './response.ts';
import type { CreateResponse } from './schemas.ts';
import type { OpenAiCall, OpenAiContext } from './start.ts';
import { endWithSession, findAnswer, removeSession, startAnswer } from './start.ts';
import { readEvents, toBrokenEvent } from './stream.ts';

const ENDS = /^response\.(?:completed|failed|incomplete)$|^error$/;

/** Answers a request of the Responses API: at the end, at once, or as a stream. */
export async function createResponse(context: OpenAiContext, call: OpenAiCall<CreateResponse>): Promise<Answer> {
  const { body, response } = call;
  const { stream, background, conversation, previous_response_id: previous } = body;
  const isTemporary = body.store === false;
  const lasts = 'What runs in the background, or goes on, is stored: leave `store` out.';
  if (isTemporary && (background === true || conversation != null || previous != null))
    throw new RequestError(lasts, { param: 'store' });
  const timeline = toTimeline(body.input, 'input');
  const answer = async (ref: ResponseRef) => {
    if (stream === true) return sendResponse(context, ref, response);
    return show(background === true ? readSoFar(context, ref) : waitForEnd(context, ref, response));
  };
  const repeated = await findAnswer(context, call, timeline);
  if (repeated) return endWithSession(context, repeated, isTemporary, () => answer(repeated));
  const streaming = stream === true || background === true;
  const key = await findSession(context, call);
  return startAnswer(context, { timeline, key, streaming, isTemporary }, call, answer);
}

const show = async (value: Promise<unknown>): Promise<Answer> => ({ kind: 'value', value: await value });

const readSoFar = async (context: OpenAiContext, ref: ResponseRef) => (await readResponse(context, ref)).toResponse();

/** Finds the session that a request goes on with; `undefined` for a new one. @throws {RequestError} */
async function findSession(context: OpenAiContext, { body, userId }: OpenAiCall<CreateResponse>) {
  const { model, conversation, previous_response_id: previous } = body;
  if (conversation != null && previous != null)
    throw new RequestError('Name a conversation or a previous response, not both.', { param: 'previous_response_id' });
  const id = previous ?? (typeof conversation === 'string' ? conversation : conversation?.id);
  if (id === undefined) return undefined;
  const ref = previous == null ? undefined : parseResponseId(previous);
  const key = previous == null ? parseConversationId(id) : ref?.key;
  const member = previous == null ? 'conversation' : 'previous_response';
  const isThere =
    key?.userId === userId &&
    (ref
      ? await context.feeds.readInvocation(key, ref.invocationId)
      : await findForkPoint(context.database.db, key, 0));
  if (!key || !isThere) {
    const param = previous == null ? member : `${member}_id`;
    throw new RequestError(`There is no ${id}.`, { param, code: `${member}_not_found`, status: 404 });
  }
  if (key.appName !== model)
    throw new RequestError(`This conversation is one with ${key.appName}, not with ${model}.`, { param: 'model' });
  return ref ? goOnFrom(context, ref) : key;
}

/** Returns the session of a response that is its last, else a copy of it up to there: a conversation may branch. */
async function goOnFrom(context: OpenAiContext, ref: ResponseRef): Promise<SessionKey> {
  const { isOver, lastSequence: atSequence } = await readResponse(context, ref);
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
  return sendEvents(context, response, toExpired, read, (event) => (event as ResponseStreamEvent).type);
}

/** The request of an operation about one response. */
type OneCall<Query = unknown> = Call<{ responseId: string }, Query, unknown, unknown>;

interface Reading {
  stream: boolean;
  starting_after?: number | undefined;
}

async function findResponse({ feeds }: OpenAiContext, { path, notFound }: OneCall): Promise<ResponseRef> {
  const ref = parseResponseId(path.responseId);
  if (!ref || !(await feeds.readInvocation(ref.key, ref.invocationId))) throw notFound();
  return ref;
}

/** Answers a response as it stands, or its events. @throws {NotFoundError} */
export async function getResponse(context: OpenAiContext, call: OneCall<Reading>): Promise<Answer> {
  const ref = await findResponse(context, call);
  const { stream, starting_after } = call.query;
  return stream ? sendResponse(context, ref, call.response, starting_after) : show(readSoFar(context, ref));
}

/** Cancels a response that runs, on whatever replica; one that is over stays as it is. */
export async function cancelResponse(context: OpenAiContext, call: OneCall): Promise<Answer> {
  const ref = await findResponse(context, call);
  await askToCancel(context, ref.key, ref.invocationId);
  return show(readSoFar(context, ref));
}

/** Deletes a response with its conversation. @throws {ConflictError} where that has others: no event goes alone */
export async function deleteResponse(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const ref = await findResponse(context, call);
  const invocations = JSON.parse(await listInvocationsText(context.database.db, ref.key, 2)) as unknown[];
  if (invocations.length > 1)
    throw new ConflictError('It is part of a conversation, which goes as a whole: DELETE /v1/conversations/{id}.');
  await removeSession(context, ref);
  return { id: call.path.responseId, object: 'response', deleted: true };
}

/** Lists what the user said for a response. */
export async function listInput(context: OpenAiContext, call: OneCall<Page>): Promise<JsonObject> {
  const { said } = await readResponse(context, await findResponse(context, call));
  return toPage(said, call.query);
}
