import { z } from 'zod';
import { bodyList } from '../../../core/members.ts';
import { jsonObject } from '../../../core/content.ts';
import { InvalidError } from '../../../core/errors.ts';
import { withoutKnownNulls } from '../../../core/zod-graph.ts';
import { identifierSchema } from '../../../core/session.ts';
import type { Database } from '../../../platform/db/database.ts';
import type { Call } from '../../../platform/http/operation/operation.ts';
import { appPath, pageSize } from '../../../platform/http/operation/parameters.ts';
import { DEV_APP_PATH, evalSet, getRequester, room, toOwnKey } from './context.ts';
import { checkSetId, createEvalSetSchema, EVAL_SET_ID, evalCaseSchema, exampleEvalSet } from './eval-set.ts';
import { readEvalSet, writeEvalSet } from './eval-set-file.ts';
import { deleteEvalSet, findEvalSet, insertEvalSet, listEvalSetIds } from './eval-set-store.ts';
import { streamList } from './bounds.ts';
import { collect, type JsonStream } from '../../../platform/json-stream.ts';
import {
  NEXT_CURSOR_HEADER,
  nextCursorHeader,
  pageQuery,
  placeById,
  readPage,
} from '../../../platform/http/operation/cursor.ts';

export const exampleIds = ['arithmetic', 'small_talk'];
const TOO_LARGE = 'A case is too large, or there are too many.';
export const INVALID_ID = 'The id has other characters than letters, digits and `_`.';

const setsQuery = pageQuery('sets').extend({ limit: pageSize('Maximum number of sets.').default(300) });
export const ofSetList = {
  description: 'The clients of ADK get the first 300; the header `X-Next-Cursor` is the `cursor` of the next ones.',
  query: setsQuery,
};
type ListCall = Call<z.output<typeof appPath>, z.output<typeof setsQuery>, unknown, unknown>;

export async function readSetIds(db: Database, { path, query, principal, response }: ListCall): Promise<string[]> {
  const ownerId = getRequester(principal);
  const { items, nextCursor } = await readPage(
    query,
    async (limit, after) => {
      const ids = await listEvalSetIds(db, path.appName, { ownerId, after: after?.id, limit });
      return ids.map((id) => ({ id, place: placeById(id) }));
    },
    ({ id }) => id,
  );
  if (nextCursor) response.setHeader(NEXT_CURSOR_HEADER, nextCursor);
  return items;
}

const exportedSchema = z
  .looseObject({
    eval_set_id: z.string().describe('The set.'),
    eval_cases: z.array(jsonObject).describe('Its cases, all names in snake_case.'),
    dropped: z
      .array(z.string())
      .optional()
      .describe('Where members stood that some version refuses; the first 1,000, absent for none. No ADK reads it.'),
  })
  .describe('A set as the `.evalset.json` that every version of ADK reads.');

const importedSchema = z
  .looseObject({
    evalSetId: z.string().describe('The new set.'),
    cases: z.int().describe('How many cases it has.'),
    dropped: z.array(z.string()).describe('Where members stood in the file that are not kept.'),
  })
  .describe('What an import made.');

