import type { AgentDescription } from '../apps/agent-description.ts';
import type { DatabasePool } from '../db/database.ts';
import { NotFoundError } from '../errors.ts';
import { type Call, operation, type Operation, type Principal } from '../http/operation.ts';
import { findAgentAt, toDot, toSteps, toStructure } from './graph.ts';
import { findEvent, findEventTraceText, listSessionSpansText, type SpanScope } from './store.ts';
import type { Tracing } from './tracing.ts';

const area = 'Debugging (development server)';
const APP = '/dev/apps/{app_name}';
const graphSchema = { type: 'object' };

/** What the debugging operations need. */
interface DebugContext {
  database: DatabasePool;
  /** Applications that this process serves, by name. */
  agents: ReadonlyMap<string, { describe(): AgentDescription }>;
  tracing: Tracing | undefined;
}

/** Debugging, in development UI mode only: traces of sessions and events, graphs of agents. */
export const debugRoutes = (context: DebugContext): Operation[] => [
  ...traceRoutes(context, `${APP}/debug/trace`, { area, operationId: '' }),
  // As ADK 1.x spelt them, for every application at once.
  ...traceRoutes(context, '/debug/trace', { area: 'Compatibility endpoints', operationId: 'Legacy' }),
  ...graphRoutes(context),
];

function traceRoutes(
  { database, agents, tracing }: DebugContext,
  path: string,
  { area, operationId }: Pick<Operation, 'area' | 'operationId'>,
): Operation[] {
  const scopeOf = (call: Pick<Call<unknown>, 'path' | 'principal'>): SpanScope => {
    const { app_name } = call.path;
    return { appNames: app_name === undefined ? [...agents.keys()] : [app_name], userId: ownerOf(call.principal) };
  };
  return [
    operation({
      method: 'get',
      path: `${path}/session/{session_id}`,
      operationId: `getSessionTrace${operationId}`,
      area,
      summary: 'Get the trace of a session',
      description: 'The spans of its invocations that have ended, by start; the newest 5000.',
      success: { schema: { type: 'array', items: { $ref: '#/components/schemas/Span' } }, description: 'The spans.' },
      handler: async (call) => {
        // What this process has not stored yet is waited for: the UI asks right after an invocation.
        await tracing?.flush();
        return {
          kind: 'json',
          text: await listSessionSpansText(database.db, scopeOf(call), call.path['session_id'] ?? ''),
        };
      },
    }),
    operation({
      method: 'get',
      path: `${path}/{event_id}`,
      operationId: `getEventTrace${operationId}`,
      area,
      summary: 'Get the trace of an event',
      description: 'The attributes of the latest span of the event, with `trace_id` and `span_id`.',
      success: { schema: { type: 'object' }, description: 'The attributes.' },
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

/** A user of a user pool sees the own spans only; the paths of traces name no user. */
const ownerOf = (principal: Principal) => (principal.kind === 'user' ? principal.userId : undefined);

function graphRoutes({ database, agents }: DebugContext): Operation[] {
  const findAgent = ({ app_name = '' }: Record<string, string>): AgentDescription => {
    const agent = agents.get(app_name);
    if (!agent) throw new NotFoundError(`App not found: ${app_name}`);
    return agent.describe();
  };
  const darkMode = {
    name: 'dark_mode',
    schema: { type: 'boolean' },
    description: 'Colours for a dark page [false].',
  } as const;
  return [
    operation({
      method: 'get',
      path: `${APP}/build_graph`,
      operationId: 'getAppStructure',
      area,
      summary: 'Get the structure of an application',
      description: 'Its agents with their tools. Tools of MCP servers and of skills are known in an invocation only.',
      success: { schema: graphSchema, description: '`root_agent` with its `tools` and `sub_agents`.' },
      errors: { 404: 'No such application.' },
      handler: async ({ path }) => {
        const root = findAgent(path);
        return { kind: 'value', value: { name: path['app_name'], root_agent: toStructure(root) } };
      },
    }),
    operation({
      method: 'get',
      path: `${APP}/build_graph_image`,
      operationId: 'getAppGraphs',
      area,
      summary: 'Draw an application or one of its agents',
      description: 'In the DOT language of Graphviz: a map by path of agent, the root has the empty one; `dotSrc` is the same graph.',
      query: [
        darkMode,
        { name: 'node', schema: { type: 'string' }, description: 'Path of names to an agent below the root.' },
      ],
      success: { schema: graphSchema, description: 'The graph under its path, and as `dotSrc`.' },
      errors: { 404: 'No such application or agent.' },
      handler: async ({ path, query }) => {
        const nodePath = typeof query['node'] === 'string' ? query['node'] : '';
        const agent = findAgentAt(findAgent(path), nodePath);
        if (!agent) throw new NotFoundError(`Node not found: ${nodePath}`);
        const dotSrc = toDot(agent, { dark: query['dark_mode'] === true });
        return { kind: 'value', value: { dotSrc, [nodePath]: { dotSrc } } };
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
        value: { dotSrc: toDot(findAgent(path), { dark: query['dark_mode'] === true }) },
      }),
    }),
    operation({
      method: 'get',
      path: `${APP}/users/{user_id}/sessions/{session_id}/events/{event_id}/graph`,
      operationId: 'getEventGraph',
      area,
      summary: 'Draw what an event did',
      description: "The application's graph with the event's steps highlighted; `{}` where there is no such event.",
      success: { schema: graphSchema, description: 'The graph in the DOT language as `dotSrc`.' },
      handler: async ({ path }) => {
        const { app_name: appName = '', user_id: userId = '', session_id: sessionId = '', event_id = '' } = path;
        const agent = agents.get(appName)?.describe();
        const event = agent && (await findEvent(database.db, { appName, userId, sessionId }, event_id));
        return { kind: 'value', value: event ? { dotSrc: toDot(agent, { dark: true, steps: toSteps(event) }) } : {} };
      },
    }),
    operation({
      method: 'get',
      path: `${APP}/builder`,
      operationId: 'getBuilderConfig',
      area,
      summary: "Get an application's configuration for the visual builder",
      description: 'Always empty, which switches the builder off: the agent is described by its deployment.',
      success: { schema: { type: 'string' }, description: 'Nothing.', mediaType: 'text/plain' },
      handler: async ({ response }) => {
        response.writeHead(200, { 'content-type': 'text/plain', 'content-length': 0 }).end();
        return { kind: 'sent' };
      },
    }),
  ];
}
