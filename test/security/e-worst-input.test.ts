import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Operation } from '../../src/platform/http/operation/operation.ts';
import { listAllOperations } from '../../src/process/app.ts';
import { isEnd, openLive, say } from '../support/live-client.ts';
import { startWatched, type WatchedService } from '../support/watched-service.ts';
import { insertOthers, makeOneOfEach } from './support/fixture.ts';
import { type Names, type Sent, toRequest } from './support/requests.ts';
import { deep, documented, long, worstObjects, worstOf } from './support/worst-values.ts';

/**
 * The worst input that each operation takes: each member of its body in turn as long, as wide, as numerous and as deep
 * as its schema allows, each parameter of its query as long as it may be, and by hand what a schema does not say. What
 * one turn of the event loop then costs is CPU time of the main thread, which a busy machine does not raise.
 */

/** CPU of one turn of the event loop, milliseconds: nobody else is answered meanwhile. */
const LONGEST_TURN_MS = 500;
const P99_TURN_MS = 100;
/** Of a member, where the operation is not in `BY_HAND` with bodies as large as they may be. */
const SIZE = 150_000;
/** Of a body, a little below `MAX_BODY_BYTES`. */
const FULL = 10_000_000;
/** Those that change what others need come last, in this order; after them those that delete. */
const LAST = [
  'disableCronjob',
  'updateEvalCase',
  'saveBudget',
  'setLegalHold',
  'deleteEvalCase',
  'the deleting ones',
  'eraseUser',
];
/** Those that write events: each has a session of its own, so that none is full for the next. */
const WRITERS = [
  'appendEvent',
  'runAgent',
  'runAgentSse',
  'invokeLegacy',
  'startInvocation',
  'harnessInvoke',
  'runAgUi',
  'callMcp',
  'callMcpApp',
  'callA2a',
  'sendA2aMessage',
  'streamA2aMessage',
];
const REPEATING = ['addSessionsToEvalSet', 'scoreSessions', 'startEvalRun', 'runEvalSet', 'runEvalSetAsList'];

const USER = '/apps/harness_agent/users/mallory';
const DEV = '/dev/apps/harness_agent';
const FREE = 'made_by_the_matrix';
const image = { inlineData: { mimeType: 'image/png', data: 'A'.repeat(FULL) } };
const message = (...parts: object[]) => ({ role: 'user', parts });
const many = <T>(length: number, make: (n: number) => T): T[] => Array.from({ length }, (_, n) => make(n));
const turn = (n: number, text: string, calls: object[] = []) => ({
  invocationId: `i${n}`,
  userContent: message({ text }),
  finalResponse: { role: 'model', parts: [{ text }] },
  intermediateData: { toolUses: calls, toolResponses: [], intermediateResponses: [] },
  creationTimestamp: 0,
});
const caseOf = (evalId: string, conversation: object[]) => ({ evalId, conversation });
const metrics = ['response_match_score', 'tool_trajectory_avg_score'].map((metricName) => ({
  metricName,
  threshold: 1,
}));
const stored = { modelExecutionMode: 'stored', toolExecutionMode: 'stored', evalMetrics: metrics };
const evalSets = [
  many(8_000, (n) => caseOf(`c${n}`, [])),
  many(900, (n) => caseOf(`c${n}`, [turn(0, long(4_500))])),
  [caseOf('c', [turn(0, long(FULL / 2.2))])],
].map((eval_cases) => ({ eval_set_id: FREE, eval_cases }));
const messages = [message(image), message({ text: long(900_000) }), message(...many(20_000, () => ({ text: 'x' })))];
const harnesses = [
  { tools: many(64, (n) => `calculator${n}`.padEnd(64, 'x')) },
  { skills: many(64, (n) => `skill${n}`.padEnd(64, 'x')) },
  { mcp_servers: many(128, (n) => `http://127.0.0.1:1/${n}${'x'.repeat(8_000)}`) },
  { system_prompt: long(200_000) },
];
const words = many(8_000, (n) => `working${n}`)
  .join(' ')
  .slice(0, 65_000);

