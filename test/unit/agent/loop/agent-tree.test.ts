import { describe, expect, test } from 'vitest';
import type { PreparedAgent } from '../../../../src/agent/definition/agent.ts';
import type { AgentNode } from '../../../../src/agent/definition/tool.ts';
import type { ModelRequest } from '../../../../src/agent/definition/model.ts';
import { agentTool } from '../../../../src/agent/loop/agent-tree.ts';
import { exitLoop } from '../../../../src/agent/tools/registry.ts';
import { AgentError } from '../../../../src/core/errors.ts';
import {
  getAnswerText,
  getFunctionCalls,
  getFunctionResponses,
  getParts,
  type Part,
} from '../../../../src/core/content.ts';
import type { Event, NewEvent } from '../../../../src/core/event.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart, scriptedModel, type ScriptedAnswer } from '../../../support/scripted-model.ts';

/** An agent with a script of its own. */
function node(name: string, script: ScriptedAnswer[], more: Partial<AgentNode> = {}) {
  const model = scriptedModel(script);
  const { maxLlmCalls: _max, close: _close, ...plain } = agent({ name, description: `Is ${name}.`, model });
  return Object.assign({ ...plain, ...more }, { requests: model.requests });
}
const say = (text: string): ScriptedAnswer => [{ text }];
const transfer = (name: string): ScriptedAnswer => [callPart('transfer_to_agent', { agent_name: name })];
const root = (plain: AgentNode, more: Partial<PreparedAgent> = {}): PreparedAgent => ({
  ...plain,
  maxLlmCalls: 20,
  close: async () => {},
  ...more,
});
const group = (name: string, kind: AgentNode['kind'], subAgents: AgentNode[], more: Partial<AgentNode> = {}) =>
  node(name, [], { kind, subAgents, ...more });
const authors = (events: (NewEvent | undefined)[]) => events.map((event) => event?.author);
const saidBy = (events: (NewEvent | undefined)[]) =>
  events.flatMap((event) =>
    getAnswerText(event?.content) ? [`${event?.author}: ${getAnswerText(event?.content)}`] : [],
  );
const textsOf = (request: ModelRequest | undefined) =>
  (request?.contents ?? []).flatMap(({ parts }) => (parts ?? []).map((part) => part.text));

describe('transfer', () => {
  test('hands over to a sub-agent, which answers and answers the next prompt too', async () => {
    const child = node('child', [say('I am the child'), say('still me')]);
    const top = node('top', [transfer('child')], { subAgents: [child] });
    const { events, end } = await runToEnd(runInput({ agent: root(top) }));
    expect(authors([...events, end.lastEvent])).toEqual(['top', 'top', 'child']);
    const paths = [...events, end.lastEvent].map((event) => event?.nodeInfo?.path);
    expect(paths).toEqual(['top@1', 'top@1', 'top@1/child@1']);
    expect(events[1]?.actions?.transferToAgent).toBe('child');
    expect(end).toMatchObject({ output: 'I am the child', llmCalls: 2 });
    expect(top.requests[0]?.instruction).toContain('- child: Is child.');
    expect(textsOf(child.requests[0])).toEqual([
      'go',
      'For context:',
      '[top] called tool `transfer_to_agent` with parameters: {"agent_name":"child"}',
      'For context:',
      '[top] `transfer_to_agent` tool returned result: {"result":null}',
    ]);

    const history = [userEvent('go'), ...events, end.lastEvent as Event, userEvent('again')];
    const second = await runToEnd(runInput({ agent: root(top), history }));
    expect(second.end.lastEvent?.author).toBe('child');
    expect(second.end.output).toBe('still me');
  });

  test('goes to parents and peers too, and nowhere else', async () => {
    const left = node('left', [transfer('right')]);
    const right = node('right', [transfer('top')]);
    const top = node('top', [transfer('left'), say('back')], { subAgents: [left, right] });
    const { events, end } = await runToEnd(runInput({ agent: root(top) }));
    expect(authors([...events, end.lastEvent])).toEqual(['top', 'top', 'left', 'left', 'right', 'right', 'top']);
    expect(left.requests[0]?.tools.at(-1)?.parameters).toMatchObject({
      properties: { agent_name: { enum: ['top', 'right'] } },
    });
  });

  test('to an agent that does not exist is an error the model reads', async () => {
    const top = node('top', [transfer('nobody'), say('sorry')], { subAgents: [node('child', [])] });
    const { events, end } = await runToEnd(runInput({ agent: root(top) }));
    expect(getFunctionResponses(events[1]?.content)[0]?.response?.['error']).toContain('allowed values');
    expect(end.output).toBe('sorry');
  });

  test('an agent without anyone to hand over to has no such tool', async () => {
    const top = node('top', [say('hi')]);
    await runToEnd(runInput({ agent: root(top) }));
    expect(top.requests[0]).toMatchObject({ tools: [], instruction: 'Help.' });
  });

  test('two agents that hand over for ever meet the limit', async () => {
    const child = node('child', [transfer('top')]);
    const top = node('top', [transfer('child')], { subAgents: [child] });
    const { end } = await runToEnd(runInput({ agent: root(top, { maxLlmCalls: 7 }) }));
    expect(end).toMatchObject({ error: { code: 'llm_calls_limit' }, llmCalls: 7 });
  });
});

