import { APP } from './seed.ts';

/** What `npm run bench:growth` sends: a request of every kind of operation. */

const USER = 'measured';

/** A request of an operation. `{name}` in its path is an id of `IDS`. */
export interface Request {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path: string;
  body?: unknown;
  /** It goes on: the first of what it sends is enough. */
  isEndless?: boolean;
}
/** Makes the n-th request of an operation. */
export type Operation = (n: number) => Request;

const get =
  (path: string): Operation =>
  () => ({ method: 'GET', path });
const send =
  (method: Request['method'], path: (n: number) => string, body?: (n: number) => unknown): Operation =>
  (n) => ({
    method,
    path: path(n),
    ...(body && { body: body(n) }),
  });
const of = `/apps/${APP}/users/${USER}`;
const session = `${of}/sessions/s0`;
const D = `/dev/apps/${APP}`;
const text = (words: string) => ({ role: 'user', parts: [{ text: words }] });
const event = (id: string) => ({
  id,
  invocationId: 'i',
  author: 'user',
  content: text('some words'),
  timestamp: 1.79e9,
});
const job = (name: string) => ({
  ownerId: USER,
  name,
  prompt: 'hello',
  schedule: { type: 'daily', time: '08:00', timezone: 'Europe/Berlin' },
});

const METRICS = [{ metricName: 'response_match_score', threshold: 0.8 }];

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

/** Ids that the service chose, by statements of the filled database. */
export const IDS = {
  invocation: `select id from invocations where user_id = '${USER}' and session_id = 'seeded'`,
  event: `select id from events where user_id = '${USER}' and session_id = 'seeded' and sequence = 2`,
  job: `select id from cronjobs where user_id = '${USER}' and name = 'seed'`,
  webhook: `select id from webhooks where user_id = '${USER}'`,
  run: 'select id from eval_runs order by create_time limit 1',
};

function invoke(sessionId: string, prompt = 'What is 17 * 23? Use the calculator.') {
  return { prompt, harness_name: 'h', run_agent_request: { user_id: USER, session_id: sessionId } };
}
const run = (n: number) => ({ appName: APP, userId: USER, sessionId: `new${n}`, newMessage: text('hello') });

/** A request of every kind; those that delete find what one before them has made. */
export const OPERATIONS: Record<string, Operation> = {
  health: get('/health'),
  ready: get('/ready'),
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
  'list invocations': get(`${of}/sessions/seeded/invocations`),
  'save an artifact': send(
    'POST',
    () => `${session}/artifacts`,
    () => ({ filename: 'a.txt', artifact: { text: 'hello' } }),
  ),
  'list artifacts': get(`${session}/artifacts`),
  'load an artifact': get(`${session}/artifacts/note.txt`),
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
  'delete a session': send('DELETE', (n) => `${of}/sessions/new${n}`),
  'create a cronjob': send(
    'POST',
    () => '/harness/cronjobs',
    (n) => job(`j${n}`),
  ),
  'preview a schedule': send(
    'POST',
    () => '/harness/cronjobs/preview',
    () => ({ schedule: job('').schedule }),
  ),
  'run a cronjob': send('POST', () => '/harness/cronjobs/{job}/run'),
  'get a cronjob': get('/harness/cronjobs/{job}'),
  'change a cronjob': send(
    'PATCH',
    () => '/harness/cronjobs/{job}',
    (n) => ({ prompt: `hello ${n}` }),
  ),
  'disable a cronjob': send('POST', () => '/harness/cronjobs/{job}/disable'),
  'enable a cronjob': send('POST', () => '/harness/cronjobs/{job}/enable'),
  'runs of a cronjob': get('/harness/cronjobs/{job}/runs?limit=2'),
  'list cronjobs': get(`/harness/cronjobs?ownerId=${USER}&limit=2`),
  'list all cronjobs': get('/cronjobs?limit=5'),
  'create a webhook': send(
    'POST',
    () => '/harness/webhooks',
    (n) => ({ ownerId: `${USER}${n}`, url: 'https://hook.example/new' }),
  ),
  'list webhooks': get(`/harness/webhooks?ownerId=${USER}`),
  'secret of a webhook': send(
    'POST',
    () => '/harness/webhooks/{webhook}/rotate-secret',
    () => ({}),
  ),
  'deliveries of a webhook': get('/harness/webhooks/{webhook}/deliveries'),
  'list evaluation sets': get(`${D}/eval-sets`),
  'get an evaluation set': get(`${D}/eval-sets/smoke`),
  'list cases': get(`${D}/eval_sets/smoke/evals`),
  'get a case': get(`${D}/eval-sets/smoke/eval-cases/c`),
  'export an evaluation set': get(`${D}/eval-sets/smoke/file`),
  'cases of sessions': send(
    'POST',
    () => `${D}/eval-sets/smoke/add-sessions`,
    (n) => ({ sessions: [{ userId: USER, sessionId: `tool${n}` }] }),
  ),
  'run an evaluation': send(
    'POST',
    () => `${D}/eval-sets/smoke/run`,
    () => ({ evalMetrics: METRICS }),
  ),
  'list evaluation runs': get(`${D}/eval-runs?limit=5`),
  'start an evaluation': send(
    'POST',
    () => `${D}/eval-runs`,
    () => ({ evalSetId: 'smoke', evalMetrics: METRICS }),
  ),
  'get an evaluation run': get(`${D}/eval-runs/{run}`),
  'list results': get(`${D}/eval-results`),
  'trend of a set': get(`${D}/eval-sets/smoke/trend`),
  'summary of a run': get(`${D}/eval-runs/{run}/summary`),
  'stream of a run': get(`${D}/eval-runs/{run}/stream`),
  'judge a run again': send(
    'POST',
    () => `${D}/eval-runs/{run}/judge`,
    () => ({ evalMetrics: METRICS }),
  ),
  'save a verdict': send(
    'PUT',
    () => `${D}/eval-runs/{run}/verdicts`,
    () => ({ evalId: 'c', turn: 0, metricName: 'response_match_score', passed: true }),
  ),
  'list verdicts': get(`${D}/eval-runs/{run}/verdicts`),
  'judges beside people': get(`${D}/eval-sets/smoke/judges`),
  'score sessions': send(
    'POST',
    () => `${D}/session-scores`,
    () => ({ evalMetrics: [{ metricName: 'response_match_score', threshold: 0 }], users: [USER], limit: 1 }),
  ),
  'list scores of sessions': get(`${D}/session-scores`),
  'trace of a session': get(`${D}/debug/trace/session/seeded`),
  'graph of an application': get(`${D}/build_graph`),
};
