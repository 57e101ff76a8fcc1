import { z } from 'zod';
import { jsonObject } from '../../core/content.ts';
import { bodyText, number, text, looseObject, optional } from '../../core/members.ts';
import { textFormat } from '../../core/text-format.ts';
import type { AgentOverrides, McpServer } from './agent.ts';
import { EFFORTS, type Sampling, samplingSchema } from './model.ts';
import { fromWritten, withoutAbsent } from './snake-case.ts';

/** Limits of a request's overrides: number of tools and of skills, and length of a name with the blanks around it. */
const MAX_NAMES = 64;
const MAX_NAME_LENGTH = 64;
const MAX_URL = 8_192;
/** Maximum length of an output schema, in characters of JSON, because each model call contains it. */
const MAX_SCHEMA = 65_536;
const isShort = (schema: object) => JSON.stringify(schema).length <= MAX_SCHEMA;
const nameList = z.array(z.string().max(MAX_NAME_LENGTH)).max(MAX_NAMES);
/** List of names as clients send it: `"a,b"` or `["a", "b"]`. Blanks around a name are removed. */
const names = z.union([
  textFormat(
    'name-list',
    (list) =>
      nameList.safeParse(list.split(',')).success
        ? undefined
        : `at most ${MAX_NAMES} names of at most ${MAX_NAME_LENGTH} characters are allowed`,
    z.string().max(MAX_NAMES * (MAX_NAME_LENGTH + 1), { abort: true }),
  ),
  nameList,
]);
const limit = z.int().min(1);

/** An integer of at least 1, which VeADK's clients may send as a string. */
export const llmCallLimitSchema = z.union([
  limit,
  textFormat(
    'positive-integer',
    (digits) => (/^0*[1-9][0-9]{0,8}$/.test(digits) ? undefined : 'a whole number from 1 to 999999999'),
    z.string().max(32, { abort: true }),
  ),
]);

export const toLlmCallLimit = (value: z.output<typeof llmCallLimitSchema> | null | undefined): number | undefined =>
  value === null || value === undefined ? undefined : Number(value);

const mcpServerSchema = looseObject('A remote MCP server.', {
  name: text('Appears in errors; by default the host of the URL.', 1_024),
  url: text('Address of the server, https; `server_url` is another spelling.', MAX_URL),
  server_url: text('Another spelling of `url`, which wins where both are given.', MAX_URL),
  transport: z.enum(['streamable-http', 'sse']).nullish().describe('By default streamable HTTP, then SSE.'),
  headers: optional(
    z.record(z.string(), bodyText).meta({ maxProperties: 128 }),
    'Sent to this server and nowhere else.',
  ),
  resources: z.boolean().nullish().describe('True: the agent gets tools that list and read its resources [false].'),
  prompts: z.boolean().nullish().describe('True: the agent gets tools that list and fill in its prompts [false].'),
  bearer_token: text('Sent to this server as `Authorization: Bearer …`.', 16_384),
  bear_token: text('Another spelling of `bearer_token`, which wins; written by VeADK.', 16_384),
  api_key: text('Another spelling of `bearer_token`, which wins; written by VeADK.', 16_384),
});

const mcpServers = z.array(z.union([z.string().max(MAX_URL), mcpServerSchema])).max(128);
const builtInTool = z.looseObject({ id: z.string().max(MAX_NAME_LENGTH).describe('Name of the tool.') });

/** Members of VeADK's request that change what the agent may do and that this runtime cannot provide. */
const UNSUPPORTED = ['mcp_router_id', 'registry', 'knowledgebase', 'longterm_memory', 'runtime'] as const;
const unsupported = z.unknown().optional().describe('Of VeADK. Not supported: `error` says so; null is as if absent.');