export const evalSetOperations = [
  evalSet.create({
    wire: 'ADK',
    summary: 'Create an evaluation set',
    body: { schema: createEvalSetSchema, example: { evalSet: exampleEvalSet } },
    success: { status: 200, description: 'The new set.' },
    errors: { 400: INVALID_ID, 409: 'The id is taken.', 413: TOO_LARGE },
    handler: async ({ database }, { path, body, principal, notFound }) => {
      const { eval_set_id: evalSetId, eval_cases: cases } = body.evalSet;
      const key = toOwnKey({ ...path, evalSetId }, principal);
      checkSetId(evalSetId);
      const eval_cases = (cases ?? []).map((evalCase) => withoutKnownNulls(evalCaseSchema, evalCase));
      await insertEvalSet(database.db, key, { ...body.evalSet, eval_cases });
      const made = await findEvalSet(database.db, key);
      if (!made) throw notFound();
      return { kind: 'json', text: await collect(await toText(made)) };
    },
  }),
  evalSet.list({
    wire: 'ADK',
    summary: 'List evaluation sets',
    ...ofSetList,
    success: {
      schema: z.looseObject({ evalSetIds: z.array(z.string()).describe('Sorted by code point.') }),
      description: 'The identifiers, in an object.',
      example: { evalSetIds: exampleIds },
      headers: nextCursorHeader,
    },
    run: async ({ database }, call) => ({ evalSetIds: await readSetIds(database.reads, call) }),
  }),
  evalSet.read({
    wire: 'ADK',
    load: 'heavy',
    summary: 'Get an evaluation set',
    success: { description: 'The set with its cases, oldest first.' },
    handler: async ({ database }, { path, principal, notFound }) => {
      const found = await findEvalSet(database.db, toOwnKey(path, principal));
      if (!found) throw notFound();
      return { kind: 'stream', text: await toText(found) };
    },
  }),
  evalSet.remove({
    summary: 'Delete an evaluation set',
    description: 'With its cases.',
    run: ({ database }, { path, principal }) => deleteEvalSet(database.db, toOwnKey(path, principal)),
  }),
  evalSet.action('file')({
    method: 'get',
    operationId: 'exportEvalSet',
    load: 'heavy',
    summary: 'Export an evaluation set as a file',
    errors: { 400: 'ADK could not hold a set of this id.' },
    success: {
      schema: exportedSchema,
      description: 'The file.',
      example: { eval_set_id: 'arithmetic', eval_cases: [] },
    },
    handler: async ({ database }, { path, principal, notFound }) => {
      if (!EVAL_SET_ID.test(path.evalSetId))
        throw new InvalidError(
          `ADK knows no set \`${path.evalSetId}\`: the ids of its sets have letters, digits and \`_\`.`,
        );
      const found = await findEvalSet(database.reads, toOwnKey(path, principal));
      if (!found) throw notFound();
      return { kind: 'stream', text: await writeEvalSet(found.set, found.cases) };
    },
  }),
  room.operation({
    method: 'post',
    path: `${DEV_APP_PATH}/eval-set-files`,
    operationId: 'importEvalSet',
    summary: 'Import an evaluation set from a file',
    description: 'A `.evalset.json` of any version of ADK, in either spelling, and the lists of sessions of ADK 1.x.',
    parameters: {
      path: appPath,
      query: z.object({
        evalSetId: z
          .string()
          .max(256)
          .optional()
          .describe('Id of the set, in the place of that of the file; a list has none.'),
        replace: z
          .boolean()
          .default(false)
          .describe(
            'Whether it takes the place of a set with its id and of all its cases. Runs and their results stay.',
          ),
      }),
    },
    body: {
      schema: z.union([jsonObject, bodyList(jsonObject)]).describe('What the file holds.'),
      required: true,
      example: exampleEvalSet,
    },
    success: {
      schema: importedSchema,
      description: 'The set that was made.',
      example: { evalSetId: 'arithmetic', cases: 1, dropped: [] },
    },
    errors: { 400: 'The file is no set, or its id cannot be one.', 409: 'The id is taken.', 413: TOO_LARGE },
    handler: async ({ database, newId, now }, { path, query, body, principal }) => {
      const { set, dropped } = readEvalSet(body, { evalSetId: query.evalSetId ?? '', now: now(), newId });
      const evalSetId = query.evalSetId ?? set.eval_set_id;
      if (!EVAL_SET_ID.test(evalSetId)) {
        throw new InvalidError(`\`${evalSetId}\` cannot be the id of a set: it has letters, digits and \`_\` only.`);
      }
      for (const { evalId } of set.eval_cases) {
        if (!identifierSchema.safeParse(evalId).success) throw new InvalidError('The id of a case cannot be one.');
      }
      const key = toOwnKey({ ...path, evalSetId }, principal);
      await database.transaction(async (tx) => {
        if (query.replace) await deleteEvalSet(tx, key);
        await insertEvalSet(tx, key, set);
      });
      return { kind: 'value', value: { evalSetId, cases: set.eval_cases.length, dropped } };
    },
  }),
];

function toText({ set, cases }: NonNullable<Awaited<ReturnType<typeof findEvalSet>>>): Promise<JsonStream> {
  return streamList(cases, `${JSON.stringify(set).slice(0, -1)},"eval_cases":[`, ']}');
}
