import { isExactInteger, parseExactJson } from '../../core/exact-json.ts';
import { type JsonObject, toMembers } from '../../core/content.ts';
import type { ProviderFacts } from '../providers/provider.ts';

type Facts = Pick<ProviderFacts, 'argumentName' | 'schemas'>;

/** The schema of a tool's arguments as sent to a provider, with the conversion from and to the tool's own schema. */
export interface FittedSchema {
  /** The schema to send. Undefined: the tool has no arguments, and the provider accepts no empty schema. */
  schema: JsonObject | undefined;
  /** Alternative sets of required arguments, for the tool's description, because the schema cannot express them. */
  alternatives: string[][];
  /** How arguments are converted between the tool's schema and the sent one. Undefined: they are the same in both. */
  code: Code | undefined;
}

/** How values of one part of a schema are converted: members have other names, or a value is JSON text. */
interface Code {
  /** Members of the tool's schema by the name that the provider uses. */
  members: Map<string, { name: string; code: Code | undefined }>;
  /** The provider's names of members, by the name in the tool's schema. */
  names: Map<string, string>;
  items?: Code | undefined;
  /** Conversion of the values of members that the schema does not name. */
  others?: Code | undefined;
  /** True: the model gives the value as JSON text. */
  isText?: boolean;
  /** Name of a single member in which the model gives the whole value as JSON text. */
  wrap?: string;
  /** Further conversions of the same value, one for each alternative or combined schema. */
  also: Code[];
}

const MAX_NODES = 4_000;
/** How often a recursive schema is repeated within itself, if references must be replaced by their targets. */
const MAX_TURNS = 2;
const MAX_DEPTH = 24;

const isObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactInteger(value);

const cache = new WeakMap<JsonObject, Map<Facts, FittedSchema | string>>();

/** Converts a tool's schema for a provider; returns the reason if that is impossible. Cached by schema object. */
export function fitSchema(schema: JsonObject, facts: Facts): FittedSchema | string {
  const byFacts = cache.get(schema) ?? new Map<Facts, FittedSchema | string>();
  cache.set(schema, byFacts);
  const before = byFacts.get(facts);
  if (before !== undefined) return before;
  const fitted = fit(schema, facts);
  byFacts.set(facts, fitted);
  return fitted;
}

function fit(schema: JsonObject, facts: Facts): FittedSchema | string {
  try {
    if (facts.schemas === 'json-schema' && isPlainTop(schema, facts))
      return { schema, alternatives: [], code: undefined };
    return new Fitting(schema, facts).fitTop();
  } catch (error) {
    return error instanceof UnfitError ? error.message : 'its schema cannot be read';
  }
}

class UnfitError extends Error {}

/** JSON Schema keywords whose value is a schema; below, those with a list of schemas, and with schemas by name. */
const ONE = ['additionalProperties', 'contains', 'propertyNames', 'not', 'if', 'then', 'else', 'unevaluatedProperties'];
const LISTS = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
const NAMED = ['properties', 'patternProperties', 'dependentSchemas', '$defs', 'definitions'];
const COMBINED = ['anyOf', 'oneOf', 'allOf', 'enum', 'const', 'not', '$ref'];
const TYPES = new Set(['string', 'number', 'integer', 'boolean', 'object', 'array', 'null']);

/** True for a schema that all providers with support for JSON Schema accept unchanged. */
function isPlainTop(schema: JsonObject, facts: Facts): boolean {
  const isTop = schema['type'] === 'object' && isObject(schema['properties']);
  return isTop && COMBINED.every((name) => !Object.hasOwn(schema, name)) && isPlain(schema, schema, facts, 0);
}

