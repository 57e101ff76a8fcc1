import { isDeepStrictEqual } from 'node:util';
import { getFunctionCalls, type JsonObject, type Part } from '../../core/content.ts';
import type { EventActions } from '../../core/event.ts';
import { getResponses, type StoredEvent, type TapeRun } from './tape-run.ts';
import { cloneJson } from '../../core/exact-json.ts';

/** A tool call as a replay makes it. */
export interface ToolRun {
  id: string;
  name: string;
  args: JsonObject;
}

/** A stored answer to a call. */
interface StoredAnswer {
  stored: StoredEvent;
  part: Part;
}

/** The answers of tools that a stored run has. */
export class StoredAnswers {
  readonly #responses: Map<string, StoredAnswer>;
  readonly #calls: ToolRun[];
  /** Calls that {@link findLike} has given away. */
  readonly #used = new Set<string>();
  /** Events whose actions are given already: the actions of all calls of a step stand in one event. */
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

  /** The answer to a call by its id. */
  find(id: string): StoredAnswer | undefined {
    return this.#responses.get(id);
  }

  /** Returns the next unused answer to this tool with these arguments; each is used once. */
  findLike({ id, name, args }: ToolRun): StoredAnswer | undefined {
    if (this.#responses.has(id)) return this.find(id);
    const like = this.#calls.find(
      (call) => call.name === name && !this.#used.has(call.id) && isDeepStrictEqual(call.args, args),
    );
    if (!like) return undefined;
    this.#used.add(like.id);
    return this.find(like.id);
  }

  /** Side effects of the stored step, for the first of its calls that asks; those that the loop adds are left out. */
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
