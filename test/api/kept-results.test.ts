import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ModelRequest } from '../../src/agent/definition/model.ts';
import { agentTool } from '../../src/agent/loop/agent-tree.ts';
import type { AgentDefinition } from '../../src/agent/definition/agent.ts';
import { saveArtifact } from '../../src/agent/tools/artifacts.ts';
import { openApiTools } from '../../src/agent/tools/openapi.ts';
import { webFetch } from '../../src/agent/tools/web-fetch.ts';
import { readConfig } from '../../src/process/config.ts';
import { removeLeftResults } from '../../src/conversation/artifacts/artifacts.ts';
import { openContentStore } from '../../src/conversation/artifacts/s3-content.ts';
import { getFunctionResponses, type JsonObject, type Part } from '../../src/core/content.ts';
import { createKey } from '../../src/platform/http/access/key-ring.ts';
import { agent, tool } from '../support/agent-fixtures.ts';
import { hostAgent } from '../support/agents.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { openPool } from '../support/store.ts';
import { type FakeMcp, startMcpServer } from '../support/mcp-server.ts';
import { s3Environment, startS3 } from '../support/s3-server.ts';
import { callPart, scriptedModel, type ScriptedAnswer } from '../support/scripted-model.ts';

/** Function responses above a bound are artifacts of the session, which the model reads in pieces by a handle. */

const text = (words: string): Part[] => [{ text: words }];
const closing: (() => Promise<unknown>)[] = [];
let site: Server;
let siteUrl: string;
let server: FakeMcp;
const page = Array.from({ length: 9_000 }, (_, line) => `<p>Line ${line} of the page.</p>`).join('\n');
beforeAll(async () => {
  site = createServer((request, response) => {
    const isEndless = request.url === '/endless';
    response.setHeader('content-type', request.url === '/page' ? 'text/html' : 'application/json');
    if (!isEndless) return void response.end(request.url === '/page' ? page : JSON.stringify({ rows: rows(9_000) }));
    const piece = Buffer.alloc(65_536, 32);
    const more = (): void => {
      while (!response.destroyed && response.write(piece));
    };
    response.on('drain', more);
    return more();
  });
  await new Promise<void>((resolve) => site.listen(0, '127.0.0.1', resolve));
  siteUrl = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  server = await startMcpServer([
    { name: 'table', call: () => ({ content: [{ type: 'text', text: JSON.stringify(rows(9_000), null, 1) }] }) },
  ]);
});
afterAll(async () => {
  for (const close of closing) await close();
  site.closeAllConnections();
  site.close();
  await server.close();
});

const rows = (count: number) => Array.from({ length: count }, (_, id) => ({ id, name: `row ${id}` }));

async function start(
  script: ScriptedAnswer[],
  tools: ReturnType<typeof tool>[],
  more: Partial<AgentDefinition> = {},
  settings: Record<string, string> = {},
) {
  const model = scriptedModel(script);
  const app = await startApp(settings, { agents: hostAgent(model, tools, more) });
  closing.push(() => app.close());
  return { app, model };
}

const ask = async (app: TestApp, sessionId = 's', userId = 'u') => {
  await app.post(`/apps/harness_agent/users/${userId}/sessions`, { sessionId });
  const newMessage = { role: 'user', parts: [{ text: 'Go.' }] };
  return app.post('/run', { appName: 'harness_agent', userId, sessionId, newMessage });
};
const lastResponses = ({ contents }: ModelRequest) =>
  getFunctionResponses(contents.at(-1)).map(({ response }) => response as JsonObject);
const artifactsOf = async (app: TestApp, sessionId = 's', userId = 'u') =>
  (await app.get(`/apps/harness_agent/users/${userId}/sessions/${sessionId}/artifacts`)).body as string[];
const read = (args: JsonObject, id?: string) => callPart('read_result', args, id);

