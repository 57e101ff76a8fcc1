import { type Content, getParts, type JsonObject, type Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import type { AgentNode } from '../definition/tool.ts';
import { buildAnew, getCompactionNotes, isInBranch, type Audience } from './build-contents.ts';
import { findPlaceholders } from './instruction.ts';

/*
 * Estimates of tokens. A model's own count of the last call scales them; until there is one, a letter counts as a quarter
 * of a token, and what tokenizers split more finely counts as more.
 */

const LETTER = 1;
const DENSE = 2;
const WIDE = 4;
/** Quarters of a token by character code, below the first alphabet that is not Latin. */
const QUARTERS = Uint8Array.from({ length: 0x2_50 }, (_, code) =>
  /[A-Za-z ]/.test(String.fromCharCode(code)) ? LETTER : DENSE,
);

export function textTokens(text: string): number {
  let quarters = 0;
  for (let index = 0; index < text.length; index += 1) quarters += QUARTERS[text.charCodeAt(index)] ?? WIDE;
  return quarters / 4;
}

const jsonTokens = (value: unknown) => textTokens(JSON.stringify(value ?? null));

/** Tokens of a file whose size says nothing: of a picture, or of one that is named by its address. */
const FILE_TOKENS = 1_600;
/** Characters of base64 per token, of text and of other files such as PDF and sound. */
const TEXT_FILE = 5;
const OTHER_FILE = 40;
/** Tokens of a message and of a part beside their text. */
const FRAME_TOKENS = 4;

function fileTokens({ mimeType, data }: NonNullable<Part['inlineData']>): number {
  const length = data?.length ?? 0;
  if (mimeType?.startsWith('image/')) return FILE_TOKENS;
  if (/^text\/|json|xml|yaml|csv|toml/.test(mimeType ?? '')) return length / TEXT_FILE;
  return Math.max(FILE_TOKENS, length / OTHER_FILE);
}

const known = new WeakMap<Part, number>();

/** A part is measured once, because it is shared by the contents of all later steps. */
function partTokens(part: Part): number {
  const before = known.get(part);
  if (before !== undefined) return before;
  const { text, inlineData, fileData, functionCall, functionResponse } = part;
  const others = [
    text ? textTokens(text) : 0,
    inlineData ? fileTokens(inlineData) : 0,
    fileData ? FILE_TOKENS : 0,
    functionCall ? jsonTokens([functionCall.name, functionCall.args]) : 0,
    functionResponse ? jsonTokens([functionResponse.name, functionResponse.response]) : 0,
    ...(functionResponse?.parts ?? []).map(partTokens),
  ];
  const tokens = FRAME_TOKENS + others.reduce((sum, each) => sum + each);
  known.set(part, tokens);
  return tokens;
}

export function contentTokens(content: Content | null | undefined): number {
  let tokens = 0;
  for (const part of getParts(content)) tokens += partTokens(part);
  return tokens;
}

export const contentsTokens = (contents: readonly Content[]): number =>
  contents.reduce((sum, content) => sum + contentTokens(content), 0);

/** Room for an answer whose length is not limited: this part of the window, and at most so many tokens. */
const [ANSWER_SHARE, MAX_ANSWER] = [1 / 8, 16_384];

/** Tokens that an answer may have at most: one of more than half the window would leave no room for its prompt. */
export const answerRoom = (window: number, maxOutputTokens = Math.min(window * ANSWER_SHARE, MAX_ANSWER)): number =>
  Math.floor(Math.min(maxOutputTokens, window / 2));

const ofSchemas = new WeakMap<object, number>();

function schemaTokens(schema: JsonObject): number {
  const before = ofSchemas.get(schema);
  if (before !== undefined) return before;
  const tokens = jsonTokens(schema);
  ofSchemas.set(schema, tokens);
  return tokens;
}

/** Tokens of what goes with each request of an agent: the instruction without its artifacts, tools, the output schema. */
export function fixedTokens(agent: AgentNode, state: Readonly<JsonObject>): number {
  const { keys } = findPlaceholders(agent.instruction);
  const values = keys.reduce((sum, key) => sum + (Object.hasOwn(state, key) ? jsonTokens(state[key]) : 0), 0);
  const tools = agent.tools.reduce(
    (sum, tool) => sum + FRAME_TOKENS + textTokens(tool.name + tool.description) + schemaTokens(tool.parameters),
    0,
  );
  const form = agent.outputSchema ? schemaTokens(agent.outputSchema.schema) : 0;
  return textTokens(agent.instruction) + textTokens(agent.appendedInstruction) + values + tools + form;
}

/** Bounds of the scale. A count below is not believed, because some servers leave out what they had cached. */
const [MIN_SCALE, MAX_SCALE] = [0.5, 4];
const toScale = (ratio: number) => (ratio < MIN_SCALE ? 1 : Math.min(ratio, MAX_SCALE));

/**
 * The model's own count of tokens per estimated token: of the agent's last model call, whose prompt was what the agent
 * sees of the events before it. After a compaction it is that which the compaction noted. 1 before the first call.
 */
export function findScale(events: readonly Event[], audience: Audience, whole: number): number {
  const isOwn = ({ author, branch }: Event) =>
    author === audience.agentName && (branch ?? undefined) === (audience.branch ?? undefined);
  for (let place = events.length - 1; place >= 0; place -= 1) {
    const event = events[place] as Event;
    if (event.actions?.compaction && isInBranch(event, audience.branch)) {
      const { scale } = getCompactionNotes(event);
      return typeof scale === 'number' ? toScale(scale) : 1;
    }
    const counted = event.usageMetadata?.promptTokenCount ?? 0;
    if (!isOwn(event) || counted <= 0) continue;
    const since = contentsTokens(buildAnew(events.slice(place), audience));
    return toScale(counted / Math.max(whole - since, 1));
  }
  return 1;
}
