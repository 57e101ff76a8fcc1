import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { startApp } from '../support/app.ts';

/** The state of a task whose answer may have come to its invocation already. */
const DECIDED = expect.stringMatching(/^(?:answered|done)$/) as string;

/** The example of `examples/waits`, in a folder of its own, as its document says. */

test('a payment waits for two people who did not ask, and is made once', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'agent-runtime-payments-'));
  await cp('examples/waits', folder, { recursive: true });
  const app = await startApp({ AGENTS_DIR: folder });
  await app.post('/apps/payments/users/u1/sessions', { sessionId: 's1' });
  const newMessage = { role: 'user', parts: [{ text: 'pay {"to":"Acme","euros":900}' }] };
  await app.post('/run', { appName: 'payments', userId: 'u1', sessionId: 's1', newMessage });
  const { items } = (await app.get('/tasks')).body as { items: { id: string }[] };
  expect(items).toMatchObject([
    { form: { tool: 'pay', hint: 'Pay 900 € to Acme?' }, groups: ['finance'], approvalsNeeded: 2, state: 'open' },
  ]);
  const answer = (by: string) => app.send('PATCH', `/tasks/${items[0]?.id}`, { action: 'answer', by });
  expect((await answer('u1')).status).toBe(403);
  expect(await answer('ann')).toMatchObject({ status: 200, body: { state: 'open', approvals: [{ by: 'ann' }] } });
  expect((await answer('ann')).status).toBe(409);
  expect(await answer('bob')).toMatchObject({ status: 200, body: { state: DECIDED, decidedBy: 'bob' } });
  expect((await answer('eve')).status).toBe(409);
  const session = async () => (await app.get('/apps/payments/users/u1/sessions/s1')).text;
  await expect.poll(session).toContain('"transfer"');
  expect((await session()).split('"transfer": ')).toHaveLength(2);
  await app.close();
  await rm(folder, { recursive: true });
});
