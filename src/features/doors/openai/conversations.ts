import { type FunctionCall, getFunctionCalls, type JsonObject } from '../../../core/content.ts';
import { type Event, withoutRewound } from '../../../core/event.ts';
import { sessionTopic } from '../../../core/names.ts';
import type { SessionKey } from '../../../core/session.ts';
import { appendEvents } from '../../../conversation/sessions/append-store.ts';
import { newLabelsSchema } from '../../../conversation/sessions/label.ts';
import { listSessionEnds } from '../../../conversation/sessions/event-store.ts';
import { changeLabels, findLabels } from '../../../conversation/sessions/label-store.ts';
import { checkEventSize } from '../../../conversation/sessions/session-context.ts';
import { deleteSession, insertSession } from '../../../conversation/sessions/session-store.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import { eventDemands } from '../../../platform/http/operation/demands.ts';
import type { Call } from '../../../platform/http/operation/operation.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { readWhole } from '../turn.ts';
import { RequestError } from './errors.ts';
import { parseConversationId, toConversationId } from './ids.ts';
import { toEvents, toInputItems, toTimeline } from './input.ts';
import { type Page, toPage } from './page.ts';
import type { InputItem } from './schemas.ts';
import type { OpenAiContext } from './start.ts';
import { ResponseWriter } from './writer.ts';

/** The request of an operation about one conversation. */
type OneCall = Pick<Call<{ conversationId: string }, never, never, never>, 'path' | 'notFound'>;
/** Most items of an addition: a message may have calls beside it. */
const MAX_ADDED = 100;
type Metadata = Record<string, string> | null | undefined;

/** Makes a conversation: a session, whose labels are its notes. */
export async function createConversation(
  context: OpenAiContext,
  key: SessionKey,
  { items, metadata }: { items?: InputItem[] | null | undefined; metadata?: Metadata },
  principal: Principal,
): Promise<JsonObject> {
  const labels = toLabels(metadata);
  const { database } = context;
  const events = toItemEvents(context, key, items ?? [], principal);
  await database.transaction(async (tx) => {
    await insertSession(tx, key, {}, events);
    if (Object.keys(labels).length > 0) await changeLabels(tx, key, labels);
  });
  return (await readConversation(context, key)) ?? {};
}

/** Finds the conversation that a path names. @throws {NotFoundError} */
export async function findConversation(context: OpenAiContext, { path, notFound }: OneCall): Promise<JsonObject> {
  const key = parseConversationId(path.conversationId);
  const found = key && (await readConversation(context, key));
  if (!found) throw notFound();
  return found;
}

async function readConversation({ database }: OpenAiContext, key: SessionKey): Promise<JsonObject | undefined> {
  const [labels, [end]] = await Promise.all([findLabels(database.db, key), listSessionEnds(database.db, [key])]);
  if (!labels || !end) return undefined;
  const metadata = JSON.parse(labels.text) as JsonObject;
  return {
    id: toConversationId(key),
    object: 'conversation',
    created_at: Math.floor(Number(end.createTime)),
    metadata,
  };
}

/** Replaces the notes of a conversation. */
export async function changeConversation(
  context: OpenAiContext,
  call: OneCall,
  metadata: Metadata,
): Promise<JsonObject> {
  const before = await findConversation(context, call);
  const key = parseConversationId(call.path.conversationId) as SessionKey;
  const removed = Object.keys(before['metadata'] as JsonObject).map((name) => [name, null]);
  await changeLabels(context.database.db, key, { ...Object.fromEntries(removed), ...toLabels(metadata) });
  return (await readConversation(context, key)) ?? {};
}

/** Deletes a conversation, with all that quotes it but memories and evaluation cases. */
export async function deleteConversation(context: OpenAiContext, call: OneCall): Promise<JsonObject> {
  const { id } = await findConversation(context, call);
  const key = parseConversationId(call.path.conversationId) as SessionKey;
  await context.database.transaction(async (tx) => {
    await deleteSession(tx, key);
    await context.forgetSessions(tx, [key], { copiesToo: false });
  });
  return { id, object: 'conversation.deleted', deleted: true };
}

/** Lists what was said in a conversation, as items, oldest first. */
export async function listItems(
  context: OpenAiContext,
  { query, ...call }: OneCall & { query: Page },
): Promise<JsonObject> {
  const { key, events } = await findEvents(context, call);
  return toPage(toItems(key, events), query);
}

/** Finds one item of a conversation. @throws {RequestError} */
export async function findItem(
  context: OpenAiContext,
  call: OneCall & { path: { itemId: string } },
): Promise<JsonObject> {
  const { key, events } = await findEvents(context, call);
  const { itemId } = call.path;
  const found = toItems(key, events).find(({ id }) => id === itemId);
  if (!found) throw new RequestError(`Item not found: ${itemId}`, { status: 404, code: 'not_found' });
  return found;
}

async function findEvents(context: OpenAiContext, call: OneCall): Promise<{ key: SessionKey; events: Event[] }> {
  await findConversation(context, call);
  const key = parseConversationId(call.path.conversationId) as SessionKey;
  const history = await context.histories.find(context.database.db, key);
  return { key, events: withoutRewound([...(history?.events ?? [])]) };
}

function toItems(key: SessionKey, events: Event[]): JsonObject[] {
  const writer = new ResponseWriter({ key, invocationId: '' }, true);
  return events.flatMap((event) => {
    const { length } = writer.output;
    for (const step of readWhole(event)) for (const _ of writer.take(step));
    const said = event.author === 'user' ? toInputItems(event) : [];
    return [...said, ...writer.output.slice(length)];
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
  const added = toItemEvents(context, key, sent, call.principal, known);
  await appendEvents(context.database.db, key, added);
  context.notifications.publish(sessionTopic(key));
  return toPage(toItems(key, added), { limit: MAX_ADDED, order: 'asc' });
}

function toItemEvents(
  { agents, newId, limits }: OpenAiContext,
  { appName }: SessionKey,
  items: InputItem[],
  principal: Principal,
  known: readonly FunctionCall[] = [],
) {
  const events = toEvents(toTimeline(items), agents.get(appName)?.name ?? appName, newId, known);
  for (const demand of eventDemands(events)) requireScope(principal, demand);
  for (const event of events) checkEventSize(event, limits.eventBytes);
  return events;
}

function toLabels(metadata: Metadata): Record<string, string> {
  const { data, error } = newLabelsSchema.safeParse(metadata ?? {});
  if (error) throw new RequestError(`metadata: ${error.issues[0]?.message ?? 'not valid'}`, { param: 'metadata' });
  return data;
}
