import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { currentContext } from '../../platform/context.ts';
import { orAborted } from '../../core/abort.ts';
import { FairQueue } from '../../platform/work/fair-queue.ts';
import type { JsonObject } from '../../core/content.ts';

/** Maximum time of one check, from the moment on that the thread has it. */
const CHECK_MS = 1_000;
/** Memory limits of the thread; a schema that needs more ends the thread, not the process. */
const RESOURCES = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };
const TOO_COSTLY = 'The schema of this tool takes too long to check, so it cannot be called.';

/** Beside this file, TypeScript here and JavaScript in the package. */
const WORKER = new URL(`schema-worker${extname(import.meta.url)}`, import.meta.url);

/** One check on its way. */
interface Check {
  group: SchemaSandbox;
  parameters: JsonObject;
  args: JsonObject;
  signal: AbortSignal;
  done: (problem: string | undefined) => void;
}

/**
 * Checks arguments by untrusted schemas. Patterns, `uniqueItems` and nested `anyOf` can keep a compiler or validator
 * busy for good, which nothing on the same thread can end; so checks run on another thread, which is terminated when
 * one is late. All invocations share it: a sandbox with a schema that was too costly is not served again.
 */
export class SchemaSandbox {
  #isRefused = false;

  /**
   * Returns the first problem of the arguments as a sentence for the model; `undefined` if they are valid or `signal`
   * aborts. Never rejects.
   */
  check(parameters: JsonObject, args: JsonObject, signal: AbortSignal): Promise<string | undefined> {
    const { promise, resolve } = Promise.withResolvers<string | undefined>();
    thread.add({ group: this, parameters, args, signal, done: resolve });
    return orAborted(promise, signal).catch(() => undefined);
  }

  get isRefused(): boolean {
    return this.#isRefused;
  }

  /** Makes all further checks of the group fail at once. */
  refuse(): void {
    this.#isRefused = true;
  }
}

/** The one thread, started with the first check and anew after one that was too costly. Callers have it by turns. */
class CheckThread {
  readonly #waiting = new FairQueue<Check>();
  #current: Check | undefined;
  #worker: Worker | undefined;
  #isReady = false;
  #timer: NodeJS.Timeout | undefined;

  add(check: Check): void {
    this.#waiting.push(currentContext().caller ?? '', check);
    this.#next();
  }

  #next(): void {
    while (!this.#current && !this.#waiting.isEmpty) {
      if (!this.#worker) this.#start();
      if (!this.#isReady) return;
      const check = this.#waiting.shift() as Check;
      if (check.signal.aborted) check.done(undefined);
      else if (check.group.isRefused) check.done(TOO_COSTLY);
      else this.#send(check);
    }
  }

  #send(check: Check): void {
    try {
      this.#worker?.postMessage([check.parameters, check.args]);
    } catch {
      // Nested too deeply to be copied.
      return check.done(TOO_COSTLY);
    }
    this.#current = check;
    this.#timer = setTimeout(() => this.#drop(), CHECK_MS);
  }

  #start(): void {
    const worker = new Worker(WORKER, { resourceLimits: RESOURCES });
    this.#worker = worker;
    // The thread alone does not keep the process.
    worker.unref();
    worker.on('message', (message: 'ready' | { problem: string | undefined }) => {
      if (worker !== this.#worker) return;
      if (message === 'ready') this.#isReady = true;
      else this.#end(message.problem);
      this.#next();
    });
    worker.on('error', () => worker === this.#worker && this.#drop());
  }

  /** Ends the thread with what it does; the next check starts another. */
  #drop(): void {
    // What it cannot even start with would fail again.
    const failed = this.#current ?? this.#waiting.shift();
    void this.#worker?.terminate();
    this.#worker = undefined;
    this.#isReady = false;
    failed?.group.refuse();
    this.#current = failed;
    this.#end(TOO_COSTLY);
    this.#next();
  }

  #end(problem: string | undefined): void {
    clearTimeout(this.#timer);
    const check = this.#current;
    this.#current = undefined;
    check?.done(problem);
  }
}

const thread = new CheckThread();
