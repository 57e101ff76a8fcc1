import { APP } from './seed.ts';

/** Requests of `npm run bench -- growth`, and what those of several subjects say. */

/** The user that is measured, and what others have much of. */
export const USER = 'measured';

/** A request of an operation. `{name}` in its path is an id of `IDS`, or one that an answer had. */
export interface Request {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path: string;
  body?: unknown;
  headers?: Record<string, string>;
  /** It goes on: the first of what it sends is enough. */
  isEndless?: boolean;
  /** A name for later paths, and where its value stands in the answer. */
  keep?: [name: string, pattern: RegExp];
}
/** Makes the n-th request of an operation. */
export type Operation = (n: number) => Request;

export const get =
  (path: string): Operation =>
  () => ({ method: 'GET', path });
export const send =
  (
    method: Request['method'],
    path: (n: number) => string,
    body?: (n: number) => unknown,
    keep?: (n: number) => NonNullable<Request['keep']>,
  ): Operation =>
  (n) => ({
    method,
    path: path(n),
    ...(body && { body: body(n) }),
    ...(keep && { keep: keep(n) }),
  });
export const of = `/apps/${APP}/users/${USER}`;
export const session = `${of}/sessions/s0`;
export const D = `/dev/apps/${APP}`;
export const text = (words: string) => ({ role: 'user', parts: [{ text: words }] });
export const event = (id: string) => ({
  id,
  invocationId: 'i',
  author: 'user',
  content: text('some words'),
  timestamp: 1.79e9,
});
export const job = (name: string) => ({
  ownerId: USER,
  name,
  prompt: 'hello',
  schedule: { type: 'daily', time: '08:00', timezone: 'Europe/Berlin' },
});

export const METRICS = [{ metricName: 'response_match_score', threshold: 0.8 }];

export function invoke(sessionId: string, prompt = 'What is 17 * 23? Use the calculator.') {
  return { prompt, harness_name: 'h', run_agent_request: { user_id: USER, session_id: sessionId } };
}
export const run = (n: number) => ({ appName: APP, userId: USER, sessionId: `new${n}`, newMessage: text('hello') });
