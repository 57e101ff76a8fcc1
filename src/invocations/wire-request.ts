import type { Response } from 'express';
import { z } from 'zod';
import { harnessOverridesSchema, llmCallLimitSchema, toAgentOverrides } from '../agent/definition/overrides.ts';
import { contentSchema, freeForm } from '../core/content.ts';
import { AgentError, ConflictError, InvalidError, NotFoundError, TooLargeError } from '../core/errors.ts';
import { fingerprint, idempotencyHeaders } from '../conversation/idempotency/idempotency.ts';
import { bodyText, name } from '../core/members.ts';
import { identifierSchema, type SessionKey } from '../core/session.ts';
import type { DatabasePool } from '../platform/db/database.ts';
import { type Demand, overrideDemands, sharedStateDemands } from '../platform/http/operation/demands.ts';
import { type InvocationRequest, newInvocationId } from './request.ts';
import { hasMessage } from '../conversation/sessions/event-store.ts';
import { BUSY_POLICIES, type Invocation, isStopped, isUnsuccessful } from './invocation.ts';
import { findInvocationText } from './invocation-store.ts';
import { webhookUrlSchema } from '../invocations/webhooks/address.ts';

/** Maximum characters of `customMetadata`: few, because every event and every streamed delta has a copy. */
const MAX_NOTES = 16_384;

const prompt = {
  newMessage: contentSchema.nullish().describe('What the user says; may be absent only when an invocation goes on.'),
  stateDelta: freeForm("Merged into the state with the user's event."),
  invocationId: identifierSchema
    .nullish()
    .describe('An ended invocation to go on with, for instance after a confirmation.'),
  customMetadata: freeForm('Notes that all events of the agent carry; at most 16,384 characters as JSON.'),
  harness: harnessOverridesSchema.nullish().describe(harnessOverridesSchema.description ?? ''),
};

export const startInvocationSchema = z
  .looseObject({
    ...prompt,
    streaming: z
      .boolean()
      .nullish()
      .describe('True: its text is kept as it comes, for streams of events with `deltas=true` [false].'),
    webhookUrl: webhookUrlSchema
      .nullish()
      .describe('Address of a registered webhook, which is sent how the invocation ends or that it paused.'),
  })
  .describe('One prompt of a session.');

export const runRequestSchema = z
  .looseObject({
    appName: identifierSchema.describe('A name of `/list-apps`.'),
    userId: identifierSchema.describe('The owner of the session; with a user-pool token its own user.'),
    sessionId: identifierSchema.describe('An existing session.'),
    ...prompt,
    streaming: z
      .boolean()
      .nullish()
      .describe('True: `/run_sse` sends text as it comes, in events marked `partial` [false]. `/run` ignores it.'),
    functionCallEventId: name('The event whose function call this message answers.'),
  })
  .describe('One prompt, as the ADK clients send it.');

/** Returns the additional scopes that a prompt needs because of its overrides and state keys. */
export const promptDemands = ({ body }: { body: z.input<typeof startInvocationSchema> }): Demand[] => [
  ...overrideDemands(body.harness),
  ...sharedStateDemands(body.stateDelta),
];

export const rewindSchema = z
  .looseObject({ rewindBeforeInvocationId: identifierSchema.describe('The first invocation to undo.') })
  .describe('Takes a session back to before an invocation.');

/** Body of `POST /harness/invoke`, with the field names of the harness specification. */
export const harnessInvokeSchema = z
  .looseObject({
    prompt: bodyText.describe(
      'What the user says, as plain text. Empty it says nothing, and the model goes on: by its instruction alone in a ' +
        'new session.',
    ),
    harness_name: z
      .string()
      .max(1_024)
      .describe('Any name, echoed in the answer; chooses neither application nor session.'),
    run_agent_request: z
      .looseObject({
        user_id: identifierSchema.describe('The owner of the session.'),
        session_id: identifierSchema.describe('Created where it is absent, always under `harness_agent`.'),
        max_llm_calls: llmCallLimitSchema
          .nullish()
          .describe(
            'Maximum number of model calls of this invocation [as deployed, 500]; wins over `harness.max_llm_calls`. ' +
              'Without the scope `override` it only lowers the deployed one.',
          ),
      })
      .describe('Who asks, and in which session.'),
    harness: harnessOverridesSchema.nullish().describe(harnessOverridesSchema.description ?? ''),
  })
  .describe('One prompt. `harness_merge` and `harness_enhance` are not supported: they are accepted and ignored.');

export const harnessResultSchema = z
  .looseObject({
    harness_name: z.string().describe('The name in the request.'),
    overwrite: z.boolean().describe('True when an override other than `mcp_servers` was applied.'),
    output: z.string().describe("The agent's answer; empty on failure."),
    structured_output: z
      .unknown()
      .optional()
      .describe('The answer as JSON, checked; only where the agent or `harness.output_schema` says its form.'),
    error: z.string().nullable().describe('Why it failed, a sentence; `null` on success, and only then.'),
  })
  .describe('What the agent answered. Status 200 alone does not mean success: `error` does.');

