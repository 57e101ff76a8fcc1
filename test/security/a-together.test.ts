import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { startAnsweringProvider } from '../support/answering-provider.ts';
import { percentile } from '../support/fairness.ts';
import { startMcpServer } from '../support/mcp-server.ts';
import { FROZEN_MS, startWatched } from '../support/watched-service.ts';

const ASKER = fileURLToPath(new URL('../support/asker.ts', import.meta.url));
const sessions = '/apps/harness_agent/users/mallory/sessions';

test('A: while one user does all of it at once, /health and the session of another are answered', async () => {
  const aaab = `${'a'.repeat(40)}b`;
  const provider = await startAnsweringProvider(({ results, tools }) =>
    results.length > 0 || !tools.includes('work') ? 'done' : { calls: [['work', { s: aaab, list: many }]] },
  );
  const many = Array.from({ length: 30_000 }, (_, index) => ({ i: index }));
  const hostile = await startMcpServer([
    {
      name: 'work',
      inputSchema: { properties: { s: { pattern: '^(a+)+$' }, list: { uniqueItems: true } } },
    },
  ]);
  const manyTools = await startMcpServer(
    Array.from({ length: 40_000 }, () => ({ name: 'work' })),
    { pageSize: 40_000 },
  );
  const service = await startWatched({
    MODEL_PROVIDER: 'openai-compatible',
    MODEL_NAME: 'small',
    MODEL_BASE_URL: provider.baseUrl,
  });
  onTestFinished(async () => {
    await Promise.all([service, provider, hostile, manyTools].map((each) => each.close()));
  });

  const invoke = (harness: object, sessionId: string = crypto.randomUUID()) =>
    service.post('/harness/invoke', {
      prompt: 'go',
      harness_name: 'harness_agent',
      harness,
      run_agent_request: { user_id: 'mallory', session_id: sessionId },
    });
  const keys = Array.from({ length: 600_000 }, (_, index) => `"k${index}":1`);
  const body = `{"stateDelta":{${keys.join()}}}`;
  const event = { author: 'user', content: { role: 'user', parts: [{ text: 'x'.repeat(1_000_000) }] } };
  const grow = async (sessionId: string) => {
    await service.post(sessions, { sessionId });
    for (let count = 0; count < 10; count += 1) await service.post(`${sessions}/${sessionId}/events`, event);
    await invoke({ tools: [] }, sessionId);
    await service.get(`${sessions}/${sessionId}`);
  };
  const attack = () =>
    Promise.all([
      invoke({ mcp_servers: [hostile.url] }),
      invoke({ mcp_servers: [manyTools.url] }),
      invoke({ system_prompt: '{user:x}'.repeat(500) }, 'prompt'),
      service.send('PATCH', `${sessions}/prompt`, body),
      grow(crypto.randomUUID()),
    ]);

  await service.post(sessions, { sessionId: 'prompt', state: { 'user:x': 'x'.repeat(900_000) } });
  await service.post('/apps/harness_agent/users/alice/sessions', { sessionId: 's' });
  await service.report();
  // Apart from this process, which is busy itself: it is the hostile servers too.
  const asker = fork(ASKER, [`${service.url}/health`, `${service.url}/apps/harness_agent/users/alice/sessions/s`]);
  onTestFinished(() => void asker.kill('SIGKILL'));
  await once(asker, 'message');
  for (let round = 0; round < 3; round += 1) await Promise.all([attack(), attack()]);
  asker.send('stop');
  const [{ times, statuses }] = (await once(asker, 'message')) as [{ times: number[]; statuses: number[] }];
  expect(new Set(statuses)).toEqual(new Set([200]));
  const { longestMs, heapMb } = await service.report();
  const p99 = percentile(times, 0.99);
  const shown = [times.length, p99, longestMs, heapMb].map(Math.round);
  console.log(`answers %d, p99 %d ms, longest turn %d ms of CPU, heap %d MB`, ...shown);
  expect(longestMs).toBeLessThan(FROZEN_MS);
  expect(service.process.exitCode).toBeNull();
});
