import type { PreparedAgent } from '../agent/definition/agent.ts';
import type { AgentNode, AgentReply } from '../agent/definition/tool.ts';
import { findNode } from '../agent/loop/agent-tree.ts';
import { mergeActions } from '../agent/loop/call-tools.ts';
import type { ChildCall, Children, Loan } from '../agent/loop/run.ts';
import { listInvocationEvents } from '../conversation/sessions/event-store.ts';
import { errorText } from '../agent/loop/tool-answer.ts';
import { getAnswerText } from '../core/content.ts';
import {
  AgentError,
  AppError,
  ChildWaitsError,
  HandedOverError,
  LeaseLostError,
  sizeRefusal,
  throwRefusal,
} from '../core/errors.ts';
import { isResultArtifact, QUEUE_TOPIC, sessionTopic } from '../core/names.ts';
import { isEvalSession, MAX_CHILD_DEPTH, onlyTemporary, type SessionKey, splitDelta } from '../core/session.ts';
import { currentContext, runWith } from '../platform/context.ts';
import { Wakeup } from '../platform/work/poll-loop.ts';
import { publishStops } from './cancel.ts';
import { type ClaimedInvocation, type RunClaimed, toToolCallsAtMost } from './fence.ts';
import { type EndedChild, findBegunChild, findChild, requestStop } from './invocation-store.ts';
import { isActive } from './invocation.ts';
import type { InvocationLedger } from './invocation-ledger.ts';
import { claimSession, enqueueInvocation, type Lease } from './lock-store.ts';
import { persist, type Usage } from './persist.ts';
import { findQueued } from './queue-store.ts';
import { type InvocationRequest, readStoredRequest, toQueuedRequest, toRecovery, toUserEvents } from './request.ts';
import { claimTurn, newLease } from './session-lock.ts';
import type { TapeRecorder } from './tape.ts';

/*
 * An agent that is used as a tool runs as an invocation of a session of its own, a child: with its own lease, steps and
 * tasks, within the slot of its parent, which waits. The child session is named by the operation of the call, so that a
 * parent that goes on in another process finds its child there, and never begins a second one.
 *
 * If the child waits for a person, a time, a signal or a budget, the parent pauses with a task of the kind `child`. The
 * end of the child answers it in the same transaction (`end_child`), and the parent makes the call again, as after a
 * crash.
 *
 * An agent in the background is queued like a background start, for any process. Its part of what the parent may use is
 * lent to it, and its end adds its result to the queue of the parent's session, as a message that steers (`tell_result`).
 */

/** Milliseconds between looks at a child that another process runs: the database's notifications may be lost. */
const POLL_MS = 1_000;
/** Turns, one after the other, that results of agents in the background begin at most: an agent may start itself anew. */
const MAX_TURNS = 100;

/** The invocation that calls the agents. */
interface Parent extends Omit<ClaimedInvocation, 'listener'> {
  signal: AbortSignal;
  usage: Usage;
  ledger: InvocationLedger;
  endTime: number;
  recorder?: TapeRecorder | undefined;
}

/** What the model is told of an agent in the background. */
const STARTED = 'The agent works in the background. Its result will come as a message.';

interface Child {
  request: InvocationRequest;
  call: ChildCall;
}

export class InvocationChildren implements Children {
  readonly #parent: Parent;
  readonly #prepared: PreparedAgent;
  readonly #run: RunClaimed;
  /** What children may still use which have not ended. */
  readonly lent: Loan = { llmCalls: 0, tokens: 0, toolCalls: 0 };

  constructor(parent: Parent, prepared: PreparedAgent, run: RunClaimed) {
    this.#parent = parent;
    this.#prepared = prepared;
    this.#run = run;
  }

