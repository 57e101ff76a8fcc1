import { DOORS } from './growth-doors.ts';
import { FEATURES } from './growth-features.ts';
import {
  D,
  event,
  get,
  invoke,
  job,
  METRICS,
  of,
  type Operation,
  type Request,
  run,
  send,
  session,
  text,
  USER,
} from './growth-request.ts';
import { APP } from './seed.ts';

/** The user in the application whose memory is searched by meaning too. */
const MEANING = `/apps/meaning/users/${USER}`;

/** In the application whose model is reached over HTTP. */
const runOfWords = (words: number) => (n: number) => ({
  ...run(n),
  appName: 'words',
  newMessage: text(`Say ${words} words.`),
});

/** What there is of the user that is measured, in both databases. */
export const SEED: Request[] = [
  ...[0, 1, 2].map(
    (n): Request => ({
      method: 'POST',
      path: `${of}/sessions`,
      body: { sessionId: `s${n}`, events: Array.from({ length: 10 }, (_, k) => event(`e${k}`)) },
    }),
  ),
  { method: 'POST', path: `${session}/artifacts`, body: { filename: 'note.txt', artifact: { text: 'hello' } } },
  { method: 'PATCH', path: `${of}/memory`, body: { sessionId: 's0' } },
  { method: 'PATCH', path: `${of}/memory`, body: { sessionId: 's1' } },
  { method: 'POST', path: `${MEANING}/sessions`, body: { sessionId: 's', events: [event('e1'), event('e2')] } },
  { method: 'PATCH', path: `${MEANING}/memory`, body: { sessionId: 's' } },
  { method: 'PATCH', path: `${session}/labels`, body: { project: 'atlas' } },
  { method: 'POST', path: '/harness/cronjobs', body: job('seed') },
  { method: 'POST', path: '/harness/webhooks', body: { ownerId: USER, url: 'https://hook.example/seed' } },
  { method: 'POST', path: '/harness/invoke', body: invoke('seeded') },
  { method: 'POST', path: `${D}/eval-sets`, body: { evalSet: { eval_set_id: 'smoke', eval_cases: [] } } },
  {
    method: 'POST',
    path: `${D}/eval-sets/smoke/add-session`,
    body: { evalId: 'c', sessionId: 'seeded', userId: USER },
  },
  { method: 'POST', path: `${D}/eval-sets/smoke/run`, body: { evalMetrics: METRICS } },
];

const startOfDay = () => `${new Date().toISOString().slice(0, 10)}T00:00:00Z`;
/** How often an operation is sent in all is less. */
const MANY = 500;
const ENDED = `insert into webhook_deliveries
    (app_name, user_id, id, webhook_id, host, payload, status, retry_end_time, end_time)
  select app_name, user_id, 'd' || n, id, host, '{}', 'delivered', now(), now()
  from webhooks, generate_series(0, ${MANY}) n
  where user_id = '${USER}' returning id`;
const UNKNOWN = `insert into tool_calls
    (app_name, user_id, session_id, invocation_id, call_id, operation_id, tool, effect, state)
  select '${APP}', 'u1', 's1', 'i1', 'unknown' || n, gen_random_uuid(), 'pay', 'once', 'unknown'
  from generate_series(0, ${MANY}) n returning call_id as id`;

/** Ids that the service chose, by statements of the filled database. */
export const IDS = {
  invocation: `select id from invocations where user_id = '${USER}' and session_id = 'seeded'`,
  event: `select id from events where user_id = '${USER}' and session_id = 'seeded' and sequence = 2`,
  job: `select id from cronjobs where user_id = '${USER}' and name = 'seed'`,
  webhook: `select id from webhooks where user_id = '${USER}'`,
  run: `select id from eval_runs where eval_set_id = 'smoke' order by create_time limit 1`,
  delivery: ENDED,
  call: UNKNOWN,
  task: `insert into tasks (app_name, user_id, session_id, id, invocation_id, call_id, call_name, kind, form)
    select app_name, user_id, session_id, 'measured', id, 'c', 'wait', 'call', '{"tool": "wait"}'
    from invocations where user_id = '${USER}' and session_id = 'seeded' returning id`,
  version: `select digest as id from agent_versions where app_name = '${APP}' limit 1`,
};

