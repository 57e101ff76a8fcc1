import { COMPONENTS } from '../../src/process/app.ts';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { compileDocument } from '../../src/platform/http/validation/openapi-gate.ts';
import { openApiDocument } from '../../src/platform/http/openapi/document.ts';
import { type Operation, operation } from '../../src/platform/http/operation/operation.ts';
import { appPath, INT32_MAX, userPath } from '../../src/platform/http/operation/parameters.ts';
import { MAX_IDENTIFIER_BYTES } from '../../src/core/session.ts';
import { type Sent, type StartedEdge, startEdge } from '../support/edge.ts';
import { sampleOperations } from '../support/edge-operations.ts';

const MAX_BODY_BYTES = 200_000;
const SESSIONS = '/apps/a/users/u/sessions';
const ARTIFACTS = `${SESSIONS}/s/artifacts`;
const JSON_TYPE = { 'content-type': 'application/json' };

let edge: StartedEdge;
beforeAll(async () => {
  edge = await startEdge({ operations: sampleOperations, maxBodyBytes: MAX_BODY_BYTES });
});
afterAll(() => edge.close());

const post = (path: string, body: unknown, headers: Record<string, string> = JSON_TYPE) =>
  edge.send({ method: 'POST', path, body, headers });
const bodyOf = async (sent: Sent) => JSON.parse((await edge.send(sent)).text) as unknown;

/** The whole answer to a refused request: status, media type and every byte of the body. */
async function refusal(sent: Sent): Promise<[number, string | undefined, unknown]> {
  const { status, headers, text } = await edge.send(sent);
  return [status, headers['content-type'], JSON.parse(text)];
}

const refused = (status: number, detail: unknown) => [status, 'application/json', { detail }];
const missing = (loc: unknown[], input: unknown) => ({ type: 'missing', loc, msg: 'Field required', input });
const valueError = (loc: unknown[], text: string, input?: unknown) => ({
  type: 'value_error',
  loc,
  msg: `Value error, ${text}`,
  ...(input === undefined ? {} : { input }),
  ctx: { error: {} },
});
const intParsing = (loc: unknown[], input: string) => ({
  type: 'int_parsing',
  loc,
  msg: 'Input should be a valid integer, unable to parse string as an integer',
  input,
});
const notObject = (loc: unknown[], input: unknown) => ({
  type: 'model_attributes_type',
  loc,
  msg: 'Input should be a valid dictionary or object to extract fields from',
  input,
});
const notString = (loc: unknown[], input: unknown) => ({
  type: 'string_type',
  loc,
  msg: 'Input should be a valid string',
  input,
});

describe('what a handler sees', () => {
  it('gets decoded path parameters, coerced declared query parameters and no body', async () => {
    const path = '/apps/a%20b/users/%C3%BC%2Fx/sessions?limit=5&detailed=YES&ratio=1e2&text=a%26b&limit=7&other=./';
    expect(await bodyOf({ path })).toEqual({
      path: { appName: 'a b', userId: 'ü/x' },
      query: { limit: 7, detailed: true, ratio: 100, text: 'a&b' },
      headers: {},
      // Its set of scopes has no JSON.
      principal: { kind: 'anonymous', scopes: {} },
    });
  });

  it('gets the body as it was sent: unknown members, no defaults, keys named like prototypes', async () => {
    const sent =
      '{"__proto__":{"polluted":1},"topK":2,"unknown":{"b":[1,null]},"constructor":{"prototype":3},"score":-0.5}';
    const { text } = await post('/sample', sent);
    expect(text).toContain(`"body":${sent}`);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
  });

  it('gets the schema’s spelling of a snake_case body', async () => {
    const { text } = await post(SESSIONS, { id: 'x', state: { a_b: 1 }, events: [{ invocation_id: 'i' }] });
    expect(JSON.parse(text)).toMatchObject({
      body: { sessionId: 'x', state: { a_b: 1 }, events: [{ invocationId: 'i' }] },
    });
  });

  it.each<[string, Sent]>([
    ['no body at all', { path: SESSIONS }],
    ['no body, of length 0', { path: SESSIONS, headers: { 'content-length': '0' } }],
    ['an empty body with a media type', { path: SESSIONS, headers: { ...JSON_TYPE, 'content-length': '0' } }],
    ['an empty chunked body', { path: SESSIONS, headers: { ...JSON_TYPE, 'transfer-encoding': 'chunked' } }],
    ['null', { path: SESSIONS, headers: JSON_TYPE, body: 'null' }],
  ])('gets {} for an optional body that is %s', async (_case, sent) => {
    expect(await bodyOf({ method: 'POST', ...sent })).toMatchObject({ body: {} });
  });

  it('answers null as four bytes of JSON', async () => {
    const answer = await post('/dev/apps/a/eval-sets/e/add-session', { evalId: 'e', session_id: 's', userId: 'u' });
    expect([answer.status, answer.text]).toEqual([200, 'null']);
    expect(answer.headers).toMatchObject({ 'content-type': 'application/json', 'content-length': '4' });
    const deleted = await edge.send({ method: 'DELETE', path: `${ARTIFACTS}/x` });
    expect([deleted.status, deleted.text]).toEqual([200, 'null']);
  });
});

