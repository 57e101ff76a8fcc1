import {
  type Content,
  type FunctionCall,
  type FunctionResponse,
  getParts,
  type JsonObject,
  type Part,
} from '../../core/content.ts';
import type { ModelRequest } from '../definition/model.ts';
import type { ProviderFacts } from '../providers/facts.ts';
import { fitFile, type FilePart, type Room } from './fit-file.ts';
import type { FittedTools } from './fit-tools.ts';
import type { CallOptions, ProviderName } from './provider.ts';
import { fromSignature, type ProviderData } from './signature.ts';

type Prompt = CallOptions['prompt'];
type Message = Prompt[number];
type AssistantMessage = Extract<Message, { role: 'assistant' }>;
type AssistantPart = AssistantMessage['content'][number];
type UserPart = Extract<Message, { role: 'user' }>['content'][number];
type ToolPart = Extract<Extract<Message, { role: 'tool' }>['content'][number], { type: 'tool-result' }>;
type Json = Extract<ToolPart['output'], { type: 'json' }>['value'];

/** What stands for a message without anything that can be sent: most providers refuse one. */
const EMPTY = '(empty)';

/** How to tell a provider of a conversation. */
export interface Telling {
  provider: ProviderName;
  facts: ProviderFacts;
  tools: Pick<FittedTools, 'toName' | 'toArguments'>;
  /** True: no thoughts go back, whoever made them [false]. */
  withoutThoughts?: boolean;
  /** True: files are told in words [false]. */
  withoutFiles?: boolean;
}

/** A conversation as a provider takes it, and what could be left out where the provider refuses it nevertheless. */
export interface Told {
  prompt: Prompt;
  hasThoughts: boolean;
  hasFiles: boolean;
}

/**
 * Returns the conversation as the packages take it and the provider takes it from them: instruction first, contents of
 * a role joined, each call with one result behind it, under ids that the provider takes. What the provider does not
 * take is told in words.
 */
export function toPrompt({ instruction, contents, sampling }: ModelRequest, telling: Telling): Told {
  const teller = new Teller(telling);
  for (const content of joinRoles(contents)) {
    if (content.role === 'model') teller.addModel(content);
    else teller.addUser(content);
  }
  const messages = teller.end();
  const system: Prompt = isBlank(instruction) ? [] : [{ role: 'system', content: instruction.toWellFormed() }];
  const prompt = [...system, ...messages];
  const isMarked = sampling.promptCaching === true && telling.provider === 'anthropic';
  return {
    prompt: isMarked ? withCacheMarks(prompt) : prompt,
    hasThoughts: teller.hasThoughts,
    hasFiles: teller.hasFiles,
  };
}

/** Marks where what is kept ends: behind the instruction, which tools stand before, and behind the history. */
const withCacheMarks = (prompt: Prompt): Prompt =>
  prompt.map((message, index) =>
    message.role === 'system' || index === prompt.length - 1
      ? { ...message, providerOptions: { anthropic: { cacheControl: { type: 'ephemeral' } } } }
      : message,
  );

const isBlank = (text: string) => text.trim() === '';

