import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import type { ProviderName } from '../../src/agent/providers/index.ts';

/**
 * What real providers refuse, checked on the body of a request as it came over the wire. This file knows nothing of the
 * code that makes requests. The facts stand in `test/data/providers`: `refusals.json` has each rule with its source and
 * how sure it is, `requests.json` the parts of the published request schemas, `forms.json` the bodies of errors.
 */

/**
 * Whose rules hold: those of a provider, of a model of Mistral anywhere, or of a server of the chat wire (`text-only`)
 * whose model has a strict template and sees no pictures.
 */
export type Rules = ProviderName | 'mistral-model' | 'text-only';

/** Why a request is refused: a rule of `refusals.json`, or `schema` or `common` where no single rule says so. */
export interface Refusal {
  id: string;
  where: string;
  words: string;
}

type Json = Record<string, unknown>;
interface Fact {
  provider: string;
  id: string;
  check?: Json;
  refusal: { status?: number; form?: string; type?: string; code?: string };
}

const read = (name: string): unknown =>
  JSON.parse(readFileSync(new URL(`../data/providers/${name}.json`, import.meta.url), 'utf8'));

export const FACTS = new Map((read('refusals') as Fact[]).map((fact) => [fact.id, fact]));
const FORMS = read('forms') as Record<string, { content_type: string; body: unknown }>;
const REQUESTS = read('requests') as Record<string, { schema: Json }>;

const published = new Map<string, ValidateFunction>();

function publishedSchema(name: string): ValidateFunction {
  const before = published.get(name);
  if (before) return before;
  const validate = new Ajv2020({ strict: false, allErrors: false, logger: false }).compile(
    REQUESTS[name]?.schema ?? {},
  );
  published.set(name, validate);
  return validate;
}

/** Thrown within this file by the first rule that is broken. */
class Broken extends Error {
  readonly refusal: Refusal;
  constructor(id: string, where: string, words: string) {
    super(words);
    this.refusal = { id, where, words };
  }
}

function must(isKept: unknown, id: string, where: string, words: string): asserts isKept {
  if (!isKept) throw new Broken(id, where, words);
}

