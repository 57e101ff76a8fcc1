import { z } from 'zod';
import { SchemaSandbox } from '../../agent/arguments/schema-sandbox.ts';
import type { OpenWait } from '../../agent/loop/call-ledger.ts';
import { CONFIRMATION_CALL } from '../../core/names.ts';
import { jsonObject, type JsonObject } from '../../core/content.ts';
import { InvalidError, TooLargeError } from '../../core/errors.ts';
import { strictObject } from '../../core/members.ts';
import { toInstant } from '../../core/time-zones.ts';
import { escapeList } from '../../platform/json-escape.ts';

export const TASK_KINDS = ['confirmation', 'effect', 'question', 'call', 'sleep', 'signal', 'budget', 'child'] as const;
export const TASK_STATES = ['open', 'answered', 'done', 'cancelled'] as const;

/** Maximum time until a task's deadline, in seconds: a year. */
export const MAX_WAIT_SECONDS = 31_622_400;
/** Maximum number of assigned users of a task, and maximum number of its assigned groups. */
const MAX_ASSIGNEES = 20;
/** Maximum size of a person's answer, in characters of JSON. */
const MAX_ANSWER = 65_536;
/** Maximum length of a comment, in characters. */
const MAX_COMMENT = 2_000;
/** Maximum size of the function call's arguments that a form shows, in characters of JSON. */
const MAX_ARGS = 16_384;

const seconds = (meaning: string) => z.number().describe(`${meaning}, Unix seconds.`);
const names = (meaning: string) => z.array(z.string().min(1).max(256)).max(MAX_ASSIGNEES).describe(meaning);

/** Members that an approval and a comment have in common. */
const signed = {
  by: z.string().describe('The user, or the id of a key.'),
  at: z.number().describe('When, in Unix seconds.'),
};

export const taskSchema = z
  .looseObject({
    id: z.string().describe('Names the task.'),
    appName: z.string().describe('The application.'),
    requestedBy: z.string().describe('The user whose invocation waits.'),
    kind: z
      .enum(TASK_KINDS)
      .describe(
        '`confirmation` of a call, `effect` of one that may have acted, `question`, `call` that something else ' +
          'answers, `sleep`, `signal`, `budget` that has nothing left, `child`: the agent of the call waits, and has tasks of its own.',
      ),
    state: z
      .enum(TASK_STATES)
      .describe('`answered`: its invocation waits for other answers, or for its turn. `done`: it has the answer.'),
    form: z
      .looseObject({
        tool: z.string().describe('The tool that was called.'),
        args: jsonObject.optional().describe('Its arguments; absent where they are large.'),
        hint: z.string().optional().describe('What is asked, for people.'),
        schema: jsonObject.optional().describe('JSON Schema of the answer.'),
      })
      .describe('What is asked.'),
    users: names('Users that may answer.'),
    groups: names('Groups that may; without users and groups the user of the session.'),
    approvals: z.array(z.looseObject(signed)).describe('Who has said yes so far.'),
    approvalsNeeded: z.int().describe('How many people have to.'),
    comments: z
      .array(z.looseObject({ ...signed, text: z.string().describe('What was written, as plain text.') }))
      .describe('What was written beside it.'),
    signal: z.string().optional().describe('Name of the signal that answers it.'),
    createTime: seconds('When it began to wait'),
    expireTime: seconds('Its deadline').optional(),
    answer: jsonObject.optional().describe('The response that the call gets.'),
    decidedBy: z.string().optional().describe('Who answered.'),
    decidedVia: z
      .enum(['tasks', 'run', 'signal', 'deadline', 'child'])
      .optional()
      .describe('The way of the answer; `run`: a message of the session; `child`: the end of its agent.'),
    decideTime: seconds('When it was answered').optional(),
    sessionId: z.string().optional().describe('The session, for those who may read it.'),
    rootSessionId: z
      .string()
      .optional()
      .describe('Of an agent that another one called like a tool: the session of the user above it, for them.'),
    invocationId: z.string().optional().describe('The invocation that waits, for them.'),
    callId: z.string().optional().describe('Id of the function call that the answer goes to, for them.'),
  })
  .describe('Something that waits for a person, a time or a signal.');

export type Task = z.output<typeof taskSchema>;

