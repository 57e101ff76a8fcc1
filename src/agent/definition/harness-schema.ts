import { z } from 'zod';
import { strictObject } from '../../core/members.ts';
import { MODEL_SOURCES } from '../providers/index.ts';
import { EFFORTS } from './model.ts';
import { EFFECTS } from './tool.ts';

/** No object of a `harness.yaml` allows unknown members, so that a misspelled name is an error. */

const names = z.array(z.string().min(1)).describe('Names.');
const agentName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_-]{0,63}$/, 'a name of letters, digits, _ and -')
  .refine((name) => name !== 'user', 'a name other than `user`');
const count = z.int('a whole number').min(1, 'a whole number from 1');

const sampling = strictObject("Sampling parameters; the provider's default where left out.", {
  temperature: z.number().min(0).max(2).optional(),
  top_p: z.number().min(0).max(1).optional(),
  max_tokens: count.optional(),
  presence_penalty: z.number().min(-2).max(2).optional(),
  frequency_penalty: z.number().min(-2).max(2).optional(),
  seed: z.int().optional(),
  stop: z.array(z.string().min(1)).max(16).optional().describe('Texts at which the answer ends.'),
  reasoning_effort: z.enum(EFFORTS, EFFORTS.join(', ')).optional(),
  prompt_caching: z.boolean().optional().describe('True: the provider keeps the beginning of prompts.'),
});

const target = {
  provider: z.enum(MODEL_SOURCES, MODEL_SOURCES.join(', ').replace(/, ([^,]*)$/, ' or $1')).optional(),
  base_url: z.url('a URL').optional(),
};
const ofAgent = {
  ...target,
  name: z.string().min(1),
  api_key: z.string().min(1).optional().describe('`${NAME}` is a variable of the environment.'),
};
const fallback = {
  fallbacks: z.array(z.strictObject(ofAgent)).max(8).optional().describe('Asked in order where the model fails.'),
  first_token_ms: count.optional().describe('Maximum time until an answer begins, where a fallback is left.'),
};
const agentModel = z.union([z.string().min(1), z.strictObject({ ...ofAgent, ...fallback })]);

const userOauth = strictObject('Each user grants access in a browser; `{}` registers a client on the way.', {
  client_id: z.string().min(1).optional().describe('A client, or the https address of its metadata document.'),
  client_secret: z.string().min(1).optional(),
  issuer: z.url('a URL').optional(),
  scope: z.string().optional(),
});

export const ONE_SERVER = 'a url, or a command without headers, transport and oauth';

/** True if an MCP server has either `url` or `command`, and only the members that go with it. */
export const isOneServer = ({ url, command, ...more }: object & { url?: unknown; command?: unknown }): boolean =>
  command === undefined
    ? url !== undefined && !('args' in more) && !('env' in more)
    : url === undefined &&
      !['transport', 'headers', 'oauth', 'userOauth', 'user_oauth'].some((member) => member in more);

const serverMembers = z.strictObject({
  name: z.string().min(1),
  url: z.url('a URL').optional(),
  command: z.string().min(1).optional().describe('A program of yours in place of `url`: its standard streams.'),
  args: z.array(z.string()).optional().describe("The program's arguments."),
  env: z
    .record(z.string(), z.string())
    .optional()
    .describe('Its environment, beside PATH, HOME and the like; `${NAME}` is a variable of this one.'),
  transport: z.enum(['streamable-http', 'sse'], 'streamable-http or sse').optional(),
  headers: z
    .record(z.string(), z.string())
    .optional()
    .describe('Sent to this server and nowhere else; `${NAME}` is a variable of the environment.'),
  resources: z.boolean().optional().describe('True: tools that list and read its resources.'),
  prompts: z.boolean().optional().describe('True: tools that list and fill in its prompts.'),
  call_timeout_ms: count.max(3_600_000, 'at most an hour').optional().describe('Maximum time of one call [60000].'),
  connect_timeout_ms: count
    .max(300_000, 'at most five minutes')
    .optional()
    .describe('Maximum time until it is connected [15000].'),
  on_failure: z
    .enum(['fail', 'skip'], 'fail or skip')
    .optional()
    .describe('`skip` leaves its tools out, `fail` ends the invocation [skip if it cannot be reached, else fail].'),
  oauth: strictObject('Credentials for a token of this issuer; `${NAME}` is a variable of the environment.', {
    client_id: z.string().min(1),
    client_secret: z.string().min(1),
    issuer: z.url('a URL'),
    scope: z.string().optional(),
  }).optional(),
  user_oauth: userOauth
    .refine(({ client_id, issuer }) => client_id === undefined || issuer !== undefined, 'client_id with its issuer')
    .optional(),
});
const mcpServer = serverMembers.refine(isOneServer, ONE_SERVER);

