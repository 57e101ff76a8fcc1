import { base64Error } from '../../../core/base64.ts';
import { type FunctionCall, getFunctionCalls, type JsonObject, type Part } from '../../../core/content.ts';
import type { NewEvent } from '../../../core/event.ts';
import { parseArguments } from '../../../core/parse-json.ts';
import type { SessionKey } from '../../../core/session.ts';
import { checkEventSize } from '../../../conversation/sessions/session-context.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import { eventDemands } from '../../../platform/http/operation/demands.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { toResponse } from '../open-calls.ts';
import { RequestError } from './errors.ts';
import { toSystemPart } from './items.ts';
import type { InputItem } from './schemas.ts';

/** The words of one side in a request, in order. */
export interface Said {
  /** `agent`: what the client says that the agent has answered before. */
  by: 'user' | 'agent';
  parts: Part[];
}

/** Items of this protocol that only repeat what the service knows by itself. */
const KNOWN_ITEMS = new Set(['reasoning', 'item_reference', 'mcp_call', 'mcp_list_tools', 'mcp_approval_request']);

/** Converts the input of a response, or the messages of a chat. @throws {RequestError} for what has no meaning here */
export function toTimeline(input: string | InputItem[], param: string): Said[] {
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : input;
  const timeline: Said[] = [];
  for (const [index, item] of items.entries()) {
    const { by, parts } = toSaid(item, `${param}[${index}]`);
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

/** Returns what a client says was said, as events that its principal may store. @throws {ForbiddenError} */
export function toOwnEvents(
  { agents, newId, limits }: InvocationContext,
  { appName }: SessionKey,
  said: Said[],
  principal: Principal | undefined,
  known: readonly FunctionCall[] = [],
): NewEvent[] {
  const calls = [...known, ...said.flatMap(getFunctionCalls)];
  const events = said.map((each) => {
    const isUser = each.by === 'user';
    return {
      id: newId(),
      invocationId: `p-${newId()}`,
      author: isUser ? 'user' : (agents.get(appName)?.name ?? appName),
      content: { role: isUser ? 'user' : 'model', parts: nameAnswers(each.parts, calls) },
      // Calls that a client brings are its own.
      ...(!isUser && { longRunningToolIds: getFunctionCalls(each).flatMap(({ id }) => id ?? []) }),
    };
  });
  if (principal) for (const demand of eventDemands(events)) requireScope(principal, demand);
  for (const event of events) checkEventSize(event, limits.eventBytes);
  return events;
}

function toSaid(item: InputItem, place: string): Said {
  const { role, approve, reason } = item;
  const answer = (member: 'call_id' | 'tool_call_id' | 'approval_request_id', response: JsonObject): Said => {
    const id = item[member];
    if (!id) throw new RequestError('An answer names what it answers.', { param: `${place}.${member}` });
    return { by: 'user', parts: [{ functionResponse: { id, name: '', response } }] };
  };
  const type = item.type ?? (role === 'tool' ? role : role == null ? '(none)' : 'message');
  switch (type) {
    case 'message':
      return toMessage(item, place);
    case 'function_call':
      return { by: 'agent', parts: [toCall(item.call_id, item, place)] };
    case 'function_call_output':
      return answer('call_id', toResponse(toText(item.output)));
    case 'tool':
      return answer('tool_call_id', toResponse(toText(item.content)));
    case 'mcp_approval_response':
      if (approve == null) throw new RequestError('An approval decides.', { param: `${place}.approve` });
      return answer('approval_request_id', { confirmed: approve, ...(reason != null && { reason }) });
    default:
      if (KNOWN_ITEMS.has(type)) return { by: 'user', parts: [] };
      throw new RequestError(`An item of type ${type} is not taken here.`, { param: `${place}.type` });
  }
}

const toText = (content: InputItem['output']) =>
  typeof content === 'string' ? content : JSON.stringify(content ?? null);

function toMessage({ role, content, tool_calls: calls }: InputItem, place: string): Said {
  const sent = typeof content === 'string' ? content && [{ type: 'text', text: content }] : content;
  const parts = (sent || []).map((part, index) => toPart(part, `${place}.content[${index}]`));
  const called = (calls ?? []).map((call) => toCall(call.id, call.function, place));
  if (role === 'user') return { by: 'user', parts };
  if (role === 'assistant') return { by: 'agent', parts: [...parts, ...called] };
  if (role !== 'system' && role !== 'developer')
    throw new RequestError(`There is no role ${role}.`, { param: `${place}.role` });
  return { by: 'user', parts: [toSystemPart(parts.map(({ text }) => text ?? '').join('\n'))] };
}

function toCall(id: InputItem['call_id'], call: Pick<InputItem, 'name' | 'arguments'>, place: string): Part {
  const args = parseArguments(call.arguments ?? '');
  if (!args) throw new RequestError('The arguments of the call are no JSON object.', { param: `${place}.arguments` });
  return { functionCall: { id: id ?? '', name: call.name ?? '', args } };
}

/** Converts a part, by the names that both APIs have for its members. */
function toPart(part: JsonObject, param: string): Part {
  const { type, text, image_url: image } = part;
  if (/^(?:(?:in|out)put_)?text$/.test(String(type)) && typeof text === 'string') return { text };
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
