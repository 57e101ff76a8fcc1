import { hash } from 'node:crypto';
import type { AgentOverrides } from '../../../agent/definition/agent.ts';
import { toClientTools } from '../../../agent/definition/client-tools.ts';
import { toAgentOverrides } from '../../../agent/definition/overrides.ts';
import { withoutAbsent } from '../../../agent/definition/snake-case.ts';
import type { JsonObject, Part } from '../../../core/content.ts';
import { getFunctionCalls } from '../../../core/content.ts';
import { ConflictError } from '../../../core/errors.ts';
import type { SessionKey } from '../../../core/session.ts';
import { listInvocationEvents } from '../../../conversation/sessions/event-store.ts';
import { checkEventSize, type SessionContext } from '../../../conversation/sessions/session-context.ts';
import { deleteSession, insertSession } from '../../../conversation/sessions/session-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { askToCancel } from '../../../invocations/fence.ts';
import { findCurrent } from '../../../invocations/invocation-store.ts';
import { toInvocationOptions } from '../../../invocations/request.ts';
import { findRepeated } from '../../../invocations/retry.ts';
import { requireScope } from '../../../platform/http/access/authorize.ts';
import { eventDemands } from '../../../platform/http/operation/demands.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import { listAskedCalls } from '../open-calls.ts';
import { startTurn, type TurnCall } from '../start-turn.ts';
import { RequestError } from './errors.ts';
import type { ResponseRef } from './ids.ts';
import { nameAnswers, type Said, splitNew, toEvents } from './input.ts';
import { type ChatRequest, type CreateResponse, functionTools } from './schemas.ts';

/** Dependencies of this door. */
export interface OpenAiContext extends InvocationContext {
  copyArtifacts: SessionContext['copyArtifacts'];
  forgetSessions: SessionContext['forgetSessions'];
}

/** Members that change the deployed agent. */
const OVERRIDES = ['instructions', 'temperature', 'top_p', 'presence_penalty', 'frequency_penalty'] as const;
const LIMITS = ['max_output_tokens', 'max_completion_tokens', 'max_tokens'] as const;

/** Returns the members of a request that only the scope for overrides allows, as overrides of the own wire. */
export function toHarness(sent: CreateResponse | ChatRequest): JsonObject {
  const body = sent as JsonObject;
  const limit = LIMITS.map((name) => body[name]).find((value) => value != null);
  const given = OVERRIDES.filter((name) => body[name] != null);
  const named = given.map((name) => [name === 'instructions' ? 'system_prompt' : name, body[name]]);
  return withoutAbsent({ ...Object.fromEntries(named), max_tokens: limit, output_schema: toSchema(sent) });
}

/** Returns the JSON Schema of the answer; `undefined` for text. */
function toSchema(body: Partial<CreateResponse & ChatRequest>): JsonObject | null | undefined {
  const { type, schema } = body.text?.format ?? { ...body.response_format, ...body.response_format?.json_schema };
  return type === 'json_object' ? { type: 'object' } : type === 'json_schema' ? (schema ?? {}) : undefined;
}

/** Returns the changes of the agent for one request. @throws {RequestError} for what an agent here cannot do */
export function toOverrides(body: CreateResponse | ChatRequest): AgentOverrides {
  const { tools, tool_choice: choice } = body;
  if (choice != null && choice !== 'auto' && choice !== 'none')
    throw new RequestError('An agent cannot be made to call a tool: `tool_choice` is `auto` or `none`.', {
      param: 'tool_choice',
      code: 'unsupported_value',
    });
  const hosted = tools?.findIndex(({ type }) => type !== 'function') ?? -1;
  if (hosted >= 0)
    throw new RequestError(`There is no hosted tool ${String(tools?.[hosted]?.type)}: the agent has its own tools.`, {
      param: `tools[${hosted}]`,
      code: 'unsupported_value',
    });
  // The Chat Completions API has the members of a tool one level deeper.
  const flat = tools?.map((tool) => (tool as { function?: object }).function ?? tool);
  const { data, error } = functionTools.safeParse(flat ?? []);
  if (error) {
    const [issue] = error.issues;
    throw new RequestError(issue?.message ?? 'not valid', { param: `tools.${issue?.path.join('.') ?? ''}` });
  }
  const clientTools = choice === 'none' ? undefined : toClientTools(data);
  return { ...toAgentOverrides(toHarness(body)), ...(clientTools ? { clientTools } : {}) };
}

/** A question, and the session where it is asked. */
interface Asked {
  timeline: Said[];
  param: string;
  /** The session to go on with; `undefined`: a new one. */
  key: SessionKey | undefined;
  /** True: the session that is named may be new [false]. */
  createSession?: boolean;
  /** True: it is [false]. */
  isAbsent?: boolean;
  appName: string;
  userId: string;
  overrides: AgentOverrides;
  streaming: boolean;
  /** True: what the client says that was said before may be stored for this answer, and goes with it. */
  isTemporary: boolean;
  /** All that makes two requests the same. */
  requested: unknown;
  /** Notes the request on what the user says. */
  note: (parts: Part[]) => Part[];
}

/** The request, with who makes it. */
export type OpenAiCall = TurnCall & { principal: Principal };

/** An answer that may start, or the one to an earlier request with the same key. */
interface Prepared {
  ref: Omit<ResponseRef, 'invocationId'>;
  turn: Parameters<typeof startTurn>[2];
  repeated?: ResponseRef;
}

