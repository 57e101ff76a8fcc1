import type { Operation } from '../../../src/platform/http/operation/operation.ts';
import { toHandle } from '../../../src/features/doors/handle.ts';
import { toConversationId, toResponseId } from '../../../src/features/doors/openai/ids.ts';
import { camelCase, pathParameters } from '../../../src/platform/http/operation/paths.ts';

/** The names of what a request is about. */
export interface Names {
  appName: string;
  userId: string;
  sessionId: string;
  artifactName: string;
  versionId: string;
  version: string;
  eventId: string;
  invocationId: string;
  jobId: string;
  /** Of a cronjob's run, or of an evaluation run: by the operation. */
  cronjobRunId: string;
  taskId: string;
  signalName: string;
  token: string;
  webhookId: string;
  deliveryId: string;
  callId: string;
  evalRunId: string;
  evalSetId: string;
  evalId: string;
  evalResultId: string;
  ruleId: string;
}

/** A request as it goes out. */
export interface Sent {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string | undefined;
}

type Json = Record<string, unknown>;
/** Where an operation creates something, its name must be free. */
const FREE = 'made_by_the_matrix';
const SHARED = { 'app:motd': 'of everybody' };
const MESSAGE = { role: 'user', parts: [{ text: 'Hello' }] };

/** The members of a body, or query parameters, that name something, in every spelling that examples use. */
const NAMED: Record<string, keyof Names> = {
  appName: 'appName',
  app_name: 'appName',
  userId: 'userId',
  user_id: 'userId',
  ownerId: 'userId',
  sessionId: 'sessionId',
  session_id: 'sessionId',
  threadId: 'sessionId',
  evalSetId: 'evalSetId',
  evalId: 'evalId',
  rewindBeforeInvocationId: 'invocationId',
};

/** Bodies that the published example, with its names replaced, does not make. */
const BODIES: Record<string, (names: Names) => Json> = {
  createSession: () => ({ sessionId: FREE, state: { topic: 'sums' } }),
  createEvalSet: () => ({ evalSet: { eval_set_id: FREE, eval_cases: [] } }),
  importEvalSet: () => ({ eval_set_id: FREE, eval_cases: [] }),
  saveEvalVerdict: ({ evalId }) => ({ evalId, turn: 0, metricName: 'safety_v1', passed: true }),
  addSessionsToEvalSet: () => ({ hasError: true }),
  addSessionToEvalSet: ({ userId, sessionId }) => ({ evalId: FREE, userId, sessionId }),
  runAgent: ({ appName, userId, sessionId }) => ({ appName, userId, sessionId, newMessage: MESSAGE }),
  // An answer would run the agent in the background.
  changeTask: () => ({ action: 'comment', text: 'Looked at it.' }),
  updateCronjob: () => ({ name: 'Evening sums' }),
  sendAiSdkMessage: ({ sessionId }) => ({
    id: sessionId,
    messages: [{ role: 'user', parts: [{ type: 'text', text: 'Hello' }] }],
  }),
  forkSession: () => ({ sessionId: FREE, atSequence: 0 }),
};

/** Names in the path that must be free. */
const FREE_IN_PATH: Record<string, keyof Names> = {
  createSessionWithId: 'sessionId',
  createEvalSetWithId: 'evalSetId',
};

/** The operations of A2A about a user. */
const A2A = [
  'callA2a',
  'sendA2aMessage',
  'streamA2aMessage',
  'listA2aTasks',
  'getA2aTask',
  'cancelA2aTask',
  'subscribeToA2aTask',
  'resubscribeToA2aTask',
  'getExtendedA2aCard',
  'createA2aPushConfig',
  'listA2aPushConfigs',
  'getA2aPushConfig',
  'deleteA2aPushConfig',
];