describe('body errors in FastAPI’s words', () => {
  const ADD = '/dev/apps/a/eval-sets/e/add-session';
  it.each<[string, unknown, unknown[]]>([
    ['{}', {}, ['evalId', 'sessionId', 'userId'].map((name) => missing(['body', name], {}))],
    ['no body', undefined, [missing(['body'], null)]],
    ['null', 'null', [missing(['body'], null)]],
    ['[]', '[]', [notObject(['body'], [])]],
    ['a string', '"x"', [notObject(['body'], 'x')]],
    ['a number', '5', [notObject(['body'], 5)]],
    [
      'one wrong, in snake_case',
      { eval_id: 1, sessionId: 's', userId: null },
      [notString(['body', 'eval_id'], 1), notString(['body', 'userId'], null)],
    ],
    [
      'both spellings',
      { evalId: 'x', eval_id: 1 },
      [
        missing(['body', 'sessionId'], { evalId: 'x', eval_id: 1 }),
        missing(['body', 'userId'], { evalId: 'x', eval_id: 1 }),
      ],
    ],
  ])('%s', async (_case, body, details) => {
    expect(await refusal({ method: 'POST', path: ADD, body, headers: JSON_TYPE })).toEqual(refused(422, details));
  });

  const words = (type: string, msg: string, ctx?: object) => ({ type, msg, ...(ctx && { ctx }) });
  const dictType = words('dict_type', 'Input should be a valid dictionary');
  const listType = words('list_type', 'Input should be a valid list');
  const intType = words('int_type', 'Input should be a valid integer');
  const intText = words('int_parsing', 'Input should be a valid integer, unable to parse string as an integer');
  const floatText = words('float_parsing', 'Input should be a valid number, unable to parse string as a number');
  const floatType = words('float_type', 'Input should be a valid number');
  const boolText = words('bool_parsing', 'Input should be a valid boolean, unable to interpret input');
  const boolType = words('bool_type', 'Input should be a valid boolean');
  const stringType = words('string_type', 'Input should be a valid string');
  const objectType = words(
    'model_attributes_type',
    'Input should be a valid dictionary or object to extract fields from',
  );
  it.each<[object, (string | number)[], object]>([
    [{ innerPart: 5 }, ['innerPart'], objectType],
    [{ inner_part: { mime_type: 5 } }, ['inner_part', 'mime_type'], stringType],
    [{ inner_part: { mimeType: [] } }, ['inner_part', 'mimeType'], stringType],
    [{ parts: {} }, ['parts'], listType],
    [{ parts: [{}, 'x'] }, ['parts', 1], objectType],
    [{ parts: [{ tags: ['a', null] }] }, ['parts', 0, 'tags', 1], stringType],
    [{ state_delta: [] }, ['state_delta'], dictType],
    [{ topK: 'abc' }, ['topK'], intText],
    [{ topK: [] }, ['topK'], intType],
    [{ topK: true }, ['topK'], intType],
    [{ topK: '5' }, ['topK'], intType],
    [
      { top_k: 1.5 },
      ['top_k'],
      words('int_from_float', 'Input should be a valid integer, got a number with a fractional part'),
    ],
    [{ topK: 0 }, ['topK'], words('greater_than_equal', 'Input should be greater than or equal to 1', { ge: 1 })],
    [{ topK: 11 }, ['topK'], words('less_than_equal', 'Input should be less than or equal to 10', { le: 10 })],
    [{ score: 'x' }, ['score'], floatText],
    [{ score: [] }, ['score'], floatType],
    [{ streaming: 'maybe' }, ['streaming'], boolText],
    [{ streaming: 2 }, ['streaming'], boolText],
    [{ streaming: 1.5 }, ['streaming'], boolType],
    [{ streaming: {} }, ['streaming'], boolType],
    [
      { run_mode: 'foo' },
      ['run_mode'],
      words('enum', "Input should be 'TEXT', 'AUDIO' or 'VIDEO'", { expected: "'TEXT', 'AUDIO' or 'VIDEO'" }),
    ],
    [
      { runtime: 5 },
      ['runtime'],
      // The document publishes a literal of several values as `enum`.
      words('enum', "Input should be 'adk' or 'codex'", { expected: "'adk' or 'codex'" }),
    ],
    [{ only: 'two' }, ['only'], words('literal_error', "Input should be 'one'", { expected: "'one'" })],
    [{ name: 'a' }, ['name'], words('string_too_short', 'String should have at least 2 characters', { min_length: 2 })],
    [
      { name: 'abcde' },
      ['name'],
      words('string_too_long', 'String should have at most 4 characters', { max_length: 4 }),
    ],
    [
      { names: [] },
      ['names'],
      words('too_short', 'List should have at least 1 item after validation, not 0', {
        field_type: 'List',
        min_length: 1,
        actual_length: 0,
      }),
    ],
    [
      { names: ['a', 'b', 'c'] },
      ['names'],
      words('too_long', 'List should have at most 2 items after validation, not 3', {
        field_type: 'List',
        max_length: 2,
        actual_length: 3,
      }),
    ],
    [
      { code: 'b' },
      ['code'],
      words('string_pattern_mismatch', "String should match pattern '^a+$'", { pattern: '^a+$' }),
    ],
    [{ even: 3 }, ['even'], words('value_error', 'Value error, must be even', { error: {} })],
    [{ tools: [1] }, ['tools', 0], stringType],
    [{ depth: 'x' }, ['depth'], intText],
  ])('%j is refused at %j', async (body, path, { type, msg, ctx }: { type?: string; msg?: string; ctx?: object }) => {
    const input = path.reduce<unknown>((value, key) => (value as Record<string | number, unknown>)[key], body);
    const detail = { type, loc: ['body', ...path], msg, input, ...(ctx && { ctx }) };
    const { text, status } = await post('/sample', body);
    // Not only equal: the order of the members is part of the bytes.
    expect([status, text]).toEqual([422, JSON.stringify({ detail: [detail] })]);
  });

  it('lists members that a closed schema does not know', async () => {
    expect(await refusal({ method: 'PUT', path: '/sample', body: { text: 'x', foo: 1, 'ba/r': { a: 2 } } })).toEqual(
      refused(422, [
        { type: 'extra_forbidden', loc: ['body', 'foo'], msg: 'Extra inputs are not permitted', input: 1 },
        { type: 'extra_forbidden', loc: ['body', 'ba/r'], msg: 'Extra inputs are not permitted', input: { a: 2 } },
      ]),
    );
  });

  it('accepts null for every optional member, nested ones too', async () => {
    const nulls = { innerPart: { mimeType: null, tags: null }, parts: null, stateDelta: null, topK: null, tools: null };
    expect(await bodyOf({ method: 'POST', path: '/sample', body: nulls })).toMatchObject({ body: nulls });
  });

  it('puts path errors before query errors before body errors', async () => {
    expect(await refusal({ method: 'POST', path: '/mixed/abc?limit=x', body: { evalId: 1 } })).toEqual(
      refused(422, [
        intParsing(['path', 'version_id'], 'abc'),
        intParsing(['query', 'limit'], 'x'),
        notString(['body', 'evalId'], 1),
      ]),
    );
    expect(await refusal({ method: 'POST', path: '/mixed/abc' })).toEqual(
      refused(422, [intParsing(['path', 'version_id'], 'abc'), missing(['body'], null)]),
    );
  });

  it('answers a hundred details at most, and leaves large inputs out', async () => {
    const parts = Array.from({ length: 5000 }, () => ({ mimeType: 1 }));
    const { status, text } = await post('/sample', { parts });
    const { detail } = JSON.parse(text) as { detail: unknown[] };
    expect([status, detail.length]).toEqual([422, 100]);
    expect(detail[99]).toEqual(notString(['body', 'parts', 99, 'mimeType'], 1));
    const large = { unknown: 'x'.repeat(100_000) };
    expect(await refusal({ method: 'POST', path: ADD, body: large })).toEqual(
      refused(422, [
        { type: 'missing', loc: ['body', 'evalId'], msg: 'Field required' },
        { type: 'missing', loc: ['body', 'sessionId'], msg: 'Field required' },
        { type: 'missing', loc: ['body', 'userId'], msg: 'Field required' },
      ]),
    );
  });
});

