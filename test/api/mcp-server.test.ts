import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { expect, test } from 'vitest';
import { tool } from '../support/agent-fixtures.ts';
import { startOn } from '../support/app.ts';
import { stageDoor } from '../support/door-stage.ts';
import { connect, rpc } from '../support/mcp-client.ts';
import { callPart } from '../support/scripted-model.ts';
import { startTokenIssuer } from '../support/token-issuer.ts';

/** The official clients of both eras of MCP, against two replicas of the service. */

const note = tool('note', async (_args, { actions, services }) => {
  actions.artifactDelta = { 'note.txt': await services.saveArtifact('note.txt', { text: 'Hi' }) };
  return { noted: true };
});
const script = { note: [{ text: 'I note it.' }, callPart('note')] };
const { app, other, agents, spoken, paid } = stageDoor('mcp', { tools: [note], script });
const skill = { name: 'invoices', description: 'How to write an invoice.', body: 'Number them.', directory: '/none' };
for (const agent of agents.values()) agent.listSkills = () => Promise.resolve([skill]);

const APP = 'harness_agent';
const url = (at = app.url) => `${at}/mcp`;
const call = (prompt: string, more: object = {}) => ({ name: APP, arguments: { prompt, ...more } });
const sessions = async (user = 'user') =>
  ((await app.get(`/apps/${APP}/users/${user}/sessions`)).body as { id: string }[]).map(({ id }) => id);
const statusOf = async (session: string, invocation: string) =>
  ((await app.get(`/apps/${APP}/users/user/sessions/${session}/invocations/${invocation}`)).body as { status: string })
    .status;
interface Structured {
  session: string;
  invocation: string;
  status: string;
  text: string;
}
const structured = (result: { structuredContent?: unknown } | undefined) => result?.structuredContent as Structured;
const startTask = async (prompt: string, at = app.url) => {
  const { result } = await rpc(url(at), 'tools/call', call(prompt));
  expect(result).toMatchObject({ resultType: 'task', ttlMs: null });
  return result?.['taskId'] as string;
};
const getTask = async (taskId: string, at = other.url) => (await rpc(url(at), 'tasks/get', { taskId })).result;
const settled = async (taskId: string, status: string, at = other.url) => {
  await expect.poll(async () => (await getTask(taskId, at))?.['status']).toBe(status);
  return (await getTask(taskId, at)) as Record<string, never>;
};

test.each(['legacy', 'modern'] as const)('%s: an agent is a tool, and its session goes on by name', async (era) => {
  const client = await connect(url(), era);
  const { tools: listed } = await client.listTools();
  expect(listed.map(({ name }) => name)).toEqual([APP]);
  expect(listed[0]?.inputSchema).toMatchObject({ required: ['prompt'] });
  const first = await client.callTool(call('hello'));
  expect(first).toMatchObject({ content: [{ type: 'text', text: 'You said hello' }] });
  const { session, status, text } = structured(first);
  expect([status, text]).toEqual(['succeeded', 'You said hello']);
  const there = await connect(`${other.url}/mcp/${APP}`, era);
  expect(structured(await there.callTool(call('again', { session }))).session).toBe(session);
  const { body } = await app.get(`/apps/${APP}/users/user/sessions/${session}`);
  expect((body as { events: unknown[] }).events).toHaveLength(4);
  await client.close();
  await there.close();
});

test('a client of the package before calls it too', async () => {
  const client = new OldClient({ name: 'old', version: '1' });
  await client.connect(new OldTransport(new URL(url())));
  expect(await client.callTool(call('hello'))).toMatchObject({ content: [{ type: 'text', text: 'You said hello' }] });
  await client.close();
});

test.each(['legacy', 'modern'] as const)('%s: an agent that fails says so to the model that called it', async (era) => {
  const client = await connect(url(), era);
  const failed = await client.callTool(call('fail'));
  expect(failed).toMatchObject({ isError: true, structuredContent: { status: 'failed' } });
  for (const wrong of [{}, { prompt: 5 }, { prompt: 'x', session: 5 }, { prompt: 'x', more: 1 }, { prompt: '' }]) {
    const refused = await client.callTool({ name: APP, arguments: wrong });
    expect(refused).toMatchObject({
      isError: true,
      content: [{ text: expect.stringMatching(/prompt|session|more/) as string }],
    });
  }
  await expect(client.callTool({ name: 'nobody', arguments: {} })).rejects.toMatchObject({ code: -32602 });
  await client.close();
});

