import { expect, test } from 'vitest';
import { createModel } from '../../../../src/agent/models/create-model.ts';
import { toolCallsFor } from '../../../../src/agent/models/offline.ts';
import type { ToolDeclaration } from '../../../../src/agent/definition/model.ts';
import { builtInTools } from '../../../../src/agent/tools/registry.ts';
import type { Content } from '../../../../src/core/content.ts';

const own: ToolDeclaration = {
  name: 'book-room',
  description: '',
  parameters: { type: 'object', properties: { guests: { type: 'integer' } } },
};
const agent: ToolDeclaration = {
  name: 'researcher',
  description: '',
  parameters: { type: 'object', properties: { request: { type: 'string' } }, required: ['request'] },
};
const tools = [...builtInTools().values(), own, agent];

test.each([
  ['What is 17 * 23? Use the calculator.', [['calculator', { expression: '17 * 23' }]]],
  ['How much is (2 + 3) × 4? The calculator knows.', [['calculator', { expression: '(2 + 3) * 4' }]]],
  ['Calculator: 5 - 3', [['calculator', { expression: '5 - 3' }]]],
  ['calculator {"expression":"1 + 1"} or 2 + 2 + 2', [['calculator', { expression: '1 + 1' }]]],
  ['Please call save_artifact {"name":"a.md","text":"x {y}"}', [['save_artifact', { name: 'a.md', text: 'x {y}' }]]],
  ['{"name":"a"} is no argument of load_memory', [['load_memory', {}]]],
  [
    'list_artifacts and then current_time {"timeZone":"Asia/Tokyo"}',
    [
      ['list_artifacts', {}],
      ['current_time', { timeZone: 'Asia/Tokyo' }],
    ],
  ],
  ['Book-Room {"guests":2}', [['book-room', { guests: 2 }]]],
  ['write_state {"key":"a","value":[1,{"b":2}]}', [['write_state', { key: 'a', value: [1, { b: 2 }] }]]],
  ['save_artifact {"name":"a","text":"calculator"}', [['save_artifact', { name: 'a', text: 'calculator' }]]],
  ['Researcher: trees', [['researcher', { request: 'Researcher: trees' }]]],
  ['Hello', []],
  ['How much is 2 + 3?', []],
  ['My calculators are broken', []],
  ['', []],
] as [string, [string, object][]][])('%j requests %j', (prompt, expected) => {
  expect(toolCallsFor(prompt, tools).map(({ name, args }) => [name, args])).toEqual(expected);
});

test('hostile prompts are read to the end', () => {
  for (const piece of ['{', '{"a":', '1*', '"', 'what ', 'calculator {', '((((', 'A/']) {
    expect(toolCallsFor(piece.repeat(100_000), tools).length).toBeLessThanOrEqual(tools.length);
  }
  for (const piece of ['.', ',', ' ', '. '])
    expect(toolCallsFor(`calculator 1${piece.repeat(400_000)}1`, tools)).toHaveLength(1);
});

async function ask(contents: Content[], instruction = 'Be kind.') {
  const signal = new AbortController().signal;
  const request = { modelName: 'any', instruction, contents, tools, sampling: {}, signal };
  const stream = createModel({ provider: 'offline' }).generate(request);
  const deltas: string[] = [];
  for (;;) {
    const next = await stream.next();
    if (next.done) return { answer: next.value, deltas };
    deltas.push(next.value.content.parts?.[0]?.text ?? '');
  }
}

test('the result of an agent in the background asks for no call of it', async () => {
  const text = 'The agent `researcher`, which the call c started in the background, has ended. Its answer:\n\nTrees.';
  expect((await ask([{ role: 'user', parts: [{ text }] }])).answer.content).toEqual({
    role: 'model',
    parts: [{ text }],
  });
});

const user = (text: string): Content => ({ role: 'user', parts: [{ text }] });