describe('large refused bodies', () => {
  let large: StartedEdge;
  beforeAll(async () => {
    large = await startEdge({ operations: sampleOperations, maxBodyBytes: 10_000_000 });
  });
  afterAll(() => large.close());

  it('90,000 wrong events get a hundred details', async () => {
    // With Ajv's allErrors, whose cost per reference grows with the errors before, this takes half a minute and more.
    const body = `{"events":[${'1,'.repeat(90_000)}1]}`;
    const { status, text } = await large.send({ method: 'POST', path: SESSIONS, body, headers: JSON_TYPE });
    const { detail } = JSON.parse(text) as { detail: unknown[] };
    expect([status, detail]).toEqual([
      422,
      Array.from({ length: 100 }, (_, index) => notObject(['body', 'events', index], 1)),
    ]);
  });

  // Without a bound on the values that are visited, these would take minutes.
  it.each<[string, string, unknown[]]>([
    [
      '90,000 wrong items',
      `{"parts":[{"tags":[${'1,'.repeat(90_000)}1]}]}`,
      Array.from({ length: 100 }, (_, index) => notString(['body', 'parts', 0, 'tags', index], 1)),
    ],
    [
      'a wrong item at the end, in snake_case',
      `{"parts":[${'{},'.repeat(45_000)}{"mime_type":[]}]}`,
      [valueError(['body', 'parts', 45_000, 'mime_type'], 'must be string,null')],
    ],
    [
      '90,000 unknown members and a wrong one',
      `{${Array.from({ length: 90_000 }, (_, index) => `"k${index}":0`).join()},"topK":1.5}`,
      [
        {
          type: 'int_from_float',
          loc: ['body', 'topK'],
          msg: 'Input should be a valid integer, got a number with a fractional part',
          input: 1.5,
        },
      ],
    ],
  ])('%s', async (_what, body, details) => {
    const { status, text } = await large.send({ method: 'POST', path: '/sample', body, headers: JSON_TYPE });
    expect([status, JSON.parse(text)]).toEqual([422, { detail: details }]);
  });
});

