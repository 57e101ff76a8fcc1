interface Waiter {
  /** Sort key. The queue in the database has the same order. */
  position: [createTime: string, invocationId: string];
  /** Called when the request becomes the first of this process. */
  moveUp: () => void;
}

/** A request in this process's queue for one session. */
export interface QueuePlace {
  /** True if no other request of this process is ahead. */
  isFirst(): boolean;
  /** Removes the request from the queue. Wakes the next request, unless this request `holds` the session now. */
  leave(holds: boolean): void;
}

/** This process's requests for busy sessions. Only the first per session tries to claim it when it becomes free. */
export class WaitQueue {
  readonly #byTopic = new Map<string, Waiter[]>();

  enqueue(topic: string, waiter: Waiter): QueuePlace {
    const queue = this.#byTopic.get(topic) ?? [];
    const behind = queue.findIndex(({ position }) => isBefore(waiter.position, position));
    queue.splice(behind === -1 ? queue.length : behind, 0, waiter);
    this.#byTopic.set(topic, queue);
    return {
      isFirst: () => queue[0] === waiter,
      leave: (holds) => {
        queue.splice(queue.indexOf(waiter), 1);
        if (queue.length === 0) this.#byTopic.delete(topic);
        else if (!holds) queue[0]?.moveUp();
      },
    };
  }

  /** True if requests wait for the session; the first of them checks whether its holder has died. */
  has(topic: string): boolean {
    return this.#byTopic.has(topic);
  }
}

const isBefore = (one: Waiter['position'], other: Waiter['position']): boolean =>
  one[0] === other[0] ? one[1] < other[1] : one[0] < other[0];
