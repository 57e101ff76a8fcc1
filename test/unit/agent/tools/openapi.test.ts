import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { OpenApiSource } from '../../../../src/agent/definition/agent.ts';
import type { UserCredentials } from '../../../../src/agent/definition/services.ts';
import type { ToolContext } from '../../../../src/agent/definition/tool.ts';
import { finishConsent } from '../../../../src/agent/mcp/mcp-consent.ts';
import { openApiTools } from '../../../../src/agent/tools/openapi.ts';
import type { JsonObject } from '../../../../src/core/content.ts';
import { toExactInteger } from '../../../../src/core/exact-json.ts';
import { startConsentIssuer } from '../../../support/consent-issuer.ts';

let base = '';
let requests: { method: string; url: string; headers: Record<string, unknown>; body: string }[] = [];
let answer: { status: number; text: string; headers?: Record<string, string> };
const server = createServer((request, response) => {
  let body = '';
  request.on('data', (chunk: Buffer) => (body += chunk.toString()));
  request.on('end', () => {
    requests.push({ method: request.method ?? '', url: request.url ?? '', headers: request.headers, body });
    response.writeHead(answer.status, answer.headers).end(answer.text);
  });
});
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
});
afterAll(() => void server.close());
beforeEach(() => {
  requests = [];
  answer = { status: 200, text: '{"ok":true}' };
});

const document = (): JsonObject => ({
  openapi: '3.1.0',
  servers: [{ url: base }],
  paths: {
    '/pets/{id}': {
      parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string' } }],
      get: {
        operationId: 'pets.get',
        summary: 'Finds a pet.',
        parameters: [
          { name: 'tag', in: 'query', schema: { type: 'array', items: { type: 'string' } } },
          { $ref: '#/components/parameters/Lang' },
          { name: 'Authorization', in: 'header', schema: { type: 'string' } },
        ],
      },
      delete: { operationId: 'pets.delete' },
    },
    '/pets': {
      post: {
        operationId: 'pets.add',
        requestBody: {
          required: true,
          content: { 'application/json': { schema: { $ref: '#/components/schemas/Pet' } } },
        },
      },
    },
    '/raw': { put: { operationId: 'raw', requestBody: { required: true, content: { 'text/plain': {} } } } },
  },
  components: {
    parameters: { Lang: { name: 'X-Lang', in: 'header', schema: { type: 'string' }, description: 'A language.' } },
    schemas: {
      Pet: {
        type: 'object',
        properties: { name: { type: 'string' }, child: { $ref: '#/components/schemas/Pet' } },
        required: ['name'],
      },
    },
  },
});

const context = (more: Partial<ToolContext> = {}) =>
  ({
    session: { appName: 'a', userId: 'ann', sessionId: 's' },
    functionCallId: 'c',
    actions: {},
    signal: new AbortController().signal,
    ...more,
  }) as ToolContext;
const make = (operations: string[], source: Partial<OpenApiSource> = {}, more: object = {}) =>
  openApiTools({ name: 'pets', document: '', operations, ...source }, document(), {
    egress: { allowLoopback: true },
    ...more,
  });

test('chosen operations are tools with the effects of their methods; schemas stand by themselves', () => {
  const tools = make(['pets.get', 'pets.delete', 'pets.add']);
  expect(tools.map(({ name, effect }) => [name, effect])).toEqual([
    ['pets_get', 'none'],
    ['pets_delete', 'idempotent'],
    ['pets_add', 'once'],
  ]);
  expect(tools[0]).toMatchObject({
    description: 'Finds a pet.',
    parameters: {
      properties: { id: { type: 'string' }, 'X-Lang': { description: 'A language.' } },
      required: ['id'],
      additionalProperties: false,
    },
  });
  expect(Object.keys(tools[0]?.parameters['properties'] as object)).not.toContain('Authorization');
  const ref = { $ref: '#/$defs/components.schemas.Pet' };
  expect(tools[2]?.parameters).toMatchObject({
    properties: { body: ref },
    required: ['body'],
    $defs: { 'components.schemas.Pet': { properties: { child: ref } } },
  });
});

