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
 * Time limit of a check, in milliseconds. A check is late if this process has used half of `CHECK_MS` as CPU time since
 * the check began, which bounds the CPU time of the worker thread, and after `MAX_ROUNDS` × `CHECK_MS` at the latest.
 */
const CHECK_MS = 1_000;
const MAX_ROUNDS = 10;
/** Memory limits of the worker thread. A schema that needs more memory ends the thread and not the process. */
const RESOURCES = { maxOldGenerationSizeMb: 128, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };
const TOO_COSTLY: Record<Checked, string> = {
  arguments: 'The schema of this tool takes too long to check, so it cannot be called.',
  answer: 'The output schema of this tool takes too long to check, so its answer was not checked.',
  output: 'The schema of the answer takes too long to check',
};

/** The worker's file name ends with `.ts` in the repository and with `.js` in the published package. */
const WORKER = new URL(`schema-worker${extname(import.meta.url)}`, import.meta.url);

/**
 * Checks values against untrusted schemas on a worker thread. Patterns, `uniqueItems` and nested `anyOf` can keep a
 * schema compiler or validator busy forever, so the thread is terminated if a check is late. All invocations share one
 * thread. A sandbox is of one request, tool list or replay, and fails all further checks after a schema that was too
 * costly.
 */
export class SchemaSandbox {
  #isRefused = false;

  /** Returns a message about the first violation, if any; `undefined` after an abort. Never rejects. */
  check(schema: JsonObject, value: unknown, signal: AbortSignal, what: Checked = 'arguments') {
    // Integers of more than 53 bits are rounded, because structured cloning would turn them into plain objects.
    const job: [JsonObject, unknown, Checked] = [schema, mapExactIntegers(value, toRounded), what];
    return orAborted(thread.check(this, job, signal), signal).catch(() => undefined);
  }

  get isRefused(): boolean {
    return this.#isRefused;
  }

  /** Makes all further checks of this sandbox fail, because one of its schemas was too costly. */
  refuse(): void {
    this.#isRefused = true;
  }
}

interface Answer {
  problem: string | undefined;
}

/** Returns a signal that aborts if the check that starts now is late. Disposing of it stops the clock. */
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

/** The worker thread: one check at a time. The first check starts it, and the first after it was terminated. */
class CheckThread {
  readonly #turns = new FairSemaphore(1);
  #worker: Worker | undefined;

  async check(
    group: SchemaSandbox,
    job: [schema: JsonObject, value: unknown, what: Checked],
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const release = await this.#turns.acquire(currentContext().caller ?? '');
    try {
      if (signal.aborted) return undefined;
      return group.isRefused ? TOO_COSTLY[job[2]] : await this.#run(group, job);
    } finally {
      release();
    }
  }

  async #run(group: SchemaSandbox, job: [JsonObject, unknown, Checked]): Promise<string | undefined> {
    try {
      const worker = this.#worker ?? (await this.#start());
      try {
        // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
        worker.postMessage(job);
      } catch {
        // A value that is nested too deeply for structured cloning cannot be sent to the thread.
        return TOO_COSTLY[job[2]];
      }
      using late = watchCheck();
      const [{ problem }] = (await once(worker, 'message', { signal: late.signal })) as [Answer];
      return problem;
    } catch {
      // The check was late or the thread has failed; the next check starts a new thread.
      void this.#worker?.terminate();
      this.#worker = undefined;
      group.refuse();
      return TOO_COSTLY[job[2]];
    }
  }

  async #start(): Promise<Worker> {
    const worker = new Worker(WORKER, { resourceLimits: RESOURCES });
    this.#worker = worker;
    // An idle worker thread must not keep the process alive.
    worker.unref();
    worker.on('error', () => {
      if (worker === this.#worker) this.#worker = undefined;
    });
    // Waits for the first message of the worker thread: it is ready for checks.
    await once(worker, 'message');
    return worker;
  }
}

const thread = new CheckThread();