describe('sequential', () => {
  test('runs in order; answers travel by state', async () => {
    const first = node('first', [say('a draft')], { outputKey: 'draft' });
    const second = node('second', [(request) => [{ text: request.instruction }]], { instruction: 'Mend: {draft}' });
    const top = group('steps', 'sequential', [first, second]);
    const { events, end } = await runToEnd(runInput({ agent: root(top) }));
    expect(saidBy([...events, end.lastEvent])).toEqual(['first: a draft', 'second: Mend: a draft']);
    expect(events[0]?.actions?.stateDelta).toEqual({ draft: 'a draft' });
    expect(end.output).toBe('Mend: a draft');
  });

  test('stops at a failure', async () => {
    const failing = node('failing', [new AgentError('model_timeout', 'Too slow.')]);
    const never = node('never', [say('no')]);
    const { end } = await runToEnd(runInput({ agent: root(group('steps', 'sequential', [failing, never])) }));
    expect(end).toMatchObject({ error: { code: 'model_timeout' }, lastEvent: { author: 'failing' } });
    expect(never.requests).toEqual([]);
  });

  test('is taken up after a confirmation where it paused', async () => {
    const paid: unknown[] = [];
    const pay = tool('pay', async (args) => paid.push(args), { needsConfirmation: true });
    const one = node('one', [say('one done')]);
    const two = node('two', [[callPart('pay', { n: 1 }, 'p')], say('two done')], { tools: [pay] });
    const three = node('three', [say('three done')]);
    const tree = root(group('steps', 'sequential', [one, two, three]));
    const first = await runToEnd(runInput({ agent: tree }));
    expect(first.end.paused).toBe(true);
    expect(three.requests).toEqual([]);

    const [asked] = first.events
      .flatMap(({ content }) => getFunctionCalls(content))
      .filter(({ name }) => name !== 'pay');
    const reply: Event = {
      author: 'user',
      invocationId: 'inv-2',
      content: {
        role: 'user',
        parts: [{ functionResponse: { id: asked?.id, name: asked?.name, response: { confirmed: true } } }],
      },
    };
    const history = [userEvent('go'), ...first.events, first.end.lastEvent as Event, reply];
    const second = await runToEnd(runInput({ agent: tree, history }));
    expect(paid).toEqual([{ n: 1 }]);
    expect(saidBy([...second.events, second.end.lastEvent])).toEqual(['two: two done', 'three: three done']);
    expect(one.requests).toHaveLength(1);
  });
});

