import { describe, expect, test } from 'vitest';
import type { Event } from '../../src/core/event.ts';
import { hostScript } from '../support/agents.ts';
import { type Answer, startApp, testApp, type TestApp } from '../support/app.ts';
import { startFakeProvider } from '../support/fake-provider.ts';
import { startMcpServer } from '../support/mcp-server.ts';

/**
 * What each client sends and how it reads the answer, by its own rules (read in their sources, see the names): programs
 * that cannot run here. The JavaScript client of ADK runs for real in `adk-client.test.ts`.
 */
const app = testApp({ TOOLS: 'calculator' });
const QUESTION = 'What is 17 * 23? Use the calculator.';
const REPLY = 'The tool `calculator` answered: 391';

type Frame = Event & { error?: string };

/** Lines of `data: `; all others are skipped, as every one of the clients does. */
const framesOf = ({ text }: Answer): Frame[] =>
  text
    .split('\n')
    .filter((line) => line.startsWith('data: '))
    .map((line) => JSON.parse(line.slice('data: '.length)) as Frame);

const textOf = ({ content }: Event) => (content?.parts ?? []).map(({ text }) => text ?? '').join('');

/** `agentkit invoke harness` (run_sse): prints every event that is not `partial: false`, ends at `error`. */
async function agentkitInvokeHarness(to: TestApp, sessionId: string, prompt: string, harness: object = {}) {
  const created = await to.post(`/apps/harness/users/agentkit_user/sessions/${sessionId}`, {});
  expect([200, 400, 409]).toContain(created.status);
  const answer = await to.post('/run_sse', {
    appName: 'harness',
    userId: 'agentkit_user',
    sessionId,
    newMessage: { role: 'user', parts: [{ text: prompt }] },
    streaming: true,
    ...harness,
  });
  if (answer.status !== 200) return { printed: '', error: String(answer.status) };
  let printed = '';
  for (const frame of framesOf(answer)) {
    if (frame.error) return { printed, error: frame.error };
    if (frame.partial !== false) printed += textOf(frame);
  }
  return { printed, error: undefined };
}

describe('agentkit invoke harness', () => {
  test('prints an answer once, in a session of its own and in the same one again', async () => {
    expect(await agentkitInvokeHarness(app, 'once', QUESTION)).toEqual({ printed: REPLY, error: undefined });
    expect(await agentkitInvokeHarness(app, 'once', QUESTION)).toEqual({ printed: REPLY, error: undefined });
  });

  test('hears of a wrong tool and of a limit', async () => {
    expect(await agentkitInvokeHarness(app, 'wrong', 'hi', { harness: { tools: 'nosuch' } })).toEqual({
      printed: '',
      error: expect.stringContaining('`nosuch`'),
    });
    expect(await agentkitInvokeHarness(app, 'limit', QUESTION, { harness: { max_llm_calls: 1 } })).toEqual({
      printed: '',
      error: 'Max number of llm calls limit of `1` exceeded',
    });
  });

  test('hears of a model that fails', async () => {
    const failing = await startApp({}, { agents: hostScript([new Error('secret')]) });
    expect(await agentkitInvokeHarness(failing, 'failing', 'hi')).toEqual({
      printed: '',
      error: 'The model `scripted` (scripted) failed unexpectedly.',
    });
    await failing.close();
  });

  test('agentkit list sessions has a list that is filled', async () => {
    await agentkitInvokeHarness(app, 'listed', QUESTION);
    const { status, body } = await app.get('/apps/harness/users/agentkit_user/sessions');
    const rows = (body as { id: string; events: unknown[]; lastUpdateTime: number }[]).map(
      ({ id, events, lastUpdateTime }) => [id, events.length, lastUpdateTime > 0],
    );
    expect(status).toBe(200);
    expect(rows).toContainEqual(['listed', 0, true]);
  });
});

