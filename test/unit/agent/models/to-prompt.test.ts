import { expect, test } from 'vitest';
import { fitTools } from '../../../../src/agent/models/fit-tools.ts';
import { toPrompt } from '../../../../src/agent/models/to-prompt.ts';
import { findProvider, type ProviderName, PROVIDERS } from '../../../../src/agent/providers/index.ts';
import type { Content, Part } from '../../../../src/core/content.ts';

const promptFor = (name: ProviderName, modelName: string, contents: Content[]) => {
  const provider = findProvider(name);
  const { signal } = new AbortController();
  const request = { modelName, instruction: '', contents, tools: [], sampling: {}, signal };
  const facts = provider.facts(undefined, modelName);
  return toPrompt(request, { provider, facts, tools: fitTools(request, facts) }).prompt;
};
const promptOf = (...contents: Content[]) => promptFor('openai-compatible', 'any', contents);
const user = (...parts: Part[]): Content => ({ role: 'user', parts });
const model = (...parts: Part[]): Content => ({ role: 'model', parts });

/** No provider is sure to take a conversation that ends with the model's words. */
const GO_ON = { role: 'user', content: [{ type: 'text', text: 'Go on with what was asked, or conclude.' }] };
const start = [user({ text: 'go' }), model({ functionCall: { id: '1', name: 'look', args: {} } })];

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
      content: [{ type: 'text', text: 'one and\n\ntwo' }],
    },
    {
      role: 'assistant',
      content: [{ type: 'text', text: 'a\n\nb' }],
    },
    GO_ON,
  ]);
});

test('what follows a tool result is a message of its own, and a signed text stays as it was signed', () => {
  const response = { functionResponse: { id: '1', name: 'look', response: { result: 1 } } };
  const prompt = promptOf(
    ...start,
    user(response),
    user({ text: 'next' }),
    model({ text: 'a' }),
    model({ text: 'b', thoughtSignature: 'x' }),
  );
  const output = { type: 'json', value: { result: 1 } };
  expect(prompt.slice(2)).toEqual([
    { role: 'tool', content: [{ type: 'tool-result', toolCallId: '1', toolName: 'look', output }] },
    { role: 'user', content: [{ type: 'text', text: 'next' }] },
    { role: 'assistant', content: [{ type: 'text', text: 'ab' }] },
    GO_ON,
  ]);
});

test('what a part lacks is empty, and what cannot be shown is named', () => {
  const prompt = promptOf(
    user({ executableCode: { code: 'print(1)' } }, { codeExecutionResult: { output: '1' } }),
    user({ executableCode: {} }, { codeExecutionResult: {} }, {}),
    model({ functionCall: {} }, { inlineData: { mimeType: 'image/png', data: 'AA==' } }, {}),
    user({ functionResponse: {} }),
    model({}),
  );
  const text = '```\nprint(1)\n```\n\nResult of the code: 1\n\n```\n\n```\n\nResult of the code: ';
  expect(prompt).toEqual([
    { role: 'user', content: [{ type: 'text', text }] },
    {
      role: 'assistant',
      content: [
        { type: 'tool-call', toolCallId: expect.stringMatching(/^[a-z0-9]{24}$/), toolName: '_', input: {} },
        { type: 'text', text: expect.stringContaining('a file that you made') },
      ],
    },
    {
      role: 'tool',
      content: [
        { type: 'tool-result', toolCallId: expect.any(String), toolName: '_', output: { type: 'json', value: {} } },
      ],
    },
    { role: 'assistant', content: [{ type: 'text', text: '(empty)' }] },
    GO_ON,
  ]);
});

const base64 = (text: string) => Buffer.from(text).toString('base64');
const PNG = 'iVBORw0KGgo=';

test('files go as text, as bytes or as an address, with their names', () => {
  const data = base64('hello');
  const prompt = promptOf(
    user(
      { inlineData: { mimeType: 'text/plain', data, displayName: 'a.txt' } },
      { inlineData: { mimeType: 'application/json', data } },
      { inlineData: { data } },
      { inlineData: { mimeType: 'image/png', data: PNG, displayName: 'b.png' } },
      { fileData: { mimeType: 'image/png', fileUri: 'https://example.com/c.png', displayName: 'c.png' } },
    ),
  );
  expect(prompt).toEqual([
    {
      role: 'user',
      content: [
        { type: 'text', text: 'File a.txt:\nhello\n\nhello\n\nhello' },
        { type: 'file', mediaType: 'image/png', data: { type: 'data', data: PNG }, filename: 'b.png' },
        {
          type: 'file',
          mediaType: 'image/png',
          data: { type: 'url', url: new URL('https://example.com/c.png') },
          filename: 'c.png',
        },
      ],
    },
  ]);
});

test.each([
  ['application/xml', '<a/>'],
  ['application/x-yaml', 'a: 1'],
  ['Application/CSV', 'a,b'],
  ['application/ld+json', '{}'],
  ['image/svg+xml', '<svg/>'],
  ['application/vnd.any; charset=utf-8', 'any'],
  ['application/toml', 'a = 1'],
])('%s is text in a prompt and in a result', (mimeType, text) => {
  const file = { inlineData: { mimeType, data: base64(text), displayName: 'f' } };
  const response = { functionResponse: { id: '1', name: 'look', response: {}, parts: [file] } };
  for (const { name: provider } of PROVIDERS) {
    const [prompt, , result] = promptFor(provider, 'any', [
      user({ text: 'go' }, file),
      ...start.slice(1),
      user(response),
    ]);
    expect(prompt).toEqual({ role: 'user', content: [{ type: 'text', text: `go\n\nFile f:\n${text}` }] });
    const output = { type: 'text', value: `{}\n\nFile f:\n${text}` };
    expect(result).toMatchObject({ content: [{ output }] });
  }
});