describe('confirmations below', () => {
  const confirm = (events: Event[]): Event => ({
    author: 'user',
    invocationId: 'inv-2',
    content: {
      role: 'user',
      parts: events
        .flatMap(({ content }) => getFunctionCalls(content))
        .filter(({ name }) => name === 'adk_request_confirmation')
        .map(({ id, name }) => ({ functionResponse: { id, name, response: { confirmed: true } } })),
    },
  });
  const payer = (name: string, paid: string[], more: Partial<AgentNode> = {}) => {
    const pay = tool('pay', async () => paid.push(name), { needsConfirmation: true });
    return node(name, [[callPart('pay', {}, `pay-${name}`)], say(`${name} done`)], { tools: [pay], ...more });
  };

  test('parallel agents that both asked are both taken up', async () => {
    const paid: string[] = [];
    const other = node('other', [say('other done')]);
    const pair = group('pair', 'parallel', [payer('a', paid), other, payer('b', paid)]);
    const tree = root(group('all', 'sequential', [pair, node('after', [say('after')])]));
    const first = await runToEnd(runInput({ agent: tree }));
    expect(first.end).toMatchObject({ paused: true, error: undefined });
    const stored = [...first.events, first.end.lastEvent as Event];
    const history = [userEvent('go'), ...stored, confirm(stored)];
    const second = await runToEnd(runInput({ agent: tree, history }));
    expect(new Set(paid)).toEqual(new Set(['a', 'b']));
    expect(new Set(saidBy([...second.events, second.end.lastEvent]))).toEqual(
      new Set(['a: a done', 'b: b done', 'after: after']),
    );
    expect(other.requests).toHaveLength(1);
    expect(second.end.output).toBe('after');
  });

  test('an agent that was handed over to inside a sequence is taken up itself', async () => {
    const paid: string[] = [];
    const lead = node('lead', [transfer('clerk')], { subAgents: [payer('clerk', paid)] });
    const tree = root(group('steps', 'sequential', [lead, node('after', [say('after')])]));
    const first = await runToEnd(runInput({ agent: tree }));
    const stored = [...first.events, first.end.lastEvent as Event];
    const second = await runToEnd(runInput({ agent: tree, history: [userEvent('go'), ...stored, confirm(stored)] }));
    expect(paid).toEqual(['clerk']);
    expect(saidBy([...second.events, second.end.lastEvent])).toEqual(['clerk: clerk done', 'after: after']);
    expect(lead.requests).toHaveLength(1);
  });
});

describe('loop', () => {
  test('goes round until someone leaves it', async () => {
    const worker = node('worker', [say('v1'), say('v2'), say('v3')]);
    const critic = node('critic', [say('no'), [callPart('exit_loop')], say('never')], { tools: [exitLoop] });
    const tree = root(group('refine', 'loop', [worker, critic]));
    const { events, end } = await runToEnd(runInput({ agent: tree }));
    expect(saidBy([...events, end.lastEvent])).toEqual(['worker: v1', 'critic: no', 'worker: v2']);
    expect(end).toMatchObject({ output: 'v2', error: undefined, lastEvent: { actions: { escalate: true } } });
  });

  test('goes round as often as it is told, and never past the limit', async () => {
    const three = node('worker', [say('again')]);
    const counted = await runToEnd(runInput({ agent: root(group('l', 'loop', [three], { maxIterations: 3 })) }));
    expect(counted.end.llmCalls).toBe(3);
    const endless = await runToEnd(
      runInput({ agent: root(group('l', 'loop', [node('worker', [say('again')])]), { maxLlmCalls: 5 }) }),
    );
    expect(endless.end).toMatchObject({ error: { code: 'llm_calls_limit' }, llmCalls: 5 });
  });

  test('an empty loop ends', async () => {
    const { end } = await runToEnd(runInput({ agent: root(group('l', 'loop', [])) }));
    expect(end).toMatchObject({ lastEvent: undefined, error: undefined, output: '' });
  });
});

