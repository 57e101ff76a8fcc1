import type { JsonObject, Part } from '../../core/content.ts';
import { unpackArguments } from './clean-google.ts';
import { splitUnopened, ThoughtTags } from './thought-tags.ts';
import { parseArguments } from '../../core/parse-json.ts';
import type { UsageMetadata } from '../../core/model-metadata.ts';
import type { ModelAnswer, ModelDelta } from '../definition/model.ts';
import { ModelFailure } from './model-error.ts';
import type { ProviderName, StreamPart } from './provider.ts';
import { toSignature, type ProviderData } from './signature.ts';

type Finish = Extract<StreamPart, { type: 'finish' }>;

/** An answer as far as it has come. */
interface StreamedAnswer {
  provider: ProviderName;
  parts: Part[];
  /** Parts whose block is still open, by the block's id. */
  open: Map<string, Part>;
  citations: { uri?: string; title?: string }[];
  modelVersion: string | undefined;
  grounding: ModelAnswer['groundingMetadata'];
  finish: Finish | undefined;
  tags: ThoughtTags;
  /** The id of the block of text that came last. */
  textId: string;
}

/**
 * Yields a stream's new text and returns the whole answer; `modelName` stands in for a version that is not told.
 * @throws {ModelFailure} or the stream's own error, also where the stream ends without a finish.
 */
export async function* readStream(
  stream: AsyncIterable<StreamPart>,
  provider: ProviderName,
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
  const told = (part: Part): ModelDelta => ({
    content: { role: 'model', parts: [part] },
    modelVersion: answer.modelVersion ?? modelName,
  });
  for await (const part of stream) {
    if (part.type === 'error') throw part.error;
    for (const delta of addPart(answer, part)) yield told(delta);
  }
  for (const delta of addText(answer, answer.tags.end())) yield told(delta);
  settleThoughts(answer);
  return toAnswer(answer, modelName);
}

/** Adds one part of the stream to the answer; returns the texts that it adds. */
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

/** Adds text of the block that came last, of which some is a thought in tags. */
function addText(answer: StreamedAnswer, pieces: Part[]): Part[] {
  for (const { text = '', thought = false } of pieces) {
    const block = thought ? getTagged(answer) : getBlock(answer, answer.textId, false);
    block.text = (block.text ?? '') + text;
  }
  return pieces;
}

/** The thought stands before the text whose block it came in. */
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

/** What only the end of the answer tells: whether its thought was one, and where it ended without having begun. */
function settleThoughts(answer: StreamedAnswer): void {
  const { tags, parts, finish } = answer;
  const isAnswer = (part: Part) => (part.text && part.thought !== true) || part.functionCall !== undefined;
  if (tags.isOpen && finish?.finishReason.unified === 'stop' && !parts.some(isAnswer)) {
    // The model has said nothing else.
    const thought = answer.open.get(`tagged:${answer.textId}`);
    if (!thought) return;
    delete thought.thought;
    delete thought.thoughtSignature;
    thought.text = tags.opening + (thought.text ?? '');
    return;
  }
  const first = parts.findIndex((part) => part.text && part.thought !== true);
  const found = answer.provider === 'openai-compatible' ? splitUnopened(parts[first]?.text ?? '') : undefined;
  if (!found) return;
  const thought: Part = { text: found.thought, thought: true };
  sign(answer, thought, undefined);
  parts.splice(first, 1, thought, { ...parts[first], text: found.text });
}

function addWholePart(answer: StreamedAnswer, part: StreamPart): void {
  if (part.type === 'tool-call' && part.providerExecuted !== true) {
    const call: Part = toCall(part);
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

/** Thoughts that go back unchanged stand with the first thought, or with one of their own where none is shown. */
function addDetails(answer: StreamedAnswer, { providerMetadata }: Finish): void {
  const reasoningDetails = providerMetadata?.['compatible']?.['reasoningDetails'];
  if (answer.provider !== 'openai-compatible' || reasoningDetails === undefined) return;
  const first = answer.parts.find(({ thought }) => thought === true);
  const thought: Part = first ?? { text: '', thought: true };
  if (!first) answer.parts.unshift(thought);
  thought.thoughtSignature = toSignature(answer.provider, {
    compatible: { reasoningDetails },
  } as unknown as ProviderData);
}

/** Gemini's own chunk names the version that answered and the sources of its claims; the package leaves some out. */
function readRawChunk(answer: StreamedAnswer, raw: unknown): void {
  const chunk = raw as
    | { modelVersion?: string; candidates?: { groundingMetadata?: StreamedAnswer['grounding'] }[] }
    | undefined;
  if (typeof chunk?.modelVersion === 'string') answer.modelVersion = chunk.modelVersion;
  answer.grounding = chunk?.candidates?.[0]?.groundingMetadata ?? answer.grounding;
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

/** Thoughts always say who made them; other parts keep a signature only where the provider gave one. */
function sign(answer: StreamedAnswer, part: Part, metadata: Record<string, JsonObject> | undefined): void {
  const data = metadata as ProviderData | undefined;
  const isSigned = Object.values(metadata ?? {}).some((namespace) => namespace?.['thoughtSignature'] !== undefined);
  if (part.thought === true ? data !== undefined || !part.thoughtSignature : isSigned)
    part.thoughtSignature = toSignature(answer.provider, data);
}

function toCall(call: Extract<StreamPart, { type: 'tool-call' }>): Part {
  const named = { id: call.toolCallId, name: call.toolName };
  const input = unpackArguments(call.input);
  const args = parseArguments(input);
  if (args) return { functionCall: { ...named, args } };
  return { functionCall: { ...named, args: {} }, partMetadata: { invalidArguments: input.slice(0, 2_000) } };
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

/** Gemini's names, which the wire uses; other providers' reasons are translated. */
function toFinishReason({ unified, raw }: Finish['finishReason'], provider: ProviderName): string {
  if (provider === 'google' && raw && /^[A-Z_]+$/.test(raw)) return raw;
  if (unified === 'length') return 'MAX_TOKENS';
  if (unified === 'content-filter') return 'SAFETY';
  return unified === 'other' ? 'OTHER' : 'STOP';
}

const GEMINI_COUNTS = [
  'promptTokenCount',
  'candidatesTokenCount',
  'thoughtsTokenCount',
  'cachedContentTokenCount',
  'toolUsePromptTokenCount',
  'totalTokenCount',
  'promptTokensDetails',
  'candidatesTokensDetails',
  'cacheTokensDetails',
  'toolUsePromptTokensDetails',
  'trafficType',
] as const;

/**
 * Counts as the wire does: prompt tokens include cached ones, answer tokens leave thoughts out. The packages, but for
 * Gemini's, count output with thoughts and input with cache reads and writes.
 */
function toUsage(usage: Finish['usage'], provider: ProviderName): UsageMetadata | undefined {
  if (provider === 'google' && usage.raw) {
    const { raw } = usage;
    return Object.fromEntries(GEMINI_COUNTS.flatMap((name) => (raw[name] === undefined ? [] : [[name, raw[name]]])));
  }
  const { inputTokens, outputTokens } = usage;
  // Anthropic's package has 0 for counts that did not come.
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
