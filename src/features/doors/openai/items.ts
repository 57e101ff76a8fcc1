import type { ResponseInputContent, ResponseItem } from 'openai/resources/responses/responses';
import { CONFIRMATION_CALL } from '../../../core/names.ts';
import { readDataUrl } from '../../../core/base64.ts';
import { type FunctionCall, getFunctionCalls, getParts, type JsonObject, type Part } from '../../../core/content.ts';
import type { Event, NewEvent } from '../../../core/event.ts';
import { parseArguments } from '../../../core/parse-json.ts';
import type { SessionKey } from '../../../core/session.ts';
import { checkEventSize } from '../../../conversation/sessions/session-context.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import { eventDemands } from '../../../platform/http/operation/demands.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { isProvisional, TEXT, toAnswerText, toResponse } from '../open-calls.ts';
import { joinTexts } from '../text-cutter.ts';
import { RequestError } from './errors.ts';
import type { InputItem, Page } from './schemas.ts';

/** Consecutive messages of the same speaker. */
export interface Utterance {
  /** The speaker. `agent`: according to the client, the agent has given these answers before. */
  by: 'user' | 'agent';
  parts: Part[];
}

/** Types of input items that are ignored, because they only repeat what this service has stored. */
const IGNORED_ITEMS = new Set(['reasoning', 'item_reference', 'mcp_call', 'mcp_list_tools', 'mcp_approval_request']);
/** Name of the property with the answered call's id, by the type of the item. */
const ANSWERS = new Map<string, 'call_id' | 'tool_call_id' | 'approval_request_id'>([
  ['function_call_output', 'call_id'],
  ['tool', 'tool_call_id'],
  ['mcp_approval_response', 'approval_request_id'],
]);

/** A conversation from input of the Responses or Chat Completions API. @throws {RequestError} for unsupported items */
export function toTimeline(input: string | InputItem[], param: string): Utterance[] {
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : input;
  const timeline: Utterance[] = [];
  for (const [index, item] of items.entries()) {
    const { by, parts } = readItem(item, `${param}[${index}]`);
    const last = timeline.at(-1);
    if (last?.by === by) last.parts.push(...parts);
    else if (parts.length > 0) timeline.push({ by, parts });
  }
  return timeline;
}

/** Adds the tool's name to each answer. @throws {RequestError} if an answer belongs to none of the client's calls */
export function nameAnswers(parts: Part[], calls: readonly FunctionCall[]): Part[] {
  return parts.map((part) => {
    const { functionResponse } = part;
    if (!functionResponse) return part;
    const call = calls.find(({ id }) => id === functionResponse.id);
    if (!call) throw new RequestError(`No call ${functionResponse.id} waits for an answer.`, { param: 'input' });
    return { functionResponse: { ...functionResponse, name: call.name } };
  });
}

/** Marks a call in a client's history as the call of a client tool, because the client answers it. */
const toOwnCall = (part: Part): Part =>
  part.functionCall ? { ...part, partMetadata: { ...part.partMetadata, clientTool: true } } : part;

/** Converts the history that a client sends to events that its principal may store. @throws {ForbiddenError} */
export function toOwnEvents(
  { agents, newId, limits }: InvocationContext,
  { appName }: SessionKey,
  utterances: Utterance[],
  principal: Principal | undefined,
  storedCalls: readonly FunctionCall[] = [],
): NewEvent[] {
  const calls = [...storedCalls, ...utterances.flatMap(getFunctionCalls)];
  const events = utterances.map((each) => {
    const isUser = each.by === 'user';
    const parts = isUser ? nameAnswers(each.parts, calls) : each.parts.map(toOwnCall);
    return {
      id: newId(),
      invocationId: `p-${newId()}`,
      author: isUser ? 'user' : (agents.get(appName)?.name ?? appName),
      content: { role: isUser ? 'user' : 'model', parts },
      ...(!isUser && { longRunningToolIds: getFunctionCalls(each).flatMap(({ id }) => id ?? []) }),
    };
  });
  if (principal) for (const demand of eventDemands(events)) requireScope(principal, demand);
  for (const event of events) checkEventSize(event, limits.eventBytes);
  return events;
}

