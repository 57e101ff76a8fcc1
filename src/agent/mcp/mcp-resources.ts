import { z } from 'zod';
import { INPUT_LIMITS } from '../../core/limits.ts';
import type { JsonObject } from '../../core/content.ts';
import { type Tool, type ToolContext, toParameters } from '../definition/tool.ts';
import { sendRequest, checkResult, type Connected, isMembers, toToolResult } from './mcp-request.ts';
import { tooMuch } from './mcp-error.ts';
import { received } from './mcp-transport.ts';

/** Members of a resource or prompt that the model sees in a list. */
const SHOWN = ['uri', 'uriTemplate', 'name', 'title', 'description', 'mimeType', 'size', 'arguments'];
const LISTS = {
  resources: ['resources/list', 'resources'],
  templates: ['resources/templates/list', 'resourceTemplates'],
  prompts: ['prompts/list', 'prompts'],
} as const;

const text = (description: string) => ({ type: 'string', maxLength: 8_192, description });
const page = toParameters({ cursor: text('The `nextCursor` of the page before.') });

/** Tools that read a server's resources and prompts, if the configuration allows it and the server has any. */
export function readingTools(connected: Connected): Tool[] {
  const { client, server } = connected;
  const capabilities = client.getServerCapabilities();
  const of = `of the MCP server \`${server.name}\``;
  return [
    ...(server.resources && capabilities?.resources ? resourceTools(connected, of) : []),
    ...(server.prompts && capabilities?.prompts ? promptTools(connected, of) : []),
  ];
}

function resourceTools(connected: Connected, of: string): Tool[] {
  return [
    toReader(
      'list_resources',
      `Lists the resources ${of}, and templates of their addresses.`,
      page,
      async (args, context) => ({
        ...(await list(connected, 'resources', args, context)),
        // An error of the request for templates is ignored, because many servers have none and do not know the method.
        ...(args['cursor'] === undefined && (await list(connected, 'templates', {}, context).catch(() => ({})))),
      }),
    ),
    toReader(
      'read_resource',
      `Reads a resource ${of}.`,
      toParameters({ uri: text('Its address, of the list or made by a template.') }, 'uri'),
      async ({ uri }, context) => {
        const answer = await requestList(connected, 'resources/read', { uri }, 'contents', context);
        const content = answer.entries.map((resource) => ({ type: 'resource', resource }));
        return toToolResult(checkResult({ content }), context.attachments);
      },
    ),
  ];
}

function promptTools(connected: Connected, of: string): Tool[] {
  const values = { type: 'object', additionalProperties: { type: 'string' }, description: 'Its arguments by name.' };
  const message = z.looseObject({ role: z.string(), content: z.looseObject({}) });
  return [
    toReader('list_prompts', `Lists the prompts ${of}.`, page, (args, context) =>
      list(connected, 'prompts', args, context),
    ),
    toReader(
      'get_prompt',
      `Returns a prompt ${of}, filled in: a text to follow where it helps.`,
      toParameters({ name: text('Its name.'), arguments: values }, 'name'),
      async (args, context) => {
        const answer = await requestList(connected, 'prompts/get', args, 'messages', context);
        const content = z
          .array(message)
          .parse(answer.entries)
          .map(({ role, content: block }) =>
            typeof block['text'] === 'string' ? { ...block, text: `${role}: ${block['text']}` } : block,
          );
        return toToolResult(checkResult({ content }), context.attachments);
      },
    ),
  ];
}

const toReader = (name: string, description: string, parameters: JsonObject, run: Tool['run']): Tool => ({
  name,
  description,
  parameters,
  needsConfirmation: false,
  effect: 'none',
  calls: 'server',
  run,
});

/** @throws {AgentError} if the response has no list, or a list that is too long */
const requestList = (connected: Connected, method: string, params: JsonObject, member: string, context: ToolContext) =>
  sendRequest(connected, `\`${method}\``, context, async (options) => {
    const schema = z.looseObject({
      [member]: z.array(z.unknown()),
      nextCursor: z.string().optional().catch(undefined),
    });
    const answer = await connected.client.request({ method, params }, received(schema), options);
    const entries = (answer[member] as unknown[]).filter(isMembers);
    const { count } = INPUT_LIMITS.mcpToolResult;
    if (entries.length > count) throw tooMuch(`more than ${count} entries in its answer`);
    return { entries, ...(answer.nextCursor !== undefined && { nextCursor: answer.nextCursor }) };
  });

async function list(connected: Connected, kind: keyof typeof LISTS, args: JsonObject, context: ToolContext) {
  const { entries, ...more } = await requestList(connected, LISTS[kind][0], args, LISTS[kind][1], context);
  const shown = entries.map((entry) =>
    Object.fromEntries(SHOWN.filter((name) => name in entry).map((name) => [name, entry[name]])),
  );
  return { [kind]: shown, ...more };
}
