import type { JsonObject, Part } from '../../core/content.ts';
import { TooLargeError } from '../../core/errors.ts';
import { decodeText, isTextType } from '../../core/media-type.ts';
import { isResultArtifact } from '../../core/names.ts';
import { type Tool, toParameters } from '../definition/tool.ts';

/** Maximum length of the text of one artifact that the model receives, in characters. */
const MAX_TEXT = 100_000;
/** Maximum size of the media that one tool call loads, in characters of base64, so that the event stays below 1 MiB. */
const MAX_MEDIA = 600_000;
/** Maximum number of bytes of artifacts that one tool call reads. */
const MAX_BYTES = 4_194_304;
const MAX_NAMES = 1_000;
const TOO_LARGE = 'Too large to be loaded here.';

const name = {
  type: 'string',
  minLength: 1,
  maxLength: 256,
  description: 'Name such as report.md; `user:` in front shares it over all sessions of the user.',
};

export const saveArtifact: Tool = {
  name: 'save_artifact',
  description:
    'Saves a file for the user as a new version and gives its number. Give `text`, or `data` with `mimeType`.',
  parameters: {
    type: 'object',
    properties: {
      name,
      text: { type: 'string', maxLength: 1_000_000 },
      data: { type: 'string', maxLength: 1_000_000, description: 'The bytes, base64.' },
      mimeType: { type: 'string', maxLength: 128 },
    },
    required: ['name'],
    oneOf: [{ required: ['text'] }, { required: ['data', 'mimeType'] }],
    additionalProperties: false,
  },
  needsConfirmation: false,
  async run(args, { services, actions }) {
    const file = String(args['name']);
    if (isResultArtifact(file)) throw new Error('This name is that of a result of a tool. Choose another one.');
    const version = await services.saveArtifact(file, toPart(args));
    actions.artifactDelta = { ...actions.artifactDelta, [file]: version };
    return { name: file, version };
  },
};

function toPart({ text = '', data, mimeType }: { text?: string; data?: string; mimeType?: string }): Part {
  if (data !== undefined) return { inlineData: { data, mimeType } };
  if (mimeType === undefined) return { text };
  return { inlineData: { data: Buffer.from(text).toString('base64'), mimeType } };
}

/** Loads the latest versions: texts into the function response, media as its attachments. */
export const loadArtifacts: Tool = {
  name: 'load_artifacts',
  description: 'Loads saved files so that you can read or see them. `list_artifacts` gives the names.',
  parameters: toParameters({ names: { type: 'array', items: name, minItems: 1, maxItems: 10 } }, 'names'),
  needsConfirmation: false,
  effect: 'none',
  // What is kept already is not kept again.
  limits: { maxResultCharacters: 500_000 },
  async run(args, { services, attachments }) {
    const artifacts: JsonObject[] = [];
    let bytes = MAX_BYTES;
    let media = 0;
    for (const each of new Set(args['names'] as string[])) {
      const part = await services.loadArtifact(each, undefined, bytes).catch(ignoreTooLarge);
      const size = part?.inlineData?.data?.length ?? 0;
      bytes -= part?.text?.length ?? Math.floor((size * 3) / 4);
      if (!isText(part ?? undefined)) media += size;
      artifacts.push({ name: each, ...describe(part, media > MAX_MEDIA, attachments) });
    }
    return { artifacts };
  },
};

function ignoreTooLarge(error: unknown): null {
  if (error instanceof TooLargeError) return null;
  throw error;
}

const isText = (part: Part | undefined) =>
  typeof part?.text === 'string' || isTextType(part?.inlineData?.mimeType ?? '');

function describe(part: Part | null | undefined, isTooMuch: boolean, attachments: Part[]): JsonObject {
  if (part === null) return { error: TOO_LARGE };
  if (!part) return { error: 'There is no such artifact.' };
  if (isText(part)) {
    const { data = '', mimeType } = part.inlineData ?? {};
    const text = part.text ?? decodeText(Buffer.from(data ?? '', 'base64'), mimeType ?? '');
    const note = text.length > MAX_TEXT ? { note: `The first ${MAX_TEXT} of ${text.length} characters.` } : {};
    return { text: text.slice(0, MAX_TEXT), ...note };
  }
  if (isTooMuch) return { error: TOO_LARGE };
  attachments.push(part);
  return { attached: true, mimeType: part.inlineData?.mimeType ?? part.fileData?.mimeType ?? '' };
}

export const listArtifacts: Tool = {
  name: 'list_artifacts',
  description: 'Lists the names of the saved files.',
  parameters: toParameters({}),
  needsConfirmation: false,
  effect: 'none',
  async run(_args, { services }) {
    const names = await services.listArtifacts();
    return names.length < MAX_NAMES ? { names } : { names: names.slice(0, MAX_NAMES), note: 'There may be more.' };
  },
};
