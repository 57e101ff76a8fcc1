import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { listAllOperations } from '../../src/process/app.ts';
import { createKey, createKeyRing, type NewKey } from '../../src/platform/http/access/key-ring.ts';
import { gatedAgents } from '../support/agents.ts';
import { type Answer, startApp, type TestApp } from '../support/app.ts';
import { openLive } from '../support/live-client.ts';
import { startService } from '../support/service-process.ts';
import { DOOR_NAMES } from '../../src/process/config.ts';
import { toHandle } from '../../src/features/doors/handle.ts';
import { toResponseId } from '../../src/features/doors/openai/ids.ts';

/** Runtime keys from a file: each may do what it says, as long as it says, and not a moment after it is revoked. */

const dir = mkdtempSync(join(tmpdir(), 'agent-runtime-keys-'));
const file = join(dir, 'keys');
const ALL = ['invoke', 'read', 'write', 'admin', 'override', 'import', 'develop'] as const;
const made = (limits: Partial<NewKey> = {}) => createKey({ scopes: ALL, ...limits });
const keys = {
  service: made({ id: 'service' }),
  reader: made({ id: 'reader', scopes: ['read'] }),
  ofBob: made({ id: 'of-bob', users: ['bob'] }),
  ofApp: made({ id: 'of-app', apps: ['other'] }),
  ofHarness: made({ id: 'of-harness', apps: ['harness_agent'] }),
  ofAlias: made({ id: 'of-alias', apps: ['harness'] }),
  expired: made({ id: 'expired', expires: '2020-01-01T00:00:00Z' }),
};
const bearer = ({ key }: { key: string }) => ({ authorization: `Bearer ${key}` });
/** Replaces the file at once, as an operator's tool does. */
const write = (entries: string[]) => {
  writeFileSync(`${file}.new`, `# keys\n\n${entries.join('\n')}\n`);
  renameSync(`${file}.new`, file);
};
const bytes = ({ status, body }: Answer) => [status, body];
const REFUSED = [401, { detail: 'authentication required' }];
const BOUND = [403, { detail: 'The credential is bound to users or applications, and this operation is about all.' }];

let app: TestApp;
beforeAll(async () => {
  write(Object.values(keys).map(({ entry }) => entry));
  app = await startApp({ DEV_UI: 'true', RUNTIME_API_KEYS_FILE: file });
  for (const user of ['alice', 'bob'])
    await app.post(`/apps/harness_agent/users/${user}/sessions`, { sessionId: 's' }, bearer(keys.service));
});
afterAll(() => app.close());
const session = (user: string) => `/apps/harness_agent/users/${user}/sessions/s`;
const absent = [404, { detail: 'Session not found: s' }];

describe('a key of the file', () => {
  test('that is bound to users runs, judges, copies and scores nothing: that is about what all share', async () => {
    const D = '/dev/apps/harness_agent';
    const evalMetrics = [{ metricName: 'safety_v1', threshold: 1 }];
    const run = '/eval-runs/7d444840-9dc0-41d1-b245-5ffdce74fad2';
    for (const [method, path, body] of [
      ['POST', '/eval-sets/s/run', { evalMetrics }],
      ['POST', '/eval_sets/s/run_eval', { evalMetrics }],
      ['POST', '/eval-runs', { evalSetId: 's', evalMetrics }],
      ['GET', '/eval-runs', undefined],
      ['GET', run, undefined],
      ['DELETE', run, undefined],
      ['POST', `${run}/judge`, { evalMetrics }],
      ['GET', `${run}/verdicts`, undefined],
      ['POST', '/eval-sets/s/add-sessions', { users: ['bob'] }],
      ['POST', '/session-scores', { evalMetrics, users: ['bob'] }],
      ['GET', '/session-scores', undefined],
    ] as const) {
      const answer = await app.send(method, `${D}${path}`, body, bearer(keys.ofBob));
      expect([path, ...bytes(answer)]).toEqual([path, ...BOUND]);
    }
  });

  test('that is bound to an application takes its alias for it, in the key as in the request', async () => {
    const aliased = session('bob').replace('harness_agent', 'harness');
    for (const key of [keys.ofHarness, keys.ofAlias]) {
      for (const path of [session('bob'), aliased]) expect((await app.get(path, bearer(key))).status).toBe(200);
      for (const appName of ['harness', 'harness_agent']) {
        const body = { appName, userId: 'bob', sessionId: 's', newMessage: { parts: [{ text: 'x' }] } };
        expect((await app.post('/run', body, bearer(key))).status).toBe(200);
      }
      expect((await app.get('/list-apps', bearer(key))).body).toEqual(['harness_agent']);
    }
    expect(bytes(await app.get(aliased, bearer(keys.ofApp)))).toEqual(absent);
  });

  test.each([
    ['expired', keys.expired.key],
    ['a secret with another id', keys.service.key.replace('service.', 'reader.')],
    ['an id alone', 'service.'],
    ['the digest', JSON.parse(keys.service.entry).digest as string],
    ['nobody’s', made().key],
  ])('%s is refused', async (_what, key) => {
    expect(bytes(await app.get(session('alice'), bearer({ key })))).toEqual(REFUSED);
  });

  test('that is revoked is refused without a restart', async () => {
    const gone = made({ id: 'gone' });
    const path = session('alice');
    write([...Object.values(keys).map(({ entry }) => entry), gone.entry]);
    await expect.poll(async () => (await app.get(path, bearer(gone))).status).toBe(200);
    write(Object.values(keys).map(({ entry }) => entry));
    await expect.poll(async () => (await app.get(path, bearer(gone))).status).toBe(401);
    expect((await app.get(path, bearer(keys.service))).status).toBe(200);
  });
});

