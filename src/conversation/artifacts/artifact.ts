import { z } from 'zod';
import { base64Error } from '../../core/base64.ts';
import { freeForm, jsonObject, type Part, partSchema } from '../../core/content.ts';
import { InvalidError, TooLargeError } from '../../core/errors.ts';
import { looseObject } from '../../core/members.ts';
import { identifierSchema } from '../../core/session.ts';

export const artifactVersionSchema = looseObject('What is known of one version of an artifact.', {
  version: z
    .int()
    .describe('0 for the first save of a name, then one more each; never handed out twice, also after a delete.'),
  canonicalUri: z
    .string()
    .describe('Names the bytes: `postgres://…` in the database, `s3://…` in a bucket; no address to load.'),
  customMetadata: jsonObject.optional().describe('Free-form notes given with the save; `{}` where there were none.'),
  createTime: z.number().optional().describe('When the version was saved, Unix seconds by the clock of the database.'),
  mimeType: z.string().nullish().describe('IANA media type of the content; `text/plain` for a text.'),
});

export const saveArtifactSchema = looseObject('A new version of an artifact.', {
  filename: identifierSchema.describe(
    'Name of the artifact; `user:` in front shares it over all sessions of the user.',
  ),
  artifact: partSchema.describe('The content: `inlineData` (base64), `text` or `fileData`.'),
  customMetadata: freeForm('Free-form notes, given back with every description of this version.'),
});

/** An artifact version without its bytes; `createTime` is in Unix seconds. */
export type ArtifactVersion = z.infer<typeof artifactVersionSchema>;

/** A message part split for storage: its bytes, and the part without the bytes. */
export interface ArtifactContent {
  part: Part;
  /** `undefined` if the part only references an external file. */
  bytes: Buffer | undefined;
  mimeType: string | undefined;
}

/** Artifacts whose names start with this are shared by all sessions of a user. */
export const USER_ARTIFACT_PREFIX = 'user:';

/**
 * Text that is not well-formed Unicode stays in the part, because UTF-8 cannot represent it.
 * @throws {InvalidError} if the part has no `text`, `inlineData` or `fileData`, or `data` is not base64
 */
export function toArtifactContent(part: Part): ArtifactContent {
  if (typeof part.inlineData?.data === 'string') {
    const { data, ...inlineData } = part.inlineData;
    if (base64Error(data) !== undefined) throw new InvalidError('artifact.inlineData.data is not base64.');
    const mimeType = inlineData.mimeType ?? 'application/octet-stream';
    return { part: { ...part, inlineData }, bytes: Buffer.from(data, 'base64'), mimeType };
  }
  if (typeof part.text === 'string') {
    if (!part.text.isWellFormed()) return { part, bytes: Buffer.from(part.text), mimeType: 'text/plain' };
    const { text, ...rest } = part;
    return { part: rest, bytes: Buffer.from(text ?? ''), mimeType: 'text/plain' };
  }
  if (typeof part.fileData?.fileUri === 'string')
    return { part, bytes: undefined, mimeType: part.fileData.mimeType ?? undefined };
  throw new InvalidError('artifact carries no content: give inlineData, text or fileData.');
}

/** Restores a part: the inverse of {@link toArtifactContent}. */
export function toPart(part: Part, bytes: Buffer | undefined): Part {
  if (part.inlineData) return { ...part, inlineData: { ...part.inlineData, data: bytes?.toString('base64') ?? '' } };
  if (bytes === undefined || part.text != null) return part;
  return { ...part, text: bytes.toString() };
}

/** An object outside the database that holds an artifact's bytes. */
export interface ContentObject {
  key: string;
  /** Location as shown to people: `s3://bucket/key`. */
  uri: string;
}

/** The stored content of an artifact version: bytes in the row, or the key of an object. */
export interface StoredContent {
  content: Buffer | undefined;
  objectKey: string | undefined;
  bytes: number;
  sha256: Buffer;
}

/** Stores the bytes of artifacts; the implementation is chosen at start-up. */
export interface ContentStore {
  /** True: bytes are objects outside the database. Default: they are in rows. */
  isBucket?: true;
  /**
   * Stores bytes before the version's row is written.
   * @returns `undefined` if the bytes belong in the row
   * @throws {TooLargeError} if the bytes exceed the size limit
   * @throws {UnavailableError} if the object store does not answer
   */
  save(bytes: Buffer): Promise<ContentObject | undefined>;
  /** Loads a version's bytes; `undefined` if the version has none. @throws {UnavailableError} like `save` */
  load(stored: StoredContent): Promise<Buffer | undefined>;
  /** Removes the objects of deleted versions; objects that do not exist are ignored. */
  remove(objectKeys: string[]): Promise<void>;
}

export function checkContentSize({ length }: Buffer, maxBytes: number): void {
  if (length > maxBytes) throw new TooLargeError(`The artifact has ${length} bytes; at most ${maxBytes} are allowed.`);
}

/** Stores bytes in database rows. Versions saved to an object store earlier cannot be read. */
export const rowContent = (maxBytes: number): ContentStore => ({
  save: async (bytes) => {
    checkContentSize(bytes, maxBytes);
    return undefined;
  },
  load: async ({ content, objectKey }) => {
    if (objectKey !== undefined) throw new Error('an artifact is in an object store and ARTIFACT_STORE is not set');
    return content;
  },
  remove: async (objectKeys) => {
    if (objectKeys.length > 0) throw new Error('objects cannot be removed: ARTIFACT_STORE is not set');
  },
});