/** Returns the first rule that a request breaks. */
export function findRefusal(rules: Rules, text: string): Refusal | undefined {
  try {
    must(!/(?<!\\)(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/i.test(text), 'common', 'body', 'half of a surrogate pair');
    const body = JSON.parse(text) as Json;
    if (rules === 'openai') checkResponses(body);
    else if (rules === 'anthropic') checkAnthropic(body, text);
    else if (rules === 'google') checkGoogle(body);
    else checkChat(body, rules);
    return undefined;
  } catch (error) {
    if (error instanceof Broken) return error.refusal;
    throw error;
  }
}

const FORM_OF: Record<Rules, string> = {
  openai: 'openai',
  'openai-compatible': 'openai',
  anthropic: 'anthropic',
  google: 'google',
  'mistral-model': 'mistral',
  'text-only': 'llama.cpp',
};

/** The answer to a refused request, in the form of its provider. */
export function toRefusalAnswer(rules: Rules, { id, where, words }: Refusal) {
  const fact = FACTS.get(id)?.refusal;
  const own = FORM_OF[rules];
  const name = fact?.form === own || rules === 'openai-compatible' ? (fact?.form ?? own) : own;
  const form = FORMS[name];
  const text = JSON.stringify(form?.body).replaceAll('<words>', JSON.stringify(`${where}: ${words}`).slice(1, -1));
  const body = JSON.parse(text) as { error?: unknown };
  if (name !== 'google' && isObject(body.error)) {
    if ('type' in body.error) body.error['type'] = fact?.type ?? 'invalid_request_error';
    if (typeof body.error['code'] === 'string') body.error['code'] = fact?.code ?? null;
  }
  const status = name === own && fact?.form !== own ? 400 : (fact?.status ?? 400);
  return { status, contentType: form?.content_type ?? 'application/json', body: JSON.stringify(body) };
}

const pattern = (id: string) => new RegExp(String(FACTS.get(id)?.check?.['pattern']));
const limit = (id: string, name: string) => Number(FACTS.get(id)?.check?.[name]);
const listOf = (id: string, name: string): unknown[] => (FACTS.get(id)?.check?.[name] ?? []) as unknown[];
const str = (value: unknown): string => (typeof value === 'string' ? value : (JSON.stringify(value) ?? ''));

const toList = (value: unknown): Json[] => (Array.isArray(value) ? (value as Json[]) : []);
const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function checkSchema(name: string, body: Json): void {
  const validate = publishedSchema(name);
  if (validate(body)) return;
  // The error that lies deepest says most where there are branches.
  const deepest = [...(validate.errors ?? [])].sort(
    (one, other) => other.instancePath.length - one.instancePath.length,
  )[0];
  throw new Broken(
    'schema',
    deepest?.instancePath ?? '',
    `${deepest?.message ?? ''} ${JSON.stringify(deepest?.params)}`,
  );
}

// Media

const SIGNATURES: [string, RegExp][] = [
  ['image/png', /^\x89PNG\r\n\x1a\n/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/gif', /^GIF8[79]a/],
  ['image/webp', /^RIFF[\s\S]{4}WEBP/],
];

const bytesType = (data: string) => {
  const head = Buffer.from(data.slice(0, 64), 'base64').toString('latin1');
  return SIGNATURES.find(([, signature]) => signature.test(head))?.[0];
};

function checkBase64(data: unknown, id: string, where: string): asserts data is string {
  const isStandard = typeof data === 'string' && data.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(data);
  must(isStandard, id, where, 'no standard base64, padded and not empty');
}

function checkDataUrl(url: unknown, where: string, sizeId: string): void {
  const text = str(url);
  if (/^https?:/.test(text)) return;
  const [, type = '', data = ''] = /^data:([^;,]+);base64,(.*)$/s.exec(text) ?? [];
  must(text.startsWith('data:'), 'oc-image-base64', where, 'neither an address nor a data URL');
  checkBase64(data, 'oc-image-base64', where);
  must(text.length <= limit(sizeId, 'maxLength'), sizeId, where, 'too large');
  const media = listOf('oc-image-type', 'media');
  must(media.includes(type) && bytesType(data) !== undefined, 'oc-image-type', where, `unsupported image ${type}`);
}

// Schemas of tools

/** Calls `visit` with each schema within a schema, and where it lies. */
function walk(schema: unknown, where: string, visit: (schema: Json, where: string) => void): void {
  if (!isObject(schema)) return;
  visit(schema, where);
  for (const name of ['items', 'additionalProperties', 'not', 'if', 'then', 'else', 'contains'])
    walk(schema[name], `${where}/${name}`, visit);
  for (const name of ['anyOf', 'oneOf', 'allOf', 'prefixItems'])
    toList(schema[name]).forEach((each, place) => walk(each, `${where}/${name}/${place}`, visit));
  for (const name of ['properties', 'patternProperties', '$defs', 'definitions'])
    for (const [key, each] of Object.entries(isObject(schema[name]) ? schema[name] : {}))
      walk(each, `${where}/${name}/${key}`, visit);
}

const drafts = {
  'draft-07': new Ajv({ strict: false, logger: false, validateFormats: false }),
  '2020-12': new Ajv2020({ strict: false, logger: false, validateFormats: false }),
};

function checkMeta(schema: Json, draft: keyof typeof drafts, id: string, where: string): void {
  const { $schema: _, ...rest } = schema;
  must(drafts[draft].validateSchema(rest), id, where, `no valid schema of ${draft}`);
}

function checkReferences(schema: Json, where: string): void {
  walk(schema, where, ({ $ref }, place) => {
    if ($ref === undefined) return;
    let target: unknown = schema;
    for (const step of str($ref).replace(/^#\/?/, '').split('/').filter(Boolean))
      target = isObject(target) || Array.isArray(target) ? (target as Json)[decodeURIComponent(step)] : undefined;
    must(str($ref).startsWith('#') && target !== undefined, 'common', place, `unresolved ${str($ref)}`);
  });
}

/** OpenAI's rules for schemas of arguments, which compatible servers share. */
function checkOpenAiSchema(parameters: unknown, where: string): void {
  must(isObject(parameters) && parameters['type'] === 'object', 'oc-schema-type', where, 'wants type object');
  for (const name of listOf('oc-schema-top-combinator', 'forbiddenAtTop'))
    must(!(str(name) in parameters), 'oc-schema-top-combinator', where, `${str(name)} at the top`);
  walk(parameters, where, (schema, place) => {
    const types = [schema['type']].flat();
    if (types.includes('object'))
      must(isObject(schema['properties']), 'oc-schema-object-properties', place, 'object without properties');
    if (types.includes('array')) must(isObject(schema['items']), 'oc-schema-array-items', place, 'array without items');
    checkKeys(schema, 'an-schema-keys', place);
    checkRequired(schema, 'common', place);
  });
  checkMeta(parameters, '2020-12', 'an-schema-2020', where);
  checkMeta(parameters, 'draft-07', 'mi-schema', where);
  checkReferences(parameters, where);
}

function checkKeys(schema: Json, id: string, where: string): void {
  const names = Object.keys(isObject(schema['properties']) ? schema['properties'] : {});
  for (const name of names) must(pattern(id).test(name), id, where, `property key ${name}`);
}

function checkRequired(schema: Json, id: string, where: string): void {
  const { required, properties } = schema;
  if (required === undefined || !isObject(properties)) return;
  const names = toList(required).map(str);
  must(new Set(names).size === names.length, id, where, 'required has a name twice');
  for (const name of names) must(Object.hasOwn(properties, name), id, where, `required ${name} is not defined`);
}

function checkUnique(names: unknown[], id: string, where: string): void {
  must(new Set(names).size === names.length, id, where, 'names must be unique');
}

// Chat completions

function checkChat(body: Json, rules: Rules): void {
  const messages = toList(body['messages']);
  must(messages.length > 0, 'oc-messages-empty', 'messages', 'empty');
  checkChatTools(body);
  messages.forEach((message, place) => checkChatMessage(message, `messages[${place}]`, rules));
  checkSchema('openai-chat', body);
  checkChatCalls(messages);
  checkChatOrder(messages, rules);
  if (body['stop'] !== undefined)
    must(toList(body['stop']).length <= limit('oc-stop', 'maxItems'), 'oc-stop', 'stop', 'too many');
  if (isObject(body['response_format']) && body['response_format']['type'] === 'json_object')
    must(/json/i.test(JSON.stringify(messages)), 'oc-json-word', 'messages', 'the word json is missing');
}

function checkChatTools(body: Json): void {
  if (body['tools'] === undefined) {
    const isAlone = body['tool_choice'] === undefined && body['parallel_tool_calls'] === undefined;
    must(isAlone, 'oc-tool-choice-alone', 'tool_choice', 'allowed only with tools');
    return;
  }
  const tools = toList(body['tools']);
  must(tools.length >= 1, 'oc-tools-min', 'tools', 'empty');
  must(tools.length <= limit('oc-tools-max', 'maxItems'), 'oc-tools-max', 'tools', 'too many');
  tools.forEach((tool, place) => {
    const { name, description = '', parameters } = (tool['function'] ?? {}) as Json;
    const where = `tools[${place}].function`;
    must(pattern('oc-tool-name').test(str(name)), 'oc-tool-name', `${where}.name`, 'wrong name');
    const length = str(description).length;
    must(length <= limit('oc-tool-description', 'maxLength'), 'oc-tool-description', where, 'description too long');
    checkOpenAiSchema(parameters, `${where}.parameters`);
  });
  checkUnique(
    tools.map((tool) => (tool['function'] as Json)['name']),
    'an-tool-names-unique',
    'tools',
  );
  const { tool_choice } = body;
  if (tool_choice !== undefined)
    must(['none', 'auto', 'required'].includes(str(tool_choice)), 'lm-tool-choice', 'tool_choice', 'no word');
}

function checkChatMessage(message: Json, where: string, rules: Rules): void {
  const { role, content, tool_calls } = message;
  must(listOf('oc-role', 'enum').includes(role), 'oc-role', where, `role ${str(role)}`);
  if (tool_calls !== undefined) must(toList(tool_calls).length > 0, 'oc-tool-calls-empty', where, 'empty tool_calls');
  if (content === null || content === undefined) {
    must(role === 'assistant' && tool_calls, 'oc-assistant-content-required', where, 'content is null');
  } else if (typeof content === 'string') must(/\S/.test(content), 'ar-content-empty', where, 'content is blank');
  else {
    const parts = toList(content);
    must(parts.length > 0, 'oc-content-list-empty', where, 'empty list');
    must(rules !== 'text-only', 'de-content-string', where, 'a sequence, expected a string');
    const isAlone = parts.every((part) => part['type'] === 'text');
    must(!isAlone, 'de-content-string', where, 'text alone is no string');
    const types = role === 'user' ? listOf('oc-user-parts', 'partTypes') : ['text'];
    const id = role === 'user' ? 'oc-user-parts' : role === 'tool' ? 'oc-tool-text-only' : 'oc-assistant-parts';
    for (const part of parts) {
      must(types.includes(part['type']), id, where, `part ${str(part['type'])}`);
      checkChatPart(part, where);
    }
  }
  for (const call of toList(tool_calls)) {
    const { arguments: args } = call['function'] as Json;
    must(typeof args === 'string', 'oc-call-arguments-string', where, 'arguments are no text');
    must(isObject(tryParse(args)), 'ol-arguments', where, 'arguments are no JSON object');
    const name = str((call['function'] as Json)['name']);
    must(pattern('mi-tool-name').test(name), 'mi-tool-name', where, `function name ${name}`);
  }
  if (rules !== 'mistral-model') return;
  const known = new Set(['role', 'content', 'tool_calls', 'tool_call_id', 'name', 'prefix']);
  for (const name of Object.keys(message)) must(known.has(name), 'mi-extra', where, `extra input ${name}`);
}

function checkChatPart(part: Json, where: string): void {
  if (part['type'] === 'text') must(/\S/.test(str(part['text'])), 'ar-content-empty', where, 'blank text part');
  if (part['type'] === 'image_url') checkDataUrl((part['image_url'] as Json)['url'], where, 'oc-image-size');
  if (part['type'] === 'input_audio') {
    const { data, format } = part['input_audio'] as Json;
    checkBase64(data, 'oc-image-base64', where);
    must(['wav', 'mp3'].includes(str(format)), 'oc-user-parts', where, `audio ${str(format)}`);
  }
  if (part['type'] === 'file') {
    const url = str((part['file'] as Json)['file_data']);
    must(url.startsWith('data:application/pdf;base64,'), 'oc-user-parts', where, 'no pdf');
    checkBase64(url.slice(url.indexOf(',') + 1), 'oc-image-base64', where);
  }
}

function tryParse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function checkChatCalls(messages: Json[]): void {
  let open = new Set<unknown>();
  const seen = new Set<unknown>();
  messages.forEach((message, place) => {
    const where = `messages[${place}]`;
    const { role, tool_call_id: answered } = message;
    if (role === 'tool') {
      must(open.delete(answered), 'oc-tool-orphan', where, 'a tool message without its call');
      return;
    }
    must(open.size === 0, 'oc-calls-answered', where, `no response to ${[...open].join()}`);
    open = new Set(toList(message['tool_calls']).map(({ id }) => id));
    for (const id of open) {
      must(typeof id === 'string' && id !== '', 'or-call-id', where, 'empty id');
      must(id.length <= limit('oc-call-id-length', 'maxLength'), 'oc-call-id-length', where, 'id too long');
      must(!seen.has(id), 'an-tool-id-unique', where, `id ${id} twice`);
      seen.add(id);
    }
    must(open.size === toList(message['tool_calls']).length, 'an-tool-id-unique', where, 'an id twice');
  });
  must(open.size === 0, 'mi-answers', 'messages', 'calls without responses at the end');
}

/** What chat templates and Mistral's validator want: the strictest of all. */
function checkChatOrder(messages: Json[], rules: Rules): void {
  const roles = messages.map(({ role }) => str(role));
  const systems = roles.filter((role) => role === 'system' || role === 'developer');
  must(systems.length <= 1 && roles.indexOf('system') <= 0, 'vl-one-system', 'messages', 'system must be the first');
  const rest = roles.filter((role) => role !== 'system');
  must(rest[0] === 'user', 'vl-alternate', 'messages', 'a user must be first');
  must(['user', 'tool'].includes(rest.at(-1) ?? ''), 'mi-last', 'messages', 'expected last role user or tool');
  const behindTool = rules === 'mistral-model' ? ['assistant', 'tool'] : ['assistant', 'tool', 'user'];
  const after: Record<string, string[]> = { user: ['assistant'], assistant: ['user', 'tool'], tool: behindTool };
  if (rules === 'mistral-model' || rules === 'text-only') {
    rest.forEach((role, place) => {
      const before = rest[place - 1];
      const id = rules === 'mistral-model' ? 'mi-order' : 'll-alternate';
      must(!before || after[before]?.includes(role), id, `messages[${place}]`, `unexpected ${role} after ${before}`);
    });
  }
  if (rules !== 'mistral-model') return;
  const ids = messages.flatMap((message) => [
    ...toList(message['tool_calls']).map(({ id }) => id),
    ...(message['role'] === 'tool' ? [message['tool_call_id']] : []),
  ]);
  for (const id of ids) must(pattern('mi-call-id').test(str(id)), 'mi-call-id', 'messages', `id ${str(id)}`);
}

// Responses

function checkResponses(body: Json): void {
  const input = toList(body['input']);
  checkSchema('openai-responses', body);
  toList(body['tools']).forEach((tool, place) => {
    const where = `tools[${place}]`;
    must(pattern('or-tool-name').test(str(tool['name'])), 'or-tool-name', where, 'wrong name');
    must(str(tool['name']).length <= 64, 'or-tool-name', where, 'name too long');
    const length = str(tool['description'] ?? '').length;
    must(length <= limit('oc-tool-description', 'maxLength'), 'oc-tool-description', where, 'description too long');
    must(typeof tool['strict'] === 'boolean', 'or-strict-default', where, 'strict is absent');
    checkOpenAiSchema(tool['parameters'], where);
  });
  checkUnique(
    toList(body['tools']).map(({ name }) => name),
    'an-tool-names-unique',
    'tools',
  );
  const calls = new Set<unknown>();
  const answered = new Set<unknown>();
  input.forEach((item, place) => {
    const where = `input[${place}]`;
    const { type, call_id: id } = item;
    if (type === 'function_call' || type === 'function_call_output') {
      const length = str(id ?? '').length;
      const { minLength, maxLength } = FACTS.get('or-call-id')?.check ?? {};
      must(
        length >= Number(minLength) && length <= Number(maxLength),
        'or-call-id',
        where,
        'call_id of a wrong length',
      );
    }
    if (type === 'function_call') {
      must(!calls.has(id), 'an-tool-id-unique', where, 'call_id twice');
      calls.add(id);
      must(pattern('or-tool-name').test(str(item['name'])), 'or-tool-name', where, 'wrong name');
      if (item['id'] !== undefined)
        must(pattern('or-item-id-prefix').test(str(item['id'])), 'or-item-id-prefix', where, 'id');
    }
    if (type === 'function_call_output') {
      must(calls.has(id), 'or-output-orphan', where, 'no tool call found for function call output');
      must(!answered.has(id), 'or-output-orphan', where, 'answered twice');
      answered.add(id);
    }
    if (type === 'reasoning') {
      must(item['encrypted_content'], 'or-reasoning-unknown', where, 'item not found');
      const next = input.slice(place + 1).find((each) => each['type'] !== 'reasoning');
      const isFollowed = next?.['type'] === 'function_call' || next?.['role'] === 'assistant';
      must(isFollowed, 'or-reasoning-alone', where, 'reasoning without its required following item');
    }
    if (item['role'] !== undefined) must(listOf('or-roles', 'enum').includes(item['role']), 'or-roles', where, 'role');
    for (const part of [...toList(item['content']), ...toList(item['output'])]) checkResponsesPart(part, where);
  });
  for (const id of calls) must(answered.has(id), 'or-call-unanswered', 'input', `no tool output found for ${str(id)}`);
}

function checkResponsesPart(part: Json, where: string): void {
  if (part['type'] === 'input_image') checkDataUrl(part['image_url'], where, 'oc-image-size');
  const data = part['file_data'];
  if (data === undefined) return;
  must(str(data).startsWith('data:application/pdf;base64,'), 'or-parts', where, 'no pdf');
  checkBase64(str(data).slice(str(data).indexOf(',') + 1), 'oc-image-base64', where);
}

// Anthropic

function checkAnthropic(body: Json, text: string): void {
  must(text.length <= limit('an-body-size', 'maxBytes'), 'an-body-size', 'body', 'too large');
  must(
    Number(body['max_tokens']) >= limit('an-max-tokens', 'minimum'),
    'an-max-tokens',
    'max_tokens',
    'field required',
  );
  const messages = toList(body['messages']);
  const blocksOf = ({ content }: Json): Json[] =>
    typeof content === 'string' ? [{ type: 'text', text: content }] : toList(content);
  messages.forEach((message, place) => {
    const where = `messages.${place}`;
    must(listOf('an-role', 'enum').includes(message['role']), 'an-role', where, 'role');
    for (const block of blocksOf(message)) checkBlock(block, where);
  });
  for (const block of toList(body['system']))
    must(pattern('an-text-blank').test(str(block['text'])), 'an-text-blank', 'system', 'text must be non-empty');
  must(messages[0]?.['role'] === 'user', 'an-role', 'messages.0', 'first message must be the user’s');
  must(messages.at(-1)?.['role'] === 'user', 'an-prefill', 'messages', 'must end with a user message');
  checkSchema('anthropic', body);
  checkAnthropicCalls(messages, blocksOf);
  checkAnthropicTools(toList(body['tools']));
  const media = messages.flatMap(blocksOf).flatMap((block) => [block, ...toList(block['content'])]);
  const count = media.filter(({ type }) => type === 'image' || type === 'document').length;
  must(count <= limit('an-media-count', 'max'), 'an-media-count', 'messages', 'too much media');
  const marks = text.split('"cache_control":').length - 1;
  must(marks <= limit('an-cache-count', 'max'), 'an-cache-count', 'body', `found ${marks} cache marks`);
  for (const stop of toList(body['stop_sequences']))
    must(pattern('an-stop-blank').test(str(stop)), 'an-stop-blank', 'stop_sequences', 'blank');
}

function checkBlock(block: Json, where: string): void {
  const { type } = block;
  if (type === 'text') must(pattern('an-text-blank').test(str(block['text'])), 'an-text-blank', where, 'blank text');
  if (type === 'tool_use') {
    must(pattern('an-tool-id').test(str(block['id'])), 'an-tool-id', where, 'id');
    must(isObject(block['input']), 'an-tool-input', where, 'input should be a valid dictionary');
    must(pattern('an-tool-name').test(str(block['name'])), 'an-tool-name', where, 'name');
  }
  if (type === 'thinking') must(block['signature'], 'an-thinking-signature', where, 'invalid signature');
  if (type === 'tool_result') {
    must(pattern('an-tool-id').test(str(block['tool_use_id'])), 'an-tool-id', where, 'tool_use_id');
    const types = listOf('an-result-parts', 'partTypes');
    for (const part of toList(block['content'])) {
      must(types.includes(part['type']), 'an-result-parts', where, `part ${str(part['type'])}`);
      checkBlock(part, where);
    }
  }
  if (type !== 'image' && type !== 'document') return;
  const source = block['source'] as Json;
  if (source['type'] === 'url') return;
  const kind = str(source['media_type']);
  if (type === 'document') {
    must(listOf('an-document', 'media').includes(kind), 'an-document', where, kind);
    if (source['type'] === 'base64') checkBase64(source['data'], 'an-base64', where);
    return;
  }
  must(listOf('an-image-media', 'enum').includes(kind), 'an-image-media', where, kind);
  const { data } = source;
  checkBase64(data, 'an-base64', where);
  must(bytesType(data) === kind, 'an-image-match', where, 'image does not match the provided media type');
  must(data.length <= limit('an-image-size', 'maxBytes'), 'an-image-size', where, 'image exceeds 5 MB');
}

function checkAnthropicCalls(messages: Json[], blocksOf: (message: Json) => Json[]): void {
  const seen = new Set<unknown>();
  messages.forEach((message, place) => {
    const where = `messages.${place}`;
    const blocks = blocksOf(message);
    const before = messages[place - 1];
    must(before?.['role'] !== message['role'], 'an-role', where, 'roles must alternate');
    const asked = before?.['role'] === 'assistant' ? blocksOf(before).filter(({ type }) => type === 'tool_use') : [];
    const results = blocks.filter(({ type }) => type === 'tool_result');
    const answered = results.map((block) => block['tool_use_id']);
    for (const { id } of asked)
      must(answered.includes(id), 'an-calls-answered', where, `no tool_result for ${str(id)}`);
    for (const id of answered)
      must(
        asked.some((call) => call['id'] === id),
        'an-result-orphan',
        where,
        'unexpected tool_use_id',
      );
    const isFirst = blocks.slice(0, results.length).every(({ type }) => type === 'tool_result');
    must(isFirst && new Set(answered).size === answered.length, 'an-calls-answered', where, 'results must be first');
    for (const { type, id } of blocks) {
      if (type !== 'tool_use') continue;
      must(!seen.has(id), 'an-tool-id-unique', where, 'tool_use ids must be unique');
      seen.add(id);
    }
    const last = str(blocks.at(-1)?.['type']);
    must(message['role'] === 'user' || !last.endsWith('thinking'), 'an-thinking-changed', where, 'ends with a thought');
  });
}

function checkAnthropicTools(tools: Json[]): void {
  checkUnique(
    tools.map(({ name }) => name),
    'an-tool-names-unique',
    'tools',
  );
  tools.forEach((tool, place) => {
    const where = `tools.${place}.custom.input_schema`;
    must(pattern('an-tool-name').test(str(tool['name'])), 'an-tool-name', where, 'name');
    const schema = tool['input_schema'];
    must(isObject(schema) && schema['type'] === 'object', 'an-schema-type', where, 'type: field required');
    for (const name of listOf('an-schema-top-combinator', 'forbiddenAtTop'))
      must(!(str(name) in schema), 'an-schema-top-combinator', where, `${str(name)} at the top`);
    checkMeta(schema, '2020-12', 'an-schema-2020', where);
    walk(schema, where, (each, at) => {
      checkKeys(each, 'an-schema-keys', at);
      if (Array.isArray(each['required'])) checkUnique(each['required'], 'an-schema-2020', at);
    });
    checkReferences(schema, where);
  });
}

// Google

function checkGoogle(body: Json): void {
  const contents = toList(body['contents']);
  contents.forEach((content, place) => {
    const where = `contents[${place}]`;
    const { role } = content;
    const known = listOf('go-role', 'enum');
    must(role === undefined || known.includes(role), 'go-role', where, 'use a valid role');
    const parts = toList(content['parts']);
    must(parts.length >= limit('go-parts-empty', 'minItems'), 'go-parts-empty', where, 'parts must not be empty');
    for (const part of parts) checkGooglePart(part, where);
    const before = contents[place - 1];
    const asked = toList(before?.['parts']).filter((part) => part['functionCall']).length;
    const answered = parts.filter((part) => part['functionResponse']).length;
    must(asked === answered, 'go-response-count', where, `${answered} responses to ${asked} calls`);
    if (parts.some((part) => part['functionCall']))
      must(before && before['role'] !== 'model', 'go-call-after-user', where, 'call not right after a user turn');
  });
  const open = toList(contents.at(-1)?.['parts']).some((part) => part['functionCall']);
  must(!open && contents.at(-1)?.['role'] !== 'model', 'go-response-count', 'contents', 'ends with the model');
  const { tools } = body;
  for (const declaration of toList(tools).flatMap((tool) => toList(tool['functionDeclarations']))) {
    must(pattern('go-tool-name').test(str(declaration['name'])), 'go-tool-name', 'tools', 'invalid function name');
    walk(declaration['parametersJsonSchema'], str(declaration['name']), (schema, at) => {
      checkKeys(schema, 'go-schema-keys', at);
      checkRequired(schema, 'go-schema-required', at);
    });
  }
  const names = toList(tools).flatMap((tool) => toList(tool['functionDeclarations']).map(({ name }) => name));
  checkUnique(names, 'an-tool-names-unique', 'tools');
  checkSchema('google', body);
}

function checkGooglePart(part: Json, where: string): void {
  const kinds = 'text inlineData fileData functionCall functionResponse executableCode codeExecutionResult'.split(' ');
  must(kinds.filter((kind) => part[kind] !== undefined).length === 1, 'go-part-data', where, 'one initialized field');
  const { text, functionCall, functionResponse } = part;
  if (text !== undefined)
    must(str(text).length >= limit('go-text-empty-vertex', 'minLength'), 'go-text-empty-vertex', where, 'empty text');
  if (isObject(functionCall)) must(isObject(functionCall['args'] ?? {}), 'go-struct', where, 'args are no Struct');
  if (isObject(functionResponse)) {
    must(isObject(functionResponse['response']), 'go-struct', where, 'response is no Struct');
    for (const each of toList(functionResponse['parts'])) checkBlob(each['inlineData'], where);
  }
  checkBlob(part['inlineData'], where);
}

function checkBlob(blob: unknown, where: string): void {
  if (!isObject(blob)) return;
  const type = str(blob['mimeType']);
  const isTaken = /^(?:image\/(?:png|jpeg|webp|heic|heif)|(?:audio|video|text)\/.+|application\/pdf)$/.test(type);
  must(isTaken, 'go-mime', where, `unsupported MIME type: ${type}`);
  must(/^[A-Za-z0-9+/_-]+={0,2}$/.test(str(blob['data'])), 'go-base64', where, 'base64 decoding failed');
}