describe('the alias of harness_agent', () => {
  test('is stored and answered as harness_agent, wherever a request names an application', async () => {
    const alias = '/apps/harness/users/alias/sessions';
    const created = await app.post(alias, { sessionId: 's' });
    expect([created.status, created.body]).toMatchObject([200, { id: 's', appName: 'harness_agent' }]);
    const own = '/apps/harness_agent/users/alias/sessions';
    expect((await app.get(`${own}/s`)).body).toEqual((await app.get(`${alias}/s`)).body);
    const saved = await app.post(`${alias}/s/artifacts`, { filename: 'f', artifact: { text: 'x' } });
    expect(saved.body).toMatchObject({
      canonicalUri: 'postgres://apps/harness_agent/users/alias/sessions/s/artifacts/f/versions/0',
    });
    expect((await app.get(`${own}/s/artifacts`)).body).toEqual(['f']);
    expect((await app.get('/apps/harness/app-info')).body).toMatchObject({ name: 'harness_agent' });
    await app.post('/dev/apps/harness/eval-sets/aliased/add-session', { evalId: 'c', sessionId: 's', userId: 'alias' });
    expect((await app.get('/dev/apps/harness_agent/eval_sets')).body).toContain('aliased');
    const run = { app_name: 'harness', user_id: 'alias', session_id: 's', new_message: { parts: [{ text: 'hi' }] } };
    expect((await app.post('/run', run)).status).toBe(200);
    expect((await app.get('/list-apps')).body).toEqual(['harness_agent']);
  });

  test('is one key of idempotency with it', async () => {
    const headers = { 'idempotency-key': 'k' };
    const first = await app.post('/apps/harness/users/keyed/sessions', {}, headers);
    const second = await app.post('/apps/harness_agent/users/keyed/sessions', {}, headers);
    expect((first.body as { id: string }).id).toBe((second.body as { id: string }).id);
  });

  test('is harness_agent in the cases of a set that is made, and in a case that is replaced', async () => {
    const evalCase = (evalId: string) => ({
      evalId,
      conversation: [{ userContent: { parts: [{ text: 'hi' }] } }],
      sessionInput: { appName: 'harness', userId: 'u', state: { appName: 'harness' } },
    });
    const sets = '/dev/apps/harness/eval-sets';
    const stored = { appName: 'harness_agent', userId: 'u', state: { appName: 'harness' } };
    const made = await app.post(sets, { evalSet: { eval_set_id: 'with_alias', eval_cases: [evalCase('one')] } });
    expect([made.status, made.body]).toMatchObject([200, { eval_cases: [{ sessionInput: stored }] }]);
    const path = `${sets}/with_alias/eval-cases/one`;
    expect((await app.send('PUT', path, evalCase('one'))).status).toBe(200);
    expect((await app.get(path)).body).toMatchObject({ evalId: 'one', sessionInput: stored });
  });

  test('is not looked for in a state, which keeps its own `appName`', async () => {
    const state = await app.post('/apps/harness_agent/users/u/sessions/named', { appName: 'harness' });
    expect((state.body as { state: unknown }).state).toEqual({ appName: 'harness' });
  });
});

describe('a harness of tools, skills or models that do not exist', () => {
  const question = { newMessage: { role: 'user', parts: [{ text: QUESTION }] }, stateDelta: { asked: true } };
  const sessionOf = async (to: TestApp, id: string) =>
    (await to.get(`/apps/harness_agent/users/wrong/sessions/${id}`)).body as { state: object; events: Event[] };

  test.each([
    ['tools', 'unknown_tool'],
    ['skills', 'unknown_skill'],
  ])('%s: the question is stored by the request that is right, once', async (member, code) => {
    const key = { appName: 'harness_agent', userId: 'wrong', sessionId: member };
    await app.post('/apps/harness_agent/users/wrong/sessions', { sessionId: member });
    for (const path of ['/run', '/run_sse']) {
      await app.post(path, { ...key, ...question, harness: { [member]: ['nosuch'] } });
    }
    const failed = await sessionOf(app, member);
    expect(failed.events.map(({ author, errorCode }) => [author, errorCode])).toEqual([
      ['harness_agent', code],
      ['harness_agent', code],
    ]);
    expect(failed.state).toEqual({});
    // It has no message that it could go on with: the model would answer the turn before.
    const list = `/apps/harness_agent/users/wrong/sessions/${member}/invocations`;
    const [{ id }] = (await app.get(list)).body as [{ id: string }];
    expect(await app.post(list, { invocationId: id })).toMatchObject({
      status: 409,
      body: { detail: expect.stringContaining('Send the message again.') as string },
    });
    await app.post('/run', { ...key, ...question, harness: { tools: ['write_state'] } });
    const { events, state } = await sessionOf(app, member);
    expect(events.slice(2).map(textOf)).toEqual([QUESTION, '', '', REPLY]);
    expect(events[2]?.author).toBe('user');
    expect(state).toEqual({ asked: true });
  });

  test('a model: the same', async () => {
    const provider = await startFakeProvider('openai-compatible', [{ status: 404 }, { text: ['Here.'] }]);
    const asking = await startApp({
      MODEL_PROVIDER: 'openai-compatible',
      MODEL_BASE_URL: provider.baseUrl,
      MODEL_NAME: 'm',
    });
    const invoke = (model_name: string) =>
      asking.post('/harness/invoke', {
        prompt: QUESTION,
        harness_name: 'h',
        run_agent_request: { user_id: 'wrong', session_id: 'model' },
        harness: { model_name },
      });
    expect((await invoke('nosuch')).body).toMatchObject({ error: expect.stringContaining('does not know this model') });
    expect((await invoke('m2')).body).toMatchObject({ output: 'Here.', error: null });
    const { events } = await sessionOf(asking, 'model');
    expect(events.map((event) => event.errorCode ?? textOf(event))).toEqual(['model_not_found', QUESTION, 'Here.']);
    await asking.close();
    await provider.close();
  });
});