const remote = z.strictObject({
  url: z.url('a URL').describe('Its card, or the address below which that is.'),
  headers: z
    .record(z.string(), z.string())
    .optional()
    .describe('Sent to its origin and nowhere else; `${NAME}` is a variable of the environment.'),
  keys: z.url('a URL').optional().describe('Address of a JWK set: one of its keys has to have signed the card.'),
  user_oauth: userOauth.extend({ issuer: z.url('a URL') }).optional(),
});

const agent = {
  description: z.string().optional(),
  system_prompt: z.string().optional(),
  tools: names.optional(),
  skills: names.optional(),
  mcp_servers: z.array(mcpServer).optional(),
  confirm_tools: names.optional().describe('Tools whose calls a person has to confirm.'),
  tool_effects: z
    .record(z.string().min(1), z.enum(EFFECTS, 'none, idempotent or once'))
    .optional()
    .describe('What a call changes outside, by tool: whether it is called again after its process died.'),
  tool_limits: z
    .record(
      z.string().min(1),
      z.strictObject({
        timeout_ms: count.optional(),
        retries: z.int().min(0).max(10).optional(),
        concurrency: count.optional(),
        max_result_characters: count.optional(),
      }),
    )
    .optional()
    .describe('Limits of tools by name; retries for the effects none and idempotent only.'),
  openapi: z
    .array(
      z.strictObject({
        name: z.string().min(1),
        document: z.string().min(1).describe('Path of an OpenAPI 3 document, JSON or YAML.'),
        operations: names,
        base_url: z.url('a URL').optional(),
        headers: z.record(z.string(), z.string()).optional(),
        user_oauth: userOauth.extend({ issuer: z.url('a URL') }).optional(),
      }),
    )
    .optional()
    .describe('Operations of HTTP APIs that are tools.'),
  ask_when_unknown: names.optional().describe('Tools whose calls a person settles where it is unknown if they acted.'),
  sampling: sampling.optional(),
  output_schema: z.record(z.string(), z.unknown()).optional().describe('JSON Schema that the answer has to fit.'),
  output_key: z.string().min(1).optional().describe('State key that receives the answer.'),
  max_iterations: count.optional().describe('Maximum number of rounds of a `loop`.'),
  type: z.enum(['llm', 'sequential', 'parallel', 'loop'], 'llm, sequential, parallel or loop').optional(),
};

const members = z.strictObject(agent);

/** A sub-agent in `harness.yaml`, written by hand: TypeScript cannot infer the type of a recursive schema. */
interface SubAgent extends z.output<typeof members> {
  name: string;
  model?: z.output<typeof agentModel> | undefined;
  as_tool?: boolean | undefined;
  remote?: z.output<typeof remote> | undefined;
  sub_agents?: SubAgent[] | undefined;
}

/** Members that an agent with `remote` must not have, because the other service that runs the agent defines them. */
const OWN = ['system_prompt', 'model', 'tools', 'skills', 'mcp_servers', 'openapi', 'sub_agents'] as const;
const NOT_OWN = `one with remote has none of ${OWN.join(', ')} here`;

const subAgent: z.ZodType<SubAgent> = z
  .strictObject({
    ...agent,
    name: agentName,
    model: agentModel.optional(),
    as_tool: z.boolean().optional().describe('Called like a tool instead of handed over to.'),
    remote: remote.optional().describe('The agent of another service, which speaks A2A, that it is.'),
    sub_agents: z.lazy(() => z.array(subAgent)).optional(),
  })
  .refine((written) => !written.remote || OWN.every((name) => written[name] === undefined), NOT_OWN);

/**
 * Members that VeADK's commands `veadk harness create` and `add` write (veadk-python 1.1.19). They configure services
 * of VeADK's cloud, which this runtime does not use. A file with such members is accepted, with a warning.
 */
export const FOREIGN_MEMBERS = new Set([
  'harness_name',
  'runtime',
  'structured_tool_calls',
  'include_tools_every_turn',
  'harness_enhance',
  'knowledgebase',
  'long_term_memory',
  'short_term_memory',
  'auth',
  'registry',
]);

export const harnessSchema = z.strictObject({
  ...agent,
  model: z
    .strictObject({
      ...target,
      ...fallback,
      name: z.string().optional().describe('Empty, as that template has it, is not given.'),
    })
    .optional(),
  limits: z
    .strictObject({
      max_llm_calls: count.optional(),
      compact_above_tokens: count.optional().describe('Older events are summarised above so many prompt tokens.'),
    })
    .optional(),
  max_llm_calls: count.optional().describe('`limits.max_llm_calls` wins; `veadk harness add` writes it here.'),
  memory: z
    .strictObject({
      embeddings: z
        .strictObject({ ...ofAgent, dimensions: count.optional() })
        .optional()
        .describe('Memory is searched by meaning too, with vectors of this model.'),
      remember: z
        .union([z.literal('always'), z.strictObject({ judge: z.string() })])
        .optional()
        .describe('What is remembered without a client: all, or what the model chooses.'),
    })
    .optional(),
  sub_agents: z.array(subAgent).optional(),
});

export const mcpServersSchema = z.array(mcpServer);
