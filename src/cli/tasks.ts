import { setTimeout as sleep } from 'node:timers/promises';
import { type Api, type GlobalOptions, listPages, withApi } from './api.ts';
import { print, printList } from './output.ts';
import { parseExactJson } from '../core/exact-json.ts';

interface TaskBody {
  id: string;
  kind: string;
  state: string;
  requestedBy: string;
  form: { tool: string; hint?: string };
  expireTime?: number;
}

/** These commands start no service, because an answered task's invocation continues only in one that keeps running. */
const RUNNING = { running: true };

const listOpen = (api: Api, { all, user }: GlobalOptions & { all?: boolean }): Promise<TaskBody[]> =>
  listPages(api, `/tasks?${all ? '' : `ownerId=${encodeURIComponent(user)}&`}limit=1000`);

const toRow = ({ id, kind, requestedBy, expireTime, form }: TaskBody) => [
  id,
  kind,
  requestedBy,
  expireTime === undefined ? '–' : new Date(expireTime * 1000).toISOString(),
  form.tool,
  form.hint ?? '',
];

/** Prints the open tasks in the sessions of `--user`, or with `--all` every open task that the caller may see. */
export const listOpenTasks = (options: GlobalOptions & { all?: boolean }): Promise<void> =>
  withApi(
    options,
    async (api) =>
      printList(await listOpen(api, options), {
        ...options,
        head: ['task', 'kind', 'user', 'until', 'tool', 'asked'],
        toRow,
        empty: options.all
          ? 'There are no open tasks.'
          : `No open tasks for \`${options.user}\`; --all lists those of all.`,
      }),
    RUNNING,
  );

const WATCH_MS = 2_000;

/** Prints each task once, when it appears: those of `--user`, or with `--all` all that the caller may see. */
export const watchTasks = (options: GlobalOptions & { all?: boolean }): Promise<void> =>
  withApi(
    options,
    async (api) => {
      for (const known = new Set<string>(); ; await sleep(WATCH_MS)) {
        const open = await listOpen(api, options);
        for (const task of open.filter(({ id }) => !known.has(id)))
          print(options.json ? JSON.stringify(task) : toRow(task).join('  '));
        known.clear();
        for (const { id } of open) known.add(id);
      }
    },
    RUNNING,
  );

/** A task's answer is that of `--answer`, else a plain yes; with `--reject` the task is rejected. */
export const answerTask = (
  id: string,
  { answer, reject, by, ...options }: GlobalOptions & { answer?: string; reject?: boolean; by?: string },
): Promise<void> =>
  withApi(
    options,
    async (api) => {
      const content = answer === undefined ? {} : { answer: parseExactJson(answer) };
      const change = reject ? { action: 'reject', by } : { action: 'answer', by, ...content };
      const task = await api.send<TaskBody>('PATCH', `/tasks/${encodeURIComponent(id)}`, change);
      print(options.json ? JSON.stringify(task) : `task ${task.id}: ${task.state}`);
    },
    RUNNING,
  );
