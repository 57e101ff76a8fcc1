import type { Response } from 'express';
import type { ResponseStreamEvent } from 'openai/resources/responses/responses';
import type { z } from 'zod';
import type { JsonObject } from '../../../core/content.ts';
import { ConflictError } from '../../../core/errors.ts';
import { forkAt } from '../../../conversation/sessions/fork.ts';
import { cancel } from '../../../invocations/cancel.ts';
import { listInvocationsText } from '../../../invocations/invocation-store.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { sendEvents } from '../door.ts';
import type { InvocationRef } from '../handle.ts';
import { RequestError } from './errors.ts';
import { parseId } from './ids.ts';
import { toPage, toTimeline } from './items.ts';
import { readEvents, readResponse, toBrokenEvent, toState } from './response.ts';
import type { CreateResponse, Page, responseQuery } from './schemas.ts';
import type { OpenAiCall, OpenAiContext, Place } from './start.ts';
import { answer, removeSession } from './start.ts';

const ENDS = /^response\.(?:completed|failed|incomplete)$|^error$/;

/** Answers a Responses request: with the complete response, at once if `background` is true, or with a stream. */
export async function createResponse(context: OpenAiContext, call: OpenAiCall<CreateResponse>): Promise<Answer> {
  const { body, response } = call;
  const { stream, background, conversation, previous_response_id: previous } = body;
  const lasts = 'What runs in the background, or goes on, is stored: leave `store` out.';
  if (body.store === false && (background === true || conversation != null || previous != null))
    throw new RequestError(lasts, { param: 'store' });
  const isHere = stream !== true && background !== true;
  return answer(context, call, {
    timeline: toTimeline(body.input, 'input'),
    streaming: !isHere,
    find: () => findPlace(context, call),
    show: (ref) =>
      stream === true ? sendResponse(context, ref, response) : show(context, ref, isHere ? response : undefined),
  });
}

/** Returns a response: with `client` at its end, otherwise in its current state. */
async function show(context: OpenAiContext, ref: InvocationRef, client?: Response): Promise<Answer> {
  return { kind: 'value', value: (await readResponse(context, ref, client)).toResponse() };
}

/** Finds the session that a request continues; `undefined` if it needs a new session. @throws {RequestError} */
async function findPlace(context: OpenAiContext, { body, userId }: OpenAiCall<CreateResponse>) {
  const { model, conversation, previous_response_id: previous } = body;
  if (conversation != null && previous != null)
    throw new RequestError('Name a conversation or a previous response, not both.', { param: 'previous_response_id' });
  const id = previous ?? (typeof conversation === 'string' ? conversation : conversation?.id);
  if (id === undefined) return undefined;
  const ref = parseId(previous == null ? 'conv_' : 'resp_', id);
  const isThere =
    ref?.key.userId === userId && (previous == null || (await context.feeds.readInvocation(ref.key, ref.invocationId)));
  const history = isThere ? await context.histories.find(context.database.db, ref.key) : undefined;
  if (!ref || !history) {
    const [what, member, param] =
      previous == null ? ['Conversation', 'conversation'] : ['Response', 'previous_response', 'previous_response_id'];
    throw new RequestError(`${what} not found: ${id}`, {
      param: param ?? member,
      code: `${member}_not_found`,
      status: 404,
    });
  }
  const { key } = ref;
  if (key.appName !== model)
    throw new RequestError(`This conversation is one with ${key.appName}, not with ${model}.`, { param: 'model' });
  return (previous != null && (await branchFrom(context, ref, history.events.length))) || { key, history };
}

/** Forks after an earlier response, because any may be continued. @returns `undefined` after the session's last */
async function branchFrom(context: OpenAiContext, ref: InvocationRef, reached: number): Promise<Place | undefined> {
  const { end, lastSequence: atSequence } = await readResponse(context, ref);
  if (!end || atSequence >= reached) return undefined;
  const sessionId = context.newId();
  await forkAt(context, ref.key, { sessionId, atSequence });
  return { key: { ...ref.key, sessionId } };
}

/** Streams a response. `after` is the number of the last event that a reconnecting client has. */
function sendResponse(context: OpenAiContext, ref: InvocationRef, response: Response, after = -1): Promise<Answer> {
  const toExpired = (message: string) => ({ type: 'error', code: 'invalid_api_key', message, param: null });
  const read = async function* (signal: AbortSignal) {
    let isKnown = after < 0;
    for await (const event of readEvents(context, ref, signal)) {
      const { type, sequence_number: number } = event;
      isKnown ||= number === after;
      if (number <= after && !ENDS.test(type)) continue;
      // If the client's last event was retracted while the client was disconnected, the stream ends with an error.
      yield isKnown ? event : toBrokenEvent(number);
      if (!isKnown) break;
    }
    if (!signal.aborted) yield '[DONE]';
  };
  return sendEvents(context, response, toExpired, read, (event) => (event as ResponseStreamEvent).type);
}

type OneCall<Query = unknown> = Call<{ responseId: string }, Query, unknown, unknown>;

async function findResponse({ feeds }: OpenAiContext, { path, notFound }: OneCall): Promise<InvocationRef> {
  const ref = parseId('resp_', path.responseId);
  if (!ref || !(await feeds.readInvocation(ref.key, ref.invocationId))) throw notFound();
  return ref;
}

/** @throws {NotFoundError} */
export async function getResponse(
  context: OpenAiContext,
  call: OneCall<z.output<typeof responseQuery>>,
): Promise<Answer> {
  const ref = await findResponse(context, call);
  const { stream, starting_after } = call.query;
  return stream ? sendResponse(context, ref, call.response, starting_after) : show(context, ref);
}

/** Cancels a response, on whatever replica it runs; a response that has ended stays as it is. @returns its state */
export async function cancelResponse(context: OpenAiContext, call: OneCall): Promise<Answer> {
  const ref = await findResponse(context, call);
  await cancel(context, ref.key, ref.invocationId);
  const invocation = await context.feeds.readInvocation(ref.key, ref.invocationId);
  if (!invocation) throw call.notFound();
  return { kind: 'value', value: toState(ref, invocation) };
}

/** Deletes a response with its conversation. @throws {ConflictError} for others in it: events are not deleted singly */
export async function deleteResponse(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const ref = await findResponse(context, call);
  const invocations = JSON.parse(await listInvocationsText(context.database.db, ref.key, 2)) as unknown[];
  if (invocations.length > 1)
    throw new ConflictError('It is part of a conversation, which goes as a whole: DELETE /v1/conversations/{id}.');
  await removeSession(context, ref);
  return { id: call.path.responseId, object: 'response', deleted: true };
}

export async function listInput(context: OpenAiContext, call: OneCall<Page>): Promise<JsonObject> {
  const { input } = await readResponse(context, await findResponse(context, call));
  return toPage(input, call.query);
}
