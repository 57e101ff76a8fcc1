import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import type { ReplayWorld } from './replay-world.ts';

/** A change of the deployed agent, and where a replay has to name it. */
interface Mutant {
  kind: string;
  change: (world: ReplayWorld) => () => void;
  /** True: with live tools. */
  isLive?: boolean;
  /** Place of the event within the invocation. */
  event: number;
  path: string;
  /** What the value now holds. */
  shows: string;
}

/** Changes the agent of a name in its application's tree. */
function changeAgent(app: string, name: string, change: (agent: AgentDefinition) => AgentDefinition) {
  const changed = (agent: AgentDefinition): AgentDefinition => {
    const one = agent.name === name ? change(agent) : agent;
    return one.subAgents ? { ...one, subAgents: one.subAgents.map(changed) } : one;
  };
  return ({ definitions }: ReplayWorld) => {
    const before = definitions.get(app) as AgentDefinition;
    definitions.set(app, changed(before));
    return () => void definitions.set(app, before);
  };
}

function changeTool(name: string, change: (tool: Tool) => Tool) {
  return ({ tools }: ReplayWorld) => {
    const before = tools.get(name) as Tool;
    tools.set(name, change(before));
    return () => void tools.set(name, before);
  };
}

const instruct = (kind: string, event: number, name = 'harness_agent', app = name): Mutant => ({
  kind,
  event,
  path: '/request/instruction',
  shows: 'Be kind.',
  change: changeAgent(app, name, (agent) => ({ ...agent, instruction: `${agent.instruction} Be kind.` })),
});

const describeTool = (kind: string, event: number, tool: string, place: number): Mutant => ({
  kind,
  event,
  path: `/request/tools/${place}/description`,
  shows: 'Anew.',
  change: changeTool(tool, (one) => ({ ...one, description: 'Anew.' })),
});

const typeTopic = (
  kind: string,
  event: number,
  path = '/request/tools/0/parameters/properties/topic/maxLength',
): Mutant => ({
  kind,
  event,
  path,
  shows: '99',
  change: changeTool('look_up', (one) => ({
    ...one,
    parameters: { ...one.parameters, properties: { topic: { type: 'string', maxLength: 99 } } },
  })),
});

const answerAnew = (kind: string, event: number, path: string, name = 'look_up'): Mutant => ({
  kind,
  event,
  path,
  shows: 'news',
  isLive: true,
  change: changeTool(name, (one) => ({ ...one, run: async () => ({ found: 'news', list: [1, 2.5, null] }) })),
});
const found = (part = 0) => `/content/parts/${part}/functionResponse/response/found`;

/** Ten of instructions, ten of tool schemas, ten of tool answers. */
export const MUTANTS: Mutant[] = [
  instruct('an answer', 1),
  instruct('tools in two steps', 1),
  instruct('state that the instruction names', 1),
  instruct('a transfer', 3, 'billing', 'harness_agent'),
  instruct('one after another', 4, 'second', 'line'),
  instruct('rounds', 1, 'worker', 'rounds'),
  instruct('a confirmation', 1),
  instruct('an invocation that goes on', 1),
  {
    ...instruct('an agent as a tool', 2, 'helper', 'harness_agent'),
    path: '/request/agents/helper/instruction',
  },
  {
    kind: 'a transfer',
    event: 1,
    path: '/request/instruction',
    shows: 'Does bills.',
    change: changeAgent('harness_agent', 'billing', (agent) => ({ ...agent, description: 'Does bills.' })),
  },
  typeTopic('an answer', 1),
  typeTopic('tools side by side', 1),
  typeTopic('rounds', 1),
  typeTopic('a model that fails', 1),
  typeTopic('an agent as a tool', 1),
  describeTool('a tool', 1, 'fail', 1),
  describeTool('artifacts', 1, 'write_state', 2),
  describeTool('a long-running tool', 1, 'get_user_choice', 6),
  {
    kind: 'a tool',
    event: 1,
    path: '/request/tools/10/name',
    shows: 'calculator',
    change: changeAgent('harness_agent', 'harness_agent', (agent) => ({
      ...agent,
      tools: [...agent.tools, 'calculator'],
    })),
  },
  {
    kind: 'a server',
    event: 1,
    path: '/request/tools/1/name',
    shows: 'price',
    change: changeAgent('remote', 'remote', (agent) => ({ ...agent, tools: ['look_up'] })),
  },
  answerAnew('a tool', 2, found()),
  answerAnew('tools in two steps', 2, found()),
  answerAnew('tools side by side', 2, found()),
  { ...answerAnew('a failing tool', 2, '/content/parts/0/functionResponse/response/error', 'fail'), shows: 'null' },
  answerAnew('wrong arguments', 4, found()),
  answerAnew('a transfer', 4, found()),
  answerAnew('one after another', 2, found()),
  answerAnew('rounds', 2, found()),
  answerAnew('a stream', 2, found()),
  answerAnew('an agent that the request changed', 2, found()),
];