export const invocationNotFound = (invocationId: string): string => `Invocation not found: ${invocationId}`;

/**
 * @throws {InvalidError} if the body has neither a message nor an invocation to resume
 * @throws {TooLargeError} if the body's `customMetadata` is too large
 * @throws {NotFoundError} if the invocation to resume does not exist
 * @throws {ConflictError} if its message is not kept, and the body has none
 */
export async function toInvocation(
  { database, newId }: { database: DatabasePool; newId: () => string },
  key: SessionKey,
  body: z.infer<typeof startInvocationSchema>,
  headers: Pick<InvocationRequest, 'idempotency' | 'busyPolicy'>,
): Promise<InvocationRequest> {
  const { newMessage, invocationId, customMetadata } = body;
  if (customMetadata && JSON.stringify(customMetadata).length > MAX_NOTES) {
    throw new TooLargeError(`customMetadata has more than ${MAX_NOTES} characters as JSON.`);
  }
  if (!newMessage && !invocationId) {
    throw new InvalidError('newMessage is missing: only a request with the invocationId to go on with needs none.');
  }
  if (invocationId) {
    const text = await findInvocationText(database.reads, key, invocationId);
    if (text === undefined) throw new NotFoundError(invocationNotFound(invocationId));
    const invocation = JSON.parse(text) as Invocation;
    if (!newMessage && hasLostMessage(invocation))
      throw new ConflictError(
        `Invocation ${invocationId} was stopped before it began, and its message is not kept. Send the message again.`,
      );
    // Without its message the model would answer the turn before.
    if (!newMessage && isUnsuccessful(invocation.status) && !(await hasMessage(database.db, key, invocationId)))
      throw new ConflictError(
        `The session has no message of invocation ${invocationId}: it was refused, or deleted. Send the message again.`,
      );
  }
  const request = toRequest(key, invocationId ?? newInvocationId({ newId }), body);
  return { ...request, resumes: invocationId != null, ...headers };
}

/** True if an invocation was stopped while it waited. One that has paused and waits again has called a model. */
const hasLostMessage = ({ status, startTime, llmCalls }: Invocation): boolean =>
  isStopped(status) && startTime === undefined && llmCalls === 0;

/** A background invocation with a webhook stores its result, because the delivery may contain it. */
export const inBackground = (request: InvocationRequest, webhookUrl: string | undefined): InvocationRequest => ({
  ...request,
  inBackground: true,
  waitsForBudget: true,
  ...(webhookUrl === undefined ? {} : { webhookUrl, answer: { kind: 'output' } }),
});

const toRequest = (
  key: SessionKey,
  invocationId: string,
  { newMessage, stateDelta, customMetadata, harness }: z.infer<typeof startInvocationSchema>,
): InvocationRequest => ({
  key,
  invocationId,
  content: newMessage ?? undefined,
  stateDelta: stateDelta ?? undefined,
  customMetadata: customMetadata ?? undefined,
  overrides: toAgentOverrides(harness),
  createSession: false,
  streaming: false,
});

export const invocationHeaders = idempotencyHeaders.extend({
  'x-double-texting': z
    .enum(BUSY_POLICIES)
    .optional()
    .describe(
      'While the session runs another invocation: wait, fail with 409, interrupt it, or `steer` it with the message.',
    ),
});

/** HTTP errors of a request whose session cannot be claimed now. */
export const BUSY_ERRORS = {
  409:
    'The session is busy and the request would not wait, or the request with this key is still running, or the ' +
    'message of the invocation to go on with is not kept.',
  429: 'The session stayed busy, too many requests wait for it, or a limit of the caller (`limit`) is reached.',
  503:
    'The service has no room, or its database is away. With `X-Invocation-Id` the invocation has begun, and another process ' +
    'goes on with it: without `Retry-After` the prompt is not to be sent again.',
};

/** `requested` is the content that must be equal in two requests with the same idempotency key. */
export const toInvocationOptions = (
  headers: z.output<typeof invocationHeaders>,
  requested: unknown,
): Pick<InvocationRequest, 'idempotency' | 'busyPolicy'> => ({
  idempotency: fingerprint(headers['idempotency-key'], requested),
  busyPolicy: headers['x-double-texting'],
});

/** Aborts when the client disconnects before the response is complete; `undefined` if that shall not cancel. */
export function disconnectSignal(
  { cancelOnDisconnect }: { cancelOnDisconnect: boolean },
  response: Response,
): AbortSignal | undefined {
  if (!cancelOnDisconnect) return undefined;
  const disconnected = new AbortController();
  const onClose = () => {
    if (!response.writableFinished)
      disconnected.abort(new AgentError('cancelled', 'The invocation was cancelled: its client left.'));
  };
  if (response.destroyed) onClose();
  else response.on('close', onClose);
  return disconnected.signal;
}
