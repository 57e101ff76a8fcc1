import { expect, test } from 'vitest';
import { createModel } from '../../../src/agent/models/create-model.ts';
import { prepareAgent } from '../../../src/agent/prepare-agent.ts';
import { builtInTools } from '../../../src/agent/tools/registry.ts';
import { runInput, runToEnd, userEvent } from '../../support/agent-fixtures.ts';

const definition = {
  name: 'harness_agent',
  description: '',
  instruction: 'Help.',
  modelName: 'offline',
  tools: ['calculator', 'current_time'],
  skills: [],
  mcpServers: [],
  sampling: {},
  maxLlmCalls: 500,
};

async function ask(prompt: string) {
  const clock = () => new Date('2026-11-20T18:30:00Z');
  const environment = {
    model: createModel({ provider: 'offline' }),
    modelName: 'offline',
    builtInTools: builtInTools({ now: clock }),
  };
  const agent = await prepareAgent(definition, {}, environment, new AbortController().signal);
  return runToEnd(runInput({ agent, history: [userEvent(prompt)] }));
}

test('the offline model works out a product by the calculator', async () => {
  const { events, end } = await ask('What is 17 * 23? Use the calculator.');
  expect(events).toMatchObject([
    {
      author: 'harness_agent',
      content: { parts: [{ functionCall: { id: 'id-1', name: 'calculator', args: { expression: '17 * 23' } } }] },
    },
    {
      author: 'harness_agent',
      content: {
        role: 'user',
        parts: [{ functionResponse: { id: 'id-1', name: 'calculator', response: { result: 391 } } }],
      },
    },
  ]);
  expect(end).toMatchObject({
    output: 'The tool `calculator` answered: 391',
    error: undefined,
    paused: false,
    llmCalls: 2,
  });
  expect(end.lastEvent).toMatchObject({ modelVersion: 'offline', finishReason: 'STOP' });
});

test('the offline model tells the time by the clock tool', async () => {
  const { end } = await ask('current_time {"timeZone":"Europe/Berlin"}');
  expect(end.output).toContain('"time":"2026-11-20 19:30:00","weekday":"Friday","timeZone":"Europe/Berlin"');
});

test('the offline model says what it is, what it saw and how to get a real one', async () => {
  const { end } = await ask('Hello there');
  expect(end.output).toContain('I am the offline model');
  expect(end.output).toContain('"Hello there" (turn 1 of this session)');
  expect(end.output).toContain('MODEL_PROVIDER');
});
