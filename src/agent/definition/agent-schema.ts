import { z } from 'zod';
import { ConfigError } from '../../core/errors.ts';
import { MODEL_SOURCES } from '../providers/index.ts';
import { isCheck } from './guardrail.ts';
import { type CompactEvents, HOOKS, type Hooks, type PinEvent } from './hooks.ts';
import { headers, name, names, optional, positive, urlText } from './members.ts';
import { type Model, samplingSchema } from './model.ts';
import { isSchema, type WrittenSchema } from './output-schema.ts';
import { AGENT_KINDS, EFFECTS, type Tool, toolLimitsSchema } from './tool.ts';

/*
 * An agent as its author writes it, in code and in `harness.yaml`, where the members are in snake_case
 * (`snake-case.ts`). No object allows unknown members, so that a misspelled name is an error.
 */

/** @throws {ConfigError} for a tool that is both transactional and long-running */
export function isTool(value: unknown): value is Tool {
  const tool = value as Partial<Tool> | null | undefined;
  if (typeof tool !== 'object' || typeof tool?.run !== 'function' || !('name' in tool)) return false;
  if (tool.transactional && tool.longRunning)
    throw new ConfigError(`\`${tool.name}\` is transactional, so its answer cannot come later (longRunning).`);
  return true;
}

const NO_HOOKS = `an object with a name and functions among ${HOOKS.join(', ')}`;
const OPTIONS = { name: 'string', timeoutMs: 'number', passesText: 'boolean', guard: 'object' };
const types: Record<string, string> = { ...OPTIONS, ...Object.fromEntries(HOOKS.map((hook) => [hook, 'function'])) };

const isHooks = (value: unknown): value is Hooks =>
  typeof value === 'object' &&
  value !== null &&
  'name' in value &&
  Object.entries(value).every(([key, member]) => typeof member === types[key] || member === undefined);

const isModel = (value: unknown): value is Model => typeof (value as Model | null)?.generate === 'function';

/** Strategies that both a file and code may name. */
const strategies = [z.enum(['drop_results', 'summarise']), z.strictObject({ keepNewest: positive })] as const;
const STRATEGY = 'drop_results, summarise, or how many of the newest events to keep';
const isFunction = (value: unknown): boolean => typeof value === 'function';

/** What a file can hold of the members in which code may have objects and functions. */
const IN_FILE = {
  provider: z.enum(MODEL_SOURCES, MODEL_SOURCES.join(', ').replace(/, ([^,]*)$/, ' or $1')),
  tool: name,
  document: name,
  form: z.record(z.string(), z.unknown()),
  remember: z.union([z.literal('always'), z.strictObject({ judge: z.string() })]),
  compact: z.union(strategies, STRATEGY),
};

const IN_CODE = {
  provider: z.union([z.enum(MODEL_SOURCES), z.custom<Model>(isModel)], `a model, or ${MODEL_SOURCES.join(', ')}`),
  tool: z.union([name, z.custom<Tool>(isTool)], 'the name of a tool, or one of `defineTool`'),
  document: z.union([name, z.record(z.string(), z.unknown())], 'an OpenAPI document, or the path of one'),
  form: z.custom<WrittenSchema>(isSchema, 'a zod schema, or JSON Schema'),
  remember: z.custom<'always' | RegExp[] | { judge: string } | ((text: string, author: string) => unknown)>(
    (value) => value === 'always' || isCheck(value),
    '`always`, patterns, a judge, or a function',
  ),
  compact: z.union([...strategies, z.custom<CompactEvents>(isFunction)], `${STRATEGY}, or a function`),
};

/** Members whose values code takes from its environment may be `undefined`, in their types too. */
const userOauth = z.strictObject({
  clientId: name.optional(),
  clientSecret: name.optional(),
  issuer: urlText.optional(),
  scope: z.string().optional(),
});
const userOauthOfIssuer = userOauth.extend({ issuer: urlText });

