import { z } from 'zod';
import type { AgentDescription } from '../../../conversation/apps/hosted-agent.ts';
import { findAgentAt, structureNodeSchema, toDot, toSteps, toStructure } from './graph.ts';
import type { DatabasePool } from '../../../platform/db/database.ts';
import { area } from '../../../platform/http/operation/area.ts';
import type { Answer } from '../../../platform/http/operation/operation.ts';
import type { Principal } from '../../../platform/http/operation/principal.ts';
import {
  appEventPath,
  appPath,
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
import { NotFoundError } from '../../../core/errors.ts';

const DEV_APP_PATH = '/dev/apps/{app_name}';
const TRACE_PATH = `${DEV_APP_PATH}/debug/trace`;
const OLD_TRACE_PATH = '/debug/trace';

export interface DebugContext {
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

const ofCaller = area<DebugContext>('Debugging (development server)', {
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
  links: [],
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

const getSessionTrace = ofCaller.operation({
  ...sessionTrace,
  path: `${TRACE_PATH}/session/{session_id}`,
  operationId: 'getSessionTrace',
  parameters: { path: appSessionPath },
  handler: (context, { path, principal }) => answerSpans(context, [path.appName], path.sessionId, principal),
});

/** The trace of a session at the path of ADK 1.x, which names no application: all applications are searched. */
const getSessionTraceLegacy = ofCaller.operation({
  ...sessionTrace,
  path: `${OLD_TRACE_PATH}/session/{session_id}`,
  operationId: 'getSessionTraceLegacy',
  area: 'Compatibility endpoints',
  parameters: { path: bareSessionPath },
  handler: (context, { path, principal }) =>
    answerSpans(context, [...context.agents.keys()], path.sessionId, principal),
});

const getEventTrace = ofCaller.operation({
  ...eventTrace,
  path: `${TRACE_PATH}/{event_id}`,
  operationId: 'getEventTrace',
  parameters: { path: appEventPath },
  handler: (context, { path, principal, notFound }) =>
    answerEventTrace(context, [path.appName], path.eventId, principal, notFound),
});

const getEventTraceLegacy = ofCaller.operation({
  ...eventTrace,
  path: `${OLD_TRACE_PATH}/{event_id}`,
  operationId: 'getEventTraceLegacy',
  area: 'Compatibility endpoints',
  parameters: { path: bareEventPath },
  handler: (context, { path, principal, notFound }) =>
    answerEventTrace(context, [...context.agents.keys()], path.eventId, principal, notFound),
});

const getEventGraph = ofCaller.operation({
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

async function answerSpans(
  { database, tracing }: DebugContext,
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
  { database, tracing }: DebugContext,
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

/** What an application is made of belongs to its operator. */
const ofOperator = area<DebugContext>('Debugging (development server)', {
  read: 'develop',
  write: 'develop',
  owner: 'service',
  wire: 'ADK',
});

const absentApp = ({ appName }: { appName: string }) => `App not found: ${appName}`;

const dotSrc = z.string().describe('The graph in the DOT language of Graphviz.');
const exampleDot = 'digraph "harness_agent" {\n"harness_agent" [label="✦ harness_agent"]\n}';
const darkMode = z.boolean().default(false).describe('Colours for a dark page.');

const getAppStructure = ofOperator.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/build_graph`,
  operationId: 'getAppStructure',
  summary: 'Get the structure of an application',
  description: 'Its agents and their tools. Tools of MCP servers and of skills are known in an invocation only.',
  parameters: { path: appPath },
  success: {
    schema: z.looseObject({
      name: z.string().describe('The application.'),
      root_agent: structureNodeSchema.describe('The agent that gets the prompt.'),
    }),
    description: 'The root agent with its tools and the agents below it.',
    example: {
      name: 'harness_agent',
      root_agent: {
        name: 'harness_agent',
        type: 'agent',
        description: 'Answers questions.',
        model: 'offline',
        tools: [{ name: 'calculator', type: 'tool' }],
        sub_agents: [],
      },
    },
  },
  errors: { 404: 'No such application.' },
  absent: absentApp,
  handler: async ({ agents }, { path: { appName }, notFound }) => {
    const agent = agents.get(appName);
    if (!agent) throw notFound();
    return { kind: 'value', value: { name: appName, root_agent: toStructure(agent.describe()) } };
  },
});

const getAppGraphs = ofOperator.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/build_graph_image`,
  operationId: 'getAppGraphs',
  summary: 'Draw an application or one of its agents',
  description: 'In the DOT language of Graphviz, under its path (the root has the empty one) and as `dotSrc`.',
  parameters: {
    path: appPath,
    query: z.object({
      dark_mode: darkMode,
      node: z.string().max(1_024).default('').describe('Path of names to an agent.'),
    }),
  },
  success: {
    schema: z.looseObject({ dotSrc }).describe('`dotSrc`, and an object with `dotSrc` under the path of the agent.'),
    description: 'The graph, twice.',
    example: { dotSrc: exampleDot, '': { dotSrc: exampleDot } },
  },
  errors: { 404: 'No such application or agent.' },
  absent: absentApp,
  handler: async ({ agents }, { path, query: { node, dark_mode: dark }, notFound }) => {
    const root = agents.get(path.appName);
    if (!root) throw notFound();
    const agent = findAgentAt(root.describe(), node);
    if (!agent) throw new NotFoundError(`Node not found: ${node}`);
    const graph = { dotSrc: toDot(agent, { dark }) };
    return { kind: 'value', value: { [node]: graph, ...graph } };
  },
});

const getAppGraph = ofOperator.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/graph`,
  operationId: 'getAppGraph',
  summary: 'Draw an application',
  parameters: { path: appPath, query: z.object({ dark_mode: darkMode }) },
  success: { schema: z.looseObject({ dotSrc }), description: 'The graph.', example: { dotSrc: exampleDot } },
  errors: { 404: 'No such application.' },
  absent: absentApp,
  handler: async ({ agents }, { path, query, notFound }) => {
    const agent = agents.get(path.appName);
    if (!agent) throw notFound();
    return { kind: 'value', value: { dotSrc: toDot(agent.describe(), { dark: query.dark_mode }) } };
  },
});

const getBuilderConfig = ofOperator.operation({
  method: 'get',
  path: `${DEV_APP_PATH}/builder`,
  operationId: 'getBuilderConfig',
  summary: "Get an application's configuration for the visual builder",
  description: 'Always empty, which switches the builder off: an agent is described by its deployment.',
  parameters: { path: appPath },
  success: { schema: z.string(), description: 'Nothing.', example: '', mediaType: 'text/plain' },
  handler: async (_context, { response }) => {
    response.writeHead(200, { 'content-type': 'text/plain', 'content-length': 0 }).end();
    return { kind: 'sent' };
  },
});

/** Operations on graphs and traces, available only if the development UI is enabled. */
export const debugOperations = [
  getSessionTrace,
  getEventTrace,
  getSessionTraceLegacy,
  getEventTraceLegacy,
  getEventGraph,
  getAppStructure,
  getAppGraphs,
  getAppGraph,
  getBuilderConfig,
];
