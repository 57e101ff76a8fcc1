import { z } from 'zod';
import { identifierSchema } from '../core/session.ts';

/** The application of every session of `/harness/invoke`, whatever `harness_name` says (specification, Invoke Harness). */
export const HARNESS_APP = 'harness_agent';

/** Names as clients send them: `"a,b"` or `["a", "b"]`; blanks are dropped. */
const names = z.union([z.string(), z.array(z.string())]);
const limit = z.int().min(1);

const mcpServerSchema = z
  .looseObject({
    name: z.string().nullish().describe('Appears in errors; by default the host of the URL.'),
    url: z.string().nullish().describe('Address of the server; `server_url` is another spelling.'),
    server_url: z.string().nullish(),
    transport: z.enum(['streamable-http', 'sse']).nullish().describe('By default streamable HTTP, then SSE.'),
    headers: z.record(z.string(), z.string()).nullish().describe('Sent to this server and nowhere else.'),
    bearer_token: z.string().nullish().describe('Shorthand for an Authorization header.'),
  })
  .describe('A remote MCP server.');

/** The overrides of one request, on `/harness/invoke` and the agent run operations alike. */
export const harnessOverridesSchema = z
  .looseObject({
    tools: names.nullish().describe('Built-in tools to append; an array, or names with commas.'),
    skills: names.nullish().describe('Skills to append; an array, or names with commas.'),
    mcp_servers: z
      .array(z.union([z.string(), mcpServerSchema]))
      .nullish()
      .describe('Replaces the whole list of remote MCP servers; `[]` clears it.'),
    model_name: z.string().min(1).nullish().describe('Model to call.'),
    system_prompt: z.string().nullish().describe("Replaces the agent's instruction."),
    max_llm_calls: limit.nullish().describe('Most model calls of this invocation.'),
    temperature: z.number().min(0).nullish(),
    top_p: z.number().min(0).max(1).nullish(),
    max_tokens: limit.nullish(),
    presence_penalty: z.number().nullish(),
    frequency_penalty: z.number().nullish(),
  })
  .describe('Changes of the deployed agent for this invocation only; what is left out stays as deployed.');

export const harnessInvokeSchema = z
  .looseObject({
    prompt: z.string().describe('What the user says.'),
    harness_name: z.string().describe('Echoed back in the answer.'),
    run_agent_request: z
      .looseObject({
        user_id: identifierSchema,
        session_id: identifierSchema.describe('Created where it is absent, always under `harness_agent`.'),
        max_llm_calls: limit
          .nullish()
          .describe('Most model calls of this invocation; wins over `harness.max_llm_calls`.'),
      })
      .describe('Who asks, and in which session.'),
    harness: harnessOverridesSchema.nullish(),
  })
  .describe('One prompt. `harness_merge` and `harness_enhance` are not supported: they are accepted and ignored.');

export const harnessResultSchema = z
  .looseObject({
    harness_name: z.string().describe('The name in the request.'),
    overwrite: z.boolean().describe('True when an override other than `mcp_servers` was applied.'),
    output: z.string().describe("The agent's answer; empty on failure."),
    error: z.string().nullable().describe('Why it failed, a sentence; `null` on success, and only then.'),
  })
  .describe('What the agent answered. Status 200 alone does not mean success: `error` does.');

export type HarnessOverrides = z.infer<typeof harnessOverridesSchema>;
