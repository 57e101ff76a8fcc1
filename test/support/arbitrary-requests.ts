import fc from 'fast-check';
import type { ModelRequest, ToolDeclaration } from '../../src/agent/definition/model.ts';
import { toSignature } from '../../src/agent/models/signature.ts';
import type { Content, JsonObject, Part } from '../../src/core/content.ts';

/** Conversations and tools as a session may hold them: imported, of other providers, of servers of others. */

const word = fc.constantFrom(
  'a',
  'city',
  'user id',
  '$filter',
  'ids[]',
  'x'.repeat(70),
  '',
  '__proto__',
  'é',
  '1st',
  '-x',
);
const name = fc.oneof(
  word,
  fc.constantFrom('get_weather', 'functions.calc', 'json', '9lives'),
  fc.string({ maxLength: 12 }),
);
const text = fc.oneof(
  fc.constantFrom('', ' ', '\n\n', 'hi', 'half \ud83d', '\udc00', 'json', 'tail \n', '\u0000'),
  fc.string({ maxLength: 30, unit: 'binary' }),
);
const id = fc.oneof(
  fc.constantFrom('', 'call_0', 'call-1', 'functions.calc:0', 'x'.repeat(41), 'é', 'toolu_1', 'abcdefgh1'),
  fc.string({ maxLength: 50 }),
);
const json = fc.jsonValue({ maxDepth: 3 });
const object = fc.dictionary(name, json, { maxKeys: 4 }) as fc.Arbitrary<JsonObject>;

const HEADS = [
  '',
  '89504e470d0a1a0a',
  'ffd8ffe0',
  '474946383961',
  '524946460000000057454250',
  '255044462d312e37',
  '504b0304',
];
const bytes = fc
  .tuple(fc.constantFrom(...HEADS), fc.uint8Array({ maxLength: 20 }))
  .map(([head, rest]) => Buffer.concat([Buffer.from(head, 'hex'), rest]));
const data = fc
  .tuple(bytes, fc.constantFrom('base64', 'base64url'))
  .map(([all, alphabet]) => all.toString(alphabet as 'base64'));
const mimeType = fc.constantFrom(
  ...'image/png image/jpeg image/jpg IMAGE/PNG image/gif image/webp image/bmp image/tiff image/svg+xml image/heic'.split(
    ' ',
  ),
  ...'application/pdf application/json application/xml application/x-yaml application/ld+json application/zip'.split(
    ' ',
  ),
  ...'text/plain text/csv audio/wav audio/mp3 audio/ogg video/mp4 application/octet-stream png application/csv'.split(
    ' ',
  ),
  'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  'text/plain; charset=utf-16le',
  'application/x; charset="latin1"',
  '',
);
const inlineData = fc.record({ mimeType, data, displayName: text }, { requiredKeys: [] });
const fileData = fc.record(
  {
    mimeType,
    fileUri: fc.constantFrom('https://e.com/a.png', 'gs://b/c', 'artifact://x', 'no address', '', 'file:///etc/passwd'),
    displayName: text,
  },
  { requiredKeys: [] },
);
const file: fc.Arbitrary<Part> = fc.oneof(fc.record({ inlineData }), fc.record({ fileData }));
const textFile: fc.Arbitrary<Part> = data.map((each) => ({ inlineData: { mimeType: 'text/csv', data: each } }));

const signature = fc.constantFrom<string | undefined>(
  undefined,
  'no signature',
  'c2lnbmF0dXJl',
  toSignature('anthropic', { anthropic: { signature: 'abc' } }),
  toSignature('anthropic', { anthropic: { redactedData: 'abc' } }),
  toSignature('anthropic', undefined),
  toSignature('openai', { openai: { itemId: 'rs_1', reasoningEncryptedContent: 'abc' } }),
  toSignature('openai', { openai: { itemId: 'rs_2', reasoningEncryptedContent: null } }),
  toSignature('google', { google: { thoughtSignature: 'YWJj' } }),
  toSignature('openai-compatible', undefined),
  toSignature('openai-compatible', { compatible: { reasoningDetails: [{ type: 'reasoning.encrypted' }] as never } }),
);

