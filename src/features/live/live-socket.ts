import type { RawData, WebSocket } from 'ws';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { LARGE_BYTES } from '../../core/parse-json.ts';
import { CallerCounts } from '../../platform/work/fair-semaphore.ts';
import { ownTurn } from '../../platform/work/loop-turns.ts';

/** Close codes of RFC 6455 §7.4.1, used as ADK does. */
export const CLOSE = { normal: 1000, goingAway: 1001, sessionNotFound: 1002, policy: 1008, failed: 1011 } as const;
export const STOPPING = 'The service is stopping.';
/** Maximum bytes of a close reason that is cut: WebSocket allows 123, and a cut character becomes 3 bytes. */
const MAX_REASON = 120;
const { controlFramesOfASocket, waitingFramesOfASocket: MOST, waitingFramesOfAUser } = INPUT_LIMITS;
/** Bytes of received frames that wait to be handled, per caller. */
const waitingBytes = new CallerCounts(waitingFramesOfAUser.bytes);
/** Maximum number of sent bytes that a client has not read; a client beyond it is disconnected. */
const MAX_UNREAD_BYTES = 16 * 1024 * 1024;
/** Time in milliseconds between two pings, which detect clients that have vanished. */
const PING_MS = 30_000;
/** Maximum time in milliseconds that a client has to answer a close frame. */
const CLOSE_MS = 2_000;

/** Limits of one live session. `bytes` and `frames` are maximums for what the client sends. */
export type LiveLimits = Record<'idleMs' | 'totalMs' | 'bytes' | 'frames', number>;

/** A live session's `bytes` and `frames` suffice for an hour of audio; then a client continues in a new one. */
export const LIVE_LIMITS: LiveLimits = {
  /** Maximum time in milliseconds without a frame in either direction. */
  idleMs: 300_000,
  totalMs: 3_600_000,
  bytes: INPUT_LIMITS.liveSession.bytes,
  frames: INPUT_LIMITS.liveSession.count,
};

/** The WebSocket of a live session. Handles the client's frames one after the other, within the session's limits. */
export class LiveSocket {
  onFrame: (frame: Buffer) => Promise<void> = () => Promise.resolve();
  /** Returns true while a turn runs that `onFrame` does not await. */
  isBusy = () => false;
  readonly #socket: WebSocket;
  readonly #limits: LiveLimits;
  readonly #caller: string;
  readonly #waiting: Buffer[] = [];
  #waitingBytes = 0;
  #isTaking = true;
  #lastUse = performance.now();
  #frames = 0;
  #bytes = 0;
  #controlFrames = 0;

  /** @param caller - the id under which the bytes of waiting frames are counted */
  constructor(socket: WebSocket, limits: LiveLimits, caller: string) {
    this.#caller = caller;
    this.#socket = socket;
    this.#limits = limits;
  }

