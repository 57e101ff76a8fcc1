import type { JsonObject, Part } from '../../core/content.ts';
import { cloneJson, isExactInteger, parseExactJson } from '../../core/exact-json.ts';
import type { CallState, LedgerAnswer, OpenCall } from './call-ledger.ts';
import { emptyActions } from '../../core/event.ts';

/** Maximum size of a tool's result, in characters of JSON: more than any artifact may have (`MAX_BODY_BYTES`). */
const MAX_RESULT_CHARACTERS = 110_000_000;
/** Length of JSON above which it is remembered, in characters. */
const LARGE = 50_000;

/** Outcome of a tool call. Without `response` the call waits for a person or another system. */
export interface Answer extends LedgerAnswer {
  /** State of the call in the ledger of tool calls. Default: `done`. */
  state?: CallState;
  hooks?: string[];
  /** True: the agent of the call waits in a session of its own, and the call is made again once it has ended. */
  waitsForChild?: true;
  /** Stack trace of the tool's code. Only for the tool's author, never for the model or a user. */
  stack?: string;
}

export const failed = (error: string): Answer => ({ response: { error }, attachments: [], actions: emptyActions() });

export const errorText = (error: unknown) =>
  error instanceof Error && error.message ? error.message : 'The tool failed.';

/** Converts a tool's result. A result that JSON cannot express, or that is too large, becomes an error. */
export function toResponse(value: unknown): JsonObject {
  const text = isLonger(value, MAX_RESULT_CHARACTERS) ? undefined : (toJson(value ?? null) ?? 'null');
  if (text === undefined || text.length > MAX_RESULT_CHARACTERS)
    return { error: `The tool's result is larger than ${MAX_RESULT_CHARACTERS} characters. Ask for less.` };
  const plain = parseExactJson(text);
  const isResponse = typeof plain === 'object' && plain !== null && !Array.isArray(plain) && !isExactInteger(plain);
  const response = isResponse ? (plain as JsonObject) : { result: plain };
  if (text.length > LARGE) largeTexts.set(response, isResponse ? text : `{"result":${text}}`);
  return response;
}

/** JSON of large responses, which are not changed once they are made, so that none is written twice. */
const largeTexts = new WeakMap<JsonObject, string>();

export const toJsonText = (response: JsonObject): string => largeTexts.get(response) ?? JSON.stringify(response);

/** Number of values that {@link isLonger} looks at, and how deep; what is larger or circular only `JSON.stringify` finds. */
const MAX_VALUES = 1_000_000;
const MAX_DEPTH = 1_000;

/**
 * True if a value is sure to have more than `maximum` characters of JSON. It is found before the JSON is written, because
 * that would take the same memory again.
 */
function isLonger(value: unknown, maximum: number): boolean {
  let [characters, values] = [0, 0];
  const add = (each: unknown, depth: number): boolean => {
    values += 1;
    if (values > MAX_VALUES || depth > MAX_DEPTH) return false;
    if (typeof each === 'string') characters += each.length;
    else if (typeof each === 'object' && each !== null && !('toJSON' in each)) {
      if (Array.isArray(each)) for (const one of each) if (!add(one, depth + 1)) return false;
      if (!Array.isArray(each)) for (const key in each) if (!add((each as JsonObject)[key], depth + 1)) return false;
    } else if (ArrayBuffer.isView(each)) characters += each.byteLength;
    return characters <= maximum;
  };
  add(value, 0);
  return characters > maximum;
}

/** A `bigint` at any depth becomes an integer. */
function toJson(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (error) {
    if (!(error instanceof TypeError) || !/BigInt/.test(error.message)) throw error;
    return JSON.stringify(cloneJson(value));
  }
}

/** As in ADK: the provisional response is an error, and the event's actions contain the request for confirmation. */
export function requestConfirmation(
  call: OpenCall,
  hint = `The agent wants to use \`${call.name}\`. Do you allow it?`,
  error = 'This tool call requires confirmation, please approve or reject.',
): Answer {
  return {
    response: { error },
    attachments: [],
    actions: {
      ...emptyActions(),
      skipSummarization: true,
      requestedToolConfirmations: { [call.id]: { hint, confirmed: false } },
    },
  };
}

/** The function response as a part; `[]` if the call still waits for its response. */
export function toResponsePart(call: OpenCall, { response, attachments }: Answer): Part[] {
  if (!response) return [];
  const media = attachments.length > 0 ? { parts: attachments } : {};
  return [{ functionResponse: { id: call.id, name: call.name, response, ...media } }];
}