/** Starts an answer, in the background. @throws as {@link prepareAnswer} */
export async function startAnswer(context: OpenAiContext, asked: Asked, call: OpenAiCall): Promise<ResponseRef> {
  const { ref, turn, repeated } = await prepareAnswer(context, asked, call);
  if (repeated) return repeated;
  const { invocationId } = await startTurn(context, ref.key, turn, call);
  return { ...ref, invocationId };
}

/**
 * Makes an answer ready: in its session, or in a new one to which the client brings what was said before.
 * @throws {RequestError} @throws {ConflictError} where calls would stay without an answer
 * @throws {ForbiddenError} for words of the agent in a session that stays, without the scope to import
 */
export async function prepareAnswer(context: OpenAiContext, asked: Asked, call: OpenAiCall): Promise<Prepared> {
  const { appName, userId, requested, timeline, overrides, streaming } = asked;
  const { before, parts } = splitNew(timeline, asked.param);
  const idempotencyKey = call.headers['idempotency-key'];
  const derived = idempotencyKey && hash('sha256', JSON.stringify([appName, 'openai', idempotencyKey]));
  const key = asked.key ?? { appName, userId, sessionId: derived ?? context.newId() };
  const isNew = asked.key === undefined;
  const repeated = await findAnswer(context, key, requested, call);
  if (!repeated && isNew && before.length > 0) await storeBefore(context, key, before, asked, call);
  const paused = isNew || repeated || asked.isAbsent ? undefined : await findPaused(context, key);
  const answers = paused ? takeAnswers(parts, paused.calls) : [];
  const calls = before.flatMap((said) => getFunctionCalls({ parts: said.parts }));
  const said = asked.note(answers.length > 0 ? answers : nameAnswers(parts, calls));
  const resumed = answers.length > 0 ? paused?.invocationId : undefined;
  const createSession = asked.createSession ?? (isNew && before.length === 0);
  return {
    ref: { key, answered: resumed === undefined ? undefined : (answers[0]?.functionResponse?.id ?? '') },
    turn: { content: { role: 'user', parts: said }, resumed, overrides, streaming, requested, createSession },
    ...(repeated && { repeated }),
  };
}

/** Finds the answer to an earlier request with the same key. @throws {KeyReusedError} */
async function findAnswer(context: OpenAiContext, key: SessionKey, requested: unknown, { headers }: TurnCall) {
  const { idempotency } = toInvocationOptions(headers, [key, requested]);
  const found = idempotency && (await findRepeated(context, key, idempotency));
  return found && { key: found.key, invocationId: found.invocationId };
}

/** Stores what was said before as the beginning of a new session. */
async function storeBefore(
  { database, agents, newId, limits }: OpenAiContext,
  key: SessionKey,
  before: Said[],
  { isTemporary }: Asked,
  { principal, headers }: OpenAiCall,
): Promise<void> {
  const events = toEvents(before, agents.get(key.appName)?.name ?? key.appName, newId);
  if (!isTemporary) for (const demand of eventDemands(events)) requireScope(principal, demand);
  for (const event of events) checkEventSize(event, limits.eventBytes);
  await insertSession(database.db, key, {}, events).catch((error: unknown) => {
    // The first try of this request made it, and began nothing.
    if (!(error instanceof ConflictError) || headers['idempotency-key'] === undefined) throw error;
  });
}

async function findPaused({ database, feeds }: InvocationContext, key: SessionKey) {
  const invocationId = await findCurrent(database.db, key, true);
  const invocation = invocationId === undefined ? undefined : await feeds.readInvocation(key, invocationId);
  if (invocation?.status !== 'paused') return undefined;
  const events = await listInvocationEvents(database.db, key, invocation.id);
  return {
    invocationId: invocation.id,
    calls: listAskedCalls(events).filter(({ answeredBy }) => answeredBy === undefined),
  };
}

/** Returns the answers to all calls that wait; none where the user goes on talking to an agent that asked nothing. */
function takeAnswers(parts: Part[], calls: ReturnType<typeof listAskedCalls>): Part[] {
  const sent = new Map(
    parts.flatMap(({ functionResponse }) => (functionResponse ? [[functionResponse.id, functionResponse]] : [])),
  );
  const missing = calls.filter(({ id, kind }) => !sent.has(id) && (sent.size > 0 || kind !== 'client'));
  if (missing.length > 0)
    throw new ConflictError(
      `The conversation waits for answers to these calls, all at once: ${missing.map(({ id }) => id).join(', ')}`,
    );
  const answers = calls.flatMap(({ id, name }): Part[] => {
    const response = sent.get(id)?.response;
    return response ? [{ functionResponse: { id, name, response } }] : [];
  });
  // What the user says beside the answers is not lost.
  return answers.length > 0 ? [...answers, ...parts.filter(({ functionResponse }) => !functionResponse)] : [];
}

/** Deletes the session of an answer that is not to stay, with all that was kept of it; what still runs there ends. */
export async function deleteTemporary(
  context: OpenAiContext,
  { key, invocationId }: Pick<ResponseRef, 'key'> & Partial<ResponseRef>,
): Promise<void> {
  const { database, forgetSessions } = context;
  if (invocationId !== undefined) await askToCancel(context, key, invocationId);
  await database.transaction(async (tx) => {
    await deleteSession(tx, key);
    await forgetSessions(tx, [key], { copiesToo: true });
  });
}
