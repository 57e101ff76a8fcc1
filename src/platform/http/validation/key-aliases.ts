import type { z } from 'zod';
import { isKeeping } from '../../../core/members.ts';
import { getChildren, getDefinition, unwrap } from '../../../core/zod-graph.ts';
import { snakeCase } from '../operation/paths.ts';
import type { UnknownName } from './unknown-names.ts';

/**
 * Clients send member names in camelCase or snake_case, and some send `harness` as the application instead of
 * `harness_agent`. A body's members are renamed along its schema, never inside free-form objects, so that handlers know
 * only the schema's spelling. The path of an error is converted back to the sent spelling.
 */

/** The member names of a schema: known names, aliases, and the same for nested schemas. */
interface Shape {
  /** All names that an object may have; `undefined` if it may have any, or if the schema is no object. */
  known: ReadonlySet<string> | undefined;

  /** Alias → the schema's name. */
  renames: Map<string, string>;
  members: Map<string, Shape>;
  /** The names within an array's elements or a record's values. */
  element: Shape | undefined;
  /** True if the member {@link APP_NAME} contains an application's name, which may be an alias. */
  namesApp: boolean;
}

const APP_NAME = 'appName';

/** Reads the names of a schema. `known` has those read before, so that a recursive schema gives a recursive result. */
function toShape(wrapped: z.core.$ZodType, known: Map<z.core.$ZodType, Shape>): Shape {
  const schema = unwrap(wrapped);
  const made = known.get(schema);
  if (made) return made;
  const shape: Shape = {
    known: undefined,
    renames: new Map(),
    members: new Map(),
    element: undefined,
    namesApp: false,
  };
  known.set(schema, shape);
  const { members, elements, branches } = getChildren(schema);
  const names = Object.keys(members);
  if (names.length > 0 && !isKeeping(schema)) shape.known = new Set(names);
  for (const [name, member] of Object.entries(members)) {
    const other = snakeCase(name);
    if (other !== name) shape.renames.set(other, name);
    shape.members.set(name, toShape(member, known));
  }
  shape.namesApp = APP_NAME in members;
  shape.element = mergeShapes(elements.map((element) => toShape(element, known)));
  const branch = mergeShapes(branches.map((option) => toShape(option, known)));
  // A union with a free-form object accepts any member.
  if (branch) Object.assign(shape, branch, branches.some(isFreeForm) && { known: undefined });
  return shape;
}

/** True for a schema that accepts objects with any members. */
function isFreeForm(schema: z.core.$ZodType): boolean {
  const { type, shape, options } = getDefinition(unwrap(schema));
  if (isKeeping(unwrap(schema))) return true;
  if (type === 'record' || type === 'unknown' || type === 'any') return true;
  return options?.some(isFreeForm) ?? (shape !== undefined && Object.keys(shape).length === 0);
}

/** Merges the names of several schemas: the branches of a union, or the elements of a tuple. */
function mergeShapes(shapes: Shape[]): Shape | undefined {
  if (shapes.length < 2) return shapes[0];
  const names = shapes.flatMap(({ known }) => [...(known ?? [])]);
  return {
    known: names.length > 0 ? new Set(names) : undefined,
    renames: new Map(shapes.flatMap(({ renames }) => [...renames])),
    members: new Map(shapes.flatMap(({ members }) => [...members])),
    element: shapes.find(({ element }) => element)?.element,
    namesApp: shapes.some(({ namesApp }) => namesApp),
  };
}

function hasNames(shape: Shape, seen = new Set<Shape>()): boolean {
  if (seen.has(shape)) return false;
  seen.add(shape);
  if (shape.known || shape.renames.size > 0 || (shape.element && hasNames(shape.element, seen))) return true;
  return [...shape.members.values()].some((member) => hasNames(member, seen));
}

/** Removes nested shapes without names, so that requests are not searched there. */
function prune(shape: Shape, seen = new Set<Shape>()): void {
  if (seen.has(shape)) return;
  seen.add(shape);
  if (shape.element && !hasNames(shape.element)) shape.element = undefined;
  if (shape.element) prune(shape.element, seen);
  for (const [name, member] of shape.members) {
    if (hasNames(member)) prune(member, seen);
    else shape.members.delete(name);
  }
}

export interface KeyAliases {
  /**
   * Returns the body with the schema's names; the same object if nothing changes. If both spellings of a name were
   * sent, the schema's wins. Recursive, so the body's nesting depth must be limited before.
   * @param found receives whether there are unknown members
   */
  toSchema(body: unknown, found?: Found): unknown;
  /** Lists at most `limit` unknown members of a body, including an alias whose schema spelling was sent too. */
  listUnknown(body: unknown, limit: number): UnknownName[];
  /** Converts a path to the spelling that was sent; a missing member keeps the schema's name. */
  toSentPath(body: unknown, path: readonly PropertyKey[]): (string | number)[];
}

