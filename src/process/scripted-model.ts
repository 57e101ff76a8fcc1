import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import type { Model, ModelAnswer, ModelDelta, ModelRequest } from '../agent/definition/model.ts';
import type { Part } from '../core/content.ts';
import { AgentError } from '../core/errors.ts';
import { parseExactJson } from '../core/exact-json.ts';

/** One answer of a scripted model: parts, an error that the model throws, or a function that returns parts. */
export type ScriptedAnswer = Part[] | Error | ((request: ModelRequest) => Part[] | Promise<Part[]>);

/** Creates a model that gives the scripted answers in order, and then repeats the last. `requests` has all requests. */
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

/** Returns a digest that identifies a request in a recording. Ids are left out, because they are new in each run. */
const toDigest = ({ modelName, instruction, contents, tools, toolChoice, outputSchema }: ModelRequest) =>
  createHash('sha256')
    .update(
      JSON.stringify({ modelName, instruction, contents, tools, toolChoice, outputSchema }, (name, value: unknown) =>
        name === 'id' || name === 'thoughtSignature' ? undefined : value,
      ),
    )
    .digest('hex');

/**
 * Creates a model that gives the recorded answers of a file, in order, and fails if a request is not the recorded one.
 * If the file does not exist, `live` answers, and the file is written.
 */
export function recordedModel(path: string, live?: Model): Model {
  const isRecording = live !== undefined && !existsSync(path);
  const tape = isRecording
    ? []
    : (parseExactJson(readFileSync(path, 'utf8')) as { request: string; answer: ModelAnswer }[]);
  let next = 0;
  async function* generate(request: ModelRequest): AsyncGenerator<ModelDelta, ModelAnswer, void> {
    const digest = toDigest(request);
    const place = next;
    next += 1;
    if (isRecording) {
      const answer = yield* live.generate(request);
      tape[place] = { request: digest, answer };
      writeFileSync(path, `${JSON.stringify(tape, null, 2)}\n`);
      return answer;
    }
    const recorded = tape[place];
    if (recorded?.request === digest) return recorded.answer;
    const text = `Request ${place + 1} is not the one of ${path}: delete the file to record it again.`;
    throw new AgentError('model_rejected', text);
  }
  return { provider: live?.provider ?? 'recorded', generate };
}

/** Makes the part of a scripted answer that calls a tool. */
export const callPart = (name: string, args: Record<string, unknown> = {}, id?: string): Part => ({
  functionCall: { ...(id === undefined ? {} : { id }), name, args },
});
