import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Event, NewEvent } from '../../../../src/core/event.ts';
import { GO_ON, type ModelRequest } from '../../../../src/agent/definition/model.ts';
import { getBreak } from '../../../../src/agent/loop/prefix.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel, type ScriptedAnswer } from '../../../support/scripted-model.ts';

/** Each request begins with the one before it, byte for byte; where it does not, the break is named. */

/** What a provider reads of a request, in its order, without the runtime's request to go on at the end. */
function toText({ instruction, tools, contents }: ModelRequest): string {
  const kept = contents.filter(({ parts }) => parts?.[0]?.text !== GO_ON);
  return JSON.stringify([instruction, tools, ...kept]).slice(0, -1);
}

/** The share of characters that a provider's cache of the last request would have saved, of all after the first. */
function cachedShare(requests: ModelRequest[]): { share: number; broken: number } {
  let [cached, total, broken] = [0, 0, 0];
  for (const [place, request] of requests.entries()) {
    const before = requests[place - 1];
    if (!before) continue;
    const [old, now] = [toText(before), toText(request)];
    if (now.startsWith(old)) cached += old.length;
    else broken += 1;
    total += old.length;
  }
  return { share: total === 0 ? 1 : cached / total, broken };
}

const breaks = (events: NewEvent[]) => events.flatMap((event) => getBreak(event) ?? []);
const calls = (script: ScriptedAnswer[]) => scriptedModel(script);
const work = tool('work', async () => ({ done: true }));
const say = (text: string) => [{ text }];

test('an invocation of many steps: each request begins with the one before it, and no event has a word of it', async () => {
  const model = calls([...Array.from({ length: 60 }, (_, n) => [callPart('work', { n }, `c${n}`)]), say('done')]);
  const { events, end } = await runToEnd(runInput({ agent: agent({ model, tools: [work], maxLlmCalls: 100 }) }));
  expect(cachedShare(model.requests)).toEqual({ share: 1, broken: 0 });
  expect(breaks([...events, end.lastEvent as NewEvent])).toEqual([]);
  expect(events.every(({ customMetadata }) => customMetadata === undefined)).toBe(true);
});

test('a value of the state that changes is named, and so are tools', async () => {
  const set = tool('set', async (_, { actions }) => void (actions.stateDelta = { city: 'Rome' }));
  const large = tool('large', async () => 'x'.repeat(150_000));
  const model = calls([[callPart('set', {}, 'c1')], [callPart('large', {}, 'c2')], say('done')]);
  const one = agent({ model, tools: [set, large], instruction: 'In {city?}. {user:name?}' });
  const { events, end } = await runToEnd(runInput({ agent: one, state: { city: 'Paris' } }));
  const ofModel = [...events, end.lastEvent as NewEvent].filter(({ usageMetadata }) => usageMetadata);
  expect(ofModel.map(getBreak)).toEqual([
    undefined,
    { part: 'instruction', why: 'city' },
    { part: 'tools', why: '+read_result' },
  ]);
});

test.each<[string, (request: ModelRequest) => void, object]>([
  ['more instruction', (request) => void (request.instruction += ' Now.'), { part: 'instruction', why: 'its text' }],
  ['another tool', ({ tools: [first] }) => void (first!.name = 'play'), { part: 'tools', why: '+play -work' }],
  ['no tool', (request) => void (request.tools = []), { part: 'tools', why: '-work -rest' }],
  [
    'another description',
    ({ tools: [first] }) => void (first!.description = 'Works.'),
    { part: 'tools', why: 'a declaration or the order' },
  ],
  [
    'another order',
    ({ tools }) => void tools.push(...tools.splice(0, 1)),
    { part: 'tools', why: 'a declaration or the order' },
  ],
  [
    'another question',
    ({ contents }) => void (contents[0] = userEvent('x').content!),
    { part: 'contents', why: 'content 1' },
  ],
  ['no question', ({ contents }) => void contents.shift(), { part: 'contents', why: 'content 1' }],
  ['no answer', ({ contents }) => void contents.splice(1, 2), { part: 'contents', why: 'content 2' }],
  ['a question alone', ({ contents }) => void contents.splice(1), { part: 'contents', why: 'content 2' }],
  [
    'another answer',
    ({ contents }) => void (contents[2] = { ...contents[2], parts: [{ text: 'x' }] }),
    { part: 'contents', why: 'content 3' },
  ],
])(
  'what a hook changes of a request is a break within the invocation, and is named: %s',
  async (_, change, expected) => {
    const model = calls([...['c1', 'c2', 'c3'].map((id) => [callPart('work', {}, id)]), say('done')]);
    let requests = 0;
    const hooks = {
      name: 'own',
      beforeModel: (request: ModelRequest) => {
        requests += 1;
        if (requests === 3) change(request);
      },
    };
    const one = agent({ model, tools: [work, tool('rest', async () => ({}))], hooks: [hooks] });
    const { events, end } = await runToEnd(runInput({ agent: one }));
    expect(cachedShare(model.requests.slice(0, 3))).toMatchObject({ broken: 1 });
    const ofModel = [...events, end.lastEvent as NewEvent].filter(({ usageMetadata }) => usageMetadata);
    expect(ofModel.slice(0, 3).map(getBreak)).toEqual([undefined, undefined, expected]);
  },
);

