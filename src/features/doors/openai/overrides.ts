import type { AgentOverrides } from '../../../agent/definition/agent.ts';
import { toAgentOverrides } from '../../../agent/definition/overrides.ts';
import { type ChatRequest, type CreateResponse, samplingSchema } from './schemas.ts';

/** Returns those parameters of a request that override the agent and therefore require the scope `override`. */
export function toOverrides(request: CreateResponse | ChatRequest): AgentOverrides {
  const body: Partial<CreateResponse & ChatRequest> = request;
  const { type, schema, json_schema: chat } = body.text?.format ?? body.response_format ?? {};
  const form = type === 'json_schema' ? (schema ?? chat?.schema ?? {}) : undefined;
  // `required` forces a tool of the agent only if the client has no tools. Otherwise it refers to the client's tools.
  const isOfAgent = body.tool_choice === 'required' && !body.tools?.some((tool) => tool.type === 'function');
  const changes = toAgentOverrides({
    ...samplingSchema.parse(body),
    system_prompt: body.instructions,
    max_tokens: body.max_output_tokens ?? body.max_completion_tokens ?? body.max_tokens,
    output_schema: type === 'json_object' ? { type: 'object' } : form,
  });
  return isOfAgent ? { ...changes, toolChoice: 'required' } : changes;
}
