import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { writtenOut } from '../../../../support/document.ts';

interface Schema {
  description?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  prefixItems?: Schema[];
}
interface Content {
  content?: Record<string, { schema: Schema }>;
}
interface Operation {
  operationId: string;
  requestBody?: Content;
  responses: Record<string, Content>;
}

const document = writtenOut(
  JSON.parse(
    readFileSync(new URL('../../../../../src/platform/http/openapi/openapi.json', import.meta.url), 'utf8'),
  ) as {
    paths: Record<string, Record<string, Operation>>;
    components: { schemas: Record<string, Schema> };
  },
);

/** Every member of a schema and of those written out inside of it, with the way to it; references are not followed. */
function* membersOf(schema: Schema, path: string): Generator<[path: string, name: string, member: Schema]> {
  for (const [name, member] of Object.entries(schema.properties ?? {})) {
    yield [`${path}.${name}`, name, member];
    yield* membersOf(member, `${path}.${name}`);
  }
  const { items, additionalProperties: values, anyOf = [], oneOf = [], allOf = [], prefixItems = [] } = schema;
  if (items) yield* membersOf(items, `${path}[]`);
  if (typeof values === 'object') yield* membersOf(values, `${path}{}`);
  for (const part of [...anyOf, ...oneOf, ...allOf, ...prefixItems]) yield* membersOf(part, path);
}

const schemasOf = ({ operationId, requestBody, responses }: Operation): [string, Schema][] =>
  [requestBody, ...Object.values(responses)].flatMap((place) =>
    Object.values(place?.content ?? {}).map(({ schema }): [string, Schema] => [operationId, schema]),
  );
const operations = Object.values(document.paths).flatMap((item) => Object.values(item));
const schemas = [...Object.entries(document.components.schemas), ...operations.flatMap(schemasOf)];
const members = schemas.flatMap(([name, schema]) => [...membersOf(schema, name)]);

describe('every member of the document is described', () => {
  test('the walk sees members of components, of bodies and of answers', () => {
    const paths = members.map(([path]) => path);
    expect(paths).toEqual(
      expect.arrayContaining([
        'Event.usageMetadata',
        'Part.functionCall.partialArgs[].jsonPath',
        'harnessInvoke.run_agent_request.user_id',
        'getAppInfo.agents{}.tools[].functionDeclarations',
      ]),
    );
  });

  test('with a sentence that says more than the name', () => {
    const letters = (text: string) => text.toLowerCase().replaceAll(/[^a-z]/g, '');
    const poor = members.filter(([, name, { description = '' }]) => {
      const isSentence = /^[A-Z0-9`"].*\.$/s.test(description);
      return !isSentence || letters(description).replace(/^(?:the|an?)/, '') === letters(name);
    });
    expect(poor.map(([path]) => path)).toEqual([]);
  });

  test('and so is every named schema', () => {
    const named = Object.entries(document.components.schemas);
    expect(named.filter(([, { description }]) => !description).map(([name]) => name)).toEqual([]);
  });
});
