import { QUEUE_TOPIC } from '../../core/names.ts';
import { pauseUntil, type QueueContext, runLeasedQueue } from '../../platform/work/leased-queue.ts';
import type { DatabasePool, Database } from '../../platform/db/database.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import {
  type DueTask,
  listDueTasks,
  TASKS_TOPIC,
  wakeDueTasks,
  changeTask,
  findTask,
  mayAnswer,
  type Person,
  type TaskRow,
} from './task-store.ts';
import type { JsonObject } from '../../core/content.ts';
import { AppError } from '../../core/errors.ts';
import { takeSignal } from './signal-store.ts';
import { checkAnswer } from './task.ts';

/** Maximum milliseconds between polls of tasks: the database's notifications may be lost. */
const MAX_PAUSE_MS = 5_000;
/** Minimum pause in milliseconds between two polls, so that database connections stay free for other work. */
const MIN_PAUSE_MS = 20;
const MAX_JOBS = 4;
/** Maximum tasks per statement: few, because the invocations that they wake need database connections too. */
const BATCH = 25;

/**
 * Sends reminders, enforces deadlines, and resumes invocations whose tasks are answered. One query finds the next
 * tasks, however many wait. Of several processes an update of the task's row decides which one processes it.
 * @returns a promise that settles when the last task is processed
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
      // Polls soon, but not at once, because a task that another process is just processing is still listed as due.
      return {
        jobs: jobs.filter(({ length }) => length > 0),
        pauseMs: due.length > 0 ? MIN_PAUSE_MS : pauseUntil(MAX_PAUSE_MS, laterMs),
        mayMore: due.length > 0,
      };
    },
    run: async (batch) => {
      await wake(context, batch);
      return 'over';
    },
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
    // If the batch fails, each task is processed on its own, so that one failing task does not block the others.
    await Promise.all(batch.map((one) => wake(context, [one])));
  }
}

/** The sender of a signal that was sent with the operator's credential and not by a person. */
export const SYSTEM: Person = { by: 'a system', groups: [], isVouchedFor: true };

/** Answers a task with a signal. @throws {InvalidError} for an unfit payload; further errors as {@link changeTask} */
export async function signal(db: Database, task: TaskRow, sender: Person, payload: JsonObject): Promise<void> {
  await checkAnswer(task, payload);
  await changeTask(db, task, sender, undefined, 'answer', { response: payload, via: 'signal' });
}

/**
 * A new task takes the first stored signal that matches and whose sender may answer, and discards earlier unfit ones.
 */
const deliverKept = (database: DatabasePool, id: string): Promise<void> =>
  database.transaction(async (tx) => {
    const task = await findTask(tx, { groups: [] }, id);
    const name = task?.shown.signal;
    if (!task || name === undefined || task.shown.state !== 'open') return;
    for (;;) {
      const stored = await takeSignal(tx, task, name);
      if (!stored) return;
      const { payload, groups } = stored;
      const sender = groups ? { by: task.userId, groups, isVouchedFor: false } : SYSTEM;
      const problem = await checkAnswer(task, payload).catch((error: unknown) => {
        if (error instanceof AppError) return error;
        throw error;
      });
      if (!problem && (await mayAnswer(tx, task, sender))) return await signal(tx, task, sender, payload);
    }
  });
