import { z } from 'zod';
import { jsonObject } from '../../../core/content.ts';
import { InvalidError } from '../../../core/errors.ts';
import { identifierSchema } from '../../../core/session.ts';
import { operation } from '../../../platform/http/operation/operation.ts';
import { appPath, evalSetPath } from '../../../platform/http/operation/parameters.ts';
import { EVAL_SET_ID, exampleEvalSet, type EvalSetDocument } from './eval-set.ts';
import { readEvalSet, writeEvalSet } from './eval-set-file.ts';
import { evalSetNotFound, findEvalSetText, insertEvalSet } from './eval-set-store.ts';
import { area, DEV_APP_PATH, SET_PATH, type EvalRunContext, requesterOf } from './context.ts';

const exportedSchema = z
  .looseObject({
    file: z.string().describe('The text of the `.evalset.json`, as every version of ADK reads it.'),
    dropped: z.array(z.string()).describe('Where members stood that some version refuses, and that the file lacks.'),
  })
  .describe('A set as a file.');

const exportSet = operation({
  method: 'get',
  path: `${SET_PATH}/file`,
  operationId: 'exportEvalSet',
  scope: 'develop',
  area,
  summary: 'Export an evaluation set as a file',
  owner: 'caller',
  parameters: { path: evalSetPath },
  success: {
    schema: exportedSchema,
    description: 'The file, and what is not in it.',
    example: { file: '{\n  "eval_set_id": "arithmetic",\n  "eval_cases": []\n}', dropped: [] },
  },
  errors: { 404: 'No such set.' },
  absent: evalSetNotFound,
  handler: async ({ database }: EvalRunContext, { path, principal, notFound }) => {
    const text = await findEvalSetText(database.reads, { ...path, ownerId: requesterOf(principal) });
    if (text === undefined) throw notFound();
    const { text: file, dropped } = writeEvalSet(JSON.parse(text) as EvalSetDocument);
    return { kind: 'value', value: { file, dropped } };
  },
});

const importedSchema = z
  .looseObject({
    evalSetId: z.string().describe('The new set.'),
    cases: z.int().describe('How many cases it has.'),
    dropped: z.array(z.string()).describe('Where members stood in the file that are not kept.'),
  })
  .describe('What an import made.');

const importSet = operation({
  method: 'post',
  path: `${DEV_APP_PATH}/eval-set-files`,
  operationId: 'importEvalSet',
  scope: 'develop',
  area,
  summary: 'Import an evaluation set from a file',
  description: 'A `.evalset.json` of any version of ADK, in either spelling, and the lists of sessions of ADK 1.x.',
  owner: 'caller',
  parameters: {
    path: appPath,
    query: z.object({
      evalSetId: z.string().optional().describe('Id of the set, in the place of that of the file; a list has none.'),
    }),
  },
  body: {
    schema: z.union([jsonObject, z.array(jsonObject)]).describe('What the file holds.'),
    required: true,
    example: exampleEvalSet,
  },
  success: {
    schema: importedSchema,
    description: 'The set that was made.',
    example: { evalSetId: 'arithmetic', cases: 1, dropped: [] },
  },
  errors: { 400: 'The file is no set, or its id cannot be one.', 409: 'The id is taken.' },
  handler: async ({ database, newId, now }: EvalRunContext, { path, query, body, principal }) => {
    const { set, dropped } = readEvalSet(body, { evalSetId: query.evalSetId ?? '', now: now(), newId });
    const evalSetId = query.evalSetId ?? set.eval_set_id;
    if (!EVAL_SET_ID.test(evalSetId)) {
      throw new InvalidError(`\`${evalSetId}\` cannot be the id of a set: it has letters, digits and \`_\` only.`);
    }
    for (const { evalId } of set.eval_cases) {
      if (!identifierSchema.safeParse(evalId).success) throw new InvalidError('The id of a case cannot be one.');
    }
    const { name, description, eval_cases: cases } = set;
    const key = { ...path, evalSetId, ownerId: requesterOf(principal) };
    await insertEvalSet(database.db, key, { name, description, cases });
    return { kind: 'value', value: { evalSetId, cases: cases.length, dropped } };
  },
});

/** Evaluation sets as files: export and import. */
export const evalFileOperations = [exportSet, importSet];
