import { createHash } from 'node:crypto';
import type { SessionKey } from './session.ts';

/** The application of every session of `/harness/invoke`, whatever `harness_name` says (specification). */
export const HARNESS_APP = 'harness_agent';

/** The topic that is published when a session has new events: short, whatever the names. */
export function sessionTopic({ appName, userId, sessionId }: SessionKey): string {
  return createHash('sha256')
    .update(JSON.stringify([appName, userId, sessionId]))
    .digest('base64url')
    .slice(0, 22);
}

/** The topic that is published when a session may run its next invocation: far rarer than new events. */
export const freeTopic = (key: SessionKey) => `free:${sessionTopic(key)}`;

/** The topic that is published when a session has new text of an event to come. */
export const textTopic = (key: SessionKey) => `text:${sessionTopic(key)}`;

/** The topic that is published when an invocation is asked to stop. */
export const stopTopic = (invocationId: string) => `stop:${invocationId}`;

/** The topic that is published when an invocation begins to wait in the background. */
export const QUEUE_TOPIC = 'queue';
