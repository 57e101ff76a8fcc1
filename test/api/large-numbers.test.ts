import { afterAll, beforeAll, expect, test } from 'vitest';
import { listAllOperations } from '../../src/process/app.ts';
import type { Operation } from '../../src/platform/http/operation/operation.ts';
import documentOfFile from '../../src/platform/http/openapi/openapi.json' with { type: 'json' };
import { writtenOut } from '../support/document.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { insertOthers, makeOneOfEach } from '../security/support/fixture.ts';
import { type Names, toRequest } from '../security/support/requests.ts';

/** Numbers that no column of PostgreSQL holds, at every place of the document where a number may stand. */

interface Schema {
  $ref?: string;
  type?: string | string[];
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}
interface Documented {
  operationId: string;
  parameters?: { name: string; in: string; schema: Schema }[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}
const document = writtenOut(
  documentOfFile as unknown as {
    paths: Record<string, Record<string, Documented>>;
    components: { schemas: Record<string, Schema> };
  },
);

/** Just past the integers of 32 and of 64 bits, past JavaScript's, and past those that have another text. */
const LARGE = ['2147483648', '9007199254740993', '9223372036854775807', '9223372036854775808', '-9223372036854775809'];
const NUMBERS = [...LARGE, '1e19', '-1e19', '1e308', '-1e308', '1e-308'];
const MARK = '"the number"';
const DEPTH = 6;

/** The places of numbers in a schema; `[]` is an entry of a list, `{}` a member of any name. */
function placesIn(schema: Schema, depth = 0): string[][] {
  if (depth > DEPTH) return [];
  const { $ref } = schema;
  if ($ref !== undefined) return placesIn(document.components.schemas[$ref.split('/').at(-1) ?? ''] ?? {}, depth + 1);
  const isNumber = [schema.type].flat().some((type) => type === 'integer' || type === 'number');
  const { properties = {}, items, additionalProperties: others } = schema;
  const within = (name: string, each: Schema) => placesIn(each, depth + 1).map((rest) => [name, ...rest]);
  return [
    ...(isNumber ? [[]] : []),
    ...[schema.anyOf, schema.oneOf, schema.allOf].flatMap((all) =>
      (all ?? []).flatMap((each) => placesIn(each, depth + 1)),
    ),
    ...Object.entries(properties).flatMap(([name, each]) => within(name, each)),
    ...(items ? within('[]', items) : []),
    ...(typeof others === 'object' ? within('{}', others) : []),
  ];
}

/** A body with the mark at a place; what leads there is made where the body has none. */
function marked(body: unknown, [name, ...rest]: string[]): unknown {
  if (name === undefined) return JSON.parse(MARK);
  if (name === '[]') return [marked(Array.isArray(body) ? body[0] : undefined, rest)];
  const object =
    typeof body === 'object' && body !== null && !Array.isArray(body) ? (body as Record<string, unknown>) : {};
  const member = name === '{}' ? 'any' : name;
  return { ...object, [member]: marked(object[member], rest) };
}

let app: TestApp;
let names: Names;
beforeAll(async () => {
  app = await startApp({ CRONJOBS: 'true', WEBHOOKS: 'true', EVALS: 'true' });
  names = await makeOneOfEach(app, 'alice', {});
  await insertOthers(app.databaseUrl, names);
});
afterAll(() => app.close());

test('a budget and what a model may answer are integers that a column holds', async () => {
  const budgets = '/apps/harness_agent/budgets';
  for (const member of ['maxTokens', 'maxInvocations'])
    for (const number of ['9223372036854775808', '1e19', '1e308', '-1e19']) {
      const { status, body } = await app.send(
        'PUT',
        budgets,
        `{"appliesTo":"app","period":"day","${member}":${number}}`,
      );
      const { detail } = body as { detail: { loc: string[] }[] };
      expect([status, ...new Set(detail.map(({ loc }) => loc.join('.')))]).toEqual([422, `body.${member}`]);
    }
  const largest = { appliesTo: 'app', period: 'day', maxTokens: Number.MAX_SAFE_INTEGER };
  expect((await app.send('PUT', budgets, largest)).status).toBe(200);
  const chat = `{"model":"harness_agent","messages":[{"role":"user","content":"Hello"}],"max_tokens":`;
  expect((await app.post('/v1/chat/completions', `${chat}1e19}`)).status).toBe(400);
  expect((await app.post('/v1/chat/completions', `${chat}4503599627370496}`)).status).toBe(200);
  await app.send('PUT', budgets, { ...largest, maxTokens: null });
});

/** With a budget left behind, calls of models would be refused for it, which is another answer. */
const isLast = (id: string) => Number(id === 'saveBudget');
const cases = (listAllOperations() as Operation<unknown>[])
  .flatMap((operation) => {
    const { path, method, operationId: id } = operation;
    const { requestBody, parameters = [] } = document.paths[path]?.[method] ?? {};
    const inBody = Object.values(requestBody?.content ?? {}).flatMap(({ schema }) => placesIn(schema));
    const inParameters = parameters.filter(({ schema }) => placesIn(schema).length > 0);
    const places = [...new Map(inBody.map((each) => [each.join(), each])).values()];
    return places.length + inParameters.length === 0 ? [] : [{ id, operation, path, places, inParameters }];
  })
  .toSorted((one, other) => isLast(one.id) - isLast(other.id));

test.each(cases)('$id refuses or takes a number of any size', async ({ operation, path, places, inParameters }) => {
  const sent = toRequest(operation, path, names);
  const failed: string[] = [];
  const send = async (place: string, number: string, url: string, body: string | undefined) => {
    const { method, headers } = sent;
    const answer = await app.send(method, url, body, headers);
    if (answer.status >= 500 && answer.status !== 501)
      failed.push(`${place} ${number}: ${answer.status} ${answer.text}`);
  };
  for (const number of NUMBERS) {
    for (const place of places) {
      const body = JSON.stringify(marked(JSON.parse(sent.body ?? '{}'), place)).replace(MARK, number);
      await send(place.join('.'), number, sent.url, body);
    }
    for (const { name, in: where } of inParameters) {
      const url = new URL(sent.url, app.url);
      if (where === 'query') url.searchParams.set(name, number);
      const filled = path.replace(`{${name}}`, number);
      const inPath = toRequest({ ...operation, path: filled }, filled, names).url;
      await send(name, number, where === 'path' ? inPath : `${url.pathname}${url.search}`, sent.body);
    }
  }
  expect(failed).toEqual([]);
});