describe('bodies that are not JSON', () => {
  const NAME = 'Expecting property name enclosed in double quotes';
  it.each([
    ['{"a":1,}', 7, NAME],
    ['{bad', 1, NAME],
    ["{'a':1}", 1, NAME],
    ['{"a" 1}', 5, "Expecting ':' delimiter"],
    ['{"a":"😀é" x}', 10, "Expecting ',' delimiter"],
    ['[1', 2, "Expecting ',' delimiter"],
    ['  ', 2, 'Expecting value'],
    ['{"a":NaN}', 5, 'Expecting value'],
    ['{} y', 3, 'Extra data'],
    ['01', 1, 'Extra data'],
    ['["x', 1, 'Unterminated string starting at'],
    ['{"a":"\u0001"}', 6, 'Invalid control character at'],
    ['{"a":"\\x"}', 6, String.raw`Invalid \escape`],
    ['["\\u12"]', 3, String.raw`Invalid \uXXXX escape`],
  ])('%j: json_invalid, with the place and the words of Python', async (body, place, error) => {
    const detail = { type: 'json_invalid', loc: ['body', place], msg: 'JSON decode error', input: {} };
    expect(await refusal({ method: 'POST', path: '/sample', body, headers: JSON_TYPE })).toEqual(
      refused(422, [{ ...detail, ctx: { error } }]),
    );
  });

  it.each([65, 1000, 90_000])('nesting of %d levels is refused', async (levels) => {
    const body = `{"stateDelta":{"a":${'['.repeat(levels - 2)}1${']'.repeat(levels - 2)}}}`;
    expect(await refusal({ method: 'POST', path: '/sample', body, headers: JSON_TYPE })).toEqual(
      refused(422, [valueError(['body'], 'at most 64 levels of nesting are allowed')]),
    );
  });

  it('takes 64 levels', async () => {
    const body = `{"stateDelta":{"a":${'['.repeat(62)}1${']'.repeat(62)}}}`;
    expect((await post('/sample', body)).status).toBe(200);
  });

  it.each(['1e400', '-1e999', '9'.repeat(310)])('%s is refused with its place', async (number) => {
    const body = `{"stateDelta":{"a":[0,{"b":${number}}]}}`;
    expect(await refusal({ method: 'POST', path: '/sample', body, headers: JSON_TYPE })).toEqual(
      refused(422, [valueError(['body', 'stateDelta', 'a', 1, 'b'], 'the number is too large for a 64-bit float')]),
    );
  });

  it.each<[string, Record<string, string>, unknown, number, string]>([
    [
      'a form',
      { 'content-type': 'application/x-www-form-urlencoded' },
      'a=1',
      415,
      'The body must be application/json.',
    ],
    ['text', { 'content-type': 'text/plain' }, '{}', 415, 'The body must be application/json.'],
    ['no media type', {}, '{}', 415, 'The body must be application/json.'],
    ['a vendor type', { 'content-type': 'application/x+json' }, '{}', 415, 'The body must be application/json.'],
    [
      'multipart',
      { 'content-type': 'multipart/form-data; boundary=x' },
      '--x--',
      415,
      'The body must be application/json.',
    ],
    ['UTF-16', { 'content-type': 'application/json; charset=utf-16' }, '{}', 415, 'The body must be UTF-8.'],
    ['bytes that are not UTF-8', JSON_TYPE, Buffer.from([0x22, 0xff, 0x22]), 400, 'The body is not UTF-8.'],
    ['an encoded surrogate', JSON_TYPE, Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]), 400, 'The body is not UTF-8.'],
    [
      'an unknown encoding',
      { ...JSON_TYPE, 'content-encoding': 'compress' },
      '{}',
      415,
      'The content encoding is not supported: send the body plain, or as gzip or deflate.',
    ],
    ['broken gzip', { ...JSON_TYPE, 'content-encoding': 'gzip' }, '{}', 400, 'The body cannot be decompressed.'],
    ['too large', JSON_TYPE, 'x'.repeat(MAX_BODY_BYTES + 1), 413, `The body is larger than ${MAX_BODY_BYTES} bytes.`],
    [
      'a gzip bomb',
      { ...JSON_TYPE, 'content-encoding': 'gzip' },
      gzipSync(Buffer.alloc(50_000_000, 0x20)),
      413,
      `The body is larger than ${MAX_BODY_BYTES} bytes.`,
    ],
  ])('%s', async (_case, headers, body, status, detail) => {
    expect(await refusal({ method: 'POST', path: '/sample', headers, body })).toEqual(refused(status, detail));
  });

  it('a body that is too large is 413 as a frame of the stream that the Web UI asks for', async () => {
    const accept = { ...JSON_TYPE, accept: 'text/event-stream' };
    const body = 'x'.repeat(MAX_BODY_BYTES + 1);
    const { status, headers, text } = await edge.send({ method: 'POST', path: '/sample', headers: accept, body });
    expect([status, headers['content-type']]).toEqual([413, 'text/event-stream']);
    expect(text).toBe(`data: {"error":"The body is larger than ${MAX_BODY_BYTES} bytes."}\n\n`);
    const wrong = await edge.send({ method: 'POST', path: '/sample', headers: accept, body: '{' });
    expect([wrong.status, wrong.headers['content-type']]).toEqual([422, 'application/json']);
  });

  it.each<[string, Record<string, string>, unknown]>([
    ['gzip', { ...JSON_TYPE, 'content-encoding': 'gzip' }, gzipSync('{"topK":1}')],
    ['a charset', { 'content-type': 'Application/JSON; charset="UTF-8"' }, '{"topK":1}'],
    ['a byte order mark', JSON_TYPE, '\uFEFF{"topK":1}'],
  ])('takes %s', async (_case, headers, body) => {
    expect(await bodyOf({ method: 'POST', path: '/sample', headers, body })).toMatchObject({ body: { topK: 1 } });
  });
});