type Input = { body?: object | string; search?: string; url?: string };
/** What no schema says, and the bodies that are as large as they may be. */
const BY_HAND: Record<string, (usual: Sent) => Input[]> = {
  createSession: () => [
    ...worstObjects(FULL).map((state) => ({ body: { sessionId: FREE, state } })),
    {
      body: {
        sessionId: FREE,
        events: many(1_000, () => ({ author: 'user', content: message({ text: long(9_000) }) })),
      },
    },
    { body: { sessionId: FREE, events: many(5_000, () => ({ author: 'user' })) } },
  ],
  appendEvent: () => [
    ...worstObjects(FULL).map((customMetadata) => ({ body: { author: 'user', customMetadata } })),
    ...messages.map((content) => ({ body: { author: 'user', content } })),
  ],
  saveArtifact: () => [
    { body: { filename: 'large', artifact: image } },
    { body: { filename: 'large', artifact: { text: long(FULL) } } },
    ...worstObjects(FULL).map((customMetadata) => ({
      body: { filename: 'large', artifact: { text: 'x' }, customMetadata },
    })),
  ],
  harnessInvoke: ({ body = '' }) =>
    [...[900_000, FULL].map((size) => ({ prompt: long(size) })), ...harnesses.map((harness) => ({ harness }))].map(
      (member) => ({ body: { ...(JSON.parse(body) as object), ...member } }),
    ),
  runAgent: ({ body = '' }) =>
    [{ sessionId: 'deep0' }, ...messages.map((newMessage) => ({ newMessage }))].map((member) => ({
      body: { ...(JSON.parse(body) as object), ...member },
    })),
  invokeLegacy: () => [{ body: long(900_000) }, { body: long(FULL) }],
  createEvalSet: () => evalSets.map((evalSet) => ({ body: { evalSet } })),
  importEvalSet: () => evalSets.map((body) => ({ body })),
  updateEvalCase: ({ body = '' }) =>
    [
      many(900, (n) => turn(n, long(4_500))),
      [turn(0, long(FULL / 2.2))],
      [
        turn(
          0,
          '',
          many(20_000, () => ({ name: 'x', args: {} })),
        ),
      ],
    ].map((conversation) => ({ body: { ...(JSON.parse(body) as object), conversation } })),
  runEvalSet: ({ url }) => ['long', 'calls'].map((set) => ({ url: url.replace('set_of_mallory', set), body: stored })),
  importUser: () => [
    { body: many(5_500, (n) => row('sessions', { id: `a${n}`, state: { a: long(1_500) } })).join('\n') },
    { body: lines },
  ],
  getSession: () => [{ url: `${USER}/sessions/deep0` }],
  listEvents: () =>
    ['', '&invocationId=absent'].map((query) => ({ url: `${USER}/sessions/deep0/events?limit=1000${query}` })),
  forkSession: () => [{ url: `${USER}/sessions/deep0/fork`, body: { sessionId: FREE } }],
  addSessionToEvalSet: () => [{ body: { evalId: FREE, userId: 'mallory', sessionId: 'deep0' } }],
  diffSessions: () => [{ url: `${USER}/sessions/deep0/diff?other=deep1` }],
  searchMemory: () => [{ search: `query=${'worst+'.repeat(64)}&limit=100` }, { search: `query=${'x'.repeat(1_000)}` }],
  listSessions: () => [
    { search: `text=${'x'.repeat(256)}&${many(32, (n) => `label=a${n}=b`).join('&')}&withDetails=true` },
  ],
  addSessionToMemory: () => [{ body: { sessionId: 'deep0' } }, { body: { sessionId: 'words' } }],
};

/** Without those of evaluation below `/apps`, which are others of these, and those that only answer 404 here. */
const operations = listAllOperations().filter(
  ({ isCopy, operationId }) => !isCopy && !['getMcpMetadata', 'finishConsent'].includes(operationId),
);
let service: WatchedService;
let names: Names;
const row = (table: string, more: object) =>
  JSON.stringify({ table, row: { app_name: 'harness_agent', user_id: 'mallory', ...more } });
