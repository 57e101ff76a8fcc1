import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { DOOR_NAMES } from '../../src/process/config.ts';
import { A2A_ACTIONS, MCP_ACTIONS } from '../../src/features/doors/actions.ts';
import { toHandle } from '../../src/features/doors/handle.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import type { Operation } from '../../src/platform/http/operation/operation.ts';
import { listRoutes } from '../../src/platform/http/operation/paths.ts';
import { listAllOperations } from '../../src/process/app.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { gatedAgents } from '../support/agents.ts';
import { insertOthers, makeOneOfEach } from './support/fixture.ts';
import { type Names, toRequest } from './support/requests.ts';

/**
 * Over all operations: what a credential that may only invoke is shown of what was said before, and what a browser or a
 * cache keeps of an answer that depends on a credential.
 */

const CANARY = 'canary-7c1e5b';
const SCOPES = ['invoke', 'read', 'write', 'admin', 'override', 'import', 'develop'] as const;
const file = join(mkdtempSync(join(tmpdir(), 'agent-runtime-reads-')), 'keys');
const service = createKey({ id: 'service', scopes: SCOPES });
const invoker = createKey({ id: 'invoker', scopes: ['invoke'] });
const bearer = ({ key }: { key: string }) => ({ authorization: `Bearer ${key}` });
const operations = listAllOperations() as Operation<unknown>[];
const settings = {
  CRONJOBS: 'true',
  WEBHOOKS: 'true',
  EVALS: 'true',
  DOORS: DOOR_NAMES.join(','),
  RUNTIME_API_KEYS_FILE: file,
};

let app: TestApp;
let names: Names;
beforeAll(async () => {
  writeFileSync(file, [service, invoker].map(({ entry }) => entry).join('\n'));
  app = await startApp(settings);
  names = await makeOneOfEach(app, 'alice', bearer(service));
  const session = `/apps/harness_agent/users/alice/sessions/${names.sessionId}`;
  await app.send('PATCH', session, { stateDelta: { secret: `${CANARY}-state` } }, bearer(service));
  const said = [
    { author: 'user', content: { role: 'user', parts: [{ text: `${CANARY}-asked` }] } },
    { author: 'harness_agent', content: { role: 'model', parts: [{ text: `${CANARY}-answered` }] } },
  ];
  // Of the invocation that requests are about, and so of its task, its response and its run.
  for (const event of said)
    await app.send('POST', `${session}/events`, { ...event, invocationId: names.invocationId }, bearer(service));
  await insertOthers(app.databaseUrl, names);
});
afterAll(() => app.close());

async function ask(method: string, path: string, headers: Record<string, string>, body?: string) {
  const response = await fetch(`${app.url}${path}`, {
    method,
    headers,
    redirect: 'manual',
    ...(body !== undefined && { body }),
  });
  const lasts = response.headers.get('content-type')?.startsWith('text/event-stream') && method === 'GET';
  if (lasts) await response.body?.cancel();
  return { status: response.status, headers: response.headers, text: lasts ? '' : await response.text() };
}

test('without the scope to read nothing that was said before comes back, nor the state', async () => {
  const shown: unknown[] = [];
  let served = 0;
  for (const { operation, path } of listRoutes(operations)) {
    if (operation.scope !== 'invoke' || operation.success?.status === 101) continue;
    const { method, url, headers, body } = toRequest(operation, path, names);
    const answer = await ask(method, url, { ...headers, ...bearer(invoker) }, body);
    if (answer.status < 300) served += 1;
    if (answer.text.includes(CANARY)) shown.push([operation.operationId, answer.text.slice(0, 400)]);
  }
  expect(shown).toEqual([]);
  expect(served).toBeGreaterThan(12);
});