function readItem(item: InputItem, place: string): Utterance {
  const { role, content, output, approve, reason } = item;
  const type = item.type ?? (role === 'tool' ? role : role == null ? '(none)' : 'message');
  if (type === 'message') return readMessage(item, place);
  if (type === 'function_call') return { by: 'agent', parts: [toCall(item.call_id, item, place)] };
  if (IGNORED_ITEMS.has(type)) return { by: 'user', parts: [] };
  const member = ANSWERS.get(type);
  if (!member) throw new RequestError(`An item of type ${type} is not taken here.`, { param: `${place}.type` });
  const id = item[member];
  if (!id) throw new RequestError('An answer names what it answers.', { param: `${place}.${member}` });
  const isApproval = member === 'approval_request_id';
  if (isApproval && approve == null) throw new RequestError('An approval decides.', { param: `${place}.approve` });
  const decision = { confirmed: approve, ...(reason != null && { reason }) };
  const response = isApproval ? decision : toResponse(toAnswerText(type === 'tool' ? content : output));
  return { by: 'user', parts: [{ functionResponse: { id, name: '', response } }] };
}

function readMessage({ role, content, tool_calls: calls }: InputItem, place: string): Utterance {
  const contentParts = typeof content === 'string' ? content && [{ type: 'text', text: content }] : content;
  const parts = (contentParts || []).map((part, index) => toPart(part, `${place}.content[${index}]`));
  const callParts = (calls ?? []).map((call) => toCall(call.id, call.function, place));
  if (role === 'user') return { by: 'user', parts };
  if (role === 'assistant') return { by: 'agent', parts: [...parts, ...callParts] };
  if (role !== 'system' && role !== 'developer')
    throw new RequestError(`There is no role ${role}.`, { param: `${place}.role` });
  return { by: 'user', parts: [toSystemPart(parts.map(({ text }) => text ?? '').join('\n'))] };
}

function toCall(id: InputItem['call_id'], call: Pick<InputItem, 'name' | 'arguments'>, place: string): Part {
  const args = parseArguments(call.arguments ?? '');
  if (!args) throw new RequestError('The arguments of the call are no JSON object.', { param: `${place}.arguments` });
  return { functionCall: { id: id ?? '', name: call.name ?? '', args } };
}

/** The Responses API and the Chat Completions API name a part's properties differently. */
function toPart(part: JsonObject, param: string): Part {
  const { type, text, image_url: image } = part;
  if (TEXT.test(String(type)) && typeof text === 'string') return { text };
  if (type === 'input_image' || type === 'image_url') {
    const url = typeof image === 'object' ? (image as JsonObject | null)?.['url'] : image;
    return toFile(url, { mimeType: 'image/*' }, `${param}.image_url`);
  }
  if (type !== 'input_file' && type !== 'file')
    throw new RequestError(`A part of type ${String(type)} is not taken here.`, { param: `${param}.type` });
  const { file_data: data, file_url: url, filename } = (part['file'] ?? part) as JsonObject;
  const nameMember = typeof filename === 'string' ? { displayName: filename } : {};
  if (typeof data !== 'string') return toFile(url, nameMember, `${param}.file_url`);
  return toFile(data.startsWith('data:') ? data : `data:;base64,${data}`, nameMember, `${param}.file_data`);
}

function toFile(url: unknown, members: { mimeType?: string; displayName?: string }, param: string): Part {
  if (typeof url !== 'string') throw new RequestError('There is no files API: send data or an address.', { param });
  if (!url.startsWith('data:')) return { fileData: { fileUri: url, ...members } };
  const dataUrl = readDataUrl(url);
  if (!dataUrl) throw new RequestError('The data is no base64.', { param });
  return { inlineData: { data: dataUrl.data, ...members, mimeType: dataUrl.mimeType } };
}