describe('parallel', () => {
  test('runs side by side on branches that do not see each other', async () => {
    const { promise: both, resolve } = Promise.withResolvers<void>();
    let started = 0;
    const meet: ScriptedAnswer = async () => {
      started += 1;
      if (started === 2) resolve();
      await both;
      return [{ text: 'met' }];
    };
    const left = node('left', [meet]);
    const right = node('right', [[callPart('nosuch', {}, 'r')], meet]);
    const after = node('after', [say('both met')]);
    const tree = root(group('all', 'sequential', [group('pair', 'parallel', [left, right]), after]));
    const { events, end } = await runToEnd(runInput({ agent: tree }));
    const branches = new Map([...events, end.lastEvent].map((event) => [event?.author, event?.branch]));
    expect(Object.fromEntries(branches)).toEqual({ left: 'pair.left', right: 'pair.right', after: undefined });
    expect(textsOf(right.requests[1]).join(' ')).not.toContain('left');
    expect(textsOf(after.requests[0]).join(' ')).toMatch(/\[left\] said: met/);
    expect(end).toMatchObject({ output: 'both met', llmCalls: 4 });
  });

  test('an agent runs its tools only after its call was taken', async () => {
    const taken = new Set<string>();
    const order: string[] = [];
    const probe = (name: string) =>
      tool(name, async () => {
        order.push(`${name} ${taken.has(name) ? 'after' : 'before'}`);
      });
    const make = (name: string) =>
      node(`agent_${name}`, [[callPart(name, {}, name)], say('ok')], { tools: [probe(name)] });
    const tree = root(group('pair', 'parallel', [make('a'), make('b'), make('c')]));
    await runToEnd(runInput({ agent: tree }), async (event) => {
      await Promise.resolve();
      for (const call of getFunctionCalls(event.content)) taken.add(call.name ?? '');
    });
    expect(order.sort()).toEqual(['a after', 'b after', 'c after']);
  });

  test('a failure stops the others, their open calls are answered, and it comes last', async () => {
    const { promise: running, resolve } = Promise.withResolvers<void>();
    const hang = tool('hang', async () => {
      resolve();
      await new Promise(() => {});
    });
    const busy = node('busy', [[callPart('hang', {}, 'h')]], { tools: [hang] });
    const failing = node('failing', [
      async () => {
        await running;
        throw new AgentError('model_unavailable', 'Away.');
      },
    ]);
    const { events, end } = await runToEnd(runInput({ agent: root(group('pair', 'parallel', [busy, failing])) }));
    expect(end).toMatchObject({
      error: { code: 'model_unavailable', message: 'Away.' },
      lastEvent: { author: 'failing', errorCode: 'model_unavailable' },
    });
    expect(getFunctionResponses(events.at(-1)?.content)).toEqual([
      { id: 'h', name: 'hang', response: { error: 'interrupted' } },
    ]);
  });

  test('an abort from outside ends all branches', async () => {
    const controller = new AbortController();
    const hang = tool('hang', async () => {
      controller.abort(new AgentError('cancelled', 'Cancelled.'));
      await new Promise(() => {});
    });
    const make = (name: string) => node(name, [[callPart('hang', {}, name)]], { tools: [hang] });
    const tree = root(group('pair', 'parallel', [make('a'), make('b')]));
    const { events, end } = await runToEnd(runInput({ agent: tree, signal: controller.signal }));
    expect(end.error).toEqual({ code: 'cancelled', message: 'Cancelled.' });
    const calls = [...events, end.lastEvent].flatMap((event) => getFunctionCalls(event?.content).map(({ id }) => id));
    const answers = [...events, end.lastEvent].flatMap((event) =>
      getFunctionResponses(event?.content).map(({ id }) => id),
    );
    expect(new Set(answers)).toEqual(new Set(calls));
    expect(answers).toHaveLength(2);
  });
});

