import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { AgentDefinition, AgentOverrides, ModelTarget } from '../../../src/agent/definition/agent.ts';
import type { AgentNode } from '../../../src/agent/definition/tool.ts';
import type { Model } from '../../../src/agent/definition/model.ts';
import { hasGeneralOverride, prepareAgent, type AgentEnvironment } from '../../../src/agent/prepare-agent.ts';
import { builtInTools } from '../../../src/agent/tools/registry.ts';
import { startMcpServer } from '../../support/mcp-server.ts';
import { callPart, scriptedModel } from '../../support/scripted-model.ts';
import { runInput, runToEnd, userEvent } from '../../support/agent-fixtures.ts';
import { MINUTE } from '../../support/patience.ts';

const definition: AgentDefinition = Object.freeze({
  name: 'harness_agent',
  description: 'Helps.',
  instruction: 'Help.',
  modelName: 'deployed',
  tools: ['calculator'],
  skills: [],
  mcpServers: [],
  sampling: { temperature: 0.5 },
  maxLlmCalls: 9,
});
const environment: AgentEnvironment = {
  model: scriptedModel([[{ text: 'ok' }]]),
  modelName: 'default',
  builtInTools: builtInTools(),
  // The product's 3 s to connect would only say how busy the machine is.
  mcp: { egress: { allowLoopback: true }, timeouts: { connectMs: MINUTE, listMs: MINUTE, callMs: MINUTE } },
};
const signal = new AbortController().signal;
const prepare = (overrides: AgentOverrides, more: Partial<AgentEnvironment> = {}) =>
  prepareAgent(definition, overrides, { ...environment, ...more }, signal);

test('without overrides the agent is as deployed', async () => {
  const { tools, close: _close, ...agent } = await prepare({});
  expect(tools.map(({ name }) => name)).toEqual(['calculator']);
  expect(agent).toEqual({
    name: 'harness_agent',
    description: 'Helps.',
    kind: 'llm',
    instruction: 'Help.',
    appendedInstruction: '',
    model: environment.model,
    modelName: 'deployed',
    sampling: { temperature: 0.5 },
    subAgents: [],
    maxLlmCalls: 9,
  });
});

test('overrides append tools once and replace the rest, and leave the definition as it was', async () => {
  const before = structuredClone(definition);
  const agent = await prepare({
    tools: ['current_time', 'calculator', 'current_time'],
    modelName: 'other',
    instruction: 'Be short.',
    maxLlmCalls: 2,
    sampling: { topP: 0.1 },
  });
  expect(agent.tools.map(({ name }) => name)).toEqual(['calculator', 'current_time']);
  expect(agent).toMatchObject({
    modelName: 'other',
    instruction: 'Be short.',
    maxLlmCalls: 2,
    sampling: { temperature: 0.5, topP: 0.1 },
  });
  expect(definition).toEqual(before);
  expect((await prepare({})).modelName).toBe('deployed');
});

test('unknown tools and skills are refused before any MCP server is contacted', async () => {
  const server = await startMcpServer([{ name: 'a' }]);
  const mcpServers = [{ name: 'docs', url: server.url }];
  await expect(prepare({ tools: ['nosuch'], mcpServers })).rejects.toMatchObject({
    code: 'unknown_tool',
    message: expect.stringMatching(
      /^Tool `nosuch` is not a supported built-in tool\. Available: ask_person, calculator, /,
    ),
  });
  await expect(prepare({ skills: ['nosuch'], mcpServers })).rejects.toMatchObject({ code: 'unknown_skill' });
  server.kill();
  expect(server.counts).toEqual({});
});

test('MCP servers are replaced as a whole; an empty list clears them', async () => {
  const one = await startMcpServer([{ name: 'one_tool' }]);
  const two = await startMcpServer([{ name: 'two_tool' }]);
  const deployed = { ...definition, mcpServers: [{ name: 'one', url: one.url }] };
  const names = async (overrides: AgentOverrides) => {
    const agent = await prepareAgent(deployed, overrides, environment, signal);
    await agent.close();
    return agent.tools.map(({ name }) => name);
  };
  expect(await names({})).toEqual(['calculator', 'one_tool']);
  expect(await names({ mcpServers: [{ name: 'two', url: two.url }] })).toEqual(['calculator', 'two_tool']);
  expect(await names({ mcpServers: [] })).toEqual(['calculator']);
  expect([one.openSessions(), two.openSessions()]).toEqual([0, 0]);
  one.kill();
  two.kill();
});

