import { base64Error } from '../../core/base64.ts';
import { InvalidError } from '../../core/errors.ts';
import type { Part } from '../../core/content.ts';

/** A part taken apart for the store: the bytes, and the part without them. */
export interface ArtifactContent {
  part: Part;
  /** `undefined` for a reference to a file elsewhere. */
  bytes: Buffer | undefined;
  mimeType: string | undefined;
}

/** Names that begin so are shared by all sessions of a user. */
export const USER_ARTIFACT_PREFIX = 'user:';

/**
 * Takes a part apart. The MIME type is that of `inlineData`, `text/plain` for text, that of `fileData` for a reference.
 * A text that is not well-formed Unicode stays in the part: UTF-8 bytes could not give it back.
 * @throws {InvalidError} when the part carries none of the three, or `data` is not base64.
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

/** The part as it was saved: the inverse of {@link toArtifactContent}. */
export function toPart(part: Part, bytes: Buffer | undefined): Part {
  if (part.inlineData) return { ...part, inlineData: { ...part.inlineData, data: bytes?.toString('base64') ?? '' } };
  if (bytes === undefined || part.text != null) return part;
  return { ...part, text: bytes.toString() };
}
