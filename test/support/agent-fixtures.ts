import { findConfirmations } from '../../src/agent/loop/confirmation.ts';
import type { RunEnd, RunInput, TaskAnswers } from '../../src/agent/loop/run.ts';
import type { PreparedAgent } from '../../src/agent/definition/agent.ts';
import { runAgent } from '../../src/agent/loop/run-agent.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import type { ToolServices } from '../../src/agent/definition/services.ts';
import { getFunctionCalls, getFunctionResponses } from '../../src/core/content.ts';
import type { Event, NewEvent } from '../../src/core/event.ts';
import { scriptedModel } from './scripted-model.ts';

/** A tool that takes any object; `run` decides what it does. */
export const tool = (name: string, run: Tool['run'], more: Partial<Tool> = {}): Tool => ({
  name,
  description: `Does ${name}.`,
  parameters: { type: 'object' },
  needsConfirmation: false,
  run,
  ...more,
});

/** An agent named `assistant` with a scripted model that only says "done". */
export const agent = (members: Partial<PreparedAgent> = {}): PreparedAgent => ({
  name: 'assistant',
  description: 'Helps.',
  kind: 'llm',
  instruction: 'Help.',
  appendedInstruction: '',
  model: scriptedModel([[{ text: 'done' }]]),
  modelName: 'test-model',
  tools: [],
  sampling: {},
  subAgents: [],
  maxLlmCalls: 20,
  close: async () => {},
  ...members,
});

/** Artifacts in a map and no memories. */
export function memoryServices(): ToolServices {
  const artifacts = new Map<string, NonNullable<Awaited<ReturnType<ToolServices['loadArtifact']>>>[]>();
  return {
    async saveArtifact(name, part) {
      const versions = artifacts.get(name) ?? [];
      artifacts.set(name, [...versions, part]);
      return versions.length;
    },
    loadArtifact: async (name, version) => artifacts.get(name)?.at(version ?? -1),
    listArtifacts: async () => [...artifacts.keys()].sort(),
    searchMemory: async () => [],
  };
}

export const userEvent = (text: string, more: Event = {}): Event => ({
  id: `user-${text}`,
  invocationId: 'inv-1',
  author: 'user',
  content: { role: 'user', parts: [{ text }] },
  ...more,
});

/** An input whose ids count up (`id-1`, `id-2` …) and whose user said "go". */
export function runInput({
  taskAnswers,
  ...members
}: Partial<RunInput> & { taskAnswers?: TaskAnswers } = {}): RunInput {
  let ids = 0;
  const asked = members.history?.flatMap(({ invocationId, content }) =>
    getFunctionCalls(content).map(({ id }) => [id ?? '', invocationId ?? ''] as const),
  );
  const said = members.history?.flatMap(({ content }) => getFunctionResponses(content)) ?? [];
  const given = (asked ?? []).flatMap(([id, invocationId]) => {
    const response = said.findLast((each) => each.id === id)?.response;
    return response ? [[id, { invocationId, response }] as const] : [];
  });
  // What was answered closed its task, and what agents said was made by the runtime, unless a test says otherwise.
  const { history = [userEvent('go')] } = members;
  const ownIds = history.flatMap(({ author, id }) => (author === 'user' || !id ? [] : [id]));
  const { runtimeEventIds = new Set(ownIds) } = members;
  return {
    agent: agent(),
    session: { appName: 'app', userId: 'user', sessionId: 'session' },
    invocationId: 'inv-1',
    history,
    confirmed: findConfirmations(history, runtimeEventIds, taskAnswers ?? new Map(given)),
    runtimeEventIds,
    state: {},
    signal: new AbortController().signal,
    streaming: false,
    services: memoryServices(),
    newId: () => `id-${(ids += 1)}`,
    ...members,
  };
}

/** Runs to the end; `onEvent` stands for the store: it is called before the loop goes on. */
export async function runToEnd(
  input: RunInput,
  onEvent: (event: NewEvent) => void | Promise<void> = () => {},
): Promise<{ events: NewEvent[]; end: RunEnd }> {
  const events: NewEvent[] = [];
  const steps = runAgent(input);
  for (;;) {
    const next = await steps.next();
    if (next.done) return { events, end: next.value };
    events.push(next.value);
    await onEvent(next.value);
  }
}