test('nor by any method of a door that has many', async () => {
  const id = toHandle({ key: names, invocationId: names.invocationId });
  const message = { messageId: 'm-walk', role: 'ROLE_USER', contextId: names.sessionId, parts: [{ text: 'Hello' }] };
  const json = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...bearer(invoker),
  };
  const rpc = (method: string, params: object) => JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
  const version = '2026-07-28';
  const capabilities = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': version,
    'io.modelcontextprotocol/clientInfo': { name: 't', version: '1' },
    'io.modelcontextprotocol/clientCapabilities': capabilities,
  };
  const call = { name: 'harness_agent', arguments: { prompt: 'Hello', session: names.sessionId } };
  const requests = [
    ...Object.keys(A2A_ACTIONS).map((method) => {
      const about = { id, taskId: id, message, url: 'https://example.com/x', includeArtifacts: true, historyLength: 9 };
      const headers = { ...json, 'a2a-version': '1.0' };
      return [method, '/a2a/harness_agent?user_id=alice', headers, rpc(method, about)] as const;
    }),
    ...Object.keys(MCP_ACTIONS).map((method) => {
      const headers = { ...json, 'mcp-protocol-version': version, 'mcp-method': method, 'mcp-name': 'harness_agent' };
      return [
        method,
        '/mcp?user_id=alice',
        headers,
        rpc(method, { ...call, taskId: id, uri: 'x://y', _meta }),
      ] as const;
    }),
  ];
  const shown: unknown[] = [];
  for (const [method, path, headers, body] of requests) {
    const answer = await ask('POST', path, headers, body);
    if (answer.text.includes(CANARY)) shown.push([method, answer.text.slice(0, 400)]);
  }
  expect(shown).toEqual([]);
});

test('no answer that depends on a credential is kept for another one', async () => {
  const kept: unknown[] = [];
  let served = 0;
  for (const { operation, path } of listRoutes(operations)) {
    if (operation.method !== 'get' || operation.owner === 'open' || operation.success?.status === 101) continue;
    const { url, headers } = toRequest(operation, path, names);
    const answer = await ask('GET', url, { ...headers, ...bearer(service) });
    if (answer.status < 300) served += 1;
    const control = (answer.headers.get('cache-control') ?? '').split(/,\s*/);
    const varies = answer.headers.get('vary')?.split(/,\s*/).includes('Authorization') === true;
    // What is compared each time is still another's: it says by which header.
    const isAsked = control.includes('private') && control.includes('no-cache') && varies;
    if (!control.includes('no-store') && !isAsked) kept.push([operation.operationId, control.join(), varies]);
  }
  expect(kept).toEqual([]);
  expect(served).toBeGreaterThan(60);
});

test('what waits ends with its key: it is refused, and nothing begins in its name', async () => {
  const gate = gatedAgents();
  const gone = createKey({ id: 'gone', scopes: SCOPES });
  writeFileSync(file, [service, invoker, gone].map(({ entry }) => entry).join('\n'));
  const gated = await startApp(settings, { agents: gate.agents });
  onTestFinished(() => gated.close());
  const session = '/apps/harness_agent/users/alice/sessions';
  for (const sessionId of ['quiet', 'busy', 'own']) await gated.post(session, { sessionId }, bearer(service));
  const newMessage = { role: 'user', parts: [{ text: 'Hello' }] };
  const run = (sessionId: string, key: { key: string }) =>
    gated.post('/run', { appName: 'harness_agent', userId: 'alice', sessionId, newMessage }, bearer(key));
  const first = run('busy', service);
  await gate.entered(1);
  const message = { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'Hello' }] };
  const a2a = { ...bearer(gone), 'a2a-version': '1.0' };
  const stream = '/durable-streams/harness_agent/sessions/quiet?user_id=alice&offset=now&live=long-poll';
  const json = { 'content-type': 'application/json' };
  const waiting = {
    'a long poll': gated.get(stream, bearer(gone)),
    'a run': run('own', gone),
    'a place in the queue': run('busy', gone),
    'a message that waits for its task': gated.post(
      '/a2a/harness_agent/message:send?user_id=alice',
      { message },
      { ...json, ...a2a },
    ),
    'a response': gated.post('/v1/responses?user_id=alice', { model: 'harness_agent', input: 'Hello' }, bearer(gone)),
    'a completion': gated.post(
      '/v1/chat/completions?user_id=alice',
      { model: 'harness_agent', messages: [{ role: 'user', content: 'Hello' }] },
      bearer(gone),
    ),
  };
  await gate.entered(5);
  writeFileSync(file, [service, invoker].map(({ entry }) => entry).join('\n'));
  const answers = await Promise.all(
    Object.entries(waiting).map(async ([what, answer]) => [what, (await answer).status]),
  );
  expect(answers).toEqual(Object.keys(waiting).map((what) => [what, 401]));
  gate.open();
  expect((await first).status).toBe(200);
  const { body } = await gated.get(`${session}/busy/events`, bearer(service));
  expect((body as { author: string }[]).filter(({ author }) => author === 'user')).toHaveLength(1);
});
