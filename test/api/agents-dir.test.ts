import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { agent } from '../../examples/weather/agent.ts';
import { getAnswerText, getFunctionCalls, getFunctionResponses } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import { type AnsweringProvider, startAnsweringProvider } from '../support/answering-provider.ts';
import { startApp, type TestApp } from '../support/app.ts';

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
  let app: TestApp;
  beforeAll(async () => {
    app = await startApp({ AGENTS_DIR: 'examples' });
  });
  afterAll(() => app.close());

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
    const error = expect.stringMatching(/^Tool `forecast` is not a supported built-in tool\. Available: calculator, /);
    expect(body).toEqual({ harness_name: 'weather', overwrite: true, output: '', error });
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
    app = await startApp({ AGENTS_DIR: 'examples', ...model });
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
