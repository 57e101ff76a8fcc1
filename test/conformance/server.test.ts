import { afterAll, beforeAll, expect, test } from 'vitest';
import { hostScript } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { exceptionsFile, REVISIONS, runSuite } from './suite.ts';

/** The protocol's own suite against the door, with an application of the tests behind it. */

const agents = hostScript([[{ text: 'Hello' }]]);
const skill = { name: 'invoices', description: 'How to write an invoice.', body: 'Number them.', directory: '/none' };
// What an agent here cannot do is a result: the suite's tool that fails is one that is asked without a prompt.
const [first] = agents.values();
if (first) agents.set('test_error_handling', first);
for (const agent of agents.values()) agent.listSkills = () => Promise.resolve([skill]);

let app: TestApp;
beforeAll(async () => {
  app = await startApp({ DOORS: 'mcp' }, { agents });
});
afterAll(() => app.close());

test.each(REVISIONS)('what %s requires of a server holds, but for the listed exceptions', async (revision) => {
  const args = ['server', '--url', `${app.url}/mcp`, '--requirements', revision];
  const { code, output } = await runSuite([...args, '--expected-failures', exceptionsFile(revision)]);
  expect([code, output]).toEqual([0, output]);
});
