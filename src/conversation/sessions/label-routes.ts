import { sessionPath } from '../../platform/http/operation/parameters.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { changeLabels, findLabels } from './label-store.ts';
import { labelChangesSchema, labelsSchema, MAX_LABELS, MAX_LABELS_BYTES } from './label.ts';
import { CHANGED, ifMatch, toVersions } from './precondition.ts';
import { absentSession, SESSION_PATH, type SessionContext } from './session-context.ts';

const LABELS_PATH = `${SESSION_PATH}/labels`;
const success = { schema: labelsSchema, description: 'All labels of the session.', example: { project: 'atlas' } };

const getLabels = operation({
  method: 'get',
  path: LABELS_PATH,
  operationId: 'getSessionLabels',
  scope: 'read',
  summary: "Get a session's labels",
  parameters: { path: sessionPath },
  success,
  errors: { 404: 'No such session.' },
  absent: absentSession,
  handler: async ({ database }: SessionContext, { path, response, notFound }) => {
    const found = await findLabels(database.reads, path);
    if (!found) throw notFound();
    response.setHeader('etag', `"${found.version}"`);
    return { kind: 'json', text: found.text };
  },
});

const updateLabels = operation({
  method: 'patch',
  path: LABELS_PATH,
  operationId: 'updateSessionLabels',
  scope: 'write',
  summary: "Change a session's labels",
  description:
    'Names and values for the client to find sessions by; agents do not see them. `lastUpdateTime` moves. A session ' +
    `has at most ${MAX_LABELS}, ${MAX_LABELS_BYTES} bytes together.`,
  parameters: { path: sessionPath, headers: ifMatch },
  body: { schema: labelChangesSchema, required: true, example: { project: 'atlas', draft: null } },
  success,
  errors: { 404: 'No such session.', 412: CHANGED, 413: 'The labels would be too many or too large together.' },
  absent: absentSession,
  handler: async ({ database }: SessionContext, { path, body, headers, response }) => {
    const { text, version } = await changeLabels(database.db, path, body, toVersions(headers['if-match']));
    response.setHeader('etag', `"${version}"`);
    return { kind: 'json', text };
  },
});

/** The labels of a session: get, change. */
export const labelOperations = [getLabels, updateLabels];
