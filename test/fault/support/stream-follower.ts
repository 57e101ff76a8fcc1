import { setTimeout as sleep } from 'node:timers/promises';
import type { Event } from '../../../src/core/event.ts';

/** What a client of a stream has when it is over. */
export interface FollowedStream {
  /** Ids of the events, in the order in which they came; since the last restart where there was one. */
  ids: string[];
  /** Gaps, and sequences that came twice. */
  violations: string[];
  /** How often the stream said that its place was not one of the session, and began anew. */
  restarts: number;
}

/** Time between two looks at whether it is over, and before another try. */
const LOOK_MS = 50;

/**
 * Follows the stream of a session's events until `isOver`, over one connection after another: `url(n)` for the nth.
 * `followed` grows meanwhile, `ended` settles when it is over.
 */
export function followStream(
  url: (turn: number) => string,
  isOver: () => boolean,
): { followed: FollowedStream; ended: Promise<void> } {
  const followed: FollowedStream = { ids: [], violations: [], restarts: 0 };
  const follow = async () => {
    for (let turn = 0; !isOver(); turn++) await followOnce(url(turn), isOver, followed);
  };
  return { followed, ended: follow() };
}

async function followOnce(url: string, isOver: () => boolean, followed: FollowedStream): Promise<void> {
  const leave = new AbortController();
  const timer = setInterval(() => isOver() && leave.abort(), LOOK_MS);
  try {
    const headers = { 'last-event-id': String(followed.ids.length) };
    const response = await fetch(url, { headers, signal: leave.signal });
    if (!response.ok || !response.body) throw new TypeError(String(response.status));
    for await (const frame of frames(response.body)) take(followed, frame);
  } catch {
    await sleep(LOOK_MS); // the replica is gone or stopped: the next one goes on
  } finally {
    clearInterval(timer);
  }
}

async function* frames(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true });
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      yield text.slice(0, end);
      text = text.slice(end + 2);
    }
  }
}

function take(followed: FollowedStream, frame: string): void {
  const [, type, sequence, data] = /^(?:event: (\w+)\n)?id: (\d+)\ndata: (.*)$/.exec(frame) ?? [];
  if (data === undefined) return;
  if (type === 'restart') {
    followed.ids = [];
    followed.restarts++;
    return;
  }
  const expected = followed.ids.length + 1;
  if (Number(sequence) !== expected) followed.violations.push(`a stream went from ${expected - 1} to ${sequence}`);
  followed.ids.push((JSON.parse(data) as Event).id ?? '');
}
