import { describeAgent, type HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import { guardrail } from '../../src/agent/definition/guardrail.ts';
import { HOOKS, type Hooks } from '../../src/agent/definition/hooks.ts';
import type { Model, ModelRequest } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { SUMMARY_INSTRUCTION } from '../../src/agent/loop/compact.ts';
import { prepareAgent } from '../../src/agent/prepare-agent.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import type { Part } from '../../src/core/content.ts';
import { AgentError } from '../../src/core/errors.ts';
import { tool } from './agent-fixtures.ts';
import { callPart } from './scripted-model.ts';

/** A step that takes until it is cancelled. */
export const HANG = Symbol('hang');
/** What an agent says in one step; text is an answer. */
type Step = string | Part[] | AgentError | typeof HANG;
/** What each agent says, step by step. */
export type Script = Record<string, Step[]>;

/** Applications whose definitions and tools a test may change, and what has been called. */
export interface ReplayWorld {
  agents: Map<string, HostedAgent>;
  definitions: Map<string, AgentDefinition>;
  tools: Map<string, Tool>;
  /** By the word behind `#` in a prompt. */
  scripts: Map<string, Script>;
  /** Tools of a live model. */
  counts: { models: number; tools: number };
  /** Settles with each model call or tool call that hangs. */
  hanging: () => Promise<void>;
}

const agent = (name: string, more: Partial<AgentDefinition> = {}): AgentDefinition => ({
  name,
  description: `Is ${name}.`,
  instruction: `I am ${name}. The city is {city?}.`,
  modelName: 'scripted',
  tools: ['look_up', 'fail', 'write_state', 'read_state', 'save_artifact', 'load_artifacts'],
  skills: [],
  mcpServers: [],
  ...more,
});

const below = (...names: string[]) => names.map((name) => agent(name));

/** Hooks of every kind, which say with the tools that they ran. */
function hooksOf(counts: ReplayWorld['counts']): Hooks {
  const ran = () => void (counts.tools += 1);
  return {
    name: 'desk',
    beforeAgent: ({ stateDelta, userContent }) => {
      ran();
      stateDelta['city'] = 'Rome';
      const isClosed = JSON.stringify(userContent).includes('closed');
      return isClosed ? { role: 'model', parts: [{ text: 'We are closed.' }] } : undefined;
    },
    beforeModel: (request) => {
      ran();
      request.instruction += ' Be kind.';
    },
    afterModel: ({ content }, { stateDelta }) => {
      ran();
      stateDelta['answers'] = 1;
      const text = content?.parts?.[0]?.text;
      return text ? { content: { role: 'model', parts: [{ text: text.replace('Bad', 'Good') }] } } : undefined;
    },
    beforeTool: ({ args }) => {
      ran();
      return args['topic'] === 'known' ? { found: 'before' } : undefined;
    },
    afterTool: (_call, response) => {
      ran();
      return { ...response, seen: true };
    },
    afterAgent: () => {
      ran();
      return { role: 'model', parts: [{ text: 'Bye.' }] };
    },
  };
}

function definitionsOf(mcpUrl: string, counts: ReplayWorld['counts']): AgentDefinition[] {
  const waiting = ['get_user_choice', 'send', 'hang', 'large'];
  const own = agent('harness_agent').tools;
  return [
    agent('harness_agent', {
      tools: [...own, ...waiting],
      confirmTools: ['send'],
      subAgents: [agent('billing'), agent('helper', { asTool: true })],
    }),
    agent('line', {
      kind: 'sequential',
      tools: [],
      subAgents: [agent('first', { outputKey: 'city' }), agent('second')],
    }),
    agent('side', { kind: 'parallel', tools: [], subAgents: below('left', 'right', 'middle') }),
    agent('rounds', {
      kind: 'loop',
      tools: [],
      maxIterations: 3,
      subAgents: [agent('worker', { tools: ['look_up', 'exit_loop'] })],
    }),
    agent('desk', { subAgents: [agent('teller', { asTool: true, subAgents: [agent('clerk')] })] }),
    agent('hooked', { hooks: hooksOf(counts) }),
    ...HOOKS.map((kind) => agent(`with_${kind}`, { hooks: { name: 'own', [kind]: () => undefined } })),
    agent('plugged', { plugins: [{ name: 'plugin', afterTool: () => undefined }] }),
    agent('guarded', { plugins: [guardrail({ name: 'words', at: ['input'], check: [/never/] })] }),
    agent('judged', { plugins: [guardrail({ name: 'judge', at: ['results'], check: { judge: 'Is it bad?' } })] }),
    agent('short', { compaction: { tokenBudget: 40, keepInvocations: 1 } }),
    agent('narrow', { model: { name: 'scripted', contextTokens: 1_000 }, tools: ['look_up'] }),
    agent('circle', { loopStop: { after: 2 }, tools: ['look_up'] }),
    agent('remote', { mcpServers: [{ name: 'shop', url: mcpUrl }] }),
  ];
}

/** Agents know their scripts by the last `#word` that the user said; another script begins with its first step. */
export function replayWorld(mcpUrl: string): ReplayWorld {
  const counts = { models: 0, tools: 0 };
  const hangs: (() => void)[] = [];
  const hang = ({ signal }: { signal: AbortSignal }) => {
    for (const resolve of hangs.splice(0)) resolve();
    return new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));
  };
  const counted = (name: string, run: Tool['run'], more: Partial<Tool> = {}) =>
    tool(
      name,
      (args, context) => {
        counts.tools += 1;
        return run(args, context);
      },
      more,
    );
  const topic = { type: 'object', properties: { topic: { type: 'string' } }, required: ['topic'] };
  const tools = [
    counted('look_up', async ({ topic: about }) => ({ found: `all of ${String(about)}`, list: [1, 2.5, null] }), {
      parameters: topic,
    }),
    counted('fail', async () => {
      throw new Error('It rains.');
    }),
    counted('send', async ({ to }) => ({ sent: to })),
    counted('hang', async (_args, context) => hang(context)),
    counted('large', async () => 'x'.repeat(40_000)),
  ];
  const scripts = new Map<string, Script>();
  const model = scripted(scripts, counts, hang);
  const world = new Map([...builtInTools(), ...tools.map((each) => [each.name, each] as const)]);
  const definitions = new Map(definitionsOf(mcpUrl, counts).map((definition) => [definition.name, definition]));
  const hosted = [...definitions.keys()].map((name): [string, HostedAgent] => {
    const environment = { model, modelName: 'scripted', builtInTools: world, mcp: { egress: { allowLoopback: true } } };
    const definition = () => definitions.get(name) ?? agent(name);
    return [
      name,
      {
        name,
        version: { digest: 'test', definition: {} },
        hasLiveApi: false,
        prepare: (overrides, signal, userId, serverTools) =>
          prepareAgent(definition(), overrides, environment, signal, userId, serverTools),
        describe: () => describeAgent(definition(), world, 'scripted'),
      },
    ];
  });
  const hanging = () => new Promise<void>((resolve) => hangs.push(resolve));
  return { agents: new Map(hosted), definitions, tools: world, scripts, counts, hanging };
}

