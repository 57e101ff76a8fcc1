import {
  type Content,
  type FunctionCall,
  type FunctionResponse,
  getParts,
  type JsonObject,
  type Part,
} from '../../core/content.ts';
import { GO_ON, type ModelRequest } from '../definition/model.ts';
import type { CallOptions, Provider, ProviderData, ProviderFacts } from '../providers/provider.ts';
import { fitFile, type FilePart, type Room } from './fit-file.ts';
import type { FittedTools } from './fit-tools.ts';
import { fromSignature } from './signature.ts';

type Prompt = CallOptions['prompt'];
type Message = Prompt[number];
type AssistantMessage = Extract<Message, { role: 'assistant' }>;
type AssistantPart = AssistantMessage['content'][number];
type UserPart = Extract<Message, { role: 'user' }>['content'][number];
type ToolPart = Extract<Extract<Message, { role: 'tool' }>['content'][number], { type: 'tool-result' }>;
type Json = Extract<ToolPart['output'], { type: 'json' }>['value'];

/** Text in place of an empty message, which most providers reject. */
const EMPTY = '(empty)';

export interface PromptOptions {
  provider: Provider;
  facts: ProviderFacts;
  tools: Pick<FittedTools, 'toName' | 'toArguments'>;
  /** True: thoughts of the model are not sent back to it. Default: false. */
  withoutThoughts?: boolean;
  /** True: files are described in words instead of sent. Default: false. */
  withoutFiles?: boolean;
}

/** The prompt, and whether it has thoughts or files, which are omitted if the provider rejects the prompt. */
export interface ConvertedPrompt {
  prompt: Prompt;
  hasThoughts: boolean;
  hasFiles: boolean;
}

/**
 * Converts a conversation to the prompt of the AI SDK, within the provider's limits: the instruction is first,
 * neighbouring contents of the same role are joined, every tool call is followed by one result, and the ids of tool
 * calls have the provider's format. What the provider does not accept is described in words.
 */
export function toPrompt(request: ModelRequest, options: PromptOptions): ConvertedPrompt {
  const { instruction, contents, sampling } = request;
  // What is marked costs a quarter more, and a tenth when it is read: a gain if another call follows, as after tools.
  const isMarked = sampling.promptCaching ?? request.tools.length > 0;
  const mark = isMarked ? options.provider.cacheMark : undefined;
  const builder = new PromptBuilder(options);
  for (const content of joinRoles(contents, mark !== undefined)) {
    if (content.role === 'model') builder.addModel(content);
    else builder.addUser(content);
  }
  const messages = builder.end();
  const system: Prompt = isBlank(instruction) ? [] : [{ role: 'system', content: instruction.toWellFormed() }];
  const prompt = [...system, ...messages];
  return {
    prompt: mark ? withCacheMarks(prompt, mark) : prompt,
    hasThoughts: builder.hasThoughts,
    hasFiles: builder.hasFiles,
  };
}

/**
 * Marks the ends of cached prefixes: after the instruction (with the tools) and after the history, before a request to go
 * on, because no later prompt has that.
 */
function withCacheMarks(prompt: Prompt, mark: NonNullable<Provider['cacheMark']>): Prompt {
  const last = prompt.length - (isGoOn(prompt.at(-1)) ? 2 : 1);
  return prompt.map((message, index) =>
    message.role === 'system' || index === last ? { ...message, providerOptions: mark } : message,
  );
}

function isGoOn(message: Message | undefined): boolean {
  const [part, ...others] = message?.role === 'user' ? message.content : [];
  return part?.type === 'text' && part.text === GO_ON && others.length === 0;
}

const isBlank = (text: string) => text.trim() === '';

/**
 * Local servers reject conversations whose roles do not alternate (chat templates of Mistral and Gemma).
 * @param isMarked - contents of the model stay apart, because a mark ends a cached prefix between two of them
 */
function joinRoles(contents: Content[], isMarked: boolean): Content[] {
  const joined: Content[] = [];
  for (const content of contents) {
    const last = joined.at(-1);
    const isModel = content.role === 'model';
    if (!last || (last.role === 'model') !== isModel || (isModel && isMarked)) joined.push(content);
    else joined[joined.length - 1] = { ...last, parts: joinParts(getParts(last), getParts(content)) };
  }
  return joined;
}

