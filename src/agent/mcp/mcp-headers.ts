import type { JsonObject } from '../../core/content.ts';

/** Marks an argument that a server wants in a header too, as it stands in the JSON of a schema. */
export const HEADER = '"x-mcp-header":';

/** Returns the schemas of an object's arguments at all depths, without other ways into a schema. */
function* listArguments(schema: JsonObject): Generator<JsonObject> {
  const properties = schema['properties'];
  if (typeof properties !== 'object' || properties === null) return;
  for (const each of Object.values(properties as Record<string, JsonObject | undefined>)) {
    if (typeof each !== 'object') continue;
    yield each;
    yield* listArguments(each);
  }
}

/**
 * True where a tool marks its arguments for headers as the protocol wants it: plain values that are reached by
 * `properties` alone, each with a name of its own. Other tools are left out.
 */
export function hasFineHeaders(inputSchema: JsonObject): boolean {
  const marked = [...listArguments(inputSchema)].filter((each) => 'x-mcp-header' in each);
  const names = marked.map((each) => String(each['x-mcp-header']));
  const areFine = marked.every(
    ({ type, 'x-mcp-header': name }) =>
      /^(?:string|integer|boolean)$/.test(String(type)) &&
      typeof name === 'string' &&
      /^[\w!#$%&'*+.^`|~-]+$/.test(name),
  );
  const isUnique = new Set(names.map((name) => name.toLowerCase())).size === names.length;
  return areFine && isUnique && JSON.stringify(inputSchema).split(HEADER).length === names.length + 1;
}