describe('agent as a tool', () => {
  test('answers a request of its own; calls, tokens and state count, events stay inside', async () => {
    const keep = tool('keep', async (_args, { actions }) => {
      actions.stateDelta = { kept: 1 };
      actions.artifactDelta = { 'a.md': 0 };
    });
    const helper = node('helper', [[callPart('keep', {}, 'k')], say('helped')], { tools: [keep] });
    const script: ScriptedAnswer[] = [[callPart('helper', { request: 'help me' }, 'h')], say('all done')];
    const top = node('top', script, { tools: [agentTool(helper)] });
    const { events, end } = await runToEnd(runInput({ agent: root(top) }));
    expect(authors([...events, end.lastEvent])).toEqual(['top', 'top', 'top']);
    expect(getFunctionResponses(events[1]?.content)[0]?.response).toEqual({ result: 'helped' });
    expect(events[1]?.actions).toMatchObject({ stateDelta: { kept: 1 }, artifactDelta: { 'a.md': 0 } });
    expect(textsOf(helper.requests[0])).toEqual(['help me']);
    expect(end).toMatchObject({ output: 'all done', llmCalls: 4, promptTokens: 40 });
  });

  test('its failure is an error that the agent above reads; the limit is one for both', async () => {
    const helper = node('helper', [[callPart('nosuch')]]);
    const script: ScriptedAnswer[] = [[callPart('helper', { request: 'x' }, 'h')], say('done')];
    const top = node('top', script, { tools: [agentTool(helper)] });
    const { events, end } = await runToEnd(runInput({ agent: root(top, { maxLlmCalls: 4 }) }));
    expect(getFunctionResponses(events[1]?.content)[0]?.response).toEqual({
      error: 'Max number of llm calls limit of `4` exceeded',
    });
    expect(end).toMatchObject({ error: { code: 'llm_calls_limit' }, llmCalls: 4 });
  });

  test('it cannot wait for a person', async () => {
    const pay = tool('pay', async () => 1, { needsConfirmation: true });
    const helper = node('helper', [[callPart('pay', {}, 'p')]], { tools: [pay] });
    const top = node('top', [[callPart('helper', { request: 'x' }, 'h')], say('done')], { tools: [agentTool(helper)] });
    const { events, end } = await runToEnd(runInput({ agent: root(top) }));
    expect(getFunctionResponses(events[1]?.content)[0]?.response).toEqual({
      error: 'The agent `helper` has to ask a person, which it cannot do here.',
    });
    expect(end).toMatchObject({ output: 'done', paused: false });
  });
});

describe('instruction', () => {
  test('a name without a value ends the invocation with a clear error', async () => {
    const { end } = await runToEnd(runInput({ agent: root(node('top', [say('no')], { instruction: 'Hi {who}' })) }));
    expect(end.error?.code).toBe('instruction_unset');
    expect(end.error?.message).toContain('{who?}');
  });

  test('a list of skills is never read as a template', async () => {
    const top = node('top', [say('ok')], { appendedInstruction: ' {left as it is}{who}' });
    await runToEnd(runInput({ agent: root(top) }));
    expect(top.requests[0]?.instruction).toBe('Help. {left as it is}{who}');
  });
});