test('arguments go where the document says, with the credentials of the operator', async () => {
  const [get, add] = make(['pets.get', 'pets.add'], { headers: { authorization: 'Bearer operator' } });
  expect(await get?.run({ id: 'a/../b', tag: ['x', 'y z'], 'X-Lang': 'de' }, context())).toEqual({ ok: true });
  await add?.run({ body: { name: 'Rex' } }, context());
  expect(requests).toMatchObject([
    {
      method: 'GET',
      url: '/v1/pets/a%2F..%2Fb?tag=x&tag=y%20z',
      headers: { 'x-lang': 'de', authorization: 'Bearer operator' },
    },
    { method: 'POST', url: '/v1/pets', body: '{"name":"Rex"}', headers: { 'content-type': 'application/json' } },
  ]);
});

test.each(['.', '..', ''])('the value %j leads to no other path', async (id) => {
  await expect(make(['pets.delete'])[0]?.run({ id }, context())).rejects.toThrow('`id` is no value for an address');
  expect(requests).toEqual([]);
});

test('a refusal is for the model; a redirect is not followed, and the policy holds', async () => {
  answer = { status: 404, text: 'no such pet' };
  const [get] = make(['pets.get']);
  await expect(get?.run({ id: '1' }, context())).rejects.toThrow('`pets_get` answered HTTP 404: no such pet');
  answer = { status: 302, text: '', headers: { location: '/v1/secret' } };
  await expect(get?.run({ id: '1' }, context())).rejects.toThrow('HTTP 302');
  expect(requests).toHaveLength(2);
  const [denied] = make(['pets.get'], {}, { egress: { allowLoopback: false } });
  await expect(denied?.run({ id: '1' }, context())).rejects.toMatchObject({ code: 'egress_denied' });
});

test('a source that cannot work is refused at the start', () => {
  expect(() => make(['pets.find'])).toThrow('openapi pets: there is no operation `pets.find`, but pets.get');
  const { servers: _, ...rest } = document();
  const source = { name: 'pets', document: '', operations: ['pets.get'] };
  expect(() => openApiTools(source, rest, { egress: { allowLoopback: true } })).toThrow('no absolute server address');
});

test('an operation that no tool can call is left out, and named', () => {
  const told: string[] = [];
  const tools = make(['raw', 'pets.get'], {}, { warn: (text: string) => void told.push(text) });
  expect(tools.map(({ name }) => name)).toEqual(['pets_get']);
  expect(told).toEqual(['openapi pets: `raw` is left out: it takes a body that is no JSON.']);
});

const look = (parameter: object, path = '/look') =>
  openApiTools(
    { name: 'odd', document: '', operations: ['look'] },
    {
      openapi: '3.0.3',
      servers: [{ url: base }],
      paths: { [path]: { get: { operationId: 'look', parameters: [parameter] } } },
    },
    { egress: { allowLoopback: true } },
  )[0];

test.each([
  ['a list', {}, ['x', 'y,z'], '?v=x&v=y%2Cz'],
  ['a list with commas', { explode: false }, ['x', 'y,z'], '?v=x,y%2Cz'],
  ['a list with blanks', { style: 'spaceDelimited', explode: false }, [1, 2], '?v=1%202'],
  ['a list with bars', { style: 'pipeDelimited', explode: false }, [1, 2], '?v=1|2'],
  ['an empty list', { explode: false }, [], ''],
  [
    'a deep object',
    { style: 'deepObject', explode: true },
    { state: 'open', by: { id: [1, 2] } },
    '?v[state]=open&v[by][id]=1&v[by][id]=2',
  ],
  ['an object', {}, { a: 1, b: null }, '?a=1'],
  ['an object with commas', { explode: false }, { a: 1, b: 'x y' }, '?v=a,1,b,x%20y'],
  ['JSON', { content: { 'application/json': { schema: { type: 'object' } } } }, { a: 1 }, '?v=%7B%22a%22%3A1%7D'],
  ['reserved characters', { allowReserved: true }, 'a/b?c&d', '?v=a/b?c%26d'],
  ['plain text', {}, 'a/b?c&d', '?v=a%2Fb%3Fc%26d'],
  ['an integer of 19 digits', {}, toExactInteger('1234567890123456789'), '?v=1234567890123456789'],
  ['null', {}, null, ''],
])('%s in a query', async (_, more, value, query) => {
  const tool = look({ name: 'v', in: 'query', ...more });
  expect(await tool?.checkArguments?.({ v: value }, new AbortController().signal)).toBeUndefined();
  await tool?.run({ v: value }, context());
  expect(requests.map(({ url }) => url)).toEqual([`/v1/look${query}`]);
});

