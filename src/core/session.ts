import { z } from 'zod';
import { type JsonObject, jsonObject } from './content.ts';
import { eventSchema } from './event.ts';
import { bodyList, looseObject, optional } from './members.ts';
import { textFormat } from './text-format.ts';

/** Maximum length of an identifier in characters; PostgreSQL takes index rows of at most 2,704 bytes. */
export const MAX_IDENTIFIER_LENGTH = 256;
/** Maximum size of an identifier in UTF-8: three of this size and an event id of 256 characters fit one index row. */
export const MAX_IDENTIFIER_BYTES = 512;

/** The store's escape mark (`db/json-escape.ts`). Identifiers may not hold it, because their columns are unescaped. */
export const STORE_MARK = '\uE000';

/** Characters that a terminal or an editor acts on instead of showing them. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;
/** `.` or `..`, encoded or not: `fetch` and proxies resolve such a segment of a URL. */
const DOT_SEGMENT = /(?:^|[/\\])(?:\.|%2e){1,2}(?: *$|[/\\?#])/i;

/** Returns why a text cannot be a key, not even of stored data; `undefined` if it can. */
export function keyError(text: string): string | undefined {
  if (!text.isWellFormed()) return 'lone surrogates are not allowed';
  if (text.includes(STORE_MARK)) return 'the character U+E000 is not allowed';
  if (Buffer.byteLength(text) > MAX_IDENTIFIER_BYTES)
    return `at most ${MAX_IDENTIFIER_BYTES} bytes of UTF-8 are allowed`;
  return undefined;
}

/** Returns why a text cannot name anything new; `undefined` if it can. */
export function nameError(text: string): string | undefined {
  if (UNSEEN.test(text)) return 'control characters and line separators are not allowed';
  if (DOT_SEGMENT.test(text)) return '`.` and `..` are not allowed, nor between slashes';
  return keyError(text);
}

/**
 * Patterns are published, so RE2, Go and Rust must read them: no `\u` and no surrogates. The format has the other rules,
 * and does not see a text that breaks the pattern.
 */
const patternOf = (pattern: RegExp) => z.string().regex(pattern, { abort: true });

/** An identifier in a body or header; `http/operation/parameters.ts` has those of paths. */
export const identifierSchema = textFormat('identifier', nameError, patternOf(/^[^\x00-\x1f\x7f-\x9f]{1,256}$/u));
/** May be empty: the server then chooses. */
export const chosenIdentifierSchema = textFormat('identifier', nameError, patternOf(/^[^\x00-\x1f\x7f-\x9f]{0,256}$/u));
/** For reads, because stored data may have an identifier that is refused today. */
export const storedIdentifierSchema = textFormat('stored-identifier', keyError, patternOf(/^[^\x00-\x1f]{1,256}$/u));

/** Ids of sessions that an evaluation run made, here or by ADK's own tools; lists leave them out. */
export const EVAL_SESSION_ID_PREFIXES = ['adk-eval-session-', '___eval___session___'] as const;

export const isEvalSession = (sessionId: string): boolean =>
  EVAL_SESSION_ID_PREFIXES.some((prefix) => sessionId.startsWith(prefix));

export const sessionSchema = looseObject('A conversation of one user with one application.', {
  id: z.string().describe('Unique for one user of one application; 1 to 256 characters, at most 512 bytes.'),
  appName: z.string().describe('The application that answers in it; `harness_agent` for every `/harness/invoke`.'),
  userId: z.string().describe('Its owner; chosen by the client, or the user of the token.'),
  state: jsonObject.describe('Free-form state: keys of the session, and the `app:` and `user:` keys that it shares.'),
  events: z.array(eventSchema).describe('The conversation, by sequence. Always `[]` in a list.'),
  lastUpdateTime: z.number().describe('Time of the last update, Unix seconds; never goes back.'),
  // Only on request, because ADK's own clients refuse members that they do not know.
  createTime: z.number().optional().describe('Time of its creation, Unix seconds; with `withDetails`, as the others.'),
  lastSequence: z.int().optional().describe('Number of its events.'),
  labels: z.record(z.string(), z.string()).optional().describe('Its labels, by name.'),
  firstText: z.string().optional().describe('Beginning of the first text of its user, at most 200 characters.'),
  forkedFrom: z
    .looseObject({
      sessionId: z.string().describe('Its id.'),
      atSequence: z.int().describe('Number of events that were taken over.'),
    })
    .optional()
    .describe('The session that it was made from, which may be gone by now.'),
});

/** The body may be absent. */
export const createSessionSchema = looseObject('A new session.', {
  sessionId: chosenIdentifierSchema.nullish().describe('Chosen id; without one the server makes it.'),
  state: optional(jsonObject, 'Initial state; `app:` and `user:` keys go to their scope, `temp:` keys are dropped.'),
  events: bodyList(eventSchema).nullish().describe('Events to start with, in order.'),
});

export const updateSessionSchema = looseObject('A change of state.', {
  stateDelta: jsonObject.describe('Keys to merge into the state; `app:` and `user:` keys go to their scope.'),
});

/** ADK 1.x: the whole body is the state; its JavaScript client sends `{"state": {…}}`. */
export const legacyStateSchema = jsonObject.describe('The initial state, or `{"state": …}`.');

/** The state in a legacy body: its only member `state` if that is an object or null, else the body itself. */
export function toLegacyState(body: JsonObject): JsonObject {
  const [name, ...others] = Object.keys(body);
  const { state } = body;
  if (name !== 'state' || others.length > 0 || typeof state !== 'object' || Array.isArray(state)) return body;
  return (state ?? {}) as JsonObject;
}

export interface SessionKey {
  appName: string;
  userId: string;
  sessionId: string;
}

/** The 404 of a session; a foreign session gets the same bytes. */
export const sessionNotFound = (sessionId: string) => `Session not found: ${sessionId}`;

/** A state delta by scope. Keys keep their prefix, so that the stored objects merge without renaming. */
export interface ScopedDelta {
  session: JsonObject;
  user: JsonObject;
  app: JsonObject;
}

const isTemporary = (key: string) => key.startsWith('temp:');

/** An object without a prototype: keys such as `__proto__` are data in it (see reliability B9). */
const emptyObject = (): JsonObject => Object.create(null) as JsonObject;

/** Splits a delta by the prefix of its keys: `app:` for all users, `user:` for all sessions of a user. Drops `temp:`. */
export function splitDelta(delta: JsonObject): ScopedDelta {
  const scoped: ScopedDelta = { session: emptyObject(), user: emptyObject(), app: emptyObject() };
  for (const [key, value] of Object.entries(delta)) {
    if (isTemporary(key)) continue;
    const scope = key.startsWith('app:') ? scoped.app : key.startsWith('user:') ? scoped.user : scoped.session;
    scope[key] = value;
  }
  return scoped;
}

export const onlyTemporary = (delta: JsonObject | null | undefined): JsonObject =>
  Object.fromEntries(Object.entries(delta ?? {}).filter(([key]) => isTemporary(key)));

/** `temp:` keys live for one invocation and are never stored. */
export function withoutTemporary(delta: JsonObject): JsonObject {
  const kept = emptyObject();
  for (const [key, value] of Object.entries(delta)) if (!isTemporary(key)) kept[key] = value;
  return kept;
}
