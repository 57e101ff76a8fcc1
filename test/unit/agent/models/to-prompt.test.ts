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

test('what a part lacks is empty, and what cannot be shown is named', () => {
  expect(
    promptOf(
      user({ executableCode: { code: 'print(1)' } }, { codeExecutionResult: { output: '1' } }),
      user({ executableCode: {} }, { codeExecutionResult: {} }, {}),
      model({ functionCall: {} }, { inlineData: { mimeType: 'image/png', data: 'AA==' } }, {}),
      user({ functionResponse: {} }),
      model({}),
    ),
  ).toEqual([
    {
      role: 'user',
      content: [
        { type: 'text', text: '```\nprint(1)\n```' },
        { type: 'text', text: 'Result of the code: 1' },
        { type: 'text', text: '```\n\n```' },
        { type: 'text', text: 'Result of the code: ' },
      ],
    },
    {
      role: 'assistant',
      content: [
        { type: 'tool-call', toolCallId: '', toolName: '', input: {} },
        { type: 'text', text: '(a file that you made)' },
      ],
    },
    {
      role: 'tool',
      content: [{ type: 'tool-result', toolCallId: '', toolName: '', output: { type: 'json', value: {} } }],
    },
    { role: 'assistant', content: [{ type: 'text', text: expect.any(String) }] },
  ]);
});

test('files go as text, as bytes or as an address, with their names', () => {
  const data = Buffer.from('hello').toString('base64');
  expect(
    promptOf(
      user(
        { inlineData: { mimeType: 'text/plain', data, displayName: 'a.txt' } },
        { inlineData: { mimeType: 'application/json', data } },
        { inlineData: { data } },
        { inlineData: { mimeType: 'image/png', displayName: 'b.png' } },
        { fileData: { mimeType: 'image/png', fileUri: 'https://example.com/c.png', displayName: 'c.png' } },
        { fileData: { fileUri: 'gs bucket' } },
        { fileData: {} },
      ),
    ),
  ).toEqual([
    {
      role: 'user',
      content: [
        { type: 'text', text: 'File a.txt:\nhello' },
        { type: 'text', text: 'hello' },
        { type: 'file', mediaType: 'application/octet-stream', data: { type: 'data', data } },
        { type: 'file', mediaType: 'image/png', data: { type: 'data', data: '' }, filename: 'b.png' },
        {
          type: 'file',
          mediaType: 'image/png',
          data: { type: 'url', url: new URL('https://example.com/c.png') },
          filename: 'c.png',
        },
        { type: 'text', text: '(a file at gs bucket)' },
        { type: 'text', text: '(a file at )' },
      ],
    },
  ]);
});