describe('paths', () => {
  it.each([
    ['0', 0],
    ['5', 5],
    ['%207%20', 7],
    ['+7', 7],
    ['-1', -1],
    ['1.0', 1],
    ['1_000', 1000],
    ['007', 7],
    ['2147483647', 2147483647],
  ])('version %s is the integer %d', async (text, value) => {
    expect(await bodyOf({ path: `${ARTIFACTS}/n/versions/${text}/metadata` })).toEqual({
      operationId: 'harnessRuntimeGetArtifactMetadata',
      name: 'n',
      versionId: value,
    });
  });

  it.each(['2147483648', '-2147483648', '9'.repeat(20), '9'.repeat(400)])(
    'version %s is valid and no int32',
    async (text) => {
      expect(await bodyOf({ path: `${ARTIFACTS}/n/versions/${text}/metadata` })).toEqual({
        operationId: 'harnessRuntimeGetArtifactMetadata',
        name: 'n',
      });
    },
  );

  it.each(['1.5', '1e2', '0x1', 'abc', 'latest', '1__0', '_1', '1.', '-', '%20', 'NaN', '٣', '1%0a2'])(
    'version %s is refused',
    async (text) => {
      expect(await refusal({ path: encodeURI(`${ARTIFACTS}/n/versions/`) + text.replace('٣', '%D9%A3') })).toEqual(
        refused(422, [intParsing(['path', 'version_id'], decodeURIComponent(text))]),
      );
    },
  );

  it('refuses an integer of more digits than Python reads', async () => {
    const text = '1'.repeat(4301);
    expect(await refusal({ path: `${ARTIFACTS}/n/versions/${text}` })).toEqual(
      refused(422, [
        {
          type: 'int_parsing_size',
          loc: ['path', 'version_id'],
          msg: 'Unable to parse input string as an integer, exceeded maximum size',
          input: text,
        },
      ]),
    );
  });

  it.each([
    ['a%2Fb.txt', 'loadArtifact', 'a/b.txt'],
    ['a/b.txt', 'loadArtifact', 'a/b.txt'],
    ['user:a/b/c.txt', 'loadArtifact', 'user:a/b/c.txt'],
    ['user%3Aa', 'loadArtifact', 'user:a'],
    ['a/b/versions', 'listVersions', 'a/b'],
    ['a/b/versions/3', 'loadArtifactVersion', 'a/b'],
    ['a/b/versions/3/metadata', 'harnessRuntimeGetArtifactMetadata', 'a/b'],
    ['a%2Fb/versions/3/metadata', 'harnessRuntimeGetArtifactMetadata', 'a/b'],
    ['a/b/versions/metadata', 'listMetadata', 'a/b'],
    ['versions/metadata', 'loadArtifact', 'versions/metadata'],
    ['versions/versions', 'listVersions', 'versions'],
    ['a/versions/1/versions/2', 'loadArtifactVersion', 'a/versions/1'],
    ['a%252Fb', 'loadArtifact', 'a%2Fb'],
    ['a//b', 'loadArtifact', 'a//b'],
    ['../../etc/passwd', 'loadArtifact', '../../etc/passwd'],
    ['metadata', 'loadArtifact', 'metadata'],
    ['a/b/', 'loadArtifact', 'a/b'],
  ])('artifact %s is %s of %s', async (path, operationId, name) => {
    expect(await bodyOf({ path: `${ARTIFACTS}/${path}?x=a/b` })).toMatchObject({ operationId, name });
  });

  const long = 'ä'.repeat(257);
  it.each<[string, string, number, unknown]>([
    [
      'NUL',
      '/apps/%00/users/u/sessions',
      422,
      [valueError(['path', 'app_name'], 'control characters are not allowed', '\0')],
    ],
    [
      'a line end',
      '/apps/a/users/u%0d%0aX:/sessions',
      422,
      [valueError(['path', 'user_id'], 'control characters are not allowed', 'u\r\nX:')],
    ],
    [
      'over 256 characters',
      `/apps/a/users/${encodeURIComponent(long)}/sessions`,
      422,
      [
        {
          type: 'string_too_long',
          loc: ['path', 'user_id'],
          msg: 'String should have at most 256 characters',
          input: long,
          ctx: { max_length: 256 },
        },
      ],
    ],
    [
      'over the limit of bytes',
      `/apps/a/users/${encodeURIComponent('😀'.repeat(200))}/sessions`,
      422,
      [valueError(['path', 'user_id'], `at most ${MAX_IDENTIFIER_BYTES} bytes of UTF-8 are allowed`, '😀'.repeat(200))],
    ],
    ['a broken escape', '/apps/%ZZ/users/u/sessions', 400, 'The path has a percent-escape that is not valid UTF-8.'],
    ['half an escape', '/apps/%4', 400, 'The path has a percent-escape that is not valid UTF-8.'],
    ['bad UTF-8', '/apps/%ff/users/u/sessions', 400, 'The path has a percent-escape that is not valid UTF-8.'],
    [
      'an encoded surrogate',
      '/apps/%ED%A0%80/users/u/sessions',
      400,
      'The path has a percent-escape that is not valid UTF-8.',
    ],
    [
      'an overlong slash',
      '/apps/%c0%af/users/u/sessions',
      400,
      'The path has a percent-escape that is not valid UTF-8.',
    ],
    ['an empty segment', '/apps//users/u/sessions', 404, 'Not Found'],
    ['an unknown path', '/nope', 404, 'Not Found'],
    ['another case', '/Apps/a/users/u/sessions', 404, 'Not Found'],
    ['a dot segment', '/apps/../openapi.json', 404, 'Not Found'],
    ['a query in the path', '/apps/a/users/u/sessions%3Flimit=1', 404, 'Not Found'],
    ['html', '/<script>alert(1)</script>', 404, 'Not Found'],
  ])('%s', async (_case, path, status, detail) => {
    expect(await refusal({ path })).toEqual(refused(status, detail));
  });

  it.each(['https://a.b', "' or 1=1 --", '{{7*7}}', '..', '%', '{user_id}', '__proto__', ':user_id', '*', '$1'])(
    'the identifier %s is data',
    async (identifier) => {
      const path = `/apps/a/users/${encodeURIComponent(identifier).replaceAll('.', '%2E')}/sessions`;
      expect(await bodyOf({ path })).toMatchObject({ path: { appName: 'a', userId: identifier } });
    },
  );
});

