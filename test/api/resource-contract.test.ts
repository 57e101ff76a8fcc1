import { beforeAll, describe, expect, test } from 'vitest';
import { camelCase, listRoutes, pathParameters } from '../../src/platform/http/operation/paths.ts';
import { listAllOperations } from '../../src/process/app.ts';
import { DOOR_NAMES } from '../../src/process/config.ts';
import { ABSENT, insertOthers, makeOneOfEach } from '../security/support/fixture.ts';
import { type Names, toRequest } from '../security/support/requests.ts';
import { startApp, testApp } from '../support/app.ts';
import { stagedSql } from '../support/staged.ts';

/** What holds for every resource: what is absent, what is switched off, and the pages of a list. */

const app = testApp({ CRONJOBS: 'true', WEBHOOKS: 'true', EVALS: 'true', DOORS: DOOR_NAMES.join(',') });
const sql = stagedSql(app);
let names: Names;
beforeAll(async () => {
  names = await makeOneOfEach(app, 'alice', {});
  await insertOthers(app.databaseUrl, names);
});

const operations = listAllOperations().filter(({ isCopy }) => !isCopy);
type AnyOperation = (typeof operations)[number];

interface Asked {
  path?: string;
  of?: Names;
  at?: string;
  query?: string;
}

async function ask(operation: AnyOperation, { path = operation.path, of = names, at = app.url, query }: Asked) {
  const { method, url, headers, body } = toRequest(operation as never, path, of);
  const further = query === undefined ? '' : `${url.includes('?') ? '&' : '?'}${query}`;
  const response = await fetch(`${at}${url}${further}`, { method, headers, body: body ?? null });
  const text = await response.text();
  return { status: response.status, text, cursor: response.headers.get('x-next-cursor') };
}

const words = (text: string) => text.trim().split(/\s+/).toSorted();

/**
 * The operations that answer 404, by what they say. Absent is what the text names; after a slash, another name in the
 * path.
 */
const REFUSED = {
  'Session not found: <sessionId>': `
    appendEvent diffSessions forkSession getSession getSessionLabels listAiSdkMessages listEvents readSessionStream
    rewindSession saveSessionVerdict sendSignal startInvocation streamAgUi streamEvents updateSession
    updateSessionLabels`,
  'Invocation not found: <invocationId>': `
    cancelInvocation cancelInvocation/sessionId getInvocation getInvocation/sessionId readInvocationStream
    readInvocationStream/sessionId replayInvocation replayInvocation/sessionId`,
  'Artifact not found: <artifactName>': 'loadArtifact loadArtifact/sessionId',
  'Artifact version not found: <artifactName> version <versionId>': `
    harnessRuntimeGetArtifactMetadata harnessRuntimeGetArtifactMetadata/sessionId
    loadArtifactVersion loadArtifactVersion/sessionId`,
  'Task not found: <taskId>': 'changeTask createTaskAddress getTask',
  'Tool call not found: <callId>': 'settleToolCall settleToolCall/sessionId',
  'No such address, or its time is over.': 'sendTokenSignal/token',
  'Version not found: <version>': 'diffVersions getVersion',
  'Cronjob not found: <jobId>': `
    cancelCronjobRun deleteCronjob disableCronjob enableCronjob getCronjob getCronjobRun listCronjobRuns runCronjob
    updateCronjob`,
  'Cronjob run not found: <cronjobRunId>': 'cancelCronjobRun getCronjobRun',
  'Webhook not found: <webhookId>': `
    deleteWebhook listWebhookDeliveries replayWebhookDelivery rotateWebhookSecret`,
  'Webhook delivery not found: <deliveryId>': 'replayWebhookDelivery',
  'Eval set `<evalSetId>` not found.': `
    deleteEvalCase deleteEvalSet exportEvalSet getEvalSet getEvalTrend listEvalCases listEvalJudges updateEvalCase`,
  'Eval set `<evalSetId>` or Eval `<evalId>` not found.': 'getEvalCase',
  'Eval case `<evalId>` not found in eval set `<evalSetId>`.': 'deleteEvalCase updateEvalCase',
  'Eval run `<evalRunId>` not found.': `
    cancelEvalRun getEvalRun judgeEvalRun listEvalVerdicts saveEvalVerdict streamEvalRun summarizeEvalRun`,
  'Eval set result `<evalResultId>` not found.': 'getEvalResult',
  'Rule not found: <ruleId>': 'deleteScoreRule',
  'Trace not found': 'getEventTrace/eventId getEventTraceLegacy/eventId',
};

