import { base64Error } from '../../../core/base64.ts';
import { type FunctionCall, getFunctionCalls, getParts, type JsonObject, type Part } from '../../../core/content.ts';
import type { Event, NewEvent } from '../../../core/event.ts';
import { parseJson } from '../../../core/parse-json.ts';
import { INPUT_LIMITS } from '../../../core/limits.ts';
import { toResponse } from '../open-calls.ts';
import { RequestError } from './errors.ts';
import type { ChatMessage, InputItem } from './schemas.ts';

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

/** Converts the input of a response. @throws {RequestError} for an item that has no meaning here */
export const toTimeline = (input: string | InputItem[]): Said[] =>
  typeof input === 'string'
    ? [{ by: 'user', parts: [{ text: input }] }]
    : joinSides(input.flatMap((item, index) => toSaid(item, `input[${index}]`)));

/** Converts the messages of a chat. @throws {RequestError} */
export const toChatTimeline = (messages: ChatMessage[]): Said[] =>
  joinSides(
    messages.flatMap((message, index): Said[] => {
      const place = `messages[${index}]`;
      const { role, content, tool_call_id: id, tool_calls: calls } = message;
      if (role === 'tool') return [toOutput({ call_id: id, output: content }, place)];
      const said = content == null || content === '' ? [] : toSaid({ role, content }, place);
      const called = (calls ?? []).map((call) => toCall(call.id, call.function, place));
      return called.length > 0 ? [...said, { by: 'agent', parts: called }] : said;
    }),
  );