/** True if an MCP server has either `url` or `command`, and only the members that go with it. */
const isOneServer = ({ url, command, ...more }: { url?: unknown; command?: unknown }): boolean =>
  command === undefined
    ? url !== undefined && !('args' in more) && !('env' in more)
    : url === undefined && !['transport', 'headers', 'oauth', 'userOauth'].some((member) => member in more);

export const mcpServerShape = {
  /** Name of the server. It goes before the name of a tool only where another tool has that name. */
  name,
  /** Address of a remote server, instead of `command`. */
  url: optional(urlText),
  /** Program that each invocation starts; it speaks MCP over its standard streams. A request cannot set it. */
  command: optional(name),
  /** Arguments of the program. Default: none. */
  args: optional(z.array(z.string())),
  /** Environment variables of the program. From this process it inherits only a few, such as `PATH` and `HOME`. */
  env: optional(z.record(z.string(), z.string())),
  /** Transport of a remote server. Default: `streamable-http`. */
  transport: optional(z.enum(['streamable-http', 'sse'], 'streamable-http or sse')),
  /** Headers of each request to the server, such as its key. Default: none. */
  headers: optional(headers),
  /** True: the agent gets tools that list and read the server's resources. Default: false. */
  resources: optional(z.boolean()),
  /** True: the agent gets tools that list the server's prompts and fill in their arguments. Default: false. */
  prompts: optional(z.boolean()),
  /** Maximum time of one tool call, in milliseconds. Default: 60,000. A request cannot set it. */
  callTimeoutMs: optional(positive.max(3_600_000, 'at most an hour')),
  /** Maximum time to connect, in milliseconds. Default: 15,000. A request cannot set it. */
  connectTimeoutMs: optional(positive.max(300_000, 'at most five minutes')),
  /**
   * If the connection fails, `fail` ends the invocation, and `skip` tells the model that the server's tools are
   * missing. Default: `skip` if the server did not respond or responded with a 5xx status, else `fail`; for a server of
   * a request always `fail`.
   */
  onFailure: optional(z.enum(['fail', 'skip'], 'fail or skip')),
  /** The operator's OAuth client credentials, for an access token of this issuer. A request cannot set them. */
  oauth: optional(
    z.strictObject({ clientId: name, clientSecret: name, issuer: urlText, scope: z.string().optional() }),
  ),
  /**
   * OAuth client to which each user grants access in a browser. An https address as `clientId` is the address of a
   * client metadata document. Default: a client registered dynamically. A request cannot set it.
   */
  userOauth: optional(
    userOauth.refine(
      ({ clientId, issuer }) => clientId === undefined || issuer !== undefined,
      'a client with its issuer',
    ),
  ),
};
export const mcpServerSchema = z
  .strictObject(mcpServerShape)
  .refine(isOneServer, 'a url, or a command without headers, transport and oauth');

export const remoteAgentShape = {
  /** Address of the agent card, or of the directory above it. */
  url: urlText,
  /** Headers with the operator's credentials, sent to this origin only. */
  headers: headers.optional(),
  /** URL of a JWK set with the keys that may sign the agent card. Default: the card's signatures are not checked. */
  keys: urlText.optional(),
  /**
   * OAuth client of this issuer to which each user grants access in a browser. Default: a client registered
   * dynamically.
   */
  userOauth: userOauthOfIssuer.optional(),
};

const compactionOf = <Own extends z.ZodType>({ compact }: { compact: Own }) => ({
  /**
   * Share of the model's context window, if that is known, above which prompt and answer together are compacted before
   * the next model call. The newest quarter stays, and at least the last step. Default: 0.8.
   */
  share: optional(z.number().min(0.3).max(0.95)),
  /** Estimated number of prompt tokens above which older invocations are compacted. Default: only `share`. */
  tokenBudget: optional(positive),
  /**
   * Number of newest invocations that `tokenBudget` leaves whole, including the current one. A full context window does
   * not. Default: 2.
   */
  keepInvocations: optional(positive),
  /**
   * What is tried in order until the prompt fits. `drop_results` replaces the results of older tool calls by short notes,
   * `summarise` older events by a summary of the model, `{ keepNewest: 20 }` all but the newest 20 events by a note, and a
   * function by the text that it makes of them. Default: `drop_results`, then `summarise`.
   */
  strategies: optional(z.array(compact).min(1).max(8)),
});

