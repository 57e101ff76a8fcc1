import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import fc, { type Arbitrary } from 'fast-check';
import type { Names } from '../security/support/requests.ts';
import { type Schema, type Schemas, type Source, valid } from './arbitrary.ts';
import { faultsOf } from './fault.ts';
import {
  a2aMessagesOf,
  a2aPushOf,
  a2aSentOf,
  type Hints,
  hintsOf,
  linesOf,
  messagesOf,
  NEW_NAME,
  parameterHints,
} from './hints.ts';

interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  schema: Schema;
}
interface Media {
  schema: Schema;
  example?: unknown;
}
/** An operation as the document has it. */
export interface Documented {
  operationId: string;
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Record<string, Media> };
  responses: Record<string, { content?: Record<string, Media> }>;
}
/** An operation with its place in the document. */
export interface Operation {
  method: string;
  path: string;
  documented: Documented;
}
export interface OpenApi {
  paths: Record<string, Record<string, Documented>>;
  components: { schemas: Schemas };
}

/** A request made from the document. */
export interface Made {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string | undefined;
  /** Where its one fault is, as a 422 names it; `undefined` for a request that the document accepts. */
  fault: (string | number)[] | undefined;
  /** The body as a value, for the places that an answer names. */
  sent: unknown;
}

/** A compiler of the document's schemas. */
export function schemaCompiler(document: OpenApi): (schema: Schema) => ValidateFunction {
  const ajv = new Ajv2020({ strict: false, validateFormats: false, schemas: [{ $id: 'document', ...document }] });
  return (schema) => ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"document#/')) as object);
}

/** What the requests of a run are made with. */
export interface Making {
  document: OpenApi;
  compile: (schema: Schema) => ValidateFunction;
  names: Names;
  /** What an export of the user answered. */
  exported: string;
}

/** Text that a header can carry, and that does not end in blanks. */
const isSendable = (text: string) => /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(text);
/** A fault is put into one request of so many. */
const FAULTY_SHARE = 3;
/** Optional parameters of one request: more of them contradict each other. */
const OPTIONAL = 3;

type Values = Record<string, string | string[] | undefined>;
interface Fault {
  place: (string | number)[];
  values?: Values;
  body?: unknown;
}

/**
 * Requests of one operation, always the same for one seed: two of three that the document accepts, its bounds among
 * them, and each third with one fault.
 */
export function requestsOf(
  operation: Operation,
  making: Making,
  { count, seed }: { count: number; seed: number },
): Made[] {
  const { documented } = operation;
  const { parameters = [], requestBody } = documented;
  const source = { schemas: making.document.components.schemas, hints: hintsOf(making.names, documented.operationId) };
  const bodies = Object.entries(requestBody?.content ?? {}).map(([mediaType, media]) =>
    bodyOf(documented, mediaType, media, source, making),
  );
  const isValid = new Map(
    Object.values(requestBody?.content ?? {}).map((media) => [media, making.compile(media.schema)] as const),
  );
  const body = bodies.length > 0 ? fc.oneof(...bodies) : fc.constant(undefined);
  const picked = fc.record({ values: valuesOf(parameters, source, making.names), body, pick: fc.noBias(fc.nat()) });
  return fc.sample(picked, { numRuns: count, seed }).map(({ values, body: sent, pick }, index) => {
    const faults = index % FAULTY_SHARE === 0 ? faultsOfRequest(parameters, sent, source, isValid) : [];
    const fault = faults[pick % Math.max(1, faults.length)];
    const value = fault && 'body' in fault ? fault.body : sent?.value;
    const given = { ...values, ...fault?.values };
    return {
      ...toWire(operation, given, sent && { ...sent, value }, `${NEW_NAME}_${pick}`),
      fault: fault?.place,
      sent: value,
    };
  });
}

interface Body {
  mediaType: string;
  media: Media;
  value: unknown;
}

function bodyOf(
  { operationId }: Documented,
  mediaType: string,
  media: Media,
  source: Source,
  { exported, names }: Making,
): Arbitrary<Body> {
  const example = withHints(media.example, source.hints);
  if (operationId.startsWith('callMcp'))
    return messagesOf(names).map((value) => ({ mediaType: 'application/json', media, value }));
  if (operationId === 'callA2a')
    return a2aMessagesOf(names).map((value) => ({ mediaType: 'application/json', media, value }));
  if (operationId.endsWith('A2aMessage'))
    return a2aSentOf(names).map((value) => ({ mediaType: 'application/json', media, value }));
  if (operationId === 'createA2aPushConfig')
    return a2aPushOf().map((value) => ({ mediaType: 'application/json', media, value }));
  const value = operationId === 'importUser' ? linesOf(exported) : valid(media.schema, source, example);
  return value.map((each) => ({ mediaType, media, value: each }));
}

/** An example about what is there. */
function withHints(example: unknown, hints: Hints): unknown {
  if (Array.isArray(example)) return example.map((each) => withHints(each, hints));
  if (typeof example !== 'object' || example === null) return example;
  const members = Object.entries(example).map(([name, member]) => [
    name,
    typeof member === 'string' ? (hints[name] ?? member) : withHints(member, hints),
  ]);
  return Object.fromEntries(members);
}

