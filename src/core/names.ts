import { hash } from 'node:crypto';
import type { SessionKey } from './session.ts';

/** The application of all sessions of `POST /harness/invoke`, whatever their `harness_name` (specification). */
export const HARNESS_APP = 'harness_agent';

/** The ADK Web UI's default user: in the mode `local`, and for API keys for all users if the request names none. */
export const LOCAL_USER = 'user';

/** The user that AgentKit's `/invoke` acts for if the request names none. */
export const AGENTKIT_USER = 'agentkit_user';

/** The user of evaluated cases that name none, as in ADK, unless a user of a token evaluates. */
export const TEST_USER = 'test_user_id';

/** Users for whom an API key acts where its request names none. No token is of one of them where keys are taken too. */
export const SHARED_USERS: readonly string[] = [LOCAL_USER, AGENTKIT_USER, TEST_USER];

/** Name of the artifact that holds a kept function response, by its handle. */
export const resultArtifact = (handle: string): string => `tool-results/${handle}`;
/** Their names stand from the first of these on, before the second. */
export const RESULT_ARTIFACTS = ['tool-results/', 'tool-results0'] as const;
const RESULT_ARTIFACT = /^tool-results\/[\w-]{1,128}$/;

/** True for the names of kept function responses. A model reads these as what its tools gave, so nobody else writes them. */
export const isResultArtifact = (name: string | null | undefined): boolean => RESULT_ARTIFACT.test(name ?? '');

/** Name of the tool that reads function responses which a prompt does not show whole. */
export const READ_RESULT = 'read_result';

/** Name of the function call that asks a person to confirm a call of a tool, in ADK's protocol. */
export const CONFIRMATION_CALL = 'adk_request_confirmation';

const RUNTIME_CALLS = new Set([CONFIRMATION_CALL, 'adk_request_credential']);

/** True for function calls that the runtime makes to ask a person. The model has not made them and does not see them. */
export const isRuntimeCall = (name: string | null | undefined): boolean => RUNTIME_CALLS.has(name ?? '');

/** Notification topic of a session's new events: a digest, so that its length does not depend on the names. */
export const sessionTopic = ({ appName, userId, sessionId }: SessionKey): string =>
  hash('sha256', JSON.stringify([appName, userId, sessionId]), 'base64url').slice(0, 22);

/** Notification topic of a session that is free for its next invocation. */
export const freeTopic = (key: SessionKey) => `free:${sessionTopic(key)}`;

/** Notification topic of new chunks of streamed text. */
export const textTopic = (key: SessionKey) => `text:${sessionTopic(key)}`;

/** Notification topic of requests to stop an invocation. */
export const stopTopic = (invocationId: string) => `stop:${invocationId}`;

/** Notification topic of new invocations in the background queue. */
export const QUEUE_TOPIC = 'queue';

/** Kind of the jobs that take the steps of cases, and topic of the notifications that there is such a job. */
export const EVALUATION_JOB = 'evaluation';
