import { z } from 'zod';
import { harnessOverridesSchema } from '../agent/definition/overrides.ts';
import { identifierSchema } from '../core/session.ts';

const limit = z.int().min(1);

export const harnessInvokeSchema = z
  .looseObject({
    prompt: z.string().describe('What the user says, as plain text.'),
    harness_name: z.string().describe('Any name, echoed in the answer; chooses neither application nor session.'),
    run_agent_request: z
      .looseObject({
        user_id: identifierSchema.describe('The owner of the session.'),
        session_id: identifierSchema.describe('Created where it is absent, always under `harness_agent`.'),
        max_llm_calls: limit
          .nullish()
          .describe(
            'Maximum number of model calls of this invocation [as deployed, 500]; wins over `harness.max_llm_calls`.',
          ),
      })
      .describe('Who asks, and in which session.'),
    harness: harnessOverridesSchema
      .nullish()
      .describe('Changes of the deployed agent for this invocation only; what is left out stays as deployed.'),
  })
  .describe('One prompt. `harness_merge` and `harness_enhance` are not supported: they are accepted and ignored.');

export const harnessResultSchema = z
  .looseObject({
    harness_name: z.string().describe('The name in the request.'),
    overwrite: z.boolean().describe('True when an override other than `mcp_servers` was applied.'),
    output: z.string().describe("The agent's answer; empty on failure."),
    error: z.string().nullable().describe('Why it failed, a sentence; `null` on success, and only then.'),
  })
  .describe('What the agent answered. Status 200 alone does not mean success: `error` does.');
