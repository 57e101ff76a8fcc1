import type { RawData, WebSocket } from 'ws';
import { atTime } from '../../core/abort.ts';
import { AgentError, AppError, NotFoundError } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import { EXPIRED } from '../../http/operation/principal.ts';
import { findSession } from '../../sessions/session-store.ts';
import { type EventFrame, type InvocationContext, newInvocationId } from '../context.ts';
import { invoke } from '../invoke.ts';
import { toLiveFrame } from './live-frame.ts';

/** Codes of a close (RFC 6455 §7.4.1, and as ADK uses them). */
const CLOSE = { normal: 1000, goingAway: 1001, sessionNotFound: 1002, policy: 1008, failed: 1011 } as const;
/** A reason has at most 123 bytes of UTF-8; a character that is cut becomes one of three bytes. */
const MAX_REASON = 120;
/** Frames that wait for the turn before them; then the socket is not read any further. */
const MAX_WAITING = 8;
/** Bytes that a client leaves unread until it is cut off. */
const MAX_UNREAD_BYTES = 16 * 1024 * 1024;
/** Time between two pings, which find a client that is gone without a word. */
const PING_MS = 30_000;
/** Time that a client has to answer a close. */
const CLOSE_MS = 2_000;
const NO_AUDIO = 'This model has no live API: audio and video cannot be used. Send text instead.';

/** A live session as its client asks for it. */
export interface LiveRequest {
  key: SessionKey;
  /** `undefined` where the client did not say: then text is answered, and audio refused when it comes. */
  modalities: string[] | undefined;
  /** Maximum time without a frame or a turn. */
  idleMs: number;
  /** When the credential ends, Unix time in milliseconds. */
  expiresAt: number | undefined;
}

/**
 * Holds a live session in text: each `content` of the client is one ordinary invocation, stored as such; its events go
 * out as they come, then `turnComplete`. Settles when the socket is closed.
 */
export async function converse(context: InvocationContext, socket: WebSocket, request: LiveRequest): Promise<void> {
  const left = new AbortController();
  const live = new Live(socket);
  live.onFrame = async (text) => {
    const frame = toLiveFrame(text);
    if (frame.kind === 'invalid') live.send({ error: frame.error });
    else if (frame.kind === 'close') live.close(CLOSE.normal, '');
    else if (frame.kind === 'blob') live.close(CLOSE.failed, NO_AUDIO);
    else if (frame.kind === 'content') await takeTurn(context, live, request.key, frame.content, left.signal);
    if (context.draining.aborted) live.close(CLOSE.goingAway, 'The service is stopping.');
  };
  const closed = live.hold(request.idleMs, context.draining);
  const cancel = atTime(request.expiresAt, () => {
    live.send({ error: EXPIRED });
    live.close(CLOSE.policy, EXPIRED);
  });
  try {
    const refusal = await refusalOf(context, request);
    if (refusal) live.close(...refusal);
    else live.start(context.draining);
  } catch (error) {
    context.log.error({ err: error }, 'a live session failed');
    live.close(CLOSE.failed, 'The runtime failed.');
  }
  await closed;
  cancel();
  if (context.cancelOnDisconnect) {
    left.abort(new AgentError('cancelled', 'The invocation was cancelled: its client left.'));
  }
}

async function refusalOf(
  { agents, database }: InvocationContext,
  { key, modalities }: LiveRequest,
): Promise<[code: number, reason: string] | undefined> {
  if (!agents.has(key.appName)) return [CLOSE.policy, `App not found: ${key.appName}`];
  if (modalities?.some((modality) => modality !== 'TEXT')) return [CLOSE.failed, NO_AUDIO];
  const session = await findSession(database.reads, key, { numRecentEvents: 0 });
  return session ? undefined : [CLOSE.sessionNotFound, 'Session not found'];
}

