import { z } from 'zod';
import type { AgentDescription } from '../../../conversation/apps/agent-description.ts';
import { toDot, toSteps } from './graph.ts';
import type { DatabasePool } from '../../../platform/db/database.ts';
import { area } from '../../../platform/http/operation/area.ts';
import type { Answer } from '../../../platform/http/operation/operation.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import {
  appEventPath,
  appSessionPath,
  bareEventPath,
  bareSessionPath,
  eventPath,
} from '../../../platform/http/operation/parameters.ts';
import { findEvent } from '../../../conversation/sessions/event-store.ts';
import { spanSchema, withoutPrompts } from '../../../observability/traces/span.ts';
import { findEventTraceText, listSessionSpansText, type SpanScope } from '../../../observability/traces/span-store.ts';
import type { Tracing } from '../../../observability/traces/tracing.ts';
import { looseObject } from '../../../core/members.ts';
import { parseExactJson } from '../../../core/exact-json.ts';

const DEV_APP_PATH = '/dev/apps/{app_name}';
const TRACE_PATH = `${DEV_APP_PATH}/debug/trace`;
const OLD_TRACE_PATH = '/debug/trace';

export interface TraceContext {
  database: DatabasePool;
  agents: ReadonlyMap<string, { describe(): AgentDescription }>;
  tracing?: Tracing | undefined;
}

/** The paths of traces name no user, so a user with a token sees only spans of the user's own sessions. */
const toScope = (appNames: string[], principal: Principal): SpanScope => ({
  appNames,
  userId: principal.kind === 'user' ? principal.userId : undefined,
});

/** Without the scope `develop` a span's prompt and tools are left out, because both belong to the operator. */
function shownTo({ scopes }: Principal, text: string): string {
  return scopes.has('develop') ? text : JSON.stringify(withoutPrompts(parseExactJson(text)));
}

const room = area<TraceContext>('Debugging (development server)', {
  read: 'read',
  write: 'develop',
  owner: 'caller',
  wire: 'ADK',
});

const exampleSpan = {
  name: 'call_llm',
  span_id: '7a085853722dc6d2',
  trace_id: '4bf92f3577b34da6a3ce929d0e0e4736',
  start_time: 1_767_225_600_250_000_000,
  end_time: 1_767_225_601_500_000_000,
  attributes: { 'gen_ai.request.model': 'offline' },
  parent_span_id: null,
};

const eventTraceSchema = looseObject('The attributes of a span, and where it stands.', {
  trace_id: z.string().describe('The trace of the invocation.'),
  span_id: z.string().describe('The span of the step that made the event.'),
});

const sessionTrace = {
  method: 'get' as const,
  load: 'heavy' as const,
  summary: 'Get the trace of a session',
  description: 'The spans of its invocations, by start; the newest 5000. A step is there when it has ended.',
  success: {
    schema: z.array(spanSchema),
    description: 'The spans; none for an unknown session.',
    example: [exampleSpan],
  },
};

const eventTrace = {
  method: 'get' as const,
  summary: 'Get the trace of an event',
  description: 'The attributes of the latest span of the event, with `trace_id` and `span_id`.',
  success: {
    schema: eventTraceSchema,
    description: 'The attributes.',
    example: { ...exampleSpan.attributes, trace_id: exampleSpan.trace_id, span_id: exampleSpan.span_id },
  },
  errors: { 404: 'No span has this event.' },
  absent: () => 'Trace not found',
};

const getSessionTrace = room.operation({
  ...sessionTrace,
  path: `${TRACE_PATH}/session/{session_id}`,
  operationId: 'getSessionTrace',
  parameters: { path: appSessionPath },
  handler: (context, { path, principal }) => answerSpans(context, [path.appName], path.sessionId, principal),
});

/** The trace of a session at the path of ADK 1.x, which names no application: all applications are searched. */
const getSessionTraceLegacy = room.operation({
  ...sessionTrace,
  path: `${OLD_TRACE_PATH}/session/{session_id}`,
  operationId: 'getSessionTraceLegacy',
  area: 'Compatibility endpoints',
  parameters: { path: bareSessionPath },
  handler: (context, { path, principal }) =>
    answerSpans(context, [...context.agents.keys()], path.sessionId, principal),
});

const getEventTrace = room.operation({
  ...eventTrace,
  path: `${TRACE_PATH}/{event_id}`,
  operationId: 'getEventTrace',
  parameters: { path: appEventPath },
  handler: (context, { path, principal, notFound }) =>
    answerEventTrace(context, [path.appName], path.eventId, principal, notFound),
});

const getEventTraceLegacy = room.operation({
  ...eventTrace,
  path: `${OLD_TRACE_PATH}/{event_id}`,
  operationId: 'getEventTraceLegacy',
  area: 'Compatibility endpoints',
  parameters: { path: bareEventPath },
  handler: (context, { path, principal, notFound }) =>
    answerEventTrace(context, [...context.agents.keys()], path.eventId, principal, notFound),
});

const getEventGraph = room.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/users/{user_id}/sessions/{session_id}/events/{event_id}/graph`,
  operationId: 'getEventGraph',
  owner: 'path',
  summary: 'Draw what an event did',
  description: "The application's graph with the steps of the event highlighted; `{}` where there is no such event.",
  parameters: { path: eventPath },
  success: {
    schema: z.looseObject({ dotSrc: z.string().optional().describe('The graph in the DOT language of Graphviz.') }),
    description: 'The graph.',
    example: { dotSrc: 'digraph "harness_agent" {\n"harness_agent" [label="✦ harness_agent"]\n}' },
  },
  handler: async ({ database, agents }, { path }) => {
    const agent = agents.get(path.appName)?.describe();
    const event = agent && (await findEvent(database.db, path, path.eventId));
    return { kind: 'value', value: event ? { dotSrc: toDot(agent, { dark: true, steps: toSteps(event) }) } : {} };
  },
});

/** Operations on traces, available only if the development UI is enabled. */
export const traceOperations = [
  getSessionTrace,
  getEventTrace,
  getSessionTraceLegacy,
  getEventTraceLegacy,
  getEventGraph,
];

async function answerSpans(
  { database, tracing }: TraceContext,
  appNames: string[],
  sessionId: string,
  principal: Principal,
): Promise<Answer> {
  // Stores buffered spans, because the ADK Web UI requests the trace right after an invocation.
  await tracing?.flush();
  const text = await listSessionSpansText(database.db, toScope(appNames, principal), sessionId);
  return { kind: 'json', text: shownTo(principal, text) };
}

async function answerEventTrace(
  { database, tracing }: TraceContext,
  appNames: string[],
  eventId: string,
  principal: Principal,
  notFound: () => Error,
): Promise<Answer> {
  await tracing?.flush();
  const text = await findEventTraceText(database.db, toScope(appNames, principal), eventId);
  if (text === undefined) throw notFound();
  return { kind: 'json', text: shownTo(principal, text) };
}
