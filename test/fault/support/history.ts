import { randomUUID } from 'node:crypto';
import type { Event } from '../../../src/core/event.ts';
import type { Answer } from '../../support/app.ts';
import { DOORS_SETTING, messageDoors } from '../../support/message-doors.ts';
import { eventBody, eventually, invokeBody, sessionPath } from './faults.ts';
import type { Acked } from './invariants.ts';
import { answerFor, answersIn, promptFor } from './model-server.ts';
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

/** What the processes of a history need beside a model: all doors. */
export const historySettings = { DOORS: DOORS_SETTING };

/** A request with values of its own; one with a key may be sent again. */
interface Request extends Target, NewRequest {
  idempotencyKey?: string;
  isAcked: boolean;
}

/** What is sent, without a key. */
interface NewRequest {
  kind: 'invoke' | 'background' | 'message' | 'refused' | 'append' | 'patch';
  send(at: ServerProcess, headers: Record<string, string>): Promise<Answer>;
  /** The name of the door that it comes in by. */
  door: string;
  /** True: the answer names the invocation that answered, not the one that its request began. */
  namesRun?: boolean;
  /** The text that stands in the session once it is done; a change of the state has none. */
  said?: string;
  /** Shared keys of the state that it writes. */
  keys: string[];
}

/** What an answer said of a message. */
export interface Told extends Target {
  door: string;
  said: string;
  /** The invocation that it named: that of the message, or with `namesRun` the one that answered. */
  invocationId?: string | undefined;
  namesRun: boolean;
  /** The invocation that it said to have taken the message. */
  steeredInto?: string | undefined;
  /** The ids of the messages that the model's answers in it are to. */
  answers: string[];
}

/** Everything that clients know when all is over. */
export interface History {
  acked: Acked[];
  /** Texts that were refused for good: they must not be there. */
  failed: string[];
  /** Shared keys that were acknowledged to be written, and where. */
  keys: { userId: string; key: string }[];
  reads: Map<string, Read[]>;
  told: Told[];
  /** What was sent with a key, and all its final answers; for a message these are what each says of it. */
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
  told: [],
  keyed: [],
  wrong: [],
  operations: 0,
  unsure: 0,
});

/** Done, another one runs the session, no room, away for now: all else is no answer to a right request. */
const HONEST = new Set([200, 409, 429, 503]);
/** Of those requests that may have one. */
const KEYED_SHARE = 0.5;
/** What a message does in a session that is busy. */
const POLICIES = ['steer', 'steer', 'steer', 'steer', 'steer', 'reject'];
/** Of the messages through doors: they are refused for what they say to do. */
const REFUSED_SHARE = 0.1;

const [LAST_WITHOUT_MESSAGES, LAST] = [13, 18];

/**
 * One operation of a client, as chance says, with what it learned from it. Without `messages` each is one that nothing but
 * a fault refuses; with them some steer, through all doors, and some are refused.
 */
export async function operate(
  history: History,
  draw: Random,
  at: ServerProcess,
  target: Target,
  { messages = true } = {},
): Promise<void> {
  history.operations++;
  const kind = draw.whole(0, messages ? LAST : LAST_WITHOUT_MESSAGES);
  if (kind <= 2) return read(history, at, target);
  if (kind === 3 && history.told.length > 0) return look(history, at, draw.pick(history.told));
  const keyed = kind <= 6 && history.keyed.length > 0 ? draw.pick(history.keyed) : undefined;
  if (keyed) return send(history, at, keyed.request, keyed.answers);
  const request: Request = { ...newRequest(draw, kind, target), ...target, isAcked: false };
  if (draw.next() > KEYED_SHARE || request.kind === 'refused') return send(history, at, request);
  const answers: string[] = [];
  history.keyed.push({ request: Object.assign(request, { idempotencyKey: randomUUID() }), answers });
  return send(history, at, request, answers);
}

