import type { z } from 'zod';
import type { AgentOverrides } from '../../../agent/definition/agent.ts';
import { clientToolsSchema, toClientTools } from '../../../agent/definition/client-tools.ts';
import { toAgentOverrides } from '../../../agent/definition/overrides.ts';
import { withoutAbsent } from '../../../agent/definition/snake-case.ts';
import {
  type FunctionCall,
  getFunctionCalls,
  getFunctionResponses,
  type JsonObject,
  type Part,
} from '../../../core/content.ts';
import type { SessionKey } from '../../../core/session.ts';
import { checkEventSize, type SessionContext } from '../../../conversation/sessions/session-context.ts';
import type { SessionHistory } from '../../../conversation/sessions/history-store.ts';
import { deleteSession, insertSession } from '../../../conversation/sessions/session-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { askToCancel } from '../../../invocations/fence.ts';
import { toInvocationOptions } from '../../../invocations/request.ts';
import { findRepeated } from '../../../invocations/retry.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import { eventDemands } from '../../../platform/http/operation/demands.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { answerAll, type AskedCall } from '../open-calls.ts';
import { findPaused, startTurn, type TurnCall } from '../start-turn.ts';
import type { doorHeaders } from './declare.ts';
import { withEcho } from './echo.ts';
import { RequestError, toPlace } from './errors.ts';
import type { ResponseRef } from './ids.ts';
import { nameAnswers, type Said, toEvents } from './input.ts';
import type { ChatRequest, CreateResponse } from './schemas.ts';

/** Dependencies of this door. */
export type OpenAiContext = InvocationContext & Pick<SessionContext, 'copyArtifacts' | 'forgetSessions'>;

/** Returns the members of a request that only the scope for overrides allows, as overrides of the own wire. */
export function toHarness(sent: CreateResponse | ChatRequest): JsonObject {
  const body: Partial<CreateResponse & ChatRequest> = sent;
  const { temperature, top_p, presence_penalty, frequency_penalty } = body;
  const { type, schema } = body.text?.format ?? { ...body.response_format, ...body.response_format?.json_schema };
  return withoutAbsent({
    temperature,
    top_p,
    presence_penalty,
    frequency_penalty,
    system_prompt: body.instructions,
    max_tokens: body.max_output_tokens ?? body.max_completion_tokens ?? body.max_tokens,
    output_schema: type === 'json_object' ? { type: 'object' } : type === 'json_schema' ? (schema ?? {}) : undefined,
  });
}

/** Returns the changes of the agent for one request. @throws {RequestError} for tools that it has not */
function toOverrides(body: CreateResponse | ChatRequest): AgentOverrides {
  const flat = (body.tools ?? []).flatMap((tool, index) => {
    // The Chat Completions API has the members of a tool one level deeper.
    if (tool.type === 'function') return (tool as { function?: object }).function ?? tool;
    if (tool.type === 'mcp' && tool.server_label === body.model) return [];
    const message = `There is no hosted tool ${tool.type}: the agent has its own, the client \`function\`.`;
    throw new RequestError(message, { param: `tools[${index}]` });
  });
  const { data, error } = clientToolsSchema.safeParse(flat);
  const [issue] = error?.issues ?? [];
  if (issue) throw new RequestError(issue.message, { param: toPlace(['tools', ...issue.path]) });
  const clientTools = body.tool_choice === 'none' ? undefined : toClientTools(data);
  return { ...toAgentOverrides(toHarness(body)), ...(clientTools && { clientTools }) };
}

/** The request, with who makes it. */
export interface OpenAiCall<Body = CreateResponse | ChatRequest> extends TurnCall {
  body: Body;
  principal: Principal;
  userId: string;
  /** With the names that front ends give a conversation. */
  headers: TurnCall['headers'] & z.output<typeof doorHeaders>;
}

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

/** Starts an answer, in the background. @throws as {@link prepareAnswer} */
export async function startAnswer(context: OpenAiContext, asked: Asked, call: OpenAiCall): Promise<ResponseRef> {
  const { ref, turn } = await prepareAnswer(context, asked, call);
  try {
    return { ...ref, invocationId: (await startTurn(context, ref.key, turn, call)).invocationId };
  } catch (error) {
    if (asked.isTemporary) await removeTemporary(context, ref);
    throw error;
  }
}

/**
 * Makes an answer ready, in its session or in a new one.
 * @throws {RequestError} @throws {ConflictError} where calls would stay without an answer
 * @throws {ForbiddenError} for words of the agent in a session that stays, without the scope to import
 */
