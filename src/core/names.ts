import { createHash } from 'node:crypto';
import type { SessionKey } from './session.ts';

/**
 * The application of all sessions of `POST /harness/invoke`. By the specification it does not depend on the request's
 * `harness_name`.
 */
export const HARNESS_APP = 'harness_agent';

/**
 * Returns the notification topic for new events of a session. It is a digest, so that its length does not depend on the
 * names.
 */
export function sessionTopic({ appName, userId, sessionId }: SessionKey): string {
  return createHash('sha256')
    .update(JSON.stringify([appName, userId, sessionId]))
    .digest('base64url')
    .slice(0, 22);
}

/**
 * Returns the notification topic for a session that becomes ready for its next invocation. It is separate, because this
 * is far rarer than new events.
 */
export const freeTopic = (key: SessionKey) => `free:${sessionTopic(key)}`;

/** Returns the notification topic for new chunks of streamed text of a session. */
export const textTopic = (key: SessionKey) => `text:${sessionTopic(key)}`;

/** Returns the notification topic for requests to stop an invocation. */
export const stopTopic = (invocationId: string) => `stop:${invocationId}`;

/** The notification topic for new invocations in the background queue. */
export const QUEUE_TOPIC = 'queue';
