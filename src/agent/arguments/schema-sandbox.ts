import { once } from 'node:events';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { currentContext } from '../../platform/context.ts';
import { orAborted } from '../../core/abort.ts';
import { FairSemaphore } from '../../platform/work/fair-semaphore.ts';
import type { JsonObject } from '../../core/content.ts';
import { mapExactIntegers, toRounded } from '../../core/exact-json.ts';
import type { Checked } from './check-arguments.ts';

/**
 * Time after which a check is late, from the moment on that the thread has it: where the process had half of it as CPU
 * time meanwhile, which bounds the thread's, and at the latest after so many times as long on a busy machine.
 */
const CHECK_MS = 1_000;
const MAX_ROUNDS = 10;
/** Memory limits of the thread; a schema that needs more ends the thread, not the process. */
const RESOURCES = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };
const TOO_COSTLY: Record<Checked, string> = {
  arguments: 'The schema of this tool takes too long to check, so it cannot be called.',
  answer: 'The output schema of this tool takes too long to check, so its answer was not checked.',
  output: 'The schema of the answer takes too long to check',
};

/** Beside this file, TypeScript here and JavaScript in the package. */
const WORKER = new URL(`schema-worker${extname(import.meta.url)}`, import.meta.url);

/**
 * Checks arguments and answers by untrusted schemas. Patterns, `uniqueItems` and nested `anyOf` can keep a compiler or
 * validator busy for good, which nothing on the same thread can end; so checks run on another thread, which is
 * terminated when one is late. All invocations share it: a sandbox with a schema that was too costly is not served
 * again.
 */
export class SchemaSandbox {
  #isRefused = false;

  /** Returns the first problem of the value in words, or `undefined`, as after an abort. Never rejects. */
  check(schema: JsonObject, value: unknown, signal: AbortSignal, what: Checked = 'arguments') {
    // A clone of an exact integer is a plain object.
    const given: [JsonObject, unknown, Checked] = [schema, mapExactIntegers(value, toRounded), what];
    return orAborted(thread.check(this, given, signal), signal).catch(() => undefined);
  }

  get isRefused(): boolean {
    return this.#isRefused;
  }

  /** Makes all further checks of the group fail at once. */
  refuse(): void {
    this.#isRefused = true;
  }
}

interface Answer {
  problem: string | undefined;
}

/** Returns a signal that aborts when the check that begins now is late; disposed of, it never does. */
function watchCheck(): Disposable & { signal: AbortSignal } {
  const late = new AbortController();
  const before = process.cpuUsage();
  let rounds = 0;
  const timer = setInterval(() => {
    const { user, system } = process.cpuUsage(before);
    rounds += 1;
    if (user + system >= CHECK_MS * 500 || rounds === MAX_ROUNDS) late.abort();
  }, CHECK_MS);
  return { signal: late.signal, [Symbol.dispose]: () => clearInterval(timer) };
}

/** The one thread, which callers hold in turn: started with the first check and anew after one that was too costly. */
class CheckThread {
  readonly #turns = new FairSemaphore(1);
  #worker: Worker | undefined;

  async check(
    group: SchemaSandbox,
    given: [schema: JsonObject, value: unknown, what: Checked],
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const release = await this.#turns.acquire(currentContext().caller ?? '');
    try {
      if (signal.aborted) return undefined;
      return group.isRefused ? TOO_COSTLY[given[2]] : await this.#run(group, given);
    } finally {
      release();
    }
  }

  async #run(group: SchemaSandbox, given: [JsonObject, unknown, Checked]): Promise<string | undefined> {
    try {
      const worker = this.#worker ?? (await this.#start());
      try {
        // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
        worker.postMessage(given);
      } catch {
        // Nested too deeply to be copied.
        return TOO_COSTLY[given[2]];
      }
      using late = watchCheck();
      const [{ problem }] = (await once(worker, 'message', { signal: late.signal })) as [Answer];
      return problem;
    } catch {
      // The thread is late or has failed; the next check starts another.
      void this.#worker?.terminate();
      this.#worker = undefined;
      group.refuse();
      return TOO_COSTLY[given[2]];
    }
  }

  async #start(): Promise<Worker> {
    const worker = new Worker(WORKER, { resourceLimits: RESOURCES });
    this.#worker = worker;
    // The thread alone does not keep the process.
    worker.unref();
    worker.on('error', () => {
      if (worker === this.#worker) this.#worker = undefined;
    });
    // Its sign that it is ready.
    await once(worker, 'message');
    return worker;
  }
}

const thread = new CheckThread();
