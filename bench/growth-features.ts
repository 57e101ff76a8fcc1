import { D, get, job, METRICS, type Operation, send, session, text, USER } from './growth-request.ts';
import { APP } from './seed.ts';

/** The part of `npm run bench -- growth` that is about cronjobs, webhooks and evaluation. */

const E = `/apps/${APP}`;

const evalCase = (evalId: string) => ({
  evalId,
  conversation: [
    { userContent: text('What is 17 * 23?'), finalResponse: { role: 'model', parts: [{ text: '17 * 23 = 391' }] } },
  ],
});

export const FEATURES: Record<string, Operation> = {
  'create a cronjob': send(
    'POST',
    () => '/harness/cronjobs',
    (n) => job(`j${n}`),
    (n) => [`job${n}`, /"jobId": ?"([^"]+)"/],
  ),
  'preview a schedule': send(
    'POST',
    () => '/harness/cronjobs/preview',
    () => ({ schedule: job('').schedule }),
  ),
  'run a cronjob': send(
    'POST',
    () => '/harness/cronjobs/{job}/run',
    undefined,
    () => ['jobRun', /"runId": ?"([^"]+)"/],
  ),
  'get a run of a cronjob': get('/harness/cronjobs/{job}/runs/{jobRun}'),
  'cancel a run of a cronjob': send('POST', () => '/harness/cronjobs/{job}/runs/{jobRun}/cancel'),
  'delete a cronjob': send('DELETE', (n) => `/harness/cronjobs/{job${n}}`),
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
    (n) => [`webhook${n}`, /"webhookId": ?"([^"]+)"/],
  ),
  'delete a webhook': send('DELETE', (n) => `/harness/webhooks/{webhook${n}}`),
  'list webhooks': get(`/harness/webhooks?ownerId=${USER}`),
  'secret of a webhook': send(
    'POST',
    () => '/harness/webhooks/{webhook}/rotate-secret',
    () => ({}),
  ),
  'deliveries of a webhook': get('/harness/webhooks/{webhook}/deliveries'),
  'deliver again': send('POST', (n) => `/harness/webhooks/{webhook}/deliveries/d${n}/replay`),
  'list metrics': get(`${E}/metrics-info`),
  'create an evaluation set': send(
    'POST',
    () => `${E}/eval-sets`,
    (n) => ({ evalSet: { eval_set_id: `set${n}`, eval_cases: [] } }),
  ),
  'create an evaluation set by its name': send('POST', (n) => `${D}/eval_sets/named${n}`),
  'import an evaluation set': send(
    'POST',
    () => `${E}/eval-set-files`,
    (n) => ({ eval_set_id: `file${n}`, eval_cases: [evalCase('c')] }),
  ),
  'delete an evaluation set': send('DELETE', (n) => `${E}/eval-sets/file${n}`),
  'list evaluation sets': get(`${E}/eval-sets`),
  'get an evaluation set': get(`${E}/eval-sets/smoke`),
  'list ids of sets': get(`${D}/eval_sets`),
  'list cases': get(`${E}/eval_sets/smoke/evals`),
  'case of a session': send(
    'POST',
    (n) => `${E}/eval-sets/set${n}/add-session`,
    () => ({ evalId: 'c', sessionId: 'seeded', userId: USER }),
  ),
  'case of a session, again': send(
    'POST',
    (n) => `${D}/eval_sets/set${n}/add_session`,
    () => ({ evalId: 'c', sessionId: 'seeded', userId: USER }),
  ),
  'change a case': send(
    'PUT',
    (n) => `${E}/eval-sets/set${n}/eval-cases/c`,
    () => evalCase('c'),
  ),
  'delete a case': send('DELETE', (n) => `${E}/eval-sets/set${n}/eval-cases/c`),
  'get a case': get(`${E}/eval-sets/smoke/eval-cases/c`),
  'export an evaluation set': get(`${E}/eval-sets/smoke/file`),
  'cases of sessions': send(
    'POST',
    () => `${E}/eval-sets/smoke/add-sessions`,
    (n) => ({ sessions: [{ userId: USER, sessionId: `tool${n}` }] }),
  ),
  'run an evaluation': send(
    'POST',
    () => `${E}/eval-sets/smoke/run`,
    () => ({ evalMetrics: METRICS }),
  ),
  'run an evaluation, as a list': send(
    'POST',
    () => `${D}/eval_sets/smoke/run_eval`,
    () => ({ evalMetrics: METRICS }),
  ),
  'list evaluation runs': get(`${E}/eval-runs?limit=5`),
  'start an evaluation': send(
    'POST',
    () => `${E}/eval-runs`,
    () => ({ evalSetId: 'smoke', evalMetrics: METRICS }),
    (n) => [`run${n}`, /"runId": ?"([^"]+)"/],
  ),
  'cancel an evaluation run': send('DELETE', (n) => `${E}/eval-runs/{run${n}}`),
  'get an evaluation run': get(`${E}/eval-runs/{run}`),
  'list results': get(`${E}/eval-results`),
  'list ids of results': send(
    'GET',
    () => `${D}/eval_results`,
    undefined,
    () => ['result', /\["([^"]+)"/],
  ),
  'get a result': get(`${E}/eval-results/{result}`),
  'trend of a set': get(`${E}/eval-sets/smoke/trend`),
  'summary of a run': get(`${E}/eval-runs/{run}/summary`),
  'stream of a run': get(`${E}/eval-runs/{run}/stream`),
  'judge a run again': send(
    'POST',
    () => `${E}/eval-runs/{run}/judge`,
    () => ({ evalMetrics: METRICS }),
  ),
  'save a verdict': send(
    'PUT',
    () => `${E}/eval-runs/{run}/verdicts`,
    () => ({ evalId: 'c', turn: 0, metricName: 'response_match_score', passed: true }),
  ),
  'list verdicts': get(`${E}/eval-runs/{run}/verdicts`),
  'judges beside people': get(`${E}/eval-sets/smoke/judges`),
  'score sessions': send(
    'POST',
    () => `${E}/session-scores`,
    () => ({ evalMetrics: [{ metricName: 'response_match_score', threshold: 0 }], users: [USER], limit: 1 }),
  ),
  'list scores of sessions': get(`${E}/session-scores`),
  'save a rule of scores': send(
    'PUT',
    (n) => `${E}/score-rules/r${n % 3}`,
    () => ({ evalMetrics: METRICS, labels: ['none=none'] }),
  ),
  'list rules of scores': get(`${E}/score-rules`),
  'verdict on a session': send(
    'PUT',
    () => `${session}/verdict`,
    (n) => ({ passed: n % 2 === 0 }),
  ),
  'list verdicts on sessions': get(`${E}/session-verdicts?limit=5`),
  'trace of a session': get(`${D}/debug/trace/session/seeded`),
  'trace of an event': get(`${D}/debug/trace/{event}`),
  'graph of an event': get(`${D}/users/${USER}/sessions/seeded/events/{event}/graph`),
  'structure of an application': get(`${D}/build_graph`),
  'graph of an application': get(`${D}/graph`),
  'graphs of an application': get(`${D}/build_graph_image`),
};
