import type { JsonObject } from '../../core/content.ts';
import { AppError } from '../../core/errors.ts';
import type { Database, DatabasePool } from '../../platform/db/database.ts';
import { takeSignal } from './signal-store.ts';
import { checkAnswer } from './task.ts';
import { changeTask, findTask, mayAnswer, type Person, type TaskRow } from './task-store.ts';

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
export const deliverKept = (database: DatabasePool, id: string): Promise<void> =>
  database.transaction(async (tx) => {
    const task = await findTask(tx, { userId: undefined, groups: [] }, id);
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