describe('query parameters', () => {
  const parsing = (name: string, what: string, msg: string, input: string) => [
    { type: `${what}_parsing`, loc: ['query', name], msg, input },
  ];
  const intMsg = 'Input should be a valid integer, unable to parse string as an integer';
  const boolMsg = 'Input should be a valid boolean, unable to interpret input';
  const floatMsg = 'Input should be a valid number, unable to parse string as a number';
  it.each<[string, unknown[]]>([
    ['limit=1e2', parsing('limit', 'int', intMsg, '1e2')],
    ['limit=', parsing('limit', 'int', intMsg, '')],
    [
      'limit=0',
      [
        {
          type: 'greater_than_equal',
          loc: ['query', 'limit'],
          msg: 'Input should be greater than or equal to 1',
          input: '0',
          ctx: { ge: 1 },
        },
      ],
    ],
    [
      'detailed=maybe&limit=101',
      [
        {
          type: 'less_than_equal',
          loc: ['query', 'limit'],
          msg: 'Input should be less than or equal to 100',
          input: '101',
          ctx: { le: 100 },
        },
        ...parsing('detailed', 'bool', boolMsg, 'maybe'),
      ],
    ],
    ['detailed=', parsing('detailed', 'bool', boolMsg, '')],
    ['ratio=x', parsing('ratio', 'float', floatMsg, 'x')],
    ['ratio=inf', parsing('ratio', 'float', floatMsg, 'inf')],
    ['ratio=1e999', parsing('ratio', 'float', floatMsg, '1e999')],
  ])('%s', async (query, details) => {
    const { status, text } = await edge.send({ path: `${SESSIONS}?${query}` });
    expect([status, text]).toEqual([422, JSON.stringify({ detail: details })]);
  });

  it.each(['__proto__[x]=1', 'limit[]=5', 'constructor=1', '%ZZ=1', 'a[b][c]=1', 'text=%ff', '&&=&'])(
    '%s harms nothing',
    async (query) => {
      expect((await edge.send({ path: `${SESSIONS}?${query}` })).status).toBe(200);
      expect(({} as { x?: string }).x).toBeUndefined();
    },
  );
});