/** Parameters of the query without which an operation is not served. */
const QUERIES: Record<string, (names: Names) => Record<string, string>> = {
  searchMemory: () => ({ query: 'Hello' }),
  deleteBudget: () => ({ appliesTo: 'app', period: 'month' }),
  diffSessions: ({ sessionId }) => ({ other: sessionId }),
  diffVersions: ({ version }) => ({ other: version }),
  listCronjobs: ({ userId }) => ({ ownerId: userId }),
  sendAiSdkMessage: ({ userId }) => ({ user_id: userId }),
  // Without a place nothing is answered where nothing runs.
  streamAiSdkChat: ({ userId }) => ({ user_id: userId, startIndex: '0' }),
  listAiSdkMessages: ({ userId }) => ({ user_id: userId }),
  readSessionStream: ({ userId }) => ({ user_id: userId }),
  readInvocationStream: ({ userId }) => ({ user_id: userId }),
  stopAiSdkChat: ({ userId }) => ({ user_id: userId }),
  listWebhooks: ({ userId }) => ({ ownerId: userId }),
  runAgUi: ({ userId }) => ({ user_id: userId }),
  connectAgUi: ({ userId }) => ({ user_id: userId }),
  streamAgUi: ({ userId }) => ({ user_id: userId }),
  callMcp: ({ userId }) => ({ user_id: userId }),
  callMcpApp: ({ userId }) => ({ user_id: userId }),
  finishConsent: ({ userId }) => ({ state: 'of-no-consent', code: 'c', user_id: userId }),
  ...Object.fromEntries(A2A.map((id) => [id, ({ userId }: Names) => ({ user_id: userId })])),
  createOpenAiResponse: ({ userId }) => ({ user_id: userId }),
  createOpenAiConversation: ({ userId }) => ({ user_id: userId }),
  createOpenAiChatCompletion: ({ userId }) => ({ user_id: userId }),
  runLive: ({ appName, userId, sessionId }) => ({ app_name: appName, user_id: userId, session_id: sessionId }),
};

const JSON_TYPE = { 'content-type': 'application/json' };
const MCP = { ...JSON_TYPE, accept: 'application/json, text/event-stream' };

const HEADERS: Record<string, (names: Names) => Record<string, string>> = {
  invokeLegacy: ({ userId, sessionId }) => ({ user_id: userId, session_id: sessionId }),
  setTelemetry: () => ({ 'x-adk-telemetry-request': 'true' }),
  callMcp: () => MCP,
  callMcpApp: () => MCP,
  callA2a: () => JSON_TYPE,
  sendA2aMessage: () => JSON_TYPE,
  streamA2aMessage: () => JSON_TYPE,
  createA2aPushConfig: () => JSON_TYPE,
};

/** What of a request writes the state that all users share, for each operation whose content may ask for it. */
const SHARED_STATE: Record<string, (names: Names) => Json> = {
  createSession: () => ({ sessionId: FREE, state: SHARED }),
  createSessionWithId: () => ({ state: SHARED }),
  updateSession: () => ({ stateDelta: SHARED }),
  appendEvent: () => ({ author: 'user', actions: { stateDelta: SHARED } }),
  runAgent: (names) => ({ ...runOf(names), stateDelta: SHARED }),
  runAgentSse: (names) => ({ ...runOf(names), stateDelta: SHARED }),
  startInvocation: () => ({ newMessage: MESSAGE, stateDelta: SHARED }),
};
const A2A_MESSAGE = { messageId: 'm-child', role: 'ROLE_USER', parts: [{ text: 'Hello' }] };
const toRpc = (method: string, params: Json): Json => ({ jsonrpc: '2.0', id: 1, method, params });
const askIn = ({ appName, sessionId }: Names) =>
  toRpc('tools/call', { name: appName, arguments: { prompt: 'Hello', session: sessionId } });
const fixedIn = ({ sessionId }: Names) => ({ sessionPolicy: 'fixed', sessionId });

/** What names a session in the body, for each operation whose body above names none. */
const IN_SESSION: Record<string, (names: Names) => Json> = {
  callA2a: ({ sessionId }) => toRpc('SendMessage', { message: { ...A2A_MESSAGE, contextId: sessionId } }),
  sendA2aMessage: ({ sessionId }) => ({ message: { ...A2A_MESSAGE, contextId: sessionId } }),
  streamA2aMessage: ({ sessionId }) => ({ message: { ...A2A_MESSAGE, contextId: sessionId } }),
  callMcp: askIn,
  callMcpApp: askIn,
  createOpenAiResponse: (names) => ({ model: names.appName, input: 'Hello', conversation: toConversationId(names) }),
  createCronjob: (names) => ({
    ownerId: names.userId,
    name: 'Sums',
    prompt: 'Hello',
    schedule: { type: 'daily', time: '08:00', timezone: 'UTC' },
    ...fixedIn(names),
  }),
  updateCronjob: fixedIn,
};
const QUERIES_IN_SESSION: typeof QUERIES = {
  listA2aTasks: ({ userId, sessionId }) => ({ user_id: userId, contextId: sessionId }),
  listSessions: ({ sessionId }) => ({ parentSessionId: sessionId }),
  listTasks: ({ sessionId }) => ({ sessionId }),
};

