import { createHash } from 'node:crypto';
import type { SessionKey } from './session.ts';

/** The application of every session of `/harness/invoke`, whatever `harness_name` says (specification). */
export const HARNESS_APP = 'harness_agent';

/** The topic of new events of a session. A digest, so that its length does not depend on the names. */
export function sessionTopic({ appName, userId, sessionId }: SessionKey): string {
  return createHash('sha256')
    .update(JSON.stringify([appName, userId, sessionId]))
    .digest('base64url')
    .slice(0, 22);
}

/** The topic that is published when a session may run its next invocation, which is far rarer than new events. */
export const freeTopic = (key: SessionKey) => `free:${sessionTopic(key)}`;

/** The topic of new partial text of a session. */
export const textTopic = (key: SessionKey) => `text:${sessionTopic(key)}`;

/** The topic of requests to stop an invocation. */
export const stopTopic = (invocationId: string) => `stop:${invocationId}`;

/** The topic of new invocations in the background queue. */
export const QUEUE_TOPIC = 'queue';
