import { type Content, getParts, type JsonObject, type Part } from '../../core/content.ts';
import type { Event } from '../../core/event.ts';
import { BLOCKED, checkValue, REDACTED } from '../definition/guardrail.ts';
import { isHiddenCall } from './build-contents.ts';

/** Texts that stand next to each other for who reads them: what is found in one, or across them. */
type Run = string[];

/** Gives the text in the place of one that may not pass, `undefined` for one that may. */
type FindText = (text: string) => Promise<string | undefined>;

/** Types of files that are text, whatever their bytes look like. */
const TEXT_TYPE =
  /^(?:text\/|message\/|application\/(?:.*\+)?(?:json|xml|yaml|x-yaml|javascript|x-sh|sql|toml|csv)\b)/i;
/** Bytes that tell whether a file is text, and base64 that holds them. */
const SNIFFED = 3_072;
const SNIFFED_BASE64 = 4_096;

/** Lists what a model reads as text in an event, in runs; none for an event without any. */
export function listRuns(event: Event): Run[] {
  return listContents(event).flatMap((content) => {
    const parts = getParts(content).filter(isRead);
    const of = (isThought: boolean) => parts.filter(({ thought }) => (thought === true) === isThought);
    const said = of(false).flatMap((part) => [...(part.text ? [part.text] : []), ...listFileTexts(part)]);
    const thoughts = of(true).flatMap(({ text }) => (text ? [text] : []));
    const others = parts.flatMap((part) => [toNames(part), toSigned(part)].flatMap((text) => (text ? [[text]] : [])));
    return [said, thoughts, ...others].filter((run) => run.length > 0);
  });
}

const listContents = ({ content, actions, inputTranscription, outputTranscription }: Event): Content[] => [
  ...(content ? [content] : []),
  ...(actions?.compaction ? [actions.compaction.compactedContent] : []),
  ...[inputTranscription, outputTranscription].flatMap((said) =>
    said?.text ? [{ parts: [{ text: said.text }] }] : [],
  ),
];

/** False for answers to what a person was asked by the runtime itself: the model is not shown them. */
const isRead = ({ functionCall, functionResponse }: Part) =>
  !isHiddenCall(functionCall?.name ?? functionResponse?.name ?? '');

/** The texts of the files in a part. */
function listFileTexts({ inlineData, fileData, functionResponse }: Part): string[] {
  const inside = (functionResponse?.parts ?? []).flatMap((part) => listFileTexts(part));
  const text = inlineData?.data ? toText(inlineData.data, inlineData.mimeType ?? '') : undefined;
  return [...(text ? [text] : []), ...fromDataUri(fileData?.fileUri ?? ''), ...inside];
}

/**
 * All else that a part says, as JSON: names of files and types, calls and responses, code; ids are left out, and whom a
 * response is named after.
 */