test.each(['legacy', 'modern'] as const)('%s: progress rises with the events', async (era) => {
  const client = await connect(url(), era);
  const seen: number[] = [];
  await client.callTool(call('note'), { onprogress: ({ progress }) => void seen.push(progress) });
  expect(seen.length).toBeGreaterThan(2);
  expect(seen).toEqual([...new Set(seen)].toSorted((a, b) => a - b));
  await client.close();
});

test.each(['legacy', 'modern'] as const)('%s: artifacts are resources, skills are prompts', async (era) => {
  const client = await connect(url(), era);
  const result = await client.callTool(call('note'));
  const link = (result.content as { type: string; uri: string }[]).find(({ type }) => type === 'resource_link');
  const { resources } = await client.listResources();
  const { session } = structured(result);
  const uri = `artifact://${APP}/${session}/note.txt`;
  expect(resources.map((resource) => resource.uri)).toContain(uri);
  expect(link?.uri).toBe(`${uri}?version=0`);
  for (const each of [uri, `${uri}?version=0`])
    expect((await client.readResource({ uri: each })).contents).toEqual([
      { uri: each, mimeType: 'text/plain', text: 'Hi' },
    ]);
  expect((await client.listResourceTemplates()).resourceTemplates).toHaveLength(1);
  for (const absent of [
    `${uri}?version=7`,
    `artifact://${APP}/none/x`,
    'artifact://nobody/s/x',
    'file:///etc/passwd',
    'artifact://%E0/s/x',
  ])
    await expect(client.readResource({ uri: absent })).rejects.toMatchObject({ code: -32602 });
  const { prompts } = await client.listPrompts();
  expect(prompts).toMatchObject([{ name: `${APP}/invoices`, description: skill.description }]);
  const { messages } = await client.getPrompt({ name: `${APP}/invoices` });
  expect(messages).toEqual([{ role: 'user', content: { type: 'text', text: 'Number them.' } }]);
  await expect(client.getPrompt({ name: `${APP}/none` })).rejects.toMatchObject({ code: -32602 });
  await client.close();
});

test('resources come in pages', async () => {
  const { session } = structured(await (await connect(url(), 'legacy')).callTool(call('hello')));
  for (let n = 0; n < 101; n += 1)
    await app.post(`/apps/${APP}/users/user/sessions/${session}/artifacts`, {
      filename: `page/${String(n).padStart(3, '0')}`,
      artifact: { text: 'x' },
    });
  const client = await connect(url(), 'modern');
  const first = await rpc(url(), 'resources/list');
  const second = await rpc(url(), 'resources/list', { cursor: first.result?.['nextCursor'] });
  const uris = [first, second].flatMap(({ result }) =>
    ((result?.['resources'] ?? []) as { uri: string }[]).map(({ uri }) => uri),
  );
  expect(first.result?.['resources']).toHaveLength(100);
  expect(uris.filter((uri) => uri.includes(session))).toHaveLength(101);
  expect(new Set(uris).size).toBe(uris.length);
  expect((await rpc(url(), 'resources/list', { cursor: 'x' })).error?.code).toBe(-32602);
  await client.close();
});

test('who can be asked confirms a call, and what was decided happens once', async () => {
  const answers: [object, number, string][] = [
    [{ action: 'accept', content: { confirmed: true } }, 1, 'Got [{"paid":true}]'],
    [{ action: 'accept', content: { confirmed: false } }, 0, 'Got [{"error":"This tool call is rejected."}]'],
    [{ action: 'decline' }, 0, 'Got [{"error":"This tool call is rejected."}]'],
  ];
  for (const [answer, times, text] of answers) {
    paid.mockClear();
    const client = await connect(url(), 'modern', { elicitation: {} });
    const asked: { message: string }[] = [];
    client.setRequestHandler('elicitation/create', ({ params }) => {
      asked.push(params);
      return answer as never;
    });
    const result = await client.callTool(call('pay'));
    expect([structured(result).text, paid.mock.calls.length, asked.length]).toEqual([text, times, 1]);
    expect(asked[0]?.message).toContain('pay');
    await client.close();
  }
});