describe('headers', () => {
  const refusedAs = (type: string, name: string, msg: string, input: string, ctx?: object) => [
    { type, loc: ['header', name], msg, input, ...(ctx && { ctx }) },
  ];
  const atLeast = 'Input should be greater than or equal to 0';
  const atMost = 'Input should be less than or equal to 2147483647';
  const noInteger = 'Input should be a valid integer, unable to parse string as an integer';
  it.each<[string, string, unknown[]]>([
    ['x-count', '1.5', refusedAs('int_parsing', 'x-count', noInteger, '1.5')],
    ['x-count', 'abc', refusedAs('int_parsing', 'x-count', noInteger, 'abc')],
    ['x-count', '', refusedAs('int_parsing', 'x-count', noInteger, '')],
    ['x-count', '-3', refusedAs('greater_than_equal', 'x-count', atLeast, '-3', { ge: 0 })],
    ['x-count', '9999999999', refusedAs('less_than_equal', 'x-count', atMost, '9999999999', { le: INT32_MAX })],
    ['x-count', '9'.repeat(20), refusedAs('less_than_equal', 'x-count', atMost, '9'.repeat(20), { le: INT32_MAX })],
    [
      'X-Color',
      'pink',
      refusedAs('enum', 'x-color', "Input should be 'red' or 'blue'", 'pink', { expected: "'red' or 'blue'" }),
    ],
  ])('%s: %s is refused', async (name, value, details) => {
    const { status, text } = await edge.send({ path: SESSIONS, headers: { [name]: value } });
    expect([status, text]).toEqual([422, JSON.stringify({ detail: details })]);
  });

  it('reach the handler read, those that are declared', async () => {
    const headers = { 'X-Count': ' 7 ', 'x-color': 'blue', 'x-other': 'y' };
    expect(await bodyOf({ path: SESSIONS, headers })).toMatchObject({ headers: { 'x-count': 7, 'x-color': 'blue' } });
  });

  it('are refused after the query and before the body', async () => {
    const sent = { method: 'POST', path: '/mixed/1?limit=x', headers: { 'x-count': 'y' }, body: { evalId: 1 } };
    expect(await refusal(sent)).toEqual(
      refused(422, [
        intParsing(['query', 'limit'], 'x'),
        intParsing(['header', 'x-count'], 'y'),
        notString(['body', 'evalId'], 1),
      ]),
    );
  });
});

describe('aliases', () => {
  const body = { evalId: 'e', sessionId: 's', userId: 'u' };
  const OLD = '/apps/a/eval_sets/e/add_session';

  it('are the operation at another path', async () => {
    expect((await post(OLD, body)).text).toBe('null');
    const refusedThere = await post(OLD, { ...body, evalId: 1 });
    expect(refusedThere.text).toBe((await post('/dev/apps/a/eval-sets/e/add-session', { ...body, evalId: 1 })).text);
    expect(refusedThere.status).toBe(422);
    expect((await edge.send({ path: OLD })).headers.allow).toBe('POST, OPTIONS');
  });
});

describe('methods', () => {
  it('answers HEAD like GET without its body', async () => {
    const got = await edge.send({ path: SESSIONS });
    const head = await edge.send({ method: 'HEAD', path: SESSIONS });
    expect([head.status, head.text]).toEqual([200, '']);
    expect(head.headers['content-length']).toBe(got.headers['content-length']);
  });

  it.each([
    [SESSIONS, 'GET, POST, HEAD, OPTIONS'],
    ['/sample', 'POST, PUT, OPTIONS'],
    [`${ARTIFACTS}/a/b`, 'GET, DELETE, HEAD, OPTIONS'],
  ])('answers OPTIONS of %s with %s', async (path, allow) => {
    const { status, headers, text } = await edge.send({ method: 'OPTIONS', path });
    expect([status, headers.allow, text]).toEqual([204, allow, '']);
  });

  it.each([
    ['PATCH', SESSIONS, 'GET, POST, HEAD, OPTIONS'],
    ['GET', '/sample', 'POST, PUT, OPTIONS'],
    ['TRACE', '/sample', 'POST, PUT, OPTIONS'],
    ['POST', '/openapi.json', 'GET, HEAD'],
  ])('%s %s is 405', async (method, path, allow) => {
    const answer = await edge.send({ method, path });
    expect([answer.status, answer.text, answer.headers.allow]).toEqual([405, '{"detail":"Method Not Allowed"}', allow]);
  });

  it('tries a path with fixed segments first, and falls back to parameters for other methods', async () => {
    const at = (method: 'get' | 'delete', path: string) =>
      operation({
        method,
        path,
        operationId: `${method}${path}`,
        area: 'Sessions',
        summary: path,
        owner: 'service',
        scope: 'read',
        parameters: { path: path.includes('{') ? z.object({ name: z.string() }) : z.object({}) },
        handler: async (_context: unknown, call) => ({ kind: 'value', value: [path, call.path] }),
      });
    const other = await startEdge({
      operations: [at('get', '/t/{name}'), at('delete', '/t/{name}'), at('get', '/t/all')],
    });
    expect((await other.send({ path: '/t/all' })).text).toBe('["/t/all",{}]');
    expect((await other.send({ path: '/t/one' })).text).toBe('["/t/{name}",{"name":"one"}]');
    expect((await other.send({ method: 'DELETE', path: '/t/all' })).text).toBe('["/t/{name}",{"name":"all"}]');
    await other.close();
  });
});

