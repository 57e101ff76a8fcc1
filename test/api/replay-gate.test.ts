import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { startApp, startOn, type TestApp } from '../support/app.ts';
import { startProcess } from '../support/service-process.ts';

/** A gate for CI: 200 invocations of a provider's model, replayed without it; then an instruction is changed. */

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-gate-'));
const COUNT = 200;
/** Of these the request brought its own instruction, so that a change of the deployed one does not reach them. */
const isOwn = (n: number) => n % 4 === 0;
let provider: AnsweringProvider;
let app: TestApp;
let settings: Record<string, string>;

beforeAll(async () => {
  provider = await startAnsweringProvider(({ prompt, results }) =>
    results.length > 0 || !prompt.startsWith('add')
      ? `done: ${prompt}`
      : { calls: [['calculator', { expression: '1+1' }]] },
  );
  settings = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'small', MODEL_BASE_URL: provider.baseUrl };
  app = await startApp({ ...settings, TOOLS: 'calculator', SYSTEM_PROMPT: 'Be brief.' });
  const say = (n: number) =>
    app.post('/harness/invoke', {
      prompt: `${n % 2 ? 'add' : 'say'} ${n}`,
      harness_name: 'harness_agent',
      run_agent_request: { user_id: `u${n % 20}`, session_id: `s${n % 20}-${n % 3}` },
      ...(isOwn(n) ? { harness: { system_prompt: 'Be mine.' } } : {}),
    });
  const numbers = Array.from({ length: COUNT }, (_, n) => n).values();
  const work = async () => {
    for (const n of numbers) await say(n);
  };
  await Promise.all(Array.from({ length: 8 }, work));
});
afterAll(async () => {
  await app.close();
  await provider.close();
  rmSync(folder, { recursive: true, force: true });
});

const gate = (url: string, ...args: string[]) =>
  startProcess(process.execPath, [MAIN, '--url', url, 'replay', '--since', '1d', ...args], {});
interface Report {
  outcomes: { id: string; isLive: boolean; result?: { difference?: { path: string }; liveTokens?: number } }[];
}

test('after no change 200 tapes are the same, and no model is asked', async () => {
  const asked = provider.asked.length;
  const { code, out, error } = await gate(app.url, '--sample', `${COUNT}`).end;
  expect([code, error]).toEqual([0, '']);
  expect(out).toMatch(/^200 of 200 invocations replayed in [\d.]+ s: 200 the same, 0 different, 0 could not\.\n$/);
  expect(provider.asked.length).toBe(asked);
  console.log(out);
});

test('after a changed instruction those that had it are named, by place, in text and JUnit', async () => {
  const changed = await startOn(app.databaseUrl, {
    ...settings,
    TOOLS: 'calculator',
    SYSTEM_PROMPT: 'Be kind <script>alert("&")</script>.',
  });
  const junit = join(folder, 'r.xml');
  const { code, out, error } = await gate(changed.url, '--junit', junit).end;
  const listed = await gate(changed.url, '--json').end;
  await changed.close();
  expect([code, error]).toEqual([1, '']);
  expect(out).toMatch(
    /: 50 the same, 150 different, 0 could not\.\n\n150 × \/request\/instruction\n {2}before {2}"Be brief/,
  );
  const { outcomes } = JSON.parse(listed.out) as Report;
  const paths = Object.groupBy(outcomes, ({ result }) => result?.difference?.path ?? 'same');
  expect([paths['/request/instruction']?.length, paths['same']?.length]).toEqual([150, 50]);
  const xml = readFileSync(junit, 'utf8');
  expect(xml).toContain('<testsuite name="replay.harness_agent" tests="200" failures="150" errors="0">');
  expect(xml).toContain('&lt;script&gt;');
  expect(xml).not.toContain('<script');
});

test('the same sample each time; a live share asks the model within its budget', async () => {
  const sample = async () =>
    ((await app.get('/apps/harness_agent/invocation-sample?limit=10')).body as { items: { id: string }[] }).items;
  const chosen = await sample();
  expect([chosen.length, await sample()]).toEqual([10, chosen]);
  const asked = provider.asked.length;
  const live = await gate(app.url, '--sample', '10', '--live', '20%', '--budget', '1000000', '--json').end;
  const { outcomes } = JSON.parse(live.out) as Report;
  const lives = outcomes.filter(({ isLive }) => isLive);
  expect([live.code, lives.map(({ id }) => id)]).toEqual([0, chosen.slice(0, 2).map(({ id }) => id)]);
  const calls = provider.asked.length - asked;
  expect([calls > 0, lives.reduce((sum, { result }) => sum + (result?.liveTokens ?? 0), 0)]).toEqual([
    true,
    15 * calls,
  ]);
  const short = await gate(app.url, '--sample', '10', '--live', '20%', '--budget', '100').end;
  expect(short.code).toBe(2);
  expect(short.out).toMatch(
    /8 the same, 0 different, 2 could not\.\n\n[^]*may use \d+ tokens, and 100 of this replay are left/,
  );
  expect(provider.asked.length - asked).toBe(calls);
});

test.each([
  [['--live', '5%'], '--live needs --budget'],
  [['--since', 'long'], '--since is a time'],
  [['--live', '500%'], '--live is a share'],
  [['--app', 'none'], 'No invocation of none'],
  [['s1'], 'Name a session, or --since.'],
])('%j cannot be done: 2 and a sentence', async (args, sentence) => {
  const { code, out, error } = await gate(app.url, ...args).end;
  expect([code, out]).toEqual([2, '']);
  expect(error).toContain(sentence);
});

test('Ctrl-C ends it with a report of what was done', async () => {
  let posts = 0;
  const items = [1, 2, 3].map((n) => ({ userId: 'u', sessionId: 's', id: `e-${n}` }));
  const result = { status: 'same', events: 1, liveModelCalls: 0, liveToolCalls: 0, output: {}, notes: [] };
  const running = { interrupt: () => undefined as unknown };
  const service = createServer((request, response) => {
    response.setHeader('x-request-id', 'r');
    if (request.method === 'GET') response.end(JSON.stringify({ items }));
    // The last one hangs.
    else if ((posts += 1) < 3) response.end(JSON.stringify(result));
    else running.interrupt();
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const { child, end } = gate(`http://127.0.0.1:${(service.address() as AddressInfo).port}`);
  running.interrupt = () => child.kill('SIGINT');
  const { code, out } = await end;
  service.closeAllConnections();
  service.close();
  expect([code, out.split(' in ')[0]]).toEqual([2, '2 of 3 invocations replayed']);
});
