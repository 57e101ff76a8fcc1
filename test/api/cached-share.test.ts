import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { getBreak } from '../../src/agent/loop/prefix.ts';
import type { ProviderName } from '../../src/agent/providers/index.ts';
import type { Event } from '../../src/core/event.ts';
import { startApp, type TestApp } from '../support/app.ts';
import { type FakeAnswer, startFakeProvider } from '../support/fake-provider.ts';
import { MINUTE } from '../support/patience.ts';

/**
 * What a provider's cache would save of 200 conversations: recorded sessions are continued over HTTP, and the fake
 * provider compares the bytes of each request with those of the one before it in the conversation.
 */

const PROVIDERS: ProviderName[] = ['openai', 'anthropic', 'google', 'openai-compatible'];
const read = (file: string) => JSON.parse(readFileSync(new URL(`../data/${file}`, import.meta.url), 'utf8')) as unknown;

function* sessionsIn(value: unknown): Generator<Event[]> {
  if (typeof value !== 'object' || value === null) return;
  const { events } = value as { events?: unknown };
  if (Array.isArray(events)) yield events as Event[];
  else for (const each of Object.values(value)) yield* sessionsIn(each);
}

/** All recorded sessions with an answer of a model. Those of the evaluation's vectors have agents of other names, and no times. */
const RECORDED = [
  'adk-stores/adk-2.7-database.sqlite.expected.json',
  'adk-stores/adk-2.7-postgresql.sql.expected.json',
  'adk-stores/adk-2.7-sqlite-service.sqlite.expected.json',
  'evaluation/vectors.json',
].flatMap((file) =>
  [...sessionsIn(read(file))]
    .filter((events) => events.some(({ content }) => content?.role === 'model'))
    .map((events) =>
      events.map(({ id: _id, timestamp: _time, author, ...event }) => ({
        ...event,
        author: author === 'user' ? author : 'harness_agent',
      })),
    ),
);
/** Each recorded session is continued at some of the providers. */
const chosenFor = (place: number) => RECORDED.filter((_, n) => (n + place) % 5 < 2);

/** What a provider reads of a request, in its order: tools, instruction, contents. Marks of the cache are no part of it. */
function toText(body: Record<string, unknown>): string {
  const { tools, system, instructions, systemInstruction, messages, input, contents } = body;
  const items = (messages ?? input ?? contents) as unknown[];
  const noMark = (key: string, value: unknown) => (key === 'cache_control' ? undefined : value);
  const all = [tools, system ?? instructions ?? systemInstruction, ...items];
  return all.map((item) => JSON.stringify(item, noMark) ?? '').join('\n');
}

function commonLength(one: string, other: string): number {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length += 1;
  return length;
}

interface Counted {
  size: number;
  /** Size of the last request, of that what this one begins with, and whether that is the whole. */
  before: number;
  cached: number;
  isWhole: boolean;
}

const call = (name: string, args: object): NonNullable<FakeAnswer['calls']>[number] => ({
  id: `call-${(calls += 1)}`,
  name,
  arguments: JSON.stringify(args),
});
let calls = 0;
const reckon = () => call('calculator', { expression: `${calls} * 23` });
const says = (text: string): FakeAnswer => ({ text: [text] });

/** More than 1,024 tokens, below which providers cache nothing. */
const INSTRUCTION = [
  ...Array.from({ length: 60 }, (_, n) => `Rule ${n}: look up what you do not know, and say where you found it.`),
  'The city is {city?}.',
].join('\n');

