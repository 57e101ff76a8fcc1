import type { z } from 'zod';
import type { AgentOverrides } from '../../../agent/definition/agent.ts';
import { type ClientTool, clientToolsSchema, toClientTools } from '../../../agent/definition/client-tools.ts';
import { withoutAbsent } from '../../../agent/definition/snake-case.ts';
import { getFunctionCalls, getFunctionResponses, toMembers } from '../../../core/content.ts';
import type { SessionKey } from '../../../core/session.ts';
import type { SessionContext } from '../../../conversation/sessions/session-context.ts';
import { refuseChildSession } from '../../../conversation/sessions/session-row.ts';
import type { SessionHistory } from '../../../conversation/sessions/history.ts';
import { deleteSession, insertSession } from '../../../conversation/sessions/session-store.ts';
import type { InvocationContext } from '../../../invocations/context.ts';
import { newInvocationId } from '../../../invocations/request.ts';
import { requestCancel } from '../../../invocations/cancel.ts';
import { toInvocationOptions } from '../../../invocations/wire-request.ts';
import { findRepeated } from '../../../invocations/retry.ts';
import type { Answer, Call } from '../../../platform/http/operation/operation.ts';
import { begin, nameInvocation, type TurnRequest } from '../door.ts';
import type { InvocationRef } from '../handle.ts';
import { answerAll, findPaused } from '../open-calls.ts';
import { RequestError, toPlace } from './errors.ts';
import { nameAnswers, type Utterance, toOwnEvents } from './items.ts';
import { withEcho } from './response.ts';
import { type ChatRequest, type CreateResponse, type doorHeaders, toOverrides } from './schemas.ts';

export type OpenAiContext = InvocationContext & Pick<SessionContext, 'copyArtifacts' | 'forgetSessions'>;

export type OpenAiCall<Body = CreateResponse | ChatRequest> = Call<unknown, unknown, Headers, Body> & {
  userId: string;
};
type Headers = z.output<typeof doorHeaders>;

/** @throws {RequestError} for tools hosted by OpenAI, and if `tool_choice` names tools that the client does not have */
function toTools(body: OpenAiCall['body']): Pick<AgentOverrides, 'clientTools' | 'toolChoice'> {
  const { tool_choice: choice } = body;
  const clientTools = choice === 'none' ? undefined : toOwnTools(body);
  if (choice == null || typeof choice === 'string')
    return { ...(clientTools && { clientTools }), ...(clientTools && choice === 'required' && { toolChoice: choice }) };
  const { mode, tools = [] } = choice.type === 'allowed_tools' ? (choice.allowed_tools ?? choice) : { tools: [choice] };
  const names = (tools ?? []).map(({ type, ...tool }) => (type === 'function' ? readName(tool) : undefined));
  const chosenTools = clientTools?.filter(({ name }) => names.includes(name)) ?? [];
  if (chosenTools.length === 0 || chosenTools.length < new Set(names).size) {
    const message = 'A choice names tools of `tools`; which of its own tools an agent calls is not chosen.';
    throw new RequestError(message, { param: 'tool_choice' });
  }
  if (choice.type !== 'allowed_tools')
    return { clientTools: clientTools ?? [], toolChoice: { name: chosenTools[0]?.name ?? '' } };
  return { clientTools: chosenTools, ...(mode === 'required' && { toolChoice: mode }) };
}

/** Reads the name in a tool choice. The Chat Completions API nests the name in an object `function`. */
const readName = (tool: { name?: unknown; function?: unknown }): unknown =>
  toMembers(tool.function)['name'] ?? tool.name;

function toOwnTools({ model, tools }: OpenAiCall['body']): ClientTool[] | undefined {
  const flat = (tools ?? []).flatMap((tool, index) => {
    // The Chat Completions API nests the properties of a tool in an object `function`.
    if (tool.type === 'function') return (tool as { function?: object }).function ?? tool;
    if (tool.type === 'mcp' && tool.server_label === model) return [];
    const message = `There is no hosted tool ${tool.type}: the agent has its own, the client \`function\`.`;
    throw new RequestError(message, { param: `tools[${index}]` });
  });
  if (flat.length === 0) return undefined;
  const { data, error } = clientToolsSchema.safeParse(flat);
  const [issue] = error?.issues ?? [];
  if (issue) throw new RequestError(issue.message, { param: toPlace(['tools', ...issue.path]) });
  return toClientTools(data);
}

export interface Place {
  key: SessionKey;
  /** The session's events. `null`: it must not exist yet. Absent: no call in it waits for an answer. */
  history?: SessionHistory | null;
}

interface AnswerPlan {
  timeline: Utterance[];
  streaming: boolean;
  /** Finds the session to continue. `undefined`: create a session with the history that the client sends. */
  find: () => Promise<Place | undefined>;
  /** Runs a turn within the HTTP request. Default: run the turn in the background, and return the result of `show`. */
  run?: ((ref: InvocationRef, turn: TurnRequest) => Promise<Answer>) | undefined;
  show: (ref: InvocationRef) => Promise<Answer>;
}