function isPlain(schema: unknown, root: JsonObject, facts: Facts, depth: number): boolean {
  if (!isObject(schema) || depth > 2 * MAX_DEPTH) return false;
  const { type, properties, required, items, $ref } = schema;
  const types = Array.isArray(type) ? type : [type];
  if (type !== undefined && (types.length === 0 || !types.every((each) => TYPES.has(each as string)))) return false;
  if (new Set(types).size < types.length) return false;
  if (types.includes('object') && !isObject(properties)) return false;
  if (types.includes('array') && !isObject(items)) return false;
  if (properties !== undefined) {
    if (!isObject(properties) || !Object.keys(properties).every((name) => facts.argumentName.test(name))) return false;
  }
  if (required !== undefined && !isListOfNames(required, properties)) return false;
  if (typeof schema['exclusiveMinimum'] === 'boolean' || typeof schema['exclusiveMaximum'] === 'boolean') return false;
  if (schema['nullable'] !== undefined || schema['dependencies'] !== undefined) return false;
  if (schema['$schema'] !== undefined && depth === 0 && /draft-0[34]/.test(JSON.stringify(schema['$schema'])))
    return false;
  if (
    $ref !== undefined &&
    !(typeof $ref === 'string' && /^#(?:\/(?:\$defs|definitions)\/[\w.-]+)?$/.test($ref) && resolve(root, $ref))
  )
    return false;
  const next = (value: unknown) => isPlain(value, root, facts, depth + 1);
  if (items !== undefined && !next(items)) return false;
  const isPart = (name: string) =>
    !Object.hasOwn(schema, name) || typeof schema[name] === 'boolean' || next(schema[name]);
  return (
    ONE.every(isPart) &&
    LISTS.every((name) => !Object.hasOwn(schema, name) || isFilled(schema[name], next)) &&
    NAMED.every((name) => !Object.hasOwn(schema, name) || Object.values(toMembers(schema[name])).every(next))
  );
}

const isFilled = (list: unknown, isGood: (value: unknown) => boolean) =>
  Array.isArray(list) && list.length > 0 && list.every(isGood);

const isListOfNames = (required: unknown, properties: unknown) =>
  Array.isArray(required) &&
  required.every((name) => typeof name === 'string') &&
  new Set(required).size === required.length &&
  (properties === undefined || required.every((name) => Object.hasOwn(toMembers(properties), name)));

/** Returns the schema to which a `$ref` within the document refers; `undefined` if there is none. */
function resolve(root: JsonObject, ref: string): JsonObject | undefined {
  const id = typeof root['$id'] === 'string' ? root['$id'].replace(/#$/, '') : undefined;
  const local = id && ref.startsWith(`${id}#`) ? ref.slice(id.length) : ref;
  if (local === '#' || local === '') return root;
  if (!local.startsWith('#')) return undefined;
  if (!local.startsWith('#/')) return findAnchor(root, local.slice(1), 0);
  let value: unknown = root;
  for (const step of local.slice(2).split('/')) {
    const name = decode(step);
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as JsonObject)[name];
  }
  return isObject(value) ? value : typeof value === 'boolean' ? {} : undefined;
}

function decode(step: string): string {
  const plain = step.replaceAll('~1', '/').replaceAll('~0', '~');
  try {
    return decodeURIComponent(plain);
  } catch {
    return plain;
  }
}

function findAnchor(value: unknown, anchor: string, depth: number): JsonObject | undefined {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return undefined;
  if (isObject(value) && (value['$anchor'] === anchor || value['$id'] === `#${anchor}`)) return value;
  for (const member of Object.values(value)) {
    const match = findAnchor(member, anchor, depth + 1);
    if (match) return match;
  }
  return undefined;
}

interface Converted {
  schema: JsonObject;
  code: Code;
}

const newCode = (): Code => ({ members: new Map(), names: new Map(), also: [] });

/** The arguments that a schema allows, whether it describes them itself or through `allOf`, `anyOf` or `oneOf`. */
interface Arguments {
  properties: Map<string, unknown[]>;
  required: Set<string>;
  alternatives: string[][];
  isClosed: boolean;
  isOpen: boolean;
}

class Fitting {
  readonly #root: JsonObject;
  readonly #facts: Facts;
  /** The provider's name by argument name; the same at every depth. */
  readonly #names = new Map<string, string>();
  readonly #taken = new Set<string>();
  readonly #definitions = new Map<string, { name: string; schema: JsonObject | undefined; code: Code }>();
  #nodes = 0;
  /** True if the provider's encoding of some argument differs from the tool's schema. */
  #differs = false;

  constructor(root: JsonObject, facts: Facts) {
    this.#root = root;
    this.#facts = facts;
    this.#takeNames(root, 0);
  }

  fitTop(): FittedSchema {
    const args: Arguments = {
      properties: new Map(),
      required: new Set(),
      alternatives: [],
      isClosed: false,
      isOpen: false,
    };
    this.#collect(this.#root, args, new Set());
    const properties = [...args.properties].map(([name, schemas]): [string, unknown] => [
      name,
      schemas.length === 1 ? schemas[0] : { anyOf: schemas },
    ]);
    const required = [...args.required];
    const isGoogle = this.#facts.schemas === 'google';
    if (isGoogle && properties.length === 0) return args.isOpen ? wrapped() : none();
    const rest = Object.fromEntries(
      Object.entries(this.#root).filter(([name]) => !COMBINED.includes(name) && name !== 'nullable'),
    );
    const top = { ...rest, type: 'object', properties: Object.fromEntries(properties), required };
    const { schema, code } = isGoogle ? this.#ofType('object', top, []) : this.#makeOpen(top, []);
    if (!isGoogle) {
      if (args.isClosed && schema['additionalProperties'] === undefined) schema['additionalProperties'] = false;
      const defined = [...this.#definitions.values()].map(({ name, schema: its }) => [name, its ?? {}] as const);
      if (defined.length > 0) schema['$defs'] = Object.fromEntries(defined);
    }
    const alternatives = args.alternatives.map((set) => set.map((name) => this.#nameOf(name)));
    return { schema, alternatives, code: this.#differs ? code : undefined };
  }

  /** Collects the arguments that the schema itself describes, those of `allOf`, and those of `anyOf` and `oneOf`. */
  #collect(value: unknown, args: Arguments, seen: Set<unknown>): void {
    if (!isObject(value) || seen.has(value)) return;
    seen.add(value);
    const { type, properties, required, $ref } = value;
    if (type !== undefined && type !== 'object' && !(Array.isArray(type) && type.includes('object')))
      throw new UnfitError('its arguments are no object');
    for (const [name, member] of Object.entries(toMembers(properties)))
      if (member !== false) add(args.properties, name, member);
    for (const name of Array.isArray(required) ? required : []) if (typeof name === 'string') args.required.add(name);
    if (value['additionalProperties'] === false) args.isClosed = true;
    else if (value['additionalProperties'] || value['patternProperties']) args.isOpen = true;
    if (typeof $ref === 'string') this.#collect(resolve(this.#root, $ref), args, seen);
    for (const part of toList(value['allOf'])) this.#collect(part, args, seen);
    for (const part of [value['then'], value['else'], ...Object.values(toMembers(value['dependentSchemas']))])
      this.#collectOptional(part, args, seen);
    for (const choice of ['anyOf', 'oneOf']) {
      const parts = toList(value[choice]).map((part) => this.#collectOptional(part, args, seen));
      const sets = parts.flatMap((part) => (part ? [[...part.required]] : []));
      if (parts.length > 1) args.alternatives.push(...sets);
      if (parts.length === 1) for (const name of sets[0] ?? []) args.required.add(name);
      // The merged schema forbids further arguments only if each alternative forbids them.
      if (parts.length > 0 && parts.every((part) => part?.isClosed)) args.isClosed = true;
      const all = sets.length === parts.length ? sets : [];
      for (const name of all[0] ?? []) if (all.every((set) => set.includes(name))) args.required.add(name);
    }
    const values = [...toList(value['enum']), value['const']].filter(isObject);
    for (const each of values)
      for (const [name, member] of Object.entries(each)) add(args.properties, name, { const: member });
    // Adds arguments that are required although no part of the schema describes them.
    for (const name of args.required) if (!args.properties.has(name)) add(args.properties, name, {});
  }

  /** Collects an alternative's arguments, as optional ones; `undefined` if the alternative describes no object. */
  #collectOptional(value: unknown, args: Arguments, seen: Set<unknown>): Arguments | undefined {
    const part: Arguments = {
      properties: new Map(),
      required: new Set(),
      alternatives: [],
      isClosed: false,
      isOpen: false,
    };
    try {
      this.#collect(value, part, new Set(seen));
    } catch (error) {
      if (error instanceof UnfitError) return undefined;
      throw error;
    }
    for (const [name, schemas] of part.properties) {
      const isBare = schemas.every((schema) => isObject(schema) && Object.keys(schema).length === 0);
      if (!isBare || !args.properties.has(name)) for (const schema of schemas) add(args.properties, name, schema);
    }
    args.isOpen ||= part.isOpen;
    args.alternatives.push(...part.alternatives);
    return part;
  }

  /** Reserves all argument names that the provider accepts, so that no renamed argument gets one of them. */
  #takeNames(value: unknown, depth: number): void {
    if (typeof value !== 'object' || value === null || depth > 200) return;
    if (isObject(value)) {
      const dependents = Object.entries(toMembers(value['dependentRequired'])).flatMap(([name, list]) => [
        name,
        ...toNames(list),
      ]);
      const values = [...toList(value['enum']), value['const']].filter(isObject);
      const described = [value['properties'], value['dependentSchemas'], ...values].flatMap((each) =>
        Object.keys(toMembers(each)),
      );
      for (const name of [...described, ...dependents, ...toNames(value['required'])])
        if (this.#facts.argumentName.test(name)) this.#taken.add(name);
    }
    for (const member of Object.values(value)) this.#takeNames(member, depth + 1);
  }

  #nameOf(name: string): string {
    const before = this.#names.get(name);
    if (before !== undefined) return before;
    const isGood = this.#facts.argumentName.test(name);
    const free = isGood ? name : toFreeName(name, this.#taken, 64);
    this.#taken.add(free);
    this.#names.set(name, free);
    if (!isGood) this.#differs = true;
    return free;
  }

  #member(name: string, schema: unknown, code: Code, path: unknown[]): [string, JsonObject] {
    const converted = this.#make(schema, path);
    const sentName = this.#nameOf(name);
    code.members.set(sentName, { name, code: converted.code });
    code.names.set(name, sentName);
    return [
      sentName,
      sentName === name ? converted.schema : describe(converted.schema, `Named \`${name.slice(0, 200)}\`.`),
    ];
  }

  #make(value: unknown, path: unknown[]): Converted {
    this.#nodes += 1;
    if (this.#nodes > 20 * MAX_NODES) throw new UnfitError('its schema is too large');
    if (this.#facts.schemas === 'google') return this.#makeClosed(value, path);
    if (path.length > 20 * MAX_DEPTH) throw new UnfitError('its schema is too deep');
    return isObject(value) ? this.#makeOpen(value, [...path, value]) : { schema: {}, code: newCode() };
  }

  // Converts a schema for providers that accept all of JSON Schema.

  #makeOpen(value: JsonObject, path: unknown[]): Converted {
    const code = newCode();
    const made: JsonObject = {};
    const part = (name: string, schema: unknown): JsonObject => {
      const { schema: fitted, code: its } = this.#make(schema, path);
      if (name === 'items') code.items = join(code.items, its);
      else if (name === 'additionalProperties') code.others = its;
      else code.also.push(its);
      return fitted;
    };
    const types = [value['type']].flat().filter((type) => TYPES.has(type as string));
    for (const [name, member] of Object.entries(value)) {
      if (SKIPPED.has(name)) continue;
      if (ONE.includes(name)) made[name] = typeof member === 'boolean' ? member : part(name, member);
      else if (LISTS.includes(name)) {
        if (toList(member).length === 0) continue;
        if (name === 'prefixItems') made[name] = toList(member).map((each) => part('items', each));
        else made[name] = toList(member).map((each) => part(name, each));
      } else if (name === 'dependentSchemas') {
        const schemas = Object.entries(toMembers(member));
        made[name] = Object.fromEntries(schemas.map(([each, schema]) => [this.#nameOf(each), part(name, schema)]));
      } else if (name === 'patternProperties') {
        const schemas = Object.entries(toMembers(member)).filter(([pattern]) => isPattern(pattern));
        made[name] = Object.fromEntries(schemas.map(([pattern, schema]) => [pattern, part(name, schema)]));
      } else if (name === 'dependentRequired') {
        const lists = Object.entries(toMembers(member)).map(([each, list]) => [
          this.#nameOf(each),
          toNames(list).map((one) => this.#nameOf(one)),
        ]);
        made[name] = Object.fromEntries(lists) as JsonObject;
      } else if (name === 'enum') {
        if (Array.isArray(member) && member.length > 0) made[name] = distinct(member);
      } else if (isWellTyped(name, member)) made[name] = member;
    }
    this.#addType(value, made, types);
    this.#addMembers(value, made, code, types, path);
    this.#addItems(value, made, types, part);
    const { $ref } = value;
    if (typeof $ref === 'string') {
      const target = this.#define($ref);
      if (target) code.also.push(target.code);
      if (target) made['$ref'] = `#/$defs/${target.name}`;
    }
    return { schema: made, code };
  }

  #addType(value: JsonObject, made: JsonObject, types: unknown[]): void {
    const unique = [...new Set(types)];
    if (unique.length > 0) {
      if (value['nullable'] === true && !unique.includes('null')) unique.push('null');
      made['type'] = unique.length === 1 ? unique[0] : unique;
      if (value['nullable'] === true && Array.isArray(made['enum']) && !made['enum'].includes(null))
        made['enum'] = [...made['enum'], null];
    }
    for (const [name, limit] of [
      ['exclusiveMinimum', 'minimum'],
      ['exclusiveMaximum', 'maximum'],
    ] as const) {
      if (typeof value[name] !== 'boolean') continue;
      if (value[name] && typeof value[limit] === 'number') {
        made[name] = value[limit];
        delete made[limit];
      }
    }
  }

  #addMembers(value: JsonObject, made: JsonObject, code: Code, types: unknown[], path: unknown[]): void {
    const { properties } = value;
    if (!isObject(properties) && !types.includes('object')) {
      if (Array.isArray(value['required']))
        made['required'] = toNames(value['required']).map((each) => this.#nameOf(each));
      return;
    }
    const members = new Map(Object.entries(toMembers(properties)));
    const required = toNames(value['required']);
    for (const name of required) if (!members.has(name)) members.set(name, {});
    made['properties'] = Object.fromEntries(
      [...members].map(([name, schema]) => this.#member(name, schema, code, path)),
    );
    if (required.length > 0) made['required'] = required.map((name) => this.#nameOf(name));
  }

  #addItems(
    value: JsonObject,
    made: JsonObject,
    types: unknown[],
    part: (name: string, schema: unknown) => JsonObject,
  ) {
    const { items } = value;
    if (Array.isArray(items)) {
      // A list of schemas in `items` is a tuple in drafts before 2020-12, and `prefixItems` since then.
      if (items.length > 0) made['prefixItems'] = items.map((each) => part('items', each));
      const rest = value['additionalItems'];
      made['items'] = isObject(rest) ? part('items', rest) : {};
      if (rest === false) made['maxItems'] ??= items.length;
    } else if (isObject(items)) made['items'] = part('items', items);
    else if (types.includes('array') || items === true) made['items'] = {};
    else if (items === false) made['items'] = {};
    if (items === false && Array.isArray(value['prefixItems'])) made['maxItems'] ??= value['prefixItems'].length;
  }

  /** Converts the target of a `$ref` to a definition of the new schema, once per target. */
  #define(ref: string): { name: string; code: Code } | undefined {
    const before = this.#definitions.get(ref);
    if (before) return before;
    const target = resolve(this.#root, ref);
    if (!target) return undefined;
    const last = decode(ref.split('/').at(-1) ?? '').replaceAll(/[^a-zA-Z0-9_-]/g, '_');
    const names = new Set([...this.#definitions.values()].map(({ name }) => name));
    const definition: { name: string; schema: JsonObject | undefined; code: Code } = {
      name: toFreeName(last, names, 60),
      schema: undefined,
      code: newCode(),
    };
    this.#definitions.set(ref, definition);
    const made = this.#make(target, []);
    definition.schema = made.schema;
    definition.code.also.push(made.code);
    return definition;
  }

  // Converts a schema for Google, which accepts only a closed list of keywords.

  #makeClosed(value: unknown, path: unknown[]): Converted {
    if (!isObject(value)) return { schema: {}, code: newCode() };
    if (this.#nodes > MAX_NODES || path.length > MAX_DEPTH) return this.#asText(value);
    const whole = this.#whole(value, path);
    if (!whole) return this.#asText(value);
    const { node, path: below } = whole;
    const choices = [...toList(node['anyOf']), ...toList(node['oneOf'])];
    const types = [node['type']].flat().filter((type): type is string => TYPES.has(type as string));
    if (node['nullable'] === true && types.length > 0 && !types.includes('null')) types.push('null');
    if (choices.length > 0)
      return this.#choice(
        choices.map((choice) => mergeNodes(withoutChoice(node), choice)),
        node,
        below,
      );
    const values = Array.isArray(node['enum'])
      ? node['enum']
      : Object.hasOwn(node, 'const')
        ? [node['const']]
        : undefined;
    if (values && values.length > 0) return this.#values(values, node);
    const told = types.length > 0 ? [...new Set(types)] : guessTypes(node);
    if (told.length > 1)
      return this.#choice(
        told.map((type) => ({ ...node, type, nullable: undefined })),
        node,
        below,
      );
    return this.#ofType(told[0], node, below);
  }

  /** Replaces a `$ref` by its target and merges `allOf`; `undefined` if the schema refers to itself without end. */
  #whole(value: JsonObject, path: unknown[]): { node: JsonObject; path: unknown[] } | undefined {
    let node: JsonObject = value;
    const below = [...path, value];
    for (let turn = 0; turn < MAX_DEPTH; turn += 1) {
      const { $ref, allOf, ...rest } = node;
      if (typeof $ref === 'string') {
        const target = resolve(this.#root, $ref);
        if (target && below.filter((each) => each === target).length >= MAX_TURNS) return undefined;
        if (target) below.push(target);
        node = target ? mergeNodes({ ...rest, ...(allOf === undefined ? {} : { allOf }) }, target) : { ...rest, allOf };
        if (!target && allOf === undefined) delete node['allOf'];
      } else if (Array.isArray(allOf)) {
        node = allOf.reduce<JsonObject>((merged, part) => mergeNodes(merged, this.#followed(part, below)), rest);
      } else return { node: rest, path: below };
    }
    return undefined;
  }

  /** Returns an element of `allOf`, merged with the target of its `$ref`. */
  #followed(part: unknown, below: unknown[]): JsonObject {
    if (!isObject(part)) return {};
    const { $ref, ...rest } = part;
    if (typeof $ref !== 'string') return part;
    const target = resolve(this.#root, $ref);
    if (!target || below.includes(target)) return rest;
    below.push(target);
    return mergeNodes(rest, target);
  }

  #choice(choices: JsonObject[], node: JsonObject, path: unknown[]): Converted {
    const code = newCode();
    const made: JsonObject[] = [];
    for (const choice of choices) {
      const { schema, code: its } = this.#make(choice, path);
      // The alternatives (`anyOf`) within an alternative are put into the outer list.
      for (const each of Array.isArray(schema['anyOf']) ? (schema['anyOf'] as JsonObject[]) : [schema])
        if (!made.some((other) => isSame(other, each))) made.push(each);
      code.also.push(its);
    }
    const texts = code.also.filter(({ isText }) => isText);
    // A value that is JSON text in only some alternatives could not be decoded, so it becomes JSON text in all.
    if (texts.length > 0) return this.#asText(node);
    if (made.length === 1 && made[0]) return { schema: made[0], code };
    const { description } = node;
    const [first = {}, ...others] = made;
    const told = typeof description === 'string' && !first['description'] ? { description, ...first } : first;
    return { schema: { anyOf: [told, ...others] }, code };
  }

  #values(values: unknown[], node: JsonObject): Converted {
    const { description } = node;
    const byType = new Map<string, unknown[]>();
    for (const value of values) {
      const type = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
      byType.set(type, [...(byType.get(type) ?? []), value]);
    }
    if (byType.has('object') || byType.has('array')) return this.#asText(node);
    const made = [...byType].map(([type, all]): JsonObject => {
      const texts = distinct(all).filter((value): value is string => typeof value === 'string' && value !== '');
      if (type === 'string' && texts.length === distinct(all).length) return { type, enum: texts };
      if (type === 'null') return { type };
      const isWhole = type === 'number' && all.every((value) => Number.isInteger(value));
      const list = all.slice(0, 100).map((value) => JSON.stringify(value));
      return { type: isWhole ? 'integer' : type, description: `One of ${list.join(', ')}.` };
    });
    const [first = {}, ...others] = made;
    const start = typeof description === 'string' && description !== '' ? describeFirst(first, description) : first;
    return { schema: others.length === 0 ? start : { anyOf: [start, ...others] }, code: newCode() };
  }

  #ofType(type: string | undefined, node: JsonObject, path: unknown[]): Converted {
    const code = newCode();
    const { description, title, format } = node;
    const made: JsonObject = type === undefined ? {} : { type };
    const words = [description, title].find((each) => typeof each === 'string' && each !== '');
    if (words !== undefined) made['description'] = words;
    if (type === 'object') {
      const members = Object.entries(toMembers(node['properties'])).filter(([, schema]) => schema !== false);
      if (members.length === 0) return this.#asText(node);
      made['properties'] = Object.fromEntries(members.map(([name, schema]) => this.#member(name, schema, code, path)));
      const names = new Set(members.map(([name]) => name));
      const required = toNames(node['required']).filter((name) => names.has(name));
      if (required.length > 0) made['required'] = required.map((name) => this.#nameOf(name));
    } else if (type === 'array') {
      const listed = toList(Array.isArray(node['prefixItems']) ? node['prefixItems'] : node['items']);
      const { items } = node;
      const one = listed.length > 0 ? { anyOf: [...listed, ...(isObject(items) ? [items] : [])] } : items;
      const its = this.#make(isObject(one) ? one : {}, path);
      made['items'] = its.schema['type'] || its.schema['anyOf'] ? its.schema : { ...its.schema, anyOf: ANY };
      if (made['items'] !== its.schema) delete (made['items'] as JsonObject)['description'];
      code.items = its.code;
      copy(node, made, ['minItems', 'maxItems'], isCount);
    } else if (type === 'string') {
      copy(node, made, ['minLength', 'maxLength'], isCount);
      copy(node, made, ['pattern'], (pattern) => typeof pattern === 'string' && isPattern(pattern));
      if (format === 'date-time') made['format'] = format;
      else if (typeof format === 'string')
        made['description'] = [words, `(format: ${format})`].filter(Boolean).join(' ');
    } else if (type === 'number' || type === 'integer') {
      copy(node, made, ['minimum', 'maximum'], isNumber);
      for (const [name, limit, step] of [
        ['exclusiveMinimum', 'minimum', 1],
        ['exclusiveMaximum', 'maximum', -1],
      ] as const) {
        const bound = node[name];
        if (isNumber(bound))
          made[limit] ??= type === 'integer' && Number.isInteger(bound) ? (bound as number) + step : bound;
      }
    }
    return { schema: made, code };
  }

  /** Makes a schema that asks for the value as JSON text, because the provider's keywords cannot describe it. */
  #asText(node: JsonObject): Converted {
    this.#differs = true;
    const { description } = node;
    const words = typeof description === 'string' && description !== '' ? `${description} ` : '';
    const what = isObject(node['additionalProperties'])
      ? ` Its members fit ${JSON.stringify(node['additionalProperties']).slice(0, 500)}.`
      : '';
    return {
      schema: { type: 'string', description: `${words}(Written as JSON text.${what})` },
      code: { ...newCode(), isText: true },
    };
  }
}

/** Keywords that are not sent, because they follow from others or providers ignore them. */
const SKIPPED = new Set(
  (
    'type properties required items additionalItems nullable dependencies $ref $schema $id id $anchor $defs definitions ' +
    '$dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor $vocabulary $comment example xml externalDocs ' +
    'discriminator'
  ).split(' '),
);

const ANY = [{ type: 'string' }, { type: 'number' }, { type: 'boolean' }];

const toList = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const toNames = (value: unknown): string[] => [
  ...new Set(toList(value).filter((name): name is string => typeof name === 'string')),
];
const isNumber = (value: unknown) => typeof value === 'number' && Number.isFinite(value);
const isCount = (value: unknown) => typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
const isSame = (one: unknown, other: unknown) => JSON.stringify(one) === JSON.stringify(other);
const distinct = (values: unknown[]): unknown[] => [
  ...new Map(values.map((value) => [JSON.stringify(value), value])).values(),
];

function isPattern(pattern: string): boolean {
  try {
    return Boolean(new RegExp(pattern, 'u'));
  } catch {
    return false;
  }
}

/** False if the keyword's value has a type that JSON Schema does not allow for it. */
function isWellTyped(name: string, value: unknown): boolean {
  if (/^(?:min|max)(?:Length|Items|Properties|Contains)$/.test(name)) return isCount(value);
  if (/^(?:exclusiveM|m)(?:inimum|aximum)$/.test(name)) return isNumber(value);
  if (name === 'multipleOf') return isNumber(value) && (value as number) > 0;
  if (name === 'pattern') return typeof value === 'string' && isPattern(value);
  if (/^(?:description|title|format|contentEncoding|contentMediaType)$/.test(name)) return typeof value === 'string';
  if (/^(?:uniqueItems|readOnly|writeOnly|deprecated|unevaluatedItems)$/.test(name)) return typeof value === 'boolean';
  if (name === 'examples') return Array.isArray(value);
  return !name.startsWith('$');
}

function copy(from: JsonObject, to: JsonObject, names: string[], isGood: (value: unknown) => boolean): void {
  for (const name of names) if (isGood(from[name])) to[name] = from[name];
}

function add(to: Map<string, unknown[]>, name: string, schema: unknown): void {
  const before = to.get(name) ?? [];
  const isBare = (one: unknown) => isObject(one) && Object.keys(one).length === 0;
  const kept = isBare(schema) && before.length > 0 ? before : [...before.filter((one) => !isBare(one)), schema];
  to.set(name, distinct(kept));
}

const describe = (schema: JsonObject, words: string): JsonObject => {
  if (Array.isArray(schema['anyOf']) && Object.keys(schema).length === 1) {
    const [first, ...others] = schema['anyOf'] as JsonObject[];
    return { anyOf: [describe(first ?? {}, words), ...others] };
  }
  const { description } = schema;
  return { ...schema, description: typeof description === 'string' ? `${description} ${words}` : words };
};

const describeFirst = (schema: JsonObject, words: string): JsonObject => {
  const { description } = schema;
  return { ...schema, description: typeof description === 'string' ? `${words} ${description}` : words };
};

const withoutChoice = (node: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(node).filter(([name]) => name !== 'anyOf' && name !== 'oneOf'));

/** Merges two schemas of the same value. In a conflict the first schema's keyword is used. */
function mergeNodes(one: JsonObject, other: unknown): JsonObject {
  if (!isObject(other)) return one;
  const merged: JsonObject = { ...other, ...one };
  if (isObject(one['properties']) && isObject(other['properties']))
    merged['properties'] = { ...other['properties'], ...one['properties'] };
  const required = [...toNames(one['required']), ...toNames(other['required'])];
  if (required.length > 0) merged['required'] = toNames(required);
  if (Array.isArray(one['allOf']) && Array.isArray(other['allOf']))
    merged['allOf'] = [...one['allOf'], ...other['allOf']];
  if (typeof other['description'] === 'string' && typeof one['description'] === 'string' && other['description'] !== '')
    merged['description'] = one['description'];
  return merged;
}

/** Derives the types that a schema allows from its other keywords, if it has no `type`. */
function guessTypes(node: JsonObject): string[] {
  if (isObject(node['properties'])) return ['object'];
  if (node['items'] !== undefined || node['prefixItems'] !== undefined) return ['array'];
  if (node['pattern'] !== undefined || node['minLength'] !== undefined || node['maxLength'] !== undefined)
    return ['string'];
  if (node['minimum'] !== undefined || node['maximum'] !== undefined) return ['number'];
  return isObject(node['additionalProperties']) ? ['object'] : [];
}

const none = (): FittedSchema => ({ schema: undefined, alternatives: [], code: undefined });

const wrapped = (): FittedSchema => ({
  schema: {
    type: 'object',
    properties: { arguments: { type: 'string', description: 'All arguments, as JSON text of one object.' } },
    required: ['arguments'],
  },
  alternatives: [],
  code: { ...newCode(), wrap: 'arguments' },
});

const join = (one: Code | undefined, other: Code): Code => (one ? { ...newCode(), also: [one, other] } : other);

/** Derives a name of letters, digits and `_` that is not in `taken`. */
export function toFreeName(name: string, taken: ReadonlySet<string>, maximum: number): string {
  const plain = name.replaceAll(/[^a-zA-Z0-9_]+/g, '_').replace(/^_+(?=.)|_+$/g, '');
  const start = /^[a-zA-Z_]/.test(plain) ? plain : `_${plain}`;
  const short = start.slice(0, maximum);
  for (let number = 1; ; number += 1) {
    const end = number === 1 ? '' : `_${number}`;
    const candidate = short.slice(0, maximum - end.length) + end;
    if (!taken.has(candidate)) return candidate;
  }
}

/** Converts the arguments of a tool call from the provider's encoding to the tool's schema. */
export const decodeArguments = (args: JsonObject, code: Code | undefined): JsonObject =>
  code ? toMembers(decodeValue(args, [code])) : args;

/** Converts the arguments of a tool call from the tool's schema to the provider's encoding. */
export const encodeArguments = (args: JsonObject, code: Code | undefined): JsonObject =>
  code ? toMembers(encodeValue(args, [code])) : args;

/** Lists these conversions and, at any depth, those in `also` (further conversions of the same value). */
function spread(codes: Code[]): Code[] {
  const seen = new Set<Code>();
  const open = [...codes];
  for (let code = open.pop(); code; code = open.pop()) {
    if (seen.has(code)) continue;
    seen.add(code);
    open.push(...code.also);
  }
  return [...seen];
}

const defined = <T>(values: (T | undefined)[]): T[] => values.filter((value): value is T => value !== undefined);

function decodeValue(value: unknown, outer: Code[]): unknown {
  if (outer.length === 0) return value;
  const codes = spread(outer);
  const wrap = codes.find((code) => code.wrap !== undefined)?.wrap;
  if (wrap !== undefined && isObject(value)) {
    const parsed = Object.keys(value).length === 1 ? parse(value[wrap]) : undefined;
    return isObject(parsed?.value) ? parsed.value : value;
  }
  if (codes.some(({ isText }) => isText)) {
    const parsed = parse(value);
    return parsed ? parsed.value : value;
  }
  if (Array.isArray(value)) {
    const items = defined(codes.map((code) => code.items));
    return items.length === 0 ? value : value.map((each) => decodeValue(each, items));
  }
  if (!isObject(value)) return value;
  const members = Object.entries(value).map(([sentName, member]): [string, unknown] => {
    const matches = defined(codes.map((code) => code.members.get(sentName)));
    if (matches.length === 0) return [sentName, decodeValue(member, defined(codes.map((code) => code.others)))];
    return [matches[0]?.name ?? sentName, decodeValue(member, defined(matches.map(({ code }) => code)))];
  });
  return Object.fromEntries(members);
}

function encodeValue(value: unknown, outer: Code[]): unknown {
  if (outer.length === 0) return value;
  const codes = spread(outer);
  const wrap = codes.find((code) => code.wrap !== undefined)?.wrap;
  if (wrap !== undefined) return { [wrap]: JSON.stringify(value) };
  if (codes.some(({ isText }) => isText)) return JSON.stringify(value);
  if (Array.isArray(value)) {
    const items = defined(codes.map((code) => code.items));
    return items.length === 0 ? value : value.map((each) => encodeValue(each, items));
  }
  if (!isObject(value)) return value;
  const members = Object.entries(value).map(([name, member]): [string, unknown] => {
    const sentName = codes.map((code) => code.names.get(name)).find((each) => each !== undefined);
    if (sentName === undefined) return [name, encodeValue(member, defined(codes.map((code) => code.others)))];
    const its = defined(codes.map((code) => code.members.get(sentName)?.code));
    return [sentName, encodeValue(member, its)];
  });
  return Object.fromEntries(members);
}

function parse(text: unknown): { value: unknown } | undefined {
  if (typeof text !== 'string') return undefined;
  try {
    return { value: parseExactJson(text) };
  } catch {
    return undefined;
  }
}
