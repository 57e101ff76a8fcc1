import { TooLargeError } from '../../core/errors.ts';

/** An object that holds an artifact's bytes, outside the database. */
export interface ContentObject {
  key: string;
  /** Where it is, for people: `s3://bucket/key`. */
  uri: string;
}

/** The content in a version's row: the bytes themselves, or the key of the object that holds them. */
export interface StoredContent {
  content: Buffer | undefined;
  objectKey: string | undefined;
  bytes: number;
  sha256: Buffer;
}

/** Where the bytes of artifacts are kept. Chosen once, at the start of the process. */
export interface ContentStore {
  /**
   * Puts bytes away for a version that is saved after it; `undefined` means that they go into its row.
   * @throws {TooLargeError} for more bytes than allowed. @throws {UnavailableError} when the object store does not
   * answer.
   */
  save(bytes: Buffer): Promise<ContentObject | undefined>;
  /** The bytes of a saved version; `undefined` for one that has none. @throws {UnavailableError} as `save`. */
  load(stored: StoredContent): Promise<Buffer | undefined>;
  /** Removes the objects of deleted versions; what is not there is no error. */
  remove(objectKeys: string[]): Promise<void>;
}

/** @throws {TooLargeError} for more bytes than allowed. */
export function checkContentSize({ length }: Buffer, maxBytes: number): void {
  if (length > maxBytes) throw new TooLargeError(`The artifact has ${length} bytes; at most ${maxBytes} are allowed.`);
}

/** Keeps the bytes in the rows of the database. Versions that were saved in an object store cannot be read with it. */
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
