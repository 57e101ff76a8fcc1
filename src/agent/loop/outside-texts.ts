import { type Content, getParts, type JsonObject, type Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { BLOCKED, checkValue, REDACTED } from '../definition/guardrail.ts';
import { isHiddenCall } from './build-contents.ts';

/** Texts that the reader sees next to each other: a match may be in one of them or span several. */
type Run = string[];

/** Returns a replacement for a text that must not pass; `undefined` if it may pass. */
type FindText = (text: string) => Promise<string | undefined>;

/** Media types that are text, whatever their bytes look like. */
const TEXT_TYPE =
  /^(?:text\/|message\/|application\/(?:.*\+)?(?:json|xml|yaml|x-yaml|javascript|x-sh|sql|toml|csv)\b)/i;
/** Bytes that decide whether a file is text, and the base64 length that contains them. */
const SNIFFED_BYTES = 3_072;
const SNIFFED_BASE64 = 4_096;

/** Lists what a model reads as text in an event, in runs of neighbouring texts. */
export function listRuns(event: Event): Run[] {
  return listContents(event).flatMap((content) => {
    const parts = getParts(content).filter(isRead);
    const of = (isThought: boolean) => parts.filter(({ thought }) => (thought === true) === isThought);
    const texts = of(false).flatMap((part) => [...(part.text ? [part.text] : []), ...listFileTexts(part)]);
    const thoughts = of(true).flatMap(({ text }) => (text ? [text] : []));
    const others = parts.flatMap((part) =>
      [toRemainder(part), toSigned(part)].flatMap((text) => (text ? [[text]] : [])),
    );
    return [texts, thoughts, ...others].filter((run) => run.length > 0);
  });
}

const listContents = ({ content, actions, inputTranscription, outputTranscription }: Event): Content[] => [
  ...(content ? [content] : []),
  ...(actions?.compaction ? [actions.compaction.compactedContent] : []),
  ...[inputTranscription, outputTranscription].flatMap((transcription) =>
    transcription?.text ? [{ parts: [{ text: transcription.text }] }] : [],
  ),
];

/** False for answers to the runtime's own questions to a person, because the model does not see them. */
const isRead = ({ functionCall, functionResponse }: Part) =>
  !isHiddenCall(functionCall?.name ?? functionResponse?.name ?? '');

function listFileTexts({ inlineData, fileData, functionResponse }: Part): string[] {
  const inside = (functionResponse?.parts ?? []).flatMap((part) => listFileTexts(part));
  const text = inlineData?.data ? toText(inlineData.data, inlineData.mimeType ?? '') : undefined;
  return [...(text ? [text] : []), ...fromDataUri(fileData?.fileUri ?? ''), ...inside];
}

/**
 * Returns everything else in a part as JSON: file names and types, calls and responses, code. Ids and the name of a
 * response's tool are left out.
 */
function toRemainder(part: Part): string | undefined {
  const { inlineData, fileData, functionCall, functionResponse } = part;
  const others = Object.entries(part).filter(([name]) => !READ_ELSEWHERE.has(name));
  const remainder = {
    ...Object.fromEntries(others),
    ...(inlineData && { file: withoutData(inlineData) }),
    ...(fileData && { file: { ...fileData, fileUri: unescaped(fileData.fileUri ?? '') } }),
    ...(functionCall && { call: { name: functionCall.name, args: functionCall.args } }),
    ...(functionResponse && {
      response: {
        response: functionResponse.response,
        parts: functionResponse.parts?.map((each) => ({ ...each, inlineData: withoutData(each.inlineData ?? {}) })),
      },
    }),
  };
  return Object.keys(remainder).length > 0 ? JSON.stringify(remainder) : undefined;
}

/** Members of a part that are checked separately, or that no model reads. */
const READ_ELSEWHERE = new Set(
  'text thought thoughtSignature partMetadata inlineData fileData functionCall functionResponse'.split(' '),
);

const withoutData = ({ displayName, mimeType }: NonNullable<Part['inlineData']>) => ({ displayName, mimeType });

function unescaped(uri: string): string {
  if (/^data:/i.test(uri)) return '';
  try {
    return decodeURIComponent(uri);
  } catch {
    return uri;
  }
}

/** Our own signature is text for a provider; a provider's signature is not text. */
const toSigned = ({ thoughtSignature }: Part) => (thoughtSignature ? toText(thoughtSignature, '') : undefined);

function fromDataUri(uri: string): string[] {
  const [, type = '', encoding, data = ''] = /^data:([^,]*?)(;\s*base64)?,(.*)$/is.exec(uri) ?? [];
  if (data === '') return [];
  let plain = data;
  try {
    plain = decodeURIComponent(data);
  } catch {
    // Malformed percent-encoding: the raw data are checked.
  }
  const text = encoding ? toText(plain, type) : plain;
  return text ? [text] : [];
}

/** Decodes a text file from base64 of either alphabet; `undefined` if it is not text, such as a picture or a PDF. */
function toText(data: string, mimeType: string): string | undefined {
  const start = Buffer.from(data.slice(0, SNIFFED_BASE64), 'base64').subarray(0, SNIFFED_BYTES);
  const utf16 = toUtf16(start, mimeType);
  if (utf16) return new TextDecoder(utf16).decode(Buffer.from(data, 'base64'));
  if (!TEXT_TYPE.test(mimeType) && !isUtf8(start)) return undefined;
  return Buffer.from(data, 'base64').toString();
}

function isUtf8(bytes: Buffer): boolean {
  if (bytes.includes(0)) return false;
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true });
    return true;
  } catch {
    return false;
  }
}