function newRequest(draw: Random, kind: number, { userId, sessionId }: Target): NewRequest {
  const id = randomUUID();
  const path = sessionPath(userId, sessionId);
  const prompt = { id, calls: draw.whole(0, 2), delayMs: draw.whole(0, 20) };
  const said = promptFor(prompt);
  const sender =
    (method: string, to: string, body: object): NewRequest['send'] =>
    (at, headers) =>
      at.send(method, to, body, headers);
  if (kind <= 8) {
    const body = invokeBody(userId, sessionId, prompt);
    return { kind: 'invoke', door: 'invoke', send: sender('POST', '/harness/invoke', body), said, keys: [] };
  }
  if (kind <= 10) {
    const body = { newMessage: { role: 'user', parts: [{ text: said }] } };
    const background = sender('POST', `${path}/invocations`, body);
    return { kind: 'background', door: 'background', send: background, said, keys: [] };
  }
  const keys = [`user:${id}`, `app:${id}`];
  const state = { [`own-${id}`]: id, ...Object.fromEntries(keys.map((key) => [key, id])) };
  const append = sender('POST', `${path}/events`, eventBody(id, state));
  if (kind <= 12) return { kind: 'append', door: 'append', send: append, said: id, keys };
  const patch = sender('PATCH', path, { stateDelta: state });
  if (kind <= LAST_WITHOUT_MESSAGES) return { kind: 'patch', door: 'patch', send: patch, keys };

  const { name: door, says: namesRun = false, send: sendTo } = draw.pick(messageDoors);
  const isRefused = draw.next() < REFUSED_SHARE;
  const policy = { 'x-double-texting': isRefused ? 'sideways' : draw.pick(POLICIES) };
  const through: NewRequest['send'] = (at, headers) =>
    sendTo(at, { userId, sessionId, id, text: said, headers: { ...policy, ...headers } });
  return { kind: isRefused ? 'refused' : 'message', door, namesRun, send: through, said, keys: [] };
}

async function send(history: History, at: ServerProcess, request: Request, answers: string[] = []): Promise<void> {
  const { kind, door, idempotencyKey, said } = request;
  const headers: Record<string, string> = idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey };
  const answer = await tryTo(request.send(at, headers));
  const isRefused = answer && answer.status >= 400 && answer.status < 500;
  const isHonest = !answer || (kind === 'refused' ? isRefused || answer.status === 503 : HONEST.has(answer.status));
  if (!isHonest) history.wrong.push(`${door}: ${answer.status} ${answer.text}`);
  if (answer?.status === 200) take(history, request, answer, answers);
  else if (said && ((isRefused && idempotencyKey === undefined) || kind === 'refused')) history.failed.push(said);
  else history.unsure++;
}

/** What a client knows from the answer 200. */
function take(history: History, request: Request, answer: Answer, answers: string[]): void {
  const { userId, sessionId, kind, said = '', idempotencyKey } = request;
  if (kind === 'background' || kind === 'message') return takeWord(history, request, answer, answers);
  const { output, error } = answer.body as { output?: string; error?: string | null };
  answers.push(answer.text);
  if (kind === 'invoke' && error !== null) return void history.unsure++;
  if (request.isAcked) return;
  request.isAcked = true;
  if (kind !== 'patch') {
    const key = idempotencyKey === undefined ? {} : { idempotencyKey };
    history.acked.push({ userId, sessionId, said, ...(kind === 'invoke' && { answered: output ?? '' }), ...key });
  }
  history.keys.push(...request.keys.map((key) => ({ userId, key })));
}

/** What the answer to a message says has become of it; a stream that was cut says less, and an error nothing. */
export function readWord({
  text,
  headers,
  body,
}: Answer): Pick<Told, 'invocationId' | 'steeredInto' | 'answers'> | undefined {
  const row = (body ?? {}) as { id?: unknown; appName?: unknown; steeredInto?: string };
  const isRow = typeof row.id === 'string' && row.appName !== undefined;
  const invocationId = headers.get('x-invocation-id') ?? (isRow ? String(row.id) : undefined);
  const answers = answersIn(text);
  if (invocationId === undefined && answers.length === 0) return undefined;
  return { invocationId, steeredInto: row.steeredInto, answers };
}

function takeWord(history: History, request: Request, answer: Answer, answers: string[]): void {
  const { userId, sessionId, door, said = '', namesRun = false } = request;
  const word = readWord(answer);
  if (!word) return void history.unsure++;
  history.told.push({ userId, sessionId, door, said, namesRun, ...word });
  answers.push(...(namesRun || word.invocationId === undefined ? word.answers.slice(-1) : [word.invocationId]));
}

/** What was accepted is there, at any time and on any replica. */
async function look(history: History, at: ServerProcess, told: Told): Promise<void> {
  const { userId, sessionId, invocationId } = told;
  if (invocationId === undefined) return;
  const answer = await tryTo(at.get(`${sessionPath(userId, sessionId)}/invocations/${invocationId}`));
  if (answer?.status === 200) {
    const { steeredInto } = answer.body as { steeredInto?: string };
    if (!told.namesRun) history.told.push({ ...told, door: 'look', steeredInto });
  } else if (answer && answer.status !== 503) history.wrong.push(`look: ${answer.status} ${answer.text}`);
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
