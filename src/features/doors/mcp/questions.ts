import { inputResponse, type ServerContext } from '@modelcontextprotocol/server';
import { getFunctionCalls } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';
import { answerCalls, type ExternalCall, listExternalCalls } from '../open-calls.ts';
import { getCapabilities } from './mcp-call.ts';

/** Maximum number of characters of a call's arguments that its question quotes. */
const MAX_QUOTED = 2_000;

const CONFIRM = {
  type: 'object',
  properties: { confirmed: { type: 'boolean', title: 'Allow it' } },
  required: ['confirmed'],
};
const ANSWER = { type: 'object', properties: { answer: { type: 'string', title: 'Answer' } }, required: ['answer'] };

/** True if the client can show forms to a person. An empty capability `elicitation` means that it can. */
export function hasForms(request: ServerContext['mcpReq']): boolean {
  const { elicitation } = getCapabilities(request);
  return elicitation !== undefined && (elicitation.form !== undefined || Object.keys(elicitation).length === 0);
}

/** Returns the calls of a paused invocation that still wait for a person. */
export const listQuestions = (events: Event[]): ExternalCall[] =>
  listExternalCalls(events).filter(({ answeredBy }) => !answeredBy);

/** Returns the open questions of a paused invocation as MCP forms, by call id. */
export function toInputRequests(events: Event[]) {
  const calls = new Map(
    events.flatMap(({ content }) => getFunctionCalls(content).map((call) => [call.id, call] as const)),
  );
  return Object.fromEntries(
    listQuestions(events).map((question) => {
      const { name = question.name, args } = calls.get(question.toolCallId) ?? {};
      const quotation = `${name} ${JSON.stringify(args ?? {})}`;
      const excerpt = quotation.length > MAX_QUOTED ? `${quotation.slice(0, MAX_QUOTED).toWellFormed()}…` : quotation;
      const message = [question.message, excerpt].filter(Boolean).join('\n');
      const requestedSchema = question.kind === 'confirmation' ? CONFIRM : ANSWER;
      return [question.id, { method: 'elicitation/create', params: { mode: 'form', message, requestedSchema } }];
    }),
  );
}

/** Answers to a paused invocation's open calls, and ids of unanswered calls. Only a clear yes confirms. */
export const toAnswers = (events: Event[], responses: Record<string, unknown>): ReturnType<typeof answerCalls> =>
  answerCalls(listQuestions(events), ({ id, kind }) => {
    const answer = inputResponse(responses, id);
    if (answer.kind !== 'elicit') return undefined;
    const form = answer.action === 'accept' ? (answer.content ?? {}) : undefined;
    if (kind === 'confirmation') return { confirmed: form?.['confirmed'] === true };
    return form ? { result: form['answer'] ?? null } : { error: 'It was declined.' };
  });