  has(agent: AgentNode): boolean {
    return findNode(this.#prepared, agent.name) === agent;
  }

  /** A live session and the session of an evaluated case are over with the turn. */
  get mayOutlive(): boolean {
    const { key, isLive, child, steps } = this.#parent.request;
    return isLive !== true && steps === undefined && !isEvalSession(child?.rootSessionId ?? key.sessionId);
  }

  call(call: ChildCall): Promise<AgentReply> {
    const { traceparent, callerTrace } = currentContext();
    return runWith({ callerTrace: traceparent ?? callerTrace, tool: undefined }, () => this.#call(call));
  }

  async #call(call: ChildCall): Promise<AgentReply> {
    const { context, request } = this.#parent;
    const depth = (request.child?.depth ?? 0) + 1;
    if (depth > MAX_CHILD_DEPTH)
      throw new Error(`Agents that are used as tools are nested ${MAX_CHILD_DEPTH} deep at most.`);
    const loan = this.#lend(call);
    const asked = this.#toRequest(call, depth, loan);
    const { key, invocationId } = asked;
    // An earlier attempt may have called it, as the application was then.
    const begun =
      request.recovery &&
      (await this.#store(() => findBegunChild(context.database.db, key, invocationId, request.key.sessionId)));
    if (begun?.inBackground ?? call.inBackground) {
      // What an earlier attempt lent counts as lent already.
      const begin = begun ? Promise.resolve(toStarted(key)) : this.#begin(call, asked, loan);
      return begin.finally(() => this.#takeBack(loan));
    }
    const child = { call: { ...call, signal: this.#toOutside(call.signal) }, request: asked };
    let keeps = false;
    const wakeup = new Wakeup();
    const unsubscribe = context.notifications.subscribe(sessionTopic(key), wakeup.wake);
    try {
      // The counts of a child that ended before this process began are in the row that it began from.
      let isCounted = !(await this.#start(child));
      for (;;) {
        call.signal.throwIfAborted();
        wakeup.reset();
        const found = await this.#store(() => findChild(context.database.db, key, invocationId));
        if (!found) throw new Error(`The session of the agent \`${call.agent.name}\` was deleted.`);
        if (!isActive(found) && found.status !== 'paused') {
          if (!isCounted) {
            this.#parent.usage.addStored(found);
            if (found.loans) this.#parent.usage.lend(found.loans);
          }
          this.#takeBack(loan);
          return await this.#toReply(child, found);
        }
        // One that waits in the queue without having begun was woken, and runs in a slot of its own.
        if (found.status === 'paused' || (found.status === 'queued' && !found.hasBegun))
          throw new ChildWaitsError(`The agent \`${call.agent.name}\` waits.`);
        isCounted = false;
        if (found.status === 'queued' && (await this.#takeUp(child))) continue;
        await wakeup.wait(POLL_MS, call.signal);
      }
    } catch (error) {
      // A child that waits, or is about to end, may still use its part.
      keeps = error instanceof ChildWaitsError || call.signal.aborted;
      // The parent goes on without the answer, so nobody would wait for a child that another process runs, or that waits.
      if (call.signal.aborted && !this.#parent.signal.aborted) await this.#stop(key, invocationId);
      throw error;
    } finally {
      if (!keeps) this.#takeBack(loan);
      unsubscribe();
    }
  }

  /** Queues an agent in the background, unless an earlier attempt of the call did. */
  async #begin(call: ChildCall, asked: InvocationRequest, part: Loan): Promise<AgentReply> {
    const { context, usage } = this.#parent;
    if (part.llmCalls < 1 || part.tokens < 1)
      throw new Error(`Too little of what the invocation may use is left for the agent \`${call.agent.name}\`.`);
    if ((asked.child?.turns ?? 0) >= MAX_TURNS)
      throw new Error(
        `Results of agents have begun ${MAX_TURNS} turns, one after the other. A message of the user is needed.`,
      );
    const loan = { ...part, tokens: part.tokens === Infinity ? 0 : part.tokens };
    const { lent: _agent, onRequest: _tape, ...request } = asked;
    const child = request.child && { ...request.child, loan, charactersAtMost: call.charactersAtMost };
    // It outlives the turn, and so the turn's limit of time.
    const { timeAtMostMs: _time, ...overrides } = request.overrides;
    const queued: InvocationRequest = { ...request, child, overrides, answer: { kind: 'output' } };
    const body = toQueuedRequest(queued, context.secrets);
    if (!body)
      throw new Error('MCP servers of the request have credentials, which are not stored without RUNTIME_SECRET_KEY.');
    const lease = newLease(context, queued, body);
    const { session = {} } = splitDelta(call.state);
    let tries = 0;
    const { kind } = await this.#store(() => {
      tries += 1;
      const stored = { ...body, child: { ...child, state: session } };
      return enqueueInvocation(context.database.db, lease, 1, stored).catch(throwRefusal);
    });
    // After a lost answer it may have been queued, and begun since.
    if (kind === 'queued' || tries > 1) usage.lend(loan);
    context.notifications.publish(QUEUE_TOPIC);
    return toStarted(queued.key);
  }

  /** Aborted with the parent, or if only the call ends, by an error that the child ends with. */
  #toOutside(signal: AbortSignal): AbortSignal {
    const { signal: ofParent } = this.#parent;
    const own = new AbortController();
    const abort = () => own.abort(new AgentError('interrupted', errorText(signal.reason)));
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
    return AbortSignal.any([ofParent, own.signal]);
  }

  async #stop(key: SessionKey, invocationId: string): Promise<void> {
    const { database, notifications } = this.#parent.context;
    await this.#store(() => requestStop(database.db, key, invocationId, 'interrupted'));
    publishStops(notifications, [{ ...key, invocationId }]);
  }

  /** Divides what is left, so that all children together can use no more, whenever they begin. */
  #lend({ llmCallsLeft, tokensLeft, share }: ChildCall): Loan {
    const toolCallsLeft = toToolCallsAtMost(this.#parent) - this.#parent.usage.used.toolCalls;
    const lend = (name: keyof Loan, left: number) => {
      if (left === Infinity) return left;
      const part = Math.max(0, Math.min(Math.floor(left / share), left - this.lent[name]));
      this.lent[name] += part;
      return part;
    };
    return {
      llmCalls: lend('llmCalls', llmCallsLeft),
      tokens: lend('tokens', tokensLeft),
      toolCalls: lend('toolCalls', toolCallsLeft),
    };
  }

  /** Ends what `#lend` has lent, once. */
  #takeBack(loan: Loan): void {
    for (const name of ['llmCalls', 'tokens', 'toolCalls'] as const) {
      if (loan[name] !== Infinity) this.lent[name] -= loan[name];
      loan[name] = 0;
    }
  }

  #toRequest({ agent, request, callId, operationId, state }: ChildCall, depth: number, loan: Loan): InvocationRequest {
    const { request: of, lease, endTime } = this.#parent;
    const { llmCalls, tokens, toolCalls } = loan;
    const { traceparent } = currentContext();
    const { key, invocationId } = lease;
    const overrides = {
      ...of.overrides,
      llmCallsAtMost: llmCalls,
      ...(tokens < Infinity && { tokensAtMost: tokens }),
      timeAtMostMs: Math.max(1, Math.ceil(endTime - performance.now())),
    };
    const temporary = onlyTemporary(state);
    return {
      key: { ...key, sessionId: operationId },
      invocationId: `e-${operationId}`,
      content: { role: 'user', parts: [{ text: request }] },
      ...(Object.keys(temporary).length > 0 && { stateDelta: temporary }),
      overrides,
      createSession: 'new',
      streaming: false,
      waitsForBudget: of.waitsForBudget,
      ...(traceparent !== undefined && { links: [{ trace: traceparent, reason: 'parent' }] }),
      child: {
        sessionId: key.sessionId,
        invocationId,
        callId,
        rootSessionId: of.child?.rootSessionId ?? key.sessionId,
        depth,
        agent: agent.name,
        toolCallsAtMost: toolCalls,
        turns: of.child?.turns ?? of.result?.turns ?? 0,
      },
      lent: {
        ...toChildAgent(this.#prepared, agent),
        maxLlmCalls: llmCalls,
        maxTokens: overrides.tokensAtMost,
        close: async () => undefined,
      },
      onRequest: of.onRequest ?? ((asked, made) => this.#parent.recorder?.request(asked, made)),
    };
  }

  /** Starts the child and runs it to its end or pause. @returns false if an earlier attempt of the call started it */
  async #start({ call, request }: Child): Promise<boolean> {
    const { context } = this.#parent;
    const { session = {} } = splitDelta(call.state);
    const { storedRequest, ...lease } = newLease(context, request);
    const stored = { ...storedRequest, child: { ...request.child, state: session } };
    const claimed: Lease = { ...lease, storedRequest: stored, isFree: true };
    const prompt = toUserEvents(request, context.newId);
    if (!(await this.#store(() => claimSession(context.database.db, claimed, prompt, 'new')))) return false;
    await this.#runHere(request, claimed, call.signal);
    return true;
  }

  /** Goes on with a child whose process died or left it, in the slot of its parent. @returns false if another one does */
  async #takeUp({ call, request }: Child): Promise<boolean> {
    const { context } = this.#parent;
    const { key, invocationId, lent, onRequest } = request;
    const queued = await this.#store(() => findQueued(context.database.db, { key, invocationId }));
    if (!queued?.hasBegun || queued.stopAs) return false;
    const read = readStoredRequest(queued.request, context.secrets, { key, invocationId });
    if (read.refusal !== undefined) return false;
    const recovery = toRecovery(read.began, queued);
    const resumed = { ...read.request, key, invocationId, createSession: false, recovery, lent, onRequest };
    const lease = { ...newLease(context, resumed), readToken: queued.token };
    if (!(await this.#store(() => claimTurn(context, lease, [])))) return false;
    await this.#runHere(resumed, lease, call.signal);
    return true;
  }

  async #runHere(request: InvocationRequest, lease: Lease, outside: AbortSignal): Promise<void> {
    const { context, agent, ledger } = this.#parent;
    try {
      await this.#run({ context, request, agent, lease }, outside);
    } catch (error) {
      // Another process goes on with it, or it waits for a budget: its row says which.
      if (error instanceof HandedOverError || error instanceof LeaseLostError) return;
      throw ledger.fail(error);
    }
  }

  async #toReply({ call, request }: Child, { status, error }: EndedChild): Promise<AgentReply> {
    if (status !== 'succeeded') throw new Error(error ?? `The agent \`${call.agent.name}\` did not succeed.`);
    const { key, invocationId } = request;
    const list = () => listInvocationEvents(this.#parent.context.database.db, key, invocationId);
    const events = (await this.#store(list)).filter(({ author }) => author !== 'user');
    const { stateDelta, artifactDelta } = mergeActions(events.map(({ actions }) => actions ?? {}));
    const text = events.map(({ content }) => getAnswerText(content)).findLast((each) => each !== '') ?? '';
    const value = events.at(-1)?.output ?? undefined;
    // Results of tools that are too large for a prompt stay where they were made.
    const saved = Object.entries(artifactDelta ?? {}).filter(([name]) => !isResultArtifact(name));
    return { text, value, actions: { stateDelta, artifactDelta: Object.fromEntries(saved) } };
  }

  /** Runs a statement. What the model may know of its failure is an `AppError`; any other ends the parent's run. */
  async #store<T>(work: () => Promise<T>): Promise<T> {
    const { lease, ledger } = this.#parent;
    try {
      return await persist(work, lease.durationMs);
    } catch (error) {
      if (error instanceof AppError && !(error instanceof LeaseLostError)) throw error;
      const full = sizeRefusal(error);
      if (full) throw new AgentError(full.code, full.message, { cause: error });
      throw ledger.fail(error);
    }
  }
}

const toStarted = ({ sessionId }: SessionKey): AgentReply => ({
  text: '',
  value: { started: sessionId, note: STARTED },
  actions: {},
});

/** An agent of an application as the agent of an invocation, with the limits of that invocation. */
export function toChildAgent(
  { maxLlmCalls, maxTokens, contextTokensAtMost, compaction, loopStop, close }: PreparedAgent,
  agent: AgentNode,
): PreparedAgent {
  const settings = { ...(compaction && { compaction }), ...(loopStop && { loopStop }) };
  return { ...agent, maxLlmCalls, maxTokens, contextTokensAtMost, ...settings, close };
}
