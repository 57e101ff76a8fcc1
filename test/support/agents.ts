import { describeAgent, type HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import type { Model } from '../../src/agent/definition/model.ts';
import { prepareAgent } from '../../src/agent/prepare-agent.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import type { Part } from '../../src/core/content.ts';
import { type ScriptedAnswer, scriptedModel } from './scripted-model.ts';

/** The one application of a test, `harness_agent`, with a model and tools of the test's own. */
export function hostAgent(
  model: Model,
  tools: Tool[] = [],
  more: Partial<AgentDefinition> = {},
): Map<string, HostedAgent> {
  const definition: AgentDefinition = {
    name: 'harness_agent',
    description: '',
    instruction: 'Answer.',
    modelName: 'scripted',
    tools: tools.map(({ name }) => name),
    skills: [],
    mcpServers: [],
    sampling: {},
    maxLlmCalls: 100,
    ...more,
  };
  const known = new Map([...builtInTools(), ...tools.map((tool) => [tool.name, tool] as const)]);
  const mcp = { egress: { allowLoopback: true } };
  const environment = { model, modelName: 'scripted', builtInTools: known, mcp };
  return new Map([
    [
      definition.name,
      {
        name: definition.name,
        version: { digest: 'test', definition: {} },
        hasLiveApi: model.live !== undefined,
        hasTransactions: tools.some(({ transactional }) => transactional),
        prepare: (overrides, signal, userId, serverTools) =>
          prepareAgent(definition, overrides, environment, signal, userId, serverTools),
        describe: () => describeAgent(definition, known, 'scripted'),
      },
    ],
  ]);
}

/** An application whose model gives the scripted answers. */
export const hostScript = (script: ScriptedAnswer[], tools: Tool[] = []): Map<string, HostedAgent> =>
  hostAgent(scriptedModel(script), tools);

/** A gate in the model: each call waits until the test opens it; `entered` tells how many calls have come. */
export interface Gate {
  agents: Map<string, HostedAgent>;
  /** Settles when the n-th model call (from 1) has begun. */
  entered(n: number): Promise<void>;
  /** Lets the oldest waiting call answer with these parts, or the text `answer n`. */
  open(parts?: Part[]): void;
}

/** An application whose model waits at a gate, so that a test decides when an invocation goes on. */
export function gatedAgents(tools: Tool[] = []): Gate {
  let calls = 0;
  const waiting: ((parts: Part[]) => void)[] = [];
  const watchers = new Map<number, PromiseWithResolvers<void>>();
  const watcher = (n: number) => {
    const found = watchers.get(n) ?? Promise.withResolvers<void>();
    watchers.set(n, found);
    return found;
  };
  const model = scriptedModel([
    ({ signal }) => {
      const n = ++calls;
      watcher(n).resolve();
      return new Promise<Part[]>((resolve, reject) => {
        waiting.push((parts) => resolve(parts.length > 0 ? parts : [{ text: `answer ${n}` }]));
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      });
    },
  ]);
  return {
    agents: hostAgent(model, tools),
    entered: (n) => watcher(n).promise,
    open: (parts = []) => waiting.shift()?.(parts),
  };
}