/** The result of renaming, without the paths of unknown members: finding them is slower, and only errors need them. */
interface Found {
  hasUnknown: boolean;
}

const NO_ALIASES: ReadonlyMap<string, string> = new Map();

/**
 * @param aliases additional top-level name → the schema's name
 * @param apps alias of an application → the application's name
 */
export function keyAliases(
  schema: z.core.$ZodType,
  aliases: Record<string, string> = {},
  apps: ReadonlyMap<string, string> = NO_ALIASES,
): KeyAliases {
  const shape = toShape(schema, new Map());
  for (const [other, name] of Object.entries(aliases)) shape.renames.set(other, name);
  prune(shape);
  return {
    toSchema: (body, found = { hasUnknown: false }) => rename(shape, body, { apps, found }),
    listUnknown: (body, limit) => {
      const unknown: UnknownName[] = [];
      collectUnknown(shape, body, ['body'], { unknown, limit });
      return unknown;
    },
    toSentPath: (body, path) => toSentPath(shape, body, path),
  };
}

type JsonObject = Record<string, unknown>;

interface Renaming {
  apps: ReadonlyMap<string, string>;
  found: Found;
}

function rename(shape: Shape, value: unknown, to: Renaming): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Array.isArray(value) ? renameElements(shape, value, to) : renameMembers(shape, value as JsonObject, to);
}

function renameMembers(shape: Shape, value: JsonObject, to: Renaming): JsonObject {
  const keys = Object.keys(value);
  let changed: [string, unknown][] | undefined;
  for (const [index, key] of keys.entries()) {
    const name = shape.renames.get(key);
    const target = name !== undefined && sentKey(shape, value, name) === key ? name : key;
    if (shape.known?.has(target) === false) to.found.hasUnknown = true;
    const member = shape.members.get(target) ?? shape.element;
    const app = shape.namesApp && target === APP_NAME ? to.apps.get(value[key] as string) : undefined;
    const renamed = app ?? (member ? rename(member, value[key], to) : value[key]);
    if (target !== key || renamed !== value[key])
      changed ??= keys.slice(0, index).map((before) => [before, value[before]]);
    changed?.push([target, renamed]);
  }
  // `fromEntries` defines own properties, even for a key named `__proto__`.
  return changed ? Object.fromEntries(changed) : value;
}

function renameElements({ element }: Shape, values: unknown[], to: Renaming): unknown[] {
  if (!element) return values;
  let changed = false;
  const renamed = values.map((value) => {
    const result = rename(element, value, to);
    if (result !== value) changed = true;
    return result;
  });
  return changed ? renamed : values;
}

/** Returns the spelling in which a member was sent; the schema's spelling if it was not sent. */
function sentKey(shape: Shape, value: JsonObject, name: string): string {
  if (Object.hasOwn(value, name)) return name;
  for (const [other, target] of shape.renames) if (target === name && Object.hasOwn(value, other)) return other;
  return name;
}

/** Appends the unknown members below a path to `unknown`, up to `limit`. Restores `place` before it returns. */
function collectUnknown(
  shape: Shape,
  value: unknown,
  place: (string | number)[],
  { unknown, limit }: { unknown: UnknownName[]; limit: number },
): void {
  if (typeof value !== 'object' || value === null) return;
  const collect = (below: Shape | undefined, key: string | number, member: unknown) => {
    if (!below) return;
    place.push(key);
    collectUnknown(below, member, place, { unknown, limit });
    place.pop();
  };
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length && unknown.length < limit; index += 1)
      collect(shape.element, index, value[index]);
    return;
  }
  for (const [key, input] of Object.entries(value)) {
    if (unknown.length >= limit) return;
    const name = shape.renames.get(key);
    const target = name !== undefined && sentKey(shape, value as JsonObject, name) === key ? name : key;
    if (shape.known?.has(target) === false)
      unknown.push({ loc: [...place, key], input, known: shape.known, ...(name !== undefined && { counts: name }) });
    else collect(shape.members.get(target) ?? shape.element, key, input);
  }
}

function toSentPath(shape: Shape, body: unknown, path: readonly PropertyKey[]): (string | number)[] {
  const sent: (string | number)[] = [];
  let value = body;
  let current: Shape | undefined = shape;
  for (const step of path) {
    const holder: JsonObject = typeof value === 'object' && value !== null ? (value as JsonObject) : {};
    const name = typeof step === 'number' ? step : String(step);
    const key = current && typeof name === 'string' ? sentKey(current, holder, name) : name;
    sent.push(key);
    current = current?.members.get(String(step)) ?? current?.element;
    value = Object.hasOwn(holder, key) ? holder[key] : undefined;
  }
  return sent;
}
