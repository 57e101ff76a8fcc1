import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { callPart, scriptedModel, startTestRuntime } from 'agent-runtime/testing';
import { agent } from './agent.ts';

const model = scriptedModel([[callPart('forecast', { city: 'Lima' })], [{ text: 'Foggy, 18 degrees.' }]]);
const runtime = await startTestRuntime({ agents: { harness_agent: agent }, model });
after(() => runtime.close());

test('the forecast comes from the tool', async () => {
  await runtime.send('POST', '/harness/invoke', {
    prompt: 'How is the weather in Lima?',
    harness_name: 'test',
    run_agent_request: { user_id: 'u1', session_id: 's1' },
  });
  const { contents } = model.requests[1] ?? assert.fail('the model was not called again');
  assert.deepEqual(contents.at(-1)?.parts?.[0]?.functionResponse?.response, {
    city: 'Lima',
    sky: 'foggy',
    celsius: 18,
  });
});