test('a result of ten megabytes is kept byte for byte, and read in pieces', async () => {
  const line = (place: number) => `${place}: é "quoted" \u0000 line of the log`;
  const whole = Array.from({ length: 260_000 }, (_, place) => line(place)).join('\n');
  const starts = Array.from({ length: 50 }, (_, n) => Math.floor((n * whole.length) / 50));
  const reads = (from: number) =>
    starts.slice(from, from + 25).map((offset) => read({ handle: 'c1', offset, length: 19_000 }));
  const { app, model } = await start(
    [[callPart('log', {}, 'c1')], reads(0), reads(25), text('read')],
    [tool('log', async () => whole)],
  );
  expect((await ask(app)).status).toBe(200);
  const pieces = [2, 3].flatMap((place) => lastResponses(model.requests[place] as ModelRequest));
  for (const [place, offset] of starts.entries())
    expect(pieces[place]?.['text'] === whole.slice(offset, offset + 19_000)).toBe(true);
  const artifact = await app.get('/apps/harness_agent/users/u/sessions/s/artifacts/tool-results%2Fc1');
  expect((artifact.body as Part).text === whole).toBe(true);
  const [stub = {}] = lastResponses(model.requests[1] as ModelRequest);
  expect(stub).toMatchObject({ handle: 'c1', characters: whole.length, kind: 'text', head: whole.slice(0, 2_000) });
  expect(model.requests[0]?.tools.map(({ name }) => name)).toEqual(['log']);
  expect(model.requests[1]?.tools.map(({ name }) => name)).toEqual(['log', 'read_result']);
  expect(await artifactsOf(app)).toEqual(['tool-results/c1']);
  const { body } = await app.get('/apps/harness_agent/users/u/sessions/s');
  const { events } = body as { events: { actions: { artifactDelta: object } }[] };
  expect(events[2]?.actions.artifactDelta).toEqual({ 'tool-results/c1': 0 });
  const sql = new Client({ connectionString: app.databaseUrl });
  await sql.connect();
  const together = `select v.xmin = e.xmin as same from artifact_versions v, events e
    where e.payload #> '{actions,artifactDelta}' ? v.artifact_name`;
  expect((await sql.query(together)).rows).toEqual([{ same: true }]);
  await sql.end();
});

test('lines are searched and values of JSON found; what no result has is said', async () => {
  const calls = [
    read({ handle: 'c1', path: 'rows[8999].name' }, 'r1'),
    read({ handle: 'c1', path: 'rows[2:4]' }, 'r2'),
    read({ handle: 'c1', search: 'ROW 8998' }, 'r3'),
    read({ handle: 'c1', path: 'rows[9000]' }, 'r4'),
    read({ handle: 'c1', path: `rows${'[0]'.repeat(40)}` }, 'r5'),
    read({ handle: 'c1', path: 'rows[?(@.id)]' }, 'r6'),
    read({ handle: 'c1', path: 'x'.repeat(501) }, 'r7'),
    read({ handle: 'no' }, 'r8'),
    read({ handle: '../../user:x' }, 'r9'),
    read({ handle: 'c0' }, 'r10'),
  ];
  const { app, model } = await start(
    [[callPart('table', {}, 'c1'), callPart('small', {}, 'c0')], calls, text('done')],
    [tool('table', async () => ({ rows: rows(9_000) })), tool('small', async () => 'little')],
  );
  await ask(app);
  const [name, slice, found, none, deep, filter, long, other, path, small] = lastResponses(
    model.requests[2] as ModelRequest,
  );
  expect(name).toEqual({ characters: 8, kind: 'text', offset: 0, text: 'row 8999' });
  expect(JSON.parse(String(slice?.['text']))).toEqual(rows(4).slice(2));
  expect(found?.['matches']).toHaveLength(1);
  expect(JSON.stringify(found)).toContain('row 8998');
  expect(none?.['error']).toBe('There is nothing at `rows[9000]`.');
  expect(deep?.['error']).toBe('The path has more than 32 steps.');
  expect(filter?.['error']).toMatch(/cannot be read at character 5/);
  expect(long?.['error']).toMatch(/500 characters/);
  for (const each of [other, path])
    expect(each).toEqual({ error: 'There is no result with this handle in this session.' });
  expect(small).toMatchObject({ text: 'little' });
});

test('the handle of another session or user finds nothing', async () => {
  const script: ScriptedAnswer[] = [
    [callPart('table', {}, 'c1')],
    text('kept'),
    [callPart('table', {}, 'c2'), read({ handle: 'c1' }, 'r0')],
    [read({ handle: 'c1' }, 'r1')],
    text('done'),
    [callPart('table', {}, 'c3')],
    [read({ handle: 'c1' }, 'r2')],
    text('done'),
  ];
  const { app, model } = await start(script, [tool('table', async () => rows(9_000))]);
  await ask(app);
  await ask(app, 'other');
  await ask(app, 's', 'another');
  for (const place of [4, 7])
    expect(lastResponses(model.requests[place] as ModelRequest)).toEqual([
      { error: 'There is no result with this handle in this session.' },
    ]);
});

