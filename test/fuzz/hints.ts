import fc, { type Arbitrary } from 'fast-check';
import { toHandle } from '../../src/features/doors/handle.ts';
import { toConversationId, toResponseId } from '../../src/features/doors/openai/ids.ts';
import type { Names } from '../security/support/requests.ts';

/** What values of members and parameters with these names usually are, so that requests name things that exist. */
export type Hints = Record<string, string | number>;

/** Stands for a name that nothing has: each request has another one in its place. */
export const NEW_NAME = 'made_by_fuzz';
/** Where an operation creates something: what is there is refused. */
const CREATED: Record<string, Hints> = {
  createSession: { sessionId: NEW_NAME },
  createSessionWithId: { session_id: NEW_NAME },
  forkSession: { sessionId: NEW_NAME },
  createEvalSet: { eval_set_id: NEW_NAME },
  createEvalSetWithId: { eval_set_id: NEW_NAME },
  importEvalSet: { eval_set_id: NEW_NAME, evalSetId: NEW_NAME },
  addSessionToEvalSet: { evalId: NEW_NAME },
  importUser: { user_id: NEW_NAME },
  createWebhook: { url: `https://example.com/${NEW_NAME}` },
};

/** The hints for the requests of one operation. */
export function hintsOf(names: Names, operationId: string): Hints {
  const runId = operationId.includes('Cronjob') ? names.cronjobRunId : names.evalRunId;
  const { appName, userId, sessionId, evalSetId, evalId, invocationId, evalResultId } = names;
  const inBodies = { appName, userId, sessionId, evalSetId, evalId, ownerId: userId };
  const inPaths = {
    app_name: appName,
    user_id: userId,
    session_id: sessionId,
    artifact_name: names.artifactName,
    version_id: names.versionId,
    event_id: names.eventId,
    invocation_id: invocationId,
    job_id: names.jobId,
    webhook_id: names.webhookId,
    delivery_id: names.deliveryId,
    call_id: names.callId,
    task_id: operationId.includes('A2a') ? toHandle({ key: names, invocationId }) : names.taskId,
    config_id: `config-of-${userId}`,
    rule_id: names.ruleId,
    token: names.token,
    response_id: toResponseId({ key: names, invocationId }),
    conversation_id: toConversationId(names),
    eval_set_id: evalSetId,
    eval_id: evalId,
    eval_result_id: evalResultId,
    run_id: runId,
  };
  return {
    ...inBodies,
    ...inPaths,
    // At its maximum, 1,000, a request runs half a minute; it has that rarely.
    trials: 1,
    rewindBeforeInvocationId: invocationId,
    // Of a place behind it would be waited for what comes.
    ...(/^read.*Stream$/.test(operationId) ? { offset: '0000000000_0000000000' } : {}),
    ...(/Versions?$/.test(operationId) && !operationId.includes('rtifact')
      ? { version: names.version, other: names.version }
      : {}),
    ...(operationId.includes('AiSdk') ? { version: '7', id: sessionId } : {}),
    ...(operationId.includes('OpenAi') ? { model: appName } : {}),
    ...(operationId.includes('AgUi') ? { threadId: sessionId } : {}),
    ...CREATED[operationId],
  };
}

/** Lines that look like those of an export, for a body that is plain text. */
export function linesOf(text: string): Arbitrary<string> {
  const lines = text.trimEnd().split('\n');
  const changed = fc.tuple(fc.constantFrom(...lines), fc.nat(), fc.jsonValue({ maxDepth: 1 })).map(withOther);
  const line = fc.oneof({ arbitrary: changed, weight: 3 }, { arbitrary: fc.json({ maxDepth: 2 }), weight: 1 });
  // A row comes after those that it refers to.
  const own = fc.oneof(
    fc.subarray(lines),
    fc.nat(lines.length).map((count) => lines.slice(0, count)),
  );
  return fc.oneof(
    own.map((some) => some.join('\n')),
    fc.tuple(own, line).map(([some, other]) => [...some, other].join('\n')),
    fc.string(),
  );
}

/** Messages of a client of MCP, some of which no server takes. */
export function messagesOf({ appName, sessionId, artifactName }: Names): Arbitrary<object> {
  const prompt = fc.oneof(fc.string(), fc.json());
  const call = fc.record({ name: fc.constant(appName), arguments: fc.record({ prompt }) });
  const resumed = fc.record({ prompt, session: fc.constant(sessionId) }, { requiredKeys: ['prompt'] });
  const uri = fc.oneof(fc.constant(`artifact://${appName}/${sessionId}/${artifactName}`), fc.webUrl(), fc.string());
  const client = { capabilities: {}, clientInfo: { name: 'fuzz', version: '1' } };
  const sent: Record<string, Arbitrary<unknown>> = {
    initialize: fc
      .constantFrom('2025-11-25', '2026-07-28', 'x')
      .map((protocolVersion) => ({ protocolVersion, ...client })),
    'tools/list': fc.constant({}),
    'tools/call': fc.oneof(call, fc.record({ name: fc.constant(appName), arguments: resumed }), fc.object()),
    'resources/list': fc.record({ cursor: fc.string() }, { requiredKeys: [] }),
    'resources/templates/list': fc.constant({}),
    'resources/read': fc.record({ uri }),
    'prompts/list': fc.constant({}),
    'prompts/get': fc.record({ name: fc.string() }),
    'tasks/get': fc.record({ taskId: fc.string() }),
    'notifications/cancelled': fc.record({ requestId: fc.nat() }),
  };
  const methods = Object.entries(sent).map(([method, params]) =>
    fc.record({ jsonrpc: fc.constant('2.0'), id: fc.nat(), method: fc.constant(method), params }),
  );
  return fc.oneof({ arbitrary: fc.oneof(...methods), weight: 8 }, { arbitrary: fc.object(), weight: 1 });
}

