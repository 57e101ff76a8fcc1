import type { z } from 'zod';
import type { AgentOverrides } from '../../../agent/definition/agent.ts';
import { type ClientTool, clientToolsSchema, toClientTools } from '../../../agent/definition/client-tools.ts';
import { toAgentOverrides } from '../../../agent/definition/overrides.ts';
import { withoutAbsent } from '../../../agent/definition/snake-case.ts';
import { getFunctionCalls, getFunctionResponses, type JsonObject } from '../../../core/content.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { SessionContext } from '../../../conversation/sessions/session-context.ts';
import type { SessionHistory } from '../../../conversation/sessions/history-store.ts';
import { deleteSession, insertSession } from '../../../conversation/sessions/session-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { askToCancel } from '../../../invocations/fence.ts';
import { toInvocationOptions } from '../../../invocations/request.ts';
import { findRepeated } from '../../../invocations/retry.ts';
import type { Answer } from '../../../platform/http/operation/operation.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { answerAll } from '../open-calls.ts';
import { findPaused, startTurn, type TurnCall } from '../start-turn.ts';
import { RequestError, toPlace } from './errors.ts';
import type { ResponseRef } from './ids.ts';
import { nameAnswers, type Said, toOwnEvents } from './input.ts';
import { withEcho } from './response.ts';
import type { ChatRequest, CreateResponse, doorHeaders } from './schemas.ts';

/** Dependencies of this door. */
export type OpenAiContext = InvocationContext & Pick<SessionContext, 'copyArtifacts' | 'forgetSessions'>;

/** The request, with who makes it. */
export interface OpenAiCall<Body = CreateResponse | ChatRequest> extends TurnCall {
  body: Body;
  principal: Principal;
  userId: string;
  /** With the names that front ends give a conversation. */
  headers: TurnCall['headers'] & z.output<typeof doorHeaders>;
}

/** Returns the members of a request that only the scope for overrides allows, as overrides of the own wire. */
export function toHarness(sent: CreateResponse | ChatRequest): JsonObject | undefined {
  const body: Partial<CreateResponse & ChatRequest> = sent;
  const { temperature, top_p, presence_penalty, frequency_penalty } = body;
  const { type, schema } = body.text?.format ?? { ...body.response_format, ...body.response_format?.json_schema };
  const given = withoutAbsent({
    temperature,
    top_p,
    presence_penalty,
    frequency_penalty,
    system_prompt: body.instructions,
    max_tokens: body.max_output_tokens ?? body.max_completion_tokens ?? body.max_tokens,
    output_schema: type === 'json_object' ? { type: 'object' } : type === 'json_schema' ? (schema ?? {}) : undefined,
  });
  return Object.keys(given).length > 0 ? given : undefined;
}

/** Returns the client's tools. @throws {RequestError} for those that an agent has not */
function toTools({ model, tools, tool_choice }: OpenAiCall['body']): ClientTool[] | undefined {
  const flat = (tools ?? []).flatMap((tool, index) => {
    // The Chat Completions API has the members of a tool one level deeper.
    if (tool.type === 'function') return (tool as { function?: object }).function ?? tool;
    if (tool.type === 'mcp' && tool.server_label === model) return [];
    const message = `There is no hosted tool ${tool.type}: the agent has its own, the client \`function\`.`;
    throw new RequestError(message, { param: `tools[${index}]` });
  });
  if (flat.length === 0 || tool_choice === 'none') return undefined;
  const { data, error } = clientToolsSchema.safeParse(flat);
  const [issue] = error?.issues ?? [];
  if (issue) throw new RequestError(issue.message, { param: toPlace(['tools', ...issue.path]) });
  return toClientTools(data);
}

/** An answer that has perhaps not begun. */
type PreparedRef = Omit<ResponseRef, 'invocationId'> & { invocationId?: string };

/** A question, and the session where it is asked. */
interface Asked {
  timeline: Said[];
  /** The session to go on with [a new one, to which the client brings what was said before]. */
  key?: SessionKey | undefined;
  /** The events of that session, where they were read; `null`: it has to be new. */
  history?: SessionHistory | null | undefined;
  streaming: boolean;
  /** True: the session goes with the answer. */
  isTemporary: boolean;
}