/**
 * Repeats the answer to an earlier request with the same idempotency key. Then deletes a temporary session.
 * @throws as {@link prepareAnswer} @throws {KeyReusedError}
 */
export async function answer(context: OpenAiContext, call: OpenAiCall, plan: AnswerPlan): Promise<Answer> {
  const { timeline, streaming, find, run, show } = plan;
  const earlier = await findAnswer(context, call, timeline);
  const { ref, turn } = earlier ?? (await prepareAnswer(context, call, timeline, await find()));
  try {
    if (!turn) {
      nameInvocation(call.response, ref.invocationId);
      return await show(ref);
    }
    if (run) return await run(ref, turn);
    const begun = await begin({ ...call, context }, { key: ref.key, turn: { ...turn, streaming } });
    return await show({ ...ref, ...begun });
  } finally {
    // If `run` answered, the invocation has ended and needs no cancellation.
    if (isTemporary(call, ref.key)) await removeSession(context, run ? { ...ref, invocationId: '' } : ref);
  }
}

/**
 * @throws {RequestError} @throws {ConflictError} if calls would stay without an answer
 * @throws {ForbiddenError} if an agent's messages in the request would be stored permanently and the caller may not
 *   import
 */
async function prepareAnswer(
  context: OpenAiContext,
  call: OpenAiCall,
  timeline: Utterance[],
  place: Place | undefined,
) {
  const { body, userId, principal } = call;
  const param = 'input' in body ? 'input' : 'messages';
  const last = timeline.at(-1);
  if (last?.by !== 'user')
    throw new RequestError('There is nothing new to answer: the user says the last word.', { param });
  // The client's history is stored only in a new session, because an existing session already has it.
  const before = place ? [] : timeline.slice(0, -1);
  const overrides = withoutAbsent({ ...toOverrides(body), ...toTools(body) });
  const key = place?.key ?? { appName: body.model, userId, sessionId: context.newId() };
  const paused = await findPaused(context, key, place?.history);
  const responses = new Map(getFunctionResponses(last).map(({ id, response }) => [id, response ?? {}]));
  const answers = paused ? answerAll(paused.calls, ({ id }) => responses.get(id)) : [];
  const resumedId = answers.length > 0 ? paused?.invocationId : undefined;
  const parts = resumedId
    ? [...answers, ...last.parts.filter(({ functionResponse }) => !functionResponse)]
    : nameAnswers(last.parts, before.flatMap(getFunctionCalls));
  if (before.length > 0) {
    const events = toOwnEvents(context, key, before, isTemporary(call, key) ? undefined : principal);
    await insertSession(context.database.db, key, {}, events);
  }
  const invocationId = resumedId ?? newInvocationId(context);
  const turn: TurnRequest = {
    content: { role: 'user', parts: param === 'input' ? withEcho(parts, body) : parts },
    resumedId,
    invocationId,
    overrides,
    identity: toRequested(call),
    createSession: place ? place.history === null && 'new' : before.length === 0,
  };
  return { ref: { key, invocationId, answeredCallId: toAnswered(parts) }, turn };
}

const toAnswered = (parts: Utterance['parts'] = []) => getFunctionResponses({ parts })[0]?.id ?? undefined;

const toRequested = (call: OpenAiCall) => [call.userId, call.body, toSessionName(call)];

export const toSessionName = ({ headers, body: { metadata } }: OpenAiCall): string | undefined =>
  headers['x-session-id'] ?? headers['x-openwebui-chat-id'] ?? metadata?.['session_id'];

async function findAnswer(context: OpenAiContext, call: OpenAiCall, timeline: Utterance[]) {
  const { idempotency } = toInvocationOptions(call.headers, toRequested(call));
  const user = { appName: call.body.model, userId: call.userId, sessionId: '' };
  const invocation = idempotency && (await findRepeated(context, user, idempotency));
  return invocation && { ref: { ...invocation, answeredCallId: toAnswered(timeline.at(-1)?.parts) }, turn: undefined };
}

/** True if the session is deleted after the answer, because the client named no session or sent `store: false`. */
export const isTemporary = (call: OpenAiCall, { sessionId }: SessionKey): boolean =>
  'input' in call.body ? call.body.store === false : sessionId !== toSessionName(call);

/**
 * Deletes a session and the copies of its content, with `copiesToo` also memories and evaluation cases. First cancels
 * the invocation, if `invocationId` is not empty.
 * @throws {ForbiddenError} for a child session, of which nothing is cancelled
 */
export async function removeSession(
  context: OpenAiContext,
  { key, invocationId }: InvocationRef,
  options = { copiesToo: true },
): Promise<boolean> {
  if (invocationId !== '') {
    await refuseChildSession(context.database.db, key);
    await requestCancel(context, key, invocationId);
  }
  return context.database.transaction(async (tx) => {
    const isDeleted = await deleteSession(tx, key);
    await context.forgetSessions(tx, [key], options);
    return isDeleted;
  });
}
