import { type AgentDescription, listAgents } from '../apps/agent-description.ts';
import { functionCallsOf, functionResponsesOf } from '../sessions/content.ts';
import type { Event } from '../sessions/event.ts';

/** An agent of the structure that the Web UI shows; names in snake_case as ADK has them. */
export interface StructureNode {
  name: string;
  type: 'agent' | 'tool';
  description?: string;
  model?: string;
  tools?: { name: string; type: 'tool' }[];
  sub_agents?: StructureNode[];
}

/** The agent tree as `build_graph` answers it. */
export const toStructure = ({ name, description, kind, model, tools, subAgents }: AgentDescription): StructureNode => ({
  name,
  type: 'agent',
  description,
  ...(kind === 'llm' ? { model } : {}),
  tools: tools.map((tool) => ({ name: tool.name, type: 'tool' })),
  sub_agents: subAgents.map(toStructure),
});

/** The agent at a path of names (`root/child` or `child`); `undefined` where there is none. The empty path is the root's. */
export function findAgentAt(root: AgentDescription, path: string): AgentDescription | undefined {
  const names = path.split('/').filter(Boolean);
  if (names[0] === root.name) names.shift();
  return names.reduce<AgentDescription | undefined>(
    (agent, name) => agent?.subAgents.find((child) => child.name === name),
    root,
  );
}

/** A way through the graph, from one node to another; without `to` the node alone. */
export interface Step {
  from: string;
  to?: string;
}

/** What an event did in the graph: called tools, got their answers, handed over, or only spoke. */
export function toSteps({ author, content, actions }: Event): Step[] {
  const from = author ?? '';
  const calls = functionCallsOf(content).map(({ name }) => ({ from, to: name ?? '' }));
  const answers = functionResponsesOf(content).map(({ name }) => ({ from: name ?? '', to: from }));
  const transfers = actions?.transferToAgent ? [{ from, to: actions.transferToAgent }] : [];
  const steps = [...calls, ...answers, ...transfers];
  return steps.length > 0 ? steps : [{ from }];
}

/** Colours of a graph: those of the UI's light and dark theme. */
const PALETTES = {
  light: { background: '#ffffff', text: '#1f1f1f', fill: '#f3f6fb', line: '#9aa5b5', active: '#1e8e3e', onActive: '#ffffff' },
  dark: { background: '#1e1e1e', text: '#e8eaed', fill: '#2d333b', line: '#8a94a3', active: '#2e7d4f', onActive: '#ffffff' },
};
const ICONS = { llm: '✦', sequential: '→', parallel: '⇉', loop: '↻' };

/**
 * The agent, those below it and their tools as a graph in Graphviz' DOT language; the UI draws it. The steps of an event are
 * highlighted, with nodes of their own for tools that the description does not know (those of MCP servers and skills).
 */
export function toDot(agent: AgentDescription, { dark = false, steps = [] }: { dark?: boolean; steps?: Step[] }): string {
  const palette = PALETTES[dark ? 'dark' : 'light'];
  const agents = listAgents(agent);
  const known = new Set(agents.map(({ name }) => name));
  const touched = steps.flatMap(({ from, to }) => (to === undefined ? [from] : [from, to]));
  const foreign = steps.flatMap(({ from, to }) => (known.has(from) ? to : known.has(to ?? '') ? from : undefined));
  const tools = new Set([...agents.flatMap((each) => each.tools.map(({ name }) => name)), ...foreign]);
  const color = (name: string): Record<string, string> =>
    touched.includes(name) ? { fillcolor: palette.active, color: palette.active, fontcolor: palette.onActive } : {};
  const { background: bgcolor, text: fontcolor, fill: fillcolor, line } = palette;
  const base = { color: line, fontcolor, fontname: 'Helvetica' };
  return [
    `digraph ${quoted(agent.name)} {`,
    `graph ${attributes({ bgcolor, pad: '0.4', nodesep: '0.4', ranksep: '0.7' })}`,
    `node ${attributes({ ...base, shape: 'box', style: 'rounded,filled', fillcolor, fontsize: '12', margin: '0.25,0.15' })}`,
    `edge ${attributes({ ...base, fontsize: '10', arrowsize: '0.7' })}`,
    ...agents.map(({ name, kind }) => node(name, { label: `${ICONS[kind]} ${name}`, tooltip: kind, ...color(name) })),
    ...[...tools]
      .filter((name) => name !== undefined && !known.has(name))
      .map((name = '') => node(name, { label: name, tooltip: 'tool', style: 'rounded,filled,dashed', ...color(name) })),
    ...edgesOf(agents, steps, palette.active),
    '}',
  ].join('\n');
}

function edgesOf(agents: AgentDescription[], steps: Step[], active: string): string[] {
  const edges = new Map<string, string>();
  const draw = (from: string, to: string, style: Record<string, string>) =>
    edges.set(`${quoted(from)} -> ${quoted(to)}`, attributes(style));
  for (const agent of agents) {
    for (const [from, to] of flowOf(agent)) draw(from, to, {});
    for (const { name } of agent.tools) draw(agent.name, name, { style: 'dashed' });
  }
  for (const { from, to } of steps) {
    if (to === undefined) continue;
    // A tool's answer goes back along the edge of its call.
    const isBack = edges.has(`${quoted(to)} -> ${quoted(from)}`);
    if (isBack) draw(to, from, { color: active, penwidth: '2', dir: 'back' });
    else draw(from, to, { color: active, penwidth: '2' });
  }
  return [...edges].map(([edge, style]) => `${edge} ${style}`);
}

/** How agents follow each other below one: in a row, in a ring, or from it to each. */
function flowOf({ name, kind, subAgents }: AgentDescription): [from: string, to: string][] {
  const children = subAgents.map((child) => child.name);
  if (kind === 'llm' || kind === 'parallel') return children.map((child) => [name, child]);
  const row = children.map((child, index): [string, string] => [children[index - 1] ?? name, child]);
  const [first, last] = [children[0], children.at(-1)];
  return kind === 'loop' && first !== undefined && last !== undefined ? [...row, [last, first]] : row;
}

const node = (name: string, style: Record<string, string>) => `${quoted(name)} ${attributes(style)}`;

const attributes = (values: Record<string, string>) =>
  `[${Object.entries(values)
    .map(([name, value]) => `${name}=${quoted(value)}`)
    .join(', ')}]`;

/** A string of DOT: in quotes, where a backslash would begin an escape. */
const quoted = (text: string) =>
  `"${text.replaceAll('\\', '\\\\').replaceAll('"', String.raw`\"`).replaceAll(/[\n\r\0]/g, ' ')}"`;