function scripted(
  scripts: Map<string, Script>,
  counts: ReplayWorld['counts'],
  hang: (request: ModelRequest) => Promise<never>,
): Model {
  const steps = new WeakMap<Script, Map<string, number>>();
  let last = '';
  const next = (request: ModelRequest): Step => {
    if (request.instruction === SUMMARY_INSTRUCTION) return 'They spoke.';
    if (request.instruction.includes('Is it bad?')) return 'No.';
    const name = /I am (\w+)\./.exec(request.instruction)?.[1] ?? '';
    // An agent that is a tool sees its request only.
    last =
      JSON.stringify(request.contents)
        .match(/#[\w-]+/g)
        ?.at(-1) ?? last;
    const script = scripts.get(last.slice(1));
    if (!script?.[name]) throw new Error(`${name} has no script for ${last}.`);
    const taken = steps.get(script) ?? new Map<string, number>();
    steps.set(script, taken);
    const step = taken.get(name) ?? 0;
    taken.set(name, step + 1);
    return script[name].at(Math.min(step, script[name].length - 1)) ?? '';
  };
  return {
    provider: 'scripted',
    async *generate(request) {
      counts.models += 1;
      const step = next(request);
      if (step instanceof AgentError) throw step;
      if (step === HANG) return await hang(request);
      const parts: Part[] = typeof step === 'string' ? [{ text: step }] : structuredClone(step);
      const [first] = parts;
      if (first?.text) yield { content: { role: 'model', parts: [first] }, modelVersion: 'scripted-1' };
      const usageMetadata = { promptTokenCount: counts.models, candidatesTokenCount: 5 };
      return { content: { role: 'model', parts }, modelVersion: 'scripted-1', finishReason: 'STOP', usageMetadata };
    },
  };
}

/** A call of `look_up`. */
export const lookUp = (topic: string): Part => callPart('look_up', { topic });
