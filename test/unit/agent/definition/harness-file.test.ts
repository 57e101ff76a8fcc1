import { expect, test } from 'vitest';
import { parseMcpServers, toAgentDefinition } from '../../../../src/agent/definition/harness-file.ts';
import { parseHarnessFile, toDefinitionText } from '../../../../src/agent/definition/harness-yaml.ts';
import { renderInstruction } from '../../../../src/agent/loop/instruction.ts';
import { MODEL_SOURCES } from '../../../../src/agent/providers/index.ts';
import { ConfigError } from '../../../../src/core/errors.ts';
import { memoryServices } from '../../../support/agent-fixtures.ts';

const FULL = `
description: Helps.
model:
  provider: anthropic
  name: some-model
system_prompt: Help {name?}.
tools: [calculator]
confirm_tools: [calculator]
skills: [reports]
mcp_servers:
  - name: docs
    url: https://docs.example/mcp
    headers:
      authorization: Bearer \${DOCS_TOKEN}
    call_timeout_ms: 5000
    on_failure: skip
sampling: { temperature: 0.2, max_tokens: 100 }
limits:
  max_llm_calls: 7
  compact_above_tokens: 5000
compaction: { share: 0.7, strategies: [drop_results, { keep_newest: 20 }] }
loop_stop: { after: 3, action: ask, except: [poll] }
memory:
  embeddings: { name: vectors, provider: openai, api_key: '\${VECTORS_KEY}', dimensions: 256 }
  remember: { judge: Tastes of the user. }
sub_agents:
  - name: writer
    description: Writes.
    model: small-model
    system_prompt: Write.
    tools: [save_artifact]
    output_key: draft
  - name: steps
    type: sequential
    sub_agents:
      - { name: one, system_prompt: First. }
      - { name: two, system_prompt: Second., as_tool: true }
`;

const define = (text: string, settings = {}, variables = {}) =>
  toAgentDefinition(parseHarnessFile(text, 'harness.yaml'), settings, variables);

test('a full file becomes a definition', () => {
  expect(define(FULL, {}, { DOCS_TOKEN: 'secret', VECTORS_KEY: 'key' })).toEqual({
    name: 'harness_agent',
    description: 'Helps.',
    instruction: 'Help {name?}.',
    modelName: 'some-model',
    tools: ['calculator'],
    confirmTools: ['calculator'],
    skills: ['reports'],
    mcpServers: [
      {
        name: 'docs',
        url: 'https://docs.example/mcp',
        headers: { authorization: 'Bearer secret' },
        callTimeoutMs: 5000,
        onFailure: 'skip',
      },
    ],
    sampling: { temperature: 0.2, maxOutputTokens: 100 },
    maxLlmCalls: 7,
    compaction: { share: 0.7, strategies: ['drop_results', { keepNewest: 20 }], tokenBudget: 5000 },
    loopStop: { after: 3, action: 'ask', except: ['poll'] },
    memory: {
      embeddings: { name: 'vectors', provider: 'openai', apiKey: 'key', dimensions: 256 },
      remember: { judge: 'Tastes of the user.' },
    },
    subAgents: [
      {
        name: 'writer',
        description: 'Writes.',
        modelName: 'small-model',
        instruction: 'Write.',
        tools: ['save_artifact'],
        skills: [],
        mcpServers: [],
        outputKey: 'draft',
      },
      {
        name: 'steps',
        description: '',
        kind: 'sequential',
        instruction: '',
        tools: [],
        skills: [],
        mcpServers: [],
        subAgents: [
          { name: 'one', description: '', instruction: 'First.', tools: [], skills: [], mcpServers: [] },
          { name: 'two', description: '', instruction: 'Second.', tools: [], skills: [], mcpServers: [], asTool: true },
        ],
      },
    ],
  });
});

test('an empty file has defaults; the environment wins over the file', () => {
  const defaults = {
    name: 'harness_agent',
    description: '',
    instruction: 'You are a helpful assistant.',
    tools: ['current_time', 'calculator'],
    skills: [],
    mcpServers: [],
    maxLlmCalls: 500,
  };
  for (const text of ['', '# nothing\n', '{}']) expect(define(text)).toEqual(defaults);
  const settings = {
    modelName: 'm',
    instruction: 'i',
    tools: ['web_fetch'],
    skills: [],
    mcpServers: [],
    maxLlmCalls: 3,
  };
  expect(define(FULL, settings, { DOCS_TOKEN: '', VECTORS_KEY: '' })).toMatchObject(settings);
});

