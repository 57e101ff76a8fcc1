import { Pool } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { insertOthers, makeOneOfEach, openSnapshots, type Snapshots } from '../security/support/fixture.ts';
import { openApiDocument } from '../../src/platform/http/openapi/document.ts';
import { listAllOperations } from '../../src/process/app.ts';
import { COMPONENTS } from '../../src/process/app.ts';
import { writtenOut } from '../support/document.ts';
import { answerCheck, type Check, type Received } from './answers.ts';
import { type Made, type Making, type OpenApi, type Operation, requestsOf, schemaCompiler } from './requests.ts';

/** The document with the operations that stand a second time, whose bodies and rights differ. */
const document = writtenOut(
  openApiDocument(listAllOperations(), { authMode: 'local', components: COMPONENTS, hasCopies: true }) as OpenApi,
);
const count = Number(process.env['FUZZ_RUNS'] ?? 300);
const seed = Number(process.env['FUZZ_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
/** So many are made at once: ten thousand with bodies would not fit. */
const BATCH = 500;
/** What earlier requests deleted is put back that often. */
const RESTORE_EVERY = 20;
/** So many requests of an operation that only reads are under way at once. */
const READS_AT_ONCE = 4;
/** An answer that takes longer will not come. */
const LONGEST_MS = 60_000;
/** Of so many requests one must succeed: the hints name what is there. */
const ENOUGH = 100;
/**
 * `/run_live` is a WebSocket, the metadata for MCP clients are in mode `jwt` only, no consent is on its way, and the
 * task of A2A is over.
 */
const NEVER_DONE = new Set(
  ['runLive', 'getMcpMetadata', 'finishConsent'].concat('cancelA2aTask', 'subscribeToA2aTask', 'resubscribeToA2aTask'),
);
/** Streams of a session's events. */
const FOLLOWED = /\/events\/stream|\/durable-streams\//;
const compile = schemaCompiler(document);

const operations: Operation[] = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, documented]) => ({ method, path, documented })),
);
const copied = new Set(
  listAllOperations().flatMap(({ isCopy, method, path }) => (isCopy ? [`${method} ${path}`] : [])),
);
const nameOf = ({ method, path, documented: { operationId } }: Operation) =>
  copied.has(`${method} ${path}`) ? `${operationId}, a copy` : operationId;

let app: TestApp;
let client: Pool;
let snapshots: Snapshots;
let making: Making;
/** Sequence of the session's last event. */
let lastSequence: number;

/**
 * Requests that are made from our own document, for each second operation of it: valid ones, ones at the bounds, ones
 * with one fault. FUZZ_RUNS: how many of each operation; FUZZ_SEED: repeats a run, of one operation with `-t`, its id.
 * Which requests come first does not depend on how many there are, nor on the operations before.
 */
export function testOperations(half: 0 | 1): void {
  const mine = operations.filter((_, index) => index % 2 === half);
  beforeAll(async () => {
    console.log(`fuzz: FUZZ_SEED=${seed} FUZZ_RUNS=${count}, ${mine.length} of ${operations.length} operations`);
    app = await startApp({ CRONJOBS: 'true', WEBHOOKS: 'true', EVALS: 'true' });
    client = new Pool(app.url, { connections: READS_AT_ONCE, headersTimeout: LONGEST_MS, bodyTimeout: LONGEST_MS });
    const names = await makeOneOfEach(app, 'alice', {});
    await insertOthers(app.databaseUrl, names);
    snapshots = await openSnapshots(app.databaseUrl);
    await snapshots.take();
    const user = `/apps/${names.appName}/users/${names.userId}`;
    const { text: exported } = await app.get(`${user}/export`);
    const { body: session } = await app.get(`${user}/sessions/${names.sessionId}`);
    lastSequence = (session as { events: unknown[] }).events.length;
    making = { document, compile, names, exported };
  });
  afterAll(async () => {
    await snapshots?.close();
    await client?.destroy();
    await app?.close();
  });
  describe('every request made from the document gets a documented answer', () => {
    test.each(mine.map((each) => [nameOf(each), each] as const))('%s', async (_id, each) => {
      expect(await firstFault(each)).toBeUndefined();
    });
  });
}

/** Sends the requests of an operation. @returns the first whose answer is wrong, and why */
async function firstFault(operation: Operation): Promise<object | undefined> {
  const { documented, method } = operation;
  const { operationId } = documented;
  const repeat = `FUZZ_SEED=${seed} FUZZ_RUNS=${count} npx vitest run --project fuzz -t ' ${nameOf(operation)}$'`;
  const check = answerCheck(documented, compile);
  const atOnce = method === 'get' ? READS_AT_ONCE : 1;
  const statuses: Record<number, number> = {};
  const startedAt = performance.now();
  let isStale = true;
  for (let from = 0; from < count; from += BATCH) {
    const requests = requestsOf(operation, making, { count: Math.min(BATCH, count - from), seed: seed + from });
    for (let place = 0; place < requests.length; place += atOnce) {
      if (isStale || (place % RESTORE_EVERY === 0 && method !== 'get')) await snapshots.restore();
      const some = requests.slice(place, place + atOnce);
      const answers = await Promise.all(some.map((request) => answerTo(request, check)));
      for (const [offset, { status, wrong }] of answers.entries()) {
        if (wrong) return { repeat, index: from + place + offset, request: some[offset], ...wrong };
        statuses[status] = (statuses[status] ?? 0) + 1;
      }
      isStale = method === 'delete' && answers.some(({ status }) => status < 300);
    }
  }
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  console.log(`fuzz: ${operationId}: ${count} in ${seconds} s, by status ${JSON.stringify(statuses)}`);
  const isReached = Object.keys(statuses).some((status) => Number(status) < 400) || NEVER_DONE.has(operationId);
  return isReached || count < ENOUGH ? undefined : { repeat, why: 'no request succeeded', statuses };
}

async function answerTo(request: Made, check: Check): Promise<{ status: number; wrong?: object | undefined }> {
  try {
    const received = await send(request);
    return { status: received.status, wrong: check(request, received) };
  } catch (error) {
    return { status: 0, wrong: { why: 'no answer', error } };
  }
}

async function send({ method, url, headers, body }: Made): Promise<Received> {
  const { statusCode: status, ...answer } = await client.request({ method, path: url, headers, body: body ?? null });
  const type = String(answer.headers['content-type'] ?? '').split(';')[0] || undefined;
  if (type !== 'text/event-stream' || !FOLLOWED.test(url)) return { status, type, text: await answer.body.text() };
  // It has no end of its own: its first frame is read, where there is one.
  const after = Number(headers['last-event-id'] ?? new URL(url, app.url).searchParams.get('afterSequence') ?? 0);
  // A place inside the text of the next event comes after the last one too.
  let text = '';
  answer.body.setEncoding('utf8');
  if (Math.floor(after) === lastSequence) answer.body.on('error', () => undefined).destroy();
  else for await (const chunk of answer.body) if ((text += String(chunk)).includes('\n\n')) break;
  return { status, type, text: text.slice(0, text.indexOf('\n\n') + 2) };
}
