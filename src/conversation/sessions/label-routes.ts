import { changeLabels, findLabels } from './label-store.ts';
import { labelChangesSchema, labelsSchema, MAX_LABELS, MAX_LABELS_BYTES } from './label.ts';
import { CHANGED, ifMatch, toVersions } from './precondition.ts';
import { session } from './session-context.ts';

const success = { schema: labelsSchema, description: 'All labels of the session.', example: { project: 'atlas' } };

const getLabels = session.action('labels')({
  method: 'get',
  operationId: 'getSessionLabels',
  summary: "Get a session's labels",
  success,
  handler: async ({ database }, { path, response, notFound }) => {
    const found = await findLabels(database.reads, path);
    if (!found) throw notFound();
    response.setHeader('etag', `"${found.version}"`);
    return { kind: 'json', text: found.text };
  },
});

const updateLabels = session.action('labels')({
  method: 'patch',
  operationId: 'updateSessionLabels',
  summary: "Change a session's labels",
  description:
    'Names and values for the client to find sessions by; agents do not see them. `lastUpdateTime` moves. A session ' +
    `has at most ${MAX_LABELS}, ${MAX_LABELS_BYTES} bytes together.`,
  headers: ifMatch,
  body: { schema: labelChangesSchema, example: { project: 'atlas', draft: null } },
  success,
  errors: { 412: CHANGED, 413: 'The labels would be too many or too large together.' },
  handler: async ({ database }, { path, body, headers, response }) => {
    const { text, version } = await changeLabels(database.db, path, body, toVersions(headers['if-match']));
    response.setHeader('etag', `"${version}"`);
    return { kind: 'json', text };
  },
});

export const labelOperations = [getLabels, updateLabels];