test('a file that the provider does not take is told by name, type and size', () => {
  const docx = 'application/vnd.openxmlformats-officedocument.wordprocessingml.document';
  const zipped = 'UEsDBAAA';
  const file = { inlineData: { mimeType: docx, data: zipped, displayName: 'r.docx' } };
  const words = `(The file r.docx of the type ${docx}, 6 bytes, is not shown: this model does not take files of this type.)`;
  const response = { functionResponse: { id: '1', name: 'look', response: { ok: true }, parts: [file] } };
  for (const { name: provider } of PROVIDERS) {
    const [prompt, , result] = promptFor(provider, 'any', [user(file), ...start.slice(1), user(response)]);
    expect(prompt).toEqual({ role: 'user', content: [{ type: 'text', text: words }] });
    expect(result).toMatchObject({ content: [{ output: { type: 'text', value: `{"ok":true}\n\n${words}` } }] });
  }
});

test.each([
  [{ inlineData: { mimeType: 'image/bmp', data: 'Qk0=' } }, 'A file of the type image/bmp, 2 bytes'],
  [{ inlineData: { mimeType: 'image/png', data: base64('no image') } }, 'its bytes are no image'],
  [{ inlineData: { mimeType: 'image/png', data: '' } }, 'it is empty'],
  [{ fileData: { mimeType: 'image/png', fileUri: 'artifact://a/b' } }, 'at artifact://a/b'],
  [{ fileData: {} }, 'at no address'],
])('%j is told in words', (part, words) => {
  expect(JSON.stringify(promptOf(user(part)))).toContain(words);
});

test('bytes are sent as standard base64, padded, under the type that they have', () => {
  const bytes = Buffer.concat([Buffer.from(PNG, 'base64'), Buffer.from([0xfb, 0xff, 0xfe, 0xff])]);
  const part = { inlineData: { mimeType: 'IMAGE/JPG', data: bytes.toString('base64url') } };
  const data = { type: 'data', data: bytes.toString('base64') };
  expect(promptOf(user(part))).toMatchObject([{ content: [{ type: 'file', mediaType: 'image/png', data }] }]);
});

test('calls have ids that the provider takes, each its own, and their results have the same', () => {
  const ids = ['functions.calc:0', '', 'a', 'a', 'x'.repeat(41), 'call_0', 'call_0'];
  const contents = ids.flatMap((id, place) => [
    user({ text: 'go' }),
    model({ functionCall: { id, name: 'look', args: { place } } }),
    user({ functionResponse: { id, name: 'look', response: { place } } }),
  ]);
  for (const [provider, modelName, pattern] of [
    ['openai-compatible', 'any', /^[a-zA-Z0-9_-]{1,40}$/],
    ['openai-compatible', 'mistral-large', /^[a-zA-Z0-9]{9}$/],
    ['openai', 'any', /^[a-zA-Z0-9_-]{1,40}$/],
    ['anthropic', 'any', /^[a-zA-Z0-9_-]+$/],
  ] as const) {
    const parts = promptFor(provider, modelName, contents).flatMap(({ content }): unknown[] =>
      typeof content === 'string' ? [] : content,
    ) as {
      toolCallId?: string;
      input?: unknown;
      output?: { value: unknown };
    }[];
    const calls = parts.filter((part) => part.input);
    const results = parts.filter((part) => part.output);
    expect(calls.map(({ input }) => input)).toEqual(ids.map((_, place) => ({ place })));
    expect(results.map(({ output }) => output?.value)).toEqual(ids.map((_, place) => ({ place })));
    const sent = calls.map(({ toolCallId }) => toolCallId ?? '');
    expect(results.map(({ toolCallId }) => toolCallId)).toEqual(sent);
    expect(new Set(sent).size).toBe(ids.length);
    for (const id of sent) expect(id).toMatch(pattern);
  }
});

test('calls without results, and results without calls, are told', () => {
  const stranger = { functionResponse: { id: 'z', name: 'look', response: { found: 1 } } };
  expect(promptOf(user(stranger), model({ functionCall: { id: '1', name: 'look' } }), user({ text: 'and?' }))).toEqual([
    { role: 'user', content: [{ type: 'text', text: 'The tool `look` returned: {"found":1}' }] },
    { role: 'assistant', content: [{ type: 'tool-call', toolCallId: '1', toolName: 'look', input: {} }] },
    {
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          toolCallId: '1',
          toolName: 'look',
          output: { type: 'error-json', value: { error: 'interrupted' } },
        },
      ],
    },
    { role: 'user', content: [{ type: 'text', text: 'and?' }] },
  ]);
});

test('blank texts are left out, and halves of surrogates replaced', () => {
  const [, assistant, tool] = promptFor('anthropic', 'any', [
    user({ text: 'go' }),
    model({ text: '\n\n' }, { functionCall: { id: '1', name: 'look', args: { ['k\ud800']: ['\ud83d'] } } }),
    user({ functionResponse: { id: '1', name: 'look', response: { a: '\udc00' } } }),
  ]);
  expect(assistant?.content).toEqual([
    { type: 'tool-call', toolCallId: '1', toolName: 'look', input: { ['k\ufffd']: ['\ufffd'] } },
  ]);
  expect(tool).toMatchObject({ content: [{ output: { value: { a: '\ufffd' } } }] });
});

test.each(['mistral-large-latest', 'ministral-8b', 'mistralai/devstral-small'])(
  '%s: its own words stand between results and what the user says next',
  (modelName) => {
    const response = { functionResponse: { id: '1', name: 'look', response: {} } };
    const prompt = promptFor('openai-compatible', modelName, [...start, user(response, { text: 'next' })]);
    expect(prompt.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant', 'user']);
  },
);