test('results of invocations that were rewound are not read, large or small', async () => {
  const script: ScriptedAnswer[] = [
    [callPart('table', {}, 'c0')],
    text('kept'),
    [callPart('table', {}, 'c1'), callPart('small', {}, 'c2')],
    text('kept'),
    [callPart('table', {}, 'c3')],
    [read({ handle: 'c0', length: 9 }, 'r0'), read({ handle: 'c1' }, 'r1'), read({ handle: 'c2' }, 'r2')],
    text('done'),
  ];
  const tools = [tool('table', async () => 'of rows '.repeat(20_000)), tool('small', async () => 'a secret')];
  const { app, model } = await start(script, tools);
  await ask(app);
  const { body } = await ask(app);
  const [{ invocationId }] = body as [{ invocationId: string }];
  const rewind = await app.post('/apps/harness_agent/users/u/sessions/s/rewind', {
    rewindBeforeInvocationId: invocationId,
  });
  expect(rewind.status).toBe(200);
  await ask(app);
  const none = { error: 'There is no result with this handle in this session.' };
  expect(lastResponses(model.requests.at(-1) as ModelRequest)).toEqual([
    { characters: 160_000, kind: 'text', offset: 0, text: 'of rows o', nextOffset: 9 },
    none,
    none,
  ]);
  await app.send('DELETE', '/apps/harness_agent/users/u/sessions/s');
  expect(await artifactsOf(app)).toEqual([]);
});

test('results in a bucket go with their session, what a user saved in it stays', async () => {
  const s3 = await startS3();
  closing.push(() => s3.close());
  const contentStore = await openContentStore(readConfig(s3Environment(s3)));
  const model = scriptedModel([
    [callPart('table', {}, 'c1')],
    text('kept'),
    [callPart('table', {}, 'c1')],
    text('kept'),
  ]);
  const tools = [tool('table', async () => rows(9_000))];
  const app = await startApp({}, { agents: hostAgent(model, tools), contentStore });
  closing.push(() => app.close());
  await ask(app, 'gone');
  await ask(app, 'stays');
  const gone = '/apps/harness_agent/users/u/sessions/gone';
  await app.post(`${gone}/artifacts`, { filename: 'mine', artifact: { text: 'mine' } });
  expect(s3.objects.size).toBe(3);
  await app.send('DELETE', gone);
  const database = openPool(app.databaseUrl, 2);
  closing.push(() => database.close());
  // The store is away: rows stay, so that the next sweep finds the object.
  s3.fault = 'overloaded';
  await expect(removeLeftResults({ database, contentStore })).rejects.toThrow('The artifact store is not available');
  s3.fault = undefined;
  expect(await artifactsOf(app, 'gone')).toEqual(['mine', 'tool-results/c1']);
  await removeLeftResults({ database, contentStore });
  expect(s3.objects.size).toBe(2);
  expect(await artifactsOf(app, 'gone')).toEqual(['mine']);
  expect(await artifactsOf(app, 'stays')).toEqual(['tool-results/c1']);
});