  /** Received frames wait until `start` is called. @returns a promise that settles when the socket is closed */
  hold(draining: AbortSignal): Promise<void> {
    const socket = this.#socket;
    const { idleMs, totalMs } = this.#limits;
    let answered = true;
    socket.on('message', (data, isBinary) => this.#receive(data, isBinary));
    socket.on('ping', () => this.#countControl());
    socket.on('pong', () => {
      answered = true;
      this.#countControl();
    });
    // Close the connection later, so that the client can read the reason, for instance that its frame is too large.
    socket.on('error', () => void setTimeout(() => socket.terminate(), CLOSE_MS).unref());
    const watch = setInterval(
      () => {
        // While the socket is paused, pongs are not read, so a missing pong proves nothing.
        if (!answered && !socket.isPaused) return socket.terminate();
        if (!this.#isAnswering() && performance.now() - this.#lastUse > idleMs)
          this.close(CLOSE.normal, 'Nothing was said.');
        answered = false;
        socket.ping();
      },
      Math.min(PING_MS, idleMs),
    );
    const end = setTimeout(() => this.#exceed(`${totalMs / 1000} s`), totalMs);
    const stop = () => {
      if (!this.#isAnswering()) this.close(CLOSE.goingAway, STOPPING);
    };
    draining.addEventListener('abort', stop);
    return new Promise((resolve) => {
      socket.once('close', () => {
        clearInterval(watch);
        clearTimeout(end);
        draining.removeEventListener('abort', stop);
        waitingBytes.add(this.#caller, -this.#waitingBytes);
        this.#waitingBytes = 0;
        resolve();
      });
    });
  }

  /** Handles the frames received so far and all later ones. If shutdown has already begun, closes an idle session. */
  start(draining: AbortSignal): void {
    this.#isTaking = false;
    void this.#takeAll();
    if (draining.aborted && !this.#isAnswering()) this.close(CLOSE.goingAway, STOPPING);
  }

  send(value: object): void {
    this.sendText(JSON.stringify(value));
  }

  /** Sends a frame. Disconnects a client that does not read, before its output fills the memory. */
  sendText(text: string): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#lastUse = performance.now();
    this.#socket.send(text);
    if (this.#socket.bufferedAmount > MAX_UNREAD_BYTES) this.#socket.terminate();
  }

  /** Adds to the number of bytes of waiting frames. The argument is negative when a frame no longer waits. */
  wait(bytes: number): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#waitingBytes += bytes;
    if (waitingBytes.add(this.#caller, bytes) > waitingBytes.maximum && bytes > 0) {
      const most = `The frames of your live sessions that wait have more than ${waitingBytes.maximum} bytes.`;
      return this.fail(CLOSE.policy, most);
    }
    if (this.#waiting.length >= MOST.count || this.#waitingBytes >= MOST.bytes) this.#socket.pause();
    else this.#socket.resume();
  }

  close(code: number, reason: string): void {
    this.#waiting.length = 0;
    this.#socket.resume();
    this.#socket.close(code, Buffer.from(reason).subarray(0, MAX_REASON).toString());
    setTimeout(() => this.#socket.terminate(), CLOSE_MS).unref();
  }

  /** Ends a live session: a frame has the complete reason, because the close frame has room for 123 bytes only. */
  fail(code: number, reason: string): void {
    this.send({ error: reason });
    this.close(code, reason);
  }

  #isAnswering(): boolean {
    return this.#isTaking || this.isBusy();
  }

  #exceed(limit: string): void {
    this.fail(CLOSE.policy, `A live session may have ${limit}. Open another one: it goes on where this one ends.`);
  }

  /** A ping or pong counts as a frame: unread replies to pings, and fragments around pongs, use memory. */
  #countControl(): void {
    this.#controlFrames += 1;
    if (this.#controlFrames === controlFramesOfASocket.count)
      return this.#exceed(`${controlFramesOfASocket.count} pings and pongs`);
    if (this.#controlFrames > controlFramesOfASocket.count) this.#socket.terminate();
  }

  #receive(data: RawData, isBinary: boolean): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#lastUse = performance.now();
    // The library ws passes one Buffer by default, and has checked that text is valid UTF-8.
    const bytes = data as Buffer;
    this.#frames += 1;
    this.#bytes += bytes.byteLength;
    if (this.#frames > this.#limits.frames) return this.#exceed(`${this.#limits.frames} frames`);
    if (this.#bytes > this.#limits.bytes) return this.#exceed(`${this.#limits.bytes} bytes of frames`);
    if (isBinary) return this.send({ error: 'Frames are JSON text.' });
    this.#waiting.push(bytes);
    this.wait(bytes.byteLength);
    void this.#takeAll();
  }

  async #takeAll(): Promise<void> {
    if (this.#isTaking) return;
    this.#isTaking = true;
    for (let frame = this.#waiting.shift(); frame !== undefined; frame = this.#waiting.shift()) {
      // Small frames are parsed at once, because audio comes in many small frames.
      if (frame.length > LARGE_BYTES / 8) await ownTurn(this.#caller);
      this.wait(-frame.length);
      await this.onFrame(frame);
      this.#lastUse = performance.now();
    }
    this.#isTaking = false;
  }
}
