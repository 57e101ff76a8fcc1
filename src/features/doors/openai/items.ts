import type { ResponseInputContent, ResponseItem } from 'openai/resources/responses/responses';
import { CONFIRMATION_CALL } from '../../../agent/loop/confirmation.ts';
import { type FunctionCall, getParts, type JsonObject, type Part } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { isProvisional } from '../open-calls.ts';
import { joinTexts } from '../text-cutter.ts';
import { RequestError } from './errors.ts';

/** An item of a conversation, as this protocol shows it. */
export type Item = ResponseItem & { id: string };

/** Characters of JSON from which on a page ends. */
const MAX_CHARACTERS = 4_194_304;
/** Member of a part's notes: the message of the system that it came in. */
const NOTE = 'openAiSystem';

/** Returns a message of the system as its model is told it: as the application's word, no instruction of the agent. */
export const toSystemPart = (text: string): Part => ({
  text: `The application says:\n${text}`,
  partMetadata: { [NOTE]: text },
});

/** Returns what converts events, in their order, to items: a call of the service is one once it has its answer. */
export function itemReader(serverLabel: string): (event: Event) => Item[] {
  const calls = new Map<string, FunctionCall>();
  return (event) => (event.author === 'user' ? toUserItems(event) : toAgentItems(event, calls, serverLabel));
}

function toUserItems({ id: eventId, content }: Event): Item[] {
  const items: Item[] = [];
  const said: ResponseInputContent[] = [];
  const toMessage = (id: string, role: 'user' | 'system', parts: ResponseInputContent[]) =>
    items.push({ id: `msg_${id}`, type: 'message', status: 'completed', role, content: parts });
  for (const [index, part] of getParts(content).entries()) {
    const id = `${eventId}_${index}`;
    const system = part.partMetadata?.[NOTE];
    if (part.functionResponse) items.push(toAnswerItem(id, part.functionResponse));
    else if (typeof system === 'string') toMessage(id, 'system', [{ type: 'input_text', text: system }]);
    else said.push(...toInputContent(part));
  }
  if (said.length > 0) toMessage(eventId ?? '', 'user', said);
  return items;
}

function toInputContent({ text, inlineData, fileData }: Part): ResponseInputContent[] {
  const file = inlineData ?? fileData;
  if (typeof text === 'string') return [{ type: 'input_text', text }];
  if (!file) return [];
  const { mimeType, displayName } = file;
  const url = inlineData ? `data:${mimeType};base64,${inlineData.data}` : (fileData?.fileUri ?? '');
  if (mimeType?.startsWith('image/')) return [{ type: 'input_image', image_url: url, detail: 'auto' }];
  const source = inlineData ? { file_data: url } : { file_url: url };
  return [{ type: 'input_file', ...source, ...(displayName ? { filename: displayName } : {}) }];
}

function toAnswerItem(id: string, { id: callId, name, response }: NonNullable<Part['functionResponse']>): Item {
  if (name === CONFIRMATION_CALL) {
    const decision = { approval_request_id: callId ?? '', approve: response?.['confirmed'] === true };
    return { id: `mcpr_${id}`, type: 'mcp_approval_response', ...decision };
  }
  const value = response?.['result'];
  const output = typeof value === 'string' ? value : JSON.stringify(response ?? {});
  return { id: `fco_${id}`, type: 'function_call_output', call_id: callId ?? '', output, status: 'completed' };
}

function toAgentItems(event: Event, calls: Map<string, FunctionCall>, serverLabel: string): Item[] {
  const { id: eventId, content, longRunningToolIds: asked } = event;
  const items = joinTexts(content).map(({ isThought, text }, part) =>
    toTextItem(`${eventId}_${part}`, isThought, text),
  );
  for (const [index, { functionCall: call, functionResponse, inlineData }] of getParts(content).entries()) {
    if (call?.id && asked?.includes(call.id)) items.push(toCallItem(call.id, call, serverLabel));
    else if (call?.id) calls.set(call.id, call);
    if (inlineData?.data && inlineData.mimeType?.startsWith('image/')) {
      const image = { type: 'image_generation_call', status: 'completed', result: inlineData.data } as const;
      items.push({ id: `ig_${eventId}_${index}`, ...image });
    }
    const { id, response } = functionResponse ?? {};
    const called = id && !isProvisional(event, id) ? calls.get(id) : undefined;
    if (called) items.push(toResultItem(`mcp_${id}`, called, response ?? {}, serverLabel));
  }
  return items;
}

/** Returns a text of an agent as an item. */
export function toTextItem(id: string, isThought: boolean, text: string): Item {
  if (isThought) return { id: `rs_${id}`, type: 'reasoning', summary: [{ type: 'summary_text', text }] };
  const content = [{ type: 'output_text' as const, text, annotations: [], logprobs: [] }];
  return { id: `msg_${id}`, type: 'message', status: 'completed', role: 'assistant', content };
}

/** A call that the client or a person answers. */
function toCallItem(id: string, { name, args }: FunctionCall, server_label: string): Item {
  if (name === CONFIRMATION_CALL) {
    const { name: tool, args: sent } = (args?.['originalFunctionCall'] ?? {}) as FunctionCall;
    const called = { name: tool ?? '', arguments: JSON.stringify(sent ?? {}) };
    return { id, type: 'mcp_approval_request', server_label, ...called };
  }
  const call = { call_id: id, name: name ?? '', arguments: JSON.stringify(args ?? {}) };
  return { id: `fc_${id}`, type: 'function_call', ...call, status: 'completed' };
}

/** A call that the service has answered. */
function toResultItem(id: string, { name, args }: FunctionCall, response: JsonObject, server_label: string): Item {
  const call = { server_label, name: name ?? '', arguments: JSON.stringify(args ?? {}), approval_request_id: null };
  const { error } = response;
  if (error === undefined) {
    const output = JSON.stringify(response);
    return { id, type: 'mcp_call', ...call, status: 'completed', output, error: null };
  }
  const content = [{ type: 'text', text: typeof error === 'string' ? error : JSON.stringify(error) }];
  const failure = { type: 'mcp_tool_execution_error', content } as const;
  return { id, type: 'mcp_call', ...call, status: 'failed', output: null, error: failure };
}

/** The start and the direction of a page of items. */
export interface Page {
  after?: string | undefined;
  limit: number;
  order: 'asc' | 'desc';
}

/** Returns a page of items given oldest first. @throws {RequestError} for an `after` that is none of them */
export function toPage(items: Item[], { after, limit, order }: Page): JsonObject {
  const all = order === 'asc' ? items : items.toReversed();
  const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && from === 0) throw new RequestError(`There is no item ${after}.`, { param: 'after' });
  let characters = 0;
  const fits = (item: Item) => (characters += JSON.stringify(item).length) <= MAX_CHARACTERS;
  const data = all.slice(from, from + limit).filter((item, index) => fits(item) || index === 0);
  const [first_id, last_id] = [data.at(0)?.id ?? null, data.at(-1)?.id ?? null];
  return { object: 'list', data, first_id, last_id, has_more: all.length > from + data.length };
}
