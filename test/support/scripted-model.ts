import type { Part } from '../../src/core/content.ts';
import type { Model, ModelAnswer, ModelDelta, ModelRequest } from '../../src/agent/definition/model.ts';

/** One answer of a script: its parts, or a function of the request, or an error to throw. */
export type ScriptedAnswer = Part[] | Error | ((request: ModelRequest) => Part[] | Promise<Part[]>);

/** A model that gives the scripted answers in order and keeps every request it got; the last answer is repeated. */
export function scriptedModel(script: ScriptedAnswer[]): Model & { requests: ModelRequest[] } {
  const requests: ModelRequest[] = [];
  async function* generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void> {
    requests.push(request);
    const scripted = script[Math.min(requests.length, script.length) - 1] ?? [];
    if (scripted instanceof Error) throw scripted;
    const parts = typeof scripted === 'function' ? await scripted(request) : scripted;
    for (const part of parts) {
      if (part.text) yield { content: { role: 'model', parts: [part] }, modelVersion: 'scripted-1' };
    }
    return {
      content: { role: 'model', parts },
      modelVersion: 'scripted-1',
      finishReason: 'STOP',
      usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, thoughtsTokenCount: 2, totalTokenCount: 17 },
    };
  }
  return { provider: 'scripted', generate, requests };
}

/** A part with a function call. */
export const callPart = (name: string, args: Record<string, unknown> = {}, id?: string): Part => ({
  functionCall: { ...(id === undefined ? {} : { id }), name, args },
});
