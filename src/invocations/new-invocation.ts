import { InvalidError, NotFoundError } from '../core/errors.ts';
import { toAgentOverrides } from '../agent/definition/overrides.ts';
import type { SessionKey } from '../core/session.ts';
import { type InvocationContext, type InvocationRequest, newInvocationId } from './context.ts';
import type { StartInvocation } from './run-request.ts';
import { findInvocationText } from './invocation-store.ts';

/** The text of the 404 of an invocation. */
export const invocationNotFound = (invocationId: string): string => `Invocation not found: ${invocationId}`;

/**
 * What a request asks for, in the story's words; `headers` is what its headers say.
 * @throws {InvalidError} without a message and without an invocation to go on with. @throws {NotFoundError} when that is absent.
 */
export async function toInvocation(
  context: InvocationContext,
  key: SessionKey,
  body: StartInvocation,
  headers: Pick<InvocationRequest, 'idempotency' | 'doubleTexting'>,
): Promise<InvocationRequest> {
  const { newMessage, stateDelta, invocationId, customMetadata, harness } = body;
  if (!newMessage && !invocationId) {
    throw new InvalidError('newMessage is missing: only a request with the invocationId to go on with needs none.');
  }
  if (invocationId && (await findInvocationText(context.database.reads, key, invocationId)) === undefined) {
    throw new NotFoundError(invocationNotFound(invocationId));
  }
  return {
    key,
    invocationId: invocationId ?? newInvocationId(context),
    resumes: invocationId != null,
    content: newMessage ?? undefined,
    stateDelta: stateDelta ?? undefined,
    customMetadata: customMetadata ?? undefined,
    overrides: toAgentOverrides(harness),
    createSession: false,
    streaming: false,
    ...headers,
  };
}
