import type { Config } from '../../config/config.ts';
import { runAsSystem } from '../../platform/context.ts';
import { signals, tasks } from '../../platform/db/schema/schema.ts';
import type { Feature } from '../../platform/feature/feature.ts';
import { taskPath } from '../../platform/http/operation/parameters.ts';
import type { Notifications } from '../../platform/db/notifications.ts';
import type { Log } from '../../platform/log.ts';
import type { Metrics } from '../../platform/metrics.ts';
import type { QueueContext } from '../../platform/work/leased-queue.ts';
import { signalOperations } from './signal-routes.ts';
import { taskSchema } from './task.ts';
import { type TaskContext, taskOperations } from './task-routes.ts';
import { answerForgottenChildren, forgetInTasks, TASKS_TOPIC, wakeForgotten } from './task-store.ts';
import { wakeTasks } from './wake.ts';

export interface Context extends TaskContext, QueueContext {
  notifications: Notifications;
  config: Pick<Config, 'PUBLIC_URL'>;
  log: Log;
  metrics?: Metrics | undefined;
}

/**
 * Resumes paused invocations whose calls were answered but that nothing resumed. None should exist, so each is logged.
 */
async function bringForgotten({ database, notifications, log, metrics }: Context): Promise<void> {
  const answers = (await answerForgottenChildren(database.db)) + (await wakeForgotten(database.db));
  if (answers === 0) return;
  log.warn({ answers }, 'answers were found that nothing would have brought to their paused invocation');
  metrics?.count('agent_runtime_tasks_forgotten_total', {}, answers);
  notifications.publish(TASKS_TOPIC);
}

export const waitFeature = {
  name: 'waits',
  operations: [...taskOperations, ...signalOperations],
  schemas: { Task: taskSchema },
  parameters: { TaskId: taskPath.shape.taskId },
  workers: [wakeTasks],
  sweeps: [{ group: 'minutely', name: 'waking invocations that were forgotten', run: bringForgotten }],
  userTables: [
    {
      table: tasks,
      // Imported tasks are closed, appear in no other user's inbox, and get a derived id that no other task can have.
      setByRuntime: {
        id: 'md5(r.user_id || r.id)',
        state: `case when r.state = 'done' then 'done' else 'cancelled' end`,
        assigned_users: `'{}'`,
        assigned_groups: `'{}'`,
        due_time: 'null',
        token_hash: 'null',
        token_expire_time: 'null',
        decided_via: 'null',
        decide_time: `case when r.state = 'done' then coalesce(r.decide_time, clock_timestamp()) end`,
      },
    },
    {
      table: signals,
      // The sender's groups are removed, because the operator has not authenticated the sender of an imported signal.
      setByRuntime: { sender_groups: `'{}'` },
    },
  ],
  userCopies: [
    { erase: ({ database }, user) => runAsSystem(async () => ({ tasks: await forgetInTasks(database.db, user) })) },
  ],
} satisfies Feature<Context>;
