import type { z } from 'zod';
import { getFunctionCalls, getFunctionResponses, type JsonObject } from '../../../core/content.ts';
import { withoutRewound } from '../../../core/event.ts';
import { sessionTopic } from '../../../core/names.ts';
import type { SessionKey } from '../../../core/session.ts';
import { appendEvents } from '../../../conversation/sessions/append-store.ts';
import { listCallsById } from '../../../conversation/sessions/event-store.ts';
import { changeLabels, findLabels, type SessionLabels } from '../../../conversation/sessions/labels.ts';
import { insertSession } from '../../../conversation/sessions/session-store.ts';
import type { Call } from '../../../platform/http/operation/operation.ts';
import { parseId, toConversationId } from './ids.ts';
import { createItemReader, toOwnEvents, toPage, toTimeline } from './items.ts';
import type { conversationSchema, itemsSchema, metadataSchema, Page } from './schemas.ts';
import { type OpenAiContext, removeSession } from './start.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

type OneCall<Body = unknown, Query = unknown> = Call<{ conversationId: string }, Query, unknown, Body>;
type NewBody = z.input<typeof conversationSchema> | undefined;

/** A conversation is a session, its metadata are the session's labels. */
export function createConversation(
  context: OpenAiContext,
  call: Call<unknown, { app_name: string }, unknown, NewBody> & { userId: string },
): Promise<JsonObject> {
  const { query, userId, principal, body: { items, metadata } = {} } = call;
  const key = { appName: query.app_name, userId, sessionId: context.newId() };
  const events = toOwnEvents(context, key, toTimeline(items ?? [], 'items'), principal);
  return context.database.transaction(async (tx) => {
    await insertSession(tx, key, {}, events);
    return toConversation(key, await changeLabels(tx, key, metadata ?? {}));
  });
}

const toConversation = (key: SessionKey, { text, createTime }: SessionLabels): JsonObject => ({
  id: toConversationId(key),
  object: 'conversation',
  created_at: Math.floor(createTime),
  metadata: parseExactJson(text),
});

/** @throws {NotFoundError} if the path contains no conversation id */
function toKey({ path, notFound }: OneCall): SessionKey {
  const ref = parseId('conv_', path.conversationId);
  if (!ref) throw notFound();
  return ref.key;
}

/** @throws {NotFoundError} */
export async function findConversation({ database }: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const key = toKey(call);
  const labels = await findLabels(database.db, key);
  if (!labels) throw call.notFound();
  return toConversation(key, labels);
}

export async function changeConversation(
  context: OpenAiContext,
  call: OneCall<z.input<typeof metadataSchema>>,
): Promise<JsonObject> {
  const { metadata: before } = await findConversation(context, call);
  const removals = Object.keys(before as JsonObject).map((name) => [name, null]);
  const changes = { ...Object.fromEntries(removals), ...call.body.metadata };
  const key = toKey(call);
  return toConversation(key, await changeLabels(context.database.db, key, changes));
}

/** Deletes a conversation and all copies of its content, except memories and evaluation cases. */
export async function deleteConversation(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  if (!(await removeSession(context, { key: toKey(call), invocationId: '' }, { copiesToo: false })))
    throw call.notFound();
  return { id: call.path.conversationId, object: 'conversation.deleted', deleted: true };
}

async function findEvents({ histories, database }: OpenAiContext, call: OneCall) {
  const key = toKey(call);
  const history = await histories.find(database.db, key);
  if (!history) throw call.notFound();
  return { key, events: withoutRewound(history.events) };
}

export async function listItems(context: OpenAiContext, call: OneCall<unknown, Page>): Promise<JsonObject> {
  const { key, events } = await findEvents(context, call);
  return toPage(events.flatMap(createItemReader(key.appName)), call.query);
}

/** Appends messages, and calls of client tools with their answers. @returns the appended items */
export async function addItems(
  context: OpenAiContext,
  call: OneCall<z.input<typeof itemsSchema>>,
): Promise<JsonObject> {
  const key = toKey(call);
  if (!(await findLabels(context.database.db, key))) throw call.notFound();
  const utterances = toTimeline(call.body.items, 'items');
  // Only those calls of the stored history are read that this request answers.
  const ownCallIds = new Set(utterances.flatMap(getFunctionCalls).map(({ id }) => id));
  const answeredIds = utterances
    .flatMap(getFunctionResponses)
    .flatMap(({ id }) => (id && !ownCallIds.has(id) ? id : []));
  const storedCalls = await listCallsById(context.database.db, key, answeredIds);
  const events = toOwnEvents(context, key, utterances, call.principal, storedCalls);
  await appendEvents(context.database.db, key, events);
  context.notifications.publish(sessionTopic(key));
  const items = events.flatMap(createItemReader(key.appName));
  return toPage(items, { limit: items.length, order: 'asc' });
}