describe('a key that is revoked', () => {
  const operations = listAllOperations();
  let watchedId = '';
  const watchedTask = () => {
    const key = { appName: 'harness_agent', userId: 'alice', sessionId: 'watched' };
    return `${A2A}/tasks/${toHandle({ key, invocationId: watchedId })}`;
  };
  const watchedResponse = () => {
    const key = { appName: 'harness_agent', userId: 'alice', sessionId: 'watched' };
    return toResponseId({ key, invocationId: watchedId });
  };
  /** How each kind of stream is opened; settles with all that it said when it has ended. */
  const open: Record<string, (url: string, headers: Record<string, string>, runId: string) => Promise<unknown>> = {
    streamEvents: (url, headers) => readAll(`${url}${session('alice')}/events/stream`, { headers }),
    streamEvalRun: (url, headers, runId) => readAll(`${url}${EVALS}/eval-runs/${runId}/stream`, { headers }),
    'streamEvalRun, a copy': (url, headers, runId) =>
      readAll(`${url}${EVALS.replace('/dev', '')}/eval-runs/${runId}/stream`, { headers }),
    runAgentSse: (url, headers) => {
      const body = { appName: 'harness_agent', userId: 'alice', sessionId: 'sse', newMessage: HELLO };
      return readAll(`${url}/run_sse`, { method: 'POST', headers: { ...headers, ...JSON_TYPE }, body: toText(body) });
    },
    invokeLegacy: (url, headers) =>
      readAll(`${url}/invoke`, {
        method: 'POST',
        headers: { ...headers, ...JSON_TYPE, user_id: 'alice', session_id: 'legacy' },
        body: toText({ prompt: 'Hello' }),
      }),
    sendAiSdkMessage: (url, headers) => readAll(`${url}${CHAT}?user_id=alice`, chatRequest('chat', headers)),
    streamAiSdkChat: (url, headers) => readAll(`${url}${CHAT}/watched/stream?user_id=alice`, { headers }),
    runAgUi: (url, headers) => readAll(`${url}${AG_UI}?user_id=alice`, runRequest('thread', headers)),
    connectAgUi: (url, headers) => readAll(`${url}${AG_UI}/connect?user_id=alice`, runRequest('watched', headers)),
    streamAgUi: (url, headers) => readAll(`${url}${AG_UI}/watched?user_id=alice`, { headers }),
    createOpenAiResponse: (url, headers) =>
      readAll(`${url}/v1/responses?user_id=alice`, streamRequest({ input: 'Hello' }, headers)),
    createOpenAiChatCompletion: (url, headers) =>
      readAll(
        `${url}/v1/chat/completions?user_id=alice`,
        streamRequest({ messages: [{ role: 'user', content: 'Hello' }] }, headers),
      ),
    getOpenAiResponse: (url, headers) => readAll(`${url}/v1/responses/${watchedResponse()}?stream=true`, { headers }),
    callA2a: (url, headers) => readAll(`${url}${A2A}?user_id=alice`, a2aRequest(headers)),
    streamA2aMessage: (url, headers) =>
      readAll(`${url}${A2A}/message:stream?user_id=alice`, a2aRequest(headers, false)),
    subscribeToA2aTask: (url, headers) => readAll(`${url}${watchedTask()}:subscribe?user_id=alice`, { headers }),
    resubscribeToA2aTask: (url, headers) =>
      readAll(`${url}${watchedTask()}:subscribe?user_id=alice`, {
        method: 'POST',
        headers: { ...headers, ...JSON_TYPE },
      }),
    callMcp: (url, headers) => readAll(`${url}/mcp?user_id=alice`, mcpRequest(headers)),
    callMcpApp: (url, headers) => readAll(`${url}/mcp/harness_agent?user_id=alice`, mcpRequest(headers)),
    readSessionStream: (url, headers) => readAll(`${url}${STREAMS}/s?${LIVE}`, { headers }),
    readInvocationStream: (url, headers) =>
      readAll(`${url}${STREAMS}/watched/invocations/${watchedId}?${LIVE}`, { headers }),
    runLive: async (url, headers) => {
      const { closed, frames } = await openLive({ url }, { user_id: 'alice', session_id: 's' }, headers);
      return [...(await closed), ...frames];
    },
  };

  test('ends what it has open, of every kind of stream, within seconds', async () => {
    expect(Object.keys(open).toSorted()).toEqual(
      operations
        .flatMap(({ isCopy, isStream, operationId }) =>
          isStream ? [isCopy ? `${operationId}, a copy` : operationId] : [],
        )
        .toSorted(),
    );
    const gone = made({ id: 'streaming' });
    write([...Object.values(keys).map(({ entry }) => entry), gone.entry]);
    const gate = gatedAgents();
    // On a database of its own: another process would take up the case of the run, with an agent that does not wait.
    const doors = { DOORS: DOOR_NAMES.join(',') };
    // They begin at once, and each reads what there is before it waits.
    const limits = { MAX_HEAVY_READS_PER_USER: '10' };
    const settings = { DEV_UI: 'true', EVALS: 'true', RUNTIME_API_KEYS_FILE: file, ...limits, ...doors };
    const gated = await startApp(settings, { agents: gate.agents });
    onTestFinished(() => gated.close());
    for (const sessionId of ['s', 'sse'])
      await gated.post('/apps/harness_agent/users/alice/sessions', { sessionId }, bearer(keys.service));
    const runId = await startEvalRun(gated);
    const watched = await fetch(`${gated.url}${CHAT}?user_id=alice`, chatRequest('watched', bearer(keys.service)));
    await watched.body?.cancel();
    watchedId = watched.headers.get('x-invocation-id') ?? '';
    const streams = Object.values(open).map((each) => each(gated.url, bearer(gone), runId));
    // The eight that run the agent, what one watches, and the case of the run.
    await Promise.all([1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map((count) => gate.entered(count)));
    write(Object.values(keys).map(({ entry }) => entry));
    const ended = await Promise.all(streams.map((stream) => Promise.race([stream, sleep(60_000, 'goes on')])));
    const detail = 'The credential of this stream is not valid any more. Connect again with a new one.';
    const frame = expect.stringContaining(`data: ${toText({ error: detail })}\n\n`);
    const chunk = expect.stringContaining(`data: ${toText({ type: 'error', errorText: detail })}\n\n`);
    const expired = { type: 'RUN_ERROR', code: 'unauthenticated', message: detail };
    const runError = expect.stringContaining(`data: ${toText(expired)}\n\n`);
    const rpcError = expect.stringContaining(`"error":${toText({ code: 401, message: detail })}}\n\n`);
    const openAi = (data: object) => expect.stringContaining(`data: ${toText(data)}\n\n`);
    const info = { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'UNAUTHENTICATED' };
    const a2aDetails = [{ ...info, domain: 'a2a-protocol.org' }];
    const event = expect.stringContaining(`event: expired\ndata: ${toText({ detail })}\n\n`);
    expect(Object.fromEntries(Object.keys(open).map((kind, index) => [kind, ended[index]]))).toEqual({
      streamEvents: event,
      streamEvalRun: event,
      'streamEvalRun, a copy': event,
      runAgentSse: frame,
      invokeLegacy: frame,
      readSessionStream: event,
      readInvocationStream: event,
      sendAiSdkMessage: chunk,
      streamAiSdkChat: chunk,
      ...Object.fromEntries(['runAgUi', 'connectAgUi', 'streamAgUi'].map((kind) => [kind, runError])),
      ...Object.fromEntries(['callMcp', 'callMcpApp'].map((kind) => [kind, rpcError])),
      callA2a: openAi({
        jsonrpc: '2.0',
        id: 1,
        error: { code: -32_600, message: detail, data: a2aDetails },
      }),
      ...Object.fromEntries(
        ['streamA2aMessage', 'subscribeToA2aTask', 'resubscribeToA2aTask'].map((kind) => [
          kind,
          openAi({ error: { code: 401, status: 'UNAUTHENTICATED', message: detail, details: a2aDetails } }),
        ]),
      ),
      createOpenAiResponse: openAi({ type: 'error', code: 'invalid_api_key', message: detail, param: null }),
      getOpenAiResponse: openAi({ type: 'error', code: 'invalid_api_key', message: detail, param: null }),
      createOpenAiChatCompletion: openAi({
        error: { message: detail, type: 'authentication_error', param: null, code: null },
      }),
      runLive: [1008, detail, { error: detail }],
    });
    for (let count = 0; count < 10; count += 1) gate.open();
  });
});

const EVALS = '/dev/apps/harness_agent';
const HELLO = { role: 'user', parts: [{ text: 'Hello' }] };
const JSON_TYPE = { 'content-type': 'application/json' };
const CHAT = '/ai-sdk/harness_agent/chat';
const STREAMS = '/durable-streams/harness_agent/sessions';
const LIVE = 'user_id=alice&offset=-1&live=sse';
const chatRequest = (id: string, headers: Record<string, string>) => ({
  method: 'POST',
  headers: { ...headers, ...JSON_TYPE },
  body: toText({ id, messages: [{ role: 'user', parts: [{ type: 'text', text: 'Hello' }] }] }),
});
const AG_UI = '/ag-ui/harness_agent';
const runRequest = (threadId: string, headers: Record<string, string>) => ({
  method: 'POST',
  headers: { ...headers, ...JSON_TYPE },
  body: toText({ threadId, runId: 'r', messages: [{ id: 'm', role: 'user', content: 'Hello' }] }),
});
const A2A = '/a2a/harness_agent';
const a2aRequest = (headers: Record<string, string>, isRpc = true) => {
  const params = { message: { messageId: crypto.randomUUID(), role: 'ROLE_USER', parts: [{ text: 'Hello' }] } };
  const call = { jsonrpc: '2.0', id: 1, method: 'SendStreamingMessage', params };
  return { method: 'POST', headers: { ...headers, ...JSON_TYPE }, body: toText(isRpc ? call : params) };
};
const mcpRequest = (headers: Record<string, string>) => ({
  method: 'POST',
  headers: { ...headers, ...JSON_TYPE, accept: 'application/json, text/event-stream' },
  body: toText({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name: 'harness_agent', arguments: { prompt: 'Hello' } },
  }),
});
const streamRequest = (members: object, headers: Record<string, string>) => ({
  method: 'POST',
  headers: { ...headers, ...JSON_TYPE },
  body: toText({ model: 'harness_agent', stream: true, ...members }),
});
const toText = (value: object) => JSON.stringify(value);
const readAll = async (url: string, init: RequestInit) => (await fetch(url, init)).text();

