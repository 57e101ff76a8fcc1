import { setImmediate } from 'node:timers/promises';
import {
  type Content,
  type FunctionCall,
  type FunctionResponse,
  getFunctionResponses,
  type JsonObject,
  getParts,
  toMembers,
} from '../../core/content.ts';
import {
  CONTEXT_PREFIX,
  type Model,
  type ModelAnswer,
  type ModelDelta,
  type ModelRequest,
  type ToolChoice,
  type ToolDeclaration,
} from '../definition/model.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/** The `modelVersion` of every event of the built-in model. */
const OFFLINE = 'offline';
/** How the message begins that has the result of an agent in the background (`tell_result`). */
const RESULT_OF_AGENT = /^The agent `[^`]+`, which the call \S+ started in the background, /;

/**
 * The built-in model, which needs no API key and no network. It follows fixed rules and does not understand language.
 * It calls the tools that a prompt names, so that a new user can see a complete invocation.
 */
export function offlineModel(): Model {
  return { provider: OFFLINE, generate };
}

async function* generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  const content = answer(request);
  for (const part of getParts(content)) {
    for (const word of part.text?.match(/\S+\s*|\s+/g) ?? []) {
      request.signal.throwIfAborted();
      yield { content: { role: 'model', parts: [{ text: word }] }, modelVersion: OFFLINE };
    }
  }
  return { content, modelVersion: OFFLINE, finishReason: 'STOP', usageMetadata: await countUsage(request, content) };
}

function answer(request: ModelRequest): Content {
  const responses = getFunctionResponses(request.contents.at(-1));
  const prompt = getText(request.contents.findLast(isPrompt));
  const chosen = request.toolChoice && chooseCalls(prompt, request.tools, request.toolChoice);
  if (chosen) return { role: 'model', parts: chosen.map((functionCall) => ({ functionCall })) };
  // The result of an agent in the background names that agent, and asks for no call of it.
  if (RESULT_OF_AGENT.test(prompt)) return toContent(toForm(prompt, request) ?? prompt);
  if (responses.length > 0) return toContent(toForm(prompt, request) ?? responses.map(toSentence).join('\n'));
  const calls = toolCallsFor(prompt, request.tools);
  if (calls.length === 0) return toContent(toForm(prompt, request) ?? introduction(prompt, request));
  return { role: 'model', parts: calls.map((functionCall) => ({ functionCall })) };
}

/** The tool calls that the prompt asks for, if `choice` allows them; else one call with example arguments. */
function chooseCalls(prompt: string, tools: ToolDeclaration[], choice: ToolChoice): FunctionCall[] {
  const allowed = choice === 'required' ? tools : tools.filter(({ name }) => name === choice.name);
  const calls = toolCallsFor(prompt, allowed);
  // The last tool is called, because tools that the HTTP client brings come after the agent's own.
  const last = allowed.at(-1);
  if (calls.length > 0 || !last) return calls;
  return [{ name: last.name, args: firstObject(prompt, 0)?.value ?? toMembers(exampleOf(last.parameters)) }];
}

/** Returns a JSON object in the prompt, else an example made from the output schema. */
function toForm(prompt: string, { outputSchema, tools }: ModelRequest): string | undefined {
  if (!outputSchema) return undefined;
  const value = toolCallsFor(prompt, tools).length === 0 ? firstObject(prompt, 0)?.value : undefined;
  return JSON.stringify(value ?? exampleOf(outputSchema));
}

/** Builds an example value of a schema. `$ref` is not followed, so the example is no larger than the schema. */
function exampleOf(schema: JsonObject): unknown {
  const { type, properties, required, items, anyOf, oneOf } = schema;
  const [declared] = [schema['const'], schema['default'], first(schema['enum']), first(schema['examples'])].filter(
    (value) => value !== undefined,
  );
  const choice = first(anyOf) ?? first(oneOf);
  if (declared !== undefined) return declared;
  if (isObject(choice)) return exampleOf(choice);
  const kind = first(type) ?? type;
  if (isObject(properties)) {
    const names = Array.isArray(required) ? required.map(String) : [];
    return Object.fromEntries(names.map((name) => [name, exampleOf(toMembers(properties[name]))]));
  }
  if (kind === 'array') return schema['minItems'] ? [exampleOf(toMembers(items))] : [];
  if (kind === 'number' || kind === 'integer') return schema['minimum'] ?? 0;
  return kind === 'boolean' ? false : kind === 'object' ? {} : kind === 'null' ? null : OFFLINE;
}

const first = (list: unknown): unknown => (Array.isArray(list) ? list[0] : undefined);
const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const getText = (content: Content | undefined) =>
  getParts(content)
    .map((part) => part.text ?? '')
    .join('\n')
    .trim();

/** True for a message of the user; false for function responses and for reports of other agents' messages. */
const isPrompt = (content: Content) =>
  content.role === 'user' && getFunctionResponses(content).length === 0 && !getText(content).startsWith(CONTEXT_PREFIX);

const toContent = (value: string): Content => ({ role: 'model', parts: [{ text: value }] });

/** Describes a function response in words. If `result` is the only member, its value is quoted alone. */
function toSentence({ name, response }: FunctionResponse): string {
  if (typeof response?.['error'] === 'string') return `The tool \`${name}\` failed: ${response['error']}`;
  const [only, ...others] = Object.entries(response ?? {});
  const isLone = only !== undefined && others.length === 0 && only[0] === 'result';
  const value: unknown = isLone ? only[1] : (response ?? {});
  return `The tool \`${name}\` answered: ${typeof value === 'string' ? value : JSON.stringify(value)}`;
}