export const loopStopShape = {
  /**
   * Number of times that an agent may make the same calls with the same answers in a row, or a cycle of up to four steps
   * of calls, before its model is told. 0: any number. Default: 5.
   */
  after: optional(z.int().min(0).max(100)),
  /** What happens if it is made as often again: `end` with the code `loop_detected`, or `ask` a person. Default: `end`. */
  action: optional(z.enum(['end', 'ask'], 'end or ask')),
  /** Names of tools that may repeat, such as those of MCP servers that poll. Default: none. */
  except: optional(names),
};

const targetOf = <Provider extends z.ZodType>({ provider }: { provider: Provider }) => ({
  /** A provider's name as in `MODEL_PROVIDER`, or a custom model. Default: the provider of the environment. */
  provider: optional(provider),
  /** Base URL. Default: that of the environment if the provider is the same, else the provider's public address. */
  baseUrl: optional(urlText),
});

/** The size of a model that generates text. */
const size = {
  /**
   * Context window of the model, in tokens: no request is larger. Default: what is publicly known of the model; for
   * others none, and only `compaction.tokenBudget` limits a prompt.
   */
  contextTokens: optional(positive.min(1_000, 'at least 1000')),
};

function modelOf<Provider extends z.ZodType>(place: { provider: Provider }) {
  const target = {
    ...targetOf(place),
    /** Name of the model, as the provider has it. Any text for the offline model. */
    name,
    /** API key. Default: that of the environment if provider and address are the same as there, else none. */
    apiKey: optional(name),
  };
  const fallback = {
    ...size,
    /** Models that are called in order, each if the one before it failed before it gave any text. Default: none. */
    fallbacks: optional(z.array(z.strictObject({ ...target, ...size })).max(8)),
    /** Time limit for the model's first output if a fallback model is left, in ms. Default: the provider's limit only. */
    firstTokenMs: optional(positive),
  };
  return { target, fallback };
}

const openApiOf = <Document extends z.ZodType>({ document }: { document: Document }) => ({
  /** Name of the API, for messages and for grants of `userOauth`. */
  name,
  /** An OpenAPI 3 document, or the path of a JSON or YAML file with it. */
  document,
  /** Ids of the operations that become tools. */
  operations: names,
  /** Base URL of the API. Default: the URL of the first server in the document. */
  baseUrl: optional(urlText),
  /** Headers with the operator's credentials, sent to this API only. */
  headers: optional(headers),
  /**
   * OAuth client of this issuer to which each user grants access in a browser. Default: a client registered
   * dynamically.
   */
  userOauth: optional(userOauthOfIssuer),
});

const memoryOf = <Provider extends z.ZodType, Rule extends z.ZodType>(place: {
  provider: Provider;
  remember: Rule;
}) => ({
  /** Model that makes embedding vectors of memories. Default: none; memories are searched by words only. */
  embeddings: optional(z.strictObject({ ...modelOf(place).target, dimensions: optional(positive) })),
  /**
   * Which texts of a successful invocation become memories: all, those that match a pattern, those that the agent's
   * model selects by the rule `judge`, or those for which a function returns true. Default: none but those that
   * clients add.
   */
  remember: optional(place.remember),
});

