import { base64Error } from '../../../core/base64.ts';
import { type FunctionCall, getFunctionCalls, getParts, type JsonObject, type Part } from '../../../core/content.ts';
import type { Event, NewEvent } from '../../../core/event.ts';
import { parseArguments } from '../../../core/parse-json.ts';
import { CONFIRMATION_CALL } from '../../../agent/loop/confirmation.ts';
import { toResponse } from '../open-calls.ts';
import { RequestError } from './errors.ts';
import type { InputItem } from './schemas.ts';

/** The words of one side in a request, in order. */
export interface Said {
  /** `agent`: what the client says that the agent has answered before. */
  by: 'user' | 'agent';
  parts: Part[];
}

/** Member of a part's notes: the item that it came in. */
const NOTE = 'openAi';

/** Items of this protocol that only repeat what the service knows by itself. */
const KNOWN_ITEMS = new Set(['reasoning', 'item_reference', 'mcp_call', 'mcp_list_tools', 'mcp_approval_request']);

/** Converts the input of a response, or the messages of a chat. @throws {RequestError} for what has no meaning here */
export function toTimeline(input: string | InputItem[], param: string): Said[] {
  const items = typeof input === 'string' ? [{ role: 'user', content: [{ type: 'text', text: input }] }] : input;
  const timeline: Said[] = [];
  for (const { by, parts } of items.flatMap((item, index) => toSaid(item, `${param}[${index}]`))) {
    const last = timeline.at(-1);
    if (last?.by === by) last.parts.push(...parts);
    else if (parts.length > 0) timeline.push({ by, parts });
  }
  return timeline;
}

/** Names the answers to calls that the client brought itself. @throws {RequestError} for other answers */
export function nameAnswers(parts: Part[], calls: readonly FunctionCall[]): Part[] {
  return parts.map((part) => {
    const { functionResponse } = part;
    if (!functionResponse) return part;
    const call = calls.find(({ id }) => id === functionResponse.id);
    if (!call) throw new RequestError(`No call ${functionResponse.id} waits for an answer.`, { param: 'input' });
    return { functionResponse: { ...functionResponse, name: call.name } };
  });
}

/** Returns what was said before as events. */
export function toEvents(
  before: Said[],
  agentName: string,
  newId: () => string,
  known: readonly FunctionCall[] = [],
): NewEvent[] {
  const calls = [...known, ...before.flatMap(({ parts }) => getFunctionCalls({ parts }))];
  return before.map(({ by, parts }) => ({
    id: newId(),
    invocationId: `p-${newId()}`,
    author: by === 'user' ? 'user' : agentName,
    content: { role: by === 'user' ? 'user' : 'model', parts: nameAnswers(parts, calls) },
    // Calls that a client brings are its own.
    ...(by === 'agent' ? { longRunningToolIds: getFunctionCalls({ parts }).flatMap(({ id }) => id ?? []) } : {}),
  }));
}

function toSaid(item: InputItem, place: string): Said[] {
  const { role, call_id: id, tool_call_id, output, content, approval_request_id, approve, reason } = item;
  switch (item.type ?? (role === 'tool' ? role : role == null ? undefined : 'message')) {
    case 'message':
      return toMessage(item, place);
    case 'function_call':
      return [{ by: 'agent', parts: [toCall(id, item, place)] }];
    case 'function_call_output':
      return toAnswer(id, toResponse(toText(output)), `${place}.call_id`);
    case 'tool':
      return toAnswer(tool_call_id, toResponse(toText(content)), `${place}.tool_call_id`);
    case 'mcp_approval_response':
      if (approve == null) throw new RequestError('An approval decides.', { param: `${place}.approve` });
      return toAnswer(
        approval_request_id,
        { confirmed: approve, ...(reason == null ? {} : { reason }) },
        `${place}.approval_request_id`,
      );
    default:
      if (KNOWN_ITEMS.has(item.type ?? '')) return [];
      throw new RequestError(`An item of type ${item.type ?? '(none)'} is not taken here.`, { param: `${place}.type` });
  }
}

const toText = (content: InputItem['output']) =>
  typeof content === 'string' ? content : JSON.stringify(content ?? null);

function toAnswer(id: string | null | undefined, response: JsonObject, param: string): Said[] {
  if (!id) throw new RequestError('An answer names what it answers.', { param });
  return [{ by: 'user', parts: [{ functionResponse: { id, name: '', response } }] }];
}

