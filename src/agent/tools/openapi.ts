import { readFile } from 'node:fs/promises';
import { AgentError, ConfigError, UnknownOutcomeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/content.ts';
import { isExactInteger, parseExactJson } from '../../core/exact-json.ts';
import { createEgress } from '../../platform/net/egress.ts';
import { schemaError } from '../arguments/check-arguments.ts';
import type { OpenApiSource } from '../definition/agent.ts';
import { type Effect, type Tool, type ToolContext, toParameters } from '../definition/tool.ts';
import type { McpSettings } from '../mcp/mcp-tools.ts';

/** Time limit of one HTTP request, in milliseconds, if the tool has no lower limit. */
const TIMEOUT_MS = 60_000;
/** Maximum number of characters of an error response that the model receives. */
const MAX_REFUSAL = 2_000;
const METHODS = ['get', 'head', 'options', 'put', 'delete', 'post', 'patch'];
/** Effect of a call by HTTP method; `once` for methods that are not listed. */
const EFFECTS: Record<string, Effect> = {
  get: 'none',
  head: 'none',
  options: 'none',
  put: 'idempotent',
  delete: 'idempotent',
};
/** HTTP headers that no parameter may set: those that OpenAPI 3.1 excludes, and those that delimit the request. */
const RESERVED = /^(?:accept|authorization|cookie|host|connection|content-.*|transfer-encoding|proxy-.*)$/i;

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: JsonObject;
  /** How a list or object is serialized. Default: `form` in a query, `simple` elsewhere. */
  style?: string;
  /** True: each element or member is written as a parameter of its own. Default: true for the style `form`. */
  explode?: boolean;
  /** True: reserved characters in a query are not percent-encoded. */
  allowReserved?: boolean;
  /** Used instead of `schema` if the value is sent as JSON. */
  content?: Record<string, { schema?: JsonObject }>;
}

interface Operation {
  source: OpenApiSource;
  base: string;
  path: string;
  method: string;
  parameters: Parameter[];
  /** True: the tool has an argument `body`, which is sent as JSON. */
  hasBody: boolean;
}

/**
 * Makes a tool of each listed operation. One that a tool cannot call is skipped, with a warning.
 * @throws {ConfigError} for an operation that is not in the document, or a document without a server address
 */
export function openApiTools(source: OpenApiSource, document: JsonObject, settings: McpSettings): Tool[] {
  const operations = listOperations(document);
  return source.operations.flatMap((id) => {
    const operation = operations.get(id);
    if (!operation)
      throw new ConfigError(
        `openapi ${source.name}: there is no operation \`${id}\`, but ${[...operations.keys()].slice(0, 20).join(', ')}.`,
      );
    try {
      return [toTool(source, document, id, operation, settings)];
    } catch (error) {
      if (error instanceof ConfigError) throw error;
      settings.warn?.(`openapi ${source.name}: \`${id}\` is left out: ${(error as Error).message}.`);
      return [];
    }
  });
}

/** @throws {ConfigError} that names the file, if it cannot be read */
export async function readDocument({ name, document }: OpenApiSource): Promise<JsonObject> {
  if (typeof document !== 'string') return document;
  try {
    const { parse } = await import('yaml');
    return parse(await readFile(document, 'utf8')) as JsonObject;
  } catch (cause) {
    throw new ConfigError(`openapi ${name}: ${document} cannot be read as JSON or YAML.`, { cause });
  }
}

function listOperations(document: JsonObject) {
  const paths = Object.entries((document['paths'] ?? {}) as Record<string, JsonObject>);
  return new Map(
    paths.flatMap(([path, item]) =>
      METHODS.flatMap((method) => {
        const written = item[method] as JsonObject | undefined;
        const id = written?.['operationId'];
        return typeof id === 'string' ? [[id, { path, method, item, written }] as const] : [];
      }),
    ),
  );
}

type ListedOperation = NonNullable<ReturnType<ReturnType<typeof listOperations>['get']>>;