/** Continues a session: two invocations with tools, then one after a rewind, after a changed value, or as they are. */
async function goOn(app: TestApp, script: FakeAnswer[], session: string, n: number): Promise<Event[]> {
  const ask = async (prompt: string, answers: FakeAnswer[]) => {
    script.splice(0, script.length, ...answers);
    const { status, body } = await app.post('/run', {
      appName: 'harness_agent',
      userId: 'u',
      sessionId: session,
      newMessage: { role: 'user', parts: [{ text: prompt }] },
      harness: { system_prompt: INSTRUCTION },
    });
    expect([status, script]).toEqual([200, []]);
    return body as Event[];
  };
  const first = await ask('What is it now?', [{ calls: [reckon(), reckon()] }, { calls: [reckon()] }, says('A lot.')]);
  const move = n % 10 === 7 ? call('write_state', { key: 'city', value: `City ${n}` }) : reckon();
  const second = await ask('And then?', [{ calls: [move] }, says('Less.')]);
  const rewound = second[0]?.invocationId;
  if (n % 10 === 3)
    await app.post(`/apps/harness_agent/users/u/sessions/${session}/rewind`, { rewindBeforeInvocationId: rewound });
  const third = await ask('Is that all?', [says('Yes.')]);
  return [...first, ...second, ...third].filter(({ usageMetadata }) => usageMetadata);
}

const sum = (numbers: number[]) => numbers.reduce((total, each) => total + each, 0);

describe('recorded conversations that go on', { timeout: 5 * MINUTE }, () => {
  test('there are 200', () => {
    expect(RECORDED.length).toBe(147);
    expect(sum(PROVIDERS.map((_, place) => chosenFor(place).length))).toBeGreaterThanOrEqual(200);
  });

  test.each(PROVIDERS.map((name, place) => [name, place] as const))('%s', async (name, place) => {
    const script: FakeAnswer[] = [];
    const counted: Counted[] = [];
    let last = '';
    const provider = await startFakeProvider(name, (body) => {
      const text = toText(body);
      const cached = commonLength(last, text);
      counted.push({ size: text.length, before: last.length, cached, isWhole: cached === last.length });
      last = text;
      const usage = { prompt: text.length, cached, answer: 5, thoughts: 0 };
      return { ...script.shift(), usage };
    });
    const app = await startApp({
      MODEL_PROVIDER: name,
      MODEL_NAME: 'm',
      MODEL_API_KEY: 'k',
      MODEL_BASE_URL: provider.baseUrl,
      TOOLS: 'calculator,write_state',
    });
    const later: (Counted & { why: string | undefined })[] = [];
    try {
      for (const [n, events] of chosenFor(place).entries()) {
        const session = `s${n}`;
        const made = await app.post('/apps/harness_agent/users/u/sessions', { sessionId: session, events });
        expect([made.status, made.body]).toMatchObject([200, { id: session }]);
        counted.length = 0;
        last = '';
        const answers = await goOn(app, script, session, n);
        expect(answers.length).toBe(counted.length);
        // What the service was told of its cache is what the provider counted.
        expect(answers.map(({ usageMetadata }) => usageMetadata?.cachedContentTokenCount ?? 0)).toEqual(
          counted.map(({ cached }) => cached),
        );
        const whys = answers.map(getBreak).map((found) => found && `${found.part}: ${found.why}`);
        later.push(...counted.map((one, index) => ({ ...one, why: whys[index] })).slice(1));
      }
    } finally {
      await app.close();
      await provider.close();
    }
    // Each request begins with the one before it, or its break is named, and none is named that is not.
    expect(later.filter(({ isWhole, why }) => isWhole === (why !== undefined))).toEqual([]);
    // Of all that was sent, and of what had been sent before.
    const cached = sum(later.map((one) => one.cached));
    const share = cached / sum(later.map(({ size }) => size));
    const held = cached / sum(later.map(({ before }) => before));
    const whys = Object.groupBy(later, ({ why }) => why ?? 'none');
    console.log(
      `  ${name}: ${chosenFor(place).length} conversations, ${later.length} requests, ` +
        `${(100 * share).toFixed(1)} % cached, ${(100 * held).toFixed(1)} % of what was sent before`,
    );
    expect(Object.keys(whys).toSorted()).toEqual(['contents: rewind', 'instruction: city', 'none']);
    expect(share).toBeGreaterThanOrEqual(0.95);
    expect(held).toBeGreaterThanOrEqual(0.99);
  });
});
