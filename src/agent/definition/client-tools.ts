import { z } from 'zod';
import { AgentError } from '../../core/errors.ts';
import { jsonObject, type JsonObject } from '../../core/content.ts';
import { bodyList, bodyText, looseObject } from '../../core/members.ts';
import type { AgentNode } from './agent.ts';
import type { Tool } from './tool.ts';

/** Most tools that a client brings with one request, and their size together: the model is told all, in each call. */
const MAX_TOOLS = 64;
const MAX_CHARACTERS = 65_536;

/** Names of calls that the loop makes or answers itself. */
const RESERVED = new Set(['transfer_to_agent', 'adk_request_confirmation']);

const clientToolSchema = looseObject('A tool that the client runs.', {
  name: z
    .string()
    .regex(/^[a-zA-Z0-9_-]{1,64}$/)
    .describe('By which the model calls it: letters, digits, `_` and `-`; not that of a tool of the agent.'),
  description: bodyText.nullish().describe('What it does, for the model.'),
  parameters: jsonObject.nullish().describe('JSON Schema of its arguments, an object [no arguments].'),
});

/** Tools that a client brings with a request. */
export const clientToolsSchema = bodyList(clientToolSchema)
  .max(MAX_TOOLS)
  .refine((tools) => JSON.stringify(tools).length <= MAX_CHARACTERS, `at most ${MAX_CHARACTERS} characters of JSON`)
  .refine((tools) => new Set(tools.map(({ name }) => name)).size === tools.length, 'two tools have one name');

/** A tool that the model may call, and the client runs. */
export interface ClientTool {
  name: string;
  description: string;
  parameters: JsonObject;
}

/** Returns tools as a request brings them; `undefined` where there are none. */
export function toClientTools(sent: z.input<typeof clientToolsSchema> | null | undefined): ClientTool[] | undefined {
  if (!sent?.length) return undefined;
  return sent.map(({ name, description, parameters }) => ({
    name,
    description: description ?? '',
    parameters: { properties: {}, ...parameters, type: 'object' },
  }));
}

/**
 * Adds a client's tools to the agents that may pause: not to those that are tools themselves.
 * @throws {AgentError} for a name that the agent has a tool of: a client replaces none.
 */
export function addClientTools(node: AgentNode, tools: readonly ClientTool[]): void {
  if (node.kind === 'llm') {
    const taken = new Set(node.tools.map(({ name }) => name));
    const twice = tools.find(({ name }) => taken.has(name) || RESERVED.has(name));
    if (twice) {
      const message = `The client's tool \`${twice.name}\` has the name of a tool of the agent: give it another one.`;
      throw new AgentError('unsupported_override', message);
    }
    node.tools = [...node.tools, ...tools.map(toTool)];
  }
  for (const child of node.subAgents) addClientTools(child, tools);
}

/** Calls of it stay open, and pause the invocation; who brought its schema checks the arguments by it. */
const toTool = (tool: ClientTool): Tool => ({
  ...tool,
  needsConfirmation: false,
  longRunning: true,
  isOfClient: true,
  effect: 'none',
  checkArguments: () => Promise.resolve(undefined),
  run: () => Promise.resolve(undefined),
});
