import { QUEUE_TOPIC } from '../../core/names.ts';
import { pauseUntil, type QueueContext, runLeasedQueue } from '../../platform/work/leased-queue.ts';
import type { DatabasePool } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import { deliverKept } from './deliver.ts';
import { type DueTask, listDueTasks, TASKS_TOPIC, wakeDueTasks } from './task-store.ts';

/** Longest pause between two looks: notifications only save time, they may be lost. */
const MAX_PAUSE_MS = 5_000;
/** Shortest pause, however many are due: connections stay for others. */
const MIN_PAUSE_MS = 20;
const MAX_JOBS = 4;
/** Tasks of one statement: agents that have just been woken want the connections, too. */
const BATCH = 25;

/**
 * Does what is due about tasks until the process drains: reminders, deadlines, and the way on of what was answered. One
 * look finds the next ones, however many wait; the row decides which process does it.
 * @returns a promise that settles after the last of them.
 */
export const wakeTasks = (
  context: QueueContext & { database: DatabasePool; notifications: Notifications },
): Promise<void> =>
  runLeasedQueue<DueTask[]>(context, {
    name: 'tasks',
    topic: TASKS_TOPIC,
    maxJobs: MAX_JOBS,
    minPauseMs: MIN_PAUSE_MS,
    claim: async ({ slots, held }) => {
      const heldIds = new Set(held.flat().map(({ id }) => id));
      const next = await listDueTasks(context.database.db, heldIds.size + slots * BATCH + 1);
      const due = next.filter(({ id, inMs }) => inMs <= 0 && !heldIds.has(id));
      const laterMs = next.find(({ inMs }) => inMs > 0)?.inMs;
      const jobs = Array.from({ length: slots }, (_, n) => due.slice(n * BATCH, (n + 1) * BATCH));
      // One that another process has just taken is due for a moment still.
      return {
        jobs: jobs.filter(({ length }) => length > 0),
        pauseMs: due.length > 0 ? MIN_PAUSE_MS : pauseUntil(MAX_PAUSE_MS, laterMs),
      };
    },
    run: (batch) => wake(context, batch),
    toLogFields: (batch) => ({ taskIds: batch.map(({ id }) => id) }),
  });

async function wake(
  context: { database: DatabasePool; notifications: Notifications },
  batch: DueTask[],
): Promise<void> {
  try {
    for (const { kind, id } of batch) if (kind === 'signal') await deliverKept(context.database, id);
    if (await wakeDueTasks(context.database.db, batch)) context.notifications.publish(QUEUE_TOPIC);
  } catch (error) {
    if (batch.length === 1) throw error;
    // One of them must not keep the others from waking.
    await Promise.all(batch.map((one) => wake(context, [one])));
  }
}
