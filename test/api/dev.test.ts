import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { client } from '../support/app.ts';
import { createTestDatabase } from '../support/database.ts';
import { startProcess } from '../support/service-process.ts';

/** `dev`: what a person sees who saves files while the service runs. */

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** An agent whose only tool is `name`. */
const agent = (name: string) => `
import { defineAgent, defineTool } from 'agent-runtime';
import { answer } from '../../lib/answer.ts';
const parameters = { type: 'object' };
const tool = defineTool({ name: '${name}', description: 'A tool.', parameters, run: async () => answer });
export const agent = defineAgent({ instruction: 'Be brief.', tools: [tool] });
`;

test('every way of saving reloads; what is broken does not, and the one before goes on', async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const cwd = mkdtempSync(join(tmpdir(), 'agent-runtime-dev-'));
  onTestFinished(() => rmSync(cwd, { recursive: true, force: true }));
  const write = (file: string, text: string) => writeFileSync(join(cwd, file), text);
  write('.env', `DATABASE_URL=${database.url}\nPORT=0\nSYSTEM_PROMPT=One.\n`);
  const dev = startProcess(process.execPath, [MAIN, 'dev', '--no-open'], {}, { cwd, detached: true });
  onTestFinished(async () => {
    dev.child.kill('SIGTERM');
    await dev.end;
  });
  const ask = (path: string, body?: object) => {
    const [, url = ''] = [...dev.ended.out.matchAll(/(?:listens on|reloaded,) (http\S+)/g)].at(-1) ?? [];
    return client(url).send(body ? 'POST' : 'GET', path, body);
  };
  const describe = async () => {
    const { body } = await ask('/apps/harness_agent/app-info');
    const { instruction, tools } = (body as { agents: Record<string, { instruction: string; tools: unknown }> }).agents[
      'harness_agent'
    ] ?? { instruction: '', tools: [] };
    return { instruction, tools: JSON.stringify(tools) };
  };
  /** Waits for the line of the n-th change, which came of a file. */
  const reloaded = async (file: string, ending = 'reloaded, http') => {
    await dev.until(`${file} changed: ${ending}`);
    dev.ended.out = dev.ended.out.replace(`${file} changed: ${ending}`, `(seen) reloaded, http`);
  };

  await dev.until('Watching');
  await dev.until('Try it:');
  expect(await describe()).toMatchObject({ instruction: 'One.' });
  // A changed `.env` counts with its new values.
  write('.env', `DATABASE_URL=${database.url}\nPORT=0\nSYSTEM_PROMPT=Two.\n`);
  await reloaded('.env');
  expect(await describe()).toMatchObject({ instruction: 'Two.' });
  // A directory that was not there.
  mkdirSync(join(cwd, 'lib'));
  write('lib/answer.ts', 'export const answer = 1;\n');
  mkdirSync(join(cwd, 'agents/harness_agent'), { recursive: true });
  write('agents/harness_agent/agent.ts', agent('first'));
  await reloaded('agents/harness_agent/agent.ts');
  expect((await describe()).tools).toContain('"first"');
  // Saved by rename, twice, as vim and sed do.
  for (const name of ['second', 'third']) {
    write('agents/harness_agent/.agent.ts.swp', agent(name));
    renameSync(join(cwd, 'agents/harness_agent/.agent.ts.swp'), join(cwd, 'agents/harness_agent/agent.ts'));
    await reloaded('agents/harness_agent/agent.ts');
    expect((await describe()).tools).toContain(`"${name}"`);
  }
  // A file that the agent imports.
  write('lib/answer.ts', 'export const answer = 2;\n\nthrow new Error("broken here");\n');
  await dev.until('lib/answer.ts changed: not reloaded, the one before goes on.');
  expect(dev.ended.error).toMatch(/broken here\n(?:.*\n)*.*lib\/answer\.ts:3/);
  const run = { prompt: 'third', harness_name: 'd', run_agent_request: { user_id: 'u', session_id: 's' } };
  expect((await ask('/harness/invoke', run)).body).toMatchObject({ error: null, output: expect.stringContaining('1') });
  write('lib/answer.ts', 'export const answer = 2;\n');
  await reloaded('lib/answer.ts');
  // A harness file that was not there, and is wrong.
  write('harness.yaml', 'tols: [calculator]\n');
  await dev.until('harness.yaml changed: not reloaded');
  write('harness.yaml', 'limits: { max_llm_calls: 3 }\n');
  await reloaded('harness.yaml');
  expect((await ask('/harness/invoke', run)).body).toMatchObject({ error: null });
});

test('a second signal, which npm hands on after Ctrl-C, leaves no service behind', async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const cwd = mkdtempSync(join(tmpdir(), 'agent-runtime-dev-'));
  onTestFinished(() => rmSync(cwd, { recursive: true, force: true }));
  const environment = { DATABASE_URL: database.url, PORT: '0' };
  const dev = startProcess(process.execPath, [MAIN, 'dev', '--no-open'], environment, { cwd, detached: true });
  await dev.until('Try it:');
  const [, url = ''] = /listens on (\S+)/.exec(dev.ended.out) ?? [];
  dev.child.kill('SIGINT');
  await dev.until('Stopping;');
  dev.child.kill('SIGINT');
  // The service shares the output, so this settles when both have ended.
  expect(await dev.end).toMatchObject({ code: 0, error: '' });
  await expect(fetch(url)).rejects.toThrow('fetch failed');
});
