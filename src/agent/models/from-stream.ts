import type { Part } from '../../core/content.ts';
import { splitUnopened, ThoughtTags } from './thought-tags.ts';
import { parseArguments } from '../../core/parse-json.ts';
import type { UsageMetadata } from '../../core/model-metadata.ts';
import type { ModelAnswer, ModelDelta } from '../definition/model.ts';
import { ModelFailure } from '../providers/model-error.ts';
import type { Provider, ProviderData, StreamPart } from '../providers/provider.ts';
import { toSignature } from './signature.ts';

type Finish = Extract<StreamPart, { type: 'finish' }>;

interface StreamedAnswer {
  provider: Provider;
  parts: Part[];
  /** Parts of the output's blocks that are not closed yet, by block id. */
  open: Map<string, Part>;
  citations: { uri?: string; title?: string }[];
  modelVersion: string | undefined;
  grounding: ModelAnswer['groundingMetadata'];
  finish: Finish | undefined;
  tags: ThoughtTags;
  /** Id of the newest text block of the stream. */
  textId: string;
}

/**
 * Yields each new text, and returns the whole output. `modelName` is the model version if the provider reports none.
 * @throws {ModelFailure} or the stream's own error, also if the stream ends without a finish
 */
export async function* readStream(
  stream: AsyncIterable<StreamPart>,
  provider: Provider,
  modelName: string,
): AsyncGenerator<ModelDelta, ModelAnswer, void> {
  const answer: StreamedAnswer = {
    provider,
    parts: [],
    open: new Map(),
    citations: [],
    modelVersion: undefined,
    grounding: undefined,
    finish: undefined,
    tags: new ThoughtTags(),
    textId: '',
  };
  const toDelta = (part: Part): ModelDelta => ({
    content: { role: 'model', parts: [part] },
    modelVersion: answer.modelVersion ?? modelName,
  });
  for await (const part of stream) {
    if (part.type === 'error') throw part.error;
    for (const delta of addPart(answer, part)) yield toDelta(delta);
  }
  for (const delta of addText(answer, answer.tags.end())) yield toDelta(delta);
  settleThoughts(answer);
  return toAnswer(answer, modelName);
}

/** Adds a stream part to the output; returns the new text that it brings. */
function addPart(answer: StreamedAnswer, part: StreamPart): Part[] {
  if (part.type === 'text-delta') {
    answer.textId = part.id;
    sign(answer, getBlock(answer, part.id, false), part.providerMetadata);
    return addText(answer, answer.tags.read(part.delta));
  }
  if (part.type === 'reasoning-delta') {
    const block = getBlock(answer, part.id, true);
    block.text = (block.text ?? '') + part.delta;
    sign(answer, block, part.providerMetadata);
    return part.delta === '' ? [] : [{ text: part.delta, thought: true }];
  }
  if (part.type === 'reasoning-start' || part.type === 'text-start') {
    sign(answer, getBlock(answer, part.id, part.type === 'reasoning-start'), part.providerMetadata);
  } else if (part.type === 'reasoning-end' || part.type === 'text-end') {
    sign(answer, getBlock(answer, part.id, part.type === 'reasoning-end'), part.providerMetadata);
    answer.open.delete(part.id);
  } else addWholePart(answer, part);
  return [];
}

/** Adds text to the output; text within thought tags (`<think>`) becomes a thought. */
function addText(answer: StreamedAnswer, pieces: Part[]): Part[] {
  for (const { text = '', thought = false } of pieces) {
    const block = thought ? getTagged(answer) : getBlock(answer, answer.textId, false);
    block.text = (block.text ?? '') + text;
  }
  return pieces;
}

/** Returns the part for a thought within tags. It is before the part with the text after the tags. */
function getTagged(answer: StreamedAnswer): Part {
  const key = `tagged:${answer.textId}`;
  const open = answer.open.get(key);
  if (open) return open;
  const block: Part = { text: '', thought: true };
  sign(answer, block, undefined);
  answer.open.set(key, block);
  const place = answer.parts.indexOf(getBlock(answer, answer.textId, false));
  answer.parts.splice(place, 0, block);
  return block;
}

/**
 * Corrects thoughts when the output is complete: a thought without a closing tag may be the answer itself, and a
 * thought may have a closing tag only.
 */
function settleThoughts(answer: StreamedAnswer): void {
  const { tags, parts, finish } = answer;
  const isAnswer = (part: Part) => (part.text && part.thought !== true) || part.functionCall !== undefined;
  if (tags.isOpen && finish?.finishReason.unified === 'stop' && !parts.some(isAnswer)) {
    // The model produced no other text, so the thought without a closing tag is the answer.
    const thought = answer.open.get(`tagged:${answer.textId}`);
    if (!thought) return;
    delete thought.thought;
    delete thought.thoughtSignature;
    thought.text = tags.opening + (thought.text ?? '');
    return;
  }
  const first = parts.findIndex((part) => part.text && part.thought !== true);
  const split = answer.provider.mayOmitThoughtTag ? splitUnopened(parts[first]?.text ?? '') : undefined;
  if (!split) return;
  const thought: Part = { text: split.thought, thought: true };
  sign(answer, thought, undefined);
  parts.splice(first, 1, thought, { ...parts[first], text: split.text });
}