/** Those to which what is absent has nothing in it, is gone already, or is made. */
const SERVED = `
  addSessionToEvalSet/evalSetId addSessionsToEvalSet/evalSetId deleteArtifact/artifactName deleteArtifact/sessionId deleteSession/sessionId
  getEventGraph/eventId getEventGraph/sessionId getSessionTrace/sessionId getSessionTraceLegacy/sessionId
  listArtifactVersions/artifactName listArtifactVersions/sessionId listArtifactVersionsMetadata/artifactName
  listArtifactVersionsMetadata/sessionId listArtifacts/sessionId listInvocations/sessionId overwriteEvalCase/evalSetId
  runEvalSet/evalSetId runEvalSetAsList/evalSetId saveArtifact/sessionId saveScoreRule/ruleId sendSignal/signalName
  stopAiSdkChat/sessionId streamAiSdkChat/sessionId`;

test('what is absent is refused by its name, or is nothing yet', async () => {
  const refused: Record<string, Set<string>> = {};
  const served = new Set<string>();
  const toName = (path: string, parameter: string) => {
    const run = path.includes('cronjobs') ? 'cronjobRunId' : 'evalRunId';
    return (parameter === 'run_id' ? run : camelCase(parameter)) as keyof typeof ABSENT;
  };
  // Those that make what is absent come last.
  const inOrder = ['get', 'delete', 'patch', 'put', 'post'];
  // Doors have names and answers of their own. What is created under a name is absent before.
  const own = listRoutes(operations.filter((each) => !each.toRefusal && !each.operationId.endsWith('WithId')));
  const placeOf = ({ operation }: (typeof own)[number]) => inOrder.indexOf(operation.method);
  for (const { operation, path } of own.toSorted((one, other) => placeOf(one) - placeOf(other))) {
    const { operationId } = operation;
    const inPath = pathParameters(path).map((parameter) => toName(path, parameter));
    const ofThings = inPath.filter((name) => name in ABSENT && name !== 'appName');
    for (const absent of ofThings) {
      const of = { ...names, [absent]: ABSENT[absent] };
      const { status, text } = await ask(operation, { path, of });
      if (status < 300) {
        served.add(`${operationId}/${absent}`);
        continue;
      }
      const { detail } = JSON.parse(text) as { detail: string };
      const said = ofThings.reduce((rest, name) => rest.replace(of[name], `<${name}>`), detail);
      const key = status === 404 ? said : `${status} ${said}`;
      (refused[key] ??= new Set()).add(said.includes(`<${absent}>`) ? operationId : `${operationId}/${absent}`);
    }
  }
  const sorted = Object.entries(refused).map(([said, by]) => [said, [...by].toSorted()]);
  const expected = Object.entries(REFUSED).map(([said, by]) => [said, words(by)]);
  expect(Object.fromEntries(sorted)).toEqual(Object.fromEntries(expected));
  expect([...served].toSorted()).toEqual(words(SERVED));
});