/** Starts a run of one case whose agent is called once. @returns its id */
async function startEvalRun(to: Pick<TestApp, 'post'>): Promise<string> {
  const conversation = [{ invocationId: 'i', userContent: HELLO }];
  const one = { evalId: 'one', conversation, sessionInput: { appName: 'harness_agent', userId: 'u', state: {} } };
  const evalSet = { eval_set_id: 'revoked', eval_cases: [one] };
  await to.post(`${EVALS}/eval-sets`, { evalSet }, bearer(keys.service));
  const evalMetrics = [{ metricName: 'response_match_score', threshold: 1 }];
  const run = await to.post(`${EVALS}/eval-runs`, { evalSetId: 'revoked', evalMetrics }, bearer(keys.service));
  return (run.body as { runId: string }).runId;
}

test('what was revoked is refused at a request five seconds later, whatever the machine does meanwhile', async () => {
  const own = join(dir, 'own');
  const gone = made({ id: 'gone' });
  let now = performance.now();
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
  onTestFinished(() => clock.mockRestore());
  writeFileSync(own, `[${gone.entry}]`);
  const find = createKeyRing({ plain: [], file: own });
  expect((await find(gone.key))?.kind).toBe('key');
  writeFileSync(own, `[${keys.service.entry}]`);
  now += 5_000;
  expect(await find(gone.key)).toBeUndefined();
});