test('a call that nobody can be asked about stays open, and the answer says where', async () => {
  for (const era of ['legacy', 'modern'] as const) {
    const client = await connect(url(), era);
    const result = await client.callTool(call('pay'));
    expect(structured(result)).toMatchObject({ status: 'paused', text: expect.stringContaining('pay') as string });
    await client.close();
  }
  expect(paid).not.toHaveBeenCalled();
});

test('the state of a retry is only a name: of another app, user or moment it asks again or is refused', async () => {
  const plain = { capabilities: { elicitation: {} } };
  const { result } = await rpc(url(), 'tools/call', call('pay twice'), plain);
  expect(result?.['resultType']).toBe('input_required');
  const requestState = result?.['requestState'] as string;
  const keys = Object.keys(result?.['inputRequests'] as object);
  expect(keys).toHaveLength(2);
  const yes = { action: 'accept', content: { confirmed: true } };
  const half = await rpc(
    url(),
    'tools/call',
    { ...call('pay twice'), requestState, inputResponses: { [keys[0] ?? '']: yes } },
    plain,
  );
  expect(half.result?.['resultType']).toBe('input_required');
  const inputResponses = Object.fromEntries(keys.map((key) => [key, yes]));
  for (const state of ['x', '', Buffer.from('a').toString('base64url'), `${requestState}x`]) {
    const refused = await rpc(
      url(),
      'tools/call',
      { ...call('pay twice'), requestState: state, inputResponses },
      plain,
    );
    expect([state, refused.error?.code]).toEqual([state, -32602]);
  }
  const foreign = await rpc(
    `${url()}?user_id=mallory`,
    'tools/call',
    { ...call('x'), requestState, inputResponses },
    plain,
  );
  expect(foreign.error?.code).toBe(-32602);
  expect(paid).not.toHaveBeenCalled();
  const retry = { ...call('pay twice'), requestState, inputResponses };
  const done = await rpc(url(other.url), 'tools/call', retry, plain);
  expect(done.result).toMatchObject({ structuredContent: { status: 'succeeded' } });
  const again = await rpc(url(), 'tools/call', retry, plain);
  expect(again.result?.['structuredContent']).toEqual(done.result?.['structuredContent']);
  expect(paid).toHaveBeenCalledTimes(2);
});

test('a client of tasks gets one that any replica answers', async () => {
  const taskId = await startTask('speak');
  expect(await getTask(taskId)).toMatchObject({ resultType: 'complete', taskId, status: 'working' });
  const said = await spoken.called(1);
  await said.say('Once upon a time');
  said.end();
  const task = await settled(taskId, 'completed');
  expect(task).toMatchObject({ result: { content: [{ type: 'text', text: 'Once upon a time' }] } });
  const failed = await settled(await startTask('fail'), 'completed');
  expect(failed).toMatchObject({ result: { isError: true } });
});

test('a task waits for its person, and is answered on another replica', async () => {
  const taskId = await startTask('pay');
  const waiting = await settled(taskId, 'input_required');
  const [key = ''] = Object.keys(waiting['inputRequests'] ?? {});
  expect(waiting).toMatchObject({ inputRequests: { [key]: { method: 'elicitation/create' } } });
  const none = await rpc(url(other.url), 'tasks/update', { taskId, inputResponses: { unknown: { action: 'accept' } } });
  expect(none.error?.code).toBe(-32602);
  const inputResponses = { [key]: { action: 'accept', content: { confirmed: true } } };
  expect((await rpc(url(other.url), 'tasks/update', { taskId, inputResponses })).error).toBeUndefined();
  expect((await settled(taskId, 'completed', app.url))['result']).toMatchObject({
    structuredContent: { text: 'Got [{"paid":true}]' },
  });
  // What comes late is acknowledged, and nothing happens.
  expect((await rpc(url(), 'tasks/update', { taskId, inputResponses })).error).toBeUndefined();
  expect(paid).toHaveBeenCalledOnce();
  const question = await startTask('ask');
  const asked = await settled(question, 'input_required');
  const [id = ''] = Object.keys(asked['inputRequests'] ?? {});
  await rpc(url(), 'tasks/update', {
    taskId: question,
    inputResponses: { [id]: { action: 'accept', content: { answer: 'Oslo' } } },
  });
  expect((await settled(question, 'completed'))['result']).toMatchObject({
    structuredContent: { text: 'Got [{"result":"Oslo"}]' },
  });
});