export const harnessOverridesSchema = looseObject(
  'Changes of the deployed agent for this invocation only; what is left out stays as deployed.',
  {
    tools: names.nullish().describe('Built-in tools to append; an array, or names with commas.'),
    skills: names.nullish().describe('Skills to append; an array, or names with commas.'),
    mcp_servers: mcpServers.nullish().describe('Replaces the whole list of remote MCP servers; `[]` clears it.'),
    builtin_tools: optional(
      z.array(z.union([z.string().max(MAX_NAME_LENGTH), builtInTool])).max(MAX_NAMES),
      'Appended to `tools`; `[{"id": …}]` or names, as VeADK writes them.',
    ),
    selected_skills: names.nullish().describe('Appended to `skills`, as VeADK writes them.'),
    mcp: mcpServers.nullish().describe('Another name of `mcp_servers`, which wins; written by VeADK.'),
    mcp_router_id: unsupported,
    registry: unsupported,
    knowledgebase: unsupported,
    longterm_memory: unsupported,
    runtime: unsupported,
    model_name: z.string().min(1).max(1_024).nullish().describe('Model to call, of the deployed provider.'),
    system_prompt: text("Replaces the agent's instruction."),
    max_llm_calls: optional(llmCallLimitSchema, 'Maximum number of model calls of this invocation [as deployed, 500].'),
    context_tokens: optional(
      z.int().min(1_000),
      "Lowers the context window of the agent's models, in tokens: no request to a model is larger [as deployed].",
    ),
    temperature: z.number().min(0).nullish().describe('Sampling temperature; 0 is the most predictable.'),
    top_p: z.number().min(0).max(1).nullish().describe('Nucleus sampling: share of the probability to choose from.'),
    output_schema: optional(
      jsonObject.refine(isShort, `at most ${MAX_SCHEMA} characters of JSON`),
      'JSON Schema of the answer; what does not fit is asked for again, and the value is part of the answer.',
    ),
    max_tokens: limit.nullish().describe('Maximum number of tokens of one answer of the model.'),
    presence_penalty: number('Penalty for tokens that stand in the text already; providers take about -2 to 2.'),
    frequency_penalty: number('Penalty that grows with each repetition of a token; providers take about -2 to 2.'),
    seed: optional(z.int(), 'Makes answers repeatable as far as the provider can.'),
    stop: optional(z.array(z.string().max(MAX_NAME_LENGTH)).max(16), 'Texts at which the model stops.'),
    reasoning_effort: z.enum(EFFORTS).nullish().describe('How long the model thinks before it answers.'),
    prompt_caching: z.boolean().nullish().describe('Whether the provider caches the instruction and the history.'),
  },
);

type HarnessOverrides = z.output<typeof harnessOverridesSchema>;

/** Converts the overrides of a request. Absent and null members are omitted. */
export function toAgentOverrides(harness: HarnessOverrides | null | undefined): AgentOverrides {
  if (!harness) return {};
  const sampling = withoutAbsent(fromWritten(samplingSchema, harness).value as Sampling);
  return withoutAbsent({
    tools: joined(
      toNames(harness.tools),
      harness.builtin_tools?.map((tool) => (typeof tool === 'string' ? tool : tool.id)),
    ),
    skills: joined(toNames(harness.skills), toNames(harness.selected_skills)),
    mcpServers: (harness.mcp_servers ?? harness.mcp)?.map(toNamedServer),
    unsupported: UNSUPPORTED.find((name) => harness[name] && harness[name] !== 'adk'),
    modelName: harness.model_name,
    outputSchema: harness.output_schema,
    instruction: harness.system_prompt,
    maxLlmCalls: toLlmCallLimit(harness.max_llm_calls),
    contextTokensAtMost: harness.context_tokens,
    sampling: Object.keys(sampling).length > 0 ? sampling : undefined,
  });
}

function toNames(value: string | string[] | null | undefined): string[] | undefined {
  if (value === null || value === undefined) return undefined;
  const list = typeof value === 'string' ? value.split(',') : value;
  return list.map((name) => name.trim()).filter(Boolean);
}

const joined = (one: string[] | undefined, other: string[] | undefined) =>
  one || other ? [...(one ?? []), ...(other ?? [])] : undefined;

type RequestedServer = NonNullable<HarnessOverrides['mcp_servers']>[number];

function toNamedServer(server: RequestedServer, position: number): McpServer {
  if (typeof server === 'string') return { name: toHost(server, position), url: server };
  const url = server.url ?? server.server_url ?? '';
  const token = server.bearer_token || server.bear_token || server.api_key;
  const authorization = token ? { authorization: `Bearer ${token}` } : {};
  const headers = { ...authorization, ...server.headers };
  // Each member is copied by name, so that a request cannot set those of the operator, such as credentials.
  const { transport, resources, prompts } = server;
  return withoutAbsent({ name: server.name ?? toHost(url, position), url, transport, headers, resources, prompts });
}

/** Names an MCP server without a name by its host, or by its position in the list if the URL is invalid. */
const toHost = (url: string, position: number) => (URL.canParse(url) ? new URL(url).host : `mcp_servers[${position}]`);