test('while the file cannot be read an old copy is not believed for long, keys of the environment are', async () => {
  const PLAIN = 'a-runtime-key-of-32-characters-x';
  const other = join(dir, 'other');
  writeFileSync(other, `[${keys.service.entry}]`);
  const find = createKeyRing({ plain: [PLAIN], file: other });
  expect((await find(keys.service.key))?.kind).toBe('key');
  rmSync(other);
  const outcome = () =>
    find(keys.service.key).then(
      (holder) => holder?.kind,
      (error: Error) => error.message,
    );
  await expect.poll(outcome).toBe('The file of keys cannot be read for now.');
  expect((await find(PLAIN))?.scopes.size).toBe(ALL.length);
});

describe('the start refuses a file', () => {
  const refused = (content: string) => {
    const wrong = join(dir, 'wrong');
    writeFileSync(wrong, content);
    try {
      createKeyRing({ plain: [], file: wrong });
      return undefined;
    } catch (error) {
      return (error as Error).message.replace(dir, '…');
    }
  };
  const { entry } = keys.service;

  test.each([
    [
      'a plain key',
      `${keys.service.key}\n`,
      'line 1 of …/wrong to be no key: it is not JSON; `npm run keys:create` prints one.',
    ],
    ['an unknown scope', entry.replace('"admin"', '"root"'), 'line 1 of …/wrong to be no key: scopes.3 Invalid'],
    ['an id twice', `${entry}\n${entry}`, 'line 2 of …/wrong to be no key: the id service is taken.'],
    ['a member too many', `[{"key":"x",${entry.slice(1)}]`, 'key 1 of …/wrong to be no key:  Unrecognized key'],
  ])('with %s', (_what, content, sentence) => {
    expect(refused(content)).toContain(`RUNTIME_API_KEYS_FILE: found ${sentence}`);
  });

  test('that is not there', () => {
    expect(() => createKeyRing({ plain: [], file: join(dir, 'none') })).toThrow(
      'RUNTIME_API_KEYS_FILE: the file cannot be read.',
    );
  });
});

test('npm run keys:create prints a key once and the line that makes it valid', async () => {
  const options = ['--scopes', 'read,invoke', '--users', 'bob', '--expires', '2999-01-01T00:00:00Z', '--id', 'printed'];
  const { code, out } = await startService({}, 'keys', 'create', ...options).end;
  const [, key = '', , line = ''] = out.split('\n');
  expect([code, JSON.parse(line)]).toEqual([
    0,
    {
      id: 'printed',
      digest: expect.stringMatching(/^[0-9a-f]{64}$/),
      scopes: ['read', 'invoke'],
      users: ['bob'],
      expires: '2999-01-01T00:00:00Z',
    },
  ]);
  expect(key).toMatch(/^printed\.[\w-]{43}$/);
  expect(line).not.toContain(key.slice('printed.'.length));
  const ring = join(dir, 'printed');
  writeFileSync(ring, line);
  expect(await createKeyRing({ plain: [], file: ring })(key)).toMatchObject({ kind: 'key', id: 'printed' });
  const wrong = await startService({}, 'keys', 'create', '--scopes', 'root').end;
  expect([wrong.code, wrong.error]).toEqual([1, expect.stringContaining('scopes.0: Invalid option')]);
});
