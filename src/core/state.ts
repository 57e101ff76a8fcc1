import type { JsonObject } from './content.ts';

/** A state delta taken apart by scope. Keys keep their prefix, so that the stored objects merge without renaming. */
export interface ScopedDelta {
  session: JsonObject;
  user: JsonObject;
  app: JsonObject;
}

const isTemporary = (key: string) => key.startsWith('temp:');

/** An object without a prototype: keys such as `__proto__` are data in it (see reliability B9). */
const emptyObject = (): JsonObject => Object.create(null) as JsonObject;

/** Splits a delta by the prefix of its keys: `app:` for all users, `user:` for all sessions of a user; not `temp:`. */
export function splitDelta(delta: JsonObject): ScopedDelta {
  const scoped: ScopedDelta = { session: emptyObject(), user: emptyObject(), app: emptyObject() };
  for (const [key, value] of Object.entries(delta)) {
    if (isTemporary(key)) continue;
    const scope = key.startsWith('app:') ? scoped.app : key.startsWith('user:') ? scoped.user : scoped.session;
    scope[key] = value;
  }
  return scoped;
}

/** The delta without its `temp:` keys, which live for one invocation only and are never stored. */
export function withoutTemporary(delta: JsonObject): JsonObject {
  const kept = emptyObject();
  for (const [key, value] of Object.entries(delta)) if (!isTemporary(key)) kept[key] = value;
  return kept;
}