/** Values of all parameters by place and name, of the optional ones only some. */
function valuesOf(parameters: Parameter[], source: Source, names: Names): Arbitrary<Values> {
  const hints = { ...parameterHints(names), ...mapValues(source.hints, (each) => fc.constant(String(each))) };
  const valueOf = ({ name, in: place, schema }: Parameter) => {
    const one = (each: Schema) => valid(each, { ...source, hints: {} }).map(String);
    const isList = schema.type === 'array';
    const any = isList
      ? fc.array(one(schema.items ?? {}), { maxLength: 3 })
      : one(schema).filter((text) => (place === 'header' ? isSendable(text) : text !== '' || place === 'query'));
    const hint = hints[name];
    return hint && !isList ? fc.oneof({ arbitrary: hint, weight: 9 }, { arbitrary: any, weight: 1 }) : any;
  };
  const values = Object.fromEntries(parameters.map((each) => [keyOf(each), valueOf(each)]));
  const required = parameters.filter((each) => each.required).map(keyOf);
  const named = parameters.filter((each) => !each.required && source.hints[each.name] !== undefined).map(keyOf);
  const others = parameters.map(keyOf).filter((key) => !required.includes(key) && !named.includes(key));
  const some = fc.tuple(
    fc.oneof({ arbitrary: fc.constant(named), weight: 3 }, { arbitrary: fc.subarray(named), weight: 1 }),
    fc.subarray(others, { maxLength: Math.min(others.length, OPTIONAL) }),
  );
  const chosen = some.map((keys) => [...required, ...keys.flat()]);
  return chosen.chain((keys) => fc.record(pick(values, keys)));
}

const keyOf = ({ in: place, name }: Parameter) => `${place} ${name}`;

const pick = <Value>(all: Record<string, Value>, keys: string[]): Record<string, Value> =>
  Object.fromEntries(Object.entries(all).filter(([key]) => keys.includes(key)));
const mapValues = <From, To>(from: Record<string, From>, map: (value: From) => To): Record<string, To> =>
  Object.fromEntries(Object.entries(from).map(([name, value]) => [name, map(value)]));

/** The ways to break a request at one place, so that the document refuses it. */
function faultsOfRequest(
  parameters: Parameter[],
  body: Body | undefined,
  { schemas }: Source,
  isValid: Map<Media, ValidateFunction>,
): Fault[] {
  const inParameters = parameters.flatMap(({ in: where, name, schema, required }) =>
    wrongTexts(where, schema, required).map((value) => ({
      place: [where, name],
      values: { [`${where} ${name}`]: value },
    })),
  );
  // A text is any bytes: nothing of it can be wrong.
  if (!body || body.mediaType === 'text/plain') return inParameters;
  const { media, value: sent } = body;
  const inBody = faultsOf(sent, media.schema, schemas)
    .filter(({ value }) => !isValid.get(media)?.(value))
    .map(({ place, value }) => ({ place: ['body', ...place], body: value }));
  return [...inParameters, ...inBody];
}

/** Values that a parameter's schema refuses; `undefined`: it is left out. */
function wrongTexts(where: Parameter['in'], schema: Schema, required: boolean): (string | undefined)[] {
  const { type, enum: choices, minimum, maximum, pattern, minLength = 0, maxLength = Infinity } = schema;
  const isNumber = type === 'integer' || type === 'number';
  const texts = [
    ...(isNumber || type === 'boolean' || choices ? ['no-such-value'] : []),
    ...(minimum === undefined ? [] : [String(minimum - 1)]),
    ...(maximum === undefined ? [] : [String(maximum + 1)]),
    ...(maxLength <= 4_096 ? ['x'.repeat(maxLength + 1)] : []),
    ...(minLength > 0 && where === 'query' ? [''] : []),
    ...(pattern !== undefined && where !== 'header' ? ['a\u0001b'] : []),
  ];
  return required && where === 'query' ? [...texts, undefined] : texts;
}

function toWire({ method, path, documented }: Operation, values: Values, body: Body | undefined, newName: string) {
  const query = new URLSearchParams();
  const headers: Record<string, string> = {};
  let url = path;
  for (const { name, in: where } of documented.parameters ?? []) {
    for (const value of [values[`${where} ${name}`] ?? []].flat()) {
      if (where === 'path') url = url.replace(`{${name}}`, () => encodeURIComponent(value));
      else if (where === 'query') query.append(name, value);
      else headers[name] = value;
    }
  }
  if (query.size > 0) url += `?${query.toString()}`;
  const head = { method: method.toUpperCase(), url: url.replaceAll(NEW_NAME, newName), headers };
  if (body?.value === undefined) return { ...head, body: undefined };
  const { mediaType, value } = body;
  headers['content-type'] = mediaType;
  // A form can send plain text: without this header it is refused.
  if (mediaType === 'text/plain') headers['x-requested-with'] = 'fuzz';
  const text = mediaType === 'text/plain' && typeof value === 'string' ? value : JSON.stringify(value);
  return { ...head, body: text.replaceAll(NEW_NAME, newName) };
}