/** Returns the encoding of UTF-16 text, by its byte order mark or its media type. */
function toUtf16(bytes: Buffer, mimeType: string): string | undefined {
  const [first, second] = bytes;
  if (first === 0xff && second === 0xfe) return 'utf-16le';
  if (first === 0xfe && second === 0xff) return 'utf-16be';
  const charset = /charset="?utf-16(be|le)?/i.exec(mimeType);
  return charset ? `utf-16${charset[1]?.toLowerCase() ?? 'le'}` : undefined;
}

/** Replaces all texts of an event; calls and responses stay paired. */
export function withoutTexts(event: Event): Event {
  return mapContents(event, (content) => {
    const answers = getParts(content).flatMap((part) => {
      if (part.functionResponse) return [withResponse(part, { error: REDACTED })];
      return part.functionCall ? [withArgs(part, {})] : [];
    });
    return { ...content, parts: answers.length > 0 ? answers : [{ text: REDACTED }] };
  });
}

const withResponse = (part: Part, response: JsonObject): Part => {
  const { id, name } = part.functionResponse ?? {};
  return { functionResponse: { ...(id && { id }), name, response } };
};
/** The function name is replaced too, because a client's call may carry the offending text in it. */
const withArgs = ({ functionCall }: Part, args: JsonObject, name = 'redacted'): Part => ({
  functionCall: { ...(functionCall?.id && { id: functionCall.id }), name, args },
});

/** Redacts an event; if a match cannot be isolated, all of its texts are replaced. */
export async function withRedacted(event: Event, find: FindText): Promise<Event> {
  const replaced = new Map<Content, Content>();
  for (const content of listContents(event)) {
    const parts = await joinTexts(getParts(content), find);
    const mapped: Part[] = [];
    for (const part of parts) mapped.push(isRead(part) ? await redactPart(part, find) : part);
    replaced.set(content, { ...content, parts: mapped });
  }
  const redacted = mapContents(event, (content, index) => [...replaced.values()][index] ?? content);
  for (const run of listRuns(redacted)) if ((await find(run.join(''))) !== undefined) return withoutTexts(event);
  return redacted;
}

/** Merges texts into one if a match spans several of them. */
async function joinTexts(parts: Part[], find: FindText): Promise<Part[]> {
  let merged = parts;
  for (const isThought of [false, true]) {
    const texts = parts.filter((part) => part.text && (part.thought === true) === isThought);
    if (texts.length < 2) continue;
    const replacement = await find(texts.map(({ text }) => text).join(''));
    if (replacement === undefined) continue;
    const [first, ...others] = texts;
    merged = merged
      .filter((part) => !others.includes(part))
      .map((part) => (part === first ? { ...(isThought && { thought: true }), text: replacement } : part));
  }
  return merged;
}

async function redactPart(part: Part, find: FindText): Promise<Part> {
  const { text, inlineData, thoughtSignature, functionCall, functionResponse } = part;
  const signed = toSigned(part);
  const isSigned = thoughtSignature && !(signed !== undefined && (await find(signed)) !== undefined);
  const redactedText = text ? await find(text) : undefined;
  if (redactedText !== undefined) return { ...(part.thought === true && { thought: true }), text: redactedText };
  for (const file of listFileTexts(part)) {
    const replacement = await find(file);
    if (replacement === undefined) continue;
    if (functionResponse) return withResponse(part, { error: REDACTED });
    return inlineData
      ? { inlineData: { mimeType: 'text/plain', data: Buffer.from(replacement).toString('base64') } }
      : { text: replacement };
  }
  const remainder = toRemainder(part);
  if (remainder !== undefined && (await find(remainder)) !== undefined) {
    const checked = await checkValue(functionResponse?.response ?? functionCall?.args ?? {}, find, 'redact');
    const mapped = (checked === BLOCKED ? undefined : checked) as JsonObject | undefined;
    if (functionResponse) return withResponse(part, mapped ?? { error: REDACTED });
    if (functionCall) {
      const name = functionCall.name ?? '';
      return withArgs(part, mapped ?? {}, (await find(name)) === undefined ? name : undefined);
    }
    return { text: REDACTED };
  }
  if (isSigned || !thoughtSignature) return part;
  const { thoughtSignature: _, ...unsigned } = part;
  return unsigned;
}

/** Returns an event with other contents, in the order of {@link listContents}. */
function mapContents(event: Event, map: (content: Content, index: number) => Content): Event {
  const mapped = listContents(event).map(map);
  const next = () => mapped.shift();
  const { content, actions, inputTranscription, outputTranscription } = event;
  const toTranscription = (transcription: Event['inputTranscription']) =>
    transcription?.text && { text: getParts(next())[0]?.text ?? REDACTED };
  const copy: Event = { ...event };
  if (content) copy.content = next() ?? content;
  if (actions?.compaction) {
    const compactedContent = next() ?? actions.compaction.compactedContent;
    copy.actions = { ...actions, compaction: { ...actions.compaction, compactedContent } };
  }
  if (inputTranscription?.text) copy.inputTranscription = toTranscription(inputTranscription) || inputTranscription;
  if (outputTranscription?.text) copy.outputTranscription = toTranscription(outputTranscription) || outputTranscription;
  return copy;
}
