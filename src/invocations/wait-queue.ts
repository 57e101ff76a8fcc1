import type { Log } from '../platform/log.ts';
import type { Lease } from './lock-store.ts';

interface Waiter {
  lease: Lease;
  /** Sort key, before the invocation's id. The queue in the database has the same order. */
  createTime: string;
  /** Called when the request becomes the first of this process. */
  moveUp: () => void;
  /** Called when the request's row is no longer queued. */
  lose: () => void;
}

/** A request in this process's queue for one session. */
export interface QueuePlace {
  /** True if no other request of this process is ahead. */
  isFirst(): boolean;
  /** Removes the request from the queue. Wakes the next request, unless this request `holds` the session now. */
  leave(holds: boolean): void;
}

/**
 * This process's requests for busy sessions. Only the first per session tries to claim it when it becomes free. One
 * heartbeat renews the leases of all.
 */
export class WaitQueue {
  readonly #byTopic = new Map<string, Waiter[]>();
  readonly #renew: (leases: Lease[]) => Promise<Set<string>>;
  readonly #renewalMs: number;
  readonly #log: Pick<Log, 'warn'>;
  #heartbeat: NodeJS.Timeout | undefined;

  /** @param renew - renews the leases of queued rows, and returns the tokens of those that are still queued */
  constructor(renew: (leases: Lease[]) => Promise<Set<string>>, renewalMs: number, log: Pick<Log, 'warn'>) {
    this.#renew = renew;
    this.#renewalMs = renewalMs;
    this.#log = log;
  }

  enqueue(topic: string, waiter: Waiter): QueuePlace {
    const queue = this.#byTopic.get(topic) ?? [];
    const behind = queue.findIndex((other) => isBefore(waiter, other));
    queue.splice(behind === -1 ? queue.length : behind, 0, waiter);
    this.#byTopic.set(topic, queue);
    this.#heartbeat ??= setInterval(() => void this.#renewAll(), this.#renewalMs);
    return {
      isFirst: () => queue[0] === waiter,
      leave: (holds) => {
        queue.splice(queue.indexOf(waiter), 1);
        if (queue.length === 0) this.#byTopic.delete(topic);
        else if (!holds) queue[0]?.moveUp();
        if (this.#byTopic.size > 0) return;
        clearInterval(this.#heartbeat);
        this.#heartbeat = undefined;
      },
    };
  }

  /** True if requests wait for the session; the first of them checks whether its holder has died. */
  has(topic: string): boolean {
    return this.#byTopic.has(topic);
  }

  async #renewAll(): Promise<void> {
    const waiters = [...this.#byTopic.values()].flat();
    try {
      const queued = await this.#renew(waiters.map(({ lease }) => lease));
      for (const { lease, lose } of waiters) if (!queued.has(lease.token)) lose();
    } catch (error) {
      // The next heartbeat comes before the leases expire.
      this.#log.warn({ err: error }, 'the leases of waiting requests were not renewed');
    }
  }
}

const isBefore = (one: Waiter, other: Waiter): boolean =>
  one.createTime === other.createTime
    ? one.lease.invocationId < other.lease.invocationId
    : one.createTime < other.createTime;
