import type { ValidateFunction } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { insertDelivery, makeOneOfEach, openSnapshots, type Snapshots } from '../security/support/fixture.ts';
import type { Names } from '../security/support/requests.ts';
import documentOfFile from '../../src/http/openapi/openapi.json' with { type: 'json' };
import { type Documented, type Made, type OpenApi, requestsOf, schemaCompiler } from './requests.ts';

/**
 * Requests that are made from our own document, for every operation of it: valid ones, ones at the bounds, ones with
 * one fault. FUZZ_RUNS: how many of each operation; FUZZ_SEED: repeats a run, of one operation with `-t`, its id. Which
 * requests come first does not depend on how many there are.
 */

const document = documentOfFile as unknown as OpenApi;
const count = Number(process.env['FUZZ_RUNS'] ?? 300);
const seed = Number(process.env['FUZZ_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
/** So many are made at once: ten thousand with bodies would not fit. */
const BATCH = 500;
/** What earlier requests deleted is put back that often. */
const RESTORE_EVERY = 20;
/** An answer that takes longer will not come. */
const LONGEST_MS = 60_000;
const compile = schemaCompiler(document);

const operations = Object.entries(document.paths).flatMap(([path, item]) =>
  Object.entries(item)
    .filter(([, { deprecated }]) => deprecated !== true)
    .map(([method, documented]) => ({ method, path, documented })),
);

let app: TestApp;
let snapshots: Snapshots;
let names: Names;
const statuses: Record<number, number> = {};

beforeAll(async () => {
  console.log(`fuzz: FUZZ_SEED=${seed} FUZZ_RUNS=${count}, ${operations.length} operations`);
  app = await startApp({ CRONJOBS: 'true', WEBHOOKS: 'true', MCP_CONNECT_TIMEOUT_MS: '200', EVALS_MAX_CASES: '2' });
  names = await makeOneOfEach(app, 'alice', {});
  await insertDelivery(app.databaseUrl, names);
  snapshots = await openSnapshots(app.databaseUrl);
  await snapshots.take();
});
afterAll(async () => {
  console.log('fuzz: answers by status', statuses);
  await snapshots?.close();
  await app?.close();
});

describe('every request made from the document gets a documented answer', () => {
  test.each(operations.map((each) => [each.documented.operationId, each] as const))('%s', async (_id, operation) => {
    const { documented } = operation;
    const [media] = Object.values(documented.requestBody?.content ?? {});
    const isValid = media && compile(media.schema);
    const answers = answerSchemas(documented);
    const startedAt = performance.now();
    for (let from = 0; from < count; from += BATCH) {
      const batch = { count: Math.min(BATCH, count - from), seed: seed + from };
      for (const [place, request] of requestsOf(operation, document, names, isValid, batch).entries()) {
        if (place === 0 || (place % RESTORE_EVERY === 0 && operation.method !== 'get')) await snapshots.restore();
        const wrong = await check(request, documented, answers).catch((error: unknown) => ({
          why: 'no answer',
          error,
        }));
        expect(wrong && { repeat: repeatOf(documented), index: from + place, request, ...wrong }).toBeUndefined();
      }
      const seconds = Math.round((performance.now() - startedAt) / 1000);
      if (count > BATCH) console.log(`fuzz: ${documented.operationId}: ${from + batch.count} in ${seconds} s`);
    }
  });
});

const repeatOf = ({ operationId }: Documented) =>
  `FUZZ_SEED=${seed} FUZZ_RUNS=${count} npm run test:fuzz -- -t ${operationId}`;

const answerSchemas = ({ responses }: Documented) =>
  new Map(
    Object.entries(responses).map(([status, { content }]) => {
      const schema = content?.['application/json']?.schema;
      return [status, schema && compile(schema)] as const;
    }),
  );

/** What is wrong with the answer to a request; `undefined` where nothing is. */
async function check(request: Made, documented: Documented, schemas: Map<string, ValidateFunction | undefined>) {
  const { status, type, text } = await send(request);
  statuses[status] = (statuses[status] ?? 0) + 1;
  const answer = { status, text: text.slice(0, 1_000) };
  if (status >= 500) return { why: 'a failure', answer };
  if (!schemas.has(String(status))) return { why: 'a status that is not documented', answer };
  const media = documented.responses[status]?.content ?? {};
  if (type !== undefined && !Object.keys(media).includes(type)) return { why: `an undocumented type ${type}`, answer };
  const isMatch = schemas.get(String(status));
  if (type === 'application/json' && isMatch && !isMatch(JSON.parse(text))) {
    return { why: 'an answer that its schema refuses', errors: isMatch.errors, answer };
  }
  if (status === 422) return refusalFault(request, text) && { why: refusalFault(request, text), answer };
  if (request.fault && status < 400) return { why: `a fault at ${request.fault.join('.')} was accepted`, answer };
  return undefined;
}

async function send({ method, url, headers, body }: Made) {
  const gone = new AbortController();
  const response = await fetch(`${app.url}${url}`, {
    method,
    headers,
    signal: AbortSignal.any([gone.signal, AbortSignal.timeout(LONGEST_MS)]),
    ...(body === undefined ? {} : { body }),
  });
  const type = response.headers.get('content-type')?.split(';')[0];
  if (response.status === 200 && url.includes('/events/stream')) {
    gone.abort(); // it has no end of its own
    return { status: 200, type, text: '' };
  }
  return { status: response.status, type, text: await response.text() };
}

/** Says why a 422 does not name the fault's place, or a place that the request has. */
function refusalFault({ fault, sent }: Made, text: string): string | undefined {
  const { detail } = JSON.parse(text) as { detail: { loc: (string | number)[]; type: string }[] };
  if (detail.length === 0) return 'no place is named';
  if (fault) {
    // A union's places go on with the name of its member; a missing or wrong member is named by itself.
    const isNamed = detail.some(({ loc }) => fault.every((part, index) => String(loc[index]) === String(part)));
    return isNamed ? undefined : `the fault is at ${fault.join('.')}`;
  }
  const lost = detail.find(({ loc: [where, ...rest] }) => where === 'body' && !hasPlace(sent, rest));
  return lost && `there is no ${lost.loc.join('.')}`;
}

/** True for a place in a value, or one member that its object lacks; what follows may name a member of a union. */
function hasPlace(value: unknown, [part, ...rest]: (string | number)[]): boolean {
  if (part === undefined || typeof value !== 'object' || value === null) return true;
  if (Array.isArray(value))
    return typeof part !== 'number' || part < value.length ? hasPlace(value[part as number], rest) : false;
  return Object.hasOwn(value, part) ? hasPlace((value as Record<string, unknown>)[part], rest) : rest.length <= 1;
}
