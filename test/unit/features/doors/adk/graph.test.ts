import { describe, expect, test } from 'vitest';
import type { AgentDescription } from '../../../../../src/conversation/apps/hosted-agent.ts';
import { findAgentAt, toDot, toSteps, toStructure } from '../../../../../src/features/doors/adk/graph.ts';

const agent = (name: string, more: Partial<AgentDescription> = {}): AgentDescription => ({
  name,
  description: '',
  kind: 'llm',
  model: 'm',
  instruction: '',
  tools: [],
  subAgents: [],
  ...more,
});
const tool = (name: string) => ({ name, description: '', parameters: {} });
/** The edges without their style, in order. */
const edgesOf = (dot: string) =>
  dot.split('\n').flatMap((line) => /^("(?:[^"\\]|\\.)*" -> "(?:[^"\\]|\\.)*") \[/.exec(line)?.slice(1) ?? []);

const team = agent('team', {
  tools: [tool('search')],
  subAgents: [
    agent('row', { kind: 'sequential', subAgents: [agent('a'), agent('b')] }),
    agent('side', { kind: 'parallel', subAgents: [agent('c', { tools: [tool('search')] }), agent('d')] }),
    agent('round', { kind: 'loop', subAgents: [agent('e'), agent('f')] }),
  ],
});

describe('toDot', () => {
  test('agents follow each other as their kind runs them; a tool of several stands once', () => {
    expect(edgesOf(toDot(team, {}))).toEqual([
      '"team" -> "row"',
      '"team" -> "side"',
      '"team" -> "round"',
      '"team" -> "search"',
      '"row" -> "a"',
      '"a" -> "b"',
      '"side" -> "c"',
      '"side" -> "d"',
      '"c" -> "search"',
      '"round" -> "e"',
      '"e" -> "f"',
      '"f" -> "e"',
    ]);
    expect(toDot(team, {}).match(/^"search" \[/gm)).toHaveLength(1);
  });

  test('many tools stand in a column, where a row would be too wide to read', () => {
    const tools = (count: number) => Array.from({ length: count }, (_, n) => tool(`t${n}`));
    expect(toDot(agent('few', { tools: tools(4) }), {})).not.toContain('rankdir');
    expect(toDot(agent('many', { tools: tools(8) }), {})).toContain('rankdir="LR"');
  });

  test.each(['say "hi"', 'back\\slash', 'end\\', 'two\nlines', '"];x[label="', '\u0000', '<b>', '}', '\\N'])(
    'the name %j stays inside its quotes',
    (name) => {
      const dot = toDot(agent(name, { tools: [tool(`${name}!`)] }), { steps: [{ from: name, to: 'other' }] });
      const text = String.raw`"(?:[^"\\\n]|\\["\\])*"`;
      const attributes = String.raw`\[(?:\w+=${text}(?:, )?)*\]`;
      const line = new RegExp(
        `^(?:digraph ${text} \\{|(?:graph|node|edge) ${attributes}|${text}(?: -> ${text})? ${attributes}|\\})$`,
      );
      expect(dot.split('\n').filter((each) => !line.test(each))).toEqual([]);
    },
  );

  test('a tool that is not described has a node when an event called it', () => {
    const dot = toDot(agent('one'), { steps: [{ from: 'one', to: 'mcp_tool' }] });
    expect(dot).toMatch(/^"mcp_tool" \[/m);
    expect(edgesOf(dot)).toEqual(['"one" -> "mcp_tool"']);
  });
});

describe('toSteps', () => {
  const call = { functionCall: { name: 'search', args: {} } };
  const answer = { functionResponse: { name: 'search', response: {} } };
  test.each([
    [
      'calls',
      { author: 'a', content: { parts: [call, call] } },
      [
        { from: 'a', to: 'search' },
        { from: 'a', to: 'search' },
      ],
    ],
    ['answers', { author: 'a', content: { parts: [answer] } }, [{ from: 'search', to: 'a' }]],
    ['a transfer', { author: 'a', actions: { transferToAgent: 'b' } }, [{ from: 'a', to: 'b' }]],
    ['text', { author: 'a', content: { parts: [{ text: 'hi' }] } }, [{ from: 'a' }]],
    ['what the user says', { author: 'user', content: { parts: [{ text: 'hi' }] } }, []],
    ['what the user answers for a tool', { author: 'user', content: { parts: [answer] } }, [{ from: 'search' }]],
    ['nothing', {}, []],
  ])('%s', (_, event, steps) => {
    expect(toSteps(event)).toEqual(steps);
  });
});

test('findAgentAt follows a path of names with or without the root', () => {
  const names = ['', 'team', 'row', 'team/row/a', '/side/d/', 'none', 'row/none', '__proto__'];
  expect(names.map((path) => findAgentAt(team, path)?.name)).toEqual([
    'team',
    'team',
    'row',
    'a',
    'd',
    undefined,
    undefined,
    undefined,
  ]);
});

test('toStructure names the model of agents that have one', () => {
  const { model, tools, sub_agents = [] } = toStructure(team);
  expect([model, tools]).toEqual(['m', [{ name: 'search', type: 'tool' }]]);
  expect(sub_agents.map((each) => [each.name, 'model' in each])).toEqual([
    ['row', false],
    ['side', false],
    ['round', false],
  ]);
});
