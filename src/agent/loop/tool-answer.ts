import type { JsonObject, Part } from '../../core/content.ts';
import { cloneJson, isExactInteger, parseExactJson } from '../../core/exact-json.ts';
import type { CallState, LedgerAnswer, OpenCall } from './call-ledger.ts';
import { emptyActions } from '../../core/event.ts';

/** Maximum size of one function response, in characters of JSON, so that several fit into an event of at most 1 MiB. */
const MAX_RESPONSE_CHARACTERS = 500_000;

/** Outcome of a tool call. Without `response` the call waits for a person or another system. */
export interface Answer extends LedgerAnswer {
  /** State of the call in the ledger of tool calls. Default: `done`. */
  state?: CallState;
  hooks?: string[];
  /** Stack trace of the tool's code. Only for the tool's author, never for the model or a user. */
  stack?: string;
}

export const failed = (error: string): Answer => ({ response: { error }, attachments: [], actions: emptyActions() });

export const errorText = (error: unknown) =>
  error instanceof Error && error.message ? error.message : 'The tool failed.';

/** Converts a tool's result. A result that JSON cannot express, or that is too large, becomes an error. */
export function toResponse(value: unknown): JsonObject {
  const text = toJson(value ?? null) ?? 'null';
  if (text.length > MAX_RESPONSE_CHARACTERS) {
    return { error: `The tool's result is larger than ${MAX_RESPONSE_CHARACTERS} characters. Ask for less.` };
  }
  const plain = parseExactJson(text);
  return typeof plain === 'object' && plain !== null && !Array.isArray(plain) && !isExactInteger(plain)
    ? (plain as JsonObject)
    : { result: plain };
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

/**
 * Replaces a response by an error if all responses together would exceed the maximum. They end up in one event, and a
 * hundred of 4 MB each would exhaust memory before the event's size is checked.
 */
export function withinSize(maximum: number): (answer: Answer) => Answer {
  let room = maximum;
  return (answer) => {
    const size = getSize(answer);
    if (size <= room) {
      room -= size;
      return answer;
    }
    const error = `The results of this step are together larger than ${maximum} characters. Ask for less at once.`;
    return { ...answer, ...failed(error), actions: answer.actions };
  };
}

const getSize = ({ response, attachments }: Answer): number =>
  (response ? JSON.stringify(response).length : 0) +
  attachments.reduce((sum, { inlineData, text }) => sum + (inlineData?.data?.length ?? 0) + (text?.length ?? 0), 0);
