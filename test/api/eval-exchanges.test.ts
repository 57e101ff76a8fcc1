import { afterAll, beforeAll, expect, test } from 'vitest';
import { startApp, type TestApp } from '../support/app.ts';
import { openShop, recordedShop } from '../support/recorded-shop.ts';
import {
  type Answer,
  type Exchange,
  inOrder,
  isMadeByHand,
  isObject,
  type Json,
  RULES,
  without,
} from '../support/exchange-rules.ts';
import { vectorsOf } from '../unit/features/evals/vectors.ts';

/**
 * Exchanges that were recorded on ADK's own server, sent here in their order. An answer is the recorded one, or what
 * rules with a reason make of it; ours may have members beside those. The file leaves out some requests: what they made
 * is made before the answer that shows it.
 */

const { exchanges } = vectorsOf('http') as { exchanges: Exchange[] };
const HOLES = /<(?:uuid|seconds|text|schema|any)>/;
/** Where `actual` is not what was recorded; members that were not recorded may be there. */
function differences(expected: Json, actual: Json | undefined, at = ''): string[] {
  if (Object.is(expected, actual)) return [];
  if (typeof expected === 'string' && HOLES.test(expected)) {
    if (/^(?:adk-)?<(?:uuid|seconds|text|schema|any)>$/.test(expected))
      return actual === undefined ? [`${at}: nothing`] : [];
    const pattern = new RegExp(
      `^${expected
        .split(HOLES)
        .map((text) => text.replaceAll(/[.()+]/g, '\\$&'))
        .join('[\\d.a-f-]+')}$`,
    );
    return typeof actual === 'string' && pattern.test(actual)
      ? []
      : [`${at}: ${JSON.stringify(actual)}, not ${expected}`];
  }
  if (Array.isArray(expected) && Array.isArray(actual)) {
    const [one] = expected;
    // Ids that differ from run to run: how many there are depends on the requests that the file leaves out.
    if (typeof one === 'string' && HOLES.test(one) && actual.length > 0) {
      return actual.flatMap((each, index) => differences(one, each, `${at}/${index}`));
    }
    if (expected.length !== actual.length) return [`${at}: ${actual.length} instead of ${expected.length}`];
    return expected.flatMap((each, index) => differences(each, actual[index], `${at}/${index}`));
  }
  if (isObject(expected) && isObject(actual)) {
    return Object.entries(expected).flatMap(([name, each]) => differences(each, actual[name], `${at}/${name}`));
  }
  return Object.is(expected, actual) ? [] : [`${at}: ${JSON.stringify(actual)}, not ${JSON.stringify(expected)}`];
}

/** Members of `actual` that were not recorded, as paths with `*` for places in lists. */
function extraMembers(expected: Json | undefined, actual: Json | undefined, at = ''): string[] {
  if (Array.isArray(expected) && Array.isArray(actual)) {
    return actual.flatMap((each, index) => extraMembers(expected[index] ?? expected[0], each, `${at}/*`));
  }
  if (!isObject(expected) || !isObject(actual)) return [];
  return Object.entries(actual).flatMap(([name, each]) =>
    name in expected ? extraMembers(expected[name], each, `${at}/${name}`) : [`${at}/${name}`],
  );
}

/** What answers have beside the recorded members, and why. */
const EXTRA: [reason: string, members: RegExp][] = [
  ['cases say what their turns cost, and which metrics were silent', /^.*\*\/(?:efficiency|notEvaluated)$/],
  ['a result has what each agent was given once, where it first spoke', /actualInvocation\/appDetails$/],
  [
    'a case has both forms of its calls, since one bundle of the UI reads each',
    /intermediateData\/(?:tool|intermediate)/,
  ],
  ['a metric that could not be evaluated says why, and its threshold', /etricResults\/\*\/(?:details|threshold)$/],
  ['a list that the UI walks through is there also where it is empty', /^\/evalCaseResults\/\*\/evalMetricResults$/],
  [
    'a set can be read, and keeps what it was made with',
    /^\/(?:name|description|eval_cases|creation_timestamp|.*_mode)$/,
  ],
  ['a case of a new set has a time', /^\/eval_cases\/\*\/creationTimestamp$/],
  [
    'a failed case keeps its turns and its reason',
    /^.*\*\/(?:overallEvalMetricResults|evalMetricResultPerInvocation)$/,
  ],
  ['events say why the model stopped', /^\/events\/\*\/finishReason$/],
];

let app: TestApp;
beforeAll(async () => {
  app = await startApp({}, { agents: recordedShop() });
  await openShop(app);
});
afterAll(() => app.close());

