import { z } from 'zod';
import { type AgentDescription, listAgents } from '../../../conversation/apps/hosted-agent.ts';
import { getFunctionCalls, getFunctionResponses } from '../../../core/content.ts';
import type { Event } from '../../../core/event.ts';

const structureToolSchema = z.looseObject({
  name: z.string().describe('What the model calls it by.'),
  type: z.literal('tool').describe('Always `tool`.'),
});

export const structureNodeSchema = z
  .looseObject({
    name: z.string().describe('The `author` of its events.'),
    type: z.literal('agent').describe('Always `agent`.'),
    description: z.string().optional().describe('What the agent says of itself.'),
    model: z.string().optional().describe('The model that it asks; absent where it asks none.'),
    tools: z.array(structureToolSchema).optional().describe('Its tools.'),
    get sub_agents() {
      return z.array(structureNodeSchema).optional().describe('The agents below it, in order.');
    },
  })
  .describe('An agent in the structure of an application.');

type Structure = z.infer<typeof structureNodeSchema>;

export const toStructure = ({ name, description, kind, model, tools, subAgents }: AgentDescription): Structure => ({
  name,
  type: 'agent',
  description,
  ...(kind === 'llm' ? { model } : {}),
  tools: tools.map((tool) => ({ name: tool.name, type: 'tool' })),
  sub_agents: subAgents.map(toStructure),
});

/** Finds an agent by a path of names (`root/child` or `child`). The empty path is the root agent. */
export function findAgentAt(root: AgentDescription, path: string): AgentDescription | undefined {
  const names = path.split('/').filter(Boolean);
  if (names[0] === root.name) names.shift();
  return names.reduce<AgentDescription | undefined>(
    (agent, name) => agent?.subAgents.find((child) => child.name === name),
    root,
  );
}

/** An edge of the graph from a node to another. Without `to`, only the node `from` is meant. */
interface Step {
  from: string;
  to?: string;
}

/** The graph's edges for an event's tool calls, tool responses and transfers. Mere text has its agent's node. */
export function toSteps({ author, content, actions }: Event): Step[] {
  const answers = getFunctionResponses(content).map(({ name }) => name ?? '');
  if (!author || author === 'user') return answers.map((from) => ({ from }));
  const calls = getFunctionCalls(content).map(({ name }) => name ?? '');
  const transfers = actions?.transferToAgent ? [actions.transferToAgent] : [];
  const steps = [
    ...[...calls, ...transfers].map((to) => ({ from: author, to })),
    ...answers.map((from) => ({ from, to: author })),
  ];
  return steps.length > 0 ? steps : [{ from: author }];
}

const PALETTES = {
  light: { text: '#1f1f1f', fill: '#f3f6fb', line: '#9aa5b5', active: '#1e8e3e', onActive: '#ffffff' },
  dark: { text: '#e8eaed', fill: '#2d333b', line: '#8a94a3', active: '#2e7d4f', onActive: '#ffffff' },
};
const ICONS = { llm: '✦', sequential: '→', parallel: '⇉', loop: '↻' };

/** Draws an agent, its descendants and their tools in Graphviz DOT, with an event's steps highlighted. */
export function toDot(
  agent: AgentDescription,
  { dark = false, steps = [] }: { dark?: boolean; steps?: Step[] },
): string {
  const colors = PALETTES[dark ? 'dark' : 'light'];
  const agents = new Map(listAgents(agent).map((each) => [each.name, each]));
  const touched = new Set(steps.flatMap(({ from, to }) => (to === undefined ? [from] : [from, to])));
  const toolNames = [...agents.values()].flatMap((each) => each.tools.map(({ name }) => name));
  const tools = [...new Set([...toolNames, ...touched])].filter((name) => !agents.has(name));
  const highlight = (name: string): Style =>
    touched.has(name) ? { fillcolor: colors.active, color: colors.active, fontcolor: colors.onActive } : {};
  const base = { color: colors.line, fontcolor: colors.text, fontname: 'Helvetica' };
  const box = {
    ...base,
    shape: 'box',
    style: 'rounded,filled',
    fillcolor: colors.fill,
    fontsize: '12',
    margin: '0.2,0.1',
  };
  // A graph with many tools runs left to right, because a wide row would be scaled down until unreadable.
  const direction: Style = tools.length > 4 ? { rankdir: 'LR' } : {};
  return [
    `digraph ${quoted(agent.name)} {`,
    `graph ${toAttributes({ bgcolor: 'transparent', pad: '0.4', nodesep: '0.4', ranksep: '0.7', ...direction })}`,
    `node ${toAttributes(box)}`,
    `edge ${toAttributes({ ...base, arrowsize: '0.7' })}`,
    ...[...agents.values()].map(({ name, kind }) =>
      toNode(name, { label: `${ICONS[kind]} ${name}`, tooltip: kind, ...highlight(name) }),
    ),
    ...tools.map((name) =>
      toNode(name, { label: name, tooltip: 'tool', style: 'rounded,filled,dashed', ...highlight(name) }),
    ),
    ...toEdges([...agents.values()], steps, { color: colors.active, penwidth: '2' }),
    '}',
  ].join('\n');
}

type Style = Record<string, string>;

function toEdges(agents: AgentDescription[], steps: Step[], highlight: Style): string[] {
  const edges = new Map<string, Style>();
  for (const agent of agents) {
    for (const [from, to] of toFlow(agent)) edges.set(toEdge(from, to), {});
    for (const { name } of agent.tools) edges.set(toEdge(agent.name, name), { style: 'dashed' });
  }
  for (const { from, to } of steps) {
    if (to === undefined) continue;
    // A tool response is drawn as a reversed arrow on the edge of its call.
    if (edges.has(toEdge(to, from))) edges.set(toEdge(to, from), { ...highlight, dir: 'back' });
    else edges.set(toEdge(from, to), highlight);
  }
  return [...edges].map(([edge, style]) => `${edge} ${toAttributes(style)}`);
}

/** A graph's edges to sub-agents: a chain for a sequence, a ring for a loop, otherwise one from the parent to each. */
function toFlow({ name, kind, subAgents }: AgentDescription): [from: string, to: string][] {
  const children = subAgents.map((child) => child.name);
  if (kind === 'llm' || kind === 'parallel') return children.map((child) => [name, child]);
  const row = children.map((child, index): [string, string] => [children[index - 1] ?? name, child]);
  const first = children[0];
  const last = children.at(-1);
  return kind === 'loop' && first !== undefined && last !== undefined ? [...row, [last, first]] : row;
}

const toNode = (name: string, style: Style) => `${quoted(name)} ${toAttributes(style)}`;
const toEdge = (from: string, to: string) => `${quoted(from)} -> ${quoted(to)}`;
const toAttributes = (style: Style) =>
  `[${Object.entries(style)
    .map(([name, value]) => `${name}=${quoted(value)}`)
    .join(', ')}]`;

/** Quotes a DOT string. Backslashes are escaped, because in DOT they start an escape sequence. */
const quoted = (text: string) =>
  `"${text
    .replaceAll('\\', '\\\\')
    .replaceAll('"', '\\"')
    .replaceAll(/\p{Cc}/gu, ' ')}"`;