test.each([
  ['tools: [a, 5]', 'harness.yaml:1: tools[1]: allowed: Invalid input: expected string, received number.'],
  ['tools: a', 'harness.yaml:1: tools: allowed: Invalid input: expected array, received string.'],
  ['\n\nlimits:\n  max_llm_calls: 0', 'harness.yaml:4: limits.max_llm_calls: allowed: a whole number from 1.'],
  ['limits:\n  max_llm_calls: 1.5', 'harness.yaml:2: limits.max_llm_calls: allowed: a whole number.'],
  ['a: 1', 'harness.yaml:1: a: there is no such member.'],
  ['model:\n  provder: x', 'harness.yaml:2: model.provder: there is no such member.'],
  [
    'model:\n  provider: x',
    `harness.yaml:2: model.provider: allowed: ${MODEL_SOURCES.slice(0, -1).join(', ')} or ${MODEL_SOURCES.at(-1)}.`,
  ],
  [
    'mcp_servers:\n  - name: a\n',
    'harness.yaml:2: mcp_servers[0]: allowed: a url, or a command without headers, transport and oauth.',
  ],
  ['sub_agents:\n  - name: a b\n', 'harness.yaml:2: sub_agents[0].name: allowed: a name of letters, digits, _ and -.'],
  ['sub_agents:\n  - name: user\n', 'harness.yaml:2: sub_agents[0].name: allowed: a name other than `user`.'],
  ['sub_agents: [{ name: a }, { name: a }]', 'harness.yaml: sub_agents: the name `a` is there twice.'],
  ['sub_agents: [{ name: harness_agent }]', 'harness.yaml: sub_agents: the name `harness_agent` is there twice.'],
  ['[]', 'harness.yaml:1: the file: allowed: Invalid input: expected object, received array.'],
  ['a: 1\na: 2', 'harness.yaml:2: Map keys must be unique at line 2, column 1:'],
  [
    'a: [',
    'harness.yaml:1: Flow sequence in block collection must be sufficiently indented ' +
      'and end with a ] at line 1, column 5:',
  ],
])('%j is refused with its line', (text, message) => {
  expect(() => parseHarnessFile(text, 'harness.yaml')).toThrow(new ConfigError(message));
});

test('all problems are listed at once', () => {
  expect(() => parseHarnessFile('tools: 1\nskills: 2', 'h.yaml')).toThrow(/^h\.yaml:1: tools: .*\nh\.yaml:2: skills: /);
});

test('an alias bomb is refused', () => {
  const bomb = [
    'a: &a [x,x,x,x,x,x,x,x,x]',
    'b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]',
    'c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]',
  ].join('\n');
  expect(() => parseHarnessFile(`${bomb}\nd: [*c,*c,*c,*c,*c,*c,*c,*c]`, 'h.yaml')).toThrow(
    'h.yaml: it has too many aliases.',
  );
});

test('a header whose variable is not set is refused', () => {
  expect(() => define(FULL)).toThrow('`docs` needs the variable DOCS_TOKEN, which is not set.');
});

test('MCP_SERVERS is JSON or URLs', () => {
  expect(parseMcpServers('https://a.example/mcp, https://b.example:8443/x', {})).toEqual([
    { name: 'a.example', url: 'https://a.example/mcp' },
    { name: 'b.example:8443', url: 'https://b.example:8443/x' },
  ]);
  const json = '[{"name":"a","url":"https://a.example/","headers":{"x":"${T}"}}]';
  expect(parseMcpServers(json, { T: 't' })).toEqual([{ name: 'a', url: 'https://a.example/', headers: { x: 't' } }]);
  expect(() => parseMcpServers('secret', {})).toThrow('MCP_SERVERS[0].url: found a wrong value; allowed: a URL.');
  expect(() => parseMcpServers('[secret', {})).toThrow(/^MCP_SERVERS: found a wrong value; allowed: /);
});

const state = { name: 'Ann', 'app:unit': 'km', 'user:langs': ['en', 'de'], count: 0, empty: null, nested: '{name}' };

test.each([
  ['Hi {name}!', 'Hi Ann!'],
  ['{app:unit} {user:langs} {count}', 'km ["en","de"] 0'],
  ['[{missing?}][{empty?}]', '[][]'],
  ['{nested}', '{name}'],
  ['{"a": 1} {} {a b} {1x} {bad:x} {{name}}', '{"a": 1} {} {a b} {1x} {bad:x} {Ann}'],
  ['{artifact.style.md} {artifact.none?}', 'Be brief. '],
])('%s is filled in', async (template, expected) => {
  const services = memoryServices();
  await services.saveArtifact('style.md', { text: 'Be brief.' });
  expect(await renderInstruction(template, state, services)).toBe(expected);
});

