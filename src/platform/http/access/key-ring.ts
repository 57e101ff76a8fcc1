import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { z } from 'zod';
import { ConfigError, UnavailableError } from '../../../core/errors.ts';
import { FULL_KEY, type Principal, SCOPES, type Scope } from '../operation/principal.ts';

/** Interval for rereading the key file. It delays the refusal of a key that was revoked in the file. */
const REREAD_MS = 1_000;
/** Time after which an unreadable or invalid key file refuses all its keys, so that revoked keys do not stay valid. */
const STALE_MS = 5_000;
const SECRET_BYTES = 32;
const DIGEST = /^[0-9a-f]{64}$/;

const names = z.array(z.string().min(1)).min(1);
/** A key in the file; the file contains the key's digest, never the key. */
const keySchema = z.strictObject({
  id: z.string().regex(/^[\w-]{1,64}$/, 'letters, digits, _ and -, at most 64'),
  digest: z.string().regex(DIGEST, 'the SHA-256 of the whole key, 64 hexadecimal digits'),
  scopes: z.array(z.enum(SCOPES)).min(1),
  users: names.optional(),
  apps: names.optional(),
  expires: z.iso.datetime({ offset: true }).optional(),
});
type KeyEntry = z.output<typeof keySchema>;

interface Known {
  digest: Buffer;
  /** The key's JSON entry in the file, to detect changes; absent for a key of `RUNTIME_API_KEYS`. */
  entry?: string;
  principal: Principal;
  expiresAt: number;
}

/** A listener for the revocation of a key. */
interface Watcher {
  entry: string;
  work: () => void;
}

/** Finds the principal of a key; `undefined` if it is unknown. @throws {UnavailableError} while the file is unusable */
export type FindHolder = (key: string) => Promise<Principal | undefined>;

/** `plain` keys have all scopes; there may be several, for rotation. `file` lists restricted keys. */
export interface KeyOptions {
  plain: readonly string[];
  file?: string | undefined;
}

/**
 * The file is reread regularly.
 * @throws {ConfigError} if the file is unusable at start-up
 */
export function createKeyRing({ plain: keys, file }: KeyOptions): FindHolder {
  const plain = keys.map((key) => toPlain(key));
  if (file === undefined) return async (key) => match(plain, key);
  const parse = (content: string) => parseFile(file, content).map((entry) => toKnown(entry, watch));
  let reading: Promise<void> | undefined;
  const reread = async () => {
    const triedAt = performance.now();
    try {
      current = { known: parse(await readFile(file, 'utf8')), readAt: triedAt, triedAt, isRead: true };
    } catch {
      current = { ...current, triedAt, isRead: false };
    }
  };
  const refresh = () => (reading ??= reread().finally(() => (reading = undefined)));
  // A busy process may see what it has read only much later: that is not stale.
  const isStale = () => !current.isRead && performance.now() - current.readAt > STALE_MS;
  const watch = watching(async () => {
    await refresh();
    return new Set(isStale() ? [] : current.known.map(({ entry }) => entry));
  });
  const startedAt = performance.now();
  let current = { known: parse(readOrRefuse(file)), readAt: startedAt, triedAt: startedAt, isRead: true };
  return async (key) => {
    if (performance.now() - current.triedAt > REREAD_MS) await refresh();
    const held = match(plain, key);
    if (held) return held;
    if (isStale()) throw unusable();
    return match(current.known, key);
  };
}

const unusable = () => new UnavailableError('The file of keys cannot be read for now.');

/** @throws {UnavailableError} while the file is unusable */
export async function listKeys(file: string | undefined): Promise<KeyEntry[]> {
  try {
    return file === undefined ? [] : parseFile(file, await readFile(file, 'utf8'));
  } catch {
    throw unusable();
  }
}

/**
 * Returns the ids of the keys in the file that may invoke an application's agent for a user now.
 * @throws {UnavailableError} while the file is unusable
 */
export type ListInvokers = (of: { appName: string; userId: string }) => Promise<string[]>;

/**
 * The file is looked at each time, because the list guards work that goes on after its request; it is read when it has
 * changed.
 */
export function createInvokerList(file: string | undefined, appAliases: ReadonlyMap<string, string>): ListInvokers {
  let last: { version: string; keys: KeyEntry[] } | undefined;
  const findVersion = async (path: string) => {
    const { ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true }).catch((): never => {
      throw unusable();
    });
    return [ino, size, mtimeNs, ctimeNs].join(' ');
  };
  return async ({ appName, userId }) => {
    if (file === undefined) return [];
    // Before the read: a change in between is read again.
    const version = await findVersion(file);
    if (last?.version !== version) last = { version, keys: await listKeys(file) };
    return last.keys.flatMap(({ id, scopes, users, apps, expires }) => {
      const isOfApp = apps?.some((name) => (appAliases.get(name) ?? name) === appName) ?? true;
      const isOfUser = users?.includes(userId) ?? true;
      const isExpired = expires !== undefined && Date.now() >= Date.parse(expires);
      return isOfApp && isOfUser && !isExpired && scopes.includes('invoke') ? [id] : [];
    });
  };
}

