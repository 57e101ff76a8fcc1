import type { PreparedAgent } from '../../agent/definition/agent.ts';
import type { LiveConnection, LiveInput, LiveMessage, LiveRequest } from '../../agent/definition/model.ts';
import { LiveAudio } from '../../agent/loop/live-audio.ts';
import { runLiveTurn, toLiveRequest } from '../../agent/loop/live-turn.ts';
import type { HostedAgent } from '../../conversation/apps/hosted-agent.ts';
import { findHistory } from '../../conversation/sessions/history.ts';
import type { Content } from '../../core/content.ts';
import { answerRefusal, AppError, NotFoundError, toClientText } from '../../core/errors.ts';
import { type SessionKey, sessionNotFound } from '../../core/session.ts';
import { WaitingQueue } from '../../platform/work/waiting-queue.ts';
import type { InvocationContext } from '../../invocations/context.ts';
import { type EventFrame, newInvocationId } from '../../invocations/request.ts';
import { invoke } from '../../invocations/invoke.ts';
import { newToolServices } from '../../invocations/tool-services.ts';
import { CLOSE, type LiveSocket, STOPPING } from './live-socket.ts';
import { parseExactJson } from '../../core/exact-json.ts';

/** Maximum number of typed messages that wait for a turn. */
const MAX_CONTENTS = 8;

export interface CallOptions extends Pick<LiveRequest, 'modality' | 'proactiveAudio' | 'affectiveDialog'> {
  key: SessionKey;
  /** If true, the audio of the user and of the model is saved as artifacts. */
  savesAudio: boolean;
  /** Counts a turn before it begins. @throws {LimitError} if the caller has started too many in this minute */
  countTurn: () => Promise<void>;
}

/**
 * Live audio is passed to the model as it comes, without a lease. Each reply of the model is one invocation
 * with the session's lease and all limits, so that other requests get their turn between two replies.
 */
export class LiveCall {
  readonly #context: InvocationContext;
  readonly #live: LiveSocket;
  readonly #key: SessionKey;
  readonly #prepared: PreparedAgent;
  readonly #connection: LiveConnection;
  readonly #audio: LiveAudio | undefined;
  readonly #countTurn: () => Promise<void>;
  readonly #contents = new WaitingQueue<{ content: Content; bytes: number }>();
  readonly #disconnected: AbortSignal;
  #isAnswering = false;
  #hasEnded = false;
  #invocationId: string;
  /** Transcript of the user's speech since the last turn. */
  #inputTranscript = '';

  private constructor(
    context: InvocationContext,
    live: LiveSocket,
    disconnected: AbortSignal,
    options: CallOptions & { prepared: PreparedAgent; connection: LiveConnection },
  ) {
    this.#context = context;
    this.#live = live;
    this.#disconnected = disconnected;
    this.#key = options.key;
    this.#countTurn = options.countTurn;
    this.#prepared = options.prepared;
    this.#connection = options.connection;
    this.#audio = options.savesAudio ? new LiveAudio() : undefined;
    this.#invocationId = newInvocationId(context);
    live.isBusy = () => this.#isAnswering;
    void this.#answerAll();
  }

  /**
   * Connects to the model's live API and sends the history.
   * @throws {AgentError} if the provider refuses
   * @throws {NotFoundError} if there is no such session
   */
  static async open(
    context: InvocationContext,
    live: LiveSocket,
    agent: HostedAgent,
    options: CallOptions,
    disconnected: AbortSignal,
  ): Promise<LiveCall> {
    const { key, modality, proactiveAudio, affectiveDialog } = options;
    const history = await findHistory(context.database.db, key);
    if (!history) throw new NotFoundError(sessionNotFound(key.sessionId));
    const signal = AbortSignal.any([disconnected, context.stopping]);
    const prepared = await agent.prepare({}, signal, key.userId);
    try {
      // Tools run in invocations only. These services write nothing outside an invocation, so they need no lease token.
      const services = newToolServices(context, { key, token: '' });
      const { events, runtimeEventIds, state } = history;
      const input = { agent: prepared, session: key, invocationId: newInvocationId(context), runtimeEventIds, state };
      const { newId, log } = context;
      // No tool call of the history runs again, so people's confirmations of such calls are not needed.
      const further = { history: events, confirmed: [], signal, streaming: false, services, newId, log };
      const request = await toLiveRequest({ ...input, ...further });
      const flags = { modality, proactiveAudio, affectiveDialog, signal };
      const connection = await prepared.model.live?.connect({ ...request, ...flags });
      if (!connection) throw new TypeError('the model has no live API');
      return new LiveCall(context, live, disconnected, { ...options, prepared, connection });
    } catch (error) {
      await prepared.close();
      throw error;
    }
  }

