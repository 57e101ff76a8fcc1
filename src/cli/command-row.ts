import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { parseExactJson } from '../core/exact-json.ts';
import { type Api, type GlobalOptions, listItems, withApi } from './api.ts';
import { cannotRun, CommandError, print, printList, toLine } from './output.ts';

/** A command of the command line. */
export interface CommandRow {
  /** Its words and arguments in commander's notation, such as `sessions label <id> [name=value...]`. */
  usage: string;
  about: string;
  /** Command line at the end of its help. */
  example: string;
  /** Descriptions of arguments, in order. */
  args?: { about?: string; default?: string; choices?: string[] }[];
  options?: [
    flags: string,
    about: string,
    more?: { default?: string; choices?: string[] | undefined; isHidden?: boolean },
  ][];
  /** Text after the example. */
  more?: string;
  /** Options of all commands that it takes; it refuses the others. Default: all. */
  globals?: readonly (keyof GlobalOptions)[];
  /**
   * Imports its code on demand, so that `start` loads only the service. The arguments follow the command.
   * @returns the exit code; nothing: 0
   */
  run: (command: Command, ...args: never[]) => unknown;
}

/** A command that requests one operation. Its options, the request and its pages follow from the OpenAPI document. */
export interface OperationRow extends Omit<CommandRow, 'run'> {
  /** The operation's id. Without such an operation in the document there is no such command. */
  operation: string;
  /**
   * Parameters, or members of the body, by the argument or option that fills each. The document has an option's type,
   * values and help; in `options` the row words it differently. `--app` and `--user` fill `app_name`, `user_id` and
   * `ownerId`.
   */
  fills?: Record<string, string>;
  /** The operation of `--all`, which lists the objects of all users. */
  all?: string;
  /** Further parameters or members of the body. `given` has all arguments and options by their names. */
  values?: (given: never) => object | Promise<object>;
  /** True: starts no service, because its work needs one that keeps running. */
  needsRunning?: true;
  /** Prints a list with these columns: by head the path of a member, such as `latestRun.status`, and its format. */
  columns?: Record<string, string | [path: string, format: (value: never) => string]>;
  /** Printed for an empty list. */
  empty?: (given: GlobalOptions & { all?: boolean }) => string;
  /** Prints each object once, as it comes, until the command is ended; the list is read again at this interval. */
  watchMs?: number;
  /** True: prints the bytes of the answer. */
  isRaw?: true;
  /** The answer for people. Control characters are escaped when it is printed. */
  text?: (answer: never, given: never) => string;
  /** The answer for people as lines with colours, in which all texts of others are escaped already. */
  lines?: (answer: never) => string[] | Promise<string[]>;
  /** Exit code for an answer. If it is set, a refusal of the service exits with 2, because 1 is an outcome of its own. */
  exitCode?: (answer: never) => number;
}

type Given = GlobalOptions & { all?: boolean; limit?: string; [name: string]: unknown };

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  enum?: string[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  minimum?: number;
  maximum?: number;
}

interface Parameter {
  $ref?: string;
  name: string;
  in: string;
  description?: string;
  schema: Schema;
}

interface Operation {
  operationId: string;
  method: string;
  path: string;
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: Record<string, Record<string, unknown>>;
}

let document: Document | undefined;
const operations = new Map<string, Operation>();

/** Reads the published document when the first command asks for it, because `start` has no such command. */
function findOperation(id: string): Operation | undefined {
  if (!document) {
    const file = new URL('../platform/http/openapi/openapi.json', import.meta.url);
    document = JSON.parse(readFileSync(file, 'utf8')) as Document;
    for (const [path, methods] of Object.entries(document.paths))
      for (const [method, operation] of Object.entries(methods))
        operations.set(operation.operationId, { ...operation, method: method.toUpperCase(), path });
  }
  return operations.get(id);
}

function follow<Value extends { $ref?: string }>(value: Value): Value {
  const [, kind = '', name = ''] = /^#\/components\/(\w+)\/(\w+)$/.exec(value.$ref ?? '') ?? [];
  return kind === '' ? value : (document?.components[kind]?.[name] as Value);
}

interface Field {
  isQuery: boolean;
  schema: Schema;
}

