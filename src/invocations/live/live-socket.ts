import type { RawData, WebSocket } from 'ws';
import { INPUT_LIMITS } from '../../core/limits.ts';
import { LARGE_BYTES } from '../../core/parse-json.ts';
import { CallerCounts } from '../../platform/work/fair-semaphore.ts';
import { ownTurn } from '../../platform/work/loop-turns.ts';

/** Close codes of RFC 6455 §7.4.1, used as ADK does. */
export const CLOSE = { normal: 1000, goingAway: 1001, sessionNotFound: 1002, policy: 1008, failed: 1011 } as const;
export const STOPPING = 'The service is stopping.';
/** The protocol allows a reason of 123 bytes. A character cut at 120 bytes decodes to a replacement of three. */
const MAX_REASON = 120;
const { controlFramesOfASocket, waitingFramesOfASocket: MOST, waitingFramesOfAUser } = INPUT_LIMITS;
/** Bytes of waiting frames, per caller. */
const waitingBytes = new CallerCounts(waitingFramesOfAUser.bytes);
/** Unread output at which a client is disconnected. */
const MAX_UNREAD_BYTES = 16 * 1024 * 1024;
/** Time between two pings, which detect clients that vanished. */
const PING_MS = 30_000;
/** Time that a client has to answer a close. */
const CLOSE_MS = 2_000;

/** Limits of one live session. `bytes` and `frames` count what the client sends. */
export type LiveLimits = Record<'idleMs' | 'totalMs' | 'bytes' | 'frames', number>;

/** The default limits. `bytes` and `frames` suffice for an hour; a new session continues the conversation. */
export const LIVE_LIMITS: LiveLimits = {
  /** Maximum time without a frame in either direction. */
  idleMs: 300_000,
  totalMs: 3_600_000,
  bytes: INPUT_LIMITS.liveSession.bytes,
  frames: INPUT_LIMITS.liveSession.count,
};

/** The socket of a live session. Handles its frames one by one, within its limits. */
export class LiveSocket {
  onFrame: (frame: Buffer) => Promise<void> = () => Promise.resolve();
  /** True while a turn runs that `onFrame` does not await. */
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

  /** @param caller - whose waiting frames are counted together */
  constructor(socket: WebSocket, limits: LiveLimits, caller: string) {
    this.#caller = caller;
    this.#socket = socket;
    this.#limits = limits;
  }

  /** Begins to read the socket; frames wait until `start`. @returns a promise that settles when the socket is closed */
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
    // Terminate later, so that the client can read the reason, for instance that its frame is too large.
    socket.on('error', () => void setTimeout(() => socket.terminate(), CLOSE_MS).unref());
    const watch = setInterval(
      () => {
        // While the socket is paused its pongs are not read.
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

  /** Handles the frames received so far and all later ones. Closes an idle session if shutdown has already begun. */
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

  /** Adds to the bytes of waiting frames; negative when a frame no longer waits. */
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

  /** Closes the session after a frame with the complete reason, because a close frame has little room. */
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

  /** Counts a ping or pong. Both use memory: unread pong replies, and frame fragments sent between pongs. */
  #countControl(): void {
    this.#controlFrames += 1;
    if (this.#controlFrames === controlFramesOfASocket.count)
      return this.#exceed(`${controlFramesOfASocket.count} pings and pongs`);
    if (this.#controlFrames > controlFramesOfASocket.count) this.#socket.terminate();
  }

  #receive(data: RawData, isBinary: boolean): void {
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    this.#lastUse = performance.now();
    // ws passes one Buffer by default, and has validated UTF-8.
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
