import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ModelRequest } from '../../src/agent/definition/model.ts';
import type { ToolServices } from '../../src/agent/definition/services.ts';
import { fitTools } from '../../src/agent/models/fit-tools.ts';
import { toPrompt } from '../../src/agent/models/to-prompt.ts';
import { findProvider } from '../../src/agent/providers/index.ts';
import { builtInTools } from '../../src/agent/tools/registry.ts';
import { getFunctionCalls, getFunctionResponses, type Part } from '../../src/core/content.ts';
import type { Event } from '../../src/core/event.ts';
import { agent, memoryServices, runInput, runToEnd, tool, userEvent } from '../support/agent-fixtures.ts';
import { scriptedModel } from '../support/scripted-model.ts';

// A model that was taken over by what it read: any tool, any arguments, any ids (reliability B8).

const known = [...builtInTools().values()].filter(({ name }) => name !== 'web_fetch');
const hostileKey = fc.constantFrom(
  '__proto__',
  'constructor',
  'prototype',
  'app:x',
  'user:x',
  'temp:x',
  '',
  'toString',
);
const args = fc.dictionary(
  fc.oneof(
    hostileKey,
    fc.constantFrom('key', 'keys', 'name', 'names', 'value', 'text', 'expression', 'options', 'query'),
  ),
  fc.oneof(fc.string(), fc.jsonValue({ maxDepth: 3 }), hostileKey, fc.array(hostileKey, { maxLength: 3 })),
  { maxKeys: 4 },
);
const name = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(...known.map((each) => each.name), 'guarded') },
  { weight: 1, arbitrary: fc.constantFrom('adk_request_confirmation', 'transfer_to_agent', '__proto__', '') },
  { weight: 1, arbitrary: fc.string() },
);
const id = fc.option(fc.constantFrom('1', '2', '', '__proto__'), { nil: undefined });
const call: fc.Arbitrary<Part> = fc.record({ id, name, args }).map(({ id: callId, ...functionCall }) => ({
  functionCall: callId === undefined ? functionCall : { id: callId, ...functionCall },
}));
const part = fc.oneof({ weight: 4, arbitrary: call }, { weight: 1, arbitrary: fc.record({ text: fc.string() }) });
const script = fc.array(fc.array(part, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 5 });

test('whatever a model says, every call has one response, and nothing happens outside of what it may do', async () => {
  const guarded: unknown[] = [];
  const guard = tool('guarded', async () => guarded.push('ran'), { needsConfirmation: true });
  await fc.assert(
    fc.asyncProperty(script, async (steps) => {
      const saved: string[] = [];
      const services: ToolServices = {
        ...memoryServices(),
        async saveArtifact(artifact) {
          saved.push(artifact);
          return 0;
        },
      };
      const model = scriptedModel(steps);
      const members = { model, tools: [...known, guard], maxLlmCalls: 6 };
      const { events, end } = await runToEnd(runInput({ agent: agent(members), services }));
      const all = [...events, ...(end.lastEvent ? [end.lastEvent] : [])];
      const longRunning = new Set(all.flatMap((event) => event.longRunningToolIds ?? []));
      const calls = all.flatMap((event) => getFunctionCalls(event.content).map((each) => each.id));
      const answered = all.flatMap((event) => getFunctionResponses(event.content).map((each) => each.id));
      expect(new Set(calls).size).toBe(calls.length);
      expect(new Set(answered).size).toBe(answered.length);
      for (const each of calls) expect(answered.includes(each) || longRunning.has(each ?? '')).toBe(true);
      for (const event of all) {
        const keys = Object.keys(event.actions?.stateDelta ?? {});
        expect(keys.filter((key) => key.startsWith('app:'))).toEqual([]);
        expect(Object.keys(event.actions?.artifactDelta ?? {}).every((file) => saved.includes(file))).toBe(true);
        expect(event).toMatchObject({ author: 'assistant', invocationId: 'inv-1' });
      }
      expect(end.llmCalls).toBeLessThanOrEqual(6);
      expect(end.error?.cause).toBeUndefined();
      expect(() => JSON.stringify(all)).not.toThrow();

      // The next turn is one that a provider accepts: each call answered right behind it.
      const next = scriptedModel([[{ text: 'ok' }]]);
      const history: Event[] = [userEvent('go'), ...all, userEvent('more')];
      await runToEnd(runInput({ agent: agent({ model: next }), history }));
      const [request] = next.requests as [ModelRequest];
      const provider = findProvider('openai-compatible');
      const facts = provider.facts(undefined, request.modelName);
      const tools = fitTools(request, facts);
      const roles = toPrompt(request, { provider, facts, tools }).prompt.map(({ role }) => role);
      expect(roles.join(' ')).toMatch(/^system user(?: assistant(?: tool(?: user)?| user))*$/);
      const { contents } = request;
      for (const [index, content] of contents.entries()) {
        const asked = getFunctionCalls(content).map((each) => each.id);
        const replies = getFunctionResponses(contents[index + 1]).map((each) => each.id);
        expect(replies).toEqual(asked);
      }
    }),
    { numRuns: 1_000 },
  );
  expect(guarded).toEqual([]);
  expect(({} as Record<string, unknown>)['x']).toBeUndefined();
});