/**
 * Joins two lists of parts, with a blank line between texts, because some providers do not separate parts. A text with
 * a signature stays unchanged, because the signature covers it.
 */
function joinParts(before: Part[], [first, ...others]: Part[]): Part[] {
  const isText = (part: Part | undefined) => Boolean(part?.text) && part?.thought !== true && !part?.thoughtSignature;
  const apart = isText(before.at(-1)) && isText(first) ? { ...first, text: `\n\n${first?.text}` } : first;
  return [...before, ...(apart ? [apart] : []), ...others];
}

interface OpenCall {
  /** Id of the tool call in the session; `sentId` is its id in the request. */
  id: string;
  sentId: string;
  name: string;
}

class PromptBuilder {
  readonly #options: PromptOptions;
  readonly #messages: Message[] = [];
  readonly #room: Room;
  readonly #ids = new Set<string>();
  #open: OpenCall[] = [];
  hasThoughts = false;
  hasFiles = false;

  constructor(options: PromptOptions) {
    this.#options = options;
    this.#room = { files: options.facts.files.count };
  }

  addModel(content: Content): void {
    // No results are made up here for open tool calls: theirs follow, except in a damaged conversation.
    if (this.#messages.length === 0) this.#say('(The start of the conversation is left out.)');
    const parts: AssistantPart[] = [];
    const thoughts: JsonObject[] = [];
    for (const part of getParts(content)) this.#addModelPart(part, parts, thoughts);
    const sent = withoutLastThoughts(joinTexts(parts, false)).filter(isSaying);
    if (sent.length === 0) sent.push({ type: 'text', text: EMPTY });
    const { messageThoughts } = this.#options.provider;
    const options = thoughts.length > 0 ? { providerOptions: messageThoughts?.toOptions(thoughts) } : {};
    this.#messages.push({ role: 'assistant', content: sent, ...options } as AssistantMessage);
  }

  /** @param thoughts receives the thoughts that belong to the whole message */
  #addModelPart(part: Part, parts: AssistantPart[], thoughts: JsonObject[]): void {
    const { provider, facts, tools } = this.#options;
    const data = fromSignature(provider, part.thoughtSignature);
    const isKept = data !== undefined && facts.takesThoughts && !this.#options.withoutThoughts;
    const signed = isKept && Object.keys(data).length > 0 ? { providerOptions: data } : {};
    if (isKept && (part.thought === true || 'providerOptions' in signed)) this.hasThoughts = true;
    if (part.functionCall) {
      const { args } = part.functionCall;
      const { sentId, name } = this.#openCall(part.functionCall);
      const input = toWellFormed(tools.toArguments(part.functionCall.name ?? '', args ?? {}));
      parts.push({ type: 'tool-call', toolCallId: sentId, toolName: name, input, ...signed });
    } else if (part.thought === true) {
      // A thought is sent only to its own provider: others reject its signature, or take the thought for an answer.
      if (!isKept) return;
      const its = provider.messageThoughts?.ofData(data) ?? [];
      if (its.length > 0) thoughts.push(...its);
      else if (isThought(part, data[provider.name], facts))
        parts.push({ type: 'reasoning', text: toText(part.text ?? ''), ...signed });
    } else if (part.inlineData ?? part.fileData) parts.push(this.#toModelFile(part, signed));
    else {
      const text = toText(getText(part));
      const last = parts.at(-1);
      // An empty text only carries a signature, which belongs to the text before it.
      if (text === '' && 'providerOptions' in signed && last?.type === 'text' && !last.providerOptions)
        parts[parts.length - 1] = { ...last, ...signed };
      else if (text !== '') parts.push({ type: 'text', text, ...signed });
    }
  }

  #toModelFile(part: Part, signed: { providerOptions?: ProviderData }): AssistantPart {
    const fitted = this.#fit(part, this.#options.facts.answerFiles);
    if ('file' in fitted) return { ...fitted.file, ...signed };
    return { type: 'text', text: `(a file that you made) ${fitted.text}` };
  }

  #fit(part: Part, files: ProviderFacts['resultFiles']): { file: FilePart } | { text: string } {
    const fitted = fitFile(part, this.#options.withoutFiles ? undefined : files, this.#room);
    if ('file' in fitted) this.hasFiles = true;
    return 'file' in fitted ? fitted : { text: toText(fitted.text) };
  }

