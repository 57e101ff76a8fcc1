import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { callPart, scriptedModel, startTestRuntime } from 'agent-runtime/testing';
import { agent } from '../agents/weather/agent.ts';

const model = scriptedModel([[callPart('forecast', { city: 'Lima' })], [{ text: 'Foggy, 18 degrees.' }]]);
const runtime = await startTestRuntime({ agents: { weather: agent }, model });
after(() => runtime.close());

test('the forecast comes from the tool', async () => {
  const sessions = '/apps/weather/users/u1/sessions';
  await runtime.send('POST', `${sessions}/s1`, {});
  await runtime.send('POST', '/run', {
    appName: 'weather',
    userId: 'u1',
    sessionId: 's1',
    newMessage: { role: 'user', parts: [{ text: 'How is the weather in Lima?' }] },
  });
  const { contents } = model.requests[1] ?? assert.fail('the model was not called again');
  assert.deepEqual(contents.at(-1)?.parts?.[0]?.functionResponse?.response, {
    city: 'Lima',
    sky: 'foggy',
    celsius: 18,
  });
});
