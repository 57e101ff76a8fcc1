import { z } from 'zod';
import { AgentError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/content.ts';
import type { McpServer } from '../definition/agent.ts';
import type { ToolContext } from '../definition/tool.ts';
import { tooMuch } from './mcp-error.ts';

/** Maximum length of a server's questions to the user during one call, with the server's state, as JSON. */
const MAX_CHARACTERS = 32_768;

const question = z.looseObject({
  mode: z.string().optional(),
  message: z.string(),
  url: z.url({ protocol: /^https?$/ }).optional(),
  requestedSchema: z.looseObject({ properties: z.record(z.string(), z.looseObject({})).optional() }).optional(),
});
type Question = z.output<typeof question>;

/** A person's reply to a server's question, in the form that MCP defines. */
export type Answer = { action: 'accept' | 'decline' | 'cancel'; content?: JsonObject };

/** A server's questions to the user, by key, and the data that the repeated call needs beside the replies. */
const openQuestionsSchema = z.object({
  questions: z.record(z.string(), question),
  requestState: z.string().optional(),
  taskId: z.string().optional(),
  answers: z.record(z.string(), z.custom<Answer>()).optional(),
});
export type OpenQuestions = z.output<typeof openQuestionsSchema>;

/** Derives a key for a question to the user, because questions of the older MCP protocol have none. */
export const toKey = (params: JsonObject): string =>
  JSON.stringify([params['message'], params['requestedSchema'], params['url']]);

/** @throws {AgentError} if a server asks for input that a person cannot give, or its questions are too long */
export function toOpenQuestions(
  requests: Record<string, JsonObject>,
  more: Omit<OpenQuestions, 'questions'>,
): OpenQuestions {
  const other = Object.values(requests).find(({ method }) => method !== 'elicitation/create');
  if (other) throw new AgentError('mcp_failed', 'It asks for something that no person can give.');
  const questions = Object.entries(requests).map(([key, { params }]) => [key, question.parse(params)] as const);
  const open = { questions: Object.fromEntries(questions), ...more };
  if (JSON.stringify(open).length > MAX_CHARACTERS)
    throw tooMuch(`questions of more than ${MAX_CHARACTERS} characters`);
  return open;
}

/**
 * Asks the user of the session the server's questions. The invocation pauses as for a confirmation, and the `payload`
 * of the confirmation contains the replies. The server's text is shown as a quotation.
 */
export function promptPerson({ name }: McpServer, open: OpenQuestions, context: ToolContext): JsonObject {
  const all = Object.entries(open.questions);
  const lines = all.map(([, { message, url }]) => (url === undefined ? message : `${message} Open ${url}`));
  const forms = all.filter(([, { url }]) => url === undefined);
  const one = all.length === 1 ? forms[0] : undefined;
  const schema = one
    ? one[1].requestedSchema
    : { type: 'object', properties: Object.fromEntries(forms.map(([key, form]) => [key, form.requestedSchema])) };
  const payload = one ? toTemplate(one[1]) : Object.fromEntries(forms.map(([key, form]) => [key, toTemplate(form)]));
  const hint = `The MCP server \`${name}\` asks: ${lines.join('\n')}`;
  return requestConfirmation(context, { hint, ...(forms.length > 0 && { payload, schema }), kept: open });
}

/** Pauses the invocation at this call until a person, who reads `hint`, confirms. Returns the provisional response. */
export function requestConfirmation({ actions, functionCallId }: ToolContext, request: JsonObject): JsonObject {
  const requested = { ...request, confirmed: false };
  actions.requestedToolConfirmations = { ...actions.requestedToolConfirmations, [functionCallId]: requested };
  return { error: 'The server asks a person before it answers.' };
}

const toTemplate = ({ requestedSchema }: Question): JsonObject =>
  Object.fromEntries(
    Object.entries(requestedSchema?.properties ?? {}).map(([name, member]) => [name, member['default'] ?? null]),
  );

/** Returns the server's questions in the earlier attempt of the call, with the replies; `undefined` if none. */
export function readAnswers({
  confirmation,
}: ToolContext): { pending: OpenQuestions; answers: Record<string, Answer> } | undefined {
  const open = confirmation && openQuestionsSchema.safeParse(confirmation.kept).data;
  if (!open) return undefined;
  const all = Object.entries(open.questions);
  const toAnswer = (key: string, form: Question): Answer => {
    if (!confirmation.confirmed) return { action: 'decline' };
    if (form.url !== undefined) return { action: 'accept' };
    const input = all.length === 1 ? confirmation.payload : confirmation.payload?.[key];
    const content = Object.entries({ ...toTemplate(form), ...(input as JsonObject | undefined) });
    return { action: 'accept', content: Object.fromEntries(content.filter(([, value]) => value !== null)) };
  };
  return { pending: open, answers: Object.fromEntries(all.map(([key, form]) => [key, toAnswer(key, form)])) };
}
