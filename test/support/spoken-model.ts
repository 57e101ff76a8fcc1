import { vi } from 'vitest';
import type { Part } from '../../src/core/content.ts';
import type { Model, ModelAnswer, ModelDelta } from '../../src/agent/definition/model.ts';
import { MINUTE } from './patience.ts';

/** A call of a {@link SpokenModel} under way. */
export interface SpokenCall {
  /** Says some text; settles when it was taken. */
  say(text: string, isThought?: boolean): Promise<void>;
  /** Ends the answer; these parts come behind its text. */
  end(parts?: Part[]): void;
}

/** A model that says what the test says, piece by piece. */
export class SpokenModel implements Model {
  readonly provider = 'scripted';
  readonly calls: SpokenCall[] = [];

  /** The n-th call (from 1), once it has come. */
  async called(n: number): Promise<SpokenCall> {
    await vi.waitUntil(() => this.calls.length === n, MINUTE);
    return this.calls[n - 1] as SpokenCall;
  }

  async *generate(): AsyncGenerator<ModelDelta, ModelAnswer, void> {
    let next = Promise.withResolvers<{ part?: Part; last?: Part[]; taken?: () => void }>();
    this.calls.push({
      say: (text, thought = false) =>
        new Promise((taken) => next.resolve({ part: thought ? { text, thought } : { text }, taken })),
      end: (last = []) => next.resolve({ last }),
    });
    const parts: Part[] = [];
    for (;;) {
      const { part, last = [], taken } = await next.promise;
      if (!part)
        return { content: { role: 'model', parts: [...parts, ...last] }, modelVersion: 'spoken', finishReason: 'STOP' };
      next = Promise.withResolvers();
      const open = parts.at(-1);
      if (open && open.thought === part.thought) open.text = `${open.text}${part.text}`;
      else parts.push({ ...part });
      yield { content: { role: 'model', parts: [part] }, modelVersion: 'spoken' };
      taken?.();
    }
  }
}
