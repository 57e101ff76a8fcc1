import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { getFunctionCalls, type JsonObject } from '../../src/core/content.ts';
import { hostAgent } from '../support/agents.ts';
import { testApp } from '../support/app.ts';
import { callPart, scriptedModel } from '../support/scripted-model.ts';

/** Requests of other programs, from their sources, as they go out; `source` of a file names where from. */

interface Recorded {
  what: string;
  method?: string;
  path?: string;
  headers: Record<string, string>;
  body?: JsonObject;
  /** The whole answer. */
  says?: string;
  /** Questions of the session afterwards. */
  prompts?: number;
}
const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../data/openai/${name}.json`, import.meta.url), 'utf8')) as unknown;
const suite = read('open-responses') as { requests: Record<string, JsonObject>; notServed: Record<string, string> };

const number = z.number();
const text = z.string();
const item = z.looseObject({ id: text.min(1), type: text.min(1) });
/** What the document of Open Responses requires of a response. */
const responseSchema = z.looseObject({
  id: text.min(1),
  object: z.literal('response'),
  created_at: z.int(),
  completed_at: z.int().nullable(),
  status: z.enum(['queued', 'in_progress', 'completed', 'failed', 'incomplete']),
  incomplete_details: z.looseObject({ reason: text }).nullable(),
  model: text,
  previous_response_id: text.nullable(),
  instructions: text.nullable(),
  output: z.array(item),
  error: z.looseObject({ code: text, message: text }).nullable(),
  tools: z.array(
    z.looseObject({
      type: z.literal('function'),
      name: text,
      description: text.nullable(),
      parameters: z.looseObject({}).nullable(),
      strict: z.boolean().nullable(),
    }),
  ),
  tool_choice: z.enum(['auto', 'none', 'required']),
  truncation: z.enum(['auto', 'disabled']),
  parallel_tool_calls: z.boolean(),
  text: z.looseObject({ format: z.looseObject({ type: text }) }),
  top_p: number,
  presence_penalty: number,
  frequency_penalty: number,
  top_logprobs: z.int(),
  temperature: number,
  reasoning: z.looseObject({}).nullable(),
  usage: z
    .looseObject({
      input_tokens: z.int(),
      output_tokens: z.int(),
      total_tokens: z.int(),
      input_tokens_details: z.looseObject({ cached_tokens: z.int() }),
      output_tokens_details: z.looseObject({ reasoning_tokens: z.int() }),
    })
    .nullable(),
  max_output_tokens: z.int().nullable(),
  max_tool_calls: z.int().nullable(),
  store: z.boolean(),
  background: z.boolean(),
  service_tier: text,
  metadata: z.looseObject({}),
  safety_identifier: text.nullable(),
  prompt_cache_key: text.nullable(),
});

const model = scriptedModel([
  ({ contents, tools }) => {
    const word = contents.at(-1)?.parts?.at(-1)?.text ?? '';
    const isAsked = word.includes('weather') && getFunctionCalls(contents.at(-1)).length === 0;
    return isAsked && tools.some(({ name }) => name === 'get_weather')
      ? [callPart('get_weather', { location: 'San Francisco, CA' })]
      : [{ text: `You said ${word}` }];
  },
]);
const app = testApp({ DOORS: 'openai' }, { agents: hostAgent(model, []) });

const send = (path: string, { method = 'POST', headers, body }: Pick<Recorded, 'method' | 'headers' | 'body'>) =>
  fetch(`${app.url}/v1${path}`, {
    method,
    headers: { 'content-type': 'application/json', ...headers },
    ...(body && { body: JSON.stringify(body) }),
  });

/** Reads the data of a stream's events; the last one says that it is over. */
async function readEvents(response: Response): Promise<(JsonObject & { event: string })[]> {
  const frames = (await response.text()).split('\n\n').filter((frame) => frame.includes('data: '));
  expect(frames.pop()).toBe('data: [DONE]');
  return frames.map((frame) => {
    const data = JSON.parse(/^data: (.*)$/m.exec(frame)?.[1] ?? '') as JsonObject;
    return { ...data, event: /^event: (.*)$/m.exec(frame)?.[1] ?? '' };
  });
}

describe('the suite of Open Responses', () => {
  test('all at once, as it runs them', async () => {
    const answers = await Promise.all(
      Object.entries(suite.requests).map(async ([id, request]) => {
        const answer = await send('/responses', { headers: {}, body: { model: 'harness_agent', ...request } });
        expect([id, answer.status]).toEqual([id, 200]);
        if (request['stream'] !== true) return { id, response: await answer.json(), types: [] };
        const events = await readEvents(answer);
        for (const { event, type, sequence_number: place } of events) {
          expect(event).toBe(type);
          expect(Number.isSafeInteger(place)).toBe(true);
        }
        return { id, response: events.at(-1)?.['response'], types: events.map(({ type }) => type) };
      }),
    );
    for (const { id, response, types } of answers) {
      const { error, data } = responseSchema.safeParse(response);
      expect([id, error?.issues]).toEqual([id, undefined]);
      expect([id, data?.status]).toEqual([id, 'completed']);
      expect(data?.output.map(({ type }) => type)).toEqual([id.startsWith('tool') ? 'function_call' : 'message']);
      if (id === 'tool-calling-streaming')
        for (const type of ['delta', 'done']) expect(types).toContain(`response.function_call_arguments.${type}`);
    }
  });

  // A checkout of openresponses/openresponses, which is no package, with `npm install zod@3` in it.
  const folder = process.env['OPEN_RESPONSES'];
  test.runIf(folder)('itself, from OPEN_RESPONSES: all but the list passes, and nothing of that', async () => {
    const withExtensions = `data:text/javascript,import { registerHooks } from 'node:module';
      registerHooks({ resolve(name, context, next) {
        try { return next(name, context); } catch { return next(name + '.ts', context); }
      } });`;
    const options = ['--base-url', `${app.url}/v1`, '--api-key', 'none', '--model', 'harness_agent', '--json'];
    const args = ['--import', withExtensions, 'bin/compliance-test.ts', ...options];
    const output = await new Promise<string>((resolve) =>
      execFile(process.execPath, args, { cwd: folder, maxBuffer: 2 ** 26 }, (_, stdout, stderr) =>
        resolve(stdout || stderr),
      ),
    );
    const { results } = JSON.parse(output) as { results: { id: string; status: string; errors?: string[] }[] };
    console.log(results.map(({ id, status, errors = [] }) => `${status} ${id} ${errors.join('; ')}`).join('\n'));
    const unserved = results.filter(({ status }) => status !== 'passed').map(({ id }) => id);
    expect(unserved.toSorted()).toEqual(Object.keys(suite.notServed).toSorted());
  });

  test('what is not served is a list with reasons, and is refused', async () => {
    expect(Object.keys(suite.notServed)).toHaveLength(9);
    for (const reason of Object.values(suite.notServed)) expect(reason.length).toBeGreaterThan(40);
    const compact = await send('/responses/compact', { headers: {}, body: { input: 'x' } });
    expect(compact.status).toBe(405);
    const upgrade = await fetch(`${app.url}/v1/responses`);
    expect(upgrade.status).toBe(405);
  });
});

describe.each(['open-webui', 'librechat'])('%s', (name) => {
  const { user, session, requests } = read(name) as { user: string; session: string; requests: Recorded[] };
  test.each(requests)('$what', async ({ path = '/chat/completions', says, prompts, ...request }) => {
    const answer = await send(path, request);
    expect(answer.status).toBe(200);
    if (request.method === 'GET') {
      expect(await answer.json()).toMatchObject({ object: 'list', data: [{ id: 'harness_agent', object: 'model' }] });
      return;
    }
    if (request.body?.['stream'] === true) {
      const chunks = (await readEvents(answer)) as unknown as {
        choices: { delta: { content?: string }; finish_reason: string | null }[];
        usage: JsonObject | null;
      }[];
      expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe(says);
      expect(chunks.at(-2)?.choices[0]?.finish_reason).toBe('stop');
      expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { total_tokens: expect.any(Number) as number } });
    } else {
      const { choices } = (await answer.json()) as { choices: { message: { content: string } }[] };
      expect(choices[0]?.message.content).toMatch(/^You said /);
    }
    if (prompts === undefined) return;
    const { body } = await app.get(`/apps/harness_agent/users/${user}/sessions/${session}`);
    const asked = (body as { events: { author: string }[] }).events.filter(({ author }) => author === 'user');
    expect(asked).toHaveLength(prompts);
  });
});