test('tools that are named so need a confirmation, those of MCP servers too', async () => {
  const server = await startMcpServer([{ name: 'delete_page' }, { name: 'read_page' }]);
  const deployed: AgentDefinition = {
    ...definition,
    tools: ['calculator', 'save_artifact'],
    mcpServers: [{ name: 'docs', url: server.url }],
    confirmTools: ['delete_page', 'save_artifact'],
  };
  const agent = await prepareAgent(deployed, {}, environment, signal);
  await agent.close();
  server.kill();
  expect(agent.tools.map(({ name, needsConfirmation }) => [name, needsConfirmation])).toEqual([
    ['calculator', false],
    ['save_artifact', true],
    ['delete_page', true],
    ['read_page', false],
  ]);
  expect(environment.builtInTools.get('save_artifact')?.needsConfirmation).toBe(false);
});

test('without settings an MCP server on loopback is out of reach', async () => {
  const { mcp: _mcp, ...bare } = environment;
  const mcpServers = [{ name: 'docs', url: 'http://127.0.0.1:1/' }];
  await expect(prepareAgent(definition, { mcpServers }, bare, signal)).rejects.toMatchObject({
    message: 'MCP server `docs` could not be reached. 127.0.0.1:1 may be called by https only.',
  });
});

test('skills stand in the instruction and bring their tools', async () => {
  const skillsDir = await mkdtemp(join(tmpdir(), 'skills-'));
  await mkdir(join(skillsDir, 'reports'));
  await writeFile(join(skillsDir, 'reports/SKILL.md'), '---\nname: reports\ndescription: Writes reports\n---\nBrief.');
  const agent = await prepare({ skills: ['reports'] }, { skillsDir });
  await rm(skillsDir, { recursive: true });
  expect(agent.appendedInstruction).toContain('- reports: Writes reports');
  expect(agent.tools.map(({ name }) => name)).toEqual(['calculator', 'load_skill', 'load_skill_resource']);
});

test('sub-agents have tools, a model and MCP servers of their own; a tool is not handed over to', async () => {
  const server = await startMcpServer([{ name: 'look' }]);
  const mcpServers = [{ name: 'docs', url: server.url }];
  const plain = { description: '', tools: [], skills: [], mcpServers: [] };
  const tree: AgentDefinition = {
    ...definition,
    mcpServers,
    subAgents: [
      { ...plain, name: 'writer', instruction: 'Write.', tools: ['save_artifact'], mcpServers },
      { ...plain, name: 'critic', instruction: 'Judge.', modelName: 'own', sampling: {}, asTool: true, outputKey: 'k' },
    ],
  };
  const agent = await prepareAgent(tree, { modelName: 'other' }, environment, signal);
  expect(agent.tools.map(({ name }) => name)).toEqual(['calculator', 'critic', 'look']);
  expect(agent.subAgents).toMatchObject([
    {
      name: 'writer',
      modelName: 'other',
      sampling: { temperature: 0.5 },
      tools: [{ name: 'save_artifact' }, { name: 'look' }],
    },
  ]);
  expect(server.openSessions()).toBe(2);
  await agent.close();
  expect(server.openSessions()).toBe(0);

  const cleared = await prepareAgent(tree, { mcpServers: [] }, environment, signal);
  expect(cleared.subAgents[0]?.tools.map(({ name }) => name)).toEqual(['save_artifact']);
  const broken = { ...tree, subAgents: [{ ...plain, name: 'x', instruction: '', tools: ['nosuch'] }] };
  await expect(prepareAgent(broken, {}, environment, signal)).rejects.toMatchObject({ code: 'unknown_tool' });
  server.kill();
  const down = { ...tree, mcpServers: [] };
  const strict = { ...environment, mcp: { egress: { allowLoopback: true }, onFailure: 'fail' as const } };
  await expect(prepareAgent(down, {}, strict, signal)).rejects.toMatchObject({ code: 'mcp_failed' });
});

test.each([
  [{}, false],
  [{ mcpServers: [] }, false],
  [{ tools: [] }, true],
  [{ modelName: 'x', mcpServers: [] }, true],
  [{ sampling: { temperature: 0 } }, true],
] as [AgentOverrides, boolean][])('%j counts as a general override: %s', (overrides, expected) => {
  expect(hasGeneralOverride(overrides)).toBe(expected);
});

