import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { agent } from '../../examples/agents/weather/agent.ts';
import { getAnswerText, getFunctionCalls, getFunctionResponses } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { createLog } from '../../src/platform/log.ts';
import { startApp, type TestApp, testApp } from '../support/app.ts';

/** The example application, served beside `harness_agent`. */

const user = '/apps/weather/users/u/sessions';
const message = (text: string) => ({ role: 'user', parts: [{ text }] });

async function run(app: TestApp, sessionId: string, text: string, more: object = {}) {
  await app.post(`/apps/weather/users/u/sessions`, { sessionId });
  const request = { appName: 'weather', userId: 'u', sessionId, newMessage: message(text), ...more };
  const { status, body } = await app.post('/run', request);
  expect(status).toBe(200);
  return body as Event[];
}
const responsesIn = (events: Event[]) =>
  events.flatMap(({ content }) => getFunctionResponses(content)).map(({ response }) => response);

describe('with the offline model', () => {
  const app = testApp({ AGENTS_DIR: 'examples/agents' });

  test('it is listed, and answers with its own tool', async () => {
    expect((await app.get('/list-apps')).body).toEqual(['harness_agent', 'weather']);
    const events = await run(app, 'lima', 'forecast {"city":"Lima"}');
    expect(events.map(({ author }) => author)).toEqual(['weather', 'weather', 'weather']);
    expect(getFunctionCalls(events[0]?.content)).toMatchObject([{ name: 'forecast', args: { city: 'Lima' } }]);
    expect(responsesIn(events)).toEqual([{ city: 'Lima', sky: 'foggy', celsius: 18 }]);
    expect(getAnswerText(events[2]?.content)).toContain('foggy');
    expect((await app.get(`${user}/lima`)).body).toMatchObject({ appName: 'weather', events: [{}, ...events] });
  });

  test('arguments that do not fit its schema never reach the tool', async () => {
    const [response] = responsesIn(await run(app, 'oslo', 'forecast {"city":"Oslo"}'));
    expect(response).toEqual({ error: expect.stringMatching(/^Invalid arguments: `\/city` must be equal to one of/) });
  });

  test('its tools are its own: harness_agent does not know them, whatever name its harness goes by', async () => {
    const { body } = await app.post('/harness/invoke', {
      prompt: 'forecast {"city":"Lima"}',
      harness_name: 'weather',
      run_agent_request: { user_id: 'u', session_id: 's' },
      harness: { tools: 'forecast' },
    });
    const error = expect.stringMatching(
      /^Tool `forecast` is not a supported built-in tool\. Available: ask_person, calculator, /,
    );
    expect(body).toEqual({ harness_name: 'weather', overwrite: true, output: '', error });
  });
});