export type Item = ResponseItem & { id: string };

/** Maximum number of JSON characters on a page of items. The first item of a page may exceed the maximum. */
const MAX_CHARACTERS = 4_194_304;
/** Key in a part's `partMetadata` under which the text of a system message is stored. */
const NOTE = 'openAiSystem';

/** Presents a system message to the model as the application's word, not as the agent's instruction. */
const toSystemPart = (text: string): Part => ({
  text: `The application says:\n${text}`,
  partMetadata: { [NOTE]: text },
});

/** @returns '' for a part that is no system message */
export const toSystemText = ({ partMetadata }: Part): string => {
  const text = partMetadata?.[NOTE];
  return typeof text === 'string' ? text : '';
};

/** Converts an event to messages, without requests for confirmation, and without calls that no client answers. */
export function toUtterance({ author, content, longRunningToolIds: externalIds }: Event): Utterance {
  const isShown = ({ functionCall: call }: Part) =>
    !call || (call.name !== CONFIRMATION_CALL && externalIds?.includes(call.id ?? '') === true);
  const parts = getParts(content);
  return author === 'user' ? { by: 'user', parts } : { by: 'agent', parts: parts.filter(isShown) };
}

/** Delimiters of reasoning that a front end leaves at the start of an answer's text. */
const THOUGHTS = [
  ['<think>', '</think>'],
  ['<details type="reasoning"', '</details>'],
] as const;

/** Ignores what front ends change in a conversation: whitespace, reasoning, parts, system messages (with the time). */
export function toComparableText(timeline: readonly Utterance[]): string {
  const words: [kind: string, word: string][] = [];
  for (const { by, parts } of timeline)
    for (const part of parts) {
      const [kind, word] = toWord(by, part) ?? [];
      const last = words.at(-1);
      if (kind === undefined || word === undefined) continue;
      if (kind === last?.[0] && (kind === 'user' || kind === 'agent')) last[1] += word;
      else words.push([kind, word]);
    }
  return JSON.stringify(words.map(([kind, word]) => [kind, kind === 'agent' ? withoutThoughts(word) : word]));
}

function toWord(by: Utterance['by'], part: Part): [kind: string, word: string] | undefined {
  const { text, thought, functionCall, functionResponse, inlineData, fileData } = part;
  if (text) return thought || toSystemText(part) !== '' ? undefined : [by, text.replaceAll(/\s+/g, '')];
  if (functionResponse) return by === 'user' ? ['answer', functionResponse.id ?? ''] : undefined;
  if (functionCall) return ['call', functionCall.id ?? ''];
  const file = inlineData?.data ?? fileData?.fileUri;
  return by === 'user' && file ? ['file', file] : undefined;
}

function withoutThoughts(word: string): string {
  for (const [start, end] of THOUGHTS) {
    const place = word.startsWith(start.replaceAll(' ', '')) ? word.indexOf(end) : -1;
    if (place >= 0) return word.slice(place + end.length);
  }
  return word;
}

/** Converts events to items; remembers calls, because a call that this service answers is one item with its answer. */
export function createItemReader(serverLabel: string): (event: Event) => Item[] {
  const calls = new Map<string, FunctionCall>();
  return (event) => (event.author === 'user' ? toUserItems(event) : toAgentItems(event, calls, serverLabel));
}

function toUserItems({ id: eventId, content }: Event): Item[] {
  const toMessage = (id: string, role: 'user' | 'system', parts: ResponseInputContent[]): Item[] =>
    parts.length > 0 ? [{ id: `msg_${id}`, type: 'message', status: 'completed', role, content: parts }] : [];
  const others = getParts(content).flatMap(({ functionResponse, partMetadata }, index) => {
    const system = partMetadata?.[NOTE];
    if (functionResponse) return toAnswerItem(`${eventId}_${index}`, functionResponse);
    if (typeof system !== 'string') return [];
    return toMessage(`${eventId}_${index}`, 'system', [{ type: 'input_text', text: system }]);
  });
  return [...others, ...toMessage(eventId ?? '', 'user', getParts(content).flatMap(toInputContent))];
}

