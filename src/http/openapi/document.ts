import { z } from 'zod';
import { AREAS, type Operation } from '../operation/operation.ts';
import { pathParameters } from '../operation/paths.ts';

type JsonSchema = Record<string, unknown>;

/** How callers prove who they are; decides the document's `security` (see `bearer.ts`). */
export type AuthMode = 'local' | 'key' | 'jwt';

/**
 * The version label joins the three parts that the specification's "Versioning" names: the deployment tool's version, and
 * as SemVer build metadata those of the SDK and of the agent framework.
 */
const INTERFACE_VERSION = '0.54.0+sdk-0.8.0.framework-2.2.0';

/** What a document is made with beside its operations. */
export interface DocumentOptions {
  authMode: AuthMode;
  /**
   * The schemas that have a name. One that is not here is written out wherever it is used; one that contains itself must be here.
   */
  components: Record<string, z.ZodType>;
}

const TEMPORARY = 'operation-schema-';
const refTo = (name: string) => ({ $ref: `#/components/schemas/${name}` });
const isZod = (schema: object): schema is z.ZodType => '_zod' in schema;

/**
 * The OpenAPI 3.1.0 document of these operations. Pure: the same operations give the same document, key for key.
 * @throws Error when an unnamed schema contains itself (name it in `components`)
 */
export function openApiDocument(operations: Operation[], options: DocumentOptions): object {
  const schemas = jsonSchemas(operations, options.components);
  const secured = options.authMode === 'local' ? [{}, { RuntimeBearer: [] }] : [{ RuntimeBearer: [] }];
  const paths: Record<string, Record<string, object>> = {};
  for (const operation of operations) {
    const item = (paths[operation.path] ??= {});
    item[operation.method] = operationObject(operation, schemas.of);
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Agent Runtime HTTP Interface',
      version: INTERFACE_VERSION,
      description:
        'Hosts an agent application: sessions, ordered events, versioned artifacts, invocations, evaluation.',
    },
    tags: AREAS.map((name) => ({ name })),
    security: secured,
    paths,
    components: {
      securitySchemes: {
        RuntimeBearer: { type: 'http', scheme: 'bearer', description: 'A runtime API key or a user-pool JWT.' },
      },
      schemas: schemas.named,
    },
  };
}

/** All schemas at once, so that references between them stay references; those without a name come out written out. */
function jsonSchemas(
  operations: Operation[],
  components: Record<string, z.ZodType>,
): { named: JsonSchema; of: (schema: object) => object } {
  const registry = z.registry<{ id: string }>();
  const names = new Map<object, string>();
  const add = (schema: object, id: string) => {
    if (!isZod(schema) || names.has(schema)) return;
    registry.add(schema, { id });
    names.set(schema, id);
  };
  for (const [name, schema] of Object.entries(components)) add(schema, name);
  for (const [index, { body, success }] of operations.entries()) {
    if (body) add(body.schema, `${TEMPORARY}${index}-body`);
    if (success) add(success.schema, `${TEMPORARY}${index}-success`);
  }
  const all = convert(registry);
  const of = (schema: object) => {
    const name = names.get(schema);
    if (name === undefined) return schema;
    return name.startsWith(TEMPORARY) ? (all[name] as object) : refTo(name);
  };
  const named = Object.fromEntries(Object.keys(components).map((name) => [name, all[name]]));
  return { named, of };
}

function convert(registry: z.core.$ZodRegistry<{ id: string }>): Record<string, JsonSchema> {
  const { schemas } = z.toJSONSchema(registry, {
    target: 'draft-2020-12',
    // 'output' would close every object with `additionalProperties: false`.
    io: 'input',
    unrepresentable: 'any',
    uri: (id) => refTo(id).$ref,
    override: ({ jsonSchema }) => simplify(jsonSchema),
  });
  for (const [name, schema] of Object.entries(schemas)) {
    delete schema.$schema;
    delete schema.$id;
    const unnamed = JSON.stringify(schema).includes(`"#/components/schemas/${TEMPORARY}`);
    if (unnamed) throw new Error(`The schema ${name} refers to one without a name: name it in src/components.ts.`);
  }
  return schemas;
}

/** Takes off what zod adds and no reader needs, and writes "or null" as a type array, as OpenAPI 3.1 can. */
function simplify(schema: JsonSchema): void {
  delete schema.propertyNames;
  const isOpenObject = schema.properties !== undefined || schema.$ref !== undefined;
  if (isEmptySchema(schema.additionalProperties) && isOpenObject) delete schema.additionalProperties;
  joinNull(schema);
  if (![schema.type].flat().includes('integer')) return;
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
}

function joinNull(schema: JsonSchema): void {
  const [value, none] = Array.isArray(schema.anyOf) && schema.anyOf.length === 2 ? (schema.anyOf as JsonSchema[]) : [];
  if (value === undefined || none?.type !== 'null' || typeof value.type !== 'string' || 'enum' in value) return;
  if ('const' in value) return;
  delete schema.anyOf;
  Object.assign(schema, value, { ...schema, type: [value.type, 'null'] });
}

const isEmptySchema = (value: unknown) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;

function operationObject(operation: Operation, schemaOf: (schema: object) => object): object {
  const { body, description, access } = operation;
  return {
    tags: [operation.area],
    operationId: operation.operationId,
    summary: operation.summary,
    ...(description === undefined ? {} : { description }),
    ...(access === 'open' ? { security: [] } : {}),
    parameters: parameters(operation),
    ...(body && {
      requestBody: { required: body.required, content: { 'application/json': { schema: schemaOf(body.schema) } } },
    }),
    responses: responses(operation, schemaOf),
  };
}

function parameters(operation: Operation): object[] {
  const inPath = pathParameters(operation.path).map((name) => ({
    name,
    in: 'path',
    required: true,
    schema: operation.integerPath?.includes(name)
      ? { type: 'integer' }
      : { type: 'string', minLength: 1, maxLength: 256 },
  }));
  const inQuery = (operation.query ?? []).map((parameter) => ({ ...parameter, in: 'query', required: false }));
  const inHeader = (operation.headers ?? []).map((header) => ({ ...header, in: 'header', required: false }));
  return [...inPath, ...inQuery, ...inHeader];
}

function responses(operation: Operation, schemaOf: (schema: object) => object): object {
  const json = (description: string, schema: object, mediaType = 'application/json') => ({
    description,
    content: { [mediaType]: { schema } },
  });
  const { success, body, access } = operation;
  const refusals: Record<number, string> = {
    ...(access === 'open' ? {} : { 401: 'The credential is missing or not valid.' }),
    ...(body ? { 413: 'The body is larger than allowed.', 415: 'The body is not `application/json`.' } : {}),
    ...operation.errors,
  };
  const takesInput = body !== undefined || operation.query !== undefined || operation.path.includes('{');
  return {
    200: success
      ? json(success.description, schemaOf(success.schema), success.mediaType)
      : json('Done: the JSON value `null`.', { type: 'null' }),
    ...Object.fromEntries(
      Object.entries(refusals).map(([status, reason]) => [status, json(reason, refTo('ApiError'))]),
    ),
    ...(takesInput ? { 422: json('The request does not match its schema.', refTo('HTTPValidationError')) } : {}),
    default: json('Any other failure.', refTo('ApiError')),
  };
}