function addWholePart(answer: StreamedAnswer, part: StreamPart): void {
  if (part.type === 'tool-call' && part.providerExecuted !== true) {
    const call: Part = toCall(part, answer.provider);
    sign(answer, call, part.providerMetadata);
    answer.parts.push(call);
  } else if (part.type === 'file' && part.data.type === 'data') {
    const data = typeof part.data.data === 'string' ? part.data.data : Buffer.from(part.data.data).toString('base64');
    answer.parts.push({ inlineData: { mimeType: part.mediaType, data } });
  } else if (part.type === 'source') {
    const title = part.title ? { title: part.title } : {};
    answer.citations.push(part.sourceType === 'url' ? { uri: part.url, ...title } : title);
  } else if (part.type === 'response-metadata') answer.modelVersion = part.modelId ?? answer.modelVersion;
  else if (part.type === 'raw') readRawChunk(answer, part.rawValue);
  else if (part.type === 'finish') {
    answer.finish = part;
    addDetails(answer, part);
  }
}

/** Stores thoughts of the whole message, to be sent back unchanged, on the first thought or on a new empty one. */
function addDetails(answer: StreamedAnswer, { providerMetadata = {} }: Finish): void {
  const data = answer.provider.messageThoughts?.read(providerMetadata);
  if (!data) return;
  const first = answer.parts.find(({ thought }) => thought === true);
  const thought: Part = first ?? { text: '', thought: true };
  if (!first) answer.parts.unshift(thought);
  thought.thoughtSignature = toSignature(answer.provider.name, data);
}

function readRawChunk(answer: StreamedAnswer, raw: unknown): void {
  const { modelVersion, grounding } = answer.provider.readChunk?.(raw) ?? {};
  answer.modelVersion = modelVersion ?? answer.modelVersion;
  answer.grounding = grounding ?? answer.grounding;
}

function getBlock(answer: StreamedAnswer, id: string, thought: boolean): Part {
  const key = `${thought ? 'thought' : 'text'}:${id}`;
  const open = answer.open.get(key);
  if (open) return open;
  const block: Part = thought ? { text: '', thought: true } : { text: '' };
  answer.open.set(key, block);
  answer.parts.push(block);
  return block;
}

/** Signs a thought, because the signature names its provider; another part only if the provider sent signature data. */
function sign(answer: StreamedAnswer, part: Part, data: ProviderData | undefined): void {
  const isSigned = Object.values(data ?? {}).some((namespace) => namespace?.['thoughtSignature'] !== undefined);
  if (part.thought === true ? data !== undefined || !part.thoughtSignature : isSigned)
    part.thoughtSignature = toSignature(answer.provider.name, data);
}

function toCall(call: Extract<StreamPart, { type: 'tool-call' }>, provider: Provider): Part {
  const identity = { id: call.toolCallId, name: call.toolName };
  const input = provider.readArguments?.(call.input) ?? call.input;
  const args = parseArguments(input);
  if (args) return { functionCall: { ...identity, args } };
  return { functionCall: { ...identity, args: {} }, partMetadata: { invalidArguments: input.slice(0, 2_000) } };
}

function toAnswer(answer: StreamedAnswer, modelName: string): ModelAnswer {
  const { finish, citations, grounding } = answer;
  if (!finish || finish.finishReason.unified === 'interrupted') throw new ModelFailure('model_stream_cut');
  if (finish.finishReason.unified === 'error') throw new ModelFailure('model_bad_response');
  const usageMetadata = toUsage(finish.usage, answer.provider);
  return {
    content: { role: 'model', parts: answer.parts.filter((part) => part.text !== '' || part.thoughtSignature) },
    modelVersion: answer.modelVersion ?? modelName,
    finishReason: toFinishReason(finish.finishReason, answer.provider),
    ...(usageMetadata ? { usageMetadata } : {}),
    ...(grounding ? { groundingMetadata: grounding } : {}),
    ...(citations.length > 0 ? { citationMetadata: { citations } } : {}),
  };
}

/** Translates other providers' finish reasons to Gemini's, as in ADK. */
function toFinishReason({ unified, raw }: Finish['finishReason'], provider: Provider): string {
  const own = raw ? provider.toFinishReason?.(raw) : undefined;
  if (own !== undefined) return own;
  if (unified === 'length') return 'MAX_TOKENS';
  if (unified === 'content-filter') return 'SAFETY';
  return unified === 'other' ? 'OTHER' : 'STOP';
}

/**
 * Converts token counts to ADK's: prompt tokens include cached ones, output tokens exclude thoughts. The AI SDK
 * packages, except Gemini's, count thoughts as output, and cache reads and writes as input.
 */
function toUsage(usage: Finish['usage'], provider: Provider): UsageMetadata | undefined {
  if (provider.toUsage && usage.raw) return provider.toUsage(usage.raw);
  const { inputTokens, outputTokens } = usage;
  // Two counts of 0 are missing counts: the AI SDK package for Anthropic reports those as 0.
  if (!inputTokens.total && !outputTokens.total) return undefined;
  const prompt = inputTokens.total ?? 0;
  const output = outputTokens.total ?? 0;
  const thoughts = outputTokens.reasoning ?? 0;
  return {
    promptTokenCount: prompt,
    candidatesTokenCount: Math.max(output - thoughts, 0),
    totalTokenCount: prompt + output,
    ...(thoughts > 0 ? { thoughtsTokenCount: thoughts } : {}),
    ...(inputTokens.cacheRead ? { cachedContentTokenCount: inputTokens.cacheRead } : {}),
  };
}
