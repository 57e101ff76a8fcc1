import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { defineAgent, defineTool } from '../../../src/agent/definition/agent-module.ts';
import type { ModelAnswer, ModelDelta, ModelRequest } from '../../../src/agent/definition/model.ts';
import { callPart, recordedModel, scriptedModel, startTestRuntime } from '../../../src/process/testing.ts';

const folder = mkdtempSync(join(tmpdir(), 'agent-runtime-kit-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const note = defineTool({
  name: 'note',
  description: 'Notes.',
  parameters: { type: 'object', properties: { what: { type: 'string' } } },
  run: async ({ what }, { actions, services }) => {
    actions.stateDelta = { noted: what };
    actions.artifactDelta = { 'note.txt': await services.saveArtifact('note.txt', { text: String(what) }) };
    return { noted: what };
  },
});
const agent = defineAgent({ instruction: 'You note things.', tools: [note] });
const script = () => scriptedModel([[callPart('note', { what: 'tea' })], [{ text: 'Noted.' }], [{ text: 'Again.' }]]);

const evalSet = {
  eval_set_id: 'smoke',
  eval_cases: [
    {
      evalId: 'said',
      conversation: [
        {
          userContent: { role: 'user', parts: [{ text: 'Hello' }] },
          finalResponse: { role: 'model', parts: [{ text: 'Again.' }] },
        },
      ],
    },
    {
      evalId: 'not-said',
      conversation: [
        {
          userContent: { role: 'user', parts: [{ text: 'Hello' }] },
          finalResponse: { role: 'model', parts: [{ text: 'Something else entirely' }] },
        },
      ],
    },
  ],
};

describe('a runtime for tests', () => {
  let runtime: Awaited<ReturnType<typeof startTestRuntime>>;
  beforeAll(async () => {
    runtime = await startTestRuntime({ agents: { harness_agent: agent }, model: script() });
  });
  afterAll(() => runtime.close());

  test('tells what an agent did: calls, state, artifacts, its answer', async () => {
    const answer = await runtime.ask('note it');
    expect(answer).toMatchObject({
      status: 'succeeded',
      tasks: [],
      output: 'Noted.',
      error: undefined,
      calls: [{ name: 'note', args: { what: 'tea' }, response: { noted: 'tea' } }],
      state: { noted: 'tea' },
      artifacts: { 'note.txt': 0 },
    });
    const again = await runtime.ask([{ text: 'and again' }]);
    expect([again.output, again.calls]).toEqual(['Again.', []]);
  });

  test('runs an evaluation set, whose cases say whether they passed', async () => {
    const path = join(folder, 'smoke.evalset.json');
    writeFileSync(path, JSON.stringify(evalSet));
    const cases = await runtime.evaluate(path, { response_match_score: 0.8 });
    expect(cases.map(({ evalId, passed }) => [evalId, passed])).toEqual([
      ['said', true],
      ['not-said', false],
    ]);
    expect(cases.find(({ passed }) => passed)?.scores).toEqual({ response_match_score: 1 });
  });
});

describe('an agent that asks for a confirmation', () => {
  const pay = defineTool({
    name: 'pay',
    description: 'Pays.',
    parameters: { type: 'object', properties: { euros: { type: 'number' } } },
    needsConfirmation: true,
    run: async ({ euros }) => ({ paid: euros }),
  });
  const payer = defineAgent({ instruction: 'You pay.', tools: [pay] });
  let runtime: Awaited<ReturnType<typeof startTestRuntime>>;
  beforeAll(async () => {
    const turn = [[callPart('pay', { euros: 9 })], [{ text: 'Done.' }]];
    runtime = await startTestRuntime({ agents: { harness_agent: payer }, model: scriptedModel([...turn, ...turn]) });
  });
  afterAll(() => runtime.close());

  test.each([
    [true, { paid: 9 }],
    [false, { error: 'This tool call is rejected.' }],
  ])('waits, and goes on with the answer %s', async (given, response) => {
    const asked = await runtime.ask('pay 9', { user: 'ann', session: `s-${String(given)}` });
    expect(asked).toMatchObject({ status: 'paused', output: '', error: undefined });
    expect(asked.calls).toEqual([{ name: 'pay', args: { euros: 9 }, response: undefined }]);
    expect(asked.tasks).toMatchObject([{ kind: 'confirmation', form: { tool: 'pay', args: { euros: 9 } } }]);
    const [task] = asked.tasks;
    const ended = await runtime.answer(task as NonNullable<typeof task>, given, 'bob');
    expect(ended).toMatchObject({ status: 'succeeded', output: 'Done.', tasks: [] });
    expect(ended.calls).toEqual([{ name: 'pay', args: { euros: 9 }, response }]);
  });
});

test('a recorded model asks once, then gives what was recorded, and refuses another request', async () => {
  const path = join(folder, 'tape.json');
  const request = (text: string, id: string): ModelRequest => ({
    modelName: 'm',
    instruction: '',
    contents: [{ role: 'user', parts: [{ functionResponse: { id, name: 'note', response: { text } } }] }],
    tools: [],
    sampling: {},
    signal: new AbortController().signal,
  });
  const ask = async (stream: AsyncGenerator<ModelDelta, ModelAnswer, void>) => {
    for (;;) {
      const next = await stream.next();
      if (next.done) return next.value.content?.parts;
    }
  };
  const live = scriptedModel([[{ text: 'one' }]]);
  expect(await ask(recordedModel(path, live).generate(request('a', '1')))).toEqual([{ text: 'one' }]);
  const recorded = recordedModel(path, live);
  expect(await ask(recorded.generate(request('a', '2')))).toEqual([{ text: 'one' }]);
  expect(live.requests).toHaveLength(1);
  await expect(ask(recorded.generate(request('a', '3')))).rejects.toThrow('Request 2 is not the one of');
  await expect(ask(recordedModel(path).generate(request('b', '1')))).rejects.toThrow('delete the file');
});