function toTool(
  source: OpenApiSource,
  document: JsonObject,
  id: string,
  listed: ListedOperation,
  settings: McpSettings,
): Tool {
  const { path, method, item, written = {} } = listed;
  const servers = (written['servers'] ?? item['servers'] ?? document['servers'] ?? []) as { url?: string }[];
  const base = source.baseUrl ?? servers[0]?.url ?? '';
  if (!URL.canParse(base))
    throw new ConfigError(`openapi ${source.name}: it has no absolute server address; give one as \`base_url\`.`);
  const declarations = [...((item['parameters'] ?? []) as unknown[]), ...((written['parameters'] ?? []) as unknown[])];
  // The operation's parameters come last, because they override those of its path.
  const byName = new Map(
    declarations
      .map((each) => resolveRef(document, each) as Parameter)
      .map((each) => [`${each.in} ${each.name}`, each]),
  );
  const parameters = [...byName.values()].filter(
    (each) => each.in === 'path' || each.in === 'query' || (each.in === 'header' && !RESERVED.test(each.name)),
  );
  const body = resolveRef(document, written['requestBody']) as JsonObject | undefined;
  const content = (body?.['content'] ?? {}) as Record<string, { schema?: JsonObject }>;
  const json = Object.entries(content).find(([type]) => /^application\/(?:[\w.+-]*\+)?json\b/i.test(type))?.[1];
  if (body?.['required'] === true && !json) throw new Error('it takes a body that is no JSON');
  const members = Object.fromEntries([
    ...parameters.map(
      ({ name, description, schema, content: typed = {} }) =>
        [name, { ...(schema ?? Object.values(typed)[0]?.schema), ...(description && { description }) }] as const,
    ),
    ...(json ? [['body', json.schema ?? {}] as const] : []),
  ]);
  const required = parameters.filter((each) => each.required || each.in === 'path').map(({ name }) => name);
  const all = toParameters(members, ...required, ...(body?.['required'] === true ? ['body'] : []));
  const operation: Operation = { source, base, path, method, parameters, hasBody: json !== undefined };
  const name = id.replaceAll(/[^a-zA-Z0-9_-]/g, '_').slice(0, 64);
  const declared = toCurrentSchema(withDefinitions(document, all)) as JsonObject;
  const texts = [written['summary'], written['description']].filter((text) => typeof text === 'string');
  return {
    name,
    description: texts.join('\n') || `${method.toUpperCase()} ${path}`,
    parameters: declared,
    needsConfirmation: false,
    effect: EFFECTS[method] ?? 'once',
    checkArguments: async (args) => schemaError(declared, withoutAbsent(args, declared), 'arguments'),
    run: (args, context) => call(operation, name, settings, withoutAbsent(args, declared), context),
  };
}

/** Removes optional arguments that are null, because models send null for an argument that they want to omit. */
function withoutAbsent(args: JsonObject, { required }: JsonObject): JsonObject {
  const requiredNames = new Set(required as string[] | undefined);
  return Object.fromEntries(Object.entries(args).filter(([name, value]) => value !== null || requiredNames.has(name)));
}

/** Keywords of a schema whose values are data and not schemas. */
const VALUES = new Set(['default', 'enum', 'const', 'example', 'examples', 'required']);

/** Converts a schema of OpenAPI 3.0 to JSON Schema 2020-12: `nullable`, and exclusive bounds that are booleans. */
function toCurrentSchema(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toCurrentSchema);
  if (typeof value !== 'object' || value === null) return value;
  const { nullable, ...members } = Object.fromEntries(
    Object.entries(value).map(([name, member]) => [name, VALUES.has(name) ? member : toCurrentSchema(member)]),
  );
  const schema: JsonObject = members;
  for (const bound of ['minimum', 'maximum'] as const) {
    const exclusive = bound === 'minimum' ? 'exclusiveMinimum' : 'exclusiveMaximum';
    if (typeof schema[exclusive] !== 'boolean') continue;
    const { [exclusive]: isExclusive, ...rest } = schema;
    const limit = schema[bound];
    for (const name of Object.keys(schema)) delete schema[name];
    Object.assign(schema, rest, isExclusive === true && limit !== undefined && { [exclusive]: limit });
    if (isExclusive === true) delete schema[bound];
  }
  if (typeof nullable !== 'boolean') return nullable === undefined ? schema : { ...schema, nullable };
  if (!nullable || typeof schema['type'] !== 'string') return nullable ? { anyOf: [schema, { type: 'null' }] } : schema;
  const values = Array.isArray(schema['enum']) ? { enum: [...(schema['enum'] as unknown[]), null] } : {};
  return { ...schema, ...values, type: [schema['type'], 'null'] };
}