/** Operations that have no row, by their id, and why. */
export const UNMEASURED: Record<string, string> = {
  countUnretained: 'counts all that is old: the more there is, the longer; a command of operators',
  getBuilderConfig: 'answers the same text, from no table',
  getMcpMetadata: 'answers a text of the settings, in mode `jwt` only',
  getSessionTraceLegacy: 'the same as the trace of a session, by an older path',
  getEventTraceLegacy: 'the same as the trace of an event, by an older path',
  finishConsent: 'needs an issuer of tokens, which it waits for',
  deleteGrants: 'needs an issuer of tokens, which it waits for',
  sendTokenSignal: 'a task by the index of its token, then the same as a change of a task',
  deleteScoreRule: 'one row by its key',
  deleteBudget: 'one row by its key',
  deleteOpenAiResponse: 'the same as deleting a session',
  cancelOpenAiResponse: 'the same as cancelling an invocation',
  deleteOpenAiConversation: 'the same as deleting a session',
  streamA2aMessage: 'the same as a message that is waited for',
  cancelA2aTask: 'the same as cancelling an invocation',
  subscribeToA2aTask: 'a task, then the same as the events of a session',
  resubscribeToA2aTask: 'a task, then the same as the events of a session',
  getExtendedA2aCard: 'says what the application is, from no table',
  getCaller: 'says what the credential may do, from no table',
  getA2aCard: 'says what the application is, from no table',
  getFirstA2aCard: 'says what the application is, from no table',
};

