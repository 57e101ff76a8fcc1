import { z } from 'zod';
import { type JsonObject, jsonObject } from './content.ts';
import { eventSchema } from './event.ts';
import { bodyList, looseObject, optional } from './members.ts';
import { textFormat } from './text-format.ts';

/** Maximum length of an identifier in characters, because PostgreSQL limits an index row to 2,704 bytes. */
export const MAX_IDENTIFIER_LENGTH = 256;
/**
 * Maximum bytes (UTF-8) of an identifier: three identifiers and an event id of 256 characters fit into an index row.
 */
export const MAX_IDENTIFIER_BYTES = 512;

/**
 * The character that marks escaped text in the database (`platform/json-escape.ts`). Identifiers may not contain it,
 * because their columns are not escaped.
 */
export const STORE_MARK = '\uE000';

/** How deep child sessions are nested at most. */
export const MAX_CHILD_DEPTH = 5;

/** Control characters and line separators, which terminals and editors do not show. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;
/** `.` or `..` as a segment of a URL, percent-encoded or not, because `fetch` and proxies resolve such a segment. */
const DOT_SEGMENT = /(?:^|[/\\])(?:\.|%2e){1,2}(?: *$|[/\\?#])/i;

/** Returns why a text cannot identify any object, even one stored by an earlier version; `undefined` if it can. */
export function keyError(text: string): string | undefined {
  if (!text.isWellFormed()) return 'lone surrogates are not allowed';
  if (text.includes(STORE_MARK)) return 'the character U+E000 is not allowed';
  if (Buffer.byteLength(text) > MAX_IDENTIFIER_BYTES)
    return `at most ${MAX_IDENTIFIER_BYTES} bytes of UTF-8 are allowed`;
  return undefined;
}

/** Returns why a text cannot be the identifier of a new object; `undefined` if it can. */
export function nameError(text: string): string | undefined {
  if (UNSEEN.test(text)) return 'control characters and line separators are not allowed';
  if (DOT_SEGMENT.test(text)) return '`.` and `..` are not allowed, nor between slashes';
  return keyError(text);
}

/**
 * The OpenAPI document publishes the pattern, so RE2, Go and Rust must read it: no `\u`, no surrogates. Other rules are
 * in the format, which is not checked if the text breaks the pattern.
 */
const patternOf = (pattern: RegExp) => z.string().regex(pattern, { abort: true });

/** An identifier in a request body or header. `http/operation/parameters.ts` has the identifiers in paths. */
export const identifierSchema = textFormat('identifier', nameError, patternOf(/^[^\x00-\x1f\x7f-\x9f]{1,256}$/u));
/** An identifier that the client may leave empty; the server then chooses one. */
export const chosenIdentifierSchema = textFormat('identifier', nameError, patternOf(/^[^\x00-\x1f\x7f-\x9f]{0,256}$/u));
/** An identifier in a read. Earlier versions may have stored identifiers that are refused for new objects today. */
export const storedIdentifierSchema = textFormat('stored-identifier', keyError, patternOf(/^[^\x00-\x1f]{1,256}$/u));

/** Prefixes of session ids that evaluation runs make, here or in ADK's own tools. Lists leave these sessions out. */
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
  // The members below are sent only on request, because ADK's own clients refuse members that they do not know.
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
  parent: z
    .looseObject({
      sessionId: z.string().describe('Its session.'),
      invocationId: z.string().describe('Its invocation.'),
      callId: z.string().describe('Its id.'),
      rootSessionId: z.string().describe('The session of the user, at the top.'),
    })
    .optional()
    .describe('The call of an agent like a tool that the session belongs to. Only that agent writes there.'),
});

export const createSessionSchema = looseObject('A new session.', {
  sessionId: chosenIdentifierSchema.nullish().describe('Chosen id; without one the server makes it.'),
  state: optional(jsonObject, 'Initial state; `app:` and `user:` keys go to their scope, `temp:` keys are dropped.'),
  events: bodyList(eventSchema).nullish().describe('Events to start with, in order.'),
});

export const updateSessionSchema = looseObject('A change of state.', {
  stateDelta: jsonObject.describe('Keys to merge into the state; `app:` and `user:` keys go to their scope.'),
});

/** ADK 1.x sends the state as the whole body; ADK's JavaScript client sends `{"state": {…}}` instead. */
export const legacyStateSchema = jsonObject.describe('The initial state, or `{"state": …}`.');

/** Returns the member `state` if it is the only member and an object or null, else the whole body. */
export function toLegacyState(body: JsonObject): JsonObject {
  const [name, ...others] = Object.keys(body);
  const { state } = body;
  if (name !== 'state' || others.length > 0 || typeof state !== 'object' || Array.isArray(state)) return body;
  return (state ?? {}) as JsonObject;
}

/** Names a session. */
export interface SessionKey {
  appName: string;
  userId: string;
  sessionId: string;
}

/** A session of another user gets the same message, so that the response does not reveal it. */
export const sessionNotFound = (sessionId: string) => `Session not found: ${sessionId}`;

/** The changes of a state by scope; a scope without changes is absent. Keys keep their prefix, as in stored states. */
type ScopedDelta = Partial<Record<'session' | 'user' | 'app', JsonObject>>;

const isTemporary = (key: string) => key.startsWith('temp:');

/** Without a prototype, so that a key such as `__proto__` is data. */
const emptyObject = (): JsonObject => Object.create(null) as JsonObject;

/**
 * Separates a state's changes by prefix: `app:` is shared by all users, `user:` by one user's sessions. Drops `temp:`.
 */
export function splitDelta(delta: JsonObject): ScopedDelta {
  const scoped: ScopedDelta = {};
  for (const [key, value] of Object.entries(delta)) {
    if (isTemporary(key)) continue;
    const scope = key.startsWith('app:') ? 'app' : key.startsWith('user:') ? 'user' : 'session';
    (scoped[scope] ??= emptyObject())[key] = value;
  }
  return scoped;
}

export const onlyTemporary = (delta: JsonObject | null | undefined): JsonObject =>
  Object.fromEntries(Object.entries(delta ?? {}).filter(([key]) => isTemporary(key)));

/** Returns the changes without `temp:` keys, which exist only during one invocation and are never stored. */
export function withoutTemporary(delta: JsonObject): JsonObject {
  const kept = emptyObject();
  for (const [key, value] of Object.entries(delta)) if (!isTemporary(key)) kept[key] = value;
  return kept;
}