/** The AgentKit SDK over `/invoke`: prints what is partial or does not say, ends at `error`. */
async function agentkitInvoke(to: TestApp, prompt: string) {
  const answer = await to.post('/invoke', { prompt }, { user_id: 'sdk', session_id: 'sdk-session' });
  expect(answer.headers.get('content-type')).toMatch(/^text\/event-stream/);
  const frames = framesOf(answer);
  return {
    printed: frames.map((frame) => ((frame.partial ?? true) ? textOf(frame) : '')).join(''),
    errors: frames.flatMap(({ error }) => error ?? []),
  };
}

test('agentkit invoke: the answer is printed once, a failure is heard', async () => {
  expect(await agentkitInvoke(app, QUESTION)).toEqual({ printed: REPLY, errors: [] });
  const failing = await startApp({}, { agents: hostScript([new Error('secret')]) });
  const error = 'The model `scripted` (scripted) failed unexpectedly.';
  expect(await agentkitInvoke(failing, QUESTION)).toEqual({ printed: '', errors: [error] });
  await failing.close();
});

/** VeADK Studio's scheduler: `id` to create, snake_case to run; the last whole text is the output. */
async function studioScheduler(to: TestApp, id: string, prompt: string) {
  const user = 'team/one';
  const created = await to.post(`/apps/harness_agent/users/${encodeURIComponent(user)}/sessions`, { id });
  expect(created.body).toMatchObject({ id });
  const answer = await to.post('/run_sse', {
    app_name: 'harness_agent',
    user_id: user,
    session_id: id,
    new_message: { role: 'user', parts: [{ text: prompt }] },
    streaming: false,
  });
  let output = '';
  for (const frame of framesOf(answer)) {
    const failure = frame.error ?? frame.errorMessage;
    if (failure) return { output: '', failure };
    if (frame.partial !== true && textOf(frame) !== '') output = textOf(frame);
  }
  return { output, failure: undefined };
}

test("Studio's scheduler: the output of a run, or why there is none", async () => {
  expect(await studioScheduler(app, 'run-1', QUESTION)).toEqual({ output: REPLY, failure: undefined });
  const failing = await startApp({}, { agents: hostScript([new Error('secret')]) });
  const failure = 'The model `scripted` (scripted) failed unexpectedly.';
  expect(await studioScheduler(failing, 'run-2', 'hi')).toEqual({ output: '', failure });
  await failing.close();
});

test('veadk harness invoke: status 200, the output or the error', async () => {
  const body = (harness: object | null) => ({
    prompt: QUESTION,
    harness_name: 'h',
    harness,
    run_agent_request: { user_id: 'cli-user', session_id: 'cli-session', max_llm_calls: null },
  });
  const fine = await app.post('/harness/invoke', body(null));
  expect([fine.status, fine.body]).toEqual([200, { harness_name: 'h', overwrite: false, output: REPLY, error: null }]);
  const wrong = await app.post('/harness/invoke', body({ skills: 'nosuch' }));
  expect([wrong.status, wrong.body]).toMatchObject([200, { output: '', error: expect.stringContaining('nosuch') }]);
});

