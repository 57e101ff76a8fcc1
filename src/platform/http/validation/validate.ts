import type { Request, Response } from 'express';
import { z } from 'zod';
import { safeParse } from 'zod/v4/core';
import { identifierSchema, nameError } from '../../../core/session.ts';
import { getChildren, getDefinition, unwrap } from '../../../core/zod-graph.ts';
import { getBodyBytes } from '../limits/caller-limits.ts';
import { type Call, IGNORED_MEMBERS, type Operation, type OperationBody } from '../operation/operation.ts';
import { snakeCase } from '../operation/paths.ts';
import { type ValidationDetail, ValidationFailedError, valueError } from '../operation/request-errors.ts';
import { bodyChecker, echo, MAX_DETAILS } from './check-body.ts';
import { keyAliases } from './key-aliases.ts';
import { openApiGate } from './openapi-gate.ts';
import { parameterReader, queryNames, type RefusedParameter } from './parameters.ts';
import { toExtraDetail, toHeaderText, unknownBody, type UnknownName } from './unknown-names.ts';
import { explain, type JsonSchema, MISSING, ofUnreadable, toDetail } from './words.ts';

/** A request that matches its operation. The types are `never`, because only the operation's schemas know them. */
export type ValidRequest = Pick<Call<never, never, never, never>, 'path' | 'query' | 'headers' | 'body'>;

/**
 * Validates a request. Unknown names in operations of third-party protocols are accepted and listed in a header.
 * @throws ValidationFailedError with all errors, in the order path, query, headers, body
 */
export type Validate = (request: Request, response: Response) => Promise<ValidRequest>;

/**
 * Prepares validation: `parameters.ts` parses path, query and headers, express-openapi-validator checks bodies by the
 * OpenAPI document, `words.ts` writes the messages by it, and `unknown-names.ts` finds unknown names.
 * @param appAliases alias of an application → the name that handlers receive
 */
export function createValidation(
  document: () => object,
  appAliases: ReadonlyMap<string, string>,
  log?: { info?: (fields: Record<string, unknown>, message: string) => void },
): (operation: Operation) => Validate {
  const gate = openApiGate(document);
  return ({ operationId, wire, method, path: template, parameters = {}, body }) => {
    const readPath = parameterReader('path', parameters.path, snakeCase, appAliases);
    const readQuery = parameterReader('query', parameters.query, (name) => name, appAliases);
    const readHeaders = parameterReader('header', parameters.headers, (name) => name, appAliases);
    const queried = Object.keys(parameters.query?.shape ?? {});
    const readNames = queryNames(queried, singleNames(parameters.query), body && namesOf(body));
    // Reads and deletions accept names that break the rules for new ones, because an object may be older than a rule.
    const isChange = method !== 'get' && method !== 'delete';
    const checkBody = body
      ? bodyChecker(body, keyAliases(body.schema, body.aliases, appAliases), gate(method, template))
      : async (sent: unknown) => ({
          value: undefined,
          details: [],
          unknown: sent === undefined ? [] : unknownBody(sent, queried),
        });
    return async (request, response) => {
      const { params, headers: sentHeaders } = request;
      const refused: RefusedParameter[] = [];
      const path = readPath((name) => params[name], refused);
      if (isChange && refused.length === 0) refused.push(...refusedNames(params));
      // The query is read once, because Express parses it at each access.
      const { values, spellings, unknown: inQuery } = readNames(request.query);
      const query = readQuery((name) => values[name], refused);
      const headers = readHeaders((name) => sentHeaders[name], refused);
      const { value, details: inBody, unknown: unknownInBody } = await checkBody(request.body);
      const isUnread = !body && wire !== undefined && getBodyBytes(request) > 0;
      const unknown = [...inQuery, ...(isUnread ? [{ loc: ['body'], input: undefined, known: [] }] : unknownInBody)];
      const inParameters = refused.map((each) => toParameterDetail(inSentSpelling(each, spellings)));
      const mistakes = [...inParameters, ...inBody];
      const details = wire === undefined ? withUnknown(mistakes, unknown) : mistakes;
      if (details.length > 0) throw new ValidationFailedError(details);
      if (unknown.length > 0) {
        const ignored = toHeaderText(unknown);
        response.setHeader(IGNORED_MEMBERS, ignored);
        log?.info?.({ operation: operationId, ignored }, 'a request says what has no meaning here');
      }
      return { path, query, headers, body: value } as ValidRequest;
    };
  };
}

const namesOf = ({ schema }: OperationBody) => ({
  known: Object.keys(getChildren(unwrap(schema)).members),
  place: 'the body',
});

const singleNames = (query: z.ZodObject | undefined): ReadonlySet<string> =>
  new Set(Object.entries(query?.shape ?? {}).flatMap(([name, schema]) => (isList(schema) ? [] : [name])));
const isList = (schema: z.core.$ZodType) => getDefinition(unwrap(schema)).element !== undefined;

/** Replaces a refused parameter's name by the spelling that was sent. */
const inSentSpelling = (refused: RefusedParameter, spellings: ReadonlyMap<string, string>): RefusedParameter => {
  const [place = '', name = '', ...rest] = refused.loc;
  const sent = place === 'query' ? spellings.get(String(name)) : undefined;
  return sent === undefined ? refused : { ...refused, loc: [place, sent, ...rest] };
};

/** Appends the errors for unknown names; each replaces zod's or the validator's own error for the same name. */
function withUnknown(details: ValidationDetail[], unknown: UnknownName[]): ValidationDetail[] {
  const toKey = (loc: (string | number)[]) => JSON.stringify(loc);
  const extras = new Map(
    unknown.map((each) => {
      const detail = toExtraDetail({ ...each, input: echo(each.input) });
      return [toKey(detail.loc), detail] as const;
    }),
  );
  const kept = details.map((detail) => {
    const extra = detail.type === 'extra_forbidden' ? extras.get(toKey(detail.loc)) : undefined;
    if (extra) extras.delete(toKey(detail.loc));
    return extra ?? detail;
  });
  return [...kept, ...extras.values()].slice(0, MAX_DETAILS);
}

/** Returns the path parameters whose values are not allowed as names of new objects. */
const refusedNames = (params: Request['params']): RefusedParameter[] =>
  Object.entries(params).flatMap(([name, value]) =>
    typeof value === 'string' && nameError(value) !== undefined
      ? [{ loc: ['path', name], schema: identifierSchema, text: value, value }]
      : [],
  );

function toParameterDetail({ loc, schema, text, value, refusal }: RefusedParameter): ValidationDetail {
  if (text === undefined) return toDetail(MISSING, loc, null);
  if (refusal) return toDetail(ofUnreadable(refusal), loc, text);
  const issues = safeParse(schema, value).error?.issues ?? [];
  const rule = issues.find(
    (issue) => issue.code === 'custom' || (issue.code === 'invalid_format' && issue.format !== 'regex'),
  );
  const [mistake] = rule ? [] : explain(toJsonSchema(schema), value, (each) => each, 1);
  return mistake ? toDetail(mistake.words, loc, text) : valueError(loc, (rule ?? issues[0])?.message ?? '', text);
}

const published = new WeakMap<z.core.$ZodType, JsonSchema>();

/** Returns the JSON Schema of a parameter's text; cached, because a request may have thousands of invalid texts. */
function toJsonSchema(schema: z.core.$ZodType): JsonSchema {
  const known = published.get(schema) ?? z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' });
  published.set(schema, known);
  return known;
}