  #openCall({ id, name }: FunctionCall): OpenCall {
    const { facts, tools } = this.#options;
    const ownId = id ?? '';
    const isGood = facts.callIds.fits.test(ownId) && !this.#ids.has(ownId);
    const sentId = isGood ? ownId : this.#newId(ownId);
    this.#ids.add(sentId);
    const call = { id: ownId, sentId, name: tools.toName(name ?? '') };
    this.#open.push(call);
    return call;
  }

  /** Derives a new id of letters and digits from the calls, so that requests with the same calls get the same ids. */
  #newId(ownId: string): string {
    const { length } = this.#options.facts.callIds;
    const start = ownId.replaceAll(/[^a-zA-Z0-9]/g, '').slice(0, length - 6) || 'c';
    for (let number = this.#ids.size; ; number += 1) {
      const candidate = start + String(number).padStart(length - start.length, '0');
      if (!this.#ids.has(candidate)) return candidate;
    }
  }

  addUser(content: Content): void {
    const responses: FunctionResponse[] = [];
    const others: Part[] = [];
    for (const part of getParts(content)) {
      if (part.functionResponse) responses.push(part.functionResponse);
      else others.push(part);
    }
    const strangers = this.#answer(responses);
    const parts = [
      ...strangers.flatMap((response) => this.#toStranger(response)),
      ...others.flatMap((part) => this.#toUserPart(part)),
    ];
    if (parts.length > 0 || responses.length === 0) this.#addUserParts(parts);
  }

  /** Adds results for all open tool calls; returns the function responses that belong to none of them. */
  #answer(responses: FunctionResponse[]): FunctionResponse[] {
    const calls = this.#open;
    this.#open = [];
    const unmatched = [...responses];
    const matches = calls.map((call) => {
      const isOf = ({ id, name }: FunctionResponse) =>
        id && call.id ? id === call.id : this.#options.tools.toName(name ?? '') === call.name;
      const place = unmatched.findIndex(isOf);
      return place < 0 ? undefined : unmatched.splice(place, 1)[0];
    });
    if (calls.length === 0) return unmatched;
    const media: Part[] = [];
    const results = calls.map((call, place) => this.#toResult(call, matches[place], media));
    this.#messages.push({ role: 'tool', content: results });
    const parts = media.flatMap((part) => this.#toUserPart(part));
    if (parts.length > 0) this.#addUserParts(parts);
    return unmatched;
  }

  #toResult({ sentId, name }: OpenCall, response: FunctionResponse | undefined, media: Part[]): ToolPart {
    const { resultFiles } = this.#options.facts;
    const value = toWellFormed((response ? (response.response ?? {}) : { error: 'interrupted' }) as JsonObject & Json);
    const identity = { type: 'tool-result', toolCallId: sentId, toolName: name } as const;
    const isError = typeof value['error'] === 'string';
    const files: FilePart[] = [];
    const texts: string[] = [];
    for (const part of (response?.parts ?? []) as Part[]) {
      const fitted = this.#fit(part, resultFiles ?? this.#options.facts.files);
      if ('text' in fitted) texts.push(fitted.text);
      else if (resultFiles) files.push(fitted.file);
      else media.push(part);
    }
    if (files.length === 0 && texts.length === 0)
      return { ...identity, output: { type: isError ? 'error-json' : 'json', value } };
    const text = [JSON.stringify(value), ...texts].join('\n\n');
    if (files.length === 0) return { ...identity, output: { type: isError ? 'error-text' : 'text', value: text } };
    return { ...identity, output: { type: 'content', value: [{ type: 'text', text }, ...files] } };
  }

  /** Converts a function response whose call is not in the request to text and files of the user. */
  #toStranger({ name, response, parts }: FunctionResponse): UserPart[] {
    const text = `The tool \`${name ?? ''}\` returned: ${JSON.stringify(toWellFormed(response ?? {}))}`;
    return [{ type: 'text', text }, ...((parts ?? []) as Part[]).flatMap((part) => this.#toUserPart(part))];
  }

  #toUserPart(part: Part): UserPart[] {
    if (part.inlineData ?? part.fileData) {
      const fitted = this.#fit(part, this.#options.facts.files);
      return ['file' in fitted ? fitted.file : { type: 'text', text: fitted.text }];
    }
    if (part.functionCall) return [{ type: 'text', text: toText(`(a call) ${JSON.stringify(part.functionCall)}`) }];
    const text = toText(getText(part));
    return text === '' ? [] : [{ type: 'text', text }];
  }

  #addUserParts(parts: UserPart[]): void {
    const { afterResults } = this.#options.facts;
    const last = this.#messages.at(-1);
    const joined = joinTexts(parts, true).filter(isSaying);
    const content: UserPart[] = joined.length > 0 ? joined : [{ type: 'text', text: EMPTY }];
    if (last?.role === 'user') {
      const whole = joinTexts([...last.content, ...content], true);
      this.#messages[this.#messages.length - 1] = { ...last, content: whole };
      return;
    }
    if (last?.role === 'tool' && afterResults !== undefined)
      this.#messages.push({ role: 'assistant', content: [{ type: 'text', text: afterResults }] });
    this.#messages.push({ role: 'user', content });
  }

  #say(text: string): void {
    this.#addUserParts([{ type: 'text', text }]);
  }

  /** Completes the prompt: providers reject tool calls without results, and a last message of the model. */
  end(): Message[] {
    this.#answer([]);
    const last = this.#messages.at(-1)?.role;
    if (last === undefined) this.#say('Follow your instruction.');
    if (last === 'assistant') this.#say(GO_ON);
    return this.#messages;
  }
}