test('a task is cancelled on another replica; a closed stream leaves it alone', async () => {
  const taskId = await startTask('speak');
  await spoken.called(1);
  expect((await rpc(url(other.url), 'tasks/cancel', { taskId })).error).toBeUndefined();
  await settled(taskId, 'cancelled');
  expect((await rpc(url(), 'tasks/cancel', { taskId })).error).toBeUndefined();
});

test('who leaves a plain call of 2026 cancels what it began, and nothing else', async () => {
  const leave = new AbortController();
  const key = { 'idempotency-key': 'leave-1' };
  const plain = { capabilities: {}, headers: key };
  const first = rpc(url(), 'tools/call', call('speak one'), plain);
  const said = await spoken.called(1);
  // The same request again is attached to the first; that it leaves stops nothing.
  const second = rpc(url(other.url), 'tools/call', call('speak one'), { ...plain, signal: leave.signal });
  await expect.poll(async () => (await sessions()).length).toBeGreaterThan(0);
  leave.abort();
  await expect(second).rejects.toThrow(/abort/);
  await said.say('All of it.');
  said.end();
  expect((await first).result).toMatchObject({ structuredContent: { text: 'All of it.', status: 'succeeded' } });
  const before = new Set(await sessions());
  const gone = new AbortController();
  const third = rpc(url(), 'tools/call', call('speak two'), { capabilities: {}, signal: gone.signal });
  await spoken.called(2);
  gone.abort();
  await expect(third).rejects.toThrow(/abort/);
  const [session = ''] = (await sessions()).filter((id) => !before.has(id));
  const [{ id }] = (await app.get(`/apps/${APP}/users/user/sessions/${session}/invocations`)).body as [{ id: string }];
  await expect.poll(() => statusOf(session, id)).toBe('cancelled');
});

test('a call whose session is deleted says so', async () => {
  const before = new Set(await sessions());
  const result = rpc(url(), 'tools/call', call('speak'), { capabilities: {} });
  await spoken.called(1);
  const [session = ''] = (await sessions()).filter((id) => !before.has(id));
  await app.send('DELETE', `/apps/${APP}/users/user/sessions/${session}`);
  expect((await result).result).toMatchObject({
    isError: true,
    content: [{ text: expect.stringMatching(`^Session ${session} was deleted, and with it invocation e-`) as string }],
  });
});

test('the same key gives the same answer, in a header or in `_meta`', async () => {
  const meta = { _meta: { 'agent-runtime/idempotency-key': 'meta-1' } };
  const plain = { capabilities: {} };
  const first = await rpc(url(), 'tools/call', { ...call('hello'), ...meta }, plain);
  const second = await rpc(url(other.url), 'tools/call', { ...call('hello'), ...meta }, plain);
  expect(second.result?.['structuredContent']).toEqual(first.result?.['structuredContent']);
  const reused = await rpc(url(), 'tools/call', { ...call('other'), ...meta }, plain);
  expect(reused.result).toMatchObject({
    isError: true,
    content: [{ text: expect.stringContaining('Idempotency-Key') as string }],
  });
});

test('sessions and tasks of another user are absent', async () => {
  const mallory = `${url()}?user_id=mallory`;
  const taskId = await startTask('hello');
  const { session } = structured((await settled(taskId, 'completed'))['result']);
  for (const method of ['tasks/get', 'tasks/cancel', 'tasks/update']) {
    const [foreign, unknown] = [
      await rpc(mallory, method, { taskId, inputResponses: {} }),
      await rpc(url(), method, { taskId: 'unknown', inputResponses: {} }),
    ];
    expect([foreign.error?.code, unknown.error?.code]).toEqual([-32602, -32602]);
  }
  for (const [at, id] of [
    [mallory, session],
    [url(), 'none'],
  ] as const) {
    const { result } = await rpc(at, 'tools/call', call('x', { session: id }));
    expect(result).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining(`Session not found: ${id}`) as string }],
    });
  }
  const { result } = await rpc(mallory, 'resources/list');
  expect(result?.['resources']).toEqual([]);
  expect(await sessions('mallory')).toEqual([]);
  const undeclared = await rpc(url(), 'tasks/get', { taskId }, { capabilities: {} });
  expect([undeclared.status, undeclared.error?.code]).toEqual([400, -32021]);
});