/** The parameters of an operation, and the members of its body, by name. */
function fieldsOf({ parameters = [], requestBody }: Operation): Map<string, Field> {
  const fields = new Map<string, Field>();
  const body = requestBody?.content['application/json']?.schema ?? {};
  for (const [name, schema] of Object.entries(follow(body).properties ?? {}))
    fields.set(name, { isQuery: false, schema });
  for (const { name, in: place, description = '', schema } of parameters.map(follow))
    fields.set(name, { isQuery: place === 'query', schema: { description, ...schema } });
  return fields;
}

const typeOf = ({ type }: Schema) => (Array.isArray(type) ? type.find((each) => each !== 'null') : type);
const isPairs = ({ additionalProperties: value }: Schema) => typeof value === 'object' && typeOf(value) === 'string';
const toFlag = (name: string) => `--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

/** Returns a row as a command, or nothing if the document lacks the operation: its feature was removed. */
export function toCommandRow(row: CommandRow | OperationRow): CommandRow[] {
  if ('run' in row) return [row];
  const operation = findOperation(row.operation);
  if (!operation) return [];
  const fields = fieldsOf(operation);
  const names = [...row.usage.matchAll(/[<[](\w+)/g)].map(([, name = '']) => name);
  const filled = Object.entries(row.fills ?? {}).map(([name, field]) => ({
    name,
    field,
    schema: fields.get(field)?.schema ?? {},
  }));
  const run: CommandRow['run'] = async (command, ...args: never[]) => {
    const given = Object.fromEntries(names.map((name, place) => [name, args[place]]));
    return runOperation(row, { ...command.optsWithGlobals<Given>(), ...given }, filled);
  };
  const isWritten = (name: string) =>
    names.includes(name) || row.options?.some(([flags]) => flags.startsWith(`${toFlag(name)} `));
  const options = [
    ...filled.filter(({ name }) => !isWritten(name)).map(({ name, schema }) => toOption(name, schema)),
    ...(row.all === undefined ? [] : [['--all', 'of all users'] as [string, string]]),
    ...(row.options ?? []),
  ];
  return [{ ...row, options, run }];
}

function toOption(name: string, schema: Schema): NonNullable<CommandRow['options']>[number] {
  const type = typeOf(schema);
  const values: Record<string, string> = {
    boolean: '',
    integer: ' <n>',
    number: ' <n>',
    array: ` <${name}...>`,
    object: isPairs(schema) ? ' <name=value...>' : ' <json>',
  };
  const about = (schema.description ?? '')
    .replace(/^./, (letter) => letter.toLowerCase())
    .replaceAll('`', '')
    .replace(/\.$/, '');
  return [toFlag(name) + (values[type ?? ''] ?? ` <${name}>`), about, { choices: schema.enum }];
}

/** Reads an option as its schema has it. @throws {CommandError} with exit code 2 for another value */
function parse(name: string, schema: Schema, value: unknown): unknown {
  if (isPairs(schema)) return toPairs(value as string[]);
  if (typeOf(schema) === 'object') return toJson(toFlag(name), String(value));
  if (typeOf(schema) === 'number') return toNumber(toFlag(name), String(value));
  return typeOf(schema) === 'integer' ? toWhole(toFlag(name), String(value), schema) : value;
}

/** Parses pairs `name=value`. @throws {CommandError} for a text without `=` */
export function toPairs(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const end = text.indexOf('=');
      if (end < 1) throw new CommandError(`A label is written name=value, not ${text}.`, 2);
      return [text.slice(0, end), text.slice(end + 1)];
    }),
  );
}

function toJson(flag: string, text: string): unknown {
  try {
    return parseExactJson(text);
  } catch {
    throw new CommandError(`${flag} is no JSON.`, 2);
  }
}

/** Greatest integer of 32 bits, which the document has as the bound of an integer without one. */
const ANY = 2_147_483_647;

function toWhole(flag: string, text: string, { minimum = -ANY, maximum = ANY }: Schema): number {
  const value = Number(text);
  if (text !== '' && Number.isSafeInteger(value) && value >= minimum && value <= maximum) return value;
  const range = `${minimum > -ANY ? ` from ${minimum}` : ''}${maximum < ANY ? ` to ${maximum}` : ''}`;
  throw new CommandError(`${flag} is a whole number${range}.`, 2);
}