/** Splits what is said behind the last words of the agent from all before. @throws {RequestError} for nothing new */
export function splitNew(timeline: Said[], param: string): { before: Said[]; parts: Part[] } {
  const last = timeline.at(-1);
  if (last?.by !== 'user')
    throw new RequestError('There is nothing new to answer: the user says the last word.', { param });
  return { before: timeline.slice(0, -1), parts: last.parts };
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

/** Returns what was said before as events of a session that is made for them. */
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

/** Returns what an instruction of the client's own is told the model as: no instruction of the agent's. */
const toContextPart = (text: string): Part => ({
  text: `The application says:\n${text}`,
  partMetadata: { [NOTE]: { role: 'system', text } },
});

function toSaid(item: InputItem, place: string): Said[] {
  const type = item.type ?? (item.role == null ? undefined : 'message');
  if (type === 'message') return [toMessage(item, place)];
  if (type === 'function_call_output') return [toOutput(item, place)];
  if (type === 'mcp_approval_response') return [toApproval(item, place)];
  if (type === 'function_call') {
    const { call_id: id, name, arguments: args } = item as InputItem & JsonObject;
    return [
      {
        by: 'agent',
        parts: [toCall(String(id), { name: String(name), arguments: typeof args === 'string' ? args : '{}' }, place)],
      },
    ];
  }
  if (type !== undefined && KNOWN_ITEMS.has(type)) return [];
  throw new RequestError(`An item of type ${type ?? '(none)'} is not taken here.`, { param: `${place}.type` });
}

function toMessage({ role, content }: InputItem, place: string): Said {
  const parts = typeof content === 'string' ? [{ type: 'input_text', text: content }] : (content ?? []);
  const made = parts.map((part, index) => toPart(part, `${place}.content[${index}]`));
  if (made.length === 0) throw new RequestError('A message says something.', { param: `${place}.content` });
  if (role === 'user') return { by: 'user', parts: made };
  if (role === 'assistant') return { by: 'agent', parts: made };
  if (role !== 'system' && role !== 'developer')
    throw new RequestError(`There is no role ${role}.`, { param: `${place}.role` });
  return { by: 'user', parts: [toContextPart(made.map(({ text }) => text ?? '').join('\n'))] };
}

const toOutput = ({ call_id: id, output }: Pick<InputItem, 'call_id' | 'output'>, place: string): Said => {
  if (!id) throw new RequestError('The output names its call.', { param: `${place}.call_id` });
  const text = typeof output === 'string' ? output : JSON.stringify(output ?? null);
  return { by: 'user', parts: [{ functionResponse: { id, name: '', response: toResponse(text) } }] };
};

const toApproval = ({ approval_request_id: id, approve, ...item }: InputItem, place: string): Said => {
  if (!id || approve == null)
    throw new RequestError('An approval names what was asked, and decides.', { param: place });
  const { reason } = item as JsonObject;
  const response = { confirmed: approve, ...(typeof reason === 'string' ? { reason } : {}) };
  return { by: 'user', parts: [{ functionResponse: { id, name: '', response } }] };
};

function toCall(id: string, call: { name: string; arguments: string }, place: string): Part {
  let args: unknown;
  try {
    args = parseJson(Buffer.from(call.arguments || '{}'), INPUT_LIMITS.argumentsOfACall, { exact: false });
  } catch {
    throw new RequestError('The arguments of the call are no JSON.', { param: `${place}.arguments` });
  }
  if (typeof args !== 'object' || args === null || Array.isArray(args))
    throw new RequestError('The arguments of the call are no object.', { param: `${place}.arguments` });
  return { functionCall: { id, name: call.name, args: args as JsonObject } };
}

/** Members of a part, by the names that both APIs have for them. */
function toPart(part: JsonObject, param: string): Part {
  const { type, text, refusal } = part;
  if ((type === 'input_text' || type === 'output_text' || type === 'text') && typeof text === 'string') return { text };
  if (type === 'refusal' && typeof refusal === 'string') return { text: refusal };
  if (type === 'input_image' || type === 'image_url') return toImage(part, param);
  if (type === 'input_file' || type === 'file') {
    const { file_data: data, file_url: uri, filename } = (part['file'] ?? part) as JsonObject;
    const named = typeof filename === 'string' ? { displayName: filename } : {};
    if (typeof data === 'string') return { inlineData: { ...readData(data, `${param}.file_data`), ...named } };
    if (typeof uri === 'string') return { fileData: { fileUri: uri, ...named } };
    throw new RequestError('There is no files API: send `file_data` or `file_url`.', { param });
  }
  if (type === 'input_audio') {
    const { data, format } = (part['input_audio'] ?? {}) as JsonObject;
    const mimeType = `audio/${String(format)}`;
    return { inlineData: { data: checkBase64(String(data), param), mimeType } };
  }
  throw new RequestError(`A part of type ${String(type)} is not taken here.`, { param: `${param}.type` });
}

function toImage(part: JsonObject, param: string): Part {
  const given = part['image_url'];
  const url = typeof given === 'object' && given !== null ? (given as JsonObject)['url'] : given;
  if (typeof url !== 'string') throw new RequestError('There is no files API: send `image_url`.', { param });
  if (url.startsWith('data:')) return { inlineData: readData(url, `${param}.image_url`) };
  return { fileData: { fileUri: url, mimeType: 'image/*' } };
}

function readData(url: string, param: string): { data: string; mimeType: string } {
  const [, mimeType = 'application/octet-stream', data = ''] = /^data:([^;,]{1,256})?;base64,(.*)$/s.exec(url) ?? [];
  if (!url.startsWith('data:')) return { data: checkBase64(url, param), mimeType: 'application/octet-stream' };
  return { data: checkBase64(data, param), mimeType };
}

function checkBase64(data: string, param: string): string {
  if (data === '' || base64Error(data) !== undefined) throw new RequestError('The data is no base64.', { param });
  return data;
}

/** Joins what one side says in a row. */
function joinSides(all: Said[]): Said[] {
  const joined: Said[] = [];
  for (const { by, parts } of all) {
    const last = joined.at(-1);
    if (last?.by === by) last.parts.push(...parts);
    else joined.push({ by, parts: [...parts] });
  }
  return joined;
}

/** Returns what the user says in an event as items of the input. */
export function toInputItems({ content: said, ...event }: Event): JsonObject[] {
  const id = event.id ?? '';
  const items: JsonObject[] = [];
  const content: JsonObject[] = [];
  for (const [index, { text, inlineData, fileData, functionResponse, partMetadata }] of getParts(said).entries()) {
    const note = partMetadata?.[NOTE] as { role?: string; text?: string } | undefined;
    if (functionResponse) items.push(toAnswerItem(functionResponse, `${id}_${index}`));
    else if (note?.role === 'system')
      items.push(toMessageItem(`${id}_${index}`, 'system', [{ type: 'input_text', text: note.text ?? '' }]));
    else if (typeof text === 'string') content.push({ type: 'input_text', text });
    else if (inlineData)
      content.push(toFileItem(`data:${inlineData.mimeType};base64,${inlineData.data}`, inlineData, 'file_data'));
    else if (fileData) content.push(toFileItem(fileData.fileUri ?? '', fileData, 'file_url'));
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
  const isApproval = name === 'adk_request_confirmation';
  if (isApproval) {
    const approve = response?.['confirmed'] === true;
    return { id: `mcpr_${itemId}`, type: 'mcp_approval_response', approval_request_id: id ?? '', approve };
  }
  const value = response?.['result'];
  const output = typeof value === 'string' ? value : JSON.stringify(response ?? {});
  return { id: `fco_${itemId}`, type: 'function_call_output', call_id: id ?? '', output, status: 'completed' };
}

function toFileItem(
  url: string,
  { mimeType, displayName }: { mimeType?: string | null | undefined; displayName?: string | null | undefined },
  member: 'file_data' | 'file_url',
): JsonObject {
  if (mimeType?.startsWith('image/')) return { type: 'input_image', image_url: url, detail: 'auto' };
  return { type: 'input_file', [member]: url, ...(displayName ? { filename: displayName } : {}) };
}
