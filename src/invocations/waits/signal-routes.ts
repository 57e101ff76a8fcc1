import { createHash, randomBytes } from 'node:crypto';
import { z } from 'zod';
import { jsonObject, type JsonObject } from '../../core/content.ts';
import { answerRefusal, ConflictError, type NotFoundError } from '../../core/errors.ts';
import type { SessionKey } from '../../core/session.ts';
import { operation } from '../../platform/http/operation/operation.ts';
import { signalPath, tokenPath } from '../../platform/http/operation/parameters.ts';
import { signal, SYSTEM } from './wake.ts';
import { findTaskByToken, findWaitingTask, keepSignal } from './signal-store.ts';
import { MAX_WAIT_SECONDS } from './task.ts';
import { tasks, type TaskContext, toPerson } from './task-routes.ts';
import { changeTask, type Person, type TaskRow, TASKS_TOPIC } from './task-store.ts';

/** Maximum tries to deliver a signal while an invocation begins or ends its wait for it at the same moment. */
const TRIES = 3;
const TOKEN_BYTES = 32;
const DAY_SECONDS = 86_400;

const outcomeSchema = z
  .object({
    taskId: z.string().optional().describe('The task that it answered.'),
    kept: z.boolean().describe('True: nothing waits for it yet; the next invocation that does gets it.'),
  })
  .describe('What became of a signal.');
const errors = {
  400: 'It is not what is waited for.',
  409: 'It was answered before, or the session keeps as many signals as it may.',
  413: 'It is too large.',
};

const sendSignal = operation({
  method: 'post',
  path: '/apps/{app_name}/users/{user_id}/sessions/{session_id}/signals/{signal_name}',
  operationId: 'sendSignal',
  area: 'Agent execution',
  isIdempotent: true,
  scope: 'invoke',
  summary: 'Send a signal',
  description:
    'Answers the invocation that waits for it, which goes on in the background, where the caller may answer its task. ' +
    'One that comes first is kept, as one of its sender.',
  parameters: { path: signalPath },
  body: { schema: jsonObject.describe('What it says.'), required: true, example: { parcel: 'P1' } },
  success: { schema: outcomeSchema, description: 'What became of it.', example: { kept: true } },
  errors: { ...errors, 403: 'Others have to answer.', 404: 'No such session.' },
  absent: ({ sessionId }) => `Session not found: ${sessionId}`,
  handler: async (context: TaskContext, { path, body, principal, notFound }) => {
    const { signalName, ...key } = path;
    const person = toPerson(principal, undefined, key);
    const sender = person.isVouchedFor ? SYSTEM : person;
    return { kind: 'value', value: await deliver(context, key, signalName, { sender, payload: body }, notFound) };
  },
});

interface Message {
  sender: Person;
  payload: JsonObject;
}

async function deliver(
  context: TaskContext,
  key: SessionKey,
  name: string,
  message: Message,
  notFound: () => NotFoundError,
): Promise<z.output<typeof outcomeSchema>> {
  const { db } = context.database;
  for (let tries = 0; tries < TRIES; tries += 1) {
    const task = await findWaitingTask(db, key, name);
    if (task) return await answer(context, task, message);
    const { sender, payload } = message;
    const outcome = await keepSignal(db, key, name, payload, sender.isVouchedFor ? null : sender.groups);
    if (outcome === 'kept') return { kept: true };
    if (outcome === 'absent') throw notFound();
    if (outcome === 'full') throw new ConflictError('The session keeps as many signals as it may.');
  }
  throw new ConflictError('Other answers came at the same time. Try again.');
}

async function answer(context: TaskContext, task: TaskRow, { sender, payload }: Message) {
  await signal(context.database.db, task, sender, payload);
  context.notifications.publish(TASKS_TOPIC);
  return { taskId: task.id, kept: false };
}

const createAddress = tasks.action('address')({
  operationId: 'createTaskAddress',
  summary: 'Make a public address for a task',
  description:
    'For a system that knows no login: a POST there answers the task, once. It replaces an address from before. Its ' +
    'token is not shown again. A task whose rules say who has to answer has none.',
  body: {
    schema: z
      .strictObject({
        seconds: z.int().min(1).max(MAX_WAIT_SECONDS).optional().describe(`How long it is good for [${DAY_SECONDS}].`),
      })
      .describe('A new address.'),
    example: { seconds: 3_600 },
  },
  success: {
    schema: z
      .object({
        path: z.string().describe('The path of the address, behind that of the service.'),
        url: z.string().optional().describe('The whole address, where `PUBLIC_URL` says where the service is.'),
      })
      .describe('The address.'),
    description: 'The address.',
    example: { path: '/signals/bX9…' },
  },
  errors: { 403: 'Others have to answer.', 409: 'It waits for certain people, or is not open.' },
  run: async ({ database: { db }, config }, { body, principal }, row) => {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    const change = { tokenHash: toHash(token), seconds: body.seconds ?? DAY_SECONDS };
    await changeTask(db, row, toPerson(principal, undefined, row), undefined, 'address', change);
    const path = `/signals/${token}`;
    return { path, ...(config.PUBLIC_URL !== undefined && { url: `${config.PUBLIC_URL}${path}` }) };
  },
});

const sendTokenSignal = operation({
  method: 'post',
  path: '/signals/{token}',
  operationId: 'sendTokenSignal',
  area: 'Agent execution',
  scope: 'none',
  owner: 'open',
  load: 'write',
  summary: 'Answer a task by its public address',
  parameters: { path: tokenPath },
  body: { schema: jsonObject.describe('What it says.'), required: true, example: { parcel: 'P1' } },
  success: { schema: outcomeSchema, description: 'What became of it.', example: { kept: false } },
  errors: { ...errors, 404: 'No such address, or its time is over.' },
  absent: () => 'No such address, or its time is over.',
  handler: async (context: TaskContext, { path, body, notFound }) => {
    const task = await findTaskByToken(context.database.db, toHash(path.token));
    if (!task) throw notFound();
    const sender = { by: undefined, groups: [], isVouchedFor: false };
    await answer(context, task, { sender, payload: body }).catch((error: unknown) => {
      const refusal = answerRefusal(error);
      // The error does not name who answered first, because anybody with the public address can call this operation.
      throw refusal ? new ConflictError(refusal.message.replace(/by .*, through/, 'through')) : error;
    });
    return { kind: 'value', value: { kept: false } };
  },
});

const toHash = (token: string) => createHash('sha256').update(token).digest('base64url');

export const signalOperations = [sendSignal, createAddress, sendTokenSignal];
