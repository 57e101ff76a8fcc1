import { afterAll, expect, test } from 'vitest';
import { connect, rpc } from '../support/mcp-client.ts';
import { APP, stage } from './support/faults.ts';
import { answerFor, promptFor } from './support/model-server.ts';
import { paced } from './support/pace.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

/** Tasks of MCP are invocations: they outlive the process that began them, and any other answers for them. */

const here = stage();
const servers: ServerProcess[] = [];
const start = async () => {
  const settings = { SESSION_LEASE_MS: String(paced(3_000)), DOORS: 'mcp', DATABASE_POOL_SIZE: '20' };
  const server = await startServer(here.servingUrl, here.environment(settings));
  servers.push(server);
  return server;
};
afterAll(() => Promise.all(servers.map((server) => server.kill())));
const call = (id: string) => ({ name: APP, arguments: { prompt: promptFor({ id, calls: 2 }) } });

test('a task whose process is killed in the middle ends on another one, by the same name', async () => {
  const [first, second] = [await start(), await start()];
  const release = here.model.hold();
  const { result } = await rpc(`${first.url}/mcp`, 'tools/call', call('killed'));
  const taskId = result?.['taskId'] as string;
  const status = async () => (await rpc(`${second.url}/mcp`, 'tasks/get', { taskId })).result?.['status'];
  await expect.poll(() => here.model.requests('killed')).toBe(1);
  await first.kill();
  expect(await status()).toBe('working');
  release();
  await expect.poll(status).toBe('completed');
  const ended = await rpc(`${second.url}/mcp`, 'tasks/get', { taskId });
  expect(ended.result).toMatchObject({ result: { structuredContent: { text: answerFor('killed') } } });
});

test('a plain call whose process is killed is made again with its key, and has the answer of the first', async () => {
  const [first, second] = [await start(), await start()];
  const release = here.model.hold();
  const meta = { _meta: { 'agent-runtime/idempotency-key': 'again' } };
  const cut = rpc(`${first.url}/mcp`, 'tools/call', { ...call('again'), ...meta }, { capabilities: {} });
  await expect.poll(() => here.model.requests('again')).toBe(1);
  await Promise.all([expect(cut).rejects.toThrow(/fetch failed|terminated|JSON/), first.kill()]);
  const client = await connect(`${second.url}/mcp`, 'modern');
  const retried = client.callTool({ ...call('again'), ...meta });
  release();
  const { structuredContent } = await retried;
  expect(structuredContent).toMatchObject({ status: 'succeeded', text: answerFor('again') });
  const { session } = structuredContent as { session: string };
  const { body } = await second.get(`/apps/${APP}/users/user/sessions/${session}/invocations`);
  expect(body).toHaveLength(1);
  await client.close();
});