/** Starts an answer in the background, and shows it. @throws as {@link prepareAnswer} */
export async function startAnswer(
  context: OpenAiContext,
  asked: Asked,
  call: OpenAiCall,
  show: (ref: ResponseRef) => Promise<Answer>,
): Promise<Answer> {
  const { ref, turn } = await prepareAnswer(context, asked, call);
  return endWithSession(context, ref, asked.isTemporary, async () => {
    ref.invocationId = (await startTurn(context, ref.key, turn, call)).invocationId;
    return show(ref as ResponseRef);
  });
}

/**
 * Makes an answer ready, in its session or in a new one.
 * @throws {RequestError} @throws {ConflictError} where calls would stay without an answer
 * @throws {ForbiddenError} for words of the agent in a session that stays, without the scope to import
 */
export async function prepareAnswer(context: OpenAiContext, asked: Asked, call: OpenAiCall) {
  const { timeline, history, streaming, isTemporary } = asked;
  const { body, userId, principal } = call;
  const param = 'input' in body ? 'input' : 'messages';
  const last = timeline.at(-1);
  if (last?.by !== 'user')
    throw new RequestError('There is nothing new to answer: the user says the last word.', { param });
  const before = timeline.slice(0, -1);
  const clientTools = toTools(body);
  const overrides: AgentOverrides = { ...toAgentOverrides(toHarness(body)), ...(clientTools && { clientTools }) };
  const key = asked.key ?? { appName: body.model, userId, sessionId: context.newId() };
  const { db } = context.database;
  const known = asked.key && history === undefined ? await context.histories.find(db, key) : history;
  const paused = await findPaused(context, key, known);
  const sent = new Map(getFunctionResponses(last).map(({ id, response }) => [id, response ?? {}]));
  const answers = answerAll(paused?.calls ?? [], ({ id }) => sent.get(id));
  const isResumed = answers.length > 0;
  const parts = isResumed
    ? [...answers, ...last.parts.filter(({ functionResponse }) => !functionResponse)]
    : nameAnswers(last.parts, getFunctionCalls({ parts: before.flatMap((said) => said.parts) }));
  if (!asked.key && before.length > 0)
    await insertSession(db, key, {}, toOwnEvents(context, key, before, isTemporary ? undefined : principal));
  const turn = {
    content: { role: 'user', parts: param === 'input' ? withEcho(parts, body) : parts },
    resumed: isResumed ? paused?.invocationId : undefined,
    overrides,
    streaming,
    requested: toRequested(call),
    createSession: asked.key ? history === null && ('new' as const) : before.length === 0,
  };
  const ref: PreparedRef = { key, answered: toAnswered(parts) };
  return { ref, turn };
}

const toAnswered = (parts: Said['parts'] | undefined) => getFunctionResponses({ parts })[0]?.id ?? undefined;

const toRequested = ({ body, userId, headers }: OpenAiCall) => [userId, body, toSessionName(headers, body)];

/** Returns the name that the request of a front end gives its conversation. */
export const toSessionName = (headers: OpenAiCall['headers'], { metadata }: OpenAiCall['body']): string | undefined =>
  headers['x-session-id'] ?? headers['x-openwebui-chat-id'] ?? metadata?.['session_id'];

/** Finds the answer to an earlier request with the same key. @throws {KeyReusedError} */
export async function findAnswer(context: OpenAiContext, call: OpenAiCall, timeline: Said[]) {
  const { idempotency } = toInvocationOptions(call.headers, toRequested(call));
  const user = { appName: call.body.model, userId: call.userId, sessionId: '' };
  const found = idempotency && (await findRepeated(context, user, idempotency));
  return found && { key: found.key, invocationId: found.invocationId, answered: toAnswered(timeline.at(-1)?.parts) };
}

/** Answers, and then deletes the session of an answer that is not to stay. */
export async function endWithSession(
  context: OpenAiContext,
  ref: PreparedRef,
  isTemporary: boolean,
  answer: () => Promise<Answer>,
): Promise<Answer> {
  try {
    return await answer();
  } finally {
    if (isTemporary) await removeSession(context, ref);
  }
}

/** Deletes a session and what quotes it, memories and evaluation cases too unless it is said; what runs there ends. */
export async function removeSession(
  context: OpenAiContext,
  { key, invocationId }: PreparedRef,
  options = { copiesToo: true },
): Promise<void> {
  if (invocationId !== undefined) await askToCancel(context, key, invocationId);
  await context.database.transaction(async (tx) => {
    await deleteSession(tx, key);
    await context.forgetSessions(tx, [key], options);
  });
}