describe('compaction', () => {
  const turn = (n: number): Event[] => [
    userEvent(`question ${n} ${'x'.repeat(400)}`, { id: `question-${n}`, invocationId: `i${n}`, timestamp: n * 10 }),
    {
      id: `answer-${n}`,
      author: 'assistant',
      invocationId: `i${n}`,
      timestamp: n * 10 + 1,
      content: { role: 'model', parts: [{ text: `answer ${n}` }] },
    },
  ];
  const long = [...turn(1), ...turn(2), ...turn(3), userEvent('now', { invocationId: 'inv-1', timestamp: 40 })];
  const compacting = (script: ScriptedAnswer[], tokenBudget: number, more: Partial<PreparedAgent> = {}) => {
    const plain = node('assistant', script);
    return { plain, tree: root(plain, { compaction: { tokenBudget }, ...more }) };
  };

  test('older invocations become a summary in an event; the model sees it, the history stays', async () => {
    const { plain, tree } = compacting([say('they talked'), say('fine')], 100);
    const before = structuredClone(long);
    const { events, end } = await runToEnd(runInput({ agent: tree, history: long }));
    expect(events).toHaveLength(1);
    expect(events[0]?.content).toBeUndefined();
    expect(events[0]?.actions?.compaction).toEqual({
      startTimestamp: 10,
      endTimestamp: 21,
      compactedContent: { role: 'model', parts: [{ text: 'Summary of the earlier conversation:\nthey talked' }] },
    });
    expect(textsOf(plain.requests[0])[0]).toMatch(/question 1 .*answer 1.*question 2 .*answer 2$/s);
    expect(textsOf(plain.requests[1])).toEqual([
      'Summary of the earlier conversation:\nthey talked',
      expect.stringMatching(/^question 3 /),
      'answer 3',
      'now',
    ]);
    expect(long).toEqual(before);
    expect(end).toMatchObject({ output: 'fine', llmCalls: 2 });
  });

  test.each([
    ['without times', (_n: number) => undefined],
    ['in whole seconds', () => 10],
    ['with one time in milliseconds', (n: number) => (n === 3 ? 10_000 : n)],
    ['with times that go back', (n: number) => 100 - n],
  ])('events %s: each is told to the model or in the summary', async (_, timeOf) => {
    const history = long.map((event, n) => {
      const { timestamp: _time, ...rest } = event;
      const timestamp = timeOf(n);
      return { ...rest, id: `e${n}`, ...(timestamp !== undefined && { timestamp }) };
    });
    const { plain, tree } = compacting([say('they talked'), say('fine'), say('good')], 100);
    const { events, end } = await runToEnd(runInput({ agent: tree, history }));
    const summarised = textsOf(plain.requests[0])[0] ?? '';
    for (const n of [1, 2]) expect(summarised).toContain(`question ${n} `);
    const kept = [expect.stringMatching(/^Summary/), expect.stringMatching(/^question 3 /), 'answer 3', 'now'];
    expect(textsOf(plain.requests[1])).toEqual(kept);
    // The next turn, from what is stored.
    const next = { ...userEvent('more', { invocationId: 'i5' }), id: 'more' };
    const again = compacting([say('good')], 100_000);
    await runToEnd(runInput({ agent: again.tree, history: [...history, events[0], end.lastEvent, next] as Event[] }));
    expect(textsOf(again.plain.requests[0])).toEqual([...kept, 'fine', 'more']);
  });

  test.each(['is answered later', 'was put off and is answered later', 'is never answered'])(
    'a call that %s outlives the summary of what stands around it',
    async (how) => {
      const ask: Part = { functionCall: { id: 'c1', name: 'get_user_choice', args: { options: ['a', 'b'] } } };
      const other = { functionCall: { id: 'c2', name: 'look', args: {} } };
      const answer = (id: string, name: string, response: object): Event => ({
        ...userEvent('', { invocationId: 'i1' }),
        content: { role: 'user', parts: [{ functionResponse: { id, name, response: { ...response } } }] },
      });
      const history: Event[] = [
        userEvent('choose for me', { invocationId: 'i1', timestamp: 1 }),
        { author: 'assistant', invocationId: 'i1', timestamp: 1, content: { role: 'model', parts: [ask, other] } },
        answer('c2', 'look', { seen: true }),
        ...(how.startsWith('was put off') ? [answer('c1', 'get_user_choice', { error: 'pending' })] : []),
        ...long.slice(2),
      ].map((event, n) => ({ ...event, id: `e${n}` }));
      const { plain, tree } = compacting([say('they talked'), say('fine')], 100);
      const { events, end } = await runToEnd(runInput({ agent: tree, history }));
      expect(textsOf(plain.requests[0])[0]).not.toContain('interrupted');
      const late = how === 'is never answered' ? [] : [answer('c1', 'get_user_choice', { choice: 'b' })];
      const next = [...late, userEvent('more', { invocationId: 'i5' })].map((event, n) => ({ ...event, id: `n${n}` }));
      const again = compacting([say('good')], 100_000);
      await runToEnd(
        runInput({ agent: again.tree, history: [...history, events[0], end.lastEvent, ...next] as Event[] }),
      );
      const parts = (again.plain.requests[0]?.contents ?? []).flatMap(getParts);
      expect(parts.flatMap(({ functionCall }) => functionCall?.id ?? [])).toEqual(['c1']);
      expect(parts.flatMap(({ functionResponse }) => functionResponse?.response ?? [])).toEqual([
        late.length > 0 ? { choice: 'b' } : { error: 'interrupted' },
      ]);
    },
  );

  test('what was summarised goes into the next summary, and is not summarised alone', async () => {
    const first = compacting([say('one'), say('fine')], 100);
    const { events, end } = await runToEnd(runInput({ agent: first.tree, history: long }));
    const stored = (event: NewEvent | undefined, timestamp: number): Event => ({ ...event, timestamp });
    const history = [...long, stored(events[0], 41), stored(end.lastEvent, 42)];
    const later = [...history, userEvent('more', { invocationId: 'i5', timestamp: 50 })];
    const second = compacting([say('two'), say('good')], 100);
    const again = await runToEnd(runInput({ agent: second.tree, history: later }));
    expect(textsOf(second.plain.requests[0])[0]).toMatch(
      /^user: Summary of the earlier conversation:\none\n\nuser: question 3 .*answer 3$/s,
    );
    expect(again.events[0]?.actions?.compaction).toMatchObject({ startTimestamp: 10, endTimestamp: 31 });
    expect(textsOf(second.plain.requests[1])[0]).toBe('Summary of the earlier conversation:\ntwo');
    expect(textsOf(second.plain.requests[1]).join(' ')).not.toContain('question 3');
  });

  test.each([
    ['a short history', 100_000, 20, say('s')],
    ['the last model call', 100, 1, say('s')],
  ] as [string, number, number, ScriptedAnswer][])(
    '%s is left as it is',
    async (_name, budget, maxLlmCalls, summary) => {
      const { tree } = compacting([summary, say('fine')], budget, { maxLlmCalls });
      const { events, end } = await runToEnd(runInput({ agent: tree, history: long }));
      expect(events).toEqual([]);
      expect(end.llmCalls).toBe(1);
    },
  );

  test('older invocations that are small beside the budget are not worth a model call', async () => {
    const { plain, tree } = compacting([say('fine')], 100);
    const now = userEvent('now', { invocationId: 'inv-1', timestamp: 60 });
    const small = [...turn(1).slice(1), ...turn(5), now];
    const { events, end } = await runToEnd(runInput({ agent: tree, history: small }));
    expect(events).toEqual([]);
    expect(textsOf(plain.requests[0])).toContain('answer 1');
    expect(end).toMatchObject({ output: 'fine', llmCalls: 1 });
  });

  test('a summary that fails does not fail the invocation', async () => {
    const { tree, plain } = compacting([new AgentError('model_timeout', 'Slow.'), say('fine')], 100);
    const { events, end } = await runToEnd(runInput({ agent: tree, history: long }));
    expect(events).toEqual([]);
    expect(end).toMatchObject({ output: 'fine', error: undefined, llmCalls: 2 });
    expect(textsOf(plain.requests[1])[0]).toMatch(/^question 1 /);
  });
});