  /** Passes media to the model. @throws {AgentError} if the provider refuses it */
  send(input: LiveInput): void {
    if (input.kind === 'blob') this.#audio?.addInput(input.blob);
    this.#connection.send(input);
  }

  /** Queues a typed message until the running turn has ended. `bytes` is the size of its frame. */
  say(content: Content, bytes: number): void {
    const error = `${MAX_CONTENTS} contents wait for their turn already; this one is left out.`;
    if (this.#contents.size >= MAX_CONTENTS) return this.#live.send({ error });
    this.#contents.push({ content, bytes });
    this.#live.wait(bytes);
  }

  /** Closes the connection to the model after the running turn, or at once if no turn runs. */
  end(): void {
    this.#hasEnded = true;
    if (!this.#isAnswering) void this.#close();
  }

  async #answerAll(): Promise<void> {
    try {
      while (!this.#hasEnded) {
        await Promise.race([this.#contents.ready(), this.#connection.ready()]);
        if (this.#hasEnded) return;
        const { content, bytes = 0 } = this.#contents.shift() ?? {};
        this.#live.wait(-bytes);
        if (content || isAnswer(this.#connection.peek())) await this.#answer(content);
        else this.#listen(this.#connection.shift());
      }
    } catch (error) {
      if (!(error instanceof AppError)) this.#context.log.error({ err: error }, 'a live session failed');
      this.#live.fail(CLOSE.failed, toClientText(error, 'The runtime failed.'));
    } finally {
      await this.#close();
    }
  }

  /** Handles a message of the model between two turns: a part of the transcript of the user's speech. */
  #listen(message: LiveMessage | undefined): void {
    if (message?.closed) throw message.closed;
    const { text, finished } = message?.inputTranscription ?? {};
    if (!text) return;
    this.#inputTranscript += text;
    this.#live.send({
      id: this.#context.newId(),
      invocationId: this.#invocationId,
      author: 'user',
      nodeInfo: { path: '' },
      inputTranscription: { text, finished },
      partial: true,
      timestamp: this.#context.now(),
    });
  }

  /** A failed turn ends the session, because the model remembers events that were not stored. */
  async #answer(content: Content | undefined): Promise<void> {
    this.#isAnswering = true;
    const turn = { connection: this.#connection, content, inputTranscript: this.#inputTranscript, audio: this.#audio };
    const request = {
      key: this.#key,
      invocationId: this.#invocationId,
      content,
      overrides: {},
      createSession: false,
      streaming: true,
      signal: this.#disconnected,
      prepared: this.#prepared,
      steps: (input: Parameters<typeof runLiveTurn>[0]) => runLiveTurn(input, turn),
    };
    this.#inputTranscript = '';
    try {
      await this.#countTurn();
      const { error } = await invoke(this.#context, request, (frame) => this.#live.sendText(toText(frame)));
      if (error) this.#fail(error.message);
    } catch (error) {
      // A person's response to an open call was refused: no event was stored, and the model was told nothing.
      const refusal = answerRefusal(error);
      if (!refusal) throw error;
      this.#live.send({ error: refusal.message });
    } finally {
      this.#isAnswering = false;
    }
    this.#invocationId = newInvocationId(this.#context);
    if (this.#context.draining.aborted) {
      this.#hasEnded = true;
      this.#live.close(CLOSE.goingAway, STOPPING);
    }
  }

  #fail(reason: string): void {
    this.#hasEnded = true;
    this.#live.fail(CLOSE.failed, reason);
  }

  async #close(): Promise<void> {
    this.#hasEnded = true;
    this.#connection.close();
    await this.#prepared.close();
  }
}

/** The transcript of a user's speech does not begin a turn, because the model may not reply to that speech. */
const isAnswer = (message: LiveMessage | undefined) =>
  Boolean(message?.parts?.length || message?.calls || message?.outputTranscription?.text);

/** Removes `partial`, which keeps audio events out of the database, but which ADK's clients do not expect. */
function toText({ text, event }: EventFrame): string {
  if (event.partial !== true || !event.content?.parts?.some(({ inlineData }) => inlineData)) return text;
  const { partial: _partial, ...whole } = parseExactJson(text) as EventFrame['event'];
  return JSON.stringify(whole);
}
