import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';

const CIPHER = 'aes-256-gcm';
const KEY_BYTES = 32;
const ID_BYTES = 8;
const IV_BYTES = 12;
const TAG_BYTES = 16;

/** Names of the row in which a secret is stored. The ciphertext is bound to them, so it is useless in another row. */
type Place = readonly string[];

export interface Secrets {
  /** False if no key is configured; then no secret can be stored. */
  canSeal: boolean;
  seal(text: string, place: Place): string;
  /** Decrypts a secret; `undefined` if its key is unknown, its text was altered, or it was copied from another row. */
  open(sealed: string, place: Place): string | undefined;
}

/** Creates the cipher from the operator's keys: the first encrypts, all decrypt. */
export function createSecrets(keys: readonly string[]): Secrets {
  const ring = keys.map((key) => {
    const bytes = Buffer.from(hkdfSync('sha256', key, '', 'secrets of stored requests', KEY_BYTES + ID_BYTES));
    return { secret: bytes.subarray(0, KEY_BYTES), id: bytes.subarray(KEY_BYTES).toString('hex') };
  });
  const [first] = ring;
  return {
    canSeal: first !== undefined,
    seal(text, place) {
      if (!first) throw new TypeError('there is no key to encrypt with');
      const iv = randomBytes(IV_BYTES);
      const cipher = createCipheriv(CIPHER, first.secret, iv).setAAD(toAad(place));
      const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
      return `${first.id}.${Buffer.concat([iv, cipher.getAuthTag(), sealed]).toString('base64url')}`;
    },
    open(sealed, place) {
      const [id, text = ''] = sealed.split('.');
      const key = ring.find((each) => each.id === id);
      const bytes = Buffer.from(text, 'base64url');
      if (!key || bytes.length < IV_BYTES + TAG_BYTES) return undefined;
      const decipher = createDecipheriv(CIPHER, key.secret, bytes.subarray(0, IV_BYTES)).setAAD(toAad(place));
      decipher.setAuthTag(bytes.subarray(IV_BYTES, IV_BYTES + TAG_BYTES));
      try {
        return decipher.update(bytes.subarray(IV_BYTES + TAG_BYTES), undefined, 'utf8') + decipher.final('utf8');
      } catch {
        return undefined;
      }
    },
  };
}

const toAad = (place: Place): Buffer => Buffer.from(JSON.stringify(place));
