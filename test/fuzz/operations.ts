import { Pool } from 'undici';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { insertDelivery, makeOneOfEach, openSnapshots, type Snapshots } from '../security/support/fixture.ts';
import type { Names } from '../security/support/requests.ts';
import documentOfFile from '../../src/http/openapi/openapi.json' with { type: 'json' };
import { answerCheck, type Check, type Received } from './answers.ts';
import { type Made, type OpenApi, type Operation, requestsOf, schemaCompiler } from './requests.ts';

const document = documentOfFile as unknown as OpenApi;
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
const compile = schemaCompiler(document);

const operations: Operation[] = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item)
    .filter(([, { deprecated }]) => deprecated !== true)
    .map(([method, documented]) => ({ method, path, documented })),
);

let app: TestApp;
let client: Pool;
let snapshots: Snapshots;
let names: Names;

/**
 * Requests that are made from our own document, for each second operation of it: valid ones, ones at the bounds, ones
 * with one fault. FUZZ_RUNS: how many of each operation; FUZZ_SEED: repeats a run, of one operation with `-t`, its id.
 * Which requests come first does not depend on how many there are, nor on the operations before.
 */
export function testOperations(half: 0 | 1): void {
  const mine = operations.filter((_, index) => index % 2 === half);
  beforeAll(async () => {
    console.log(`fuzz: FUZZ_SEED=${seed} FUZZ_RUNS=${count}, ${mine.length} of ${operations.length} operations`);
    app = await startApp({ CRONJOBS: 'true', WEBHOOKS: 'true', MCP_CONNECT_TIMEOUT_MS: '200', EVALS_MAX_CASES: '2' });
    client = new Pool(app.url, { connections: READS_AT_ONCE, headersTimeout: LONGEST_MS, bodyTimeout: LONGEST_MS });
    names = await makeOneOfEach(app, 'alice', {});
    await insertDelivery(app.databaseUrl, names);
    snapshots = await openSnapshots(app.databaseUrl);
    await snapshots.take();
  });
  afterAll(async () => {
    await snapshots?.close();
    await client?.destroy();
    await app?.close();
  });
  describe('every request made from the document gets a documented answer', () => {
    test.each(mine.map((each) => [each.documented.operationId, each] as const))('%s', async (_id, each) => {
      expect(await firstFault(each)).toBeUndefined();
    });
  });
}

/** Sends the requests of an operation. @returns the first whose answer is wrong, and why */
async function firstFault(operation: Operation): Promise<object | undefined> {
  const { documented, method } = operation;
  const [media] = Object.values(documented.requestBody?.content ?? {});
  const isValid = media && compile(media.schema);
  const check = answerCheck(documented, compile);
  const atOnce = method === 'get' ? READS_AT_ONCE : 1;
  const statuses: Record<number, number> = {};
  const startedAt = performance.now();
  for (let from = 0; from < count; from += BATCH) {
    const batch = { count: Math.min(BATCH, count - from), seed: seed + from };
    const requests = requestsOf(operation, document, names, isValid, batch);
    for (let place = 0; place < requests.length; place += atOnce) {
      if (place === 0 || (place % RESTORE_EVERY === 0 && method !== 'get')) await snapshots.restore();
      const wrong = await Promise.all(
        requests.slice(place, place + atOnce).map((request) => faultOfAnswer(request, check, statuses)),
      );
      const at = wrong.findIndex((each) => each !== undefined);
      if (at !== -1) {
        const repeat = `FUZZ_SEED=${seed} FUZZ_RUNS=${count} npm run test:fuzz -- -t ' ${documented.operationId}$'`;
        return { repeat, index: from + place + at, request: requests[place + at], ...wrong[at] };
      }
    }
  }
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  console.log(`fuzz: ${documented.operationId}: ${count} in ${seconds} s, by status ${JSON.stringify(statuses)}`);
  return undefined;
}

async function faultOfAnswer(request: Made, check: Check, statuses: Record<number, number>) {
  try {
    const received = await send(request);
    statuses[received.status] = (statuses[received.status] ?? 0) + 1;
    return check(request, received);
  } catch (error) {
    return { why: 'no answer', error };
  }
}

async function send({ method, url, headers, body }: Made): Promise<Received> {
  const answer = await client.request({ method, path: url, headers, ...(body === undefined ? {} : { body }) });
  const type = String(answer.headers['content-type'] ?? '').split(';')[0] || undefined;
  if (answer.statusCode === 200 && url.includes('/events/stream')) {
    answer.body.on('error', () => undefined).destroy(); // it has no end of its own
    return { status: 200, type, text: '' };
  }
  return { status: answer.statusCode, type, text: await answer.body.text() };
}