/** The members of every agent. */
const agentOf = <Written extends z.ZodType, Document extends z.ZodType, Form extends z.ZodType>(place: {
  tool: Written;
  document: Document;
  form: Form;
}) => ({
  /** Tells the models of other agents when to transfer the conversation to this agent. Default: none. */
  description: optional(z.string()),
  /**
   * What the agent does: it calls a model (`llm`), or runs its sub-agents in sequence, in parallel, or repeatedly.
   * Default: `llm`.
   */
  kind: optional(z.enum(AGENT_KINDS, 'llm, sequential, parallel or loop')),
  /**
   * System prompt of the model. It is a template: state values replace `{name}`, `{user:name}` and `{app:name}`, an
   * artifact `{artifact.name}`; without a `?` at the end a missing value ends the invocation. Default: none.
   */
  instruction: optional(z.string()),
  /** Tools of the agent: names of built-in ones, and tools of `defineTool`. Default: none. */
  tools: optional(z.array(place.tool)),
  /** Names of skills below `SKILLS_DIR`. Default: none. */
  skills: optional(names),
  /** MCP servers, whose tools are added to those of the agent. Default: none. */
  mcpServers: optional(z.array(mcpServerSchema)),
  /** Names of tools, including those of MCP servers, whose calls a person must confirm. Default: none. */
  confirmTools: optional(names),
  /** Effects of calls by tool name, including tools of MCP servers. Default: what the tool or its server declares. */
  toolEffects: optional(z.record(name, z.enum(EFFECTS, 'none, idempotent or once'))),
  /** Limits of calls by tool name, including tools of MCP servers. Default: those that the tool sets. */
  toolLimits: optional(z.record(name, toolLimitsSchema)),
  /** HTTP APIs, whose operations become tools of the agent. Default: none. */
  openapi: optional(z.array(z.strictObject(openApiOf(place)))),
  /**
   * Names of tools. If it is unknown after a crash whether a call of such a tool took effect, a person decides.
   * Default: none; the model is told.
   */
  askWhenUnknown: optional(names),
  /** Sampling parameters of the model calls. Default: those of the parent agent. */
  sampling: optional(samplingSchema),
  /** Schema of the final answer. If the model's answer violates it, the model is called again. Default: free text. */
  outputSchema: optional(place.form),
  /** State key that receives the final answer, a text, or a value if there is an output schema. Default: none. */
  outputKey: optional(name),
  /** Maximum number of rounds of a `loop` agent. Default: no maximum; the loop ends when a sub-agent escalates. */
  maxIterations: optional(positive),
});

/** Members of an agent that is below another. */
const below = {
  /**
   * Of a sub-agent: true if the agent above calls it like a tool and goes on, instead of handing the conversation over. It
   * works in a session of its own, and may ask people; the agent above waits for it. Default: false.
   */
  asTool: optional(z.boolean()),
  /**
   * Of a sub-agent: true if the agent above calls it like a tool that answers at once. It works in the background, in a
   * session of its own, and its result comes as a message. `optional`: the model says with each call whether it waits for
   * the result. Default: false.
   */
  background: optional(z.union([z.boolean(), z.literal('optional')])),
  /** Of a sub-agent: the other service that runs it, called over A2A. Default: this service runs the agent. */
  remote: optional(z.strictObject(remoteAgentShape)),
};

const inCode = modelOf(IN_CODE);
export const modelTargetShape = { ...inCode.target, ...size };
export const agentModelShape = { ...inCode.target, ...inCode.fallback };
export const openApiShape = openApiOf(IN_CODE);
export const memoryShape = memoryOf(IN_CODE);
export const compactionShape = {
  ...compactionOf(IN_CODE),
  /** Returns true for an event that no compaction replaces, with the responses to its calls. If it throws, none is kept. Default: none. */
  pin: optional(z.custom<PinEvent>(isFunction, 'a function')),
};

