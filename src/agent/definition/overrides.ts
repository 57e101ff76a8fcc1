import type { AgentOverrides, McpServer } from './agent.ts';
import type { Sampling } from '../models/model.ts';
import type { HarnessOverrides } from '../../invocations/harness-request.ts';

/** The overrides of a request in the agent's words; members that are absent or null stay away. */
export function toAgentOverrides(harness: HarnessOverrides | null | undefined): AgentOverrides {
  if (!harness) return {};
  return withoutAbsent({
    tools: toNames(harness.tools),
    skills: toNames(harness.skills),
    mcpServers: harness.mcp_servers?.map(toMcpServer),
    modelName: harness.model_name ?? undefined,
    instruction: harness.system_prompt ?? undefined,
    maxLlmCalls: harness.max_llm_calls ?? undefined,
    sampling: toSampling(harness),
  });
}

function toNames(names: string | string[] | null | undefined): string[] | undefined {
  if (names === null || names === undefined) return undefined;
  const given = typeof names === 'string' ? names.split(',') : names;
  return given.map((name) => name.trim()).filter(Boolean);
}

type GivenServer = NonNullable<HarnessOverrides['mcp_servers']>[number];

function toMcpServer(server: GivenServer, position: number): McpServer {
  if (typeof server === 'string') return { name: nameOf(server, position), url: server };
  const url = server.url ?? server.server_url ?? '';
  const authorization = server.bearer_token ? { authorization: `Bearer ${server.bearer_token}` } : {};
  return withoutAbsent({
    name: server.name ?? nameOf(url, position),
    url,
    transport: server.transport ?? undefined,
    headers: { ...authorization, ...server.headers },
  });
}

/** The host of a URL names a server that has no name; what is no URL is named by its place. */
const nameOf = (url: string, position: number) => (URL.canParse(url) ? new URL(url).host : `mcp_servers[${position}]`);

function toSampling(harness: HarnessOverrides): Sampling | undefined {
  const sampling = withoutAbsent({
    temperature: harness.temperature ?? undefined,
    topP: harness.top_p ?? undefined,
    maxOutputTokens: harness.max_tokens ?? undefined,
    presencePenalty: harness.presence_penalty ?? undefined,
    frequencyPenalty: harness.frequency_penalty ?? undefined,
  });
  return Object.keys(sampling).length > 0 ? sampling : undefined;
}

type Present<T> = { [Key in keyof T]: Exclude<T[Key], undefined> };

/** The object without its undefined members: "not given" and "given as nothing" are one. */
function withoutAbsent<T extends object>(value: T): Partial<Present<T>> & Pick<Present<T>, RequiredKeys<T>> {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as never;
}

type RequiredKeys<T> = { [Key in keyof T]-?: undefined extends T[Key] ? never : Key }[keyof T];