/**
 * Joins neighbouring texts, because some servers accept a content of texts only as a single string. A text with a
 * signature is not joined, because the signature covers it.
 */
function joinTexts<Some extends AssistantPart | UserPart>(parts: Some[], isApart: boolean): Some[] {
  const joined: Some[] = [];
  for (const part of parts) {
    const last = joined.at(-1);
    if (last?.type !== 'text' || part.type !== 'text' || last.providerOptions || part.providerOptions)
      joined.push(part);
    else {
      const isSpaced = !isApart || /\s$/.test(last.text) || /^\s/.test(part.text);
      joined[joined.length - 1] = { ...last, text: last.text + (isSpaced ? '' : '\n\n') + part.text };
    }
  }
  return joined;
}

/** False for a text part of blanks only, which several providers reject. */
const isSaying = (part: AssistantPart | UserPart) => part.type !== 'text' || !isBlank(part.text);

/** Removes thoughts at the end, which providers reject; they are from an output that was cut off. */
function withoutLastThoughts(parts: AssistantPart[]): AssistantPart[] {
  const last = parts.findLastIndex((part) => part.type !== 'reasoning' && isSaying(part));
  return parts.filter((part, place) => part.type !== 'reasoning' || place < last);
}

/** False for a thought without the signature data that its provider requires. */
const isThought = (part: Part, data: JsonObject | undefined, { thoughtData }: ProviderFacts): boolean =>
  thoughtData.length > 0 ? thoughtData.some((member) => data?.[member]) : Boolean(part.text);

/** Code that a provider executed becomes text, because only that provider understands its own format. */
function getText(part: Part): string {
  if (part.executableCode) return `\`\`\`\n${part.executableCode.code ?? ''}\n\`\`\``;
  if (part.codeExecutionResult) return `Result of the code: ${part.codeExecutionResult.output ?? ''}`;
  return part.text ?? '';
}

/** Replaces lone UTF-16 surrogates, which providers reject. */
const toText = (text: string): string => (text.isWellFormed() ? text : text.toWellFormed());

/** Replaces lone UTF-16 surrogates in a JSON value; returns the same object if it has none. */
function toWellFormed<Value>(value: Value): Value {
  if (typeof value === 'string') return toText(value) as Value & string;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const list: unknown[] = value.map(toWellFormed);
    return list.every((each, place) => each === value[place]) ? value : (list as Value & unknown[]);
  }
  const entries = Object.entries(value).map(
    ([name, each]: [string, unknown]) => [toText(name), toWellFormed(each)] as const,
  );
  const isSame = entries.every(([name, each]) => each === (value as JsonObject)[name]);
  return isSame ? value : (Object.fromEntries(entries) as Value & object);
}