function toMessage({ role, content, tool_calls: calls }: InputItem, place: string): Said[] {
  const sent =
    typeof content === 'string' ? (content === '' ? [] : [{ type: 'text', text: content }]) : (content ?? []);
  const parts = sent.map((part, index) => toPart(part, `${place}.content[${index}]`));
  const called = (calls ?? []).map(({ id, function: call }) => toCall(id, call, place));
  if (role === 'user') return [{ by: 'user', parts }];
  if (role === 'assistant') return [{ by: 'agent', parts: [...parts, ...called] }];
  if (role !== 'system' && role !== 'developer')
    throw new RequestError(`There is no role ${role}.`, { param: `${place}.role` });
  // Told the model as the application's word: it is no instruction of the agent's.
  const text = parts.map((part) => part.text ?? '').join('\n');
  const note = { partMetadata: { [NOTE]: { role: 'system', text } } };
  return [{ by: 'user', parts: [{ text: `The application says:\n${text}`, ...note }] }];
}

function toCall(id: InputItem['call_id'], call: Pick<InputItem, 'name' | 'arguments'>, place: string): Part {
  const args = parseArguments(call.arguments ?? '');
  if (!args) throw new RequestError('The arguments of the call are no JSON object.', { param: `${place}.arguments` });
  return { functionCall: { id: id ?? '', name: call.name ?? '', args } };
}

/** Converts a part, by the names that both APIs have for its members. */
function toPart(part: JsonObject, param: string): Part {
  const { type, text, image_url: image } = part;
  if ((type === 'input_text' || type === 'output_text' || type === 'text') && typeof text === 'string') return { text };
  if (type === 'input_image' || type === 'image_url') {
    const url = typeof image === 'object' ? (image as JsonObject | null)?.['url'] : image;
    return toFile(url, { mimeType: 'image/*' }, `${param}.image_url`);
  }
  if (type !== 'input_file' && type !== 'file')
    throw new RequestError(`A part of type ${String(type)} is not taken here.`, { param: `${param}.type` });
  const { file_data: data, file_url: url, filename } = (part['file'] ?? part) as JsonObject;
  const named = typeof filename === 'string' ? { displayName: filename } : {};
  if (typeof data !== 'string') return toFile(url, named, `${param}.file_url`);
  return toFile(data.startsWith('data:') ? data : `data:;base64,${data}`, named, `${param}.file_data`);
}

function toFile(url: unknown, named: { mimeType?: string; displayName?: string }, param: string): Part {
  if (typeof url !== 'string') throw new RequestError('There is no files API: send data or an address.', { param });
  if (!url.startsWith('data:')) return { fileData: { fileUri: url, ...named } };
  const [, mimeType = 'application/octet-stream', data = ''] = /^data:([^;,]{1,256})?;base64,(.*)$/s.exec(url) ?? [];
  if (data === '' || base64Error(data) !== undefined) throw new RequestError('The data is no base64.', { param });
  return { inlineData: { data, ...named, mimeType } };
}

/** Returns what the user says in an event as items of the input. */
export function toInputItems({ content: said, ...event }: Event): JsonObject[] {
  const id = event.id ?? '';
  const items: JsonObject[] = [];
  const content: JsonObject[] = [];
  for (const [index, { text, inlineData, fileData, functionResponse, partMetadata }] of getParts(said).entries()) {
    const note = partMetadata?.[NOTE] as { role: string; text: string } | undefined;
    const itemId = `${id}_${index}`;
    if (functionResponse) items.push(toAnswerItem(functionResponse, itemId));
    else if (note) items.push(toMessageItem(itemId, note.role, [{ type: 'input_text', text: note.text }]));
    else if (typeof text === 'string') content.push({ type: 'input_text', text });
    else if (inlineData)
      content.push(toFileItem({ file_data: `data:${inlineData.mimeType};base64,${inlineData.data}` }, inlineData));
    else if (fileData) content.push(toFileItem({ file_url: fileData.fileUri ?? '' }, fileData));
  }
  return content.length > 0 ? [...items, toMessageItem(id, 'user', content)] : items;
}

const toMessageItem = (id: string, role: string, content: JsonObject[]): JsonObject => ({
  id: `msg_${id}`,
  type: 'message',
  status: 'completed',
  role,
  content,
});

function toAnswerItem({ id, name, response }: NonNullable<Part['functionResponse']>, itemId: string): JsonObject {
  if (name === CONFIRMATION_CALL) {
    const decided = { approval_request_id: id ?? '', approve: response?.['confirmed'] === true };
    return { id: `mcpr_${itemId}`, type: 'mcp_approval_response', ...decided };
  }
  const value = response?.['result'];
  const output = typeof value === 'string' ? value : JSON.stringify(response ?? {});
  return { id: `fco_${itemId}`, type: 'function_call_output', call_id: id ?? '', output, status: 'completed' };
}

function toFileItem(
  source: { file_data: string } | { file_url: string },
  { mimeType, displayName }: NonNullable<Part['inlineData'] | Part['fileData']>,
): JsonObject {
  const [url] = Object.values(source);
  if (mimeType?.startsWith('image/')) return { type: 'input_image', image_url: url, detail: 'auto' };
  return { type: 'input_file', ...source, ...(displayName ? { filename: displayName } : {}) };
}