/** Messages that a client of A2A sends to an agent, or to a task. */
export function a2aSentOf(names: Names): Arbitrary<object> {
  const id = fc.oneof(fc.constant(toHandle({ key: names, invocationId: names.invocationId })), fc.string());
  const text = fc.record({ text: fc.string() });
  const part = fc.oneof({ arbitrary: text, weight: 3 }, fc.record({ data: fc.jsonValue() }), fc.object());
  const message = fc.record(
    { messageId: fc.uuid(), role: fc.constant('ROLE_USER'), parts: fc.array(part), contextId: fc.string(), taskId: id },
    { requiredKeys: ['messageId', 'role', 'parts'] },
  );
  return fc.record({ message, configuration: fc.object() }, { requiredKeys: ['message'] });
}

/** Push configurations, for addresses that are nowhere, or not let in. */
export const a2aPushOf = (taskId: Arbitrary<string> = fc.string()): Arbitrary<object> =>
  fc.record(
    {
      url: fc.oneof(fc.constantFrom('https://client.example/told', 'http://127.0.0.1/'), fc.string()),
      id: fc.oneof(fc.constantFrom('default', 'c'), fc.string()),
      token: fc.string(),
      authentication: fc.oneof(fc.record({ scheme: fc.string(), credentials: fc.string() }), fc.object()),
      taskId,
    },
    { requiredKeys: ['url', 'taskId'] },
  );

/** Messages of a client of A2A by JSON-RPC, by their methods, and some that are none. */
export function a2aMessagesOf(names: Names): Arbitrary<object> {
  const id = fc.oneof(fc.constant(toHandle({ key: names, invocationId: names.invocationId })), fc.string());
  const sent: Record<string, Arbitrary<unknown>> = {
    SendMessage: a2aSentOf(names),
    SendStreamingMessage: a2aSentOf(names),
    'message/send': fc.oneof(a2aSentOf(names), fc.record({ message: fc.object() })),
    GetTask: fc.record({ id, historyLength: fc.integer() }, { requiredKeys: ['id'] }),
    ListTasks: fc.record({ pageSize: fc.integer(), pageToken: fc.string() }, { requiredKeys: [] }),
    CancelTask: fc.record({ id }),
    SubscribeToTask: fc.record({ id }),
    CreateTaskPushNotificationConfig: a2aPushOf(id),
    'tasks/pushNotificationConfig/set': fc.record({ taskId: id, pushNotificationConfig: a2aPushOf() }),
    'tasks/pushNotificationConfig/list': fc.record({ id }),
    DeleteTaskPushNotificationConfig: fc.record({ taskId: id, id: fc.string() }),
  };
  const methods = Object.entries(sent).map(([method, params]) =>
    fc.record({ jsonrpc: fc.constant('2.0'), id: fc.nat(), method: fc.constant(method), params }),
  );
  return fc.oneof({ arbitrary: fc.oneof(...methods), weight: 8 }, { arbitrary: fc.object(), weight: 1 });
}

/** A line whose row has another value at one of its columns. */
function withOther([line, pick, value]: [string, number, unknown]): string {
  const { row = {}, ...rest } = JSON.parse(line) as { row?: Record<string, unknown> };
  const columns = Object.keys(row);
  const column = columns[pick % Math.max(1, columns.length)] ?? 'no_column';
  return JSON.stringify({ ...rest, row: { ...row, [column]: value } });
}

/** Cursors as the lists make them, of places that no list has, too. */
const cursors = fc
  .tuple(
    fc.date({ min: new Date('0000-01-01'), max: new Date('9999-12-31'), noInvalidDate: true }),
    fc.oneof(fc.string({ minLength: 1 }), fc.jsonValue({ maxDepth: 1 })),
    fc.option(fc.constantFrom('created', 'updated', 'x'), { nil: undefined }),
  )
  .map(([date, id, sort]) => [date.toISOString().replace('Z', '000Z'), id, sort])
  .map((place) => Buffer.from(JSON.stringify(place)).toString('base64url'));

/** What parameters with these names usually are, beside the names of things. */
export const parameterHints = ({ sessionId, evalRunId }: Names): Record<string, Arbitrary<string>> => ({
  cursor: cursors,
  other: fc.constant(sessionId),
  baseline: fc.constant(evalRunId),
  version: fc.constant('0'),
  'if-match': fc.constant('*'),
  'x-adk-telemetry-request': fc.constant('true'),
});