test('an OpenAPI operation, a web page, an MCP tool and an agent as a tool: all are kept alike', async () => {
  const document = {
    openapi: '3.1.0',
    info: { title: 'Rows', version: '1' },
    servers: [{ url: siteUrl }],
    paths: { '/rows': { get: { operationId: 'list_rows' } }, '/endless': { get: { operationId: 'endless' } } },
  };
  const egress = { allowLoopback: true };
  const inner = agent({ name: 'teller', model: scriptedModel([text('word '.repeat(30_000))]) });
  const reader = agent({
    name: 'reader',
    tools: [tool('log', async () => 'of the inner tool '.repeat(9_000))],
    model: scriptedModel([
      [callPart('log', {}, 'c1')],
      ({ contents }) => [
        read({ handle: String(getFunctionResponses(contents.at(-1))[0]?.response?.['handle']), length: 12 }),
      ],
      (request) => text(`It says ${JSON.stringify(lastResponses(request)[0])}`),
    ]),
  });
  const answer = hostAgent(scriptedModel([text('z'.repeat(350_000))]));
  const back = await startApp({ DOORS: 'a2a' }, { agents: answer });
  closing.push(() => back.close());
  const remote = { url: `${back.url}/a2a/harness_agent` };
  const own = { description: '', instruction: '', tools: [], skills: [], mcpServers: [] };
  const elsewhere = { name: 'elsewhere', ...own, remote, asTool: true };
  const tools = [
    ...openApiTools({ name: 'rows', document, operations: ['list_rows', 'endless'] }, document, { egress }),
    webFetch(egress),
    agentTool(inner),
    agentTool(reader),
  ];
  const { app, model } = await start(
    [
      [
        callPart('list_rows', {}, 'c1'),
        callPart('web_fetch', { url: `${siteUrl}/page` }, 'c2'),
        callPart('table', {}, 'c3'),
        callPart('teller', { request: 'Tell.' }, 'c4'),
        callPart('endless', {}, 'c5'),
        callPart('reader', { request: 'Read.' }, 'c6'),
        callPart('elsewhere', { request: 'Tell.' }, 'c7'),
      ],
      [
        read({ handle: 'c1', path: 'rows[8999].name' }),
        read({ handle: 'c2', path: 'text', search: 'line 8999 of' }),
        read({ handle: 'c3', path: '[8999].name' }),
        read({ handle: 'c4', length: 9 }),
        read({ handle: 'c7', offset: 349_990 }),
      ],
      text('done'),
    ],
    tools,
    { mcpServers: [{ name: 'tables', url: server.url }], subAgents: [elsewhere] },
  );
  await ask(app);
  const stubs = lastResponses(model.requests[1] as ModelRequest);
  expect(stubs.slice(0, 4).map(({ handle }) => handle)).toEqual(['c1', 'c2', 'c3', 'c4']);
  expect(stubs[4]?.['error']).toMatch(/larger than 4194304 bytes/);
  expect(stubs[5]?.['result']).toMatch(/It says .*of the inner/);
  const [api, web, mcp, told, far] = lastResponses(model.requests[2] as ModelRequest);
  expect(api?.['text']).toBe('row 8999');
  expect(JSON.stringify(web?.['matches'])).toContain('Line 8999 of the page.');
  expect(mcp?.['text']).toBe('row 8999');
  expect(told?.['text']).toBe('word word');
  expect(far?.['text']).toBe('z'.repeat(10));
});

test('what is together too much for an event is kept too; a hostile tool of a gigabyte is refused', async () => {
  const huge = Array.from({ length: 1_000 }, () => 'x'.repeat(1_048_576));
  const calls = Array.from({ length: 20 }, (_, n) => callPart('log', {}, `c${n}`));
  const { app, model } = await start(
    [[...calls, callPart('huge', {}, 'h')], [read({ handle: 'c19', offset: 89_990 })], text('done')],
    [tool('log', async () => 'y'.repeat(90_000)), tool('huge', async () => huge)],
  );
  await ask(app);
  const stubs = lastResponses(model.requests[1] as ModelRequest);
  expect(stubs.filter(({ handle }) => handle).length).toBeGreaterThan(5);
  expect(stubs.filter(({ result }) => result).length).toBeGreaterThan(5);
  expect(stubs.at(-1)?.['error']).toMatch(/larger than 110000000 characters/);
  expect(lastResponses(model.requests[2] as ModelRequest)[0]).toMatchObject({ text: 'y'.repeat(10) });
});

test('a result that is larger than an artifact may be, or more than the user may keep: the model has the head', async () => {
  const { app, model } = await start(
    [[callPart('log', {}, 'c1'), callPart('larger', {}, 'c2')], text('done')],
    [tool('log', async () => 'y'.repeat(1_400_000)), tool('larger', async () => 'z'.repeat(2_700_000))],
    {},
    { MAX_USER_BYTES: '1048576', MAX_BODY_BYTES: '2000000' },
  );
  await ask(app);
  const [full, large] = lastResponses(model.requests[1] as ModelRequest);
  expect(full).toMatchObject({ characters: 1_400_000, head: 'y'.repeat(2_000) });
  expect(full?.['note']).toMatch(/could not be kept: What is kept of the user would be more than MAX_USER_BYTES/);
  expect(large?.['note']).toMatch(/could not be kept/);
  expect(full).not.toHaveProperty('handle');
  expect(await artifactsOf(app)).toEqual([]);
  expect(model.requests[1]?.tools.map(({ name }) => name)).toEqual(['log', 'larger']);
});

