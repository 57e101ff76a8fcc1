import type { JsonObject } from '../../core/content.ts';
import { AppError } from '../../core/errors.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { takeSignal } from './signal-store.ts';
import { checkAnswer } from './task.ts';
import { changeTask, findTask, type TaskRow } from './task-store.ts';

const SYSTEM = { by: 'a system', groups: [], isVouchedFor: true };

/** Answers a task with a signal. @throws {InvalidError} where it does not fit, or {@link changeTask}'s errors */
export async function signal(db: Database, task: TaskRow, payload: JsonObject): Promise<void> {
  await checkAnswer(task, payload);
  await changeTask(db, task, SYSTEM, undefined, 'answer', { response: payload, via: 'signal' });
}

/** Answers a task with the first kept signal that fits; those that do not are dropped. */
export const deliverKept = (database: DatabasePool, id: string): Promise<void> =>
  database.transaction(async (tx) => {
    const task = await findTask(tx, { userId: undefined, groups: [] }, id);
    const name = task?.shown.signal;
    if (!task || name === undefined || task.shown.state !== 'open') return;
    for (;;) {
      const payload = await takeSignal(tx, task, name);
      if (!payload) return;
      const problem = await checkAnswer(task, payload).catch((error: unknown) => {
        if (error instanceof AppError) return error;
        throw error;
      });
      if (!problem) return await signal(tx, task, payload);
    }
  });
