import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { callPart, scriptedModel, startTestRuntime } from 'agent-runtime/testing';
import { agent } from './agent.ts';

const model = scriptedModel([[callPart('forecast', { city: 'Lima' })], [{ text: 'Foggy, 18 degrees.' }]]);
const runtime = await startTestRuntime({ agents: { harness_agent: agent }, model });
after(() => runtime.close());

test('the forecast comes from the tool', async () => {
  const { output, calls } = await runtime.ask('How is the weather in Lima?');
  assert.equal(output, 'Foggy, 18 degrees.');
  const response = { city: 'Lima', sky: 'foggy', celsius: 18 };
  assert.deepEqual(calls, [{ name: 'forecast', args: { city: 'Lima' }, response }]);
});
