import { expect, test } from 'vitest';
import { defineTool } from '../../src/agent/definition/agent-module.ts';
import { hostAgent } from '../support/agents.ts';
import { testApp } from '../support/app.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';
import { leastStatements, MAX_TIMES } from '../support/store.ts';

const lookup = defineTool({ name: 'lookup', description: '', parameters: { type: 'object' }, run: async () => ({}) });
const model = scriptedModel([
  ({ contents }) => {
    const last = contents.at(-1)?.parts?.at(-1);
    return last?.text === 'use the tool' ? [callPart('lookup')] : [{ text: 'answer' }];
  },
]);
const app = testApp(
  // Nothing but requests: the sweeper and the workers send statements of their own.
  { DEV_UI: 'false' },
  { agents: hostAgent(model, [lookup]), sweepIntervalMs: 3_600_000 },
);

const USER = '/apps/harness_agent/users/u/sessions';
const run = (sessionId: string, text: string) =>
  app.post('/run', {
    appName: 'harness_agent',
    userId: 'u',
    sessionId,
    newMessage: { role: 'user', parts: [{ text }] },
  });

/** The statements of each request, notifications to other replicas left out. */
const BUDGETS: [name: string, statements: number, request: (n: number) => Promise<{ status: number }>][] = [
  ['get a session', 1, () => app.get(`${USER}/s`)],
  ['list sessions', 1, () => app.get(USER)],
  ['list a page of sessions', 1, () => app.get(`${USER}?limit=1`)],
  ['list events', 1, () => app.get(`${USER}/s/events`)],
  ['the metadata of an artifact version', 1, () => app.get(`${USER}/s/artifacts/note.txt/versions/0/metadata`)],
  ['create a session', 1, () => app.post(USER, { state: { c: 3 } })],
  ['create a session that changes shared state', 1, () => app.post(USER, { state: { 'user:a': 1, 'app:b': 2, c: 3 } })],
  ['the first invocation of a session', 2, (n) => run(`first${n}`, 'hello')],
  ['an invocation', 3, () => run('s', 'hello')],
  ['an invocation with one tool call', 5, () => run('s', 'use the tool')],
];

test('each request sends exactly the statements of its budget', async () => {
  await app.post(USER, { sessionId: 's' });
  await app.post(USER, { sessionId: 'other' });
  await run('s', 'hello');
  for (let n = 0; n < MAX_TIMES; n += 1) await app.post(USER, { sessionId: `first${n}` });
  await app.post(`${USER}/s/artifacts`, { filename: 'note.txt', artifact: { text: 'hello' } });
  const sent = new Map<string, number>();
  for (const [name, budget, request] of BUDGETS) {
    sent.set(name, await leastStatements(budget, async (n) => expect((await request(n)).status).toBe(200)));
  }
  expect(Object.fromEntries(sent)).toEqual(Object.fromEntries(BUDGETS.map(([name, statements]) => [name, statements])));
});
