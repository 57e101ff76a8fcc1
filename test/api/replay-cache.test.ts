import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Model, ModelRequest } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import type { Part } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { tool } from '../support/agent-fixtures.ts';
import { startApp, startOn, type TestApp } from '../support/app.ts';
import { callPart } from '../support/scripted-model.ts';
import { startProcess } from '../support/service-process.ts';

/** `replay --cache`: a request that does not begin with the one before it fails CI, but at declared points. */

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

const TOOLS: Tool[] = [
  tool('note', async (_args, { actions }) => void (actions.stateDelta = { city: 'Rome' })),
  tool('large', async () => 'x'.repeat(150_000)),
];
/** What the model does first, by what it was asked; then it is done. */
const FIRST: Record<string, Part[]> = {
  state: [callPart('note', {}, 'c1')],
  large: [callPart('large', {}, 'c1')],
};
const model: Model = {
  provider: 'scripted',
  // oxlint-disable-next-line require-yield -- it answers whole
  async *generate({ contents }: ModelRequest) {
    const parts = FIRST[contents.at(-1)?.parts?.[0]?.text ?? ''] ?? [{ text: 'Done.' }];
    const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1 };
    return { content: { role: 'model', parts }, modelVersion: 'scripted-1', finishReason: 'STOP', usageMetadata };
  },
};
const host = (instruction: string) =>
  hostAgent(model, TOOLS, { tools: ['note', 'large'], instruction, sampling: { promptCaching: true } });

/** The prompts of each session. */
const SESSIONS: Record<string, string[]> = { plain: ['hello', 'again'], state: ['state'], large: ['large'] };

let app: TestApp;
beforeAll(async () => {
  app = await startApp({}, { agents: host('In {city?}.') });
  for (const [session_id, prompts] of Object.entries(SESSIONS))
    for (const prompt of prompts)
      await app.post('/harness/invoke', {
        prompt,
        harness_name: 'harness_agent',
        run_agent_request: { user_id: 'u', session_id },
      });
});
afterAll(() => app.close());

const replay = (url: string, ...args: string[]) =>
  startProcess(process.execPath, [MAIN, '--url', url, '--user', 'u', 'replay', ...args], {}).end;
const CITY = 'instruction (city) of harness_agent, 1 ×';
interface Answer {
  breaks?: object[];
  refused?: object[];
}

test('a break within an invocation at no declared point is named and 1; without --cache it is none', async () => {
  expect((await replay(app.url, 'plain', '--cache')).code).toBe(0);
  const { code, out, error } = await replay(app.url, 'state', '--cache');
  expect([code, error]).toEqual([1, '']);
  expect(out).toContain(': same. ');
  expect(out).toContain(`\nBreak: ${CITY}, first at event 4`);
  const without = await replay(app.url, 'state');
  expect([without.code, without.out.includes('Break')]).toEqual([0, false]);
});

test('a declared break is named and passes', async () => {
  const { code, out } = await replay(app.url, 'large', '--cache');
  expect([code, out.match(/^Break.*$/m)?.[0]]).toEqual([
    0,
    'Break, allowed: tools (+read_result) of harness_agent, 1 ×, first at event 4',
  ]);
  const { breaks } = JSON.parse((await replay(app.url, 'large', '--json')).out) as Answer;
  expect(breaks).toEqual([
    {
      kind: 'declared',
      agent: 'harness_agent',
      part: 'tools',
      why: '+read_result',
      count: 1,
      sequence: 4,
      eventId: expect.any(String) as string,
    },
  ]);
});

test('a sample: those with a break that is refused are grouped by it, in text, JSON and JUnit', async () => {
  const { code, out, error } = await replay(app.url, '--since', '1d', '--cache');
  expect([code, error]).toEqual([1, '']);
  expect(out).toMatch(/^4 of 4 .*: 3 the same, 0 different, 0 could not, 1 with a refused break\.\n/);
  expect(out).toContain('\n1 × break of the prompt cache: instruction (city) of harness_agent\n  u/state/');
  const { outcomes } = JSON.parse((await replay(app.url, '--since', '1d', '--cache', '--json')).out) as {
    outcomes: Answer[];
  };
  expect(outcomes.flatMap(({ refused = [] }) => refused)).toMatchObject([{ kind: 'undeclared', part: 'instruction' }]);
  expect((await replay(app.url, '--since', '1d')).code).toBe(0);
});

test('a changed instruction breaks with the last invocation, and --allow-changes lets it', async () => {
  const changed = await startOn(app.databaseUrl, {}, { agents: host('In {city?}!') });
  try {
    const name = 'instruction (since the last invocation) of harness_agent, 1 ×, first at event 4';
    const refused = await replay(changed.url, 'plain', '--cache');
    expect([refused.code, refused.out.includes(`\nBreak: ${name}`)]).toEqual([1, true]);
    const allowed = await replay(changed.url, 'plain', '--cache', '--allow-changes', '--json');
    // The changed instruction is still a difference.
    expect([allowed.code, (JSON.parse(allowed.out) as Answer).breaks]).toMatchObject([
      1,
      [{ kind: 'between_invocations', part: 'instruction' }],
    ]);
    const text = await replay(changed.url, 'plain', '--cache', '--allow-changes');
    expect(text.out).toContain(`\nBreak, allowed: ${name}`);
  } finally {
    await changed.close();
  }
});

test('--allow-changes without --cache is refused', async () => {
  const { code, error } = await replay(app.url, 'plain', '--allow-changes');
  expect([code, error]).toEqual([2, expect.stringContaining('--allow-changes') as string]);
});