test.each([
  ['simple', {}, [1, 2], '1,2'],
  ['an object', { explode: true }, { a: 1, b: 2 }, 'a=1,b=2'],
  ['label', { style: 'label', explode: true }, [1, 2], '.1.2'],
  ['matrix', { style: 'matrix' }, [1, 2], ';v=1,2'],
])('a value of a path: %s', async (_, more, value, segment) => {
  await look({ name: 'v', in: 'path', required: true, ...more }, '/look/{v}')?.run({ v: value }, context());
  expect(requests.map(({ url }) => url)).toEqual([`/v1/look/${segment}`]);
});

test('schemas of OpenAPI 3.0 are read: nullable, and bounds that exclude themselves', async () => {
  const schema = { type: 'integer', nullable: true, minimum: 0, exclusiveMinimum: true, enum: [0, 1, 2] };
  const tool = look({ name: 'v', in: 'query', required: true, schema });
  const check = (v: unknown) => tool?.checkArguments?.({ v }, new AbortController().signal);
  expect([await check(1), await check(null)]).toEqual([undefined, undefined]);
  expect(await check(0)).toContain('must be > 0');
});

test('an answer keeps its digits', async () => {
  answer = { status: 200, text: '{"id":1234567890123456789}' };
  expect(JSON.stringify(await look({ name: 'v', in: 'query' })?.run({}, context()))).toBe(answer.text);
});

test('a user grants access in a browser, and calls carry it', async () => {
  const issuer = await startConsentIssuer();
  try {
    let [grant, begun]: (JsonObject | undefined)[] = [];
    const credentials: UserCredentials = {
      redirectUrl: 'http://front.example/back',
      read: async () => grant,
      renew: async (_resource, _expired, work) => (grant = await work()),
      begin: async ({ kept }) => void (begun = kept),
    };
    const openCredentials = () => credentials;
    const userOauth = { issuer: issuer.url };
    const [get] = make(['pets.get'], { userOauth }, { openCredentials });
    answer = { status: 404, text: '' };
    const asked = context();
    await get?.run({ id: '1' }, asked);
    const request = asked.actions.requestedToolConfirmations?.['c'] as { url: string; hint: string; kept: JsonObject };
    expect(request.hint).toContain('`pets` needs your permission');
    const back = await issuer.open(request.url);
    const [code, iss] = ['code', 'iss'].map((name) => back.searchParams.get(name) ?? undefined);
    grant = await finishConsent(begun ?? {}, { code: code ?? '', iss }, fetch);
    answer = { status: 200, text: '{"ok":true}' };
    requests = [];
    expect(await get?.run({ id: '1' }, context())).toEqual({ ok: true });
    expect(String(requests.at(-1)?.headers['authorization'])).toMatch(/^Bearer \w/);
    // One that is taken back: the call pauses again.
    answer = { status: 401, text: '' };
    issuer.expire();
    const refused = context({ confirmation: { confirmed: false, kept: request.kept } });
    expect(await get?.run({ id: '1' }, refused)).toMatchObject({ error: expect.any(String) as string });
  } finally {
    await issuer.close();
  }
});
