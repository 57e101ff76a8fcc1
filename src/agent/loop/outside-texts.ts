import { type Content, getParts, type JsonObject, type Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { BLOCKED, checkValue, REDACTED } from '../definition/guardrail.ts';
import { isRuntimeCall } from '../../core/names.ts';

/** Texts that the model reads one directly after the other. A match may be in one of them or span several. */
type Run = string[];

/** Checks a text. Returns a replacement if the text must not pass, `undefined` if it may pass. */
type FindText = (text: string) => Promise<string | undefined>;

/** Media types whose files are text, whatever their first bytes are. */
const TEXT_TYPE =
  /^(?:text\/|message\/|application\/(?:.*\+)?(?:json|xml|yaml|x-yaml|javascript|x-sh|sql|toml|csv)\b)/i;
/** Number of bytes that are examined to tell whether a file is text, and the length of base64 that contains them. */
const SNIFFED_BYTES = 3_072;
const SNIFFED_BASE64 = 4_096;

/** Lists the texts in an event that a model reads. */
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

/** False for the runtime's own questions to a person and for the replies, because no model reads them. */
const isRead = ({ functionCall, functionResponse }: Part) =>
  !isRuntimeCall(functionCall?.name ?? functionResponse?.name);

function listFileTexts({ inlineData, fileData, functionResponse }: Part): string[] {
  const inside = (functionResponse?.parts ?? []).flatMap((part) => listFileTexts(part));
  const text = inlineData?.data ? toText(inlineData.data, inlineData.mimeType ?? '') : undefined;
  return [...(text ? [text] : []), ...fromDataUri(fileData?.fileUri ?? ''), ...inside];
}

/**
 * What a model reads of a part besides plain text and file contents, as JSON: file names and types, function calls and
 * responses, code. Ids and the function name of a response are omitted.
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

/** Members of a part that `toRemainder` omits, because other code lists them or no model reads them. */
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

/**
 * A thought signature in this runtime's encoding is checked as text, because text that a client puts into it reaches
 * the provider. A provider's own signature is no text.
 */
const toSigned = ({ thoughtSignature }: Part) => (thoughtSignature ? toText(thoughtSignature, '') : undefined);

function fromDataUri(uri: string): string[] {
  const [, type = '', encoding, data = ''] = /^data:([^,]*?)(;\s*base64)?,(.*)$/is.exec(uri) ?? [];
  if (data === '') return [];
  let plain = data;
  try {
    plain = decodeURIComponent(data);
  } catch {
    // The data URI's percent-encoding is malformed, so its undecoded data are checked.
  }
  const text = encoding ? toText(plain, type) : plain;
  return text ? [text] : [];
}

/** Decodes base64, standard or URL-safe; `undefined` if the file is not text, such as a picture or a PDF. */
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

/** Returns the name of the encoding if a text is UTF-16 by its byte order mark or media type. */
function toUtf16(bytes: Buffer, mimeType: string): string | undefined {
  const [first, second] = bytes;
  if (first === 0xff && second === 0xfe) return 'utf-16le';
  if (first === 0xfe && second === 0xff) return 'utf-16be';
  const charset = /charset="?utf-16(be|le)?/i.exec(mimeType);
  return charset ? `utf-16${charset[1]?.toLowerCase() ?? 'le'}` : undefined;
}

/** Replaces all texts of an event. Each function call still has its response. */
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
/** Replaces the function name too, because a call written by a client may have the offending text in its name. */
const withArgs = ({ functionCall }: Part, args: JsonObject, name = 'redacted'): Part => ({
  functionCall: { ...(functionCall?.id && { id: functionCall.id }), name, args },
});

/** Redacts an event. If a match cannot be removed by itself, all texts of the event are replaced. */
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

/** Joins neighbouring text parts to one part if a match spans several of them. */
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

/** Returns a copy of an event with other contents, in the order of {@link listContents}. */
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
