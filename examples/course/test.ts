import assert from 'node:assert/strict';
import { callPart, scriptedModel, startTestRuntime } from 'agent-runtime/testing';
import { agent } from './agents/harness_agent/agent.ts';

const offer = { answer: 'Four each.', total: 8 };
const model = scriptedModel([[callPart('price', { item: 'tea' })], [{ text: JSON.stringify(offer) }]]);
const runtime = await startTestRuntime({ agents: { harness_agent: agent }, model });
const { calls, value, error } = await runtime.ask('Two teas, my card is 4111111111111111');
assert.equal(error, undefined);
assert.deepEqual(value, offer);
assert.deepEqual(
  calls.map(({ name }) => name),
  ['price'],
);
assert(!JSON.stringify(model.requests).includes('4111111111111111'));
await runtime.close();