export async function prepareAnswer(
  context: OpenAiContext,
  { timeline, history, streaming, isTemporary, ...asked }: Asked,
  call: OpenAiCall,
) {
  const { body, userId } = call;
  const param = 'input' in body ? 'input' : 'messages';
  const last = timeline.at(-1);
  if (last?.by !== 'user')
    throw new RequestError('There is nothing new to answer: the user says the last word.', { param });
  const before = timeline.slice(0, -1);
  const overrides = toOverrides(body);
  const key = asked.key ?? { appName: body.model, userId, sessionId: context.newId() };
  const { db } = context.database;
  const known = asked.key && history === undefined ? await context.histories.find(db, key) : history;
  const paused = await findPaused(context, key, known);
  const answers = paused ? takeAnswers(last.parts, paused.calls) : [];
  const calls = before.flatMap(({ parts }) => getFunctionCalls({ parts }));
  const parts = answers.length > 0 ? answers : nameAnswers(last.parts, calls);
  if (!asked.key && before.length > 0) {
    const events = toOwnEvents(context, key, before, isTemporary ? undefined : call.principal);
    await insertSession(db, key, {}, events);
  }
  const turn = {
    content: { role: 'user', parts: param === 'input' ? withEcho(parts, body) : parts },
    resumed: answers.length > 0 ? paused?.invocationId : undefined,
    overrides,
    streaming,
    requested: toRequested(call),
    createSession: asked.key ? history === null && ('new' as const) : before.length === 0,
  };
  return { ref: { key, answered: getFunctionResponses({ parts })[0]?.id ?? undefined }, turn };
}

const toRequested = ({ body, userId, headers }: OpenAiCall) => [userId, body, toSessionName(headers, body)];

/** Returns the name that the request of a front end gives its conversation. */
export const toSessionName = (headers: OpenAiCall['headers'], { metadata }: OpenAiCall['body']): string | undefined =>
  headers['x-session-id'] ?? headers['x-openwebui-chat-id'] ?? metadata?.['session_id'];

/** Finds the answer to an earlier request with the same key. @throws {KeyReusedError} */
export async function findAnswer(
  context: OpenAiContext,
  call: OpenAiCall,
  timeline: Said[],
): Promise<ResponseRef | undefined> {
  const { idempotency } = toInvocationOptions(call.headers, toRequested(call));
  const user = { appName: call.body.model, userId: call.userId, sessionId: '' };
  const found = idempotency && (await findRepeated(context, user, idempotency));
  const answered = getFunctionResponses(timeline.at(-1))[0]?.id ?? undefined;
  return found && { key: found.key, invocationId: found.invocationId, answered };
}

/** Returns what a client says was said, as events that its principal may store. @throws {ForbiddenError} */
export function toOwnEvents(
  { agents, newId, limits }: OpenAiContext,
  { appName }: SessionKey,
  said: Said[],
  principal: Principal | undefined,
  known: readonly FunctionCall[] = [],
) {
  const events = toEvents(said, agents.get(appName)?.name ?? appName, newId, known);
  if (principal) for (const demand of eventDemands(events)) requireScope(principal, demand);
  for (const event of events) checkEventSize(event, limits.eventBytes);
  return events;
}

/** Returns the answers to all calls that wait, and what the user says beside them; else nothing. */
function takeAnswers(parts: Part[], calls: AskedCall[]): Part[] {
  const sent = new Map(getFunctionResponses({ parts }).map(({ id, response }) => [id, response ?? {}]));
  const answers = answerAll(calls, ({ id }) => sent.get(id));
  return answers.length > 0 ? [...answers, ...parts.filter(({ functionResponse }) => !functionResponse)] : [];
}

/** Deletes the session of an answer that is not to stay, with all that was kept of it; what still runs there ends. */
export async function removeTemporary(
  context: OpenAiContext,
  { key, invocationId }: Pick<ResponseRef, 'key'> & Partial<ResponseRef>,
): Promise<void> {
  if (invocationId !== undefined) await askToCancel(context, key, invocationId);
  await removeSession(context, key, { copiesToo: true });
}

/** Deletes a session, and what quotes it, but memories and evaluation cases only where these `copiesToo` go. */
export const removeSession = (
  { database, forgetSessions }: OpenAiContext,
  key: SessionKey,
  options: { copiesToo: boolean },
): Promise<void> =>
  database.transaction(async (tx) => {
    await deleteSession(tx, key);
    await forgetSessions(tx, [key], options);
  });
