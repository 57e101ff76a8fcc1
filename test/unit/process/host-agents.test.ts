import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readConfig } from '../../../src/process/config.ts';
import { hostAgents } from '../../../src/process/host-agents.ts';

test.each([
  [{ HARNESS_FILE: '/nowhere.yaml' }, /^HARNESS_FILE: there is no file \/nowhere\.yaml\.$/],
  [{ MODEL_PROVIDER: 'openai' }, /^MODEL_NAME: found nothing; the provider openai needs the name of a model\.$/],
  [{ MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'm' }, /^MODEL_BASE_URL: found nothing; openai-compatible needs/],
  [
    { TOOLS: 'nope' },
    /^harness_agent: Tool `nope` is not a supported built-in tool\. Available: ask_person, calculator, /,
  ],
  [{ SKILLS: 'nope' }, /^harness_agent: Skill `nope` failed to load: /],
])('%j cannot be hosted, and the sentence says why', async (environment, message) => {
  await expect(hostAgents(readConfig(environment))).rejects.toMatchObject({
    code: 'config',
    message: expect.stringMatching(message),
  });
});

test('a harness.yaml of VeADK is hosted with the model of the environment, and one warning', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'harness-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const path = join(directory, 'harness.yaml');
  await writeFile(path, 'harness_name: shop\nmodel: { name: "" }\nruntime: adk\ntools: [calculator]\n');
  const warnings: string[] = [];
  const agents = await hostAgents(readConfig({ HARNESS_FILE: path }), (text) => warnings.push(text));
  expect(agents.get('harness_agent')?.describe()).toMatchObject({ model: 'offline', tools: [{ name: 'calculator' }] });
  expect(warnings).toEqual([`${path}: these members mean nothing here and are ignored: harness_name, runtime.`]);
});

test('harness_agent has the metrics and the mask of its folder, which holds no agent', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'agents-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const evals = join(directory, 'harness_agent', 'evals');
  await mkdir(evals, { recursive: true });
  await writeFile(join(evals, 'short.ts'), `export const metric = { description: 'Short.', score: () => 1 };`);
  await writeFile(join(evals, 'mask.ts'), 'export const mask = (evalCase) => evalCase;');
  const agents = await hostAgents(readConfig({ AGENTS_DIR: directory }));
  expect([...agents.keys()]).toEqual(['harness_agent']);
  const module = agents.get('harness_agent')?.evals;
  expect([[...(module?.metrics.keys() ?? [])], typeof module?.mask]).toEqual([['short'], 'function']);
});

test.each([
  ['one.ts', 'export const agent = {};', /one\.ts: it exports no tool\. Write /],
  [
    'two.ts',
    'const run = () => 1;\nexport const a = { name: "t", run }, b = { name: "t", run };',
    /two tools are named/,
  ],
])('a file %s in tools/ that exports no tool of its own is refused', async (file, code, message) => {
  const directory = await mkdtemp(join(tmpdir(), 'agents-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  await mkdir(join(directory, 'harness_agent', 'tools'), { recursive: true });
  await writeFile(join(directory, 'harness_agent', 'tools', file), code);
  await expect(hostAgents(readConfig({ AGENTS_DIR: directory }))).rejects.toThrow(message);
});