function toInputContent({ text, inlineData, fileData, partMetadata }: Part): ResponseInputContent[] {
  const file = inlineData ?? fileData;
  if (typeof text === 'string') return partMetadata?.[NOTE] === undefined ? [{ type: 'input_text', text }] : [];
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
  const { id: eventId, content, longRunningToolIds: externalIds } = event;
  const items = joinTexts(content).map(({ isThought, text }, part) =>
    toTextItem(`${eventId}_${part}`, isThought, text),
  );
  for (const [index, { functionCall: call, functionResponse, inlineData }] of getParts(content).entries()) {
    if (call?.id && externalIds?.includes(call.id)) items.push(toCallItem(call.id, call, serverLabel));
    else if (call?.id) calls.set(call.id, call);
    if (inlineData?.data && inlineData.mimeType?.startsWith('image/')) {
      const image = { type: 'image_generation_call', status: 'completed', result: inlineData.data } as const;
      items.push({ id: `ig_${eventId}_${index}`, ...image });
    }
    const { id, response } = functionResponse ?? {};
    const answeredCall = id && !isProvisional(event, id) ? calls.get(id) : undefined;
    if (answeredCall) items.push(toResultItem(`mcp_${id}`, answeredCall, response ?? {}, serverLabel));
  }
  return items;
}

export function toTextItem(id: string, isThought: boolean, text: string): Item {
  if (isThought) return { id: `rs_${id}`, type: 'reasoning', summary: [{ type: 'summary_text', text }] };
  const content = [{ type: 'output_text' as const, text, annotations: [], logprobs: [] }];
  return { id: `msg_${id}`, type: 'message', status: 'completed', role: 'assistant', content };
}

const toCallMembers = ({ name, args }: FunctionCall) => ({ name: name ?? '', arguments: JSON.stringify(args ?? {}) });

function toCallItem(id: string, call: FunctionCall, server_label: string): Item {
  if (call.name !== CONFIRMATION_CALL)
    return { id: `fc_${id}`, type: 'function_call', call_id: id, ...toCallMembers(call), status: 'completed' };
  const confirmedCall = (call.args?.['originalFunctionCall'] ?? {}) as FunctionCall;
  return { id, type: 'mcp_approval_request', server_label, ...toCallMembers(confirmedCall) };
}

function toResultItem(id: string, call: FunctionCall, response: JsonObject, server_label: string): Item {
  const item = { id, type: 'mcp_call', server_label, ...toCallMembers(call), approval_request_id: null } as const;
  const { error } = response;
  if (error === undefined) return { ...item, status: 'completed', output: JSON.stringify(response), error: null };
  const content = [{ type: 'text', text: typeof error === 'string' ? error : JSON.stringify(error) }];
  return { ...item, status: 'failed', output: null, error: { type: 'mcp_tool_execution_error', content } };
}

/** @param items - oldest first. @throws {RequestError} if no item has the id `after` */
export function toPage(items: Item[], { after, limit, order }: Page): JsonObject {
  const all = order === 'asc' ? items : items.toReversed();
  const from = after === undefined ? 0 : all.findIndex(({ id }) => id === after) + 1;
  if (after !== undefined && from === 0) throw new RequestError(`There is no item ${after}.`, { param: 'after' });
  let characters = 0;
  const fits = (item: Item) => (characters += JSON.stringify(item).length) <= MAX_CHARACTERS;
  const data = all.slice(from, from + limit).filter((item, index) => fits(item) || index === 0);
  const first_id = data.at(0)?.id ?? null;
  const last_id = data.at(-1)?.id ?? null;
  return { object: 'list', data, first_id, last_id, has_more: all.length > from + data.length };
}
