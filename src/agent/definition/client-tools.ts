import { z } from 'zod';
import { AgentError } from '../../core/errors.ts';
import { jsonObject, type JsonObject } from '../../core/content.ts';
import { bodyText, looseObject } from '../../core/members.ts';
import { CONFIRMATION_CALL, READ_RESULT } from '../../core/names.ts';
import type { AgentNode, Tool } from './tool.ts';

/** Limits of the tools that a client adds to one request, because each model call contains all of them. */
const MAX_TOOLS = 64;
const MAX_CHARACTERS = 65_536;

/** Tool names that clients cannot use, because the agent loop itself makes or answers calls of these names. */
const RESERVED = new Set(['transfer_to_agent', CONFIRMATION_CALL, READ_RESULT]);

const clientToolSchema = looseObject('A tool that the client runs.', {
  name: z
    .string()
    .regex(/^[a-zA-Z0-9_-]{1,64}$/)
    .describe('By which the model calls it: letters, digits, `_` and `-`; not that of a tool of the agent.'),
  description: bodyText.nullish().describe('What it does, for the model.'),
  parameters: jsonObject.nullish().describe('JSON Schema of its arguments, an object [no arguments].'),
});

export const clientToolsSchema = z
  .array(clientToolSchema)
  .max(MAX_TOOLS)
  .refine((tools) => JSON.stringify(tools).length <= MAX_CHARACTERS, `at most ${MAX_CHARACTERS} characters of JSON`)
  .refine((tools) => new Set(tools.map(({ name }) => name)).size === tools.length, 'two tools have one name');

export interface ClientTool {
  name: string;
  description: string;
  parameters: JsonObject;
}

export function toClientTools(tools: z.input<typeof clientToolsSchema> | null | undefined): ClientTool[] | undefined {
  if (!tools?.length) return undefined;
  return tools.map(({ name, description, parameters }) => ({
    name,
    description: description ?? '',
    parameters: { properties: {}, ...parameters, type: 'object' },
  }));
}

/**
 * Adds a client's tools to all agents of the tree except agents that are used as tools, because such an agent cannot
 * pause.
 * @throws {AgentError} if an agent already has a tool with the name of a client's tool, because a client must not
 * replace a tool
 */
export function addClientTools(node: AgentNode, tools: readonly ClientTool[]): void {
  if (node.kind === 'llm') {
    const taken = new Set(node.tools.map(({ name }) => name));
    const duplicate = tools.find(({ name }) => taken.has(name) || RESERVED.has(name));
    if (duplicate) {
      const message = `The client's tool \`${duplicate.name}\` has the name of a tool of the agent: give it another one.`;
      throw new AgentError('unsupported_override', message);
    }
    node.tools = [...node.tools, ...tools.map(toTool)];
  }
  for (const child of node.subAgents) addClientTools(child, tools);
}

/**
 * Converts a client's tool. The client answers its calls, so a call pauses the invocation. The arguments are not
 * checked here, because the client made the schema and checks them itself.
 */
const toTool = (tool: ClientTool): Tool => ({
  ...tool,
  needsConfirmation: false,
  longRunning: true,
  isOfClient: true,
  effect: 'none',
  checkArguments: () => Promise.resolve(undefined),
  run: () => Promise.resolve(undefined),
});