describe('what every answer carries', () => {
  it('has an id, kept when the caller sent a plain one', async () => {
    const own = await edge.send({ path: '/health' });
    expect(own.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
    const kept = await edge.send({ path: '/nope', headers: { 'x-request-id': 'trace-1.2_3' } });
    expect(kept.headers['x-request-id']).toBe('trace-1.2_3');
    const hostile = await edge.send({ path: '/nope', headers: { 'x-request-id': '<script>' } });
    expect(hostile.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('may not be cached, framed, sniffed or run', async () => {
    for (const path of ['/health', '/nope', '/apps/%00/users/u/sessions']) {
      const { headers } = await edge.send({ path });
      expect(headers).toMatchObject({
        'cache-control': 'no-store',
        'content-security-policy': "default-src 'none';frame-ancestors 'none'",
        'x-content-type-options': 'nosniff',
      });
      expect(headers).not.toHaveProperty('x-powered-by');
      expect(headers).not.toHaveProperty('etag');
    }
  });

  it('refuses what is not HTTP with a JSON body', async () => {
    expect(await edge.sendRaw('NONSENSE\r\n\r\n')).toBe(
      'HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 43\r\n\r\n' +
        '{"detail":"The request is not valid HTTP."}',
    );
    expect(await edge.sendRaw(`GET / HTTP/1.1\r\nhost: x\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`)).toContain(
      'HTTP/1.1 431 ',
    );
  });
});

describe('the document and its page', () => {
  it('is published', async () => {
    const { status, text } = await edge.send({ path: '/openapi.json' });
    expect(status).toBe(200);
    expect(JSON.parse(text)).toMatchObject({
      openapi: '3.1.0',
      info: { title: 'Agent Runtime HTTP Interface', version: '0.54.0+sdk-0.8.0.framework-2.2.0' },
    });
  });

  it('is a page whose parts all come from this server and pass its own policy', async () => {
    const page = await edge.send({ path: '/docs' });
    expect(page.headers['content-security-policy']).toContain("script-src 'self';");
    expect(page.text).not.toMatch(/https?:\/\//);
    expect(page.text).not.toMatch(/<script>|<script [^>]*>[^<]|style=| on\w+=/);
    const parts = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1] as string);
    expect(parts).toHaveLength(4);
    const types = [];
    for (const part of parts) {
      const { status, headers } = await edge.send({ path: `/${part}` });
      types.push([status, headers['content-type']]);
    }
    expect(types).toEqual([
      [200, 'image/png'],
      [200, 'text/css; charset=utf-8'],
      [200, 'text/javascript; charset=utf-8'],
      [200, 'text/javascript; charset=utf-8'],
    ]);
    expect((await edge.send({ path: '/docs/package.json' })).status).toBe(404);
  });
});

describe('traps of express-openapi-validator', () => {
  it('keeps nothing per distinct Content-Type', async () => {
    const heap = () => process.memoryUsage().heapUsed;
    await post('/sample', {}, { 'content-type': 'application/json; p=warm' });
    const before = heap();
    for (let index = 0; index < 1000; index++) {
      const { status } = await post('/sample', {}, { 'content-type': `application/json; p=${index}` });
      expect(status).toBe(200);
      await edge.send({ path: SESSIONS, headers: { 'content-type': `application/x-${index}` } });
    }
    // One pair of compiled validators is 0.77 MB: 2,000 of them would be 1.5 GB, garbage of 2,000 requests is not.
    expect(heap() - before).toBeLessThan(200_000_000);
  });

  const published = (operations = sampleOperations) =>
    openApiDocument(operations, { authMode: 'local', components: COMPONENTS });

  it('compiles every validator of the document', async () => {
    await expect(compileDocument(published())).resolves.toBeUndefined();
  });

  it('finds a document that is not valid', async () => {
    await expect(compileDocument({ ...published(), info: {} })).rejects.toThrow('apiDoc was invalid');
    const schema = z.unknown().meta({ type: 'text' });
    const broken = operation({
      method: 'post',
      path: '/x',
      operationId: 'x',
      area: 'Sessions',
      summary: 'x',
      owner: 'service',
      scope: 'read',
      body: { schema, required: true, example: 'x' },
      handler: async () => ({ kind: 'sent' }),
    });
    await expect(compileDocument(published([broken]))).rejects.toThrow('type must be JSONType');
  });
});

describe('operations that contradict each other end the start', () => {
  const at = (path: string, more: Partial<Operation<unknown>> = {}): Operation<unknown> => ({
    method: 'get',
    path,
    operationId: path,
    area: 'Sessions',
    summary: path,
    owner: 'service',
    scope: 'read',
    handler: async () => ({ kind: 'sent' }),
    ...more,
  });
  it.each<[string, Operation<unknown>[], string]>([
    ['an id twice', [at('/a', { operationId: 'x' }), at('/b', { operationId: 'x' })], 'x is taken'],
    ['a route twice', [at('/a'), at('/b', { aliases: ['/a'] })], 'get /a is taken'],
    ['a parameter nobody reads', [at('/a/{app_name}')], '/a/{app_name} and its parameters () differ'],
    [
      'an alias without the parameter',
      [at('/a/{app_name}', { parameters: { path: appPath }, aliases: ['/a'] })],
      '/a and its parameters (appName) differ',
    ],
    [
      'a path whose user nobody checks',
      [at('/a/{app_name}/{user_id}', { parameters: { path: userPath } })],
      'the owner of /a/{app_name}/{user_id} is the user in the path',
    ],
    ['a path without the user that owns it', [at('/a', { owner: 'path' })], 'the owner of /a is the user in the path'],
  ])('%s', async (_what, operations, message) => {
    await expect(startEdge({ operations })).rejects.toThrow(message);
  });
});
