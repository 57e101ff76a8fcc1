import { describe, expect, test } from 'vitest';
import type { PreparedAgent } from '../../../../src/agent/definition/agent.ts';
import type { Model, ModelAnswer, ModelRequest } from '../../../../src/agent/definition/model.ts';
import { SUMMARY_INSTRUCTION } from '../../../../src/agent/loop/compact.ts';
import { Script } from '../../../../src/agent/loop/script.ts';
import { getFunctionResponses, getParts, type Part } from '../../../../src/core/content.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import type { Event, NewEvent } from '../../../../src/core/event.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart } from '../../../support/scripted-model.ts';

const WINDOW = 4_000;

/** Tokens as the model below counts them: of three characters each, more than the runtime guesses. */
const countOf = ({ instruction, contents, tools }: Pick<ModelRequest, 'instruction' | 'contents' | 'tools'>) =>
  Math.ceil((instruction.length + JSON.stringify(contents).length + JSON.stringify(tools).length) / 3);

type Answer = (request: ModelRequest) => Part[];

/** A model that refuses a prompt above its window, and whose summary is each line with a fact. */
function strictModel(answer: Answer, summary?: Answer): Model & { requests: ModelRequest[]; summaries: string[] } {
  const requests: ModelRequest[] = [];
  const summaries: string[] = [];
  return {
    provider: 'strict',
    requests,
    summaries,
    // oxlint-disable-next-line require-yield
    async *generate(request): AsyncGenerator<never, ModelAnswer, void> {
      const promptTokenCount = countOf(request);
      if (promptTokenCount > WINDOW) throw new AgentError('model_rejected', `prompt is too long: ${promptTokenCount}`);
      const isSummary = request.instruction === SUMMARY_INSTRUCTION;
      const text = getParts(request.contents[0])[0]?.text ?? '';
      if (isSummary) summaries.push(text);
      else requests.push(request);
      const facts = () => [{ text: factsIn(text) }];
      const parts = isSummary ? (summary ?? facts)(request) : answer(request);
      return {
        content: { role: 'model', parts },
        modelVersion: 'strict-1',
        finishReason: 'STOP',
        usageMetadata: { promptTokenCount, candidatesTokenCount: 5 },
      };
    },
  };
}

const textOf = ({ contents }: ModelRequest) => JSON.stringify(contents);
const factsIn = (text: string) => [...new Set(text.match(/fact-\w+=\w+/g) ?? [])].toSorted().join(' ') || 'nothing';
let made = 0;
/** Of one length, because the model counts ids too. */
const newId = () => `id-${String((made += 1)).padStart(6, '0')}`;
/** Looks things up `steps` times, then says all facts that it sees. */
const looking = (steps: number): Answer => {
  let step = 0;
  return (request) => {
    step += 1;
    if (step <= steps) return [callPart('look', { step })];
    return [{ text: factsIn(textOf(request)) }];
  };
};

/** A result of some 100 tokens; each tenth has a fact. */
const look = tool('look', async ({ step }) => ({
  page: `${Number(step) % 10 === 1 ? `fact-${String(step)}=v${Number(step) * 7} ` : ''}${'words of a page '.repeat(20)}`,
}));

const input = (model: Model, more: Partial<PreparedAgent> = {}, history?: Event[]) =>
  runInput({
    agent: agent({ model, contextTokens: WINDOW, maxLlmCalls: 500, tools: [look], ...more }),
    newId,
    ...(history && { history }),
  });

const compactionsOf = (events: NewEvent[]) =>
  events.flatMap((event) => {
    const notes = event.customMetadata?.['agent-runtime/compaction'] as
      | { strategy: string; failed?: string }
      | undefined;
    return notes ? [{ ...notes, event }] : [];
  });