export const TASK_EXAMPLE = {
  id: '0b7f2a54-6d3f-4f0e-9c58-2f6f1a1c9d10',
  appName: 'harness_agent',
  requestedBy: 'u1',
  kind: 'confirmation',
  state: 'open',
  form: { tool: 'pay', args: { to: 'Acme', euros: 900 }, hint: 'The agent wants to use `pay`. Do you allow it?' },
  users: [],
  groups: ['finance'],
  approvals: [{ by: 'u2', at: 1_767_229_200.5 }],
  approvalsNeeded: 2,
  comments: [],
  createTime: 1_767_225_600.25,
  expireTime: 1_767_398_400.25,
} satisfies z.input<typeof taskSchema>;

export const changeTaskSchema = strictObject('A change of a task.', {
  action: z
    .enum(['answer', 'reject', 'assign', 'comment', 'postpone'])
    .describe(
      '`answer`: yes, or the answer. `reject`: no. `assign`: to others; a user assigns to itself, or to some of those ' +
        'who may answer by now, and never lets in others. ' +
        '`postpone`: its deadline.',
    ),
  answer: jsonObject
    .optional()
    .describe(`With \`answer\`: what fits the schema of the form; at most ${MAX_ANSWER} characters as JSON.`),
  by: z
    .string()
    .min(1)
    .max(256)
    .optional()
    .describe('Who answers, where a key or an anonymous caller does for a person [the user of the session].'),
  text: z
    .string()
    .max(MAX_COMMENT)
    .optional()
    .describe('The comment, or the reason of a rejection: it becomes a comment, and the model is told it.'),
  users: names('With `assign`.').optional(),
  groups: names('With `assign`.').optional(),
  seconds: z.int().min(1).max(MAX_WAIT_SECONDS).optional().describe('With `postpone`: its deadline, from now on.'),
});

export type TaskChange = z.output<typeof changeTaskSchema>;

/** Converts the function calls that wait to the JSON parameter of the database function; null if there are none. */
export const toTasksParameter = (waits: readonly OpenWait[] = []): string | null => escapeList(waits.map(toTask));

function toTask({ callId, callName, about, tool, args, request, wait }: OpenWait) {
  const { kind, hint, schema, users = [], groups = [], signal, expiresAfter, expiresAt, timeZone, ...rules } = wait;
  const isConfirmation = callName === CONFIRMATION_CALL;
  const confirmationKind = request?.schema === undefined ? 'confirmation' : 'question';
  return {
    callId,
    callName,
    about,
    kind: isConfirmation ? confirmationKind : (kind ?? 'call'),
    form: {
      tool,
      args: JSON.stringify(args).length > MAX_ARGS ? undefined : args,
      hint: hint ?? request?.hint,
      schema: request?.schema ?? schema,
    },
    rules,
    users,
    groups,
    signal,
    expiresAfter: expiresAfter && Math.min(expiresAfter, MAX_WAIT_SECONDS),
    // A moment, because the database's time zones may be older than Node's, by which schedules go.
    expiresAt: expiresAt && toInstant(expiresAt, timeZone ?? 'UTC').toISOString(),
  };
}

export function toCallResponse(
  { callName, kind }: { callName: string; kind: Task['kind'] },
  isYes: boolean,
  answer: JsonObject | undefined,
  reason?: string,
) {
  if (callName === CONFIRMATION_CALL)
    return { confirmed: isYes, ...(answer && { payload: answer }), ...(!isYes && reason && { reason }) };
  if (kind === 'budget' && isYes) return { goesOn: true };
  if (kind === 'sleep' && isYes) return { woken: 'early', ...answer };
  return isYes ? (answer ?? { result: 'done' }) : { error: reason || 'It was declined.' };
}

/**
 * @throws {InvalidError} if the answer does not match the schema of the task's form
 * @throws {TooLargeError} if the answer is too large
 */
export async function checkAnswer(
  { shown, callName }: { shown: Task; callName: string },
  answer: JsonObject | undefined,
): Promise<void> {
  if (answer && JSON.stringify(answer).length > MAX_ANSWER)
    throw new TooLargeError(`The answer has more than ${MAX_ANSWER} characters as JSON.`);
  const { schema } = shown.form;
  // A person may confirm a tool call without filling in its form.
  if (!schema || (!answer && callName === CONFIRMATION_CALL)) return;
  if (!answer) throw new InvalidError('The task asks for an `answer` that fits the `schema` of its form.');
  const problem = await new SchemaSandbox().check(schema, answer, new AbortController().signal, 'answer');
  if (problem) throw new InvalidError(problem);
}
