import { readFile } from 'node:fs/promises';
import { AgentError, ConfigError, UnknownOutcomeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/content.ts';
import { createEgress } from '../../platform/net/egress.ts';
import type { OpenApiSource } from '../definition/agent.ts';
import { type Effect, type Tool, type ToolContext, toParameters } from '../definition/tool.ts';
import type { McpSettings } from '../mcp/mcp-tools.ts';

/** Maximum time of one request, where the tool's limits say no less. */
const TIMEOUT_MS = 60_000;
/** Text of a refusal that the model reads. */
const MAX_REFUSAL = 2_000;
const METHODS = ['get', 'head', 'options', 'put', 'delete', 'post', 'patch'];
/** Effects by what HTTP says of methods; `once` for the rest. */
const EFFECTS: Record<string, Effect> = {
  get: 'none',
  head: 'none',
  options: 'none',
  put: 'idempotent',
  delete: 'idempotent',
};
/** Headers that the document does not choose (OpenAPI 3.1, parameter object) or that frame the request. */
const RESERVED = /^(?:accept|authorization|cookie|host|connection|content-.*|transfer-encoding|proxy-.*)$/i;

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: JsonObject;
}

/** One operation as its tool needs it. */
interface Operation {
  source: OpenApiSource;
  base: string;
  path: string;
  method: string;
  parameters: Parameter[];
  /** True: the argument `body` is sent as JSON. */
  hasBody: boolean;
}

/**
 * Makes tools of the operations that a source names, by their ids.
 * @throws {ConfigError} for an operation that the document does not have, or that no tool can call
 */
export function openApiTools(source: OpenApiSource, document: JsonObject, settings: McpSettings): Tool[] {
  const found = listOperations(document);
  return source.operations.map((id) => {
    const operation = found.get(id);
    if (!operation)
      throw new ConfigError(
        `openapi ${source.name}: there is no operation \`${id}\`, but ${[...found.keys()].slice(0, 20).join(', ')}.`,
      );
    return toTool(source, document, id, operation, settings);
  });
}

/** Reads the document of a source. @throws {ConfigError} that names its file */
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

type Found = NonNullable<ReturnType<ReturnType<typeof listOperations>['get']>>;

function toTool(source: OpenApiSource, document: JsonObject, id: string, found: Found, settings: McpSettings): Tool {
  const { path, method, item, written = {} } = found;
  const servers = (written['servers'] ?? item['servers'] ?? document['servers'] ?? []) as { url?: string }[];
  const base = source.baseUrl ?? servers[0]?.url ?? '';
  if (!URL.canParse(base))
    throw new ConfigError(`openapi ${source.name}: it has no absolute server address; give one as \`base_url\`.`);
  const listed = [...((item['parameters'] ?? []) as unknown[]), ...((written['parameters'] ?? []) as unknown[])];
  // Those of the operation come last and win.
  const byName = new Map(
    listed.map((each) => resolveRef(document, each) as Parameter).map((each) => [`${each.in} ${each.name}`, each]),
  );
  const parameters = [...byName.values()].filter(
    (each) => each.in === 'path' || each.in === 'query' || (each.in === 'header' && !RESERVED.test(each.name)),
  );
  const body = resolveRef(document, written['requestBody']) as JsonObject | undefined;
  const content = (body?.['content'] ?? {}) as Record<string, { schema?: JsonObject }>;
  const json = Object.entries(content).find(([type]) => /^application\/(?:[\w.+-]*\+)?json\b/i.test(type))?.[1];
  if (body?.['required'] === true && !json)
    throw new ConfigError(`openapi ${source.name}: \`${id}\` takes a body that is no JSON.`);
  const members = Object.fromEntries([
    ...parameters.map(
      ({ name, description, schema = {} }) => [name, { ...schema, ...(description && { description }) }] as const,
    ),
    ...(json ? [['body', json.schema ?? {}] as const] : []),
  ]);
  const required = parameters.filter((each) => each.required || each.in === 'path').map(({ name }) => name);
  const all = toParameters(members, ...required, ...(body?.['required'] === true ? ['body'] : []));
  const operation: Operation = { source, base, path, method, parameters, hasBody: json !== undefined };
  const name = id.replaceAll(/[^a-zA-Z0-9_-]/g, '_').slice(0, 64);
  const said = [written['summary'], written['description']].filter((text) => typeof text === 'string');
  return {
    name,
    description: said.join('\n') || `${method.toUpperCase()} ${path}`,
    parameters: withDefinitions(document, all),
    needsConfirmation: false,
    effect: EFFECTS[method] ?? 'once',
    run: (args, context) => call(operation, name, settings, args, context),
  };
}

const toPath = (ref: string) =>
  ref
    .slice(2)
    .split('/')
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));

/** Follows a reference into the document itself; others are not followed. */
function resolveRef(document: JsonObject, value: unknown): unknown {
  const ref = (value as JsonObject | undefined)?.['$ref'];
  if (typeof ref !== 'string' || !ref.startsWith('#/')) return value;
  return toPath(ref).reduce<unknown>((at, step) => (at as JsonObject | undefined)?.[step], document);
}

/** Returns a schema whose references into the document are in its own `$defs`. */
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

/** Calls with the user's own access, where the source says so: without it the user is asked. */
async function call(operation: Operation, name: string, settings: McpSettings, args: JsonObject, context: ToolContext) {
  const { source, base } = operation;
  const egress = createEgress(settings.egress, context.session.userId);
  const send = (token?: string) => request(operation, egress.fetch, args, context, token);
  try {
    if (!source.userOauth) return await read(name, await send());
    const { openUserToken } = await import('../mcp/mcp-consent.ts');
    const server = { name: source.name, url: base, userOauth: source.userOauth };
    const token = openUserToken(server, settings, context.session.userId);
    const access = token.toAuthProvider(egress.fetch);
    const run = async () => {
      const given = await access.token();
      const response = given === undefined ? undefined : await send(given);
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
  const filled = path.replaceAll(/\{([^}]+)\}/g, (_whole, name: string) => toSegment(name, args[name]));
  const url = new URL(base.replace(/\/$/, '') + filled);
  const headers = new Headers({ accept: 'application/json' });
  for (const { name, in: place } of parameters) {
    const value = args[name];
    if (value === undefined || place === 'path') continue;
    if (place === 'header') headers.set(name, toText(value));
    else
      for (const each of Array.isArray(value) ? (value as unknown[]) : [value])
        url.searchParams.append(name, toText(each));
  }
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

/** One step of a path: a value of a model must not lead to another one. */
function toSegment(name: string, value: unknown): string {
  const text = toText(value ?? '');
  if (/^\.{0,2}$/.test(text)) throw new Error(`\`${name}\` is no value for an address.`);
  return encodeURIComponent(text);
}

async function read(name: string, response: Response): Promise<unknown> {
  const text = await response.text();
  if (!response.ok) throw new Error(`\`${name}\` answered HTTP ${response.status}: ${text.slice(0, MAX_REFUSAL)}`);
  try {
    return text === '' ? { status: response.status } : (JSON.parse(text) as unknown);
  } catch {
    return text;
  }
}
