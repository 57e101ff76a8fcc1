import { beforeEach, type Mock, vi } from 'vitest';
import type { Model, ModelRequest } from '../../src/agent/definition/model.ts';
import type { Tool } from '../../src/agent/definition/tool.ts';
import { getFunctionResponses, type Part } from '../../src/core/content.ts';
import type { Runtime } from '../../src/process/runtime.ts';
import { tool } from './agent-fixtures.ts';
import { hostAgent } from './agents.ts';
import { startOn, testApp, type TestApp } from './app.ts';
import { callPart, scriptedModel } from './scripted-model.ts';
import { SpokenModel } from './spoken-model.ts';
import { staged } from './staged.ts';

/** Two replicas that serve one door, whose agent does what the last word of a message says. */
export interface DoorStage {
  app: TestApp;
  other: Runtime;
  agents: ReturnType<typeof hostAgent>;
  /** The requests of the model since the test began. */
  requests: ModelRequest[];
  /** Answers messages with `speak`. */
  spoken: SpokenModel;
  /** What the tool `pay` does, which a person confirms. */
  paid: Mock<() => Promise<object>>;
}

/** Words at which the tools of each stage are called: `pay` asks for a confirmation, `ask` waits for its answer. */
const SCRIPT: Record<string, Part[]> = {
  pay: [callPart('pay', { amount: 5 })],
  'pay twice': [callPart('pay', { amount: 1 }), callPart('pay', { amount: 2 })],
  ask: [callPart('ask', { city: 'Bern' })],
};

/**
 * Stages a door for the tests of the calling file. The model repeats what tools answer, fails at `fail`, does what the
 * script has for a word, and else thinks and repeats the word.
 */
export function stageDoor(door: string, more: { tools?: Tool[]; script?: Record<string, Part[]> } = {}): DoorStage {
  const script = { ...SCRIPT, ...more.script };
  const paid = vi.fn<() => Promise<object>>(() => Promise.resolve({ paid: true }));
  const requests: ModelRequest[] = [];
  const spoken = new SpokenModel();
  const scripted = scriptedModel([
    ({ contents }) => {
      const last = contents.at(-1);
      const answers = getFunctionResponses(last).map(({ response }) => response);
      if (answers.length > 0) return [{ text: `Got ${JSON.stringify(answers)}` }];
      const word = last?.parts?.at(-1)?.text ?? '';
      if (word === 'fail') throw new Error('It broke.');
      if (word.startsWith('This is not what was asked for')) return [{ text: '{"city":"Bern"}' }];
      return script[word] ?? [{ text: 'Thinking.', thought: true }, { text: `You said ${word}` }];
    },
  ]);
  const model: Model = {
    provider: 'scripted',
    generate: (request) => {
      requests.push(request);
      return JSON.stringify(request.contents.at(-1)).includes('speak') ? spoken.generate() : scripted.generate(request);
    },
  };
  beforeEach(() => {
    vi.clearAllMocks();
    requests.length = 0;
    spoken.calls.length = 0;
  });
  const pay = tool('pay', paid, { needsConfirmation: true });
  const ask = tool('ask', () => Promise.resolve(undefined), { longRunning: true });
  const agents = hostAgent(model, [...(more.tools ?? []), pay, ask]);
  const app = testApp({ DOORS: door }, { agents });
  const other = staged(() => startOn(app.databaseUrl, { DOORS: door }, { agents }));
  return { app, other, agents, requests, spoken, paid };
}
