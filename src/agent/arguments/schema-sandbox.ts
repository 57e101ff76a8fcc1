import { once } from 'node:events';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { currentContext } from '../../platform/context.ts';
import { orAborted } from '../../core/abort.ts';
import { FairSemaphore } from '../../platform/work/fair-semaphore.ts';
import type { JsonObject } from '../../core/content.ts';
import type { Checked } from './check-arguments.ts';

/** Maximum time of one check, from the moment on that the thread has it. */
const CHECK_MS = 1_000;
/** Memory limits of the thread; a schema that needs more ends the thread, not the process. */
const RESOURCES = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };
const TOO_COSTLY = 'The schema of this tool takes too long to check, so it cannot be called.';

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
    return orAborted(thread.check(this, [schema, value, what], signal), signal).catch(() => undefined);
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
      return group.isRefused ? TOO_COSTLY : await this.#run(group, given);
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
        return TOO_COSTLY;
      }
      const [{ problem }] = (await once(worker, 'message', { signal: AbortSignal.timeout(CHECK_MS) })) as [Answer];
      return problem;
    } catch {
      // The thread is late or has failed; the next check starts another.
      void this.#worker?.terminate();
      this.#worker = undefined;
      group.refuse();
      return TOO_COSTLY;
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