test.each([
  [
    '{missing}',
    "The instruction of the agent needs a value for `missing` in the session's state, which is not there. " +
      'Set it, or write {missing?} if it may be missing.',
  ],
  [
    '{artifact.none}',
    'The instruction of the agent needs the artifact `none`, which is not there. ' +
      'Set it, or write {artifact.none?} if it may be missing.',
  ],
  ['{toString}', expect.stringContaining('`toString`') as unknown as string],
])('%s is a clear error', async (template, message) => {
  await expect(renderInstruction(template, state, memoryServices())).rejects.toMatchObject({
    code: 'instruction_unset',
    message,
  });
});

test('a file that `veadk harness create` and `add` wrote starts; one warning names what means nothing here', () => {
  const warnings: string[] = [];
  const text = `
harness_name: shop
model:
  name: ""
tools: [calculator]
skills: []
system_prompt: ""
runtime: adk
structured_tool_calls: false
include_tools_every_turn: true
harness_enhance:
  enabled: false
  components: [invocation_context, compactor, response_verification]
knowledgebase:
  type: ""
long_term_memory:
  type: viking
  project: my-project
short_term_memory:
  type: local
auth: { discovery_url: "https://pool.example/", allowed_ids: [a] }
max_llm_calls: 12
`;
  const file = parseHarnessFile(text, 'harness.yaml', (warning) => warnings.push(warning));
  expect(toAgentDefinition(file, {}, {})).toEqual({
    name: 'harness_agent',
    description: '',
    instruction: 'You are a helpful assistant.',
    tools: ['calculator'],
    skills: [],
    mcpServers: [],
    maxLlmCalls: 12,
  });
  expect(warnings).toEqual([
    'harness.yaml: these members mean nothing here and are ignored: harness_name, runtime, structured_tool_calls, ' +
      'include_tools_every_turn, harness_enhance, knowledgebase, long_term_memory, short_term_memory, auth.',
  ]);
  expect(() => parseHarnessFile('runtime: adk\nruntme: adk', 'h.yaml')).toThrow('h.yaml:2: runtme: there is no such');
});

test('an agent that is described in code too: the error names the file that was given, and what to do', () => {
  const inCode = { name: 'harness_agent', description: '', instruction: '', tools: [], skills: [], mcpServers: [] };
  const file = parseHarnessFile('limits: { max_llm_calls: 3 }\nsystem_prompt: Help.', 'examples/harness.yaml');
  expect(() => toAgentDefinition(file, {}, {}, inCode, 'examples/harness.yaml')).toThrow(
    'examples/harness.yaml: system_prompt: agents/harness_agent/agent.ts describes the agent already. ' +
      'Move that file away, or keep in examples/harness.yaml only model and limits.',
  );
});

test('an instruction may grow to 256 KB of UTF-8, and not by one byte more', async () => {
  const large = { half: 'ä'.repeat(65_536), byte: 'x' };
  expect(await renderInstruction('{half}{half}', large, memoryServices())).toHaveLength(131_072);
  await expect(renderInstruction('{half}{half}{byte}', large, memoryServices())).rejects.toMatchObject({
    code: 'instruction_too_large',
  });
});

test('models of agents, with fallbacks; a key comes from the environment', () => {
  const text = `
model:
  name: big
  first_token_ms: 500
  fallbacks: [{ name: small }, { provider: google, name: flash, api_key: "\${G}" }]
sampling: { seed: 7, stop: [END], reasoning_effort: low, prompt_caching: true }
sub_agents:
  - { name: a, model: { provider: anthropic, name: claude, base_url: "https://a.example/v1" } }
  - { name: b, model: plain }`;
  const { model, sampling, subAgents } = define(text, { modelName: 'chosen' }, { G: 'secret' });
  const flash = { provider: 'google', name: 'flash', apiKey: 'secret' };
  expect(model).toEqual({ name: 'chosen', firstTokenMs: 500, fallbacks: [{ name: 'small' }, flash] });
  expect(sampling).toEqual({ seed: 7, stopSequences: ['END'], reasoningEffort: 'low', promptCaching: true });
  expect(subAgents).toMatchObject([
    { model: { provider: 'anthropic', name: 'claude', baseUrl: 'https://a.example/v1' } },
    { modelName: 'plain' },
  ]);
  expect(toDefinitionText({ ...define(text, {}, { G: 'secret' }) })).not.toContain('secret');
});

test('an agent in the background is a tool', () => {
  const withAgent = (agent: string) => `sub_agents: [{ name: one, ${agent} }]\n`;
  expect(define(withAgent('background: optional')).subAgents).toMatchObject([{ name: 'one', background: 'optional' }]);
  expect(define(withAgent('background: true, as_tool: true')).subAgents).toMatchObject([{ background: true }]);
  expect(() => define(withAgent('background: true, as_tool: false'))).toThrow('is called like a tool');
  expect(() => define(withAgent('background: never'))).toThrow('background');
});
