import { type Content, type FunctionResponse, type JsonObject, type Part, getParts } from '../../core/content.ts';
import type { ModelRequest } from '../definition/model.ts';
import type { CallOptions, ProviderName } from './provider.ts';
import { fromSignature } from './signature.ts';

type Prompt = CallOptions['prompt'];
type Message = Prompt[number];
type AssistantPart = Extract<Message, { role: 'assistant' }>['content'][number];
type UserPart = Extract<Message, { role: 'user' }>['content'][number];
type ToolPart = Extract<Message, { role: 'tool' }>['content'][number];
type Json = Extract<Extract<ToolPart, { type: 'tool-result' }>['output'], { type: 'json' }>['value'];

/** Most providers refuse a message without content. */
const EMPTY = '(empty)';

/** Returns the request as the packages take it: instruction first, contents of a role joined, tool results apart. */
export function toPrompt({ instruction, contents, sampling }: ModelRequest, provider: ProviderName): Prompt {
  const system: Prompt = instruction === '' ? [] : [{ role: 'system', content: instruction }];
  const prompt = [
    ...system,
    ...joinRoles(contents).flatMap((content) =>
      content.role === 'model' ? toAssistant(content, provider) : toUser(content, provider),
    ),
  ];
  return sampling.promptCaching === true && provider === 'anthropic' ? withCacheMarks(prompt) : prompt;
}

/** Marks where what is kept ends: behind the instruction, which tools stand before, and behind the history. */
const withCacheMarks = (prompt: Prompt): Prompt =>
  prompt.map((message, index) =>
    message.role === 'system' || index === prompt.length - 1
      ? { ...message, providerOptions: { anthropic: { cacheControl: { type: 'ephemeral' } } } }
      : message,
  );

/** Local servers refuse a conversation whose roles do not alternate (chat templates of Mistral and Gemma). */
function joinRoles(contents: Content[]): Content[] {
  const joined: Content[] = [];
  for (const content of contents) {
    const last = joined.at(-1);
    if (last?.role !== content.role) joined.push(content);
    else joined[joined.length - 1] = { ...last, parts: joinParts(getParts(last), getParts(content)) };
  }
  return joined;
}

/** A blank line keeps two texts apart: not every wire shows where a part ends. Signed texts stay as signed. */
function joinParts(before: Part[], [first, ...others]: Part[]): Part[] {
  const isText = (part: Part | undefined) => Boolean(part?.text) && part?.thought !== true && !part?.thoughtSignature;
  const apart = isText(before.at(-1)) && isText(first) ? { ...first, text: `\n\n${first?.text}` } : first;
  return [...before, ...(apart ? [apart] : []), ...others];
}

function toAssistant(content: Content, provider: ProviderName): Message[] {
  const parts = getParts(content).flatMap((part) => toAssistantPart(part, provider));
  return [{ role: 'assistant', content: parts.length > 0 ? parts : [{ type: 'text', text: EMPTY }] }];
}

function toAssistantPart(part: Part, provider: ProviderName): AssistantPart[] {
  const data = fromSignature(provider, part.thoughtSignature);
  const signed = data && Object.keys(data).length > 0 ? { providerOptions: data } : {};
  if (part.functionCall) {
    const { id, name, args } = part.functionCall;
    return [{ type: 'tool-call', toolCallId: id ?? '', toolName: name ?? '', input: args ?? {}, ...signed }];
  }
  // A thought goes back only to the provider that made it: others refuse its signature or take it for an answer.
  if (part.thought === true) return data ? [{ type: 'reasoning', text: part.text ?? '', ...signed }] : [];
  if (part.inlineData ?? part.fileData) {
    return provider === 'google'
      ? [{ ...toFile(part), ...signed }]
      : [{ type: 'text', text: '(a file that you made)' }];
  }
  const text = getText(part);
  return text === '' && !('providerOptions' in signed) ? [] : [{ type: 'text', text, ...signed }];
}

function toUser(content: Content, provider: ProviderName): Message[] {
  const responses = getParts(content).flatMap((part) => (part.functionResponse ? [part.functionResponse] : []));
  // These wires carry only text in tool results, so media follow as the user's.
  const media = provider === 'openai-compatible' ? responses.flatMap(toMedia) : [];
  const rest = getParts(content).filter((part) => !part.functionResponse);
  const said = [...media, ...rest].flatMap(toUserPart);
  const messages: Message[] = [];
  if (responses.length > 0)
    messages.push({ role: 'tool', content: responses.map((response) => toToolResult(response, provider)) });
  if (said.length > 0) messages.push({ role: 'user', content: said });
  return messages.length > 0 ? messages : [{ role: 'user', content: [{ type: 'text', text: EMPTY }] }];
}

const toMedia = (response: FunctionResponse): Part[] => response.parts ?? [];

function toUserPart(part: Part): UserPart[] {
  if (part.inlineData ?? part.fileData) return [toFile(part)];
  const text = getText(part);
  return text === '' ? [] : [{ type: 'text', text }];
}

/** Text of a part; code that ran at a provider becomes text, since only that provider knows its own form. */
function getText(part: Part): string {
  if (part.executableCode) return `\`\`\`\n${part.executableCode.code ?? ''}\n\`\`\``;
  if (part.codeExecutionResult) return `Result of the code: ${part.codeExecutionResult.output ?? ''}`;
  return part.text ?? '';
}

type FilePart = Extract<UserPart, { type: 'file' }>;

function toFile({ inlineData, fileData }: Part): UserPart & (FilePart | { type: 'text' }) {
  const mediaType = inlineData?.mimeType ?? fileData?.mimeType ?? 'application/octet-stream';
  const filename = inlineData?.displayName ?? fileData?.displayName;
  const named = filename ? { filename } : {};
  if (!inlineData) return toRemoteFile(fileData?.fileUri ?? '', mediaType, named);
  const data = inlineData.data ?? '';
  if (mediaType.startsWith('text/') || mediaType === 'application/json')
    return { type: 'text', text: `${filename ? `File ${filename}:\n` : ''}${Buffer.from(data, 'base64').toString()}` };
  return { type: 'file', mediaType, data: { type: 'data', data }, ...named };
}

/** The provider fetches the address, never this service. */
function toRemoteFile(uri: string, mediaType: string, named: { filename?: string }) {
  const url = URL.parse(uri);
  if (!url) return { type: 'text' as const, text: `(a file at ${uri})` };
  return { type: 'file' as const, mediaType, data: { type: 'url' as const, url }, ...named };
}

function toToolResult(response: FunctionResponse, provider: ProviderName): ToolPart {
  const value = (response.response ?? {}) as JsonObject & Json;
  const named = { type: 'tool-result', toolCallId: response.id ?? '', toolName: response.name ?? '' } as const;
  const media = provider === 'openai-compatible' ? [] : toMedia(response).map(toFile);
  if (media.length > 0) {
    return {
      ...named,
      output: { type: 'content', value: [{ type: 'text', text: JSON.stringify(value) }, ...media] },
    };
  }
  return { ...named, output: { type: typeof value['error'] === 'string' ? 'error-json' : 'json', value } };
}