describe('the context window', () => {
  test('a long run never exceeds it, and what was found at its beginning, middle and end is still known', async () => {
    const model = strictModel(looking(60));
    const { events, end } = await runToEnd(input(model));
    expect(end.error).toBeUndefined();
    expect(end.output.split(' ')).toEqual([1, 11, 21, 31, 41, 51].map((n) => `fact-${n}=v${n * 7}`).toSorted());
    const strategies = compactionsOf(events).map(({ strategy }) => strategy);
    expect(strategies).toContain('summarise');
    // It costs a call now and then, not at each step.
    expect(strategies.length).toBeLessThan(20);
    // The question of the running invocation stands in every prompt.
    for (const request of model.requests) expect(textOf(request)).toContain('"go"');
    // A summary reads the one before it.
    expect(model.summaries.at(-1)).toContain('fact-1=v7');
  });

  test('a process that goes on at any event makes the same run', async () => {
    const whole = await runToEnd(input(strictModel(looking(30))));
    const all = [...whole.events, ...(whole.end.lastEvent ? [whole.end.lastEvent] : [])];
    const plain = (events: (NewEvent | undefined)[]) =>
      JSON.stringify(events, (name, value: unknown) =>
        ['id', 'handle', 'eventId', 'agent-runtime/covers'].includes(name) ? undefined : value,
      );
    for (const kept of [1, 5, 12, 13, 14, 15, 16, 17, 18, 30, 40, all.length - 1]) {
      const stored = structuredClone(all.slice(0, kept));
      const script = new Script(stored.map((event, place) => ({ place, sequence: place + 2, event })));
      const steps = 30 - stored.filter(({ usageMetadata }) => usageMetadata).length;
      const first = 30 - steps;
      let step = first;
      const model = strictModel((request) => {
        step += 1;
        return step <= 30 ? [callPart('look', { step })] : [{ text: factsIn(textOf(request)) }];
      });
      const { events, end } = await runToEnd({ ...input(model), script });
      expect(
        [...events, end.lastEvent].map((one) => plain([one])),
        `after ${kept}`,
      ).toEqual(all.map((one) => plain([one])));
    }
  });

  test('results of older calls go first, under a handle; they stay in the events', async () => {
    const model = strictModel(looking(18));
    const { events } = await runToEnd(input(model));
    const [first] = compactionsOf(events);
    expect(first).toMatchObject({ strategy: 'drop_results' });
    const after = events.indexOf(first?.event as NewEvent);
    const asked = events.slice(0, after).filter(({ usageMetadata }) => usageMetadata).length;
    const responses = (model.requests[asked]?.contents ?? []).flatMap(getFunctionResponses);
    expect(responses[0]?.response).toEqual({ dropped: true, handle: responses[0]?.id, characters: expect.any(Number) });
    expect(JSON.stringify(responses.at(-1)?.response)).toContain('words of a page');
    expect(JSON.stringify(events[1])).toContain('words of a page');
    // Later requests begin as that one until the next compaction.
    const [one, two] = [model.requests[asked], model.requests[asked + 1]].map((each) => JSON.stringify(each?.contents));
    expect(two?.startsWith(one?.slice(0, -1) ?? '-')).toBe(true);
  });

  test('a summary that fails leaves events out and says so; the next one reads them again', async () => {
    let summaries = 0;
    const summary: Answer = (request) => {
      summaries += 1;
      if (summaries === 1) throw new AgentError('model_timeout', 'Slow.');
      return [{ text: factsIn(getParts(request.contents[0])[0]?.text ?? '') }];
    };
    const { events, end } = await runToEnd(input(strictModel(looking(60), summary)));
    expect(compactionsOf(events).filter(({ failed }) => failed)).toMatchObject([
      { strategy: 'keep_newest', failed: 'model_timeout' },
    ]);
    expect(end.output).toContain('fact-1=v7');
  });

  test('a prompt that fits in no way ends with the code, and no request is made', async () => {
    const model = strictModel(() => [{ text: 'never' }]);
    const { end } = await runToEnd(input(model, {}, [userEvent('x'.repeat(60_000))]));
    expect(end.error).toMatchObject({ code: 'context_full' });
    expect(end.error?.message).toContain('4000');
    expect(model.requests).toHaveLength(0);
  });

  test('a result that fits in no way is replaced by its handle', async () => {
    const limits = { maxResultCharacters: 200_000 };
    const large = tool('look', async () => ({ page: 'y'.repeat(100_000) }), { limits });
    const model = strictModel(looking(1));
    const { end } = await runToEnd(input(model, { tools: [large] }));
    expect(end.error).toBeUndefined();
    expect(textOf(model.requests[1] as ModelRequest)).toContain('"dropped":true');
  });

  test('a dropped result is read back with its handle', async () => {
    const large = tool('look', async () => ({ page: `fact-1=whole ${'y'.repeat(100_000)}` }), {
      limits: { maxResultCharacters: 200_000 },
    });
    let asked = 0;
    const model = strictModel((request) => {
      asked += 1;
      if (asked === 1) return [callPart('look', {})];
      const [response] = request.contents.flatMap(getFunctionResponses);
      if (asked === 2) return [callPart('read_result', { handle: response?.response?.['handle'], length: 22 })];
      return [{ text: factsIn(textOf(request)) }];
    });
    const { end } = await runToEnd(input(model, { tools: [large] }));
    expect(end).toMatchObject({ error: undefined, output: 'fact-1=whole' });
    expect(model.requests[1]?.tools.map(({ name }) => name)).toEqual(['look', 'read_result']);
  });

  test('a history far above it is summarised in pieces', async () => {
    const history = Array.from({ length: 100 }, (_, n) =>
      userEvent(`q${n} ${n % 30 === 0 ? `fact-${n}=v${n}` : ''} ${'old words '.repeat(20)}`, {
        id: `q${n}`,
        invocationId: `i${n}`,
      }),
    );
    const model = strictModel(looking(0));
    const { end } = await runToEnd(input(model, {}, [...history, userEvent('go')]));
    expect(end.error).toBeUndefined();
    expect(model.summaries.length).toBeGreaterThan(1);
    expect(end.output.split(' ')).toEqual(['fact-0=v0', 'fact-30=v30', 'fact-60=v60', 'fact-90=v90']);
  });

  test('strategies are data: the newest N, or a function of the author; pinned events stay', async () => {
    const newest = strictModel(looking(30));
    const one = await runToEnd(input(newest, { compaction: { strategies: [{ keepNewest: 4 }] } }));
    expect(new Set(compactionsOf(one.events).map(({ strategy }) => strategy))).toEqual(new Set(['keep_newest']));
    expect(newest.summaries).toEqual([]);
    const own = strictModel(looking(30));
    const pin = (event: Event) => JSON.stringify(event).includes('fact-11=');
    const strategies = [(events: Event[]) => `${events.length} events, fact-own=made`];
    const two = await runToEnd(input(own, { compaction: { strategies, pin } }));
    expect(compactionsOf(two.events)[0]).toMatchObject({ strategy: 'function' });
    expect(two.end.output.split(' ')).toEqual(expect.arrayContaining(['fact-11=v77', 'fact-own=made']));
  });

  test('a `pin` that throws leaves nothing pinned, and the run goes on', async () => {
    const pin = () => {
      throw new Error('of the author');
    };
    const { end, events } = await runToEnd(input(strictModel(looking(30)), { compaction: { pin } }));
    expect(end.error).toBeUndefined();
    expect(compactionsOf(events)).not.toEqual([]);
  });

  test('a request may lower it, and agents side by side have summaries of their own', async () => {
    const model = strictModel(looking(20));
    const { end } = await runToEnd(input(model, { contextTokensAtMost: 2_000 }));
    expect(end.error).toBeUndefined();
    expect(Math.max(...model.requests.map(countOf))).toBeLessThan(2_000);
    const [left, right] = ['left', 'right'].map((name) => {
      const { close: _, maxLlmCalls: __, ...node } = agent({ name, model: strictModel(looking(40)), tools: [look] });
      return { ...node, contextTokens: WINDOW };
    });
    const both = agent({ kind: 'parallel', subAgents: [left, right] as never, maxLlmCalls: 500 });
    const side = await runToEnd(runInput({ agent: both, newId }));
    expect(side.end.error).toBeUndefined();
    const finals = [...side.events, side.end.lastEvent].filter((event) => getParts(event?.content)[0]?.text);
    expect(finals).toHaveLength(2);
    for (const final of finals) expect(getParts(final?.content)[0]?.text).toContain('fact-1=v7');
  });

  test('an agent as a tool keeps its request', async () => {
    const model = strictModel(looking(30));
    const {
      close: _,
      maxLlmCalls: __,
      ...node
    } = agent({ name: 'inner', model, contextTokens: WINDOW, tools: [look] });
    const outer = tool('ask', async (_args, context) => (await context.callAgent(node, 'the inner request')).text);
    let calls = 0;
    const top = strictModel(() => ((calls += 1) === 1 ? [callPart('ask')] : [{ text: 'done' }]));
    const { end } = await runToEnd(input(top, { tools: [outer] }));
    expect(end.output).toBe('done');
    for (const request of model.requests) expect(textOf(request)).toContain('the inner request');
  });

  test('without a window and a budget nothing is estimated or stored', async () => {
    const { events } = await runToEnd(
      runInput({ agent: agent({ model: strictModel(looking(10)), tools: [look], maxLlmCalls: 500 }) }),
    );
    expect(compactionsOf(events)).toEqual([]);
  });
});
