import { expect, test } from 'vitest';
import { toPrompt } from '../../../../src/agent/models/to-prompt.ts';
import type { Content, Part } from '../../../../src/core/content.ts';

const promptOf = (...contents: Content[]) => {
  const { signal } = new AbortController();
  const request = { modelName: 'any', instruction: '', contents, tools: [], sampling: {}, signal };
  return toPrompt(request, 'openai-compatible');
};
const user = (...parts: Part[]): Content => ({ role: 'user', parts });
const model = (...parts: Part[]): Content => ({ role: 'model', parts });

test('contents of one role become one message; a blank line keeps their texts apart', () => {
  expect(
    promptOf(
      user({ text: 'one' }, { text: ' and' }),
      user({ text: 'two' }),
      model({ text: 'a' }),
      model({ text: 'b' }),
    ),
  ).toEqual([
    {
      role: 'user',
      content: [
        { type: 'text', text: 'one' },
        { type: 'text', text: ' and' },
        { type: 'text', text: '\n\ntwo' },
      ],
    },
    {
      role: 'assistant',
      content: [
        { type: 'text', text: 'a' },
        { type: 'text', text: '\n\nb' },
      ],
    },
  ]);
});

test('what follows a tool result is a message of its own, and a signed text stays as it was signed', () => {
  const response = { functionResponse: { id: '1', name: 'look', response: { result: 1 } } };
  const prompt = promptOf(
    user(response),
    user({ text: 'next' }),
    model({ text: 'a' }),
    model({ text: 'b', thoughtSignature: 'x' }),
  );
  expect(prompt).toEqual([
    {
      role: 'tool',
      content: [
        { type: 'tool-result', toolCallId: '1', toolName: 'look', output: { type: 'json', value: { result: 1 } } },
      ],
    },
    { role: 'user', content: [{ type: 'text', text: 'next' }] },
    {
      role: 'assistant',
      content: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
    },
  ]);
});