test('it streams words, counts tokens and is the same each time', async () => {
  const first = await ask([user('Hello there')]);
  expect(first.deltas.length).toBeGreaterThan(10);
  expect(first.deltas.join('')).toBe(first.answer.content?.parts?.[0]?.text);
  // Be + kind. (2) + Hello + there (2)
  expect(first.answer).toMatchObject({
    modelVersion: 'offline',
    finishReason: 'STOP',
    usageMetadata: { promptTokenCount: 3 + 4 },
  });
  const { promptTokenCount = 0, candidatesTokenCount = 0, totalTokenCount } = first.answer.usageMetadata ?? {};
  expect(totalTokenCount).toBe((promptTokenCount ?? 0) + (candidatesTokenCount ?? 0));
  expect(await ask([user('Hello there')])).toEqual(first);
});

test('it gives the results and failures of tools', async () => {
  const responses: Content = {
    role: 'user',
    parts: [
      { functionResponse: { id: '1', name: 'calculator', response: { result: 391 } } },
      { functionResponse: { id: '2', name: 'look', response: { a: 1, b: 2 } } },
      { functionResponse: { id: '3', name: 'fails', response: { error: 'no disk' } } },
    ],
  };
  const { answer } = await ask([user('go'), { role: 'model', parts: [] }, responses]);
  expect(answer.content?.parts?.[0]?.text).toBe(
    'The tool `calculator` answered: 391\nThe tool `look` answered: {"a":1,"b":2}\nThe tool `fails` failed: no disk',
  );
});

test('it answers the last message of the user, and no result of an earlier turn', async () => {
  const call: Content = { role: 'model', parts: [{ functionCall: { id: '1', name: 'calculator', args: {} } }] };
  const response: Content = {
    role: 'user',
    parts: [{ functionResponse: { id: '1', name: 'calculator', response: { result: 391 } } }],
  };
  const asked = await ask([user('What is 17 * 23? Use the calculator.'), call, response, user('Tell me a joke')]);
  expect(asked.answer.content?.parts?.[0]?.text).toContain('You wrote: "Tell me a joke" (turn 2 of this session).');
  const apart = await ask([user('One'), user('Two')]);
  expect(apart.answer.content?.parts?.[0]?.text).toContain('You wrote: "Two" (turn 2 of this session).');
});

test('what another agent did is no message of the user', async () => {
  const context: Content = {
    role: 'user',
    parts: [{ text: 'For context:' }, { text: '[other] called tool `calculator`' }],
  };
  const { answer } = await ask([user('Hello'), context]);
  expect(answer.content?.parts?.[0]?.text).toContain('You wrote: "Hello" (turn 1 of this session).');
});

test.each([
  ['x', 'required', { name: 'book-room', args: { guests: 0 } }],
  ['x {"guests":2}', { name: 'book-room' }, { name: 'book-room', args: { guests: 2 } }],
  ['The calculator: 1 + 1', 'required', { name: 'calculator', args: { expression: '1 + 1' } }],
  ['The calculator: 1 + 1', { name: 'book-room' }, { name: 'book-room', args: { guests: 0 } }],
] as const)('%j with the choice %j calls what it has to', async (text, toolChoice, functionCall) => {
  const needed = { ...own, parameters: { ...own.parameters, required: ['guests'] } };
  const request = {
    modelName: 'offline',
    instruction: '',
    contents: [{ role: 'user', parts: [{ text }] }],
    tools: [...builtInTools().values(), needed],
    toolChoice,
    sampling: {},
    signal: new AbortController().signal,
  };
  const answer = await createModel({ provider: 'offline' }).generate(request).next();
  expect(answer.value).toMatchObject({ content: { parts: [{ functionCall }] } });
});

test.each([
  ['openai', 'gpt-5-mini', 272_000],
  ['openai', 'gpt-5-chat-latest', 128_000],
  ['openai', 'gpt-4.1-nano', 1_000_000],
  ['openai', 'gpt-4o-audio-preview', undefined],
  ['openai', 'o4-mini', 200_000],
  ['anthropic', 'claude-sonnet-4-5', 150_000],
  ['anthropic', 'claude-2.1', undefined],
  ['google', 'gemini-2.5-flash', 1_000_000],
  ['google', 'gemini-2.5-flash-image', undefined],
  ['openai-compatible', 'qwen3', undefined],
] as const)('%s: the context window of %s', (provider, modelName, window) => {
  const model = createModel({ provider, apiKey: 'k', baseUrl: 'http://127.0.0.1:1/v1' });
  expect(model.contextTokens?.(modelName)).toBe(window);
});
