import { CONFIRMATION_CALL } from '../../core/names.ts';
import {
  type FunctionCall,
  getFunctionResponses,
  getParts,
  type JsonObject,
  type Part,
  toMembers,
} from '../../core/content.ts';
import type { SessionHistory } from '../../conversation/sessions/history.ts';
import { ConflictError } from '../../core/errors.ts';
import { type Event, withoutRewound } from '../../core/event.ts';
import { isExactInteger } from '../../core/exact-json.ts';
import type { SessionKey } from '../../core/session.ts';
import type { InvocationContext } from '../../invocations/context.ts';

/** A tool call that a person or the client has to answer, or has answered. */
export interface ExternalCall {
  invocationId: string;
  id: string;
  name: string;
  /**
   * `client`: call of a tool that the front end runs. `question`: call of an agent's tool whose result comes from
   * outside. `confirmation`: request to a person to allow another call.
   */
  kind: 'confirmation' | 'question' | 'client';
  /** Id of the call that a front end displays: for a confirmation, the call to be confirmed. */
  toolCallId: string;
  /** Name and arguments of the displayed call. */
  shown: { name: string; args: JsonObject };
  message: string;
  /**
   * Of a confirmation: `url` and `schema`, which the tool asks for beside its hint, and `kept`, its data for its next run.
   * Else empty.
   */
  request: JsonObject;
  /** Author of the answer; `undefined` while the call is unanswered. */
  answeredBy: string | undefined;
}

/** Lists the calls that a person or the client answers. Omits calls that still wait for a confirmation. */
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
  const calls = events.filter(isOwn).flatMap(({ content, longRunningToolIds, invocationId }) =>
    getParts(content).flatMap(({ functionCall: call, partMetadata }) => {
      if (!call?.id || !longRunningToolIds?.includes(call.id)) return [];
      const { id } = call;
      const base = { invocationId: invocationId ?? '', id, name: call.name ?? '', answeredBy: answers.get(id) };
      return [{ ...base, ...describe(call, id, partMetadata?.['clientTool'] === true) }];
    }),
  );
  const awaitingConfirmation = new Set(
    calls.flatMap(({ kind, toolCallId, answeredBy }) => (kind === 'confirmation' && !answeredBy ? toolCallId : [])),
  );
  return calls.filter(({ kind, id }) => kind === 'confirmation' || !awaitingConfirmation.has(id));
}

export const isOpen = ({ answeredBy }: ExternalCall): boolean => answeredBy === undefined;

export const listOpenCalls = (...args: Parameters<typeof listExternalCalls>): ExternalCall[] =>
  listExternalCalls(...args).filter(isOpen);

/** The newest paused invocation and its open calls. Events of a client are ignored: it must not invent calls. */
export async function findPaused(
  { feeds }: Pick<InvocationContext, 'feeds'>,
  key: SessionKey,
  history: SessionHistory | null | undefined,
): Promise<{ invocationId: string; calls: ExternalCall[] } | undefined> {
  if (!history) return undefined;
  const isOwn = ({ id, author }: Event) => author !== 'user' && history.runtimeEventIds.has(id ?? '');
  const waiting = listOpenCalls(withoutRewound(history.events), isOwn);
  const invocationId = waiting.at(-1)?.invocationId;
  const invocation = invocationId && (await feeds.readInvocation(key, invocationId));
  if (!invocation || invocation.status !== 'paused') return undefined;
  return { invocationId, calls: waiting.filter((call) => call.invocationId === invocationId) };
}

function describe({ name, args }: FunctionCall, id: string, isOfClient: boolean) {
  const own = { toolCallId: id, shown: { name: name ?? '', args: args ?? {} }, message: '', request: {} };
  if (isOfClient) return { ...own, kind: 'client' } as const;
  if (name !== CONFIRMATION_CALL)
    return { ...own, kind: 'question', message: `\`${name}\` waits for its answer.` } as const;
  const { originalFunctionCall: call, toolConfirmation } = own.shown.args as Record<string, FunctionCall | undefined>;
  const { hint = '', ...request } = toMembers(toolConfirmation);
  const shown = { name: call?.name ?? name, args: call?.args ?? {} };
  return { kind: 'confirmation', toolCallId: call?.id ?? id, shown, message: hint as string, request } as const;
}

/** Converts answers to parts of a user's message. Also returns the ids of calls without an answer. */
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
 * Converts the answers to all open calls to parts of a user's message. Every open call must be answered, with one
 * exception: a new prompt without any answer abandons calls of client tools, but never a question or a confirmation.
 * @throws {ConflictError} if a call would stay without an answer
 */
export function answerAll(
  calls: readonly ExternalCall[],
  toResponse: (call: ExternalCall) => JsonObject | undefined,
): Part[] {
  const { parts, missing } = answerCalls(calls, toResponse);
  const abandoned = new Set(parts.length > 0 ? [] : calls.flatMap(({ id, kind }) => (kind === 'client' ? id : [])));
  const unanswered = missing.filter((id) => !abandoned.has(id));
  if (unanswered.length > 0)
    throw new ConflictError(
      `The session waits for answers to ${unanswered.join(', ')}: give or refuse all of them in one request.`,
    );
  return parts;
}

/** True if the event's answer to the call is only a placeholder until a person confirms the call. */
export const isProvisional = ({ actions }: Event, callId: string | null | undefined): boolean =>
  Object.hasOwn(actions?.requestedToolConfirmations ?? {}, callId ?? '');

/** Type of a part with text, in AG-UI and in the APIs of OpenAI. */
export const TEXT = /^(?:(?:in|out)put_)?text$/;

/** A tool's answer as text: its texts joined if all parts are text, otherwise JSON. */
export function toAnswerText(content: string | readonly { type: string; text?: unknown }[] | null | undefined): string {
  if (typeof content === 'string') return content;
  const texts = content?.map(({ type, text }) => (TEXT.test(type) ? text : undefined));
  return texts?.length && texts.every((text) => typeof text === 'string')
    ? texts.join('\n')
    : JSON.stringify(content ?? null);
}

/** A function response must be an object, so any other value is wrapped as `{ result }`. */
export const toResponse = (value: unknown): JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value)
    ? (value as JsonObject)
    : { result: value ?? null };