test('50 invocations side by side with overrides of their own do not see each other', async () => {
  const server = await startMcpServer([
    { name: 'echo', call: ({ n }) => ({ content: [{ type: 'text', text: `echo ${String(n)}` }] }) },
  ]);
  const run = async (n: number) => {
    const model = scriptedModel([[callPart('echo', { n }, 'c')], (request) => [{ text: request.instruction }]]);
    const overrides = { instruction: `I am ${n}`, modelName: `m${n}`, mcpServers: [{ name: 'e', url: server.url }] };
    const agent = await prepare(overrides, { model });
    const { events, end } = await runToEnd(runInput({ agent, history: [userEvent(`${n}`)] }));
    await agent.close();
    return {
      text: JSON.stringify(events[1]?.content),
      output: end.output,
      names: model.requests.map((r) => r.modelName),
    };
  };
  const numbers = Array.from({ length: 50 }, (_, index) => index);
  const results = await Promise.all(numbers.map(run));
  for (const [n, { text, output, names }] of results.entries()) {
    expect(text).toContain(`"echo ${n}"`);
    expect(output).toBe(`I am ${n}`);
    expect(names).toEqual([`m${n}`, `m${n}`]);
  }
  expect(server.openSessions()).toBe(0);
  server.kill();
});

test('agents have the model of the one above, or their own; a request names another one of its provider', async () => {
  const [own, spare, elsewhere] = [scriptedModel([]), scriptedModel([]), scriptedModel([])];
  const findModel = ({ provider }: ModelTarget) => (provider ?? elsewhere) as Model;
  const child = { ...definition, name: 'child' };
  const tree = {
    ...definition,
    model: { provider: own, name: 'big', fallbacks: [{ provider: spare, name: 'small' }], firstTokenMs: 9 },
    subAgents: [
      { ...child, modelName: 'medium' },
      { ...child, name: 'other', model: { name: 'plain' } },
      { ...child, name: 'third', model: { name: 'plain', baseUrl: 'https://models.example' } },
      { ...child, name: 'fourth', model: { name: 'plain', apiKey: 'k' } },
    ],
  };
  const named = (agent: AgentNode) => [agent.model, agent.modelName, agent.fallbacks?.map((each) => each.modelName)];
  const prepared = await prepareAgent(tree, { modelName: 'asked' }, { ...environment, findModel }, signal);
  expect([prepared, ...prepared.subAgents].map(named)).toEqual([
    [own, 'asked', ['small']],
    [own, 'medium', ['small']],
    [environment.model, 'plain', undefined],
    [elsewhere, 'plain', undefined],
    [elsewhere, 'plain', undefined],
  ]);
});

test('the context window is that of the model: as written, else of the service, else what is known of its name', async () => {
  const known: Model = { ...environment.model, contextTokens: (name) => (name === 'known' ? 5_000 : undefined) };
  const windowsOf = async (
    overrides: AgentOverrides,
    more: Partial<AgentEnvironment>,
    own: Partial<AgentDefinition>,
  ) => {
    const root = await prepareAgent({ ...definition, ...own }, overrides, { ...environment, ...more }, signal);
    return [root, ...root.subAgents].map(({ contextTokens }) => contextTokens);
  };
  const service = { model: known, modelName: 'deployed', contextTokens: 9_000 };
  const sub = (more: Partial<AgentDefinition>) => ({ ...definition, name: 'sub', ...more });
  expect(await windowsOf({}, {}, {})).toEqual([undefined]);
  expect(await windowsOf({}, service, {})).toEqual([9_000]);
  expect(await windowsOf({ modelName: 'known' }, service, {})).toEqual([5_000]);
  expect(await windowsOf({ modelName: 'other' }, service, { model: { name: 'x', contextTokens: 2_000 } })).toEqual([
    undefined,
  ]);
  const own = { model: { name: 'x', contextTokens: 2_000 }, subAgents: [sub({ modelName: 'known' })] };
  expect(await windowsOf({}, service, own)).toEqual([2_000, 5_000]);
  expect((await prepare({ contextTokensAtMost: 1_000 })).contextTokensAtMost).toBe(1_000);
});