const brought = (n: number) => {
  const ids = { id: `e${n}`, author: 'user' };
  const payload = { ...ids, invocationId: 'i', timestamp: 1, customMetadata: { list: many(48_000, () => []) } };
  const columns = { sequence: n + 1, invocation_id: 'i', event_time: '2026-01-01T00:00:00Z', is_from_runtime: false };
  return row('events', { ...ids, ...columns, session_id: 'brought', payload, bytes: 1 });
};
const lines = [row('sessions', { id: 'brought', state: {} }), ...many(65, brought)].join('\n');

beforeAll(async () => {
  service = await startWatched({
    CRONJOBS: 'true',
    EVALS: 'true',
    WEBHOOKS: 'true',
    DEV_UI: 'true',
    // Limits of time would only say how busy the machine is.
    SESSION_LEASE_MS: '120000',
    SESSION_WAIT_MS: '120000',
    DATABASE_STATEMENT_TIMEOUT_MS: '120000',
  });
  names = await makeOneOfEach(service, 'mallory', {});
  await insertOthers(service.databaseUrl, names);
  const create = async (sessionId: string, events: object[]) => {
    await service.post(`${USER}/sessions`, { sessionId });
    for (const one of events) await service.post(`${USER}/sessions/${sessionId}/events`, { author: 'user', ...one });
  };
  for (const end of [0, 1]) {
    const customMetadata = { deep: [...many(48_000, () => []), end] };
    await create(
      `deep${end}`,
      many(70, () => ({ customMetadata })),
    );
  }
  const endless = [
    { text: long(200_000) },
    { text: 'a_'.repeat(100_000) },
    { text: many(30_000, (n) => `w${n}`).join(' ') },
  ];
  await create(
    'words',
    endless.map((part) => ({ content: message(part) })),
  );
  await create(
    names.sessionId,
    many(9, (n) => ({ content: message({ functionResponse: { id: `c${n}`, name: 'x', response: deep(30_000) } }) })),
  );
  const calls = many(10_000, (n) => ({ id: `${n}`, name: 'x', args: { n } }));
  for (const [id, turns] of Object.entries({ long: many(8, (n) => turn(n, words)), calls: [turn(0, 'x', calls)] })) {
    await service.post(`${DEV}/eval-set-files`, { eval_set_id: id, eval_cases: [caseOf('a', turns)] });
  }
  for (const sessionId of WRITERS) await service.post(`${USER}/sessions/${names.sessionId}/fork`, { sessionId });
  await service.report();
});
afterAll(() => service.close());

/** The worst requests of an operation; the usual one first, which shows that the operation is reached. */
function requestsOf(operation: Operation<unknown>): Sent[] {
  const { path = '', one } = documented.get(operation.operationId) ?? {};
  const sessionId = WRITERS.includes(operation.operationId) ? operation.operationId : names.sessionId;
  const usual = toRequest(operation, path, { ...names, sessionId });
  if (operation.operationId === 'runLive') return [usual];
  if (operation.operationId === 'importUser') usual.headers['content-type'] = 'application/x-ndjson';
  const schema = one?.requestBody?.content['application/json']?.schema;
  const example = usual.body?.startsWith('{') === true ? (JSON.parse(usual.body) as unknown) : undefined;
  const [ofUsual = '', search] = usual.url.split('?');
  const queries = (one?.parameters ?? [])
    .filter((each) => each.in === 'query')
    .flatMap(({ name, schema: sent }) => worstOf(sent, undefined, 4_000).map((value) => [name, value] as const))
    .map(([name, value]) => {
      const values = new URLSearchParams(search);
      for (const each of [value].flat()) values.append(name, String(each));
      return { search: values.toString() };
    });
  // Those that run all cases, or score all sessions, do so whatever their body is.
  const most = REPEATING.includes(operation.operationId) ? 2 : Infinity;
  const inputs: Input[] = [
    ...(schema
      ? worstOf(schema, example, SIZE)
          .slice(0, most)
          .map((body) => ({ body: body as object }))
      : []),
    ...queries,
    ...(BY_HAND[operation.operationId]?.(usual) ?? []),
  ];
  return [
    usual,
    ...inputs.map(({ body, search: query, url = query === undefined ? usual.url : `${ofUsual}?${query}` }) => ({
      ...usual,
      url,
      body: body === undefined ? usual.body : typeof body === 'string' ? body : JSON.stringify(body),
    })),
  ];
}

