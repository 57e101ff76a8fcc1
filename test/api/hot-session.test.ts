import { expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { hostScript } from '../support/agents.ts';
import { testApp } from '../support/app.ts';
import { statementsOf } from '../support/store.ts';

const IN_FLIGHT = 16;
const INVOCATIONS = 96;
const MAX_STATEMENTS = 8;

const app = testApp(
  // Nothing but requests: the sweeper sends statements of its own.
  { SESSION_QUEUE_DEPTH: '64', DEV_UI: 'false' },
  { agents: hostScript([[{ text: 'answer' }]]), sweepIntervalMs: 3_600_000 },
);

const invoke = (prompt: string) =>
  app.post('/harness/invoke', {
    prompt,
    harness_name: 'h',
    run_agent_request: { user_id: 'u', session_id: 'hot' },
  });

test('many requests for one session cost few statements each, and it answers each in turn', async () => {
  await invoke('first');
  let left = INVOCATIONS;
  const statuses: number[] = [];
  const client = async () => {
    while (left-- > 0) statuses.push((await invoke(`prompt ${left}`)).status);
  };
  const sent = await statementsOf(() => Promise.all(Array.from({ length: IN_FLIGHT }, client)));
  expect(statuses).toEqual(Array.from({ length: INVOCATIONS }, () => 200));
  const { events } = (await app.get('/apps/harness_agent/users/u/sessions/hot')).body as { events: Event[] };
  const authors = events.map(({ author }) => author);
  expect(authors).toEqual(Array.from({ length: INVOCATIONS + 1 }, () => ['user', 'harness_agent']).flat());
  expect(sent.length / INVOCATIONS).toBeLessThanOrEqual(MAX_STATEMENTS);
});