/** What each setting brings, by the ids of its operations. */
const SWITCHED: Record<string, string> = {
  'WEBHOOKS=true': `
    createWebhook deleteWebhook listWebhookDeliveries listWebhooks replayWebhookDelivery
    rotateWebhookSecret`,
  'CRONJOBS=true': `
    cancelCronjobRun createCronjob deleteCronjob disableCronjob enableCronjob getCronjob getCronjobRun
    listAllCronjobs listCronjobRuns listCronjobs previewSchedule runCronjob updateCronjob`,
  'EVALS=true': `
    deleteScoreRule listScoreRules listSessionVerdicts saveScoreRule saveSessionVerdict`,
  'DEV_UI=true': `
    addSessionToEvalSet addSessionsToEvalSet cancelEvalRun createEvalSet createEvalSetWithId
    deleteEvalCase deleteEvalSet exportEvalSet getAppGraph getAppGraphs getAppStructure getBuilderConfig
    getEvalCase getEvalResult getEvalRun getEvalSet getEvalTrend getEventGraph getEventTrace
    getEventTraceLegacy getMetricsInfo getSessionTrace getSessionTraceLegacy importEvalSet judgeEvalRun
    listEvalCases listEvalJudges listEvalResultIds listEvalResults listEvalRuns listEvalSetIds
    listEvalSets listEvalVerdicts listSessionScores overwriteEvalCase runEvalSet runEvalSetAsList
    saveEvalVerdict scoreSessions startEvalRun streamEvalRun summarizeEvalRun updateEvalCase`,
  '`a2a` in DOORS': `
    callA2a cancelA2aTask createA2aPushConfig deleteA2aPushConfig getA2aCard getA2aPushConfig getA2aTask
    getExtendedA2aCard getFirstA2aCard listA2aPushConfigs listA2aTasks resubscribeToA2aTask
    sendA2aMessage streamA2aMessage subscribeToA2aTask`,
  '`ag-ui` in DOORS': `
    connectAgUi runAgUi streamAgUi`,
  '`ai-sdk` in DOORS': `
    listAiSdkMessages sendAiSdkMessage stopAiSdkChat streamAiSdkChat`,
  '`durable-streams` in DOORS': `
    readInvocationStream readSessionStream`,
  '`mcp` in DOORS': `
    callMcp callMcpApp getMcpMetadata`,
  '`openai` in DOORS': `
    addOpenAiItems cancelOpenAiResponse changeOpenAiConversation createOpenAiChatCompletion
    createOpenAiConversation createOpenAiResponse deleteOpenAiConversation deleteOpenAiResponse
    getOpenAiConversation getOpenAiModel getOpenAiResponse listOpenAiInputItems listOpenAiItems
    listOpenAiModels`,
};

test('what a setting brings is not there without it, and says which setting', async () => {
  const by: Record<string, Set<string>> = {};
  const plain = await startApp({ DEV_UI: 'false', DOORS: 'none' });
  const { paths } = (await plain.get('/openapi.json')).body as { paths: Record<string, Record<string, object>> };
  const off = listRoutes(operations).filter(({ operation }) => !paths[operation.path]?.[operation.method]);
  for (const { operation, path } of off) {
    const { status, text } = await ask(operation, { path, at: plain.url });
    const setting = /^\{"detail":"Not Found\. It is served with (.+)\."\}$/.exec(text)?.[1] ?? text;
    expect([operation.method, path, status]).toEqual([operation.method, path, 404]);
    (by[setting] ??= new Set()).add(operation.operationId);
  }
  const sorted = Object.entries(by).map(([setting, ids]) => [setting, [...ids].toSorted()]);
  expect(Object.fromEntries(sorted)).toEqual(
    Object.fromEntries(Object.entries(SWITCHED).map(([setting, ids]) => [setting, words(ids)])),
  );
  await plain.close();
});

