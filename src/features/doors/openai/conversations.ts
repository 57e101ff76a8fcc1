import { getFunctionCalls, type JsonObject } from '../../../core/content.ts';
import { type Event, withoutRewound } from '../../../core/event.ts';
import { sessionTopic } from '../../../core/names.ts';
import type { SessionKey } from '../../../core/session.ts';
import { appendEvents } from '../../../conversation/sessions/append-store.ts';
import { listSessionEnds } from '../../../conversation/sessions/event-store.ts';
import { changeLabels, findLabels } from '../../../conversation/sessions/label-store.ts';
import { insertSession } from '../../../conversation/sessions/session-store.ts';
import type { Call } from '../../../platform/http/operation/operation.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { readWhole } from '../turn.ts';
import { parseConversationId, toConversationId } from './ids.ts';
import { toInputItems, toTimeline } from './input.ts';
import { type Page, toPage } from './page.ts';
import type { InputItem } from './schemas.ts';
import { type OpenAiContext, removeSession, toOwnEvents } from './start.ts';
import { ResponseWriter } from './writer.ts';

/** The request of an operation about one conversation. */
type OneCall = Pick<Call<{ conversationId: string }, never, never, never>, 'path' | 'notFound'>;
type Metadata = Record<string, string> | null | undefined;
/** Most items of an addition: a message may have calls beside it. */
const MAX_ADDED = 100;

/** Makes a conversation: a session, whose labels are its notes. */
export async function createConversation(
  context: OpenAiContext,
  key: SessionKey,
  { items, metadata }: { items?: InputItem[] | null | undefined; metadata?: Metadata },
  principal: Principal,
): Promise<JsonObject> {
  const events = toOwnEvents(context, key, toTimeline(items ?? [], 'items'), principal);
  await context.database.transaction(async (tx) => {
    await insertSession(tx, key, {}, events);
    if (metadata) await changeLabels(tx, key, metadata);
  });
  return (await readConversation(context, key)) ?? {};
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

async function readConversation({ database }: OpenAiContext, key: SessionKey): Promise<JsonObject | undefined> {
  const [labels, [end]] = await Promise.all([findLabels(database.db, key), listSessionEnds(database.db, [key])]);
  if (!labels || !end) return undefined;
  const [created_at, metadata] = [Math.floor(Number(end.createTime)), JSON.parse(labels.text) as unknown];
  return { id: toConversationId(key), object: 'conversation', created_at, metadata };
}

/** Replaces the notes of a conversation. */
export async function changeConversation(
  context: OpenAiContext,
  call: OneCall,
  metadata: Metadata,
): Promise<JsonObject> {
  const { metadata: before, ...found } = await findConversation(context, call);
  const removed = Object.keys(before as JsonObject).map((name) => [name, null]);
  const changes = { ...Object.fromEntries(removed), ...metadata };
  const { text } = await changeLabels(context.database.db, toKey(call), changes);
  return { ...found, metadata: JSON.parse(text) as unknown };
}

/** Deletes a conversation, with all that quotes it but memories and evaluation cases. */
export async function deleteConversation(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const { id } = await findConversation(context, call);
  await removeSession(context, toKey(call), { copiesToo: false });
  return { id, object: 'conversation.deleted', deleted: true };
}

/** Lists what was said in a conversation, as items. */
export async function listItems(
  context: OpenAiContext,
  { query, ...call }: OneCall & { query: Page },
): Promise<JsonObject> {
  const { key, events } = await findEvents(context, call);
  return toPage(toItems(key, events), query);
}

async function findEvents({ histories, database }: OpenAiContext, call: OneCall) {
  const key = toKey(call);
  const history = await histories.find(database.db, key);
  if (!history) throw call.notFound();
  return { key, events: withoutRewound(history.events) };
}

function toItems(key: SessionKey, events: Event[]): JsonObject[] {
  const writer = new ResponseWriter({ key, invocationId: '' }, true);
  return events.flatMap((event) => {
    const { length } = writer.output;
    for (const step of readWhole(event)) for (const _ of writer.take(step));
    return [...(event.author === 'user' ? toInputItems(event) : []), ...writer.output.slice(length)];
  });
}

/** Appends messages to a conversation, and calls of the client's own tools with their answers. @returns them */
export async function addItems(
  context: OpenAiContext,
  call: OneCall & { principal: Principal },
  sent: InputItem[],
): Promise<JsonObject> {
  const { key, events } = await findEvents(context, call);
  const known = events.flatMap(({ content }) => getFunctionCalls(content));
  const added = toOwnEvents(context, key, toTimeline(sent, 'items'), call.principal, known);
  await appendEvents(context.database.db, key, added);
  context.notifications.publish(sessionTopic(key));
  return toPage(toItems(key, added), { limit: MAX_ADDED, order: 'asc' });
}