/** A request of every kind; those that delete find what one before them has made. */
export const OPERATIONS: Record<string, Operation> = {
  health: get('/health'),
  ready: get('/ready'),
  version: get('/version'),
  'state of the service': get('/service'),
  'list the audit': get('/audit?limit=20'),
  'get the telemetry': get('/config/telemetry'),
  'set the telemetry': () => ({
    method: 'POST',
    path: '/config/telemetry',
    headers: { 'x-adk-telemetry-request': 'true' },
    body: { telemetry: true },
  }),
  'list applications': get('/list-apps'),
  'application info': get(`/apps/${APP}/app-info`),
  'list budgets': get(`/apps/${APP}/budgets`),
  'save a budget': send(
    'PUT',
    () => `/apps/${APP}/budgets`,
    (n) => ({ appliesTo: 'user', forUser: USER, period: 'day', maxTokens: 1e9 + n }),
  ),
  'list prices': get('/model-prices'),
  'save a price': send(
    'PUT',
    () => '/model-prices',
    (n) => ({ model: 'm', promptPrice: n, outputPrice: 1 }),
  ),
  'hold a session': send(
    'PUT',
    () => `${of}/hold`,
    () => ({ sessionId: 's2', reason: 'Case 1' }),
  ),
  'list holds': get(`/apps/${APP}/holds`),
  'remove a hold': send('DELETE', () => `${of}/hold?sessionId=s2`),
  'bytes of a user': get(`${of}/storage`),
  'what a user used': get(`${of}/usage?by=day,model`),
  'what an application used, today': () => ({ method: 'GET', path: `/apps/${APP}/usage?from=${startOfDay()}` }),
  'list users, a page': get(`/apps/${APP}/users?limit=20`),
  'applications of a user': get(`/users/${USER}/apps`),
  'export a user': get(`/apps/${APP}/users/u1/export`),
  'import a user': send(
    'POST',
    (n) => `/apps/${APP}/users/moved${n}/import`,
    (n) => `${JSON.stringify({ table: 'user_states', row: { app_name: APP, user_id: `moved${n}`, state: { n } } })}\n`,
  ),
  'erase a user': send('DELETE', (n) => `/apps/${APP}/users/moved${n}`),
  'list sessions': get(`/apps/${APP}/users/u1/sessions`),
  'list sessions, a page': get(`/apps/${APP}/users/u1/sessions?limit=2`),
  'list by label': get(`/apps/${APP}/users/u1/sessions?limit=20&label=project%3Datlas`),
  'list by text': get(`/apps/${APP}/users/u1/sessions?limit=20&text=nothing`),
  'list by label, own 20,000': get(`/apps/${APP}/users/many/sessions?limit=20&label=project%3Datlas`),
  'list by text, own 20,000': get(`/apps/${APP}/users/many/sessions?limit=20&text=nothing`),
  'list a page, own 20,000': get(`/apps/${APP}/users/many/sessions?limit=20`),
  'create a session': send(
    'POST',
    () => `${of}/sessions`,
    (n) => ({ sessionId: `new${n}` }),
  ),
  'create a session by its name': send(
    'POST',
    (n) => `${of}/sessions/named${n}`,
    () => ({}),
  ),
  'get a session': get(session),
  'get a session as of an event': get(`${session}?atSequence=5`),
  'change a state': send(
    'PATCH',
    () => session,
    (n) => ({ stateDelta: { k: n } }),
  ),
  'change app state': send(
    'PATCH',
    () => session,
    (n) => ({ stateDelta: { 'app:k': n, 'user:k': n } }),
  ),
  'append an event': send(
    'POST',
    () => `${of}/sessions/s1/events`,
    (n) => event(`n${n}`),
  ),
  'list events': get(`${session}/events?limit=10`),
  'events of an invocation, own 20,000': get(`/apps/${APP}/users/many/sessions/long/events?invocationId=i9`),
  'fork a session': send(
    'POST',
    () => `${session}/fork`,
    (n) => ({ sessionId: `fork${n}` }),
  ),
  'compare sessions': get(`${session}/diff?other=s2`),
  'labels of a session': get(`${session}/labels`),
  'label a session': send(
    'PATCH',
    () => `${session}/labels`,
    (n) => ({ n: `${n}` }),
  ),
  'run, a new session': send('POST', () => '/run', run),
  'run with a tool': send(
    'POST',
    () => '/harness/invoke',
    (n) => invoke(`tool${n}`),
  ),
  'create a session for a model over HTTP': send(
    'POST',
    () => `/apps/words/users/${USER}/sessions`,
    (n) => ({ sessionId: `new${n}` }),
  ),
  'run, a model over HTTP, 75 words': send('POST', () => '/run', runOfWords(75)),
  'run, a model over HTTP, 400 words': send('POST', () => '/run', runOfWords(400)),
  'run by the old path': send(
    'POST',
    () => '/invoke',
    () => ({ prompt: 'What is 17 * 23? Use the calculator.' }),
  ),
  'run as events': send(
    'POST',
    () => '/run_sse',
    (n) => ({ ...run(n), sessionId: `new${n}` }),
  ),
  'start in the background': send(
    'POST',
    (n) => `${of}/sessions/new${n}/invocations`,
    () => ({ newMessage: text('hello') }),
  ),
  'a turn of a live session': (n) => ({
    method: 'GET',
    path: `/run_live?app_name=${APP}&user_id=${USER}&session_id=new${n}&modalities=TEXT`,
    body: { content: text('hello') },
  }),
  'replay an invocation': send(
    'POST',
    () => `${of}/sessions/seeded/invocations/{invocation}/replay`,
    () => ({}),
  ),
  'rewind a session': send(
    'POST',
    () => `${of}/sessions/seeded/rewind`,
    () => ({ rewindBeforeInvocationId: '{invocation}' }),
  ),
  'get an invocation': get(`${of}/sessions/seeded/invocations/{invocation}`),
  'first events of a stream': () => ({ method: 'GET', path: `${session}/events/stream`, isEndless: true }),
  'cancel what has ended': send('POST', () => `${of}/sessions/seeded/invocations/{invocation}/cancel`),
  'list tool calls': get(`${of}/tool-calls`),
  'settle a tool call': send(
    'POST',
    (n) => `/apps/${APP}/users/u1/sessions/s1/tool-calls/unknown${n}/settle`,
    () => ({ outcome: 'done' }),
  ),
  'list invocations': get(`${of}/sessions/seeded/invocations`),
  'invocations of an application, a page': get(`/apps/${APP}/invocations?limit=20`),
  'what failed in an application': get(`/apps/${APP}/invocations?limit=20&status=failed`),
  'invocations of an application, by text': get(`/apps/${APP}/invocations?limit=20&text=nothing`),
  'invocations of all applications, a page': get('/invocations?limit=20'),
  'invocations of a user': get(`/apps/${APP}/invocations?limit=20&userId=${USER}`),
  'save an artifact': send(
    'POST',
    () => `${session}/artifacts`,
    () => ({ filename: 'a.txt', artifact: { text: 'hello' } }),
  ),
  'list artifacts': get(`${session}/artifacts`),
  'load an artifact': get(`${session}/artifacts/note.txt`),
  'load a version': get(`${session}/artifacts/note.txt/versions/0`),
  'metadata of a version': get(`${session}/artifacts/note.txt/versions/0/metadata`),
  'list versions': get(`${session}/artifacts/note.txt/versions`),
  'metadata of versions': get(`${session}/artifacts/note.txt/versions/metadata`),
  'delete an artifact': send('DELETE', () => `${session}/artifacts/a.txt`),
  'add to memory': send(
    'PATCH',
    () => `${of}/memory`,
    () => ({ sessionId: 's2' }),
  ),
  'search the memory': get(`${of}/memory?query=some+words`),
  'search the memory by meaning': get(`${MEANING}/memory?query=some+words`),
  'delete a session': send('DELETE', (n) => `${of}/sessions/new${n}`),
  'list tasks': get('/tasks?limit=5'),
  'list tasks of a user': get(`/tasks?ownerId=${USER}&limit=5`),
  'list tasks assigned to a user': get('/tasks?assignee=u7&limit=5'),
  'get a task': get('/tasks/{task}'),
  'postpone a task': send(
    'PATCH',
    () => '/tasks/{task}',
    (n) => ({ action: 'postpone', seconds: 100_000 + n }),
  ),
  'make an address for a task': send(
    'POST',
    () => '/tasks/{task}/address',
    () => ({}),
  ),
  'send a signal': send(
    'POST',
    (n) => `/apps/${APP}/users/u${1 + (n % 90)}/sessions/s1/signals/parcel`,
    () => ({}),
  ),
  'list versions of an application': get(`/apps/${APP}/versions?limit=5`),
  'get a version of an application': get(`/apps/${APP}/versions/{version}`),
  'compare versions of an application': get(`/apps/${APP}/versions/{version}/diff?other={version}`),
  'sample of invocations': get(`/apps/${APP}/invocation-sample?minutes=60&limit=5`),
  ...FEATURES,
  ...DOORS,
};