/** Maximum length of a prompt that the answer repeats in full, in characters. */
const MAX_ECHO = 500;

function introduction(prompt: string, { contents, tools }: ModelRequest): string {
  const turns = contents.filter(isPrompt).length;
  const echo = prompt.length > MAX_ECHO ? `${prompt.slice(0, MAX_ECHO)}…` : prompt;
  return [
    `I am the offline model: rules, not a language model. You wrote: "${echo}" (turn ${turns} of this session).`,
    tools.length > 0 ? `I can call ${names(tools)} when a prompt names one of them.` : 'I have no tools here.',
    'For real answers set MODEL_PROVIDER, MODEL_NAME and MODEL_API_KEY, or MODEL_BASE_URL for a local model.',
  ].join(' ');
}

const names = (tools: ToolDeclaration[]) => tools.map((tool) => `\`${tool.name}\``).join(', ');

/** Number of tokens that are counted without a pause for other work of the process: 2 ms. */
const TOKENS_AT_ONCE = 200_000;

function countTokens(value: string): number {
  let count = 0;
  for (const word of value.match(/\S+/g) ?? []) count += Math.ceil(word.length / 4);
  return count;
}

function countParts(content: Content): number {
  let count = 0;
  for (const { text, functionCall, functionResponse } of getParts(content)) {
    const data = functionCall?.args ?? functionResponse?.response;
    count += countTokens(text ?? '') + (data ? countTokens(JSON.stringify(data)) : 0);
  }
  return count;
}

async function countUsage({ instruction, contents }: ModelRequest, content: Content) {
  let promptTokenCount = countTokens(instruction);
  let sinceTurn = 0;
  for (const each of contents) {
    const count = countParts(each);
    promptTokenCount += count;
    sinceTurn += count;
    if (sinceTurn < TOKENS_AT_ONCE) continue;
    // Lets other work of the process proceed, because a long session has megabytes of text to count.
    await setImmediate();
    sinceTurn = 0;
  }
  const candidatesTokenCount = countParts(content);
  return { promptTokenCount, candidatesTokenCount, totalTokenCount: promptTokenCount + candidatesTokenCount };
}

/**
 * Returns the tool calls that a prompt asks for, in order. A prompt asks for a call by the tool's name as a whole word;
 * a JSON object after the name is the arguments, else they are `{}`. For the calculator, arithmetic in the prompt is
 * accepted too; an agent gets the prompt as its request. The calls have no ids.
 */
export function toolCallsFor(prompt: string, tools: ToolDeclaration[]): FunctionCall[] {
  const mentions = tools
    .map((tool) => ({ tool, place: prompt.search(wholeWord(tool.name)) }))
    .filter(({ place }) => place >= 0)
    .sort((one, other) => one.place - other.place);
  let end = 0;
  return mentions.flatMap(({ tool, place }, index) => {
    // A tool name within the arguments of another call asks for no call.
    if (place < end) return [];
    const object = firstObject(prompt, place);
    const isOwn = object && object.start < (mentions[index + 1]?.place ?? prompt.length);
    if (isOwn) end = object.end;
    return [{ name: tool.name, args: isOwn ? object.value : defaultArguments(tool, prompt) }];
  });
}

const wholeWord = (name: string) =>
  new RegExp(`(?<![A-Za-z0-9_])${name.replaceAll(/[^A-Za-z0-9_]/g, String.raw`\$&`)}(?![A-Za-z0-9_])`, 'i');

/** Finds the first JSON object after an index. */
function firstObject(text: string, from: number): { value: JsonObject; start: number; end: number } | undefined {
  const start = text.indexOf('{', from);
  let end = start;
  // Tries at most 20 closing braces as the object's end, because many braces must not take quadratic time.
  for (let tries = 0; start >= 0 && tries < 20; tries += 1) {
    end = text.indexOf('}', end) + 1;
    if (end === 0) return undefined;
    try {
      return { value: parseExactJson(text.slice(start, end)) as JsonObject, start, end };
    } catch {
      // The text up to this brace is no JSON object, so the next brace is tried.
    }
  }
  return undefined;
}

function defaultArguments({ name, parameters }: ToolDeclaration, prompt: string): JsonObject {
  const { properties, required } = parameters;
  if (String(required) === 'request' && Object.hasOwn(Object(properties), 'request')) return { request: prompt };
  if (name !== 'calculator') return {};
  const runs = prompt.match(/(?:\b(?:sqrt|sin|cos|tan|log|exp|abs|round|pi)\b|[\d.+\-*/^()%×÷,\s])+/g) ?? [];
  const expressions = runs
    .map((run) => run.replaceAll('×', '*').replaceAll('÷', '/').trim())
    .filter((run) => /\d/.test(run));
  const [longest = ''] = expressions.sort((one, other) => other.length - one.length);
  return { expression: withoutEnd(longest) };
}

/** Removes trailing dots, commas and blanks. A regular expression would take quadratic time: 18 s for 100,000 dots. */
function withoutEnd(text: string): string {
  let end = text.length;
  while (end > 0 && /[.,\s]/.test(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}