/** An agent in code, without its sub-agents: TypeScript cannot infer the type of a recursive schema. */
export const sourceShape = {
  ...agentOf(IN_CODE),
  ...below,
  /** Name of the model. Default: the model of the parent agent; for the root agent, that of the environment. */
  modelName: optional(z.string()),
  /** The model with provider and address; overrides `modelName`. Default: the model of the parent agent. */
  model: optional(z.strictObject(agentModelShape)),
  /** Functions that are called while this agent runs. Default: none. */
  hooks: optional(z.custom<Hooks>(isHooks, NO_HOOKS)),
  /** Hooks for all agents of the application, called before the hooks of an agent. Read from the root agent only. */
  plugins: optional(z.array(z.custom<Hooks>(isHooks, NO_HOOKS))),
  /** Maximum number of model calls of one invocation. Default: 500. Read from the root agent only. */
  maxLlmCalls: optional(positive),
  /**
   * When and how older events are replaced in the model's prompts; they stay in the session. Default: at 80 % of the
   * model's context window, if that is known. Read from the root agent only.
   */
  compaction: optional(z.strictObject(compactionShape)),
  /** When an agent that goes round in a circle is stopped. Read from the root agent only. */
  loopStop: optional(z.strictObject(loopStopShape)),
  /** How memories are made and searched. Default: by words, and none are made. Read from the root agent only. */
  memory: optional(z.strictObject(memoryShape)),
};

const agentName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_-]{0,63}$/, 'a name of letters, digits, _ and -')
  .refine((each) => each !== 'user', 'a name other than `user`');

/** An agent in the background is a tool. */
const isNoTool = ({ asTool, background = false }: { asTool?: unknown; background?: unknown }) =>
  asTool === false && background !== false;
const IS_TOOL = 'one with background is called like a tool, so that as_tool (asTool) is not false';

const subSource: z.ZodType = z.lazy(() =>
  sourceSchema.extend({ name: agentName }).refine((agent) => !isNoTool(agent), IS_TOOL),
);
export const sourceSchema = z.strictObject({ ...sourceShape, subAgents: z.array(subSource).optional() });

const inFile = modelOf(IN_FILE);
const subAgentMembers = z.strictObject({
  ...agentOf(IN_FILE),
  ...below,
  name: agentName,
  /** The name of a model, or the model with provider and address. */
  model: optional(z.union([name, z.strictObject({ ...inFile.target, ...inFile.fallback })])),
});

/** A sub-agent in `harness.yaml`. */
export interface SubAgentInFile extends z.output<typeof subAgentMembers> {
  subAgents?: SubAgentInFile[];
}

/** Members that an agent with `remote` must not have, because the other service that runs the agent defines them. */
const OWN = ['instruction', 'model', 'tools', 'skills', 'mcpServers', 'openapi', 'subAgents'] as const;
const NOT_OWN =
  'one with remote has none of system_prompt, model, tools, skills, mcp_servers, openapi, sub_agents here';

const subAgentInFile: z.ZodType<SubAgentInFile> = z.lazy(() =>
  subAgentMembers
    .extend({ subAgents: optional(z.array(subAgentInFile)) })
    .refine((agent) => !agent.remote || OWN.every((member) => agent[member] === undefined), NOT_OWN)
    .refine((agent) => !isNoTool(agent), IS_TOOL),
);

/** The file `harness.yaml`, with the members of code. */
export const harnessSchema = z.strictObject({
  ...agentOf(IN_FILE),
  /** `name` may be empty, as in VeADK's template, which means that none is named. */
  model: optional(z.strictObject({ ...targetOf(IN_FILE), ...inFile.fallback, name: optional(z.string()) })),
  limits: optional(
    z.strictObject({
      maxLlmCalls: optional(positive),
      /** Older events are summarised above so many prompt tokens. */
      compactAboveTokens: optional(positive),
    }),
  ),
  /** `limits.max_llm_calls` wins; `veadk harness add` writes it here. */
  maxLlmCalls: optional(positive),
  memory: optional(z.strictObject(memoryOf(IN_FILE))),
  compaction: optional(z.strictObject(compactionOf(IN_FILE))),
  loopStop: optional(z.strictObject(loopStopShape)),
  subAgents: optional(z.array(subAgentInFile)),
});

export type HarnessFile = z.output<typeof harnessSchema>;
