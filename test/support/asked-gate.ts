import { expect } from 'vitest';
import type { Model } from '../../src/agent/definition/model.ts';
import type { Content, Part } from '../../src/core/content.ts';
import { scriptedModel } from './scripted-model.ts';

/** A model whose calls wait for the test. It says what it was asked. */
export interface AskedGate {
  model: Model;
  /** The texts of each request; calls as `name()`, their responses as `=name`. */
  asked: string[][];
  /** The names of the tools in each request. */
  offered: string[][];
  /** Settles when so many requests have come. */
  entered(n: number): Promise<void>;
  /** Answers the oldest request that waits. */
  answer(...parts: Part[]): void;
}

export function newAskedGate(): AskedGate {
  const asked: string[][] = [];
  const offered: string[][] = [];
  const open: ((parts: Part[]) => void)[] = [];
  const toText = ({ parts }: Content) =>
    (parts ?? []).map(({ text, functionCall, functionResponse }) => {
      if (functionResponse) return `=${functionResponse.name}`;
      return text ?? `${functionCall?.name}()`;
    });
  const model = scriptedModel([
    ({ contents, tools, signal }) => {
      asked.push(contents.flatMap(toText));
      offered.push(tools.map(({ name }) => name));
      return new Promise<Part[]>((resolve, reject) => {
        open.push(resolve);
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      });
    },
  ]);
  return {
    model,
    asked,
    offered,
    async entered(n: number) {
      await expect.poll(() => asked.length).toBe(n);
    },
    answer: (...parts: Part[]) => open.shift()?.(parts),
  };
}
