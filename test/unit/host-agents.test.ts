import { expect, test } from 'vitest';
import { readConfig } from '../../src/core/config.ts';
import { hostAgents } from '../../src/host-agents.ts';

test.each([
  [{ HARNESS_FILE: '/nowhere.yaml' }, /^HARNESS_FILE: there is no file \/nowhere\.yaml\.$/],
  [{ MODEL_PROVIDER: 'openai' }, /^MODEL_NAME: found nothing; the provider openai needs the name of a model\.$/],
  [{ MODEL_PROVIDER: 'openai-compatible', MODEL_NAME: 'm' }, /^MODEL_BASE_URL: found nothing; openai-compatible needs/],
  [{ TOOLS: 'nope' }, /^harness_agent: Tool `nope` is not a supported built-in tool\. Available: calculator, /],
  [{ SKILLS: 'nope' }, /^harness_agent: Skill `nope` failed to load: /],
])('%j cannot be hosted, and the sentence says why', async (environment, message) => {
  await expect(hostAgents(readConfig(environment))).rejects.toMatchObject({
    code: 'config',
    message: expect.stringMatching(message),
  });
});
