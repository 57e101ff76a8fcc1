import type { RawData, WebSocket } from 'ws';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { LARGE_BYTES } from '../../core/parse-json.ts';
import { CallerCounts } from '../../platform/work/fair-semaphore.ts';
import { ownTurn } from '../../platform/work/loop-turns.ts';

/** Codes of a close (RFC 6455 §7.4.1, and as ADK uses them). */
export const CLOSE = { normal: 1000, goingAway: 1001, sessionNotFound: 1002, policy: 1008, failed: 1011 } as const;
/** Why a live session ends when the process stops. */
export const STOPPING = 'The service is stopping.';
/** A reason has at most 123 bytes of UTF-8; a character that is cut becomes one of three bytes. */
const MAX_REASON = 120;
const { controlFramesOfASocket, waitingFramesOfASocket: MOST, waitingFramesOfAUser } = INPUT_LIMITS;
/** Bytes of frames that wait, of each caller. */
const waitingBytes = new CallerCounts(waitingFramesOfAUser.bytes);
/** Bytes that a client leaves unread until it is cut off. */
const MAX_UNREAD_BYTES = 16 * 1024 * 1024;
/** Time between two pings, which find a client that is gone without a word. */
const PING_MS = 30_000;
/** Time that a client has to answer a close. */
const CLOSE_MS = 2_000;

/** Limits of one live session; a client's frames and their bytes are counted. */
export type LiveLimits = Record<'idleMs' | 'totalMs' | 'bytes' | 'frames', number>;

/** The limits in service: an hour, which the bytes and frames are made for; a new session goes on where one ends. */
export const LIVE_LIMITS: LiveLimits = {
  /** Maximum time in which nothing is sent in either direction. */
  idleMs: 300_000,
  totalMs: 3_600_000,
  bytes: INPUT_LIMITS.liveSession.bytes,
  frames: INPUT_LIMITS.liveSession.count,
};

/** The socket of a live session: its frames are taken one after another, within its limits. */
export class LiveSocket {
  onFrame: (frame: Buffer) => Promise<void> = () => Promise.resolve();
  /** True while a turn runs that `onFrame` does not wait for. */
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

  /** @param caller whose frames are counted together */
  constructor(socket: WebSocket, limits: LiveLimits, caller: string) {
    this.#caller = caller;
    this.#socket = socket;
    this.#limits = limits;
  }

  /** Reads the socket from now on; frames wait until `start`. Settles when it is closed. */
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
    // Not at once: the client is to read why, for instance that its frame is too large.
    socket.on('error', () => void setTimeout(() => socket.terminate(), CLOSE_MS).unref());
    const watch = setInterval(
      () => {
        // What is not read for a while has its pong behind it.
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

  /** Takes the frames that came, and those to come; a stop that began before ends a session that says nothing. */
  start(draining: AbortSignal): void {
    this.#isTaking = false;
    void this.#takeAll();
    if (draining.aborted && !this.#isAnswering()) this.close(CLOSE.goingAway, STOPPING);
  }

  send(value: object): void {
    this.sendText(JSON.stringify(value));
  }

  /** Sends a frame; a client that does not read is cut off before its frames fill the memory. */
  sendText(text: string): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#lastUse = performance.now();
    this.#socket.send(text);
    if (this.#socket.bufferedAmount > MAX_UNREAD_BYTES) this.#socket.terminate();
  }

  /** Counts bytes that came and wait, or with a negative number those that wait no longer. */
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

  /** Ends the session; frames that wait are dropped. */
  close(code: number, reason: string): void {
    this.#waiting.length = 0;
    this.#socket.resume();
    this.#socket.close(code, Buffer.from(reason).subarray(0, MAX_REASON).toString());
    setTimeout(() => this.#socket.terminate(), CLOSE_MS).unref();
  }

  /** Ends the session with a whole sentence in a frame: what a close can hold of it is short. */
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

  /** Counts a ping or a pong: unread answers to pings, and fragments of a frame between pongs, stay in memory. */
  #countControl(): void {
    this.#controlFrames += 1;
    if (this.#controlFrames === controlFramesOfASocket.count)
      return this.#exceed(`${controlFramesOfASocket.count} pings and pongs`);
    if (this.#controlFrames > controlFramesOfASocket.count) this.#socket.terminate();
  }

  #receive(data: RawData, isBinary: boolean): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#lastUse = performance.now();
    // ws hands on one Buffer unless told otherwise, and has checked that text is UTF-8.
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
      // Whatever is small is parsed at once: sound comes in many small frames.
      if (frame.length > LARGE_BYTES / 8) await ownTurn(this.#caller);
      this.wait(-frame.length);
      await this.onFrame(frame);
      this.#lastUse = performance.now();
    }
    this.#isTaking = false;
  }
}
