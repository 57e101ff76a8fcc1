import type { AgentDefinition } from '../agent/agent.ts';
import { createModel } from '../agent/models/create-model.ts';
import { prepareAgent } from '../agent/prepare-agent.ts';
import { builtInTools } from '../agent/tools/registry.ts';
import type { Config } from '../config.ts';
import type { HostedAgent } from '../invocations/invoke.ts';
import { describeAgent } from './describe-agent.ts';

/** The tools of an agent for which none are named. */
const DEFAULT_TOOLS = ['current_time', 'calculator'];

/**
 * The applications that this process serves, by name.
 * @throws {AgentError} when the configuration names a tool that does not exist.
 */
export async function hostAgents(config: Config): Promise<Map<string, HostedAgent>> {
  const definition: AgentDefinition = {
    name: 'harness_agent',
    description: '',
    instruction: config.SYSTEM_PROMPT ?? 'You are a helpful assistant.',
    modelName: config.MODEL_NAME ?? 'offline',
    tools: config.TOOLS.length > 0 ? config.TOOLS : DEFAULT_TOOLS,
    skills: config.SKILLS,
    mcpServers: [],
    sampling: {},
    maxLlmCalls: config.MAX_LLM_CALLS,
  };
  const environment = {
    model: createModel({ provider: config.MODEL_PROVIDER ?? 'offline' }),
    builtInTools: builtInTools(),
  };
  const hosted: HostedAgent = {
    name: definition.name,
    prepare: (overrides, signal) => prepareAgent(definition, overrides, environment, signal),
    describe: () => describeAgent(definition, environment.builtInTools),
  };
  return new Map([[definition.name, hosted]]);
}
