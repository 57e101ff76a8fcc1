import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import type { Names } from '../security/support/requests.ts';
import { type Hints, type Schema, type Schemas, valid } from './arbitrary.ts';
import { faultsOf } from './fault.ts';

interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required: boolean;
  schema: Schema;
}
interface Media {
  schema: Schema;
}
/** An operation as the document has it. */
export interface Documented {
  operationId: string;
  deprecated?: boolean;
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

/** Text that a header can carry, and that does not end in blanks. */
const isSendable = (text: string) => /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(text);
/** Clients resolve these before they send. */
const isSegment = (text: string) => text !== '' && text !== '.' && text !== '..';
/** A fault is put into one request of so many. */
const FAULTY_SHARE = 3;

/**
 * Requests of one operation, always the same for one seed: two of three that the document accepts, its bounds among
 * them, and each third with one fault.
 */
export function requestsOf(
  { method, path, documented }: Operation,
  { components: { schemas } }: OpenApi,
  names: Names,
  isValid: ValidateFunction | undefined,
  options: { count: number; seed: number },
): Made[] {
  const hints = hintsOf(names, path);
  const { parameters = [], requestBody } = documented;
  const parameterValues = fc.record(
    Object.fromEntries(parameters.map((each) => [`${each.in} ${each.name}`, parameterOf(each, schemas, hints)])),
  );
  const [mediaType = '', media] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  const isText = mediaType === 'text/plain';
  const body = media ? valid(media.schema, schemas, hints) : fc.constant(undefined);
  const picked = fc.record({ values: parameterValues, body, pick: fc.nat() });
  return fc
    .sample(picked, { numRuns: options.count, seed: options.seed })
    .map(({ values, body: sent, pick }, index) => {
      const fault =
        index % FAULTY_SHARE === 0
          ? oneFault(parameters, isText ? undefined : media, schemas, isValid, sent, pick)
          : undefined;
      const given = { ...values, ...fault?.values };
      const value = fault && 'body' in fault ? fault.body : sent;
      return { ...toWire(method, path, parameters, given, mediaType, value), fault: fault?.place, sent: value };
    });
}

/** Nobody listens under an address that is made up: what would be connected to is left out. */
function hintsOf(names: Names, path: string): Hints {
  const runId = path.includes('cronjobs') ? names.cronjobRunId : names.evalRunId;
  const { appName, userId, sessionId, evalSetId, evalId, invocationId } = names;
  const snake = { app_name: appName, user_id: userId, session_id: sessionId, eval_set_id: evalSetId, eval_id: evalId };
  const inPath = { artifact_name: names.artifactName, version_id: '0', event_id: names.eventId, job_id: names.jobId };
  const more = { invocation_id: invocationId, eval_result_id: names.evalResultId, run_id: runId, ownerId: userId };
  return { ...inPath, ...more, ...snake, appName, userId, sessionId, evalSetId, evalId, invocationId };
}

function parameterOf({ name, in: place, required, schema }: Parameter, schemas: Schemas, hints: Hints) {
  const any = valid(schema, schemas)
    .map(String)
    .filter(place === 'header' ? isSendable : isSegment);
  const hint = hints[name];
  const value =
    hint === undefined ? any : fc.oneof({ arbitrary: fc.constant(hint), weight: 9 }, { arbitrary: any, weight: 1 });
  return required ? value : fc.option(value, { nil: undefined, freq: 2 });
}

/** One fault that the document refuses: in a parameter that is a number, or in the body. */
function oneFault(
  parameters: Parameter[],
  media: Media | undefined,
  schemas: Schemas,
  isValid: ValidateFunction | undefined,
  body: unknown,
  pick: number,
): { place: (string | number)[]; values?: Record<string, string>; body?: unknown } | undefined {
  const inParameters = parameters
    .filter(({ schema }) => ['integer', 'number', 'boolean'].includes(String(schema.type)))
    .map(({ in: where, name }) => ({ place: [where, name], values: { [`${where} ${name}`]: 'no-such-value' } }));
  // A text is any bytes: nothing of it can be wrong.
  const inBody =
    media && isValid
      ? faultsOf(body, media.schema, schemas)
          .filter(({ value }) => !isValid(value))
          .map(({ place, value }) => ({ place: ['body', ...place], body: value }))
      : [];
  const all = [...inParameters, ...inBody];
  return all.length > 0 ? all[pick % all.length] : undefined;
}

function toWire(
  method: string,
  path: string,
  parameters: Parameter[],
  values: Record<string, string | undefined>,
  mediaType: string,
  body: unknown,
): Omit<Made, 'fault' | 'sent'> {
  const query = new URLSearchParams();
  const headers: Record<string, string> = {};
  let url = path;
  for (const { name, in: where } of parameters) {
    const value = values[`${where} ${name}`];
    if (value === undefined) continue;
    if (where === 'path') url = url.replace(`{${name}}`, () => encodeURIComponent(value));
    else if (where === 'query') query.set(name, value);
    else headers[name] = value;
  }
  if (body !== undefined) headers['content-type'] = mediaType;
  const text = mediaType === 'text/plain' ? String(body) : JSON.stringify(body);
  return {
    method: method.toUpperCase(),
    url: query.size > 0 ? `${url}?${query.toString()}` : url,
    headers,
    body: body === undefined ? undefined : text,
  };
}
