import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { parseHarnessFile } from '../../src/agent/definition/harness-yaml.ts';
import { MODEL_SOURCES } from '../../src/agent/providers/index.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import { readConfig } from '../../src/process/config.ts';
import { ConfigError } from '../../src/core/errors.ts';
import { describeHarness } from '../../src/process/host-agents.ts';
import { findListings } from '../support/listings.ts';

/** What `node src/main.ts check` says of the examples, and of what people write wrong. */

const pathOf = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const example = pathOf('examples/harness.yaml');

let directory = '';
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'check-'));
});
afterAll(() => rm(directory, { recursive: true }));

/** The check with these variables and no others: what it prints, or the sentence that ends it. */
async function check(environment: Record<string, string>): Promise<{ stdout: string; stderr: string }> {
  const warnings: string[] = [];
  try {
    const stdout = await describeHarness(readConfig({ AGENTS_DIR: directory, ...environment }), (text) =>
      warnings.push(`${text}\n`),
    );
    return { stdout, stderr: warnings.join('') };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { stdout: '', stderr: `${error.message}\n` };
  }
}

async function checkText(text: string, environment: Record<string, string> = {}) {
  const file = join(directory, 'written.yaml');
  await writeFile(file, text);
  const { stdout, stderr } = await check({ HARNESS_FILE: file, ...environment });
  return { stdout, stderr: stderr.replaceAll(file, 'FILE') };
}

describe('the examples', () => {
  test('pass the check, which prints what will run', async () => {
    const { stdout, stderr } = await check({ HARNESS_FILE: example, AGENTS_DIR: pathOf('examples/agents') });
    expect(stderr).toBe('');
    expect(stdout.split('\n')[0]).toBe('# Applications: harness_agent, weather. Model: offline.');
    expect(parse(stdout)).toMatchObject({
      name: 'harness_agent',
      modelName: 'offline',
      tools: ['calculator', 'current_time', 'read_state', 'write_state'],
      confirmTools: ['write_state'],
      maxLlmCalls: 20,
      compaction: { share: 0.8, strategies: ['drop_results', 'summarise'] },
      loopStop: { after: 5, action: 'end' },
      subAgents: [
        { name: 'poet' },
        { name: 'translator', asTool: true },
        {
          name: 'complaint',
          kind: 'sequential',
          subAgents: [{ outputKey: 'draft' }, { kind: 'parallel' }, { kind: 'loop', maxIterations: 3 }],
        },
      ],
    });
  });

  test('what stands in comments would pass too, and every tool is listed', () => {
    const text = readFileSync(example, 'utf8');
    const whole = text.replaceAll(/^# (skills:|mcp_servers:|openapi:|  )/gm, '$1');
    expect(parseHarnessFile(whole, 'harness.yaml')).toMatchObject({
      skills: ['refunds'],
      mcpServers: [{ name: 'orders', headers: { authorization: 'Bearer ${ORDERS_TOKEN}' } }],
      openapi: [{ name: 'shop', operations: ['getOrder', 'cancelOrder'] }],
    });
    const listed = /# Built-in tools: ([^.]*)\./.exec(text)?.[1]?.split(/[,\s#]+/);
    expect(listed).toEqual([...builtInTools().keys()].sort());
  });
});

test('the harness.yaml of docs/agents.md is valid', () => {
  const { text: written = '' } = findListings().find(({ name }) => name.startsWith('docs/agents.md: model:')) ?? {};
  expect(parseHarnessFile(written, 'agents.md')).toMatchObject({
    subAgents: [{ name: 'poet' }, { name: 'complaint' }],
  });
});

describe('what is wrong is said with its line', () => {
  test.each<[string, string, string]>([
    [
      'members, all at once',
      'system_promt: Help.\nmodel:\n  provider: gemini\nmcp_servers:\n  - url: https://mcp.example.com\n' +
        'sub_agents:\n  - name: user\n',
      'FILE:1: system_promt: there is no such member.\n' +
        `FILE:3: model.provider: allowed: ${MODEL_SOURCES.slice(0, -1).join(', ')} or ${MODEL_SOURCES.at(-1)}.\n` +
        'FILE:5: mcp_servers[0].name: allowed: a string; it is missing.\n' +
        'FILE:7: sub_agents[0].name: allowed: a name other than `user`.\n',
    ],
    ['broken YAML', 'tools:\n  - calculator\n - current_time\n', expect.stringMatching(/^FILE:3: /) as string],
    [
      'a tool that does not exist',
      'tools: [calculater]\n',
      expect.stringMatching(
        /^harness_agent: Tool `calculater` is not a supported built-in tool\. Available: ask_person, calculator, /,
      ) as string,
    ],
    [
      'a variable that is not set',
      'mcp_servers:\n  - name: orders\n    url: https://mcp.example.com\n' +
        '    headers: { authorization: "Bearer ${ORDERS_TOKEN}" }\n',
      '`orders` needs the variable ORDERS_TOKEN, which is not set.\n',
    ],
  ])('%s', async (_what, text, stderr) => {
    expect(await checkText(text)).toEqual({ stdout: '', stderr });
  });

  test('secrets of headers are used and not printed', async () => {
    const text =
      'mcp_servers:\n  - name: orders\n    url: https://mcp.example.com\n' +
      '    headers: { authorization: "Bearer ${T}" }\n';
    const { stdout } = await checkText(text, { T: 'canary' });
    expect(stdout).toContain('authorization: (hidden)');
    expect(stdout).not.toContain('canary');
  });
});