let made = 0;
/** Sends a request; what it creates has a name of its own. @returns the status */
async function ask(operationId: string, { method, url, headers, body }: Sent): Promise<number> {
  if (operationId === 'runLive') return live();
  made += 1;
  const own = (text: string) => text.replace(FREE, `made_${made}`);
  const response = await fetch(`${service.url}${own(url)}`, {
    method,
    headers,
    body: body === undefined ? null : own(body),
  });
  // Only a stream of a session's events has no end of its own.
  if (operationId === 'streamEvents') await response.body?.getReader().read();
  // A stream that its client reads more slowly than it grows is cut off.
  else await response.arrayBuffer().catch(() => undefined);
  return response.status;
}

/** One socket with frames as large and with as many values as they may have. */
async function live(): Promise<number> {
  const client = await openLive(service, {
    user_id: 'mallory',
    session_id: 'words',
    modalities: 'TEXT',
  });
  const partMetadata = { list: many(1_900, () => 'x'.repeat(400)) };
  for (let n = 0; n < 4; n += 1) client.send({ content: message({ text: 'x', partMetadata }) });
  client.send(say(long(900_000)));
  await Promise.race([client.until(isEnd, 2), client.closed]);
  client.socket.terminate();
  return client.frames.some(isEnd) ? 200 : 400;
}

test('no operation keeps the process from everybody else, whatever it is sent', async () => {
  const place = ({ method, operationId }: { method: string; operationId: string }) =>
    LAST.indexOf(method === 'delete' && !LAST.includes(operationId) ? 'the deleting ones' : operationId);
  const found: { operationId: string; ms: number; bytes: number; status: number }[] = [];
  const turns: number[] = [];
  const slowness: number[] = [];
  const reached = new Set<string>();
  for (const operation of operations.toSorted((one, other) => place(one) - place(other))) {
    const { operationId } = operation;
    for (const sent of requestsOf(operation as Operation<unknown>)) {
      const status = await ask(operationId, sent);
      const report = await service.report();
      slowness.push(report.slowness);
      turns.push(...report.turns);
      if (status < 400) reached.add(operationId);
      found.push({ operationId, ms: Math.round(report.longestMs), bytes: sent.body?.length ?? 0, status });
    }
  }
  const longestFirst = found.toSorted((one, other) => other.ms - one.ms);
  const p99 = turns.toSorted((one, other) => other - one)[Math.floor(turns.length / 100)] ?? 0;
  const slowest = Math.max(...slowness);
  console.log(
    `${operations.length} operations, ${found.length} requests, ${turns.length} turns, p99 ${Math.round(p99)} ms,`,
    `machine at most ${slowest.toFixed(2)} times slower than that of the limits`,
  );
  for (const one of longestFirst.slice(0, 8)) console.log(JSON.stringify(one));
  expect(found.filter(({ ms }) => ms > LONGEST_TURN_MS)).toEqual([]);
  expect(p99).toBeLessThanOrEqual(P99_TURN_MS * slowest);
  const missed = operations.map(({ operationId }) => operationId).filter((id) => !reached.has(id));
  // By then the user is on hold and the session rewound: their input is ids, which the reads beside them take too.
  const late = ['deleteOpenAiResponse', 'deleteOpenAiConversation'];
  // These tasks are over, which is neither cancelled nor followed.
  late.push('cancelA2aTask', 'subscribeToA2aTask', 'resubscribeToA2aTask');
  expect(missed.filter((id) => !late.includes(id))).toEqual([]);
});