/** What an operation deletes, by the name of what makes it: there is enough of it however often it is measured. */
export const MADE_BY: Record<string, string> = {
  'delete a cronjob': 'create a cronjob',
  'delete a webhook': 'create a webhook',
  'delete a session': 'create a session',
  'delete an evaluation set': 'import an evaluation set',
  'cancel an evaluation run': 'start an evaluation',
  'erase a user': 'import a user',
};

/** What is asked again with a key of the user: who sees one's own only must not pay for what others have. */
export const BOUND: Record<string, Operation> = Object.fromEntries(
  Object.entries({
    'list sessions, a page': get(`${of}/sessions?limit=2`),
    'list by label, own 20,000': get(`/apps/${APP}/users/many/sessions?limit=20&label=project%3Datlas`),
    'list by text, own 20,000': get(`/apps/${APP}/users/many/sessions?limit=20&text=nothing`),
    'get a session': get(session),
    'create a session': send(
      'POST',
      () => `${of}/sessions`,
      (n) => ({ sessionId: `bound${n}` }),
    ),
    'run with a tool': send(
      'POST',
      () => '/run',
      (n) => ({ ...run(n), sessionId: `bound${n}`, newMessage: text('What is 17 * 23? Use the calculator.') }),
    ),
    'search the memory': get(`${of}/memory?query=some+words`),
    'list artifacts': get(`${session}/artifacts`),
    'list tool calls': get(`${of}/tool-calls`),
    'what a user used': get(`${of}/usage?by=day,model`),
  }).map(([name, each]) => [`with a key: ${name}`, each]),
);
