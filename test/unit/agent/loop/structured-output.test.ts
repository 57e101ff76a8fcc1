import { expect, test } from 'vitest';
import { z } from 'zod';
import { toOutputSchema } from '../../../../src/agent/definition/output-schema.ts';
import { Script } from '../../../../src/agent/loop/script.ts';
import { agent, runInput, runToEnd, tool, userEvent } from '../../../support/agent-fixtures.ts';
import { callPart, type ScriptedAnswer, scriptedModel } from '../../../support/scripted-model.ts';

const schema = {
  type: 'object',
  properties: { n: { type: 'integer', minimum: 1 } },
  required: ['n'],
  additionalProperties: false,
};
const outputSchema = toOutputSchema(schema);
const GOOD = '{"n":7}';

const run = (script: ScriptedAnswer[], members = {}, input = {}) => {
  const model = scriptedModel(script);
  const tools = [tool('look', async () => ({ seen: 7 }))];
  const node = agent({ model, tools, outputSchema, outputKey: 'kept', ...members });
  return runToEnd(runInput({ agent: node, ...input })).then((ended) => ({ model, ...ended }));
};
const text = (value: string) => [{ text: value }];

test('the value is in the event, the state and the end; the model was told the form', async () => {
  const { model, end } = await run([[callPart('look', {}, 'c')], text(GOOD)]);
  expect(model.requests.map((request) => request.outputSchema)).toEqual([schema, schema]);
  expect(end.lastEvent).toMatchObject({ output: { n: 7 }, content: { parts: text(GOOD) } });
  expect(end.lastEvent?.actions?.stateDelta).toEqual({ kept: { n: 7 } });
  expect(end).toMatchObject({ output: GOOD, value: { n: 7 }, llmCalls: 2 });
});

test.each([
  ['shown as code', '```json\n{"n": 7}\n```', '{"n": 7}'],
  ['with blanks around it', ' {"n":7}\n', GOOD],
])('%s it is taken for JSON, and the text is only that', async (_, said, kept) => {
  const { end } = await run([text(said)]);
  expect(end.lastEvent).toMatchObject({ output: { n: 7 }, content: { parts: text(kept) } });
});

test('what does not fit is asked for again: stored as a thought with the reason, and counted', async () => {
  const { model, events, end } = await run([text('Seven.'), text('{"n":0}'), text(GOOD)]);
  const rejected = (said: string, reason: string) => ({
    content: { role: 'model', parts: [{ text: said, thought: true, partMetadata: { rejected: reason } }] },
  });
  expect(events).toMatchObject([rejected('Seven.', 'it is no JSON'), rejected('{"n":0}', '`/n` must be >= 1')]);
  expect(model.requests.at(-1)?.contents).toEqual([
    { role: 'user', parts: text('go') },
    { role: 'model', parts: text('Seven.') },
    { role: 'user', parts: [{ text: expect.stringContaining('it is no JSON') as string }] },
    { role: 'model', parts: text('{"n":0}') },
    { role: 'user', parts: [{ text: expect.stringContaining('`/n` must be >= 1') as string }] },
  ]);
  expect(end).toMatchObject({ output: GOOD, value: { n: 7 }, llmCalls: 3, outputTokens: 21 });
});

test('the third answer that does not fit is the end', async () => {
  const { end } = await run([text('no')]);
  expect(end).toMatchObject({ output: '', paused: false, llmCalls: 3 });
  expect(end.error?.code).toBe('invalid_output');
  expect(end.error?.message).toContain('it is no JSON');
  expect(end.value).toBeUndefined();
});

test('a stream shows no text that is asked for again, and all of the answer', async () => {
  const { events } = await run([text('bad'), text(GOOD)], {}, { streaming: true });
  const partial = events.filter((event) => event.partial);
  expect(partial.map(({ content }) => content?.parts)).toEqual([text(GOOD)]);
});

test('refinements of a zod schema count, in their words', async () => {
  const even = z.object({ n: z.int() }).refine(({ n }) => n % 2 === 0, 'n must be even');
  const { events, end } = await run([text(GOOD), text('{"n":8}')], { outputSchema: toOutputSchema(even) });
  expect(events[0]?.content?.parts?.[0]?.partMetadata).toEqual({ rejected: '`/` n must be even' });
  expect(end.value).toEqual({ n: 8 });
});

test('a run that goes on takes what was asked for again, and counts it among the repairs', async () => {
  const first = await run([text('a'), text('b'), text('c')]);
  const steps = first.events.map((event, index) => ({ event, place: index + 1, sequence: index + 2 }));
  const script = new Script(steps, [userEvent('go')]);
  const { model, end } = await run([text('still not')], {}, { script });
  expect(model.requests).toHaveLength(1);
  expect(end.error?.code).toBe('invalid_output');
  const again = await run([text(GOOD)], {}, { script: new Script(steps.slice(0, 1), [userEvent('go')]) });
  expect([again.model.requests.length, again.end.value]).toEqual([1, { n: 7 }]);
});

test('an abort while the value is checked ends the turn without it', async () => {
  const stop = new AbortController();
  const slow = {
    schema,
    check: async () => {
      stop.abort();
      return undefined;
    },
  };
  const { end } = await run([text(GOOD)], { outputSchema: slow }, { signal: stop.signal });
  expect([end.error !== undefined, end.value]).toEqual([true, undefined]);
});