/** Local servers refuse a conversation whose roles do not alternate (chat templates of Mistral and Gemma). */
function joinRoles(contents: Content[]): Content[] {
  const joined: Content[] = [];
  for (const content of contents) {
    const last = joined.at(-1);
    if (!last || (last.role === 'model') !== (content.role === 'model')) joined.push(content);
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

/** A call that waits for its result. */
interface OpenCall {
  /** Its id in the conversation, and in the request. */
  id: string;
  sentId: string;
  name: string;
}

class Teller {
  readonly #telling: Telling;
  readonly #messages: Message[] = [];
  readonly #room: Room;
  readonly #ids = new Set<string>();
  #open: OpenCall[] = [];
  hasThoughts = false;
  hasFiles = false;

  constructor(telling: Telling) {
    this.#telling = telling;
    this.#room = { files: telling.facts.files.count };
  }

  addModel(content: Content): void {
    // Only a broken conversation has two contents of the model with a call that nothing answers between them.
    if (this.#messages.length === 0) this.#say('(The start of the conversation is left out.)');
    const parts: AssistantPart[] = [];
    const details: JsonObject[] = [];
    for (const part of getParts(content)) this.#addModelPart(part, parts, details);
    const spoken = withoutLastThoughts(joinTexts(parts, false)).filter(isSaying);
    if (spoken.length === 0) spoken.push({ type: 'text', text: EMPTY });
    const options = details.length > 0 ? { providerOptions: { openaiCompatible: { reasoning_details: details } } } : {};
    this.#messages.push({ role: 'assistant', content: spoken, ...options } as AssistantMessage);
  }

  #addModelPart(part: Part, parts: AssistantPart[], details: JsonObject[]): void {
    const { provider, facts, tools } = this.#telling;
    const data = fromSignature(provider, part.thoughtSignature);
    const isKept = data !== undefined && facts.takesThoughts && !this.#telling.withoutThoughts;
    const signed = isKept && Object.keys(data).length > 0 ? { providerOptions: data } : {};
    if (isKept && (part.thought === true || 'providerOptions' in signed)) this.hasThoughts = true;
    if (part.functionCall) {
      const { args } = part.functionCall;
      const { sentId, name } = this.#openCall(part.functionCall);
      const input = toWellFormed(tools.toArguments(part.functionCall.name ?? '', args ?? {}));
      parts.push({ type: 'tool-call', toolCallId: sentId, toolName: name, input, ...signed });
    } else if (part.thought === true) {
      // A thought goes back only to the provider that made it: others refuse its signature or take it for an answer.
      if (!isKept) return;
      const its = provider === 'openai-compatible' ? getDetails(data) : [];
      if (its.length > 0) details.push(...its);
      else if (isThought(provider, part, data))
        parts.push({ type: 'reasoning', text: toText(part.text ?? ''), ...signed });
    } else if (part.inlineData ?? part.fileData) parts.push(this.#toMade(part, signed));
    else {
      const text = toText(getText(part));
      const last = parts.at(-1);
      // The signature of an empty text is that of the text before it.
      if (text === '' && 'providerOptions' in signed && last?.type === 'text' && !last.providerOptions)
        parts[parts.length - 1] = { ...last, ...signed };
      else if (text !== '') parts.push({ type: 'text', text, ...signed });
    }
  }

  /** A file that the model made. */
  #toMade(part: Part, signed: { providerOptions?: ProviderData }): AssistantPart {
    const fitted = this.#fit(part, this.#telling.facts.answerFiles);
    if ('file' in fitted) return { ...fitted.file, ...signed };
    return { type: 'text', text: `(a file that you made) ${fitted.text}` };
  }

  #fit(part: Part, files: ProviderFacts['resultFiles']): { file: FilePart } | { text: string } {
    const fitted = fitFile(part, this.#telling.withoutFiles ? undefined : files, this.#room);
    if ('file' in fitted) this.hasFiles = true;
    return 'file' in fitted ? fitted : { text: toText(fitted.text) };
  }

  #openCall({ id, name }: FunctionCall): OpenCall {
    const { facts, tools } = this.#telling;
    const given = id ?? '';
    const isGood = facts.callIds.fits.test(given) && !this.#ids.has(given);
    const sentId = isGood ? given : this.#newId(given);
    this.#ids.add(sentId);
    const call = { id: given, sentId, name: tools.toName(name ?? '') };
    this.#open.push(call);
    return call;
  }

  /** An id of letters and digits, the same in each request that tells of the same calls. */
  #newId(given: string): string {
    const { length } = this.#telling.facts.callIds;
    const start = given.replaceAll(/[^a-zA-Z0-9]/g, '').slice(0, length - 6) || 'c';
    for (let number = this.#ids.size; ; number += 1) {
      const made = start + String(number).padStart(length - start.length, '0');
      if (!this.#ids.has(made)) return made;
    }
  }

  addUser(content: Content): void {
    const responses: FunctionResponse[] = [];
    const said: Part[] = [];
    for (const part of getParts(content)) {
      if (part.functionResponse) responses.push(part.functionResponse);
      else said.push(part);
    }
    const strangers = this.#answer(responses);
    const parts = [
      ...strangers.flatMap((response) => this.#toStranger(response)),
      ...said.flatMap((part) => this.#toUserPart(part)),
    ];
    if (parts.length > 0 || responses.length === 0) this.#addUserParts(parts);
  }

  /** Answers all open calls, and returns the responses that answer none. */
  #answer(responses: FunctionResponse[]): FunctionResponse[] {
    const calls = this.#open;
    this.#open = [];
    const left = [...responses];
    const taken = calls.map((call) => {
      const isOf = ({ id, name }: FunctionResponse) =>
        id && call.id ? id === call.id : this.#telling.tools.toName(name ?? '') === call.name;
      const place = left.findIndex(isOf);
      return place < 0 ? undefined : left.splice(place, 1)[0];
    });
    if (calls.length === 0) return left;
    const media: Part[] = [];
    const results = calls.map((call, place) => this.#toResult(call, taken[place], media));
    this.#messages.push({ role: 'tool', content: results });
    const parts = media.flatMap((part) => this.#toUserPart(part));
    if (parts.length > 0) this.#addUserParts(parts);
    return left;
  }

  #toResult({ sentId, name }: OpenCall, response: FunctionResponse | undefined, media: Part[]): ToolPart {
    const { resultFiles } = this.#telling.facts;
    const value = toWellFormed((response ? (response.response ?? {}) : { error: 'interrupted' }) as JsonObject & Json);
    const named = { type: 'tool-result', toolCallId: sentId, toolName: name } as const;
    const isError = typeof value['error'] === 'string';
    const files: FilePart[] = [];
    const texts: string[] = [];
    for (const part of (response?.parts ?? []) as Part[]) {
      const fitted = this.#fit(part, resultFiles ?? this.#telling.facts.files);
      if ('text' in fitted) texts.push(fitted.text);
      else if (resultFiles) files.push(fitted.file);
      else media.push(part);
    }
    if (files.length === 0 && texts.length === 0)
      return { ...named, output: { type: isError ? 'error-json' : 'json', value } };
    const text = [JSON.stringify(value), ...texts].join('\n\n');
    if (files.length === 0) return { ...named, output: { type: isError ? 'error-text' : 'text', value: text } };
    return { ...named, output: { type: 'content', value: [{ type: 'text', text }, ...files] } };
  }

  /** A response whose call the request does not have. */
  #toStranger({ name, response, parts }: FunctionResponse): UserPart[] {
    const text = `The tool \`${name ?? ''}\` returned: ${JSON.stringify(toWellFormed(response ?? {}))}`;
    return [{ type: 'text', text }, ...((parts ?? []) as Part[]).flatMap((part) => this.#toUserPart(part))];
  }

  #toUserPart(part: Part): UserPart[] {
    if (part.inlineData ?? part.fileData) {
      const fitted = this.#fit(part, this.#telling.facts.files);
      return ['file' in fitted ? fitted.file : { type: 'text', text: fitted.text }];
    }
    if (part.functionCall) return [{ type: 'text', text: toText(`(a call) ${JSON.stringify(part.functionCall)}`) }];
    const text = toText(getText(part));
    return text === '' ? [] : [{ type: 'text', text }];
  }

  #addUserParts(parts: UserPart[]): void {
    const { afterResults } = this.#telling.facts;
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

  /** Providers refuse a conversation that ends with the model's own words, and calls without results. */
  end(): Message[] {
    this.#answer([]);
    const last = this.#messages.at(-1)?.role;
    if (last === undefined) this.#say('Follow your instruction.');
    if (last === 'assistant') this.#say('Go on with what was asked, or conclude.');
    return this.#messages;
  }
}

/** Texts beside each other become one: some servers take text alone only as a string. Signed texts stay as signed. */
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

/** False for a blank text, which several providers refuse. */
const isSaying = (part: AssistantPart | UserPart) => part.type !== 'text' || !isBlank(part.text);

/** A thought that nothing follows is refused: it belongs to an answer that broke off. */
function withoutLastThoughts(parts: AssistantPart[]): AssistantPart[] {
  const last = parts.findLastIndex((part) => part.type !== 'reasoning' && isSaying(part));
  return parts.filter((part, place) => part.type !== 'reasoning' || place < last);
}

/** False for thoughts that their own provider refuses: what makes them its own is missing. */
function isThought(provider: ProviderName, part: Part, data: ProviderData): boolean {
  const its = (data as Record<string, JsonObject | undefined>)[provider];
  if (provider === 'openai') return Boolean(its?.['reasoningEncryptedContent']);
  if (provider === 'anthropic') return Boolean(its?.['signature'] ?? its?.['redactedData']);
  return Boolean(part.text);
}

/** OpenRouter's thoughts, which go back unchanged. */
function getDetails(data: ProviderData): JsonObject[] {
  const details: unknown = (data as Record<string, JsonObject | undefined>)['compatible']?.['reasoningDetails'];
  return Array.isArray(details) ? (details as JsonObject[]) : [];
}

/** Text of a part; code that ran at a provider becomes text, since only that provider knows its own form. */
function getText(part: Part): string {
  if (part.executableCode) return `\`\`\`\n${part.executableCode.code ?? ''}\n\`\`\``;
  if (part.codeExecutionResult) return `Result of the code: ${part.codeExecutionResult.output ?? ''}`;
  return part.text ?? '';
}

/** Half of a pair of surrogates is no text: providers refuse it. */
const toText = (text: string): string => (text.isWellFormed() ? text : text.toWellFormed());

/** Returns a JSON value without halves of surrogates; the same one where there are none. */
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
