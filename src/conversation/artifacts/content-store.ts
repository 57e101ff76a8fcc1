import { TooLargeError } from '../../core/errors.ts';

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
