import { getFunctionCalls, type JsonObject } from '../../../core/content.ts';
import { withoutRewound } from '../../../core/event.ts';
import { sessionTopic } from '../../../core/names.ts';
import type { SessionKey } from '../../../core/session.ts';
import { appendEvents } from '../../../conversation/sessions/append-store.ts';
import { listSessionEnds } from '../../../conversation/sessions/event-store.ts';
import { changeLabels, findLabels } from '../../../conversation/sessions/label-store.ts';
import { insertSession } from '../../../conversation/sessions/session-store.ts';
import type { Call } from '../../../platform/http/operation/operation.ts';
import { parseConversationId, toConversationId } from './ids.ts';
import { toOwnEvents, toTimeline } from './input.ts';
import { itemReader, type Page, toPage } from './items.ts';
import type { ChangedConversation, InputItem, NewConversation } from './schemas.ts';
import { type OpenAiContext, removeSession } from './start.ts';

/** The request of an operation about one conversation. */
type OneCall<Body = unknown, Query = unknown> = Call<{ conversationId: string }, Query, unknown, Body>;
type NewCall = Call<unknown, { app_name: string }, unknown, NewConversation | undefined> & { userId: string };
/** Most items of an addition: a message may have calls beside it. */
const MAX_ADDED = 100;

/** Makes a conversation: a session, whose labels are its notes. */
export async function createConversation(context: OpenAiContext, call: NewCall): Promise<JsonObject> {
  const { query, userId, principal, body: { items, metadata } = {} } = call;
  const key = { appName: query.app_name, userId, sessionId: context.newId() };
  const events = toOwnEvents(context, key, toTimeline(items ?? [], 'items'), principal);
  await context.database.transaction(async (tx) => {
    await insertSession(tx, key, {}, events);
    if (metadata) await changeLabels(tx, key, metadata);
  });
  return (await readConversation(context, key)) ?? {};
}

async function readConversation({ database }: OpenAiContext, key: SessionKey): Promise<JsonObject | undefined> {
  const [labels, [end]] = await Promise.all([findLabels(database.db, key), listSessionEnds(database.db, [key])]);
  if (!labels || !end) return undefined;
  const [created_at, metadata] = [Math.floor(Number(end.createTime)), JSON.parse(labels.text) as unknown];
  return { id: toConversationId(key), object: 'conversation', created_at, metadata };
}

/** Returns the session of a path. @throws {NotFoundError} for the id of none */
function toKey({ path, notFound }: OneCall): SessionKey {
  const key = parseConversationId(path.conversationId);
  if (!key) throw notFound();
  return key;
}

/** Finds the conversation that a path names. @throws {NotFoundError} */
export async function findConversation(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const found = await readConversation(context, toKey(call));
  if (!found) throw call.notFound();
  return found;
}

/** Replaces the notes of a conversation. */
export async function changeConversation(
  context: OpenAiContext,
  call: OneCall<ChangedConversation>,
): Promise<JsonObject> {
  const { metadata: before, ...found } = await findConversation(context, call);
  const removed = Object.keys(before as JsonObject).map((name) => [name, null]);
  const changes = { ...Object.fromEntries(removed), ...call.body.metadata };
  const { text } = await changeLabels(context.database.db, toKey(call), changes);
  return { ...found, metadata: JSON.parse(text) as unknown };
}

/** Deletes a conversation, with all that quotes it but memories and evaluation cases. */
export async function deleteConversation(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const { id } = await findConversation(context, call);
  await removeSession(context, { key: toKey(call) }, { copiesToo: false });
  return { id, object: 'conversation.deleted', deleted: true };
}

async function findEvents({ histories, database }: OpenAiContext, call: OneCall) {
  const key = toKey(call);
  const history = await histories.find(database.db, key);
  if (!history) throw call.notFound();
  return { key, events: withoutRewound(history.events) };
}

/** Lists what was said in a conversation, as items. */
export async function listItems(context: OpenAiContext, call: OneCall<unknown, Page>): Promise<JsonObject> {
  const { key, events } = await findEvents(context, call);
  return toPage(events.flatMap(itemReader(key.appName)), call.query);
}

/** Appends messages to a conversation, and calls of the client's own tools with their answers. @returns them */
export async function addItems(context: OpenAiContext, call: OneCall<{ items: InputItem[] }>): Promise<JsonObject> {
  const { key, events } = await findEvents(context, call);
  const known = events.flatMap(({ content }) => getFunctionCalls(content));
  const added = toOwnEvents(context, key, toTimeline(call.body.items, 'items'), call.principal, known);
  await appendEvents(context.database.db, key, added);
  context.notifications.publish(sessionTopic(key));
  return toPage(added.flatMap(itemReader(key.appName)), { limit: MAX_ADDED, order: 'asc' });
}
