import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { loadAgentModules } from '../../../../src/agent/definition/agent-module.ts';
import { guardrail } from '../../../../src/agent/definition/guardrail.ts';
import { toDefinitionText } from '../../../../src/agent/definition/harness-yaml.ts';
import { prepareAgent } from '../../../../src/agent/prepare-agent.ts';
import { builtInTools } from '../../../../src/agent/tools/registry.ts';
import { getFunctionResponses } from '../../../../src/core/content.ts';
import { runInput, runToEnd } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel } from '../../../support/scripted-model.ts';

let directory = '';
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'agents-'));
});
afterEach(() => rm(directory, { recursive: true }));

async function put(name: string, code: string) {
  await mkdir(join(directory, name));
  await writeFile(join(directory, name, 'agent.ts'), code);
}
const from = new URL('../../../../src/agent/definition/agent-module.ts', import.meta.url).href;
const load = () => loadAgentModules(directory);

test('an agent in code is loaded, and its own tools run', async () => {
  await put(
    'weather',
    `import { defineAgent, defineTool } from '${from}';
     const forecast = defineTool({
       name: 'forecast',
       description: 'Tells the weather.',
       parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
       run: async ({ city }: { city?: unknown }) => ({ city, sky: 'clear' }),
     });
     export const agent = defineAgent({
       instruction: 'Tell the weather.',
       tools: [forecast, 'calculator'],
       subAgents: [{ name: 'poet', instruction: 'Rhyme.', tools: [forecast] }],
       maxLlmCalls: 9,
     });`,
  );
  const { definition, tools } = (await load()).get('weather') ?? expect.unreachable();
  expect(definition).toEqual({
    name: 'weather',
    description: '',
    instruction: 'Tell the weather.',
    tools: ['forecast', 'calculator'],
    skills: [],
    mcpServers: [],
    maxLlmCalls: 9,
    subAgents: [
      { name: 'poet', description: '', instruction: 'Rhyme.', tools: ['forecast'], skills: [], mcpServers: [] },
    ],
  });
  const model = scriptedModel([[callPart('forecast', { city: 'Berlin' }, 'f')], [{ text: 'clear' }]]);
  const environment = { model, modelName: 'default-model', builtInTools: new Map([...builtInTools(), ...tools]) };
  const agent = await prepareAgent(definition, {}, environment, new AbortController().signal);
  const { events, end } = await runToEnd(runInput({ agent }));
  expect(getFunctionResponses(events[1]?.content)[0]?.response).toEqual({ city: 'Berlin', sky: 'clear' });
  expect(end.lastEvent?.author).toBe('weather');
  expect([agent.modelName, agent.subAgents[0]?.modelName]).toEqual(['default-model', 'default-model']);
});

test('a directory that is not there has no agents', async () => {
  expect(await loadAgentModules(join(directory, 'none'))).toEqual(new Map());
});

test.each([
  ['empty', '', /agent\.ts: it exports no `agent`\. Write /],
  ['broken', 'export const agent = {', /agent\.ts: it cannot be loaded: /],
  ['throws', 'throw new Error("no database");', /agent\.ts: it cannot be loaded: no database\n +at .*agent\.ts:1:7$/],
  [
    'import',
    'import x from "./nope.ts";\nexport const agent = x;',
    /Cannot find module '.*nope\.ts' imported from .*agent/,
  ],
  ['typo', 'export const agent = { instructions: "Help." };', /agent\.ts: instructions: there is no such member\.$/],
  ['deep', 'export const agent = { subAgents: [{ name: "a", tool: [] }] };', /subAgents\[0\]\.tool: there is no such/],
  [
    'value',
    'export const agent = { tools: "calculator" };',
    /tools: Invalid input: expected array, received string\.$/,
  ],
  ['user', 'export const agent = {};', /`user` cannot be the name of an application\.$/],
  ['a b', 'export const agent = {};', /`a b` cannot be the name of an application\.$/],
  ['twice', 'export const agent = { subAgents: [{ name: "twice" }] };', /the agent `twice` is there twice\.$/],
  [
    'clash',
    'const run = () => 1;\nexport const agent = { tools: [{ name: "t", run }, { name: "t", run }] };',
    /two tools are named `t`\.$/,
  ],
])('%s is refused with the name of its file', async (name, code, message) => {
  await put(name, code);
  await expect(load()).rejects.toMatchObject({ code: 'config', message: expect.stringMatching(message) });
});

test('a syntax error is shown with its line', async () => {
  await put('syntax', 'export const agent = {\n  instruction: "a"\n  tools: [],\n};');
  const loaded = `(await import('${from}')).loadAgentModules('${directory}')`;
  const script = `await ${loaded}.catch((error) => console.log(error.message))`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script]);
  const path = join(directory, 'syntax', 'agent.ts');
  expect(stdout).toContain(`${path}: it cannot be loaded: Expected ',', got 'ident'\n${path}:3\n  instruction: "a"\n`);
  expect(stdout).not.toContain('node:internal');
});

test('a description of an agent shows everything but secrets', () => {
  const text = toDefinitionText({
    name: 'harness_agent',
    description: '',
    instruction: 'Help.',
    modelName: 'm',
    tools: ['calculator'],
    skills: [],
    mcpServers: [{ name: 'docs', url: 'https://docs.example/', headers: { authorization: 'Bearer canary' } }],
    sampling: {},
    maxLlmCalls: 5,
    plugins: [guardrail({ name: 'cards', at: ['input'], check: [/\d{16}/] })],
  });
  expect(text).toContain('maxLlmCalls: 5');
  expect(text).toContain('name: cards\n    beforeModel: (code)');
  expect(text).toContain('authorization: (hidden)');
  expect(text).not.toContain('canary');
});