const said = (id: string, more: Event = {}): Event => ({
  id,
  author: 'root',
  content: { role: 'model', parts: [{ text: id }] },
  usageMetadata: { promptTokenCount: 1 },
  ...more,
});

test.each<[string, Event[], object | undefined]>([
  ['nothing', [userEvent('a'), said('m1'), userEvent('b')], undefined],
  [
    'a rewind',
    [
      userEvent('a', { invocationId: 'i' }),
      said('m1', { invocationId: 'i' }),
      { id: 'r', author: 'user', actions: { rewindBeforeInvocationId: 'i' } },
      userEvent('b'),
    ],
    { part: 'contents', why: 'rewind', eventId: 'r' },
  ],
  [
    'a response that comes late',
    [
      userEvent('a'),
      said('m0', { content: { role: 'model', parts: [callPart('work', {}, 'w')] } }),
      said('m1'),
      userEvent('b', {
        id: 'late',
        content: { role: 'user', parts: [{ functionResponse: { id: 'w', name: 'work', response: {} } }] },
      }),
    ],
    { part: 'contents', why: 'late response', eventId: 'late' },
  ],
])('the first request of an invocation after %s', async (_, history, expected) => {
  const one = agent({ name: 'root', model: calls([say('done')]) });
  const { end } = await runToEnd(runInput({ agent: one, history }));
  expect(getBreak(end.lastEvent)).toEqual(expected);
});

test('an agent with promptCaching is compared over invocations: its events hold digests', async () => {
  const run = async (history: Event[], instruction: string) => {
    const one = agent({ name: 'root', instruction, model: calls([say('done')]), sampling: { promptCaching: true } });
    return (await runToEnd(runInput({ agent: one, history }))).end.lastEvent as NewEvent;
  };
  const first = await run([userEvent('a')], 'Be brief.');
  const next = [userEvent('a'), first, userEvent('b')];
  expect(getBreak(await run(next, 'Be brief.'))).toBeUndefined();
  expect(getBreak(await run(next, 'Be long.'))).toEqual({ part: 'instruction', why: 'since the last invocation' });
});

/** Recorded sessions of ADK: each turn that its model answered is a request, made from the events before it. */
const recorded = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../../data/adk-stores/adk-2.7-database.sqlite.expected.json'), 'utf8'),
) as unknown;

function* sessionsIn(value: unknown): Generator<Event[]> {
  if (typeof value !== 'object' || value === null) return;
  const { events } = value as { events?: unknown };
  if (Array.isArray(events)) yield events as Event[];
  else for (const each of Object.values(value)) yield* sessionsIn(each);
}

test('recorded conversations, each turn of a model a request: at least 95 % would come from the cache', async () => {
  const { buildContents } = await import('../../../../src/agent/loop/build-contents.ts');
  let [conversations, cached, total] = [0, 0, 0];
  for (const events of sessionsIn(recorded)) {
    const requests = events.flatMap((event, place) => {
      if (event.author === 'user' || !event.content || event.partial) return [];
      if (event.content.role !== 'model') return [];
      const audience = { agentName: String(event.author), branch: event.branch ?? undefined };
      return [
        {
          audience,
          request: { instruction: '', tools: [], contents: buildContents(events.slice(0, place), audience) },
        },
      ];
    });
    conversations += 1;
    for (const [place, { audience, request }] of requests.entries()) {
      const before = requests
        .slice(0, place)
        .findLast((one) => JSON.stringify(one.audience) === JSON.stringify(audience));
      if (!before) continue;
      const [old, now] = [toText(before.request as never), toText(request as never)];
      total += old.length;
      if (now.startsWith(old)) cached += old.length;
    }
  }
  console.log(`  ${conversations} conversations, ${total} characters, ${(100 * cached) / total} % cached`);
  expect(conversations).toBeGreaterThan(40);
  expect(cached / total).toBeGreaterThanOrEqual(0.95);
});