const D = '/dev/apps/shop';
/** What a request may carry: a time that was recorded as a hole is none. */
const filled = (value: Json) => JSON.parse(JSON.stringify(value).replaceAll('"<seconds>"', '0')) as Json;
const caseOf = (path: string) => /\/(?:eval-sets|eval_sets)\/([^/]+)\/(?:eval-cases|evals)\/([^/]+)$/.exec(path);
const addCase = async (set: string, evalId: string) => {
  const body = { evalId, sessionId: evalId.replace('case_', ''), userId: 'u1' };
  expect([200, 409]).toContain((await app.post(`${D}/eval-sets/${set}/add-session`, body)).status);
};

/** Makes what the file leaves out, as far as the recorded answer shows it. */
async function prepare({ method, path, request, status, response }: Exchange): Promise<void> {
  const [, set] = /\/(?:eval-sets|eval_sets)\/([A-Za-z0-9_]+)\//.exec(path) ?? [];
  if (set !== undefined && set !== 'nope') await app.post(`${D}/eval_sets/${set}`);
  const [, ofSet = '', evalId = ''] = caseOf(path) ?? [];
  if (evalId.startsWith('case_')) await addCase(ofSet, evalId);
  if (evalId !== '' && method === 'GET' && status === 200 && isMadeByHand(response)) {
    expect((await app.send('PUT', path, filled(response))).text).toBe('null');
  }
  if (method === 'GET' && path.endsWith('/eval_sets')) {
    for (const id of response as string[]) await app.post(`${D}/eval_sets/${id}`);
  }
  if (path.endsWith('/evals')) for (const id of response as string[]) await addCase(set ?? '', id);
  const ids = isObject(request) ? (request['eval_case_ids'] ?? request['evalIds'] ?? []) : [];
  for (const id of ids as string[]) if (id.startsWith('case_')) await addCase(set ?? '', id);
  if (evalId === '' && path.includes('/eval_results/') && status === 200) await runAgain(response);
}

/** Runs what a recorded result is about. */
async function runAgain(result: Json): Promise<void> {
  const cases = (result as { evalCaseResults: { evalId: string; overallEvalMetricResults: Json[] }[] }).evalCaseResults;
  const asked = cases[0]?.overallEvalMetricResults.filter((one) => isObject(one) && one['evalStatus'] !== 4) ?? [];
  const evalMetrics = asked.map((one) => without(one as never, 'score', 'evalStatus', 'details'));
  for (const { evalId } of cases) {
    // As its session has it: a request may have changed the case since that run.
    await app.send('DELETE', `${D}/eval_sets/alpha/evals/${evalId}`);
    await addCase('alpha', evalId);
  }
  await app.post(`${D}/eval-sets/alpha/run`, { evalCaseIds: cases.map(({ evalId }) => evalId), evalMetrics });
}

/** Sends a request as it was recorded; the result that it names is the newest of ours. */
async function send({ method, path, request }: Exchange): Promise<Answer> {
  const results = path.includes('<seconds>') ? ((await app.get(`${D}/eval_results`)).body as string[]) : [];
  const sent = path.replace(/[^/]*<seconds>$/, results[0] ?? '');
  const { status, body } = await app.send(method, sent, request === undefined ? undefined : filled(request));
  return { status, response: inOrder(body as Json) };
}

test('the exchanges are answered as they were recorded, or as a rule with a reason says', async () => {
  const failures: unknown[] = [];
  const reasons = new Map<string, number>();
  let equal = 0;
  for (const exchange of exchanges) {
    await prepare(exchange);
    const answer = await send(exchange);
    const compare = (expected: Answer) => differences(expected, answer);
    let expected: Answer = exchange;
    const recorded = compare({ status: exchange.status, response: exchange.response });
    if (recorded.length === 0 && extraMembers(exchange.response, answer.response).length === 0) {
      equal += 1;
      continue;
    }
    expected = { status: exchange.status, response: exchange.response };
    for (const { reason, change } of RULES) {
      const changed = change(expected, exchange);
      if (JSON.stringify(changed) !== JSON.stringify(expected)) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
      expected = changed;
    }
    const left = compare(expected);
    for (const extra of extraMembers(expected.response, answer.response)) {
      const [reason] = EXTRA.find(([, members]) => members.test(extra)) ?? [];
      if (reason === undefined) left.push(`${extra} was not recorded`);
      else reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
    if (left.length > 0)
      failures.push({ label: exchange.label, left: left.slice(0, 4), answer: JSON.stringify(answer).slice(0, 400) });
  }
  const differing = [...reasons].map(([reason, count]) => `\n  ${count} differ: ${reason}`).join('');
  console.log(`http: ${equal} of ${exchanges.length} as recorded${differing}`);
  expect(failures).toEqual([]);
});
