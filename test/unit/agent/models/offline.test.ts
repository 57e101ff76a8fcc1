import { expect, test } from 'vitest';
import { createModel } from '../../../../src/agent/models/create-model.ts';
import { toolCallsFor } from '../../../../src/agent/models/offline-calls.ts';
import type { ToolDeclaration } from '../../../../src/agent/definition/model.ts';
import { builtInTools } from '../../../../src/agent/tools/registry.ts';
import type { Content } from '../../../../src/core/content.ts';

const own: ToolDeclaration = {
  name: 'book-room',
  description: '',
  parameters: {
    type: 'object',
    properties: {
      guests: { type: 'integer' },
      kind: { enum: ['single', 'double'] },
      note: { type: 'string' },
      late: { type: 'boolean' },
      optional: { type: 'string' },
    },
    required: ['guests', 'kind', 'note', 'late'],
  },
};
const tools = [...builtInTools().values(), own];

test.each([
  ['What is 17 * 23? Use the calculator.', [['calculator', { expression: '17 * 23' }]]],
  ['How much is (2 + 3) × 4?', [['calculator', { expression: '(2 + 3) * 4' }]]],
  ['Calculator: 5 - 3', [['calculator', { expression: '5 - 3' }]]],
  ['What time is it?', [['current_time', {}]]],
  ['what is the date in Asia/Tokyo', [['current_time', { timeZone: 'Asia/Tokyo' }]]],
  ['Please call save_artifact {"name":"a.md","text":"x {y}"}', [['save_artifact', { name: 'a.md', text: 'x {y}' }]]],
  ['Use load memory for "green tea"', [['load_memory', { query: 'green tea' }]]],
  [
    'list_artifacts and then current_time',
    [
      ['list_artifacts', {}],
      ['current_time', {}],
    ],
  ],
  ['Fetch https://example.org/a?b=1 with web_fetch', [['web_fetch', { url: 'https://example.org/a?b=1' }]]],
  [
    'book-room for 2, double, "by the sea", not late',
    [['book-room', { guests: 2, kind: 'double', note: 'by the sea', late: false }]],
  ],
  ['write_state {"key":"a","value":[1,{"b":2}]}', [['write_state', { key: 'a', value: [1, { b: 2 }] }]]],
  ['Hello', []],
  ['My calculators are broken', []],
  ['On 2026-11-20 we meet', []],
  ['', []],
] as [string, [string, object][]][])('%j asks for %j', (prompt, expected) => {
  expect(toolCallsFor(prompt, tools).map(({ name, args }) => [name, args])).toEqual(expected);
});

test('hostile prompts are read to the end', () => {
  for (const piece of ['{', '{"a":', '1*', '"', 'what ', 'calculator {', '((((', 'A/']) {
    expect(toolCallsFor(piece.repeat(100_000), tools).length).toBeLessThanOrEqual(tools.length);
  }
});

async function ask(contents: Content[], instruction = 'Be kind.') {
  const signal = new AbortController().signal;
  const request = { modelName: 'any', instruction, contents, tools, sampling: {}, signal };
  const stream = createModel({ provider: 'offline' }).generate(request);
  const deltas: string[] = [];
  for (;;) {
    const next = await stream.next();
    if (next.done) return { answer: next.value, deltas };
    deltas.push(next.value.parts?.[0]?.text ?? '');
  }
}
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

test('it tells results and failures of tools', async () => {
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