function toNumber(flag: string, text: string): number {
  if (text.trim() !== '' && Number.isFinite(Number(text))) return Number(text);
  throw new CommandError(`${flag} is a number.`, 2);
}

/** An argument or option, with the parameter or member that it fills. */
interface Filled {
  name: string;
  field: string;
  schema: Schema;
}

async function runOperation(row: OperationRow, given: Given, filled: Filled[]): Promise<number> {
  const operation = findOperation((given.all && row.all) || row.operation) as Operation;
  const limit = row.columns && given.limit !== undefined ? toWhole('--limit', given.limit, { minimum: 1 }) : undefined;
  const values = {
    ...Object.fromEntries(
      filled.flatMap(({ name, field, schema }) =>
        given[name] === undefined ? [] : [[field, parse(name, schema, given[name])] as const],
      ),
    ),
    ...(await row.values?.(given as never)),
  };
  const request = toRequest(operation, given, values, limit);
  const work = withApi(given, (api) => printAnswer(api, row, request, given, limit), {
    running: row.needsRunning ?? false,
  });
  return row.exitCode ? work.catch(cannotRun) : work;
}

async function printAnswer(
  api: Api,
  row: OperationRow,
  { method, path, body }: ReturnType<typeof toRequest>,
  given: Given,
  limit: number | undefined,
): Promise<number> {
  if (row.isRaw) {
    const response = await api.open(method, path, body);
    for await (const chunk of response.body ?? [])
      if (!process.stdout.write(chunk)) await once(process.stdout, 'drain');
    return 0;
  }
  if (row.watchMs !== undefined) await watch(api, row, path, given);
  if (row.columns) {
    const items: unknown[] = [];
    for await (const item of listItems(api, path)) if (items.push(item) === limit) break;
    const { json = false } = given;
    const toRow = (item: unknown) => toCells(row, item);
    printList(items, { json, head: Object.keys(row.columns), toRow, empty: row.empty?.(given) ?? '' });
    return 0;
  }
  const result = (await api.send(method, path, body)) as never;
  if (given.json) print(JSON.stringify(result));
  else if (row.lines) console.log((await row.lines(result)).join('\n'));
  else print(row.text?.(result, given as never) ?? '');
  return row.exitCode?.(result) ?? 0;
}

function toRequest(operation: Operation, given: Given, values: Record<string, unknown>, limit: number | undefined) {
  const fields = fieldsOf(operation);
  const own = { app_name: given.app, user_id: given.user, ...values } as Record<string, unknown>;
  const query = new URLSearchParams();
  if (fields.has('ownerId') && !given.all) query.append('ownerId', given.user);
  if (fields.has('cursor')) {
    const most = fields.get('limit')?.schema.maximum ?? ANY;
    query.append('limit', String(Math.min(most, limit ?? most)));
  }
  for (const [name, value] of Object.entries(values))
    if (fields.get(name)?.isQuery) for (const each of [value].flat()) query.append(name, String(each));
  const path = operation.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(own[name])));
  const members = Object.entries(values).filter(
    ([name]) => !fields.get(name)?.isQuery && !operation.path.includes(`{${name}}`),
  );
  const body = operation.requestBody && Object.fromEntries(members);
  return { method: operation.method, path: query.size > 0 ? `${path}?${query.toString()}` : path, body };
}

const toCells = ({ columns = {} }: OperationRow, item: unknown): string[] =>
  Object.values(columns).map((column) => {
    const [path, format] = typeof column === 'string' ? [column, toCell] : column;
    const value = path.split('.').reduce((object, name) => (object as Record<string, unknown> | null)?.[name], item);
    return toLine(format(value as never));
  });

function toCell(value: unknown): string {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

async function watch(api: Api, row: OperationRow, path: string, { json }: Given): Promise<never> {
  for (let known = new Set<unknown>(); ; await sleep(row.watchMs)) {
    const found = new Set<unknown>();
    for await (const item of listItems<{ id: string }>(api, path)) {
      found.add(item.id);
      if (!known.has(item.id)) print(json ? JSON.stringify(item) : toCells(row, item).join('  '));
    }
    known = found;
  }
}
