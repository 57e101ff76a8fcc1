import { CONFIRMATION_CALL } from '../../agent/loop/confirmation.ts';
import { type FunctionCall, getFunctionResponses, getParts, type JsonObject, type Part } from '../../core/content.ts';
import { ConflictError } from '../../core/errors.ts';
import type { Event } from '../../core/event.ts';
import { isExactInteger } from '../../core/exact-json.ts';

/** A call of an agent that a person or a client answers. */
export interface ExternalCall {
  invocationId: string;
  /** Id of the function call that the answer goes to. */
  id: string;
  name: string;
  /** `client`: a tool of the front end; `question`: a tool of the agent whose answer comes from elsewhere. */
  kind: 'confirmation' | 'question' | 'client';
  /** The call that a front end shows. */
  toolCallId: string;
  message: string;
  /** Author of the answer; `undefined` while it waits. */
  answeredBy: string | undefined;
}

/** Lists the calls in events that a person or a client answers; one that waits for a confirmation is not asked yet. */
export function listExternalCalls(
  events: readonly Event[],
  isOwn = (event: Event) => event.author !== 'user',
): ExternalCall[] {
  const answers = new Map(
    events.flatMap((event) =>
      getFunctionResponses(event.content).flatMap(({ id }) =>
        isProvisional(event, id) ? [] : [[id ?? '', event.author ?? ''] as const],
      ),
    ),
  );
  const asked = events.filter(isOwn).flatMap(({ content, longRunningToolIds, invocationId }) =>
    getParts(content).flatMap(({ functionCall: call, partMetadata }) => {
      if (!call?.id || !longRunningToolIds?.includes(call.id)) return [];
      const { id } = call;
      const base = { invocationId: invocationId ?? '', id, name: call.name ?? '', answeredBy: answers.get(id) };
      return [{ ...base, ...describe(call, id, partMetadata?.['clientTool'] === true) }];
    }),
  );
  const held = new Set(
    asked.flatMap(({ kind, toolCallId, answeredBy }) => (kind === 'confirmation' && !answeredBy ? toolCallId : [])),
  );
  return asked.filter(({ kind, id }) => kind === 'confirmation' || !held.has(id));
}

function describe({ name, args }: FunctionCall, id: string, isOfClient: boolean) {
  if (isOfClient) return { kind: 'client', toolCallId: id, message: '' } as const;
  if (name !== CONFIRMATION_CALL)
    return { kind: 'question', toolCallId: id, message: `\`${name}\` waits for its answer.` } as const;
  const { originalFunctionCall, toolConfirmation } = (args ?? {}) as Record<string, Record<string, string>>;
  const message = toolConfirmation?.['hint'] ?? '';
  return { kind: 'confirmation', toolCallId: originalFunctionCall?.['id'] ?? id, message } as const;
}

/** Returns the answers to calls, as parts of what their user says, and the ids of those that have none. */
export function answerCalls(
  calls: readonly ExternalCall[],
  toResponse: (call: ExternalCall) => JsonObject | undefined,
): { parts: Part[]; missing: string[] } {
  const answers = calls.map((call) => ({ id: call.id, name: call.name, response: toResponse(call) }));
  return {
    parts: answers.flatMap((functionResponse) => (functionResponse.response ? [{ functionResponse }] : [])),
    missing: answers.flatMap(({ id, response }) => (response ? [] : id)),
  };
}

/**
 * Returns the answers to calls that wait, all of them or none: who goes on talking leaves tools of the client behind,
 * but nothing that a person was asked. @throws {ConflictError} where a call would stay without an answer
 */
export function answerAll(
  calls: readonly ExternalCall[],
  toResponse: (call: ExternalCall) => JsonObject | undefined,
): Part[] {
  const { parts, missing } = answerCalls(calls, toResponse);
  const left = new Set(parts.length > 0 ? [] : calls.flatMap(({ id, kind }) => (kind === 'client' ? id : [])));
  const needed = missing.filter((id) => !left.has(id));
  if (needed.length > 0)
    throw new ConflictError(
      `The session waits for answers to ${needed.join(', ')}: give or refuse all of them in one request.`,
    );
  return parts;
}

/** True for the answer to a call that only holds its place until a person has decided. */
export const isProvisional = ({ actions }: Event, callId: string | null | undefined): boolean =>
  Object.hasOwn(actions?.requestedToolConfirmations ?? {}, callId ?? '');

/** Returns the value that a client answers a call with as its response. */
export const toResponse = (value: unknown): JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value)
    ? (value as JsonObject)
    : { result: value ?? null };
