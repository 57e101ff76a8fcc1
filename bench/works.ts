import type { Sent } from './load.ts';
import { APP, ARTIFACT, sessionsPath } from './seed.ts';

/** A row of the table: the same request for everybody who is measured. */
export interface Work {
  name: string;
  /** What ours is to reach, as a multiple of the peer and as a share of the limit. */
  goals: { peer?: number; express: number };
  /** True where each request needs an empty session of its own, `s<n>` of the round's user. */
  needsSessions?: boolean;
  /** The n-th request of a round; `user` is the round's own. */
  request(n: number, user: string): Sent;
  /** What of an answer has to be the same everywhere. */
  comparable(text: string): unknown;
  /** The statement that alone gives the answer, and its values: the limit without HTTP. */
  statement?: { name: string; values: (n: number, user: string) => string[] };
}

interface Session {
  id: string;
  state: object;
  events: { author: string; content: { parts: Part[] } }[];
}
type Part = { text?: string } & Record<'functionCall' | 'functionResponse', { name: string } | undefined>;

/** Names and times differ, and so do members that only one of them writes. */
const toComparable = ({ id, state, events }: Session) => ({ id, state, events: events.map(toComparableEvent) });

const toComparableEvent = ({ author, content }: Session['events'][number]) => ({
  author,
  parts: content.parts.map(({ text, functionCall, functionResponse }) => ({
    text,
    call: functionCall && { ...functionCall, id: undefined },
    response: functionResponse && { ...functionResponse, id: undefined },
  })),
});

const getSession = (count: number, goals: Work['goals']): Work => ({
  name: `get a session, ${count.toLocaleString('en')} events of 1 KB`,
  goals,
  request: () => ({ method: 'GET', path: `${sessionsPath(`e${count}`)}/s` }),
  comparable: (text) => toComparable(JSON.parse(text) as Session),
  statement: { name: 'get', values: () => [APP, `e${count}`, 's'] },
});

const listSessions = (count: number, goals: Work['goals']): Work => ({
  name: `list ${count.toLocaleString('en')} sessions`,
  goals,
  request: () => ({ method: 'GET', path: sessionsPath(`l${count}`) }),
  comparable: (text) => {
    const value = JSON.parse(text) as Session[] | { sessions: Session[] };
    const sessions = Array.isArray(value) ? value : value.sessions;
    return sessions.map(toComparable).toSorted((a, b) => a.id.localeCompare(b.id));
  },
  statement: { name: 'list', values: () => [APP, `l${count}`] },
});

const invocation = (name: string, prompt: string, goals: Work['goals']): Work => ({
  name,
  goals,
  needsSessions: true,
  request: (n, user) => runRequest(user, `s${n}`, prompt),
  comparable: (text) => (JSON.parse(text) as Session['events']).map(toComparableEvent),
});

/** One prompt for a session. */
export const runRequest = (userId: string, sessionId: string, prompt: string): Sent => ({
  method: 'POST',
  path: '/run',
  body: { appName: APP, userId, sessionId, newMessage: { role: 'user', parts: [{ text: prompt }] } },
});

const artifactMetadata: Work = {
  name: 'artifact version metadata',
  goals: { express: 0.75 },
  request: () => ({
    method: 'GET',
    path: `${sessionsPath('e10')}/s/artifacts/${ARTIFACT.filename}/versions/0/metadata`,
  }),
  comparable: (text) => JSON.parse(text) as unknown,
  statement: { name: 'artifact', values: () => [APP, 'e10', 's', ARTIFACT.filename, '0'] },
};

const createSession: Work = {
  name: 'create a session',
  goals: { peer: 5, express: 0.65 },
  // The peer makes the id itself, as both do without one.
  request: (n, user) => ({
    method: 'POST',
    path: sessionsPath(user),
    body: { sessionId: `c${n}`, state: { topic: 'weather', count: n } },
  }),
  comparable: (text) => ({ ...toComparable(JSON.parse(text) as Session), id: undefined }),
  statement: { name: 'create', values: (n, user) => [APP, user, `c${n}`, '{"topic":"weather","count":1}'] },
};

/** The rows of the table: reads, lists, writes, invocations. */
export const WORKS: Work[] = [
  getSession(10, { peer: 12, express: 0.75 }),
  getSession(100, { peer: 10, express: 0.85 }),
  getSession(1_000, { peer: 10, express: 0.95 }),
  listSessions(10, { peer: 5, express: 0.75 }),
  listSessions(100, { peer: 7, express: 0.85 }),
  listSessions(1_000, { peer: 10, express: 0.9 }),
  artifactMetadata,
  createSession,
  invocation('invocation, instant model, fresh session', 'What is the weather?', { peer: 16, express: 0.5 }),
  invocation('invocation with one tool call', 'What is the weather? Use the tool.', { peer: 12, express: 0.5 }),
  invocation('invocation, model over HTTP, 75 words', 'Say 75 words.', { express: 0.5 }),
  invocation('invocation, model over HTTP, 400 words', 'Say 400 words.', { express: 0.5 }),
];