/** Their content may need a scope for an override, and never touches shared state. */
const WITHOUT_SHARED_STATE = new Set([
  'createCronjob',
  'updateCronjob',
  'harnessInvoke',
  'replayInvocation',
  'importUser',
  'saveArtifact',
  'createOpenAiResponse',
  'createOpenAiChatCompletion',
]);

const runOf = ({ appName, userId, sessionId }: Names): Json => ({ appName, userId, sessionId, newMessage: MESSAGE });

/** Names of operations, so that what is written here about one that is gone fails. */
export const NAMED_OPERATIONS = [
  BODIES,
  FREE_IN_PATH,
  QUERIES,
  HEADERS,
  SHARED_STATE,
  IN_SESSION,
  QUERIES_IN_SESSION,
].flatMap((each) => Object.keys(each));

/** True where an operation can write shared state. @throws Error for one that is unknown here */
export function writesSharedState({ operationId, demands }: Operation<unknown>): boolean {
  if (!demands || WITHOUT_SHARED_STATE.has(operationId)) return false;
  if (SHARED_STATE[operationId]) return true;
  throw new Error(`${operationId} has demands: say in SHARED_STATE how it writes shared state, or that it does not`);
}

/**
 * The request of an operation, at one of its paths, about what `names` says.
 * @param asks - `shared`: write shared state; `in session`: name the session wherever the operation takes one
 * @throws Error for a parameter of the path that nothing here names: a new operation must be given one
 */
export function toRequest(
  operation: Operation<unknown>,
  path: string,
  names: Names,
  asks?: 'shared' | 'in session',
): Sent {
  const { method, body, operationId } = operation;
  const free = FREE_IN_PATH[operationId];
  const inPath: Names = free ? { ...names, [free]: FREE } : names;
  const filled = pathParameters(path).reduce(
    (text, parameter) => text.replace(`{${parameter}}`, encodeURIComponent(valueOf(inPath, parameter, path))),
    path,
  );
  const isIn = asks === 'in session';
  const query = new URLSearchParams(((isIn && QUERIES_IN_SESSION[operationId]) || QUERIES[operationId])?.(names));
  const content =
    asks === 'shared' ? SHARED_STATE[operationId] : (isIn && IN_SESSION[operationId]) || BODIES[operationId];
  const value = content ? content(names) : renamed(body?.example, names);
  const text = typeof value === 'string' || value === undefined ? value : JSON.stringify(value);
  return {
    method: method.toUpperCase(),
    url: query.size > 0 ? `${filled}?${query.toString()}` : filled,
    headers: {
      ...(text === undefined ? {} : { 'content-type': body?.isText ? 'text/plain' : 'application/json' }),
      ...HEADERS[operationId]?.(names),
    },
    body: text,
  };
}

function valueOf(names: Names, parameter: string, path: string): string {
  const name = camelCase(parameter);
  if (name === 'taskId' && path.startsWith('/a2a/')) return toHandle({ key: names, invocationId: names.invocationId });
  if (name === 'configId') return `config-of-${names.userId}`;
  if (name === 'responseId') return toResponseId({ key: names, invocationId: names.invocationId });
  if (name === 'conversationId') return toConversationId(names);
  if (name === 'itemId') return `msg_${names.eventId}_0`;
  if (name === 'runId') return path.includes('cronjobs') ? names.cronjobRunId : names.evalRunId;
  const value = (names as unknown as Record<string, string | undefined>)[name];
  if (value === undefined) throw new Error(`${path}: the matrix has no value for {${parameter}}`);
  return value;
}

function renamed(value: unknown, names: Names): unknown {
  if (Array.isArray(value)) return value.map((each) => renamed(each, names));
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([name, member]) => {
    const named = NAMED[name];
    return [name, named && typeof member === 'string' ? names[named] : renamed(member, names)];
  });
  return Object.fromEntries(entries);
}
