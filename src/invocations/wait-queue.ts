interface Waiter {
  /** Sorts as the queue does in the database. */
  position: [createTime: string, invocationId: string];
  /** Called when the waiter has become the first of its process. */
  moveUp: () => void;
}

/** The place of a request among those of its process that wait for one session. */
export interface QueuePlace {
  /** True while no request of this process is before it. */
  isFirst(): boolean;
  /** Gives the place up; calls `moveUp` of the next one unless this one `holds` the session now. */
  leave(holds: boolean): void;
}

/** The requests of a process that wait for sessions: only the first of each asks the database at a release. */
export class WaitQueue {
  readonly #byTopic = new Map<string, Waiter[]>();

  /** Adds a request to the queue of a session, which `topic` names. */
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

  /** True while requests wait for a session: the first of them looks for a dead holder. */
  has(topic: string): boolean {
    return this.#byTopic.has(topic);
  }
}

const isBefore = (one: Waiter['position'], other: Waiter['position']): boolean =>
  one[0] === other[0] ? one[1] < other[1] : one[0] < other[0];