const toPath = (ref: string) =>
  ref
    .slice(2)
    .split('/')
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));

/** Returns the target of a `$ref` within the document; a value with any other `$ref` is returned as it is. */
function resolveRef(document: JsonObject, value: unknown): unknown {
  const ref = (value as JsonObject | undefined)?.['$ref'];
  if (typeof ref !== 'string' || !ref.startsWith('#/')) return value;
  return toPath(ref).reduce<unknown>((at, step) => (at as JsonObject | undefined)?.[step], document);
}

/** Copies the schemas to which a schema refers within the document into the schema's own `$defs`. */
function withDefinitions(document: JsonObject, schema: JsonObject): JsonObject {
  const definitions = new Map<string, unknown>();
  const move = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(move);
    if (typeof value !== 'object' || value === null) return value;
    const members = value as JsonObject;
    const ref = members['$ref'];
    if (typeof ref !== 'string' || !ref.startsWith('#/'))
      return Object.fromEntries(Object.entries(members).map(([name, member]) => [name, move(member)]));
    const name = toPath(ref)
      .join('.')
      .replaceAll(/[^\w.-]/g, '_');
    if (!definitions.has(name)) {
      definitions.set(name, {});
      definitions.set(name, move(resolveRef(document, members)));
    }
    return { $ref: `#/$defs/${name}` };
  };
  const moved = move(schema) as JsonObject;
  return definitions.size > 0 ? { ...moved, $defs: Object.fromEntries(definitions) } : moved;
}

/** Sends the user's access token if the API requires OAuth; a user without a token is asked for consent. */
async function call(operation: Operation, name: string, settings: McpSettings, args: JsonObject, context: ToolContext) {
  const { source, base } = operation;
  const egress = createEgress(settings.egress, context.session.userId);
  const send = (token?: string) => request(operation, egress.fetch, args, context, token);
  try {
    if (!source.userOauth) return await read(name, await send());
    const { openUserToken } = await import('../mcp/mcp-consent.ts');
    const server = { name: source.name, url: base, userOauth: source.userOauth };
    const token = openUserToken(server, settings.openCredentials, context.session.userId);
    const access = token.toAuthProvider(egress.fetch);
    const run = async () => {
      const accessToken = await access.token();
      const response = accessToken === undefined ? undefined : await send(accessToken);
      if (response && response.status !== 401) return read(name, response);
      await access.onUnauthorized?.({
        response: response ?? new Response(null, { status: 401 }),
        serverUrl: new URL(base),
        fetchFn: egress.fetch,
      });
      return read(name, await send(await access.token()));
    };
    const tool: Pick<Tool, 'run'> = { run };
    return await token.guard(tool).run(args, context);
  } finally {
    await egress.close();
  }
}

async function request(
  { source, base, path, method, parameters, hasBody }: Operation,
  fetch: ReturnType<typeof createEgress>['fetch'],
  args: JsonObject,
  { signal }: ToolContext,
  token: string | undefined,
): Promise<Response> {
  const inPath = new Map(parameters.flatMap((each) => (each.in === 'path' ? [[each.name, each]] : [])));
  const filled = path.replaceAll(/\{([^}]+)\}/g, (_whole, name: string) =>
    toSegment(inPath.get(name) ?? { name, in: 'path' }, args[name]),
  );
  const url = new URL(base.replace(/\/$/, '') + filled);
  const headers = new Headers({ accept: 'application/json' });
  const query: string[] = [];
  for (const parameter of parameters) {
    const value = args[parameter.name];
    if (value === undefined || parameter.in === 'path') continue;
    if (parameter.in === 'header') headers.set(parameter.name, toSimple(parameter, value, toText));
    else query.push(...toQuery(parameter, value));
  }
  if (query.length > 0) url.search = [url.search.slice(1), ...query].filter(Boolean).join('&');
  for (const [name, value] of Object.entries(source.headers ?? {})) headers.set(name, value);
  if (token !== undefined) headers.set('authorization', `Bearer ${token}`);
  const body = hasBody && args['body'] !== undefined ? JSON.stringify(args['body']) : undefined;
  if (body !== undefined) headers.set('content-type', 'application/json');
  const limit = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  const init = { method: method.toUpperCase(), headers, redirect: 'manual' as const, signal: limit };
  try {
    return await fetch(url, { ...init, ...(body !== undefined && { body }) });
  } catch (error) {
    if (error instanceof AgentError || signal.aborted) throw error;
    throw new UnknownOutcomeError('tool_failed', `${url.host} could not be reached, or did not answer.`, {
      cause: error,
    });
  }
}

