import { ProtocolError, ProtocolErrorCode, Server } from '@modelcontextprotocol/server';
import { z } from 'zod';
import { callTool, listTools } from './call-tool.ts';
import { type McpCall, toSentence } from './mcp-call.ts';
import { getPrompt, listPrompts } from './prompts.ts';
import { listResources, listTemplates, readResource } from './resources.ts';
import { cancelTask, getTask, requireTasks, TASKS, updateTask } from './tasks.ts';

const taskParams = z.looseObject({ taskId: z.string().max(4_096) });

export function createServer(call: McpCall): Server {
  const hasPrompts = call.appNames.some((name) => call.context.agents.get(name)?.listSkills);
  const server = new Server(
    { name: 'agent-runtime', version: call.version },
    {
      capabilities: {
        tools: {},
        resources: {},
        ...(hasPrompts ? { prompts: {} } : {}),
        ...(call.isModern ? { extensions: { [TASKS]: {} } } : {}),
      },
      instructions: 'Each tool asks one agent. Give `session` of an answer back to go on with its conversation.',
      // Clients of earlier MCP cannot be asked within a response; the tool's result lists the questions instead.
      inputRequired: { legacyShim: false },
    },
  );
  server.setRequestHandler('tools/list', () => listTools(call));
  server.setRequestHandler('resources/templates/list', () => listTemplates(call));
  server.setRequestHandler('tools/call', ({ params }, { mcpReq }) => callTool(call, params, mcpReq));
  server.setRequestHandler('resources/list', ({ params }) => inWords(call, () => listResources(call, params?.cursor)));
  server.setRequestHandler('resources/read', ({ params }) => inWords(call, () => readResource(call, params.uri)));
  if (hasPrompts) {
    server.setRequestHandler('prompts/list', () => inWords(call, () => listPrompts(call)));
    server.setRequestHandler('prompts/get', ({ params }) => inWords(call, () => getPrompt(call, params.name)));
  }
  const tasks = { 'tasks/get': getTask, 'tasks/cancel': cancelTask, 'tasks/update': updateTask };
  for (const [method, work] of Object.entries(call.isModern ? tasks : {}))
    server.setRequestHandler(method, { params: taskParams }, ({ taskId }, { mcpReq }) => {
      requireTasks(mcpReq);
      return inWords(call, () => work(call, taskId, mcpReq.inputResponses ?? {}));
    });
  return server;
}

/** Runs `work`, and converts its errors to errors of the MCP protocol. @throws {ProtocolError} */
async function inWords<Result>(call: McpCall, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ProtocolError) throw error;
    const { status, sentence } = toSentence(call, error);
    throw new ProtocolError(status < 500 ? ProtocolErrorCode.InvalidParams : ProtocolErrorCode.InternalError, sentence);
  }
}