/** One turn: an invocation with its events, then its end. A failure of the agent is an event; the session goes on. */
async function takeTurn(
  context: InvocationContext,
  live: Live,
  key: SessionKey,
  content: EventFrame['event']['content'],
  left: AbortSignal,
): Promise<void> {
  const invocationId = newInvocationId(context);
  let last: EventFrame['event'] | undefined;
  const send = ({ text, event }: EventFrame) => {
    if (event.usageMetadata) last = event;
    live.sendText(text);
  };
  try {
    await invoke(
      context,
      {
        key,
        invocationId,
        content: content ?? undefined,
        overrides: {},
        createSession: false,
        streaming: true,
        signal: left,
      },
      send,
    );
    const { author, usageMetadata } = last ?? { author: key.appName };
    const usage = usageMetadata ? { usageMetadata } : {};
    live.send({ id: context.newId(), invocationId, author, timestamp: context.now(), turnComplete: true, ...usage });
  } catch (error) {
    if (error instanceof NotFoundError) return live.close(CLOSE.sessionNotFound, sessionNotFound(key.sessionId));
    if (!(error instanceof AppError)) context.log.error({ err: error, invocationId }, 'invocation failed');
    live.send({ error: error instanceof AppError ? error.message : 'The runtime failed while it ran the agent.' });
  }
}

/** A socket whose frames are taken one after another, with its bounds. */
class Live {
  onFrame: (text: string) => Promise<void> = () => Promise.resolve();
  readonly #socket: WebSocket;
  readonly #waiting: string[] = [];
  #isTaking = true;
  #lastUse = performance.now();

  constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  /** Reads the socket from now on; frames wait until `start`. Settles when it is closed. */
  hold(idleMs: number, draining: AbortSignal): Promise<void> {
    const socket = this.#socket;
    let answered = true;
    socket.on('message', (data, isBinary) => this.#receive(data, isBinary));
    socket.on('pong', () => (answered = true));
    socket.on('error', () => socket.terminate());
    const watch = setInterval(
      () => {
        // What is not read for a while has its pong behind it.
        if (!answered && !socket.isPaused) return socket.terminate();
        if (!this.#isTaking && performance.now() - this.#lastUse > idleMs)
          this.close(CLOSE.normal, 'Nothing was said.');
        answered = false;
        socket.ping();
      },
      Math.min(PING_MS, idleMs),
    );
    const stop = () => {
      if (!this.#isTaking) this.close(CLOSE.goingAway, 'The service is stopping.');
    };
    draining.addEventListener('abort', stop);
    return new Promise((resolve) => {
      socket.once('close', () => {
        clearInterval(watch);
        draining.removeEventListener('abort', stop);
        resolve();
      });
    });
  }

  /** Takes the frames that came, and those to come; a stop that began before ends a session that says nothing. */
  start(draining: AbortSignal): void {
    this.#isTaking = false;
    void this.#takeAll();
    if (draining.aborted && !this.#isTaking) this.close(CLOSE.goingAway, 'The service is stopping.');
  }

  send(value: object): void {
    this.sendText(JSON.stringify(value));
  }

  /** Sends a frame; a client that does not read is cut off before its frames fill the memory. */
  sendText(text: string): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#socket.send(text);
    if (this.#socket.bufferedAmount > MAX_UNREAD_BYTES) this.#socket.terminate();
  }

  /** Ends the session; frames that wait are dropped. */
  close(code: number, reason: string): void {
    this.#waiting.length = 0;
    this.#socket.resume();
    this.#socket.close(code, Buffer.from(reason).subarray(0, MAX_REASON).toString());
    setTimeout(() => this.#socket.terminate(), CLOSE_MS).unref();
  }

  #receive(data: RawData, isBinary: boolean): void {
    this.#lastUse = performance.now();
    if (isBinary) return this.send({ error: 'Frames are JSON text.' });
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    // ws hands on one Buffer unless told otherwise, and has checked that it is UTF-8.
    this.#waiting.push((data as Buffer).toString());
    if (this.#waiting.length >= MAX_WAITING) this.#socket.pause();
    void this.#takeAll();
  }

  async #takeAll(): Promise<void> {
    if (this.#isTaking) return;
    this.#isTaking = true;
    for (let text = this.#waiting.shift(); text !== undefined; text = this.#waiting.shift()) {
      if (this.#waiting.length < MAX_WAITING) this.#socket.resume();
      await this.onFrame(text);
      this.#lastUse = performance.now();
    }
    this.#isTaking = false;
  }
}