const call: fc.Arbitrary<Part> = fc
  .record({ functionCall: fc.record({ id, name, args: object }, { requiredKeys: [] }), thoughtSignature: signature })
  .map((part) => part as Part);
const modelPart = (files: fc.Arbitrary<Part>): fc.Arbitrary<Part> =>
  fc.oneof(
    fc.record({ text, thoughtSignature: signature }),
    fc.record({ text, thought: fc.constant(true), thoughtSignature: signature }),
    call,
    files,
    fc.constantFrom<Part>({}, { executableCode: { code: 'x' } }, { codeExecutionResult: {} }),
  );
const response = (files: fc.Arbitrary<Part>): fc.Arbitrary<Part> =>
  fc.record({
    functionResponse: fc.record(
      { id, name, response: fc.oneof(object, fc.record({ error: text })), parts: fc.array(files, { maxLength: 2 }) },
      { requiredKeys: [] },
    ),
  });
const userPart = (files: fc.Arbitrary<Part>): fc.Arbitrary<Part> =>
  fc.oneof(
    fc.record({ text }),
    files,
    response(files),
    fc.constantFrom<Part>({}, { codeExecutionResult: { output: '' } }),
  );

/** Answers some calls with their ids, as most conversations do. */
function answerSome(contents: Content[]): Content[] {
  return contents.flatMap((content, place) => {
    const calls = (content.parts ?? []).flatMap((part) => (part.functionCall ? [part.functionCall] : []));
    if (content.role !== 'model' || calls.length === 0 || place % 4 === 3) return [content];
    const parts = calls.map(({ id: its, name: called }) => ({
      functionResponse: { id: its, name: called, response: { ok: true } },
    }));
    return [content, { role: 'user', parts }];
  });
}

const contents = (files: fc.Arbitrary<Part>): fc.Arbitrary<Content[]> =>
  fc
    .array(
      fc.oneof(
        fc.record({ role: fc.constant('user'), parts: fc.array(userPart(files), { maxLength: 3 }) }),
        fc.record({ role: fc.constant('model'), parts: fc.array(modelPart(files), { maxLength: 4 }) }),
      ),
      { maxLength: 8 },
    )
    .map(answerSome);

const limits = fc.record(
  {
    description: text,
    title: text,
    minimum: fc.integer(),
    exclusiveMinimum: fc.oneof(fc.integer(), fc.boolean()),
    maxLength: fc.oneof(fc.nat(), fc.constant(-1)),
    minItems: fc.nat(3),
    pattern: fc.constantFrom('^a', '(?!x)', '[', '^(?<n>.)$'),
    format: fc.constantFrom('date-time', 'email', 'uri', 'int64'),
    enum: fc.array(json, { maxLength: 3 }),
    const: json,
    default: json,
    nullable: fc.boolean(),
    required: fc.array(name, { maxLength: 3 }),
    $comment: text,
    uniqueItems: fc.boolean(),
  },
  { requiredKeys: [] },
);
const type = fc.constantFrom('string', 'number', 'integer', 'boolean', 'object', 'array', 'null');
const reference = fc.constantFrom(
  '#',
  '#/$defs/a',
  '#/definitions/b',
  '#/properties/city',
  '#/nowhere',
  'https://e.com/s',
  '#anchor',
);

