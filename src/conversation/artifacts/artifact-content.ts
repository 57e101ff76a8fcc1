import { base64Error } from '../../core/base64.ts';
import { InvalidError } from '../../core/errors.ts';
import type { Part } from '../../core/content.ts';

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
