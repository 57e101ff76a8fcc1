import { isDeepStrictEqual } from 'node:util';
import { getFunctionCalls, type JsonObject, type Part } from '../../core/content.ts';
import type { EventActions } from '../../core/event.ts';
import { getResponses, type StoredEvent, type TapeRun } from './tape-run.ts';
import { cloneJson } from '../../core/exact-json.ts';

export interface ToolRun {
  id: string;
  name: string;
  args: JsonObject;
}

interface StoredAnswer {
  stored: StoredEvent;
  part: Part;
}

export class StoredAnswers {
  readonly #responses: Map<string, StoredAnswer>;
  readonly #calls: ToolRun[];
  /** Ids of the calls whose stored response {@link findLike} has already returned. */
  readonly #used = new Set<string>();
  /** Events whose actions were already applied. One event holds the actions of all tool calls of its step. */
  readonly #acted = new Set<StoredEvent>();

  constructor({ events, ending, history }: TapeRun) {
    this.#responses = getResponses([...events, ...ending]);
    const all = [...history, ...events.map(({ event }) => event)];
    this.#calls = all.flatMap((event) =>
      getFunctionCalls(event.content).flatMap(({ id, name, args }) =>
        id && this.#responses.has(id) ? [{ id, name: name ?? '', args: args ?? {} }] : [],
      ),
    );
  }

  find(id: string): StoredAnswer | undefined {
    return this.#responses.get(id);
  }

  /** Returns the next unused stored response of this tool to the same arguments. */
  findLike({ id, name, args }: ToolRun): StoredAnswer | undefined {
    if (this.#responses.has(id)) return this.find(id);
    const like = this.#calls.find(
      (call) => call.name === name && !this.#used.has(call.id) && isDeepStrictEqual(call.args, args),
    );
    if (!like) return undefined;
    this.#used.add(like.id);
    return this.find(like.id);
  }

  /** A stored event's effects of one tool call, without the loop's own; the first call gets the event's actions. */
  effectsOf({ stored, part }: StoredAnswer, id: string): { actions: EventActions; attachments: Part[] } {
    const attachments = cloneJson((part.functionResponse?.parts ?? []) as Part[]);
    if (this.#acted.has(stored)) return { actions: {}, attachments };
    this.#acted.add(stored);
    const { requestedToolConfirmations = {}, skipSummarization, ...actions } = stored.event.actions ?? {};
    const isConfirmation = Object.keys(requestedToolConfirmations ?? {}).length > 0;
    const own = requestedToolConfirmations?.[id];
    return {
      actions: cloneJson({
        ...actions,
        ...(skipSummarization && !isConfirmation ? { skipSummarization } : {}),
        ...(own === undefined ? {} : { requestedToolConfirmations: { [id]: own } }),
      }),
      attachments,
    };
  }
}
