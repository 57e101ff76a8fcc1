import type { AgentDescription } from '../apps/agent-description.ts';
import type { DatabasePool } from '../db/database.ts';
import { NotFoundError } from '../core/errors.ts';
import {
  type Call,
  operation,
  type Operation,
  type Principal,
  type QueryParameter,
} from '../http/operation/operation.ts';
import { findAgentAt, toDot, toSteps, toStructure } from '../apps/graph.ts';
import { findEvent } from '../sessions/event-store.ts';
import { findEventTraceText, listSessionSpansText, type SpanScope } from './span-store.ts';
import type { Tracing } from './tracing.ts';

const APP = '/dev/apps/{app_name}';
const EVENT = `${APP}/users/{user_id}/sessions/{session_id}/events/{event_id}`;
const area = 'Debugging (development server)';
const graphSchema = { type: 'object' };
const spansSchema = { type: 'array', items: { $ref: '#/components/schemas/Span' } };

/** What the debugging operations need. */
interface DebugContext {
  database: DatabasePool;
  /** Applications that this process serves, by name. */
  agents: ReadonlyMap<string, { describe(): AgentDescription }>;
  tracing?: Tracing | undefined;
}

/** Debugging, in development UI mode only: traces of sessions and events, graphs of agents. */
export const debugRoutes = (context: DebugContext): Operation[] => [
  ...traceRoutes(context, { area, path: `${APP}/debug/trace`, suffix: '' }),
  // As ADK 1.x spelt them: of every application at once.
  ...traceRoutes(context, { area: 'Compatibility endpoints', path: '/debug/trace', suffix: 'Legacy' }),
  ...structureRoutes(context),
  eventGraphRoute(context),
  builderRoute,
];

/** One spelling of the trace operations. */
interface Spelling extends Pick<Operation, 'area' | 'path'> {
  /** Makes the operations' ids unique. */
  suffix: string;
}

function traceRoutes({ database, agents, tracing }: DebugContext, spelling: Spelling): Operation[] {
  const scopeOf = ({ path, principal }: Pick<Call<unknown>, 'path' | 'principal'>): SpanScope => ({
    appNames: path['app_name'] === undefined ? [...agents.keys()] : [path['app_name']],
    userId: ownerOf(principal),
  });
  return [
    operation({
      method: 'get',
      path: `${spelling.path}/session/{session_id}`,
      operationId: `getSessionTrace${spelling.suffix}`,
      area: spelling.area,
      summary: 'Get the trace of a session',
      description: 'The spans of its invocations, by start; the newest 5000. A step is there when it has ended.',
      success: { schema: spansSchema, description: 'The spans; none for an unknown session.' },
      handler: async (call) => {
        // The UI asks right after an invocation: what this process has not stored yet is waited for.
        await tracing?.flush();
        const sessionId = call.path['session_id'] ?? '';
        return { kind: 'json', text: await listSessionSpansText(database.db, scopeOf(call), sessionId) };
      },
    }),
    operation({
      method: 'get',
      path: `${spelling.path}/{event_id}`,
      operationId: `getEventTrace${spelling.suffix}`,
      area: spelling.area,
      summary: 'Get the trace of an event',
      description: 'The attributes of the latest span of the event, with `trace_id` and `span_id`.',
      success: { schema: graphSchema, description: 'The attributes.' },
      errors: { 404: 'No span has this event.' },
      handler: async (call) => {
        await tracing?.flush();
        const text = await findEventTraceText(database.db, scopeOf(call), call.path['event_id'] ?? '');
        if (text === undefined) throw new NotFoundError('Trace not found');
        return { kind: 'json', text };
      },
    }),
  ];
}

/** A user of a user pool sees the own spans only: the paths of traces name no user. */
const ownerOf = (principal: Principal) => (principal.kind === 'user' ? principal.userId : undefined);

const darkMode: QueryParameter = {
  name: 'dark_mode',
  schema: { type: 'boolean' },
  description: 'Colours for a dark page [false].',
};

function structureRoutes({ agents }: DebugContext): Operation[] {
  const findRoot = ({ app_name = '' }: Record<string, string>): AgentDescription => {
    const agent = agents.get(app_name);
    if (!agent) throw new NotFoundError(`App not found: ${app_name}`);
    return agent.describe();
  };
  return [
    operation({
      method: 'get',
      path: `${APP}/build_graph`,
      operationId: 'getAppStructure',
      area,
      summary: 'Get the structure of an application',
      description: 'Its agents and their tools. Tools of MCP servers and of skills are known in an invocation only.',
      success: { schema: graphSchema, description: '`root_agent` with its `tools` and `sub_agents`.' },
      errors: { 404: 'No such application.' },
      handler: async ({ path }) => ({
        kind: 'value',
        value: { name: path['app_name'], root_agent: toStructure(findRoot(path)) },
      }),
    }),
    operation({
      method: 'get',
      path: `${APP}/build_graph_image`,
      operationId: 'getAppGraphs',
      area,
      summary: 'Draw an application or one of its agents',
      description: 'In the DOT language of Graphviz, under its path (the root has the empty one) and as `dotSrc`.',
      query: [darkMode, { name: 'node', schema: { type: 'string' }, description: 'Path of names to an agent.' }],
      success: { schema: graphSchema, description: 'The graph, twice.' },
      errors: { 404: 'No such application or agent.' },
      handler: async ({ path, query }) => {
        const place = typeof query['node'] === 'string' ? query['node'] : '';
        const agent = findAgentAt(findRoot(path), place);
        if (!agent) throw new NotFoundError(`Node not found: ${place}`);
        const dotSrc = toDot(agent, { dark: query['dark_mode'] === true });
        return { kind: 'value', value: { [place]: { dotSrc }, dotSrc } };
      },
    }),
    operation({
      method: 'get',
      path: `${APP}/graph`,
      operationId: 'getAppGraph',
      area,
      summary: 'Draw an application',
      query: [darkMode],
      success: { schema: graphSchema, description: 'The graph in the DOT language as `dotSrc`.' },
      errors: { 404: 'No such application.' },
      handler: async ({ path, query }) => ({
        kind: 'value',
        value: { dotSrc: toDot(findRoot(path), { dark: query['dark_mode'] === true }) },
      }),
    }),
  ];
}

const eventGraphRoute = ({ database, agents }: DebugContext): Operation =>
  operation({
    method: 'get',
    path: `${EVENT}/graph`,
    operationId: 'getEventGraph',
    area,
    summary: 'Draw what an event did',
    description: "The application's graph with the steps of the event highlighted; `{}` where there is no such event.",
    success: { schema: graphSchema, description: 'The graph in the DOT language as `dotSrc`.' },
    handler: async ({ path }) => {
      const { app_name: appName = '', user_id: userId = '', session_id: sessionId = '', event_id: eventId = '' } = path;
      const agent = agents.get(appName)?.describe();
      const event = agent && (await findEvent(database.db, { appName, userId, sessionId }, eventId));
      return { kind: 'value', value: event ? { dotSrc: toDot(agent, { dark: true, steps: toSteps(event) }) } : {} };
    },
  });

const builderRoute: Operation = operation({
  method: 'get',
  path: `${APP}/builder`,
  operationId: 'getBuilderConfig',
  area,
  summary: "Get an application's configuration for the visual builder",
  description: 'Always empty, which switches the builder off: an agent is described by its deployment.',
  success: { schema: { type: 'string' }, description: 'Nothing.', mediaType: 'text/plain' },
  handler: async ({ response }) => {
    response.writeHead(200, { 'content-type': 'text/plain', 'content-length': 0 }).end();
    return { kind: 'sent' };
  },
});