const { schema } = fc.letrec<{ schema: unknown }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.tuple(limits, type).map(([more, one]) => ({ ...more, type: one })),
    limits,
    fc.boolean(),
    fc.record({ $ref: reference }),
    fc.tuple(limits, fc.array(type, { maxLength: 3 })).map(([more, all]) => ({ ...more, type: all })),
    fc
      .tuple(limits, fc.dictionary(name, tie('schema'), { maxKeys: 4 }), fc.oneof(fc.boolean(), tie('schema')))
      .map(([more, properties, additionalProperties]) => ({
        ...more,
        type: 'object',
        properties,
        additionalProperties,
      })),
    fc.record({
      type: fc.constant('array'),
      items: fc.oneof(tie('schema'), fc.array(tie('schema'), { maxLength: 2 })),
    }),
    fc.record({ type: fc.constant('array'), prefixItems: fc.array(tie('schema'), { maxLength: 2 }) }),
    fc
      .tuple(limits, fc.constantFrom('anyOf', 'oneOf', 'allOf'), fc.array(tie('schema'), { maxLength: 3 }))
      .map(([more, choice, all]) => ({ ...more, [choice]: all })),
    fc.record({ not: tie('schema'), if: tie('schema'), else: tie('schema') }, { requiredKeys: [] }),
  ),
}));

const parameters: fc.Arbitrary<JsonObject> = fc.oneof(
  fc
    .tuple(fc.dictionary(name, schema, { maxKeys: 4 }), fc.dictionary(fc.constantFrom('a', 'b'), schema), limits)
    .map(([properties, $defs, more]) => ({ ...more, type: 'object', properties, $defs, definitions: $defs })),
  fc
    .tuple(fc.constantFrom('anyOf', 'oneOf', 'allOf'), fc.array(schema, { maxLength: 3 }), fc.dictionary(name, schema))
    .map(([choice, all, properties]) => ({ type: 'object', properties, [choice]: all })),
  schema.filter((each) => typeof each === 'object').map((each) => each as JsonObject),
  fc.constantFrom<JsonObject>({}, { type: 'object' }, { type: 'object', additionalProperties: { type: 'string' } }),
  fc.record({ type: fc.constant('object'), properties: fc.dictionary(fc.constantFrom('a', 'b'), fc.record({ type })) }),
);

const tool: fc.Arbitrary<ToolDeclaration> = fc.record({
  name,
  description: fc.oneof(text, fc.constant('long '.repeat(400))),
  parameters,
});

/** Requests of any kind. `hasFiles` false: with files of text alone. */
export const arbitraryRequest = (hasFiles: boolean): fc.Arbitrary<Omit<ModelRequest, 'modelName' | 'signal'>> =>
  fc.record(
    {
      instruction: text,
      contents: contents(hasFiles ? fc.oneof(file, textFile) : textFile),
      tools: fc.oneof(
        { arbitrary: fc.array(tool, { maxLength: 4 }), weight: 20 },
        {
          arbitrary: fc.integer({ min: 120, max: 150 }).map((count) =>
            Array.from({ length: count }, (_, place) => ({
              name: `tool_${place}`,
              description: 'One of many.',
              parameters: { type: 'object', properties: {} },
            })),
          ),
          weight: 1,
        },
      ),
      sampling: fc.record(
        {
          stopSequences: fc.array(text, { maxLength: 6 }),
          maxOutputTokens: fc.integer({ min: 1, max: 100 }),
          promptCaching: fc.boolean(),
        },
        { requiredKeys: [] },
      ),
      outputSchema: fc.constant<JsonObject>({
        type: 'object',
        properties: { n: { type: 'integer' } },
        required: ['n'],
        additionalProperties: false,
      }),
    },
    { requiredKeys: ['instruction', 'contents', 'tools', 'sampling'] },
  );

/** Schemas of arguments, with arguments under the names of any. */
export const arbitraryCall = fc.tuple(parameters, named(2));

function named(depth: number): fc.Arbitrary<JsonObject> {
  const leaf = fc.constantFrom<unknown>(null, 1, true, 'text', '1', []);
  const value = depth === 0 ? leaf : fc.oneof(leaf, named(depth - 1), fc.array(named(depth - 1), { maxLength: 2 }));
  return fc.dictionary(word, value, { maxKeys: 4 });
}
