import { Client } from 'pg';
import { describe, expect, test } from 'vitest';
import type { HostedAgent } from '../../src/conversation/apps/hosted-agent.ts';
import type { Operation } from '../../src/platform/http/operation/operation.ts';
import { listAllOperations } from '../../src/process/app.ts';
import { hostScript } from '../support/agents.ts';
import { testApp } from '../support/app.ts';

const agents = hostScript([[{ text: 'Done.' }]]);
const app = testApp({ CRONJOBS: 'true', WEBHOOKS: 'true', EVALS: 'true' }, { agents });

const all = listAllOperations();
/** Operations that name their application: in the path, or in the body. */
const named = all.filter(
  ({ path, body }) => path.includes('{app_name}') || 'appName' in ((body?.schema as { shape?: object })?.shape ?? {}),
);
const reads = named.filter(({ method, body }) => method === 'get' && !body);
/** Changes of what is left of an application that is hosted no more. */
const LEFT = ['cancelInvocation', 'setLegalHold'];
const isAllowed = ({ method, operationId }: Operation) => method === 'delete' || LEFT.includes(operationId);
const changes = named.filter((each) => !reads.includes(each) && !isAllowed(each));

/** What some of them need in their query. */
const NEEDED = ['query', 'other'];
const pathOf = ({ path }: Operation) =>
  path
    .replace('{app_name}', 'nope')
    .replace('{version_id}', '0')
    .replaceAll(/\{\w+\}/g, 'x');

function send(operation: Operation) {
  const { method, body, parameters } = operation;
  const ofApp = 'appName' in ((body?.schema as { shape?: object })?.shape ?? {}) ? { appName: 'nope' } : {};
  const example = body?.isText ? body.example : body && { ...(body.example as object), ...ofApp };
  const query = NEEDED.filter((name) => name in (parameters?.query?.shape ?? {})).map((name) => `${name}=x`);
  const key = { 'idempotency-key': 'k' };
  return app.send(
    method.toUpperCase(),
    `${pathOf(operation)}?${query.join('&')}`,
    example,
    method === 'get' ? {} : key,
  );
}

/** How many rows of an application each table has. */
async function countRows(appName: string): Promise<object> {
  const client = new Client({ connectionString: app.databaseUrl });
  await client.connect();
  const { rows: tables } = await client.query<{ name: string }>(
    `select quote_ident(c.table_name) as name from information_schema.columns c join information_schema.tables t
     using (table_schema, table_name) where c.column_name = 'app_name' and t.table_type = 'BASE TABLE'
     and c.table_schema = 'public' order by 1`,
  );
  const counts: Record<string, number> = {};
  for (const { name } of tables) {
    const { rows } = await client.query<{ n: number }>(`select count(*)::int n from ${name} where app_name = $1`, [
      appName,
    ]);
    if (rows[0]?.n) counts[name] = rows[0].n;
  }
  await client.end();
  return counts;
}

describe('an application that nobody hosts', () => {
  test('there are operations to try', () => {
    expect([reads.length > 40, changes.length >= 30]).toEqual([true, true]);
  });

  test.each(changes.map((each) => [each.operationId, each] as const))('%s is refused', async (_id, operation) => {
    const { status, body } = await send(operation);
    const detail = 'App not found: nope';
    // Doors have forms of their own.
    const inItsForm = expect.objectContaining({ error: expect.objectContaining({ message: detail }) });
    expect([status, body]).toEqual([404, operation.toRefusal ? inItsForm : { detail }]);
  });

  test('and nothing is stored', async () => {
    expect(await countRows('nope')).toEqual({});
  });

  test.each(reads.map((each) => [each.operationId, each] as const))('%s answers', async (_id, operation) => {
    const { status, body } = await send(operation);
    const documented = [200, ...Object.keys({ ...operation.errors, ...operation.bare }).map(Number)];
    expect([status, documented.includes(status)]).toEqual([status, true]);
    const detail = expect.stringMatching(/not found|No such/i);
    // Doors have forms of their own.
    const refusal = operation.toRefusal ? { error: expect.objectContaining({ message: detail }) } : { detail };
    if (status >= 400) expect(body).toEqual(refusal);
  });

  test('its sessions are none, as the specification has it', async () => {
    const { status, body } = await app.get('/apps/nope/users/u/sessions');
    expect([status, body]).toEqual([200, []]);
  });
});

test('what a former application left can be read, exported, held, stopped and deleted', async () => {
  agents.set('former', agents.get('harness_agent') as HostedAgent);
  const user = '/apps/former/users/u';
  const run = { appName: 'former', userId: 'u', sessionId: 's', newMessage: { role: 'user', parts: [{ text: 'x' }] } };
  await app.post(`${user}/sessions/s`, {});
  expect((await app.post('/run', run)).status).toBe(200);
  await app.post(`${user}/sessions/s/artifacts`, { filename: 'f', artifact: { text: 'x' } });
  const { events } = (await app.get(`${user}/sessions/s`)).body as { events: { invocationId: string }[] };
  agents.delete('former');
  expect(await app.post('/run', run)).toMatchObject({ status: 404, body: { detail: 'App not found: former' } });
  expect((await app.get(`${user}/sessions`)).body).toMatchObject([{ id: 's' }]);
  expect((await app.get(`${user}/sessions/s`)).body).toMatchObject({ events: [{}, {}] });
  expect((await app.get(`${user}/sessions/s/artifacts/f`)).body).toEqual({ text: 'x' });
  expect((await app.get(`${user}/export`)).text).toContain('"former"');
  expect((await app.post(`${user}/sessions/s/invocations/${events[0]?.invocationId}/cancel`)).status).toBe(200);
  expect((await app.send('PUT', `${user}/hold`, { reason: 'r' })).status).toBe(200);
  expect((await app.send('DELETE', `${user}/hold`)).status).toBe(200);
  expect((await app.send('DELETE', `${user}/sessions/s`)).status).toBe(200);
  expect((await app.send('DELETE', user)).status).toBe(200);
  expect(await countRows('former')).not.toHaveProperty('sessions');
});