const toText = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value);

/** With `keepsReserved`, reserved characters are not percent-encoded (RFC 3986, section 2.2). */
const encode = (text: string, keepsReserved = false): string =>
  keepsReserved ? encodeURI(text).replaceAll(/[#&+]/g, encodeURIComponent) : encodeURIComponent(text);

/** Separator between the elements of a list, by style. */
const SEPARATORS: Record<string, string> = { form: ',', spaceDelimited: '%20', pipeDelimited: '|' };

/** Serializes an argument as pieces of a query string (OpenAPI 3.1, style values). */
function toQuery({ name, style = 'form', explode, allowReserved, content }: Parameter, value: unknown): string[] {
  const key = encodeURIComponent(name);
  const write = (each: unknown) => encode(toText(each), allowReserved);
  const isExploded = explode ?? style === 'form';
  if (content) return [`${key}=${encode(JSON.stringify(value), allowReserved)}`];
  if (style === 'deepObject') return toDeep(key, value, write);
  const separator = SEPARATORS[style] ?? ',';
  if (Array.isArray(value)) {
    if (isExploded) return value.map((each) => `${key}=${write(each)}`);
    return value.length === 0 ? [] : [`${key}=${value.map(write).join(separator)}`];
  }
  if (!isObject(value)) return [`${key}=${write(value)}`];
  const members = Object.entries(value).filter(([, member]) => member !== null && member !== undefined);
  if (isExploded) return members.map(([member, each]) => `${encodeURIComponent(member)}=${write(each)}`);
  const all = members.flatMap(([member, each]) => [encodeURIComponent(member), write(each)]);
  return all.length === 0 ? [] : [`${key}=${all.join(separator)}`];
}

/**
 * Writes a value in the style `deepObject`, such as `filter[status]=open`, at any depth. Each element of a list is
 * written as `key=element`, which most servers understand.
 */
function toDeep(key: string, value: unknown, write: (value: unknown) => string): string[] {
  if (Array.isArray(value)) return value.flatMap((each) => toDeep(key, each, write));
  if (!isObject(value)) return value === null || value === undefined ? [] : [`${key}=${write(value)}`];
  return Object.entries(value).flatMap(([name, each]) => toDeep(`${key}[${encodeURIComponent(name)}]`, each, write));
}

/** Writes a value in the style `simple`: elements of lists and members of objects are separated by commas. */
function toSimple({ explode = false, content }: Parameter, value: unknown, write: (value: unknown) => string): string {
  if (content) return write(JSON.stringify(value));
  if (Array.isArray(value)) return value.map(write).join(',');
  if (!isObject(value)) return write(value);
  return Object.entries(value)
    .map(([name, each]) => `${write(name)}${explode ? '=' : ','}${write(each)}`)
    .join(',');
}

/** Serializes a value as a path segment. Throws for `.` and `..`, because the model must not change the path. */
function toSegment(parameter: Parameter, value: unknown): string {
  const { name, style = 'simple', explode } = parameter;
  const write = (each: unknown) => encodeURIComponent(toText(each ?? ''));
  const pieces = Array.isArray(value) ? value : [value];
  if (pieces.some((piece) => /^\.{0,2}$/.test(toText(piece ?? ''))))
    throw new Error(`\`${name}\` is no value for an address.`);
  if (style === 'label') return `.${pieces.map(write).join(explode ? '.' : ',')}`;
  if (style === 'matrix')
    return explode
      ? pieces.map((piece) => `;${name}=${write(piece)}`).join('')
      : `;${name}=${pieces.map(write).join(',')}`;
  return toSimple(parameter, value ?? '', write);
}

async function read(name: string, response: Response): Promise<unknown> {
  const text = await response.text();
  if (!response.ok) throw new Error(`\`${name}\` answered HTTP ${response.status}: ${text.slice(0, MAX_REFUSAL)}`);
  try {
    return text === '' ? { status: response.status } : parseExactJson(text);
  } catch {
    return text;
  }
}