/**
 * Polls the key file while a listener waits for a key's revocation: the removal or change of its entry.
 * @returns a function that registers `work` for an entry's revocation, and returns a function that cancels this
 */
function watching(findValid: () => Promise<ReadonlySet<string | undefined>>) {
  const watchers = new Set<Watcher>();
  let timer: NodeJS.Timeout | undefined;
  const look = async () => {
    const valid = await findValid();
    for (const { entry, work } of watchers) if (!valid.has(entry)) work();
  };
  return (entry: string) =>
    (work: () => void): (() => void) => {
      const watcher = { entry, work };
      watchers.add(watcher);
      timer ??= setInterval(() => void look(), REREAD_MS).unref();
      return () => {
        watchers.delete(watcher);
        if (watchers.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      };
    };
}

const toDigest = (text: string) => createHash('sha256').update(text).digest();
const toPlain = (key: string): Known => ({
  digest: toDigest(key),
  principal: FULL_KEY,
  expiresAt: Number.POSITIVE_INFINITY,
});

/** Compares a key with every digest in constant time, so that the duration reveals nothing about any key. */
function match(known: Known[], key: string): Principal | undefined {
  const sent = toDigest(key);
  const found = known.filter(({ digest }) => timingSafeEqual(digest, sent));
  return found.find(({ expiresAt }) => Date.now() < expiresAt)?.principal;
}

function readOrRefuse(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    throw new ConfigError('RUNTIME_API_KEYS_FILE: the file cannot be read.');
  }
}

/** Parses a JSON array of keys, or JSON lines; empty lines and lines that begin with `#` are ignored. */
function parseFile(file: string, content: string): KeyEntry[] {
  const text = content.trim();
  const refuse = (place: string, why: string): never => {
    throw new ConfigError(`RUNTIME_API_KEYS_FILE: found ${place} of ${file} to be no key: ${why}.`);
  };
  const parse = (json: string, place: string): unknown => {
    try {
      return JSON.parse(json);
    } catch {
      return refuse(place, 'it is not JSON; `npm run keys:create` prints one');
    }
  };
  const lines = text.split('\n').map((line) => line.trim());
  const given = text.startsWith('[')
    ? (parse(text, 'the content') as unknown[]).map((entry, index) => [`key ${index + 1}`, entry] as const)
    : lines.flatMap((line, index) =>
        line === '' || line.startsWith('#') ? [] : [[`line ${index + 1}`, parse(line, `line ${index + 1}`)] as const],
      );
  const ids = new Set<string>();
  return given.map(([place, entry]) => {
    const read = keySchema.safeParse(entry);
    if (!read.success)
      return refuse(place, read.error.issues.map((each) => `${each.path.join('.')} ${each.message}`).join('; '));
    if (ids.has(read.data.id)) return refuse(place, `the id ${read.data.id} is taken`);
    ids.add(read.data.id);
    return read.data;
  });
}

const toSet = (values: string[] | undefined) => values && new Set(values);

const toKnown = (given: KeyEntry, watch: ReturnType<typeof watching>): Known => {
  const { id, digest, scopes, users, apps, expires } = given;
  const expiresAt = expires === undefined ? undefined : Date.parse(expires);
  const entry = JSON.stringify(given);
  const limits = { scopes: new Set(scopes), users: toSet(users), apps: toSet(apps) };
  return {
    digest: Buffer.from(digest, 'hex'),
    entry,
    principal: { kind: 'key', id, ...limits, expiresAt, onRevoked: watch(entry) },
    expiresAt: expiresAt ?? Number.POSITIVE_INFINITY,
  };
};

/** The restrictions of a new key; an absent member means no restriction. */
export interface NewKey {
  id?: string | undefined;
  scopes: readonly Scope[];
  users?: string[] | undefined;
  apps?: string[] | undefined;
  expires?: string | undefined;
}

/** Creates a key, stored nowhere, and its entry for the file. @throws {ConfigError} for an invalid restriction */
export function createKey({ id = randomBytes(6).toString('hex'), ...limits }: NewKey): { key: string; entry: string } {
  const key = `${id}.${randomBytes(SECRET_BYTES).toString('base64url')}`;
  const read = keySchema.safeParse({ id, digest: toDigest(key).toString('hex'), ...limits });
  if (read.success) return { key, entry: JSON.stringify(read.data) };
  throw new ConfigError(read.error.issues.map((each) => `${each.path.join('.')}: ${each.message}.`).join('\n'));
}