function toNames(part: Part): string | undefined {
  const { inlineData, fileData, functionCall, functionResponse } = part;
  const others = Object.entries(part).filter(([name]) => !READ_ELSEWHERE.has(name));
  const named = {
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
  return Object.keys(named).length > 0 ? JSON.stringify(named) : undefined;
}

/** Members of a part that are looked at by themselves, or that no model reads. */
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

/** What a signature of our own holds for a provider; a provider's is no text. */
const toSigned = ({ thoughtSignature }: Part) => (thoughtSignature ? toText(thoughtSignature, '') : undefined);

function fromDataUri(uri: string): string[] {
  const [, type = '', encoding, data = ''] = /^data:([^,]*?)(;\s*base64)?,(.*)$/is.exec(uri) ?? [];
  if (data === '') return [];
  let plain = data;
  try {
    plain = decodeURIComponent(data);
  } catch {
    // As it stands.
  }
  const text = encoding ? toText(plain, type) : plain;
  return text ? [text] : [];
}

/** Returns the text of a file, base64 in either alphabet; `undefined` for one that is none, as a picture or a PDF. */
function toText(data: string, mimeType: string): string | undefined {
  const start = Buffer.from(data.slice(0, SNIFFED_BASE64), 'base64').subarray(0, SNIFFED);
  const wide = toWide(start, mimeType);
  if (wide) return new TextDecoder(wide).decode(Buffer.from(data, 'base64'));
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

/** The encoding of a text of two bytes a character, by its mark or its type. */
function toWide(bytes: Buffer, mimeType: string): string | undefined {
  const [first, second] = bytes;
  if (first === 0xff && second === 0xfe) return 'utf-16le';
  if (first === 0xfe && second === 0xff) return 'utf-16be';
  const said = /charset="?utf-16(be|le)?/i.exec(mimeType);
  return said ? `utf-16${said[1]?.toLowerCase() ?? 'le'}` : undefined;
}

/** Returns an event that nothing is left of but that there was something: calls stay answered. */
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
/** A name that a client gave a call can be all that was found. */
const withArgs = ({ functionCall }: Part, args: JsonObject, name = 'redacted'): Part => ({
  functionCall: { ...(functionCall?.id && { id: functionCall.id }), name, args },
});

/** Returns an event without what is found in it; nothing of its texts where that cannot be told apart. */
export async function withRedacted(event: Event, find: FindText): Promise<Event> {
  const replaced = new Map<Content, Content>();
  for (const content of listContents(event)) {
    const parts = await joinedTexts(getParts(content), find);
    const mapped: Part[] = [];
    for (const part of parts) mapped.push(isRead(part) ? await redactPart(part, find) : part);
    replaced.set(content, { ...content, parts: mapped });
  }
  const made = mapContents(event, (content, index) => [...replaced.values()][index] ?? content);
  for (const run of listRuns(made)) if ((await find(run.join(''))) !== undefined) return withoutTexts(event);
  return made;
}

/** Texts in which something is found only when they are joined become one. */
async function joinedTexts(parts: Part[], find: FindText): Promise<Part[]> {
  let kept = parts;
  for (const isThought of [false, true]) {
    const texts = parts.filter((part) => part.text && (part.thought === true) === isThought);
    if (texts.length < 2) continue;
    const found = await find(texts.map(({ text }) => text).join(''));
    if (found === undefined) continue;
    const [first, ...others] = texts;
    kept = kept
      .filter((part) => !others.includes(part))
      .map((part) => (part === first ? { ...(isThought && { thought: true }), text: found } : part));
  }
  return kept;
}

async function redactPart(part: Part, find: FindText): Promise<Part> {
  const { text, inlineData, thoughtSignature, functionCall, functionResponse } = part;
  const signed = toSigned(part);
  const isSigned = thoughtSignature && !(signed !== undefined && (await find(signed)) !== undefined);
  const foundText = text ? await find(text) : undefined;
  if (foundText !== undefined) return { ...(part.thought === true && { thought: true }), text: foundText };
  for (const file of listFileTexts(part)) {
    const found = await find(file);
    if (found === undefined) continue;
    if (functionResponse) return withResponse(part, { error: REDACTED });
    return inlineData
      ? { inlineData: { mimeType: 'text/plain', data: Buffer.from(found).toString('base64') } }
      : { text: found };
  }
  const names = toNames(part);
  if (names !== undefined && (await find(names)) !== undefined) {
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
  const toSaid = (said: Event['inputTranscription']) => said?.text && { text: getParts(next())[0]?.text ?? REDACTED };
  const made: Event = { ...event };
  if (content) made.content = next() ?? content;
  if (actions?.compaction) {
    const compactedContent = next() ?? actions.compaction.compactedContent;
    made.actions = { ...actions, compaction: { ...actions.compaction, compactedContent } };
  }
  if (inputTranscription?.text) made.inputTranscription = toSaid(inputTranscription) || inputTranscription;
  if (outputTranscription?.text) made.outputTranscription = toSaid(outputTranscription) || outputTranscription;
  return made;
}