describe('members of `harness` that VeADK sends', () => {
  const ask = (harness: object) =>
    app.post('/harness/invoke', {
      prompt: QUESTION,
      harness_name: 'h',
      run_agent_request: { user_id: 'veadk', session_id: 'members' },
      harness,
    });

  test('`builtin_tools` and `selected_skills` are `tools` and `skills`', async () => {
    for (const builtin_tools of [[{ id: 'current_time', config: {} }], ['current_time']]) {
      expect((await ask({ builtin_tools })).body).toMatchObject({ overwrite: true, output: REPLY, error: null });
    }
    expect((await ask({ builtin_tools: [{ id: 'nosuch' }] })).body).toMatchObject({
      error: expect.stringContaining('`nosuch`'),
    });
    expect((await ask({ selected_skills: ['absent'] })).body).toMatchObject({
      error: expect.stringContaining('`absent`'),
    });
  });

  test.each(['bear_token', 'bearer_token', 'api_key'])('`mcp` is `mcp_servers`, with `%s`', async (member) => {
    const server = await startMcpServer([]);
    const given = { name: 'm', server_url: server.url, [member]: 'secret-of-mcp' };
    expect((await ask({ mcp: [given] })).body).toMatchObject({ overwrite: false, output: REPLY, error: null });
    expect(server.headers.length).toBeGreaterThan(0);
    for (const { authorization } of server.headers) expect(authorization).toBe('Bearer secret-of-mcp');
    const count = server.headers.length;
    expect((await ask({ mcp: [given], mcp_servers: [] })).body).toMatchObject({ output: REPLY, error: null });
    expect(server.headers.length).toBe(count);
    await server.close();
  });

  test.each([
    { mcp_router_id: 'r' },
    { registry: { space: 's' } },
    { knowledgebase: { type: 't' } },
    { longterm_memory: 'm' },
    { runtime: 'codex' },
  ])('%j is refused by its name, and nothing runs', async (harness) => {
    const [name = ''] = Object.keys(harness);
    expect(await ask(harness)).toMatchObject({
      status: 200,
      body: { overwrite: false, output: '', error: expect.stringContaining(`\`harness.${name}\``) },
    });
    expect((await ask({ [name]: null })).body).toMatchObject({ output: REPLY, error: null });
  });

  test('what means nothing is named in a header, also of a run; the runtime `adk` is this one', async () => {
    const answer = await ask({ runtime: 'adk', registry_top_k: 3, toolz: ['x'], 'a\r\nb': 1 });
    expect(answer.body).toMatchObject({ overwrite: false, output: REPLY, error: null });
    expect(answer.headers.get('x-ignored-members')).toBe('registry_top_k, toolz, a%0D%0Ab');
    const key = { appName: 'harness_agent', userId: 'veadk', sessionId: 'members' };
    for (const path of ['/run', '/run_sse']) {
      const run = { ...key, newMessage: { role: 'user', parts: [{ text: QUESTION }] }, harness: { toolz: 1 } };
      expect([path, (await app.post(path, run)).headers.get('x-ignored-members')]).toEqual([path, 'toolz']);
    }
    const start = '/apps/harness_agent/users/veadk/sessions/members/invocations';
    const refused = await app.post(start, { newMessage: { parts: [{ text: QUESTION }] }, harness: { toolz: 1 } });
    expect([refused.status, JSON.stringify(refused.body)]).toEqual([422, expect.stringContaining('mean `tools`?')]);
    expect((await ask({ tools: 'calculator' })).headers.get('x-ignored-members')).toBe(null);
  });
});

test('the Web UI overwrites a case with the spelling that only it uses; the specified one is 409', async () => {
  const sets = '/dev/apps/harness_agent';
  const add = { evalId: 'case', userId: 'ui', sessionId: 'one' };
  for (const sessionId of ['one', 'two']) {
    await app.post('/apps/harness_agent/users/ui/sessions', { sessionId });
    const key = { appName: 'harness_agent', userId: 'ui', sessionId };
    await app.post('/run', { ...key, newMessage: { parts: [{ text: sessionId }] } });
  }
  const question = async () =>
    (await app.get(`${sets}/eval_sets/over/evals/case`)).body as { conversation: { userContent: unknown }[] };
  expect((await app.post(`${sets}/eval_sets/over/add_session`, add)).status).toBe(200);
  expect((await question()).conversation[0]?.userContent).toMatchObject({ parts: [{ text: 'one' }] });
  const refused = await app.post(`${sets}/eval-sets/over/add-session`, { ...add, sessionId: 'two' });
  expect(refused.status).toBe(409);
  const lost = await app.post(`${sets}/eval_sets/over/add_session`, { ...add, sessionId: 'nope' });
  expect(lost.status).toBe(404);
  expect((await question()).conversation[0]?.userContent).toMatchObject({ parts: [{ text: 'one' }] });
  const over = await app.post(`${sets}/eval_sets/over/add_session`, { ...add, sessionId: 'two' });
  expect([over.status, over.body]).toEqual([200, null]);
  expect((await question()).conversation[0]?.userContent).toMatchObject({ parts: [{ text: 'two' }] });
});

test('the Web UI: lists are JSON, a session is made without a body, a stream has one frame per line', async () => {
  for (const path of ['/list-apps?relative_path=./', '/apps/harness_agent/users/user/sessions']) {
    const { body } = await app.get(path);
    expect(Array.isArray(body)).toBe(true);
  }
  const { body } = await app.send('POST', '/apps/harness_agent/users/user/sessions');
  const { id } = body as { id: string };
  const answer = await app.post('/run_sse', {
    appName: 'harness_agent',
    userId: 'user',
    sessionId: id,
    newMessage: { role: 'user', parts: [{ text: QUESTION }] },
    streaming: true,
    stateDelta: null,
  });
  // It adds partial texts up and puts the whole text in their place.
  const frames = framesOf(answer);
  const partial = frames.filter((frame) => frame.partial === true).map(textOf);
  expect([partial.join(''), textOf(frames.at(-1) ?? {})]).toEqual([REPLY, REPLY]);
  expect(answer.text.endsWith('\n\n')).toBe(true);
});