const accept = { accept: 'application/json, text/event-stream' };
test.each([
  ['no JSON', '{', 400, -32700],
  ['too deep', '['.repeat(10_000), 400, -32700],
  ['a member twice', '{"jsonrpc":"2.0","jsonrpc":"2.0"}', 400, -32700],
  ['a batch', '[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600],
  ['no message', '{"a":1}', 400, -32600],
  ['a number', '5', 400, -32600],
])('%s is refused as the protocol says', async (_name, body, status, code) => {
  const answer = await app.post('/mcp', body, accept);
  expect([answer.status, (answer.body as { error: { code: number; message: string } }).error.code]).toEqual([
    status,
    code,
  ]);
});

test('what is not there is said in the words of HTTP', async () => {
  for (const method of ['GET', 'DELETE', 'PUT']) expect((await app.send(method, '/mcp')).status).toBe(405);
  expect((await app.post('/mcp/nobody', { jsonrpc: '2.0', id: 1, method: 'ping' }, accept)).status).toBe(404);
  const ping = { jsonrpc: '2.0', id: 1, method: 'ping' };
  expect((await app.post('/mcp', ping, { accept: 'application/json' })).status).toBe(406);
  expect((await app.post('/mcp', ping, { 'content-type': 'text/plain', 'x-requested-with': 'x' })).status).toBe(415);
  expect(
    (await app.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'ping' }, { ...accept, origin: 'https://evil.example' }))
      .status,
  ).toBe(403);
  expect((await rpc(url(), 'tasks/list')).error?.code).toBe(-32601);
  expect((await app.get('/.well-known/oauth-protected-resource/mcp')).status).toBe(404);
});

test('a client without a token is told where the issuer is, and what scope it lacks', async () => {
  const issuer = await startTokenIssuer();
  const shared = await startOn(app.databaseUrl, { DOORS: 'mcp', DEV_UI: 'false', ...issuer.environment }, { agents });
  try {
    const metadataUrl = `${shared.url}/.well-known/oauth-protected-resource/mcp`;
    const unknown = await rpc(url(shared.url), 'tools/list').catch((error: unknown) => error as never);
    expect([unknown.status, unknown.headers.get('www-authenticate')]).toEqual([
      401,
      `Bearer resource_metadata="${metadataUrl}"`,
    ]);
    const metadata = {
      resource: `${shared.url}/mcp`,
      authorization_servers: [issuer.issuer.url],
      bearer_methods_supported: ['header'],
      scopes_supported: ['invoke', 'read'],
    };
    for (const at of [metadataUrl, `${shared.url}/.well-known/oauth-protected-resource`])
      expect(await (await fetch(at)).json()).toEqual(metadata);
    const issuers = ['https://a.example', 'https://b.example'].map((name) => ({
      issuer: name,
      audience: 'https://agents.example/mcp',
      userPrefix: name,
    }));
    const keys = { RUNTIME_API_KEYS: 'a-runtime-key-of-32-characters-x' };
    const several = { DOORS: 'mcp', DEV_UI: 'false', ...keys, JWT_ISSUERS: JSON.stringify(issuers) };
    const both = await startOn(app.databaseUrl, several, { agents });
    expect(await (await fetch(`${both.url}/.well-known/oauth-protected-resource/mcp`)).json()).toEqual({
      resource: 'https://agents.example/mcp',
      authorization_servers: ['https://a.example', 'https://b.example'],
      bearer_methods_supported: ['header'],
    });
    await both.close();
    const reader = await rpc(
      `${url(shared.url)}/${APP}`,
      'tools/list',
      {},
      {
        headers: await issuer.headersOf('ann', { scopes: 'read' }),
      },
    );
    expect([reader.status, reader.headers.get('www-authenticate')]).toEqual([
      403,
      `Bearer error="insufficient_scope", scope="invoke", resource_metadata="${metadataUrl}"`,
    ]);
    const headers = await issuer.headersOf('ann', { scopes: 'invoke' });
    expect((await rpc(url(shared.url), 'resources/list', {}, { headers })).status).toBe(403);
    const client = await connect(url(shared.url), 'modern', {}, { headers });
    const { session } = structured(await client.callTool(call('hello')));
    expect(await sessions('ann')).toContain(session);
    await client.close();
    const foreign = await rpc(`${url(shared.url)}?user_id=bob`, 'tools/list', {}, { headers });
    expect(foreign.status).toBe(404);
  } finally {
    await shared.close();
    await issuer.close();
  }
});