test('parallel calls that act, and the bytes of the user', async () => {
  const acts = (name: string, ms: number) =>
    tool(name, () => new Promise((resolve) => setTimeout(resolve, ms, name.repeat(150_000))), { effect: 'once' });
  const { app, model } = await start(
    [
      [callPart('a', {}, 'c1'), callPart('b', {}, 'c2')],
      [read({ handle: 'c1', length: 2 }), read({ handle: 'c2', length: 2 })],
      text('done'),
    ],
    [acts('a', 0), acts('b', 200)],
  );
  await ask(app);
  expect(lastResponses(model.requests[2] as ModelRequest).map((each) => each['text'])).toEqual(['aa', 'bb']);
  expect(await artifactsOf(app)).toEqual(['tool-results/c1', 'tool-results/c2']);
  const { body } = await app.get('/apps/harness_agent/users/u/storage');
  expect((body as { artifactBytes: number }).artifactBytes).toBeGreaterThanOrEqual(300_000);
  await app.send('DELETE', '/apps/harness_agent/users/u/sessions/s');
  const after = (await app.get('/apps/harness_agent/users/u/storage')).body as { artifactBytes: number };
  expect(after.artifactBytes).toBe(0);
});

test('a model that numbers its calls anew in each turn reads the newest result', async () => {
  const answers = ['first '.repeat(30_000), 'second '.repeat(30_000)];
  const { app, model } = await start(
    [
      [callPart('log', {}, 'call_0')],
      text('kept'),
      [callPart('log', {}, 'call_0')],
      ({ contents }) => [
        read({ handle: String(getFunctionResponses(contents.at(-1))[0]?.response?.['handle']), length: 6 }),
      ],
      text('done'),
    ],
    [tool('log', async () => answers.shift())],
  );
  await ask(app);
  await ask(app);
  expect(lastResponses(model.requests[4] as ModelRequest)[0]).toMatchObject({ text: 'second' });
});

test('nobody without the scope `import` writes what a model reads as a result, before it is there or after', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'kept-results-'));
  closing.push(() => rm(folder, { recursive: true }));
  const client = createKey({ id: 'client', scopes: ['invoke', 'read', 'write'] });
  const importer = createKey({ id: 'importer', scopes: ['write', 'import'] });
  await writeFile(join(folder, 'keys'), `${client.entry}\n${importer.entry}\n`);
  const forged = { name: 'tool-results/c2', text: 'forged by the model' };
  const { app, model } = await start(
    [
      [callPart('log', {}, 'c1'), callPart('save_artifact', forged, 's1')],
      text('kept'),
      [read({ handle: 'c1', length: 6 }), callPart('log', {}, 'c2')],
      [read({ handle: 'c2', length: 6 })],
      text('done'),
    ],
    [tool('log', async () => 'truth '.repeat(30_000)), saveArtifact],
    {},
    { DEV_UI: 'false', RUNTIME_API_KEYS_FILE: join(folder, 'keys') },
  );
  const headers = { authorization: `Bearer ${client.key}` };
  const path = '/apps/harness_agent/users/u/sessions';
  const save = (filename: string, by = client.key) =>
    app.post(`${path}/s/artifacts`, { filename, artifact: { text: 'forged' } }, { authorization: `Bearer ${by}` });
  await app.post(path, { sessionId: 's' }, headers);
  const newMessage = { role: 'user', parts: [{ text: 'Go.' }] };
  const run = { appName: 'harness_agent', userId: 'u', sessionId: 's', newMessage };
  await app.post('/run', run, headers);
  for (const name of ['tool-results/c1', 'tool-results/c2']) {
    const refused = await save(name);
    expect([refused.status, refused.text]).toEqual([403, expect.stringContaining('`import`')]);
  }
  expect((await save('tool-results/table.csv')).status).toBe(200);
  await app.post('/run', run, headers);
  expect(lastResponses(model.requests[1] as ModelRequest)[1]).toEqual({ error: expect.stringMatching(/another one/) });
  expect(lastResponses(model.requests[3] as ModelRequest)[0]).toMatchObject({ text: 'truth ' });
  expect(lastResponses(model.requests[4] as ModelRequest)[0]).toMatchObject({ text: 'truth ' });
  expect((await save('tool-results/c3', importer.key)).status).toBe(200);
});