describe('an agent of the operator as harness_agent', () => {
  const from = new URL('../../src/agent/definition/agent-module.ts', import.meta.url).href;
  const STOCK = `import { defineTool } from '${from}';
    export const stock = defineTool({
      name: 'stock',
      description: 'Counts what is left.',
      parameters: { type: 'object', properties: { item: { type: 'string' } }, required: ['item'] },
      run: async ({ item }) => ({ item, left: 3 }),
    });`;
  const invoke = (app: TestApp, prompt: string, more: object = {}) =>
    app.post('/harness/invoke', {
      prompt,
      harness_name: 'shop',
      run_agent_request: { user_id: 'u', session_id: 's' },
      ...more,
    });
  const serve = async (files: Record<string, string>, environment: Record<string, string> = {}, overrides = {}) => {
    const directory = await mkdtemp(join(tmpdir(), 'agents-'));
    onTestFinished(() => rm(directory, { recursive: true }));
    for (const [file, code] of Object.entries(files)) {
      await mkdir(dirname(join(directory, file)), { recursive: true });
      await writeFile(join(directory, file), code);
    }
    const app = await startApp({ AGENTS_DIR: directory, ...environment }, overrides);
    onTestFinished(() => app.close());
    return app;
  };
  const agentFile = `import { stock } from './tools/stock.ts';
    export const agent = { description: 'A shop.', instruction: 'Sell.', tools: [stock] };`;

  test('it takes the place of the built-in one, with its own tool', async () => {
    const app = await serve({ 'harness_agent/agent.ts': agentFile, 'harness_agent/tools/stock.ts': STOCK });
    expect((await app.get('/list-apps')).body).toEqual(['harness_agent']);
    const { body } = await invoke(app, 'stock {"item":"tea"}');
    expect(body).toMatchObject({ overwrite: false, error: null, output: expect.stringContaining('"left":3') });
    const { body: other } = await invoke(app, 'calculator {"expression":"1+1"}', { harness: { tools: 'calculator' } });
    expect(other).toMatchObject({ overwrite: true, error: null, output: expect.stringContaining('2') });
  });

  test('a tool in tools/ can be named in harness.yaml, in TOOLS and by a request', async () => {
    const files = { 'harness_agent/tools/stock.ts': STOCK };
    const bare = await serve(files);
    expect((await invoke(bare, 'stock {"item":"tea"}')).body).toMatchObject({
      output: expect.not.stringContaining('left'),
    });
    const named = await invoke(bare, 'stock {"item":"tea"}', { harness: { tools: 'stock' } });
    expect(named.body).toMatchObject({ error: null, output: expect.stringContaining('"left":3') });
    const listed = await serve(files, { TOOLS: 'stock' });
    expect((await invoke(listed, 'stock {"item":"tea"}')).body).toMatchObject({
      output: expect.stringContaining('"left":3'),
    });
  });

  test('what a tool logs, and where its code fails, is in the log and in the trace, not in the answer', async () => {
    const lines: Record<string, unknown>[] = [];
    const log = createLog('info', { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) });
    const failing = `export const lose = {
      name: 'lose', description: 'Fails.', needsConfirmation: false, parameters: { type: 'object' },
      run: async (_args, { log }) => {
        log.info('looks', { drawer: 2 });
        throw new Error('nothing there');
      },
    };`;
    const app = await serve({ 'harness_agent/tools/lose.ts': failing }, { TOOLS: 'lose', DEV_UI: 'true' }, { log });
    const { body, text } = await invoke(app, 'lose {}');
    expect(body).toMatchObject({ error: null, output: expect.stringContaining('nothing there') });
    expect(text).not.toContain('lose.ts');
    const of = { appName: 'harness_agent', userId: 'u', sessionId: 's', invocationId: expect.any(String) };
    const call = { tool: 'lose', callId: expect.any(String), ...of };
    expect(lines).toContainEqual(expect.objectContaining({ ...call, level: 30, drawer: 2, msg: 'looks' }));
    const stack = expect.stringMatching(/^nothing there\n +at .*harness_agent\/tools\/lose\.ts:\d+:\d+\)?$/);
    expect(lines).toContainEqual(expect.objectContaining({ ...call, level: 40, stack, msg: 'a tool failed' }));
    await expect
      .poll(async () => (await app.get('/dev/apps/harness_agent/debug/trace/session/s')).body)
      .toContainEqual(
        expect.objectContaining({ attributes: expect.objectContaining({ 'exception.stacktrace': stack }) }),
      );
  });

  test('why a hook failed is in the log, in a line that names the session of the invocation', async () => {
    const lines: Record<string, unknown>[] = [];
    const log = createLog('info', { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) });
    const strict = `const beforeModel = () => { throw new Error('The hook met an explosive word.'); };
      export const agent = { description: 'A shop.', instruction: 'Sell.', hooks: { name: 'strict', beforeModel } };`;
    const app = await serve({ 'harness_agent/agent.ts': strict }, {}, { log });
    const { body } = await invoke(app, 'Hello');
    expect(body).toMatchObject({
      error: 'The hook `strict.beforeModel` failed. The log of the service has the reason.',
    });
    const of = { appName: 'harness_agent', userId: 'u', sessionId: 's', invocationId: expect.any(String) };
    const err = expect.objectContaining({ reason: 'The hook met an explosive word.' });
    expect(lines).toContainEqual(expect.objectContaining({ ...of, err, msg: 'the agent failed' }));
  });

  test('a second description in harness.yaml is refused at the start; its model and limits are taken', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'harness-'));
    onTestFinished(() => rm(directory, { recursive: true }));
    const HARNESS_FILE = join(directory, 'harness.yaml');
    const files = { 'harness_agent/agent.ts': agentFile, 'harness_agent/tools/stock.ts': STOCK };
    await writeFile(HARNESS_FILE, 'limits: { max_llm_calls: 1 }\n');
    const app = await serve(files, { HARNESS_FILE });
    const { body } = await invoke(app, 'stock {"item":"tea"}');
    expect(body).toMatchObject({ error: 'Max number of llm calls limit of `1` exceeded' });
    await writeFile(HARNESS_FILE, 'system_prompt: Buy.\n');
    await expect(serve(files, { HARNESS_FILE })).rejects.toThrow(
      'system_prompt: agents/harness_agent/agent.ts describes',
    );
  });
});

describe('with a model provider', () => {
  let provider: AnsweringProvider;
  let app: TestApp;
  beforeAll(async () => {
    provider = await startAnsweringProvider(({ prompt, results }) =>
      prompt === 'I live in Nairobi' && results.length === 0
        ? { calls: [['set_home', { city: 'Nairobi' }]] }
        : 'Noted.',
    );
    const model = { MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'small', MODEL_BASE_URL: provider.baseUrl };
    app = await startApp({ AGENTS_DIR: 'examples/agents', ...model });
  });
  afterAll(async () => {
    await app.close();
    await provider.close();
  });

  test('what its tool writes to the state of the user is in the instruction of the next session', async () => {
    await run(app, 'first', 'I live in Nairobi');
    expect(provider.asked[0]?.system).toContain('The user lives in: .');
    await run(app, 'second', 'hi');
    expect(provider.asked.at(-1)?.system).toContain('The user lives in: Nairobi.');
    expect((await app.get(`${user}/second`)).body).toMatchObject({ state: { 'user:home': 'Nairobi' } });
  });

  test('its tools reach the model as they were written', async () => {
    const own = (agent.tools ?? []).filter((tool) => typeof tool !== 'string');
    await run(app, 'wire', 'hi');
    const tools = provider.asked.at(-1)?.body['tools'] as { function: object }[];
    expect(tools.map((tool) => tool.function)).toEqual([
      ...own.map(({ name, description, parameters }) => ({ name, description, parameters })),
      expect.objectContaining({ name: 'current_time' }),
    ]);
  });

  test('overrides change it too, for one request', async () => {
    await run(app, 'overrides', 'hi', {
      harness: { model_name: 'large', system_prompt: 'Rhyme.', tools: ['calculator'] },
    });
    const overridden = provider.asked.at(-1);
    await run(app, 'overrides', 'hi');
    const next = provider.asked.at(-1);
    expect([overridden?.model, overridden?.system, overridden?.tools]).toEqual([
      'large',
      'Rhyme.',
      ['calculator', 'current_time', 'forecast', 'set_home'],
    ]);
    expect([next?.model, next?.tools]).toEqual(['small', ['current_time', 'forecast', 'set_home']]);
  });
});
