import { randomUUID } from 'node:crypto';
import type { Event } from '../../../src/core/event.ts';
import type { Answer } from '../../support/app.ts';
import { eventBody, eventually, invokeBody, sessionPath } from './faults.ts';
import type { Acked } from './invariants.ts';
import { answerFor, promptFor } from './model-server.ts';
import type { Random } from './seed.ts';
import { type ServerProcess, tryTo } from './server-process.ts';

/** A session that clients work with. */
export interface Target {
  userId: string;
  sessionId: string;
}

/** What a client saw of a session, and when it sent its request and got the answer. */
export interface Read {
  sentAt: number;
  answeredAt: number;
  ids: string[];
  lastUpdateTime: number;
}

/** A request with values of its own; one with a key may be sent again. */
interface Request extends Target, NewRequest {
  idempotencyKey?: string;
  isAcked: boolean;
}

/** What is sent, without a key. */
interface NewRequest {
  kind: 'invoke' | 'background' | 'append' | 'patch';
  method: 'POST' | 'PATCH';
  path: string;
  body: object;
  /** The text that stands in the session once it is done; a change of the state has none. */
  said?: string;
  /** The answer of the agent. */
  answered?: string;
  /** Shared keys of the state that it writes. */
  keys: string[];
}

/** A background invocation that was answered with an id. */
export interface Accepted extends Target {
  invocationId: string;
  said: string;
  answered: string;
}

/** Everything that clients know when all is over. */
export interface History {
  acked: Acked[];
  /** Texts that were refused for good: they must not be there. */
  failed: string[];
  /** Shared keys that were acknowledged to be written, and where. */
  keys: { userId: string; key: string }[];
  reads: Map<string, Read[]>;
  accepted: Accepted[];
  /** What was sent with a key, and all its final answers; for a background invocation these are its ids. */
  keyed: { request: Request; answers: string[] }[];
  /** Answers that no client should get. */
  wrong: string[];
  operations: number;
  unsure: number;
}

/** Before anything was done. */
export const newHistory = (): History => ({
  acked: [],
  failed: [],
  keys: [],
  reads: new Map(),
  accepted: [],
  keyed: [],
  wrong: [],
  operations: 0,
  unsure: 0,
});

/** Done, another one runs the session, no room, away for now: all else is no answer to a right request. */
const HONEST = new Set([200, 409, 429, 503]);
/** Of those requests that may have one. */
const KEYED_SHARE = 0.5;

/** One operation of a client, as chance says, with what it learned from it. */
export async function operate(history: History, draw: Random, at: ServerProcess, target: Target): Promise<void> {
  history.operations++;
  const kind = draw.whole(0, 13);
  if (kind <= 2) return read(history, at, target);
  if (kind === 3 && history.accepted.length > 0) return look(history, at, draw.pick(history.accepted));
  const keyed = kind <= 6 && history.keyed.length > 0 ? draw.pick(history.keyed) : undefined;
  if (keyed) return send(history, at, keyed.request, keyed.answers);
  const request: Request = { ...newRequest(draw, kind, target), ...target, isAcked: false };
  if (draw.next() > KEYED_SHARE) return send(history, at, request);
  const answers: string[] = [];
  history.keyed.push({ request: Object.assign(request, { idempotencyKey: randomUUID() }), answers });
  return send(history, at, request, answers);
}

function newRequest(draw: Random, kind: number, { userId, sessionId }: Target): NewRequest {
  const id = randomUUID();
  const path = sessionPath(userId, sessionId);
  const prompt = { id, calls: draw.whole(0, 2), delayMs: draw.whole(0, 20) };
  const [said, answered] = [promptFor(prompt), answerFor(id)];
  if (kind <= 8) {
    const body = invokeBody(userId, sessionId, prompt);
    return { kind: 'invoke', method: 'POST', path: '/harness/invoke', body, said, answered, keys: [] };
  }
  if (kind <= 10) {
    const body = { newMessage: { role: 'user', parts: [{ text: said }] } };
    return { kind: 'background', method: 'POST', path: `${path}/invocations`, body, said, answered, keys: [] };
  }
  const keys = [`user:${id}`, `app:${id}`];
  const state = { [`own-${id}`]: id, ...Object.fromEntries(keys.map((key) => [key, id])) };
  return kind <= 12
    ? { kind: 'append', method: 'POST', path: `${path}/events`, body: eventBody(id, state), said: id, keys }
    : { kind: 'patch', method: 'PATCH', path, body: { stateDelta: state }, keys };
}

async function send(history: History, at: ServerProcess, request: Request, answers: string[] = []): Promise<void> {
  const { method, path, body, idempotencyKey, said } = request;
  const headers = idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey };
  const answer = await tryTo(at.send(method, path, body, headers));
  if (answer && !HONEST.has(answer.status)) history.wrong.push(`${request.kind}: ${answer.status} ${answer.text}`);
  if (answer?.status === 200) take(history, request, answer, answers);
  else if (answer?.status === 429 && said && idempotencyKey === undefined) history.failed.push(said);
  else history.unsure++;
}

/** What a client knows from the answer 200. */
function take(history: History, request: Request, { text, body }: Answer, answers: string[]): void {
  const { userId, sessionId, kind, said = '', answered, idempotencyKey } = request;
  const { id: invocationId = '', error } = body as { id?: string; error?: string | null };
  answers.push(kind === 'background' ? invocationId : text);
  if (kind === 'invoke' && error !== null) return void history.unsure++;
  if (request.isAcked) return;
  request.isAcked = true;
  if (kind === 'background') {
    history.accepted.push({ userId, sessionId, invocationId, said, answered: answered ?? '' });
    return;
  }
  if (kind !== 'patch') {
    const key = idempotencyKey === undefined ? {} : { idempotencyKey };
    history.acked.push({ userId, sessionId, said, ...(answered === undefined ? {} : { answered }), ...key });
  }
  history.keys.push(...request.keys.map((key) => ({ userId, key })));
}

/** What was accepted is there, at any time and on any replica. */
async function look(history: History, at: ServerProcess, { userId, sessionId, invocationId }: Accepted): Promise<void> {
  const answer = await tryTo(at.get(`${sessionPath(userId, sessionId)}/invocations/${invocationId}`));
  if (answer && answer.status !== 200 && answer.status !== 503) {
    history.wrong.push(`look: ${answer.status} ${answer.text}`);
  }
}

async function read(history: History, at: ServerProcess, { userId, sessionId }: Target): Promise<void> {
  const sentAt = performance.now();
  const answer = await tryTo(at.get(sessionPath(userId, sessionId)));
  if (answer?.status !== 200) return;
  const { events, lastUpdateTime } = answer.body as { events: Event[]; lastUpdateTime: number };
  const ids = events.map((event) => event.id ?? '');
  const name = `${userId}/${sessionId}`;
  const reads = history.reads.get(name) ?? [];
  history.reads.set(name, reads);
  reads.push({ sentAt, answeredAt: performance.now(), ids, lastUpdateTime });
}

/** Every session can be used, on every replica: again where a lease ends that an earlier fault has left. */
export async function useEach(servers: ServerProcess[], targets: Target[], withinMs: number): Promise<void> {
  for (const server of servers) {
    for (const { userId, sessionId } of targets) {
      await eventually(`session ${sessionId} can be used at ${server.url}`, withinMs, async () => {
        const id = randomUUID();
        const { body } = await server.post('/harness/invoke', invokeBody(userId, sessionId, { id }));
        const { output, error } = body as { output?: string; error?: string | null };
        return output === answerFor(id) && error === null;
      });
    }
  }
}