interface List {
  id: string;
  table: string;
  /** Column by which copies of a row differ, and the member of an item that shows it. */
  key: [column: string, member: string];
  /** Column of the time that the order is by. Absent: the order is that of the keys. */
  time?: string;
  /** Default: the newest comes first. */
  isOldestFirst?: boolean;
}
const LISTS: List[] = [
  { id: 'listSessions', table: 'sessions', key: ['id', 'id'], time: 'update_time' },
  { id: 'listVersions', table: 'agent_versions', key: ['digest', 'version'], time: 'create_time' },
  { id: 'listToolCalls', table: 'tool_calls', key: ['call_id', 'callId'], time: 'create_time' },
  { id: 'listTasks', table: 'tasks', key: ['id', 'id'], time: 'create_time', isOldestFirst: true },
  { id: 'listWebhookDeliveries', table: 'webhook_deliveries', key: ['id', 'deliveryId'], time: 'create_time' },
  { id: 'listCronjobs', table: 'cronjobs', key: ['id', 'jobId'], time: 'create_time' },
  { id: 'listAllCronjobs', table: 'cronjobs', key: ['id', 'jobId'] },
  { id: 'listEvalSets', table: 'eval_sets', key: ['id', ''] },
  { id: 'listEvalSetIds', table: 'eval_sets', key: ['id', ''] },
  { id: 'listSessionVerdicts', table: 'session_verdicts', key: ['author', 'author'], time: 'create_time' },
];

describe('pages of a list', () => {
  const COPIES = 4;
  const operationOf = (id: string) => operations.find(({ operationId }) => operationId === id) as AnyOperation;

  /** Copies a row; two of the copies have one time, which differs from the others' by microseconds. */
  async function copyRow({ id, table, key: [key], time }: List): Promise<void> {
    const { rows } = await sql.query<{ name: string }>(
      `select quote_ident(column_name) as name from information_schema.columns
       where table_schema = 'public' and table_name = $1 and is_generated = 'NEVER'`,
      [table],
    );
    const values: Record<string, string> = { [key]: `'${id}-' || n` };
    if (time) values[time] = `'2026-01-01T00:00:00.123400Z'::timestamptz + greatest(n, 2) * interval '1 us'`;
    await sql.query(
      `insert into ${table} (${rows.map(({ name }) => name).join()})
       select ${rows.map(({ name }) => values[name] ?? name).join()}
       from (select * from ${table} t where coalesce(to_jsonb(t) ->> 'user_id', 'alice') = 'alice'
             order by ${key} desc limit 1) one, generate_series(1, ${COPIES}) n`,
    );
  }

  async function readPage(id: string, query: string) {
    const { status, text, cursor } = await ask(operationOf(id), { query });
    expect([status, text]).toEqual([200, expect.anything()]);
    type Body = { items?: unknown[]; evalSetIds?: unknown[]; nextCursor?: string };
    const body = JSON.parse(text) as Body | unknown[];
    if (Array.isArray(body)) return { items: body, cursor };
    return { items: body.items ?? body.evalSetIds ?? [], cursor: cursor ?? body.nextCursor ?? null };
  }

  test.each(LISTS)('$id: each item once and in order, those of one moment too', async (list) => {
    const { id, key, time, isOldestFirst = time === undefined } = list;
    await copyRow(list);
    const seen: unknown[] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const page = await readPage(id, `limit=1${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
      expect(page.items).toHaveLength(1);
      seen.push(...page.items);
      ({ cursor } = page);
    }
    expect(seen).toEqual((await readPage(id, 'limit=1000')).items);
    const keys = seen.map((item) => (typeof item === 'string' ? item : (item as Record<string, string>)[key[1]]));
    const copies = Array.from({ length: COPIES }, (_, n) => `${id}-${n + 1}`);
    expect(keys.filter((each) => copies.includes(each ?? ''))).toEqual(isOldestFirst ? copies : copies.toReversed());
  });

  const paged = operations.filter(({ parameters }) =>
    ['limit', 'cursor'].every((name) => name in (parameters?.query?.shape ?? {})),
  );
  test.each(paged.map(({ operationId }) => operationId))('%s: what is no limit or no cursor is refused', async (id) => {
    // The cursor of a report is refused with 400.
    const cursor = id.endsWith('Usage') ? [] : [['cursor=%25zz', 'cursor']];
    for (const [query = '', name] of [['limit=0', 'limit'], ['limit=1001', 'limit'], ['limit=x', 'limit'], ...cursor]) {
      const { status, text } = await ask(operationOf(id), { query });
      expect([query, status, text]).toEqual([query, 422, expect.stringContaining(`"loc":["query","${name}"]`)]);
    }
  });
});
